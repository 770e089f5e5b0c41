"""A real Kubernetes control plane with KServe on one machine, without containers, for tests and for use by hand.

What always holds: etcd, API server, controller manager, scheduler, KServe's controllers with their webhooks and
Traefik as Gateway API controller are the upstream programs, unmodified. They live in a user, network, mount and
process namespace of their own, so they listen on no port of the machine and vanish, with every pod, when the process
that started them ends. A pod is a real process group behind a real address; only its image is the machine's own file
system.

    build       compiles the programs once into a cache outside the repository
    manifests   CRDs, webhooks and settings that the programs' modules bring
    certs       certificate authority, serving certificates, the service-account key
    cluster     the handle outside: starts a supervisor, gives a kubeconfig, always stops it
    supervisor  inside the namespaces: starts the programs, forwards two ports, runs the pods
    install     CRDs, KServe's settings, webhooks, the gateway
    snapshot    etcd's data after the installation, so that the next start takes seconds
    podrunner   the node agent
    fixture     pytest fixtures

By hand: `python -m tests.cluster.controlplane build|up|down`. Not here: kube-proxy's packet rules (`services`
forwards connections instead), container images, resource limits, `kubectl exec`.
"""
