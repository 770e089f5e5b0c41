"""The same harness, plan, seed and vocabulary give the same bytes, in any order and any process."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from random import Random

from hypothesis import given, settings

from hat_harness.augment import apply, suite_plan, trained_plan
from hat_harness.augment.conversation import augment_conversation
from hat_harness.augment.naming import weighted
from hat_harness.augment.operators import ParameterType, Register
from tests.augmentation.strategies import HELD_OUT, TRAINED, harnesses, make_harness, operators, seeds

GOLDEN = {
    "trained/1": "99cc0d2662d6b74d",
    "trained/2": "2340bdad392981e6",
    "T2x/3": "9aa940cfe893fd8c",
    "T2n/4": "8d5ee8756dcd75f6",
    "T2e/5": "85eb6fafa3f9a426",
    "types/6": "9acf9248b425c87a",
}


def golden_states() -> dict[str, str]:
    harness = make_harness(Random(11))
    types = trained_plan().model_copy(
        update={"operators": (*trained_plan().operators, ParameterType(), Register()), "original": 0.0}
    )
    plans = {name: suite_plan(name) for name in ("T2x", "T2n", "T2e")}
    plans |= {"trained": trained_plan().model_copy(update={"original": 0.0}), "types": types}
    found = {}
    for key in GOLDEN:
        name, seed = key.split("/")
        state = apply(harness, plans[name], int(seed), TRAINED, held_out=HELD_OUT)
        text = state.model_dump_json().replace(',"client_tools":0', "")  # a setting younger than these digests
        found[key] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return found


def test_golden_digests():
    assert golden_states() == GOLDEN


def test_another_process_with_another_hash_seed_gives_the_same_bytes(repository):
    program = "import json; from tests.augmentation.test_same_seed_same_bytes import golden_states as g; print(json.dumps(g()))"
    import json

    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=repository,
        env={"PYTHONHASHSEED": "12345", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout) == golden_states()


@settings(max_examples=50, deadline=None)
@given(harnesses(), operators(), seeds)
def test_nothing_is_remembered_between_calls(harness, chosen, seed):
    one = apply(harness, chosen, seed, TRAINED, held_out=HELD_OUT).model_dump_json()
    apply(harness, chosen, seed + 1, TRAINED, held_out=HELD_OUT)
    copy = type(harness).model_validate_json(harness.model_dump_json())
    assert apply(copy, chosen, seed, TRAINED, held_out=HELD_OUT).model_dump_json() == one


def test_switching_a_family_off_leaves_the_draws_of_the_others():
    harness = make_harness(Random(11))
    full = trained_plan().model_copy(update={"p": 1.0, "original": 0.0})
    without = full.model_copy(update={"operators": tuple(op for op in full.operators if op.type != "skill_order")})
    one, two = (apply(harness, plan, 9, TRAINED, held_out=HELD_OUT) for plan in (full, without))
    names = [[rewrite.names for rewrite in state.rewrites if rewrite.names] for state in (one, two)]
    assert names[0] == names[1]
    assert one.phrases() == two.phrases()


def test_conversations_are_reproducible():
    from hat_components.bfcl import load_sample

    entry = load_sample("held_in")[0]
    plan = trained_plan()
    assert augment_conversation(entry, plan, 3) == augment_conversation(entry, plan, 3)


def test_the_order_of_weights_says_nothing():
    """Digests of plans leave the order of a mapping out, so draws do, too."""
    drawn = [("trained", 0.5), ("random", 0.3), ("swap", 0.2)]
    for seed in range(20):
        ways = [weighted(Random(seed), dict(order)) for order in (drawn, drawn[::-1])]
        assert ways[0] == ways[1]
    assert {weighted(Random(seed), dict(drawn)) for seed in range(40)} == {"trained", "random", "swap"}
