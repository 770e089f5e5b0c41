"""What follows a finished harness: its worked examples.

Always holds: a few-shot under the new state is the trajectory that the old one would be there; it works in both
directions. Not here: drawing (engine), single messages (walk).
"""

from __future__ import annotations

from hat_harness.augment.draft import changed
from hat_harness.augment.translation import Translation
from hat_harness.augment.walk import translate
from hat_harness.spec import FewShot, Harness


def with_shots(source: Harness, target: Harness) -> Harness:
    """`target`, made from `source`, with the few-shots brought along."""
    if not source.few_shots:
        return target
    words = Translation(source, target)
    return changed(target, few_shots=tuple(_shot(shot, words) for shot in source.few_shots))


def _shot(shot: FewShot, words: Translation) -> FewShot:
    """One worked example; a system prompt in it stays."""
    system = next((message.get("content", "") for message in shot.messages if message.get("role") == "system"), None)
    return changed(shot, messages=tuple(translate(words, list(shot.messages), system)))
