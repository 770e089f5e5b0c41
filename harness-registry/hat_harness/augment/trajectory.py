"""Trajectories under another harness state: the same turns as they would read there, and back.

Always holds: `restore_trajectory(state, rewrite_trajectory(state, t)) == t`, up to the order of keys in arguments where
a group was made; what was wrong before is wrong after. Not here: what is rewritten (walk), drawing states (engine).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hat_harness.augment.engine import original
from hat_harness.augment.state import HarnessState
from hat_harness.augment.translation import Translation
from hat_harness.augment.walk import MessageT, System, translate
from hat_harness.canonical import CallError, CanonicalCall, canonical_call
from hat_harness.errors import AugmentError
from hat_harness.spec import Harness


def canonicalise_call(
    state: HarnessState | Harness, name: str, arguments: Mapping[str, Any]
) -> CanonicalCall | CallError:
    """What a call that a model wrote under the state means: canonical tool id and arguments, or why it is wrong."""
    harness = state.harness if isinstance(state, HarnessState) else state
    return canonical_call(harness, name, arguments)


def translation(state: HarnessState, back: bool = False) -> Translation:
    """The dictionary between the state's base and the state (`back`: the other way), made once per state."""
    made = state._translation
    if made is None:
        base = original(state)
        made = (Translation(base, state.harness), Translation(state.harness, base))
        state._translation = made
    found: Translation = made[1 if back else 0]
    return found


def rewrite_trajectory(
    state: HarnessState,
    messages: Sequence[MessageT],
    system: System | str | None = None,
    replies: Mapping[str, str] | None = None,
) -> list[MessageT]:
    """A trajectory of the base harness as it reads under the state.

    `system` renders the system prompt (`lambda harness: render_system(harness, room)`), or is its text; AugmentError
    when the trajectory has one and neither is given. `replies` is the recorded map of a rewrite in another language: reply →
    what says the same there; one-to-one. A reply that it does not know keeps its words, but for demanded phrases.
    """
    return translate(_speaking(translation(state), replies or {}), messages, system)


def restore_trajectory(
    state: HarnessState,
    messages: Sequence[MessageT],
    system: System | str | None = None,
    replies: Mapping[str, str] | None = None,
) -> list[MessageT]:
    """A trajectory that ran under the state as it reads under the base harness; `replies` as for rewriting."""
    back = _inverse(replies or {})
    return translate(_speaking(translation(state, back=True), back), messages, system)


def _speaking(words: Translation, replies: Mapping[str, str]) -> Translation:
    """The dictionary with a map of replies; the kept one stays as it is. What a map says of is exchanged, as names are."""
    if not replies:
        return words
    return Translation(words.source, words.target, words.catalogue, {**_inverse(replies), **replies})


def _inverse(replies: Mapping[str, str]) -> dict[str, str]:
    back = {new: old for old, new in replies.items()}
    if len(back) < len(replies) or back.keys() & replies.keys():
        raise AugmentError("two replies become one", place="replies", cure="give a one-to-one map of other texts")
    return back
