"""The options that the memory commands share, and the functions that turn them into an open ``Memory``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import typer

from agent_memory_log.cli.errors import UsageProblem
from agent_memory_log.cli.options import open_existing, open_or_create
from agent_memory_log.cli.terminal_text import one_line
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import Memory, MemoryClient, Principal
from agent_memory_log.memory.records.principals import HOME_SCOPE

Tenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="The tenant.", show_default=False)]

User = Annotated[
    str | None,
    typer.Option("--user", metavar="ID", help="The user. Short for --scope user=ID.", show_default=False),
]

Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="NAME=ID",
        help="A scope, such as workspace=ops. Repeatable. If user is among them, it is the home scope.",
        show_default=False,
    ),
]

Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Only this kind: preference, fact, episode, message (in search) or another kind. Repeatable.",
        show_default=False,
    ),
]

Kind = Annotated[
    str | None,
    typer.Option(
        "--kind", metavar="KIND", help="The kind of the memory, if several kinds have the key.", show_default=False
    ),
]

RECORD_HELP = "The key or id of a memory. Write -- before a name that begins with a dash."

RecordName = Annotated[str, typer.Argument(metavar="RECORD", help=RECORD_HELP, show_default=False)]


def not_empty(option: str, names: Sequence[str] | None) -> Sequence[str] | None:
    """Return ``names``. Raises ``UsageProblem`` if one of them is empty."""
    if names is not None and not all(name.strip() for name in names):
        raise UsageProblem(f"{option} must not be empty")
    return names


def principal_of(tenant: str, user: str | None, scopes: Sequence[str] | None) -> Principal:
    """Return the principal of the options. Raises ``UsageProblem`` for missing or duplicate scopes."""
    ids: dict[str, str] = {}
    for name, id_ in [*([(HOME_SCOPE, user)] if user is not None else []), *map(_scope, scopes or ())]:
        if name in ids:
            raise UsageProblem(f"the scope {one_line(name)!r} is given twice")
        ids[name] = id_
    if not ids:
        raise UsageProblem("no user or scope: give --user ID or --scope NAME=ID")
    try:
        return Principal(tenant, ids)
    except InvalidArgument as error:
        raise UsageProblem(str(error)) from error


def _scope(text: str) -> tuple[str, str]:
    name, equals, id_ = text.partition("=")
    if not (name and equals and id_):
        raise UsageProblem(f"--scope {one_line(text)!r} is not NAME=ID, such as workspace=ops")
    return name, id_


@asynccontextmanager
async def open_memory(url: str | None, principal: Principal, *, create: bool = False) -> AsyncGenerator[Memory]:
    """Open the memory of ``principal``. The store must exist, unless ``create`` is true."""
    async with (open_or_create if create else open_existing)(url) as store:
        yield MemoryClient(store).of(principal)


def owner_text(principal: Principal) -> str:
    """Return a principal as text, such as ``user 42 of acme``."""
    scopes = sorted(principal.scopes.items(), key=lambda scope: (scope[0] != principal.home, scope[0]))
    return one_line(f"{', '.join(f'{name} {id_}' for name, id_ in scopes)} of {principal.tenant}")
