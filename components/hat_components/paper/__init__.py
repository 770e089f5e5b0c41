"""The report catalogue of the source paper, each item made from runs of one's own.

    catalogue   what an item is; `ITEMS`, `render`
    sources     what a runs directory holds
    page        an item as HTML
    items_*     the items; a module of that name is found by itself, and adds to `ITEMS` what it registers

Always holds: an item whose runs are missing says which and how to make them; a published figure only ever stands in a
table that says so. To add an item: write `items_<topic>.py` with functions under `@item(...)`. Not here: the run report.
"""
