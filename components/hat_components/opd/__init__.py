"""Step `opd`: on-policy distillation towards the base model, so that what it could do in general comes back."""
