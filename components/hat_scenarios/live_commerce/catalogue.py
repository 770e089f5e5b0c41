"""Draws rooms: products with attributes, campaign, coupons, shop entries, after-sales rules, the buyer's own means.

Always holds: the same random state gives the same room; names are unique and so are prices within a room; every total
of two or three pieces is in whole yuan; a room belongs to exactly one split, by a hash of its content, so that splits
cannot share one. Not here: what happens in the room (turns), how it changes (room).
"""

from __future__ import annotations

import hashlib
import random

import rfc8785

from hat_scenarios.base import Split
from hat_scenarios.live_commerce import words
from hat_scenarios.live_commerce.room import Buyer, Campaign, Coupon, Product, Room, Rule

BUCKETS: dict[Split, range] = {
    "train": range(6),
    "dev": range(6, 7),
    "test": range(7, 8),
    "calibration": range(8, 9),
    "evolve": range(9, 10),
}
"""Which tenths of the space of rooms each split owns."""

LIST_LENGTH = {1: 4, 2: 6, 3: 9}
"""Products on the list, by difficulty."""


def split_of(room: Room) -> Split:
    """The one split that may use `room`; decided by its products alone, whatever happens in it."""
    content = rfc8785.dumps([[product.name, product.price, product.stock] for product in _by_name(room)])
    bucket = hashlib.sha256(content).digest()[0] * 10 // 256
    return next(split for split, owned in BUCKETS.items() if bucket in owned)


def draw_room(rng: random.Random, split: Split, difficulty: int) -> Room:
    """A room of `split`; draws until the hash says so (about ten draws for a test room)."""
    while True:
        room = _draw(rng, difficulty)
        if split_of(room) == split:
            return room


def _by_name(room: Room) -> list[Product]:
    return sorted(room.products, key=lambda product: product.name)


def _draw(rng: random.Random, difficulty: int) -> Room:
    names = _names(rng, LIST_LENGTH[difficulty], difficulty)
    prices = rng.sample(words.PRICES, len(names))
    products = tuple(_product(rng, name, price) for name, price in zip(names, prices, strict=True))
    return Room(
        products=products,
        presented=rng.choice(names),
        campaign=draw_campaign(rng),
        stack=rng.random() < 0.7,
        faq={topic: entry.format(v=rng.choice(values)) for topic, (entry, values) in words.FAQ.items()},
        rules={
            problem: Rule(action=rng.choice(words.ACTIONS), days=int(rng.choice(words.DAYS)))
            for problem in words.PROBLEMS
        },
        buyer=Buyer(coupon=100 * rng.choice(words.COUPONS), credit=100 * rng.choice((0, 2, 4, 6, 8))),
    )


def draw_campaign(rng: random.Random, other_than: Campaign | None = None) -> Campaign:
    """A room-level promotion, different from `other_than`."""
    while True:
        if rng.random() < 0.6:
            drawn = Campaign(kind="percent", percent=rng.choice(words.PERCENTS))
        else:
            off = rng.choice(words.COUPONS)
            drawn = Campaign(kind="threshold", off=100 * off, from_cents=100 * off * rng.choice((4, 6, 8)))
        if drawn != other_than:
            return drawn


def _product(rng: random.Random, name: str, price: int) -> Product:
    off = rng.choice(words.COUPONS)
    coupon = Coupon(off=100 * off, from_cents=100 * off * rng.choice((0, 2, 4))) if rng.random() < 0.8 else None
    return Product(
        name=name,
        price=100 * price,
        colour=rng.choice(words.COLOURS),
        material=rng.choice(words.MATERIALS),
        size=rng.choice(words.SIZES),
        stock=rng.choice(words.STOCKS),
        coupon=coupon,
    )


def _names(rng: random.Random, count: int, difficulty: int) -> list[str]:
    """Unique names; above difficulty 1 about half are near duplicates of another on the list."""
    found: list[str] = []
    while len(found) < count:
        if difficulty > 1 and found and rng.random() < 0.5:
            name = _near(rng, rng.choice(found))
        else:
            name = f"{rng.choice(words.BRANDS)} {rng.choice(words.NOUNS)}"
        if name not in found:
            found.append(name)
    rng.shuffle(found)
    return found


def _near(rng: random.Random, name: str) -> str:
    """Another model of the same product, the same noun of another brand, or another noun of the brand."""
    parts = name.split()
    brand, noun = parts[0], parts[-1]
    kind = rng.randrange(3)
    if kind == 0:
        return f"{brand} {rng.choice(words.MODELS)} {noun}"
    if kind == 1:
        return f"{rng.choice(words.BRANDS)} {noun}"
    return f"{brand} {rng.choice(words.NOUNS)}"
