"""One module per revision, in order of its number."""
