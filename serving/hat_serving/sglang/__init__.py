"""SGLang as it is run: versioned serving profiles, the flags they become, and checks before a pod is started for them.

    profile    the schema, presets and digest
    flags      profile → command line
    checks     what SGLang would refuse, and what it lets pass
    catalog    which flags exist in which SGLang version (snapshots made by SGLang's own parser)
    snapshot   makes such a snapshot; runs inside SGLang's environment
    resolve    asks a real SGLang: its parser and its combination checks
SGLang never shares this environment; nothing here imports it. Not here: the CPU dev engine (hat_serving.engine).
"""
