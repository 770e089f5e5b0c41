"""The parts of the node agent: namespaces and addresses, volumes, environment, probes, containers, status, logs.

`podrunner` puts them together. Nothing here knows KServe or hatstack.
"""
