"""The judge: estimates on real conversations what the simulation computes, and knows how wrong it is.

    rubric       what is asked: Markdown with anchored levels
    spec         the judge as a versioned object: rubric, members, voting, checks; its digest
    subject      what is judged: one turn of a trace
    evidence     tools by which a member looks into the trace
    prompt       what a member reads; the case code that an injected verdict cannot know
    verdict      from a member's text to labels, or the reason why not
    chat         an OpenAI-compatible endpoint: retries, structured output, cost, cache
    members      who judges: endpoints, and an oracle with a settable confusion matrix for simulation
    checks       what a program can refute without a model
    panel        asks all members, votes, and counts what could not be judged
    pairwise     which of two replies is better, asked in both orders
    calibration  agreement with people, corrected scores, drift between revisions, history
    step         the judge step: scores traces, or calibrates the judge on labelled ones

Always holds: an item that cannot be judged is missing with its reason, never right and never wrong. The same judge
digest, traces and cache give the same result. Not here: the arithmetic (hat_stats), people's labels (hat_registry).
"""
