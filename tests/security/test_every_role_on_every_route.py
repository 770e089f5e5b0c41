"""Every role on every route: what it may not do is refused, nothing breaks, and no workspace sees or changes another.

The routes come from the application's own table: a new one fails here until `routes.rules` says what it needs.
"""

from __future__ import annotations

from typing import Any

import pytest

from hat_registry import accounts, ledger
from hat_registry.archive import read_folder, write_tar
from tests.security.conftest import HARNESS, MARK, ROLES, ROOM, Site, World
from tests.security.routes import Rule, every, rules

REFUSED = {401, 403}
HIDDEN = {403, 404}
"""A token, proposal or run that is not the account's own may look as if it were not there."""


def table(world: World) -> dict[tuple[str, str], Rule]:
    return rules({**world.ids, "tar": write_tar(read_folder(HARNESS))})  # type: ignore[dict-item]  # the tar is bytes


def ask(site: Site, method: str, template: str, rule: Rule, headers: dict[str, str]) -> Any:
    site.client.cookies.clear()
    send = dict(rule.send)
    headers = {**headers, **send.pop("headers", {})}
    if "data" in send:
        send["data"] = {**send["data"], "csrf": headers.get("x-csrf-token", "")}
    return site.client.request(method, rule.path or template, headers=headers, **send)


def rows(site: Site, workspace: str = "default") -> list[str]:
    with site.registry.database.read() as tx:
        return [f"{row.kind} {row.subject} {row.hash}" for row in ledger.rows(tx, workspace, limit=1000)]


def test_every_route_is_classified(site: Site, world: World) -> None:
    there, known = set(every(site.app.routes)), set(table(world))
    assert there - known == set(), "say in tests/security/routes.py what these need"
    assert known - there == set(), "these are gone"


def test_nobody_gets_past_the_door(site: Site, world: World) -> None:
    before = rows(site)
    for (method, template), rule in table(world).items():
        for headers in ({}, {"authorization": "Bearer hat_nonsense"}, {"cookie": "hatstack_session=nonsense"}):
            answer = ask(site, method, template, rule, headers)
            told = (method, template, headers, answer.status_code, answer.text[:200])
            assert answer.status_code < 500, told
            if rule.needs == "public":
                continue
            login = answer.status_code == 303 and answer.headers["location"].startswith("/login")
            assert login or answer.status_code in REFUSED, told
            assert MARK not in answer.text, told
    assert rows(site) == before


@pytest.mark.parametrize("role", [*ROLES, "narrow"])
def test_a_role_may_do_what_it_may_and_nothing_else(site: Site, world: World, role: str) -> None:
    held = accounts.PERMISSIONS[role] if role in ROLES else frozenset()  # type: ignore[index]  # narrow holds none here
    allowed, refused = [], []
    for (method, template), rule in table(world).items():
        may = rule.needs in {"public", "signed", "some"} or rule.needs in held
        (allowed if may else refused).append((method, template, rule))
    before = rows(site)
    headers = site.cookie(role)
    for method, template, rule in refused:
        answer = ask(site, method, template, rule, headers)
        told = (role, method, template, answer.status_code, answer.text[:300])
        assert answer.status_code in (HIDDEN if "{" in template else {403}), told
    assert rows(site) == before
    for method, template, rule in allowed:
        answer = ask(site, method, template, rule, headers)
        told = (role, method, template, answer.status_code, answer.text[:300])
        conflict_of_duty = rule.needs in {"approve", "move", "signed", "public"}
        assert answer.status_code not in REFUSED or conflict_of_duty, told
        assert answer.status_code < 500 or answer.status_code == 503, told


def test_a_grant_on_one_harness_shows_nothing_of_the_others(site: Site, world: World) -> None:
    headers = site.cookie("narrow")
    for (method, template), rule in table(world).items():
        if method == "GET" and rule.needs != "public":
            answer = ask(site, method, template, rule, headers)
            assert MARK not in answer.text, (template, answer.text[:300])


def test_an_admin_of_another_workspace_sees_and_changes_nothing_here(site: Site, world: World) -> None:
    before = rows(site)
    headers = site.cookie("stranger", "elsewhere")
    for (method, template), rule in sorted(table(world).items(), key=lambda entry: entry[0][0] != "GET"):
        answer = ask(site, method, template, rule, headers)
        told = (method, template, answer.status_code, answer.text[:300])
        assert MARK not in answer.text, told
        assert ROOM not in answer.text, told
        assert answer.status_code < 500 or answer.status_code == 503, told
    assert rows(site) == before
    with site.registry.database.read() as tx:
        for role in ROLES:
            assert accounts.actor_of(tx, role, "default").grants["*"] == {role}


def test_a_workspace_that_is_not_ones_own_is_no_way_in(site: Site, world: World) -> None:
    for name, workspace in (("stranger", "default"), ("admin", "elsewhere")):
        headers = site.cookie(name, workspace)
        assert site.client.get("/api/v1/harnesses", headers=headers).status_code == 403
        site.client.cookies.clear()


@pytest.mark.parametrize("scope", sorted(accounts.PERMISSIONS["admin"]))
def test_a_token_does_what_its_scope_says_and_no_more(site: Site, world: World, scope: accounts.Permission) -> None:
    with site.registry.database.write() as tx:
        admin = accounts.actor_of(tx, "admin", "default")
        _, secret = accounts.issue_token(tx, admin, label="x", scopes=[scope])
    headers = {"authorization": f"Bearer {secret}"}
    for (method, template), rule in table(world).items():
        if not template.startswith("/api/") or rule.needs in {"public", "signed", scope}:
            continue
        if rule.needs == "some" and scope == "read":
            continue
        answer = ask(site, method, template, rule, headers)
        told = (scope, method, template, answer.status_code, answer.text[:200])
        assert answer.status_code in (HIDDEN if "{" in template else {403}), told
