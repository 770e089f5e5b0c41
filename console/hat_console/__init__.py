"""The console: pages over the registry, pipelines and serving, rendered on the server (Jinja2, htmx, no build step).

Always holds: a page and its JSON twin come from the same API function; what a role may not do is not shown and is refused
all the same; every text stands in the message catalogue. Not here: rules (hat_registry), the API (hat_registry.api).
"""
