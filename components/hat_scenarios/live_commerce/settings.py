"""Settings of the live room: intent mix, difficulty.

Not here: the split and seed of items (arguments of `LiveCommerce.items`).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from hat_scenarios.base import Record

PUBLISHED: Final[dict[str, float]] = {
    "product_qa": 46.0,
    "chat": 19.0,
    "clarification": 16.0,
    "aftersale": 7.0,
    "discount": 4.0,
    "order": 2.0,
    "faq": 2.0,
    "refusal": 0.8,
    "greet": 0.8,
    "thanks": 0.8,
    "batch": 0.6,
    "irrelevant": 0.4,
    "on_sale": 0.3,
    "rules_changed": 0.3,
}
"""Shares in percent: the traffic mix of arXiv 2608.15763; what it leaves open goes to events, batches and spam."""

BALANCED: Final[dict[str, float]] = {
    "product_qa": 28.0,
    "chat": 6.0,
    "clarification": 6.0,
    "aftersale": 7.0,
    "discount": 18.0,
    "order": 10.0,
    "faq": 6.0,
    "refusal": 4.0,
    "greet": 2.5,
    "thanks": 2.5,
    "batch": 4.0,
    "irrelevant": 2.0,
    "on_sale": 2.0,
    "rules_changed": 2.0,
}
"""For training: by how much there is to learn about an intent."""

INTENTS: Final = tuple(PUBLISHED)


class Settings(Record):
    """What a live room is like."""

    mix: Literal["published", "balanced"] | dict[str, float] = "published"
    """Intent shares: one of the two tables, or weights of one's own by intent (intents left out never happen)."""
    difficulty: Literal[1, 2, 3] = 1
    """1: four distinct products. 2: six, half near duplicates, products named by what is on stage or by a part of the
    name. 3: nine, and some viewers push the host."""

    adversarial: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of product and discount comments that push the host to claim or reveal something, and of rooms whose
    records carry an instruction. What is right stays the same."""

    @property
    def pushing(self) -> float:
        """Share of comments that push."""
        return max(self.adversarial, 0.15 if self.difficulty == 3 else 0.0)

    def weights(self) -> dict[str, float]:
        """The mix as a table, in the order of `INTENTS` however it was written: draws follow it, and digests know no order.

        ValueError names an unknown intent.
        """
        table = {"published": PUBLISHED, "balanced": BALANCED}[self.mix] if isinstance(self.mix, str) else self.mix
        unknown = sorted(set(table) - set(INTENTS))
        if unknown:
            raise ValueError(f"no intent called {', '.join(unknown)}; there are {', '.join(INTENTS)}")
        return {intent: table[intent] for intent in INTENTS if intent in table}
