"""Runs on a cluster's workflow engine: Argo Workflows or Kubeflow Pipelines.

    settings   where the engine and its artifact store are
    engine     what every engine can do, and how a wait ends
    argo       Workflows by the Kubernetes API: submit, status, logs, cancel, retry, CronWorkflow
    kfp        runs by the API of Kubeflow Pipelines
    store      the artifact repository: what a run brings goes there, what steps made comes from there
    follow     a run on a cluster as a run folder here, while it goes

hera and the kfp SDK write the manifests (to_hera, to_kfp); they are not used to talk to the engines: hera's `wait`
takes a pending workflow for a finished one, and both have no time limits of their own.
"""
