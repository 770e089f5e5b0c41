"""The tools of the room: canonical id and canonical arguments in, one line of text out, the room changed or not.

Always holds: the same room and call give the same text; a bad call is answered with a text that starts with `error`,
never with an exception; only `change_presentation_order` and `start_explanation` change the room, and making the same
change twice leaves it as once. Not here: renamed tools and result envelopes (the session undoes and adds them),
transport (server).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from hat_harness.events import ToolRequest, ToolResult
from hat_scenarios.base import Turn
from hat_scenarios.live_commerce.promotion import Quote, best, yuan
from hat_scenarios.live_commerce.room import Campaign, Position, Product, Room

ERROR: Final = "error :"
"""How every failed call's text starts."""


class BadCallError(ValueError):
    """A call that the room cannot answer; the text is what the model reads."""


def get_item(room: Room, arguments: Mapping[str, Any]) -> tuple[Room, str]:
    """The whole record of one product."""
    item = _product(room, arguments, "item")
    return room, (
        f"{item.name} : price {yuan(item.price)} , colour {item.colour} , material {item.material} , "
        f"size {item.size} , stock {item.stock}{room.note}"
    )


def compare_items(room: Room, arguments: Mapping[str, Any]) -> tuple[Room, str]:
    """Two products' prices, and which is cheaper by how much."""
    first, second = _product(room, arguments, "first"), _product(room, arguments, "second")
    text = f"{first.name} price {yuan(first.price)} , {second.name} price {yuan(second.price)} , "
    if first.price == second.price:
        return room, text + "both cost the same"
    cheap = first if first.price < second.price else second
    return room, text + f"cheaper {cheap.name} by {yuan(abs(first.price - second.price))}"


def get_promotion(room: Room, arguments: Mapping[str, Any]) -> tuple[Room, str]:
    """The coupon of one product, or with `room` the campaign of the room, with its conditions."""
    if _text(arguments, "item") == "room":
        return room, f"room : {campaign_text(room.campaign)}"
    item = _product(room, arguments, "item")
    if item.coupon is None:
        return room, f"{item.name} : no coupon{room.note}"
    start = f" from {yuan(item.coupon.from_cents)}" if item.coupon.from_cents else ""
    return room, f"{item.name} : coupon {yuan(item.coupon.off)} off{start}{room.note}"


def campaign_text(campaign: Campaign) -> str:
    """The room-level promotion in words."""
    if campaign.kind == "percent":
        return f"sale {campaign.percent} percent off"
    return f"sale {yuan(campaign.off)} off from {yuan(campaign.from_cents)}"


def calculate_promotion(room: Room, arguments: Mapping[str, Any]) -> tuple[Room, str]:
    """What some pieces of a product cost under what every viewer gets."""
    item, count = _product(room, arguments, "item"), _count(arguments)
    return room, _quoted(item, count, best(item.price, count, room.public_promotions(item), stack=room.stack))


def calculate_optimal_promotion(room: Room, arguments: Mapping[str, Any]) -> tuple[Room, str]:
    """The lowest price of some pieces with the buyer's own coupons and credit too."""
    item, count = _product(room, arguments, "item"), _count(arguments)
    promotions = room.public_promotions(item) + room.buyer_promotions()
    return room, _quoted(item, count, best(item.price, count, promotions, stack=room.stack))


def _quoted(item: Product, count: int, quote: Quote) -> str:
    used = " and ".join(quote.used) or "nothing off"
    return f"{count} {item.name} : sum {yuan(quote.sum)} , {used} , pay {yuan(quote.pay)}"


def get_faq(room: Room, arguments: Mapping[str, Any]) -> tuple[Room, str]:
    """The shop's entry on a topic, or its rule for one kind of order trouble."""
    topic = _text(arguments, "topic")
    if topic in room.faq:
        return room, f"{topic} : {room.faq[topic]}"
    if topic in room.rules:
        rule = room.rules[topic]
        return room, f"{topic} : we {rule.action} it within {rule.days} days"
    raise BadCallError(f"no entry for {topic}")


def get_buyer_benefits(room: Room, arguments: Mapping[str, Any]) -> tuple[Room, str]:
    """What the asking buyer may use on a product."""
    item = _product(room, arguments, "item")
    coupon = f"own coupon {yuan(room.buyer.coupon)}" if room.buyer.coupon else "no own coupon"
    credit = f"credit {yuan(room.buyer.credit)}" if room.buyer.credit else "no credit"
    return room, f"{item.name} : {coupon} , {credit}"


def change_presentation_order(room: Room, arguments: Mapping[str, Any]) -> tuple[Room, str]:
    """Moves a product to `first`, `next` or `last` place of the list."""
    item, position = _product(room, arguments, "item"), _text(arguments, "position")
    if position not in ("first", "next", "last"):
        raise BadCallError("position is first , next or last")
    return room.moved(item.name, cast(Position, position)), f"order : {item.name} is {position}"


def start_explanation(room: Room, arguments: Mapping[str, Any]) -> tuple[Room, str]:
    """Puts a product on stage and starts explaining it."""
    item = _product(room, arguments, "item")
    return room.explaining(item.name), f"stage : {item.name}"


Handler = Callable[[Room, Mapping[str, Any]], tuple[Room, str]]
TOOLS: Final[dict[str, Handler]] = {
    handler.__name__: handler
    for handler in (
        get_item,
        compare_items,
        get_promotion,
        calculate_promotion,
        calculate_optimal_promotion,
        get_faq,
        get_buyer_benefits,
        change_presentation_order,
        start_explanation,
    )
}
"""Canonical id → what carries it out."""
EFFECTS: Final = frozenset({"change_presentation_order", "start_explanation"})
"""Tools that change the room."""


def carry_out(room: Room, tool: str, arguments: Mapping[str, Any]) -> tuple[Room, str]:
    """One call: the room after it and the text that the model reads. Errors are texts and change nothing."""
    handler = TOOLS.get(tool)
    if handler is None:
        return room, f"{ERROR} no tool called {tool}"
    try:
        return handler(room, arguments)
    except BadCallError as error:
        return room, f"{ERROR} {error}"


class RoomBackend:
    """A `ToolBackend` over one room. `room` is the state after the calls and events so far."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self._answered: dict[str, str] = {}

    def call(self, session_id: str, request: ToolRequest) -> ToolResult:
        """Carry out one call; the same idempotency key is answered from memory, the room untouched."""
        key = request.idempotency_key
        if key and key in self._answered:
            return ToolResult(request.call_id, self._answered[key])
        self.room, text = carry_out(self.room, request.name, request.arguments)
        if key and not text.startswith(ERROR):
            self._answered[key] = text
        return ToolResult(request.call_id, text)

    def observe(self, turn: Turn) -> None:
        """`turn` is about to begin: its change (see `Room.changed`) happens now."""
        self.room = self.room.changed(turn.notes.get("change", {}))


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str | int) or value == "":
        raise BadCallError(f"needs {name}")
    return str(value).strip()


def _product(room: Room, arguments: Mapping[str, Any], name: str) -> Product:
    wanted = _text(arguments, name)
    found = room.product(wanted)
    if found is None:
        raise BadCallError(f"no product called {wanted}")
    return found


def _count(arguments: Mapping[str, Any]) -> int:
    text = _text(arguments, "count")
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 99):
        raise BadCallError("count is a number from 1 to 99")
    return int(text)
