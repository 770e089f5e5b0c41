"""Step `collect`: a teacher plays items under sampled harness states; what scores well becomes training data."""
