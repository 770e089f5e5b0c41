"""The dev engine: serves a Qwen3-style model folder on CPUs behind SGLang's HTTP API.

It stands in for SGLang where there is no GPU: same routes, JSON shapes, error shapes and metric names, continuous
batching, prefix reuse, tool and reasoning parsing, speculative decoding with the model's own MTP head. What it does
not have (constrained decoding, LoRA, images, disaggregation) it refuses by name; it never answers something else.
    network, bank, prefix, mtp     one forward pass and its caches
    sampling, request, scheduler   which token comes next, and for whom
    text, reasoning, toolcalls     text from tokens and structure from text
    api, openai, native, metrics   what a client sees
Not here: training, SGLang's own flags (hat_serving.sglang), the gateway.
"""
