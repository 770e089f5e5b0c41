"""The ways in: password, OpenID provider, one-time link; and out.

Always holds: who is refused learns no more than that; every way in that guesses could find is slowed down by address.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from hat_console.oidc import Oidc
from hat_console.pages import CurrentRegistry, Form, Page
from hat_console.session import Sessions, same_origin
from hat_registry import accounts, accounts_oidc, invitations
from hat_registry.accounts import Actor
from hat_registry.api.access import address
from hat_registry.api.limits import Buckets
from hat_registry.errors import AuthenticationError, ForbiddenError, NotFoundError
from hat_registry.registry import Registry

router = APIRouter()
FIELD = 1024


def inside(target: str) -> str:
    """Only paths of this console; anything else would be an open redirect."""
    plain = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if plain else "/"


@router.get("/login")
async def login_page(request: Request, view: Page, next: str = "/") -> Response:
    """The sign-in form."""
    return view.page(request, "login.html", {"next": inside(next)}, wrong="", provider=_title(request))


@router.post("/login")
async def login(request: Request, view: Page, registry: CurrentRegistry) -> Response:
    """Sign in with a password. There is no session yet that a token could belong to; the Origin must be ours."""
    same_origin(request)
    form = await request.form(max_fields=10, max_files=0)
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    guesses: Buckets = request.app.state.guesses
    names: Buckets = request.app.state.guessed_names
    guesses.check(address(request))
    names.check(fields.get("name", ""))
    target = inside(fields.get("next", "/"))
    try:
        with registry.database.read() as tx:
            actor = accounts.sign_in(
                tx, fields.get("name", ""), fields.get("password", "")[:FIELD], fields.get("workspace") or "default"
            )
    except AuthenticationError:
        guesses.spend(address(request), "attempts")
        names.spend(fields.get("name", ""), "attempts")
        body = {"next": target}
        return view.page(request, "login.html", body, status=401, wrong="login.wrong", provider=_title(request))
    return _signed_in(request, actor, target)


@router.get("/login/oidc")
def begin(request: Request, next: str = "/") -> Response:
    """To the provider."""
    oidc = _provider(request)
    url, value = oidc.begin(inside(next))
    answer = RedirectResponse(url, 303)
    oidc.remember(answer, value)
    return answer


@router.get("/login/oidc/back")
def back(request: Request, view: Page, registry: CurrentRegistry) -> Response:
    """From the provider."""
    oidc = _provider(request)
    guesses: Buckets = request.app.state.guesses
    guesses.check(address(request))
    settings = oidc.settings
    try:
        claims, target = oidc.finish(request)
        with _writable(request, registry).database.write() as tx:
            actor = accounts_oidc.sign_in(
                tx, claims, settings.workspace, create=settings.create, roles=settings.roles,
                groups_claim=settings.groups_claim,
            )  # fmt: skip
    except AuthenticationError as error:
        guesses.spend(address(request), "attempts")
        answer = view.page(
            request, "login.html", {"next": "/"}, status=401, wrong="login.refused", reason=error.message,
            provider=_title(request),
        )  # fmt: skip
        oidc.forget(answer)
        return answer
    signed_in = _signed_in(request, actor, inside(target))
    oidc.forget(signed_in)
    return signed_in


@router.get("/setup")
def setup_page(request: Request, view: Page, registry: CurrentRegistry, link: str = "") -> Response:
    """The form behind a one-time link."""
    workspace, role = _look(request, registry, link)
    return view.page(request, "setup.html", {"workspace": workspace, "role": role}, link=link)


@router.post("/setup")
async def setup(request: Request, registry: CurrentRegistry) -> Response:
    """Make the account that a one-time link is for."""
    same_origin(request)
    form = await request.form(max_fields=10, max_files=0)
    fields = {name: value[:FIELD] for name, value in form.items() if isinstance(value, str)}
    link = fields.get("link", "")
    _look(request, registry, link)
    with _writable(request, registry).database.write() as tx:
        actor = invitations.accept(
            tx, link, fields.get("name", ""), fields.get("password", ""), display=fields.get("display", "")[:256]
        )
    return _signed_in(request, actor, "/")


@router.post("/logout")
async def logout(request: Request, form: Form) -> Response:
    """Sign out."""
    answer = RedirectResponse("/login", 303)
    sessions: Sessions = request.app.state.sessions
    sessions.end(answer)
    return answer


def _signed_in(request: Request, actor: Actor, target: str) -> Response:
    answer = RedirectResponse(target, 303)
    sessions: Sessions = request.app.state.sessions
    sessions.start(answer, actor.account, actor.workspace)
    return answer


def _look(request: Request, registry: Registry, link: str) -> tuple[str, str]:
    guesses: Buckets = request.app.state.guesses
    guesses.check(address(request))
    try:
        with registry.database.read() as tx:
            return invitations.look(tx, link[:FIELD])
    except AuthenticationError as error:
        guesses.spend(address(request), "attempts")
        raise ForbiddenError(error.message, cure=error.cure) from None


def _writable(request: Request, registry: Registry) -> Registry:
    if request.app.state.read_only:
        raise ForbiddenError("the registry is read-only", cure="try again when maintenance is over")
    return registry


def _provider(request: Request) -> Oidc:
    found: Oidc | None = request.app.state.oidc
    if found is None:
        raise NotFoundError("no OpenID provider is set up here", cure="sign in with a password")
    return found


def _title(request: Request) -> str:
    found: Oidc | None = request.app.state.oidc
    return found.settings.title if found else ""
