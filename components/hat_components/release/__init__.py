"""Step `release`: proposes a release to the registry, with its evidence."""
