"""The harness: what it is, how it is read, rendered, run, traced and replayed. Torch-free; the core does no I/O.

`load` reads folders and `drive` holds the drivers; every other module is pure.
"""
