"""General data: what a small model needs to be able to read any harness, and must not forget while it learns one.

`stream` draws one conversation of a kind; `instructions` and `verify` are suite T4m. Always holds: a draw consumes
nothing but its `random.Random`. Not here: the scenario's own sessions, mixing kinds and counting tokens (training).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, Literal

from hat_scenarios.general.instructions import Check, Instruction, instruction, instructions, verify
from hat_scenarios.general.sessions import random_harness, session
from hat_scenarios.general.texts import copy, lookup
from hat_scenarios.general.words import Words

__all__ = [
    "KINDS",
    "Check",
    "Conversation",
    "Instruction",
    "Kind",
    "Words",
    "instructions",
    "random_harness",
    "stream",
    "verify",
]

Conversation = list[dict[str, Any]]
"""Messages in OpenAI chat roles: `role`, `content`, and where they apply `reasoning`, `tool_calls`, `name`."""
Kind = Literal["copy", "lookup", "session", "instruction"]
_MAKERS: Final[dict[Kind, Callable[[random.Random, Words], Conversation]]] = {
    "copy": copy,
    "lookup": lookup,
    "session": session,
    "instruction": instruction,
}
KINDS: Final = tuple(_MAKERS)


def stream(kind: Kind, rng: random.Random, words: Words) -> Conversation:
    """One fresh conversation: copying a text, looking names up in a list, an agent session, one instruction."""
    return _MAKERS[kind](rng, words)
