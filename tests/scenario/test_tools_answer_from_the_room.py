"""The tool backend: every tool's text, errors as texts, effects once, and ground truth equal to what tools say."""

from __future__ import annotations

from typing import Any

import pytest

from hat_harness.events import ToolRequest
from hat_harness.spec import Harness
from hat_scenarios.live_commerce import LiveCommerce, RoomBackend, Settings
from hat_scenarios.live_commerce.backend import EFFECTS, ERROR, TOOLS, carry_out
from hat_scenarios.live_commerce.expert import plan_of, room_before
from hat_scenarios.live_commerce.room import Buyer, Campaign, Coupon, Product, Room, Rule
from hat_scenarios.live_commerce.truth import contains


def product(name: str, price: int, **other: Any) -> Product:
    fields = {"colour": "red", "material": "steel", "size": "small", "stock": 5} | other
    return Product(name=name, price=price, **fields)


@pytest.fixture
def room() -> Room:
    return Room(
        products=(
            product("luma mug", 4_000, coupon=Coupon(off=1_000, from_cents=8_000)),
            product("zento lamp", 6_050, colour="blue"),
            product("nova fan", 9_000),
        ),
        presented="zento lamp",
        campaign=Campaign(kind="percent", percent=20),
        faq={"shipping": "parcels leave within 3 days"},
        rules={"broken": Rule(action="exchange", days=7)},
        buyer=Buyer(coupon=1_500, credit=200),
    )


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("get_item", {"item": "luma mug"}, "luma mug : price 40 , colour red , material steel , size small , stock 5"),
        (
            "compare_items",
            {"first": "zento lamp", "second": "luma mug"},
            "zento lamp price 60.50 , luma mug price 40 , cheaper luma mug by 20.50",
        ),
        ("get_promotion", {"item": "luma mug"}, "luma mug : coupon 10 off from 80"),
        ("get_promotion", {"item": "nova fan"}, "nova fan : no coupon"),
        ("get_promotion", {"item": "room"}, "room : sale 20 percent off"),
        ("calculate_promotion", {"item": "luma mug", "count": "2"}, "2 luma mug : sum 80 , sale and coupon , pay 54"),
        (
            "calculate_optimal_promotion",
            {"item": "luma mug", "count": 2},
            "2 luma mug : sum 80 , sale and credit and own coupon , pay 47",
        ),
        ("get_faq", {"topic": "shipping"}, "shipping : parcels leave within 3 days"),
        ("get_faq", {"topic": "broken"}, "broken : we exchange it within 7 days"),
        ("get_buyer_benefits", {"item": "nova fan"}, "nova fan : own coupon 15 , credit 2"),
        ("change_presentation_order", {"item": "nova fan", "position": "first"}, "order : nova fan is first"),
        ("start_explanation", {"item": "nova fan"}, "stage : nova fan"),
    ],
)
def test_each_tool_answers_in_one_line(room: Room, tool: str, arguments: dict[str, Any], text: str) -> None:
    after, answer = carry_out(room, tool, arguments)
    assert answer == text
    assert (after == room) == (tool not in EFFECTS)


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("get_item", {"item": "ghost mug"}, "no product called ghost mug"),
        ("get_item", {}, "needs item"),
        ("get_item", {"item": ["luma mug"]}, "needs item"),
        ("calculate_promotion", {"item": "luma mug", "count": "many"}, "count is a number"),
        ("calculate_promotion", {"item": "luma mug", "count": 0}, "count is a number"),
        ("calculate_promotion", {"item": "luma mug", "count": "٢"}, "count is a number"),
        ("get_faq", {"topic": "weather"}, "no entry for weather"),
        ("change_presentation_order", {"item": "luma mug", "position": "top"}, "position is first , next or last"),
        ("fly", {}, "no tool called fly"),
    ],
)
def test_bad_calls_are_answered_and_change_nothing(room: Room, tool: str, arguments: Any, reason: str) -> None:
    after, answer = carry_out(room, tool, arguments)
    assert answer.startswith(ERROR)
    assert reason in answer
    assert after == room


def test_moves_put_a_product_where_it_belongs(room: Room) -> None:
    assert room.moved("nova fan", "first").names == ("nova fan", "luma mug", "zento lamp")
    assert room.moved("luma mug", "next").names == ("zento lamp", "luma mug", "nova fan")
    assert room.moved("luma mug", "last").names == ("zento lamp", "nova fan", "luma mug")
    assert room.moved("zento lamp", "next").names == ("zento lamp", "luma mug", "nova fan")
    for position in ("first", "next", "last"):
        once = room.moved("luma mug", position)  # type: ignore[arg-type]
        assert once.moved("luma mug", position) == once  # type: ignore[arg-type]


def test_the_same_key_has_its_effect_once(room: Room) -> None:
    backend = RoomBackend(room)
    first = ToolRequest("a", "change_presentation_order", {"item": "nova fan", "position": "first"}, "key")
    backend.call("s", first)
    backend.call("s", ToolRequest("b", "change_presentation_order", {"item": "luma mug", "position": "first"}, "other"))
    again = backend.call("s", ToolRequest("c", first.name, first.arguments, "key"))
    assert again.call_id == "c"
    assert again.content == "order : nova fan is first"
    assert backend.room.names[0] == "luma mug"


def test_ground_truth_is_what_the_tools_say() -> None:
    """Every gold fact of a turn with calls stands in the results of its gold calls."""
    scenario = LiveCommerce(Settings(mix="balanced", difficulty=3))
    checked = 0
    for item in scenario.items(51, "train", 250):
        for index, turn in enumerate(item.turns):
            room = room_before(item, index)
            assert plan_of(room, turn).gold() == turn.gold
            results = " , ".join(carry_out(room, call.tool, call.arguments)[1] for call in turn.gold.calls)
            assert ERROR not in results
            for fact in turn.gold.facts if turn.gold.calls else ():
                assert contains(results, fact)
                checked += 1
    assert checked > 500


def test_every_number_of_a_room_is_whole() -> None:
    scenario = LiveCommerce(Settings(mix={"discount": 1.0}))
    for item in scenario.items(52, "train", 200):
        assert all("." not in fact for turn in item.turns for fact in turn.gold.facts)


def test_the_harness_offers_the_tools_of_the_room(live: Harness, baseline: Harness) -> None:
    for harness in (live, baseline):
        assert {tool.id for tool in harness.tools} == set(TOOLS)
        assert {tool.id for tool in harness.tools if not tool.read_only} == EFFECTS
    assert live.tools == baseline.tools
