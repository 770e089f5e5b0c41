"""The desk: runs that are ordered from a page or over HTTP, one after the other, by whoever may.

    order       what is asked for: pipeline, profile, values, target, budget
    catalogue   which profiles, harnesses and pipelines may be asked for; from an order to a job
    form        the inputs of a pipeline as fields with type, default, choices and help
    cron        five-field schedules
    store       orders and schedules in a database
    desk        the loop: starts what is queued, notices what ended, fires schedules
    supervise   the process that carries one order out and outlives the desk
    budget      what a run has used
    look        runs as pages show them: list, graph, curves, logs
    compare     two runs side by side

Always holds: an order is in the database before anything starts, its supervisor is a process of its own, and a run's
state is in its folder; so the desk can be restarted at any time. Not here: pages (hat_console), steps.
"""
