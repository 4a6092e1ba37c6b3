"""``amlog tokens``: creates, lists and revokes the tokens with which callers reach the server of a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.memory.options import Scopes, User, owner_text, principal_of
from agent_memory_log.cli.options import AsJson, StoreUrl, is_of_server, open_or_create, reflowed, run_async, with_store
from agent_memory_log.cli.output import BAD, DIM, GOOD, NAME, Column, Output, note
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.events.event import format_timestamp
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.records.arguments import Right
from agent_memory_log.service.access.tokens import Token, create_token, load_tokens, revoke_token
from agent_memory_log.service.grants import RIGHTS, Grant, rights_in

_COLUMNS = (
    Column("id", DIM, unbroken=True),
    Column("name", NAME, unbroken=True),
    Column("may"),
    Column("reaches"),
    Column("expires"),
    Column("status"),
)
_CREATOR = "amlog tokens create"
_STYLES = {"active": GOOD, "revoked": BAD, "expired": DIM}


def create(
    *,
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", help="The name of the token in logs. Default: its id.", show_default=False
        ),
    ] = "",
    tenant: Annotated[
        str | None,
        typer.Option("--tenant", metavar="NAME", help="The tenant whose memory the token reaches.", show_default=False),
    ] = None,
    user: User = None,
    scopes: Scopes = None,
    may: Annotated[
        str, typer.Option("--may", metavar="RIGHTS", help="The rights of the token: some of read, write and erase.")
    ] = "read,write",
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--agents",
            metavar="PATTERN",
            help="The agents whose runs the token may use, such as 'support-*'. Repeatable. Default: memory only.",
            show_default=False,
        ),
    ] = None,
    days: Annotated[int, typer.Option("--days", metavar="N", help="The days until the token expires.")] = 90,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Create a token for the server of a store, and print it once.

    The token reaches the memory of the user, or of other scopes, and the runs of the given agents. The store keeps only
    its hash. Servers that run accept it at once.

    An operator's token needs no tenant: --agents '*' --agents '@*' reaches every run, and with it the stored memory of
    all tenants.

    With --json: an object with token and the keys of amlog tokens list.
    """
    if tenant is None and (user is not None or scopes):
        raise UsageProblem("a user or a scope needs --tenant")
    principal = None if tenant is None else principal_of(tenant, user, scopes)
    grant = Grant(name, _rights(may), principal, tuple(agents or ()))

    async def work() -> tuple[str, Token]:
        async with open_or_create(_local(store)) as opened:
            return await create_token(opened, grant, days=days)

    text, token = run_async(work())
    output = Output()
    try:
        if as_json:
            output.json({"token": text, **_json_of(token)})
        else:
            output.line(text)
        output.flush()
    except OSError as error:
        raise CommandFailed(
            f"the token {token.id} was created, but cannot be shown ({error.strerror}): revoke it with amlog tokens "
            f"revoke {token.id}"
        ) from error
    if as_json:
        return
    grant, end = token.grant, token.expires_at.date().isoformat()
    note(f"{grant.name}: {_rights_text(grant)} on {_reach(grant)}, until {end}. The token is not shown again.")


def list_tokens(*, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the tokens of a store, also those that have ended.

    With --json: a list of objects with id, name, rights, tenant, scopes, agents, created, expires, revoked and status.
    """
    tokens = tuple(with_store(_local(store), load_tokens, creator=_CREATOR).values())
    output = Output()
    if as_json:
        output.json([_json_of(token) for token in tokens])
    elif tokens:
        output.table(_COLUMNS, [_row(token) for token in tokens])
    else:
        note("no tokens")


def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name or the id of the token.", show_default=False)],
    *,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a token.

    Servers that run refuse it from their next request on, and end its open streams with the next sign of life.

    With --json: an object with the keys of amlog tokens list.
    """
    revoked = with_store(_local(store), lambda opened: revoke_token(opened, name), creator=_CREATOR)
    Output().report(_json_of(revoked), f"revoked {revoked.grant.name} ({revoked.id})", as_json=as_json)


def _local(url: str | None) -> str | None:
    """Return the URL of a store. Raises ``UsageProblem`` for that of a server, which never lets its tokens be used."""
    if url and is_of_server(url):
        raise UsageProblem("a server does not manage its own tokens: give --store the URL that the server itself has")
    return url


def _rights(text: str) -> frozenset[Right]:
    names = [name.strip() for name in text.split(",")]
    rights = rights_in(names)
    if not set(names) <= rights:
        raise UsageProblem(f"--may {one_line(text)!r} must be some of {', '.join(RIGHTS)}, with commas between them")
    return rights


def _rights_text(grant: Grant) -> str:
    return ", ".join(right for right in RIGHTS if right in grant.rights)


def _reach(grant: Grant) -> str:
    """Return what a grant reaches, in words."""
    parts = [] if grant.principal is None else [f"the memory of {owner_text(grant.principal)}"]
    if grant.may_use_all:
        parts.append("every run, with the stored memory of all tenants")
    elif grant.agents:
        reserved = " (which hold stored memory)" if any(map(is_reserved, grant.agents)) else ""
        parts.append(f"the runs of {' '.join(grant.agents)}{reserved}")
    return one_line(" and ".join(parts))


def _row(token: Token) -> Sequence[tuple[str, str] | str]:
    day = token.expires_at.date().isoformat()
    status = (token.status, _STYLES[token.status])
    return token.id, token.grant.name, _rights_text(token.grant), _reach(token.grant), day, status


def _json_of(token: Token) -> dict[str, object]:
    grant, revoked = token.grant, token.revoked
    return {
        "id": token.id,
        "name": grant.name,
        "rights": [right for right in RIGHTS if right in grant.rights],
        "tenant": None if grant.principal is None else grant.principal.tenant,
        "scopes": {} if grant.principal is None else grant.principal.scopes,
        "agents": grant.agents,
        "created": format_timestamp(token.created),
        "expires": format_timestamp(token.expires_at),
        "revoked": None if revoked is None else format_timestamp(revoked),
        "status": token.status,
    }


tokens_app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Create, list and revoke the tokens of a store.\n\n"
        "A caller shows its token to amlog serve. The token has rights, on a memory and on the runs of agents."
    ),
)
_COMMANDS: dict[str, Callable[..., None]] = {"create": create, "list": list_tokens, "revoke": revoke}
for _name, _command in _COMMANDS.items():
    tokens_app.command(_name, help=reflowed(_command))(_command)
