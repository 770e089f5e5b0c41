"""The state of a live room and how it changes: products, presentation order, campaign, coupons, shop entries, buyer.

Always holds: a `Room` is immutable, a change returns a new one; it survives a round trip through JSON unchanged;
money is in cents. Not here: drawing rooms (catalogue), the texts of tools (backend).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hat_scenarios.live_commerce.promotion import Promotion

Position = Literal["first", "next", "last"]


class Part(BaseModel):
    """Base of the room's parts: immutable, an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Coupon(Part):
    """Money off one product: `off` cents from a sum of `from_cents` on."""

    off: int
    from_cents: int = 0


class Product(Part):
    """One item on the room's list."""

    name: str
    price: int
    """Cents a piece."""
    colour: str
    material: str
    size: str
    stock: int
    coupon: Coupon | None = None


class Campaign(Part):
    """The room-level promotion: `percent` off everything, or `off` cents from a sum of `from_cents` on."""

    kind: Literal["percent", "threshold"] = "percent"
    percent: int = 0
    off: int = 0
    from_cents: int = 0


class Rule(Part):
    """What the shop does about one kind of order trouble, within how many days."""

    action: str
    days: int


class Buyer(Part):
    """What the asking buyer owns, in cents; 0 for nothing."""

    coupon: int = 0
    credit: int = 0


class Room(Part):
    """The whole room. `products` stand in presentation order."""

    products: tuple[Product, ...]
    presented: str
    """Name of the product on stage."""
    explained: str = ""
    """Name of the product whose explanation was started last."""
    campaign: Campaign = Campaign()
    stack: bool = True
    """Whether promotions may be combined."""
    faq: dict[str, str] = Field(default_factory=dict)
    rules: dict[str, Rule] = Field(default_factory=dict)
    buyer: Buyer = Buyer()
    note: str = ""
    """Text that stands after every product record and coupon; an instruction in a tampered room."""

    @property
    def names(self) -> tuple[str, ...]:
        """Product names in presentation order."""
        return tuple(product.name for product in self.products)

    def product(self, name: str) -> Product | None:
        """The product called `name`, or None."""
        return next((product for product in self.products if product.name == name), None)

    def public_promotions(self, product: Product) -> list[Promotion]:
        """What every viewer gets on `product`: the campaign and the product's coupon."""
        campaign = self.campaign
        found = [
            Promotion("sale", "percent", campaign.percent)
            if campaign.kind == "percent"
            else Promotion("sale", "fixed", campaign.off, campaign.from_cents)
        ]
        if product.coupon:
            found.append(Promotion("coupon", "fixed", product.coupon.off, product.coupon.from_cents, "coupon"))
        return found

    def buyer_promotions(self) -> list[Promotion]:
        """What the asking buyer owns; the own coupon excludes the product's."""
        found = []
        if self.buyer.coupon:
            found.append(Promotion("own coupon", "fixed", self.buyer.coupon, group="coupon"))
        if self.buyer.credit:
            found.append(Promotion("credit", "fixed", self.buyer.credit))
        return found

    def moved(self, name: str, position: Position) -> Room:
        """`name` moved to the front, to just after the presented product, or to the end."""
        chosen = next(product for product in self.products if product.name == name)
        rest = [product for product in self.products if product.name != name]
        if position == "first":
            at = 0
        elif position == "last":
            at = len(rest)
        else:
            stage = [product.name for product in rest]
            at = stage.index(self.presented) + 1 if self.presented in stage else 0
        return self.model_copy(update={"products": (*rest[:at], chosen, *rest[at:])})

    def explaining(self, name: str) -> Room:
        """`name` on stage, its explanation started."""
        return self.model_copy(update={"presented": name, "explained": name})

    def changed(self, data: Mapping[str, Any]) -> Room:
        """The room after an event's data: `campaign`, `stack`, `faq`, `rules`, `coupons` (name → coupon or None)."""
        update: dict[str, Any] = {}
        if "campaign" in data:
            update["campaign"] = Campaign.model_validate(data["campaign"])
        if "stack" in data:
            update["stack"] = bool(data["stack"])
        if "faq" in data:
            update["faq"] = {**self.faq, **data["faq"]}
        if "rules" in data:
            update["rules"] = self.rules | {key: Rule.model_validate(value) for key, value in data["rules"].items()}
        if "coupons" in data:
            coupons = data["coupons"]
            update["products"] = tuple(
                product.model_copy(update={"coupon": _coupon(coupons[product.name])})
                if product.name in coupons
                else product
                for product in self.products
            )
        return self.model_copy(update=update)

    def view(self) -> dict[str, Any]:
        """The part that the harness renders: the list in order and what is on stage."""
        return {"list": list(self.names), "stage": self.presented}


def _coupon(value: Any) -> Coupon | None:
    return None if value is None else Coupon.model_validate(value)
