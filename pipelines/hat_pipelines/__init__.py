"""Pipelines: the DAGs, the profiles that fix a run, the local runner, and the forms that a cluster gets.

No logic of steps: a step is a function of hat_components, named here and run by whoever executes the DAG.
"""
