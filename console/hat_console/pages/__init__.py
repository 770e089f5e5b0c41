"""One module per group of pages. A page calls the API's own function and renders what it returns."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from hat_console.session import check_change
from hat_console.view import Views
from hat_registry.api.access import CurrentActor, CurrentRegistry


def views_of(request: Request) -> Views:
    """The renderer of the application."""
    found: Views = request.app.state.views
    return found


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a posted form, once its CSRF token has been checked."""
    posted = await request.form(max_fields=200, max_files=0)
    fields = {name: value for name, value in posted.items() if isinstance(value, str)}
    given = fields.pop("csrf", "") or request.headers.get("x-csrf-token", "")
    check_change(request, getattr(request.state, "csrf", ""), given)
    return fields


Page = Annotated[Views, Depends(views_of)]
Form = Annotated[dict[str, str], Depends(form_of)]
Body = dict[str, Any]

__all__ = ["Body", "CurrentActor", "CurrentRegistry", "Form", "Page"]
