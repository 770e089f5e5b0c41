"""The laptop stack: registry and console, MLflow, engine, gateway and room tools as plain processes.

`services` says what they are, `processes` starts, watches and stops them. Always holds: what is stopped is only what was
started here, known by process id and start time; a service counts as up when its own health route answers.
Not here: the services themselves.
"""
