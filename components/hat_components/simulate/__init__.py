"""Step `simulate`: draws the items of a scenario into train, dev and test sets that share no item."""
