"""Step `gate`: holds an evaluation against bounds and says whether it passes."""
