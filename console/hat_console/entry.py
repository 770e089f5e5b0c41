"""What the console's command line says of people and the network: OIDC, webhooks, logs, the link of the first admin.

    HATSTACK_OIDC_CLIENT_SECRET   or HATSTACK_OIDC_CLIENT_SECRET_FILE: the secret, which no option takes
    HATSTACK_OUTBOUND_ALLOW       private networks that webhooks may reach, CIDR, by commas

Always holds: the link of the first admin is printed once, to the terminal, and is never logged. Not here: the options of
runs and databases (__main__).
"""

from __future__ import annotations

import argparse
import os
import sys

from pydantic import ValidationError

from hat_console.oidc import OidcSettings
from hat_registry import invitations
from hat_registry.accounts import PERMISSIONS
from hat_registry.errors import InvalidError
from hat_registry.registry import Registry
from hat_registry.settings import secret


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this module."""
    parser.add_argument("--public-url", default="", help="address of this console as browsers see it")
    parser.add_argument("--oidc-issuer", default="", help="OpenID provider that people sign in through")
    parser.add_argument("--oidc-client", default="", help="client id at the provider")
    parser.add_argument("--oidc-title", default="OpenID", help="what the sign-in button calls the provider")
    parser.add_argument("--oidc-create", action="store_true", help="make an account at a person's first sign-in")
    parser.add_argument(
        "--oidc-role", action="append", default=[], metavar="GROUP=ROLE", help="role of new accounts by group"
    )
    parser.add_argument(
        "--outbound", action="append", default=[], metavar="CIDR", help="webhooks may reach this network"
    )
    parser.add_argument("--no-webhooks", action="store_true", help="let other processes send the webhooks")
    parser.add_argument("--log-requests", action="store_true", help="log every request, not only changes and errors")


def oidc(given: argparse.Namespace) -> OidcSettings | None:
    """The provider that the options name; InvalidError says which option is wrong."""
    if not given.oidc_issuer:
        return None
    roles = {}
    for one in given.oidc_role:
        group, _, role = one.rpartition("=")
        if not group or role not in PERMISSIONS:
            raise InvalidError(f"--oidc-role {one!r} is not GROUP=ROLE", cure=f"roles: {', '.join(PERMISSIONS)}")
        roles[group] = role
    try:
        return OidcSettings(
            issuer=given.oidc_issuer,
            client_id=given.oidc_client,
            client_secret=secret("HATSTACK_OIDC_CLIENT_SECRET"),
            public_url=given.public_url or f"http://127.0.0.1:{given.port}",
            title=given.oidc_title,
            create=given.oidc_create,
            roles=roles,
        )
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise InvalidError(f"the OpenID provider is not set up: {told}", cure="--oidc-issuer, --oidc-client") from None


def outbound(given: argparse.Namespace) -> tuple[str, ...]:
    """Private networks that webhooks may reach."""
    return (*given.outbound, *(one for one in os.environ.get("HATSTACK_OUTBOUND_ALLOW", "").split(",") if one.strip()))


def announce(registry: Registry, given: argparse.Namespace) -> None:
    """Print the one-time link of the first admin while there is no account and the registry is closed."""
    if given.open or given.read_only:
        return
    with registry.database.write() as tx:
        link = invitations.first(tx)
    if link is None:
        return
    base = given.public_url.rstrip("/") or f"http://{given.host}:{given.port}"
    told = f"No account yet. Make the first admin within {invitations.FIRST_HOURS} hours:\n  {base}/setup?link={link}\n"
    sys.stdout.write(told)
    sys.stdout.flush()
