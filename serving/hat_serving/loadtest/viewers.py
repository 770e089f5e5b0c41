"""What viewers of a load say: conversations drawn from the scenario by intent mix, and what a sale makes them ask.

Always holds: a conversation is a function of plan, viewer and number alone, and speaks of the products of the room that
the gateway's tools serve. Not here: sending (users).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache

from hat_scenarios.base import Turn
from hat_scenarios.live_commerce import LiveCommerce, Settings
from hat_scenarios.live_commerce.room import Room
from hat_scenarios.live_commerce.turns import draw_turns
from hat_scenarios.live_commerce.words import PRODUCT
from hat_serving.loadtest.plan import LoadPlan


@lru_cache(maxsize=8)
def room_of(seed: int, difficulty: int) -> Room:
    """The room that `hat scenario serve --seed` serves."""
    scenario = LiveCommerce(Settings.model_validate({"difficulty": difficulty}))
    return Room.model_validate(scenario.item(seed, "dev", 0).room)


def conversation(plan: LoadPlan, viewer: int, number: int) -> Iterator[Turn]:
    """The turns of a viewer's conversation `number`."""
    rng = random.Random(f"loadtest/{plan.seed}/{viewer}/{number}")
    settings = Settings.model_validate({"mix": plan.mix, "difficulty": plan.difficulty})
    yield from draw_turns(rng, room_of(plan.room_seed, plan.difficulty), plan.turns, settings)


def on_sale(plan: LoadPlan, number: int) -> str:
    """The product of sale `number`."""
    rng = random.Random(f"loadtest/{plan.seed}/sale/{number}")
    return str(rng.choice(room_of(plan.room_seed, plan.difficulty).names))


def asked_of(plan: LoadPlan, viewer: int, sale: int) -> str:
    """What a viewer asks when the product of sale `sale` goes on sale."""
    rng = random.Random(f"loadtest/{plan.seed}/{viewer}/sale/{sale}")
    aspect = rng.choice(("price", "stock", "describe"))
    return rng.choice(PRODUCT[aspect]).format(i=on_sale(plan, sale))
