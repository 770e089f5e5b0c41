"""Harness evolution with a fixed policy: what each edit of a harness fixes and breaks, and which one to keep.

    config    what is measured, by which policies, when to stop
    policy    who acts: a model folder, an endpoint, or the scripted expert with seeded faults
    faults    how the scripted expert errs, depending on what the harness says
    measure   a policy under a harness on items: one row per turn, scores with intervals
    effects   two measurements of the same items: fixed, broken, by intent and hook; errors before and after
    edits     candidates: folders, working copies, proposals
    propose   a language model that reads failures and writes the next edit
    result    hatstack.evolution/1
    step      the loop: trajectory, early stopping, selection, held-out check

Always holds: weights never change; edits are chosen on the evolution set alone and checked once on items that nothing
was chosen by. Not here: training, promotion (hat_registry).
"""
