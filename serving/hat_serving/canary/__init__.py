"""Canary rollouts: a release gets traffic step by step, and only while evidence allows it.

    spec          what a rollout is: target, steps, metrics (pydantic; the CRD says the same)
    conditions    the state in Kubernetes' own words
    state         what is remembered between two looks, and what a look sees
    machine       state + observation → next state + commands; pure
    gates         measured numbers → success, failure, inconclusive, waiting; pure
    metrics       asks Prometheus
    backends      who splits traffic: HTTPRoute, KServe's spec.canary, Knative, LLMInferenceService groups, the gateway
    workload      the canary's InferenceService: added, promoted, taken back
    capacity      which step needs how many GPUs
    preflight     what would make the rollout fail, before it starts
    driver        one look: observe, decide, write down, act
    controller    the CanaryRollout resource on Kubernetes (kopf), with leader election
    record        tells the registry's ledger
    control       start, status, pause, resume, promote, abort
    folder, watch the same without a cluster: files, and a loop over them

Always holds: an inconclusive measurement never promotes; a step's clock runs only while the split that is really in
force equals the wanted one; every state survives a restart, because it lives in the resource's status. Not here:
sticky assignment of units to arms (experiment), the gateway itself.
"""
