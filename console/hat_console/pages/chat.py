"""A talk with what the gateway serves: messages in, replies out, with tools, hooks, arm and timings under each reply.

Always holds: the page speaks to the gateway as any client does, as a viewer of its own; picking an arm is an override of that
viewer and needs the right to move pointers. Not here: the agent (the gateway hosts it).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from hat_console.pages import CurrentActor, Form, Page
from hat_console.pages.experiments import Found, Known
from hat_registry.accounts import Actor
from hat_serving.gateway.client import GatewayClient

router = APIRouter()
api = APIRouter(prefix="/api/v1", tags=["chat"])
ROOM = "console"


class Said(BaseModel):
    """One message."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=128)
    """Harness or release."""
    text: str = Field(min_length=1, max_length=2000)
    room: str = Field(default=ROOM, min_length=1, max_length=64)
    talk: str = Field(default="1", max_length=32)
    """Another one begins another conversation."""
    arm: str = Field(default="", max_length=64)
    """Arm to talk to; "" lets the gateway choose."""


@api.get("/chat")
def about(actor: CurrentActor, found: Known) -> dict[str, Any]:
    """Who can be talked to: deployments with their arms."""
    actor.require("read")
    if found is None:
        return {"deployments": [], "connected": False}
    names = found.get("/deployments")["items"]
    told = [found.get(f"/deployments/{quote(name, safe='')}") for name in names]
    return {
        "deployments": [{"name": one["name"], "arms": [arm["name"] for arm in one["arms"]]} for one in told],
        "connected": True,
    }


@api.post("/chat")
def say(body: Said, actor: CurrentActor, found: Found) -> dict[str, Any]:
    """Say one thing; the answer of the room with its details."""
    return _say(body, actor, found)


@router.get("/chat")
def page(request: Request, view: Page, actor: CurrentActor, found: Known) -> Response:
    """The page."""
    return view.page(request, "chat.html", about(actor, found), told=None, asked=None)


@router.post("/chat")
def said(request: Request, form: Form, view: Page, actor: CurrentActor, found: Found) -> Response:
    """A message from the page: the exchange alone for htmx, else the whole page with it."""
    asked = Said.model_validate({key: value for key, value in form.items() if value or key == "arm"})
    told = _say(asked, actor, found)
    if request.headers.get("hx-request"):
        return view.page(request, "exchange.html", told, told=told, asked=asked)
    return view.page(request, "chat.html", about(actor, found), told=told, asked=asked)


def _say(asked: Said, actor: Actor, found: GatewayClient) -> dict[str, Any]:
    actor.require("read")
    viewer = f"console:{actor.account}:{asked.room}:{asked.talk}"
    if asked.arm and actor.may("move"):
        found.put(f"/deployments/{quote(asked.name, safe='')}/overrides", {"viewer": viewer, "arm": asked.arm})
    body = {"model": asked.name, "viewer": viewer, "text": asked.text, "details": True}
    return found.say(asked.room, body)
