"""Step `canary`: starts a canary rollout of a proposed release and waits for how it ends."""
