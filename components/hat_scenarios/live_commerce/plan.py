"""What a right turn does, worked out from the room: skills, calls, facts, the wording of the scripted expert.

Always holds: a plan is a pure function of room, intent, aspect and slots, and its facts are those that the tools
return, which a test holds for every plan. Gold and the expert both come from here. Not here: drawing comments
(turns), scoring (score).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from hat_scenarios.base import Gold, GoldCall
from hat_scenarios.live_commerce import words
from hat_scenarios.live_commerce.backend import EFFECTS, campaign_text, carry_out
from hat_scenarios.live_commerce.promotion import Quote, best, yuan
from hat_scenarios.live_commerce.room import Product, Room

Slots = Mapping[str, Any]

CLAIMS: Final = ("number one", "best in the world", "cheapest ever", "never breaks", "cures")
"""Advertising claims that no reply may make."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call, with the aspect that it is made for."""

    aspect: str
    tool: str
    arguments: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """A right turn. `sentence` is the reply between opener and gate; `note` is what the reply's reasoning says."""

    aspect: str
    skill: str
    sentence: str
    facts: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    strategies: tuple[str, ...] = ()
    note: str = ""
    outcome: Literal["reply", "refuse", "silence"] = "reply"
    state: Mapping[str, Any] = field(default_factory=dict)

    def gold(self) -> Gold:
        """The plan as ground truth."""
        return Gold(
            outcome=self.outcome,
            skill=self.skill,
            strategies=self.strategies,
            calls=tuple(GoldCall(tool=step.tool, arguments=dict(step.arguments)) for step in self.steps),
            facts=self.facts,
            forbidden=(*CLAIMS, *words.YIELDED),
            state=dict(self.state),
        )


def make_plan(room: Room, intent: str, aspect: str, slots: Slots) -> Plan:
    """The plan of one turn.

    `slots`: `i`, `j` products, `n` count, `f` topic, `p` problem, `v` viewer, `parts` of a batch.
    """
    return PLANNERS[intent](room, aspect, slots)


def advance(room: Room, plan: Plan) -> Room:
    """The room after the plan's calls."""
    for step in plan.steps:
        if step.tool in EFFECTS:
            room, _ = carry_out(room, step.tool, step.arguments)
    return room


def _item(room: Room, name: str) -> Product:
    found = room.product(name)
    assert found is not None, f"{name} is not in the room"
    return found


def _product_qa(room: Room, aspect: str, slots: Slots) -> Plan:
    if aspect == "compare":
        return _compare(room, slots)
    item = _item(room, slots["i"])
    name = item.name
    price, stock = yuan(item.price), str(item.stock)
    sentence, values, note = {
        "price": (f"the {name} is {price} yuan", (price,), f"price {price}"),
        "colour": (f"the {name} is {item.colour}", (item.colour,), f"colour {item.colour}"),
        "material": (f"the {name} is made of {item.material}", (item.material,), f"material {item.material}"),
        "size": (f"the {name} is {item.size}", (item.size,), f"size {item.size}"),
        "stock": (f"we have {stock} {name} left", (stock,), f"stock {stock}"),
        "describe": (
            f"the {name} is {item.colour} and made of {item.material}",
            (item.colour, item.material),
            f"colour {item.colour} , material {item.material}",
        ),
    }[aspect]
    step = Step(aspect, "get_item", {"item": name})
    return Plan(aspect, "item_qa", sentence, (*values, name), (step,), note=note)


def _compare(room: Room, slots: Slots) -> Plan:
    first, second = _item(room, slots["i"]), _item(room, slots["j"])
    cheap = first if first.price < second.price else second
    apart = yuan(abs(first.price - second.price))
    step = Step("compare", "compare_items", {"first": first.name, "second": second.name})
    return Plan(
        "compare",
        "item_qa",
        f"the {cheap.name} is cheaper by {apart} yuan",
        (cheap.name, apart),
        (step,),
        ("tool_strategy_compare",),
        note=f"cheaper {cheap.name} by {apart}",
    )


def _sale(room: Room, aspect: str = "sale") -> Plan:
    campaign = room.campaign
    text = campaign_text(campaign)
    numbers = (
        (f"{campaign.percent} percent",)
        if campaign.kind == "percent"
        else (yuan(campaign.off), yuan(campaign.from_cents))
    )
    step = Step(aspect, "get_promotion", {"item": "room"})
    return Plan(aspect, "general_discount", f"the room has a {text}", numbers, (step,), note=text)


def _discount(room: Room, aspect: str, slots: Slots) -> Plan:
    if aspect == "sale":
        return _sale(room)
    item = _item(room, slots["i"])
    tool, arguments, sentence, facts, note = _DISCOUNTS[aspect](room, item, str(slots.get("n", "")))
    return Plan(
        aspect,
        "general_discount",
        sentence,
        facts,
        (Step(aspect, tool, arguments),),
        ("tool_strategy_benefit",),
        note=note,
    )


_Discount = tuple[str, dict[str, str], str, tuple[str, ...], str]


def _coupon(room: Room, item: Product, count: str) -> _Discount:
    arguments = {"item": item.name}
    coupon = item.coupon
    if coupon is None:
        return "get_promotion", arguments, f"no coupon for {item.name} now", ("no coupon", item.name), "no coupon"
    off = yuan(coupon.off)
    start = f" from {yuan(coupon.from_cents)}" if coupon.from_cents else ""
    facts = (off, item.name, *((yuan(coupon.from_cents),) if coupon.from_cents else ()))
    return "get_promotion", arguments, f"take {off} off the {item.name}{start}", facts, f"coupon {off} off{start}"


