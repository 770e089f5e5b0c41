"""Imported conversations as two arms: as they are, and with the tools they bring rewritten together with every call.

Always holds: the canonical calls of both arms are the same; a conversation whose tools cannot be rewritten is left out of
both and counted. Not here: the rewriting (hat_harness.augment.conversation).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hat_components.augment.config import Config
from hat_components.data import Trajectory, digest_tools, read_records, text_size
from hat_components.importer.conversation import Conversation
from hat_components.sessions import draw_seed
from hat_components.step import InputError, Progress
from hat_harness.augment import AugmentPlan
from hat_harness.augment.conversation import KEY, augment_conversation
from hat_harness.errors import AugmentError


def imported_arms(
    config: Config, plan: AugmentPlan, folder: Path, progress: Progress
) -> tuple[dict[str, list[Trajectory]], dict[str, Any]]:
    """(conversations of each arm in the same order, facts for the manifest)."""
    arms: dict[str, list[Trajectory]] = {"naive": [], "hsa": []}
    total = 0
    refused: dict[str, int] = {}
    for total, conversation in enumerate(read_records(folder, Conversation), start=1):
        try:
            rewritten, families = rewrite(conversation, plan, config.seed)
        except AugmentError as error:
            refused[error.message] = refused.get(error.message, 0) + 1
            continue
        arms["naive"].append(_trajectory("naive", conversation, ()))
        arms["hsa"].append(_trajectory("hsa", rewritten, families))
        if total % 200 == 0:
            progress.progress(total, 0, "conversations")
    kept = total - sum(refused.values())
    facts = {"source": "import", "kept_share": round(kept / max(total, 1), 4), "causes": dict(sorted(refused.items()))}
    if kept / max(total, 1) < config.least_kept:
        raise InputError(
            f"only {kept} of {total} conversations can be rewritten; causes: {facts['causes']}",
            place=str(folder),
            cure="correct the tools of the conversations, or lower least_kept",
        )
    return arms, facts


def rewrite(conversation: Conversation, plan: AugmentPlan, seed: int) -> tuple[Conversation, tuple[str, ...]]:
    """The conversation under one draw of the plan, and the families that were on. Raises `AugmentError`."""
    given = {"messages": list(conversation.messages), "tools": list(conversation.tools)}
    made = augment_conversation(given, plan, draw_seed(seed, conversation.id))
    families = tuple(rewrite["operator"]["type"] for rewrite in made["metadata"][KEY]["rewrites"])
    changed = conversation.model_copy(update={"messages": tuple(made["messages"]), "tools": tuple(made["tools"])})
    return changed, families


def rewritten(conversations: list[Conversation], plan: AugmentPlan, seed: int) -> Iterator[Conversation]:
    """Every conversation under its draw; one that cannot be rewritten stays as it is."""
    for conversation in conversations:
        try:
            yield rewrite(conversation, plan, seed)[0]
        except AugmentError:
            yield conversation


def _trajectory(arm: str, conversation: Conversation, families: tuple[str, ...]) -> Trajectory:
    return Trajectory(
        id=f"{arm}/{conversation.id}",
        arm=arm,
        item=conversation.id,
        source="import",
        harness=digest_tools(conversation.tools),
        operators=families,
        messages=conversation.messages,
        tools=conversation.tools,
        size=text_size(conversation.messages, conversation.tools),
    )
