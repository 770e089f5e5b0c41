"""The gateway: hosts the agent between viewers and engines.

It resolves the release for a unit, keeps the conversation, runs the `Session` through the async driver, streams what
may be shown, and records the trace. Not here: the agent loop (hat_harness), engines (hat_serving.engine, SGLang images).
"""
