"""Steps and pipelines that cost nothing, for tests of the machinery around them."""
