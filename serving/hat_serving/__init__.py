"""Serving: the gateway that hosts the agent, the dev engine, SGLang profiles, experiments, load tests and canaries.

Not here: what an agent is (hat_harness), where versions live (hat_registry), training (hat_components).
"""
