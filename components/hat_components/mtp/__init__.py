"""Step `mtp`: the NextN draft head (`mtp.*`) of a model: carried over, fitted to the trained policy, measured."""
