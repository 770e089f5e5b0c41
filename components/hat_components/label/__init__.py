"""Labels by people: single ratings by a rubric and blind pairs with causes, in a store of their own.

    tables     the tables, beside the registry's and apart from them
    store      projects, tasks, ratings, progress, agreement, adjudication; who may do what
    tasks      tasks from sessions: one turn by a rubric, or two replies to the same turn
    exchange   JSONL in and out
    preference who wins, how surely, and why (hatstack.preference/1)
    raters     simulated raters, for tests and plans
    step       the label step: pairs from two evaluations, rated by simulated raters or by a labels file

Always holds: a rater never sees which arm a reply comes from, nor what others said; a label names an item of its project
and a label of its rubric, or is refused. Not here: pages (hat_console), what labels are worth to a judge (judge).
"""