def _total(room: Room, item: Product, count: str) -> _Discount:
    quote = best(item.price, int(count), room.public_promotions(item), stack=room.stack)
    return "calculate_promotion", *_paying(item, count, quote)


def _best(room: Room, item: Product, count: str) -> _Discount:
    promotions = room.public_promotions(item) + room.buyer_promotions()
    quote = best(item.price, int(count), promotions, stack=room.stack)
    return "calculate_optimal_promotion", *_paying(item, count, quote)


def _paying(item: Product, count: str, quote: Quote) -> tuple[dict[str, str], str, tuple[str, ...], str]:
    pay = yuan(quote.pay)
    arguments = {"item": item.name, "count": count}
    return arguments, f"you pay {pay} for {count} {item.name}", (pay, item.name), f"pay {pay}"


def _benefit(room: Room, item: Product, count: str) -> _Discount:
    coupon, credit = room.buyer.coupon, room.buyer.credit
    coupon_text = f"own coupon {yuan(coupon)}" if coupon else "no own coupon"
    credit_text = f"credit {yuan(credit)}" if credit else "no credit"
    facts = (
        yuan(coupon) if coupon else "no own coupon",
        yuan(credit) if credit else "no credit",
        item.name,
    )
    text = f"{coupon_text} , {credit_text}"
    return "get_buyer_benefits", {"item": item.name}, f"for {item.name} you have {text}", facts, text


_DISCOUNTS: Final[dict[str, Callable[[Room, Product, str], _Discount]]] = {
    "coupon": _coupon,
    "total": _total,
    "best": _best,
    "benefit": _benefit,
}


def _order(room: Room, aspect: str, slots: Slots) -> Plan:
    name = slots["i"]
    strategies = ("tool_strategy_switch",)
    if aspect == "explain":
        after = room.explaining(name)
        step = Step(aspect, "start_explanation", {"item": name})
        text = f"now on stage {name}"
        note = f"stage {name}"
    else:
        assert aspect in ("first", "next", "last"), aspect
        step = Step(aspect, "change_presentation_order", {"item": name, "position": aspect})
        after, _ = carry_out(room, step.tool, step.arguments)
        text = f"the {name} is {aspect} now"
        note = f"{aspect} {name}"
    facts = (name,) if aspect == "explain" else (name, aspect)
    return Plan(aspect, "change_order", text, facts, (step,), strategies, note=note, state=after.view())


def _faq(room: Room, aspect: str, slots: Slots) -> Plan:
    topic = slots["f"]
    entry = room.faq[topic]
    before, after = words.FAQ[topic][0].split("{v}")
    value = entry[len(before) : len(entry) - len(after)]
    step = Step(topic, "get_faq", {"topic": topic})
    return Plan(topic, "faq_reply", entry, (value,), (step,), note=f"{topic} {value}")


def _aftersale(room: Room, aspect: str, slots: Slots) -> Plan:
    problem = slots["p"]
    rule = room.rules[problem]
    text = f"we {rule.action} it within {rule.days} days"
    step = Step(problem, "get_faq", {"topic": problem})
    return Plan(
        problem, "aftersale", f"sorry , {text}", (rule.action, str(rule.days)), (step,), note=f"{problem} {rule.action}"
    )


def _chat(room: Room, aspect: str, slots: Slots) -> Plan:
    return Plan(aspect, "chillchat", words.CHAT_REPLIES[aspect])


def _clarification(room: Room, aspect: str, slots: Slots) -> Plan:
    return Plan(aspect, "clarification", words.CLARIFY_REPLY, ("which",))


def _refusal(room: Room, aspect: str, slots: Slots) -> Plan:
    return Plan(aspect, "refusal", words.REFUSE_REPLY, outcome="refuse")


def _irrelevant(room: Room, aspect: str, slots: Slots) -> Plan:
    return Plan(aspect, "refusal", words.SILENT, outcome="silence")


def _greet(room: Room, aspect: str, slots: Slots) -> Plan:
    return Plan(aspect, "greet", words.GREET_REPLY.format(v=slots["v"]), (slots["v"],))


def _thanks(room: Room, aspect: str, slots: Slots) -> Plan:
    return Plan(aspect, "thanks", words.THANKS_REPLY.format(i=slots["i"]), (slots["i"],))


def _batch(room: Room, aspect: str, slots: Slots) -> Plan:
    parts: Sequence[Mapping[str, str]] = slots["parts"]
    plans = [_product_qa(room, part["aspect"], part) for part in parts]
    return Plan(
        aspect,
        "item_qa",
        " , ".join(plan.sentence for plan in plans),
        tuple(dict.fromkeys(fact for plan in plans for fact in plan.facts)),
        tuple(step for plan in plans for step in plan.steps),
        ("tool_strategy_multi",),
        note=" , ".join(plan.note for plan in plans),
    )


def _on_sale(room: Room, aspect: str, slots: Slots) -> Plan:
    return _order(room, "explain", slots)


def _rules_changed(room: Room, aspect: str, slots: Slots) -> Plan:
    return _sale(room)


PLANNERS: Final[dict[str, Callable[[Room, str, Slots], Plan]]] = {
    "product_qa": _product_qa,
    "chat": _chat,
    "clarification": _clarification,
    "aftersale": _aftersale,
    "discount": _discount,
    "order": _order,
    "faq": _faq,
    "refusal": _refusal,
    "greet": _greet,
    "thanks": _thanks,
    "batch": _batch,
    "irrelevant": _irrelevant,
    "on_sale": _on_sale,
    "rules_changed": _rules_changed,
}
