"""The options that the commands of derived memory share: whose memory is meant, and what opens it."""

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
    typer.Option("--user", metavar="ID", help="The user, as --scope user=ID.", show_default=False),
]

Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        metavar="NAME=ID",
        help="A scope, such as workspace=ops; several may be given, and user is home if it is among them.",
        show_default=False,
    ),
]

Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help="Only preference, fact, episode, message (in search) or another kind; repeatable.",
        show_default=False,
    ),
]

Kind = Annotated[
    str | None,
    typer.Option(
        "--kind", metavar="KIND", help="Which is meant, where several kinds have the key.", show_default=False
    ),
]

RECORD_HELP = "A memory's key, or its id; -- must stand before one that begins with a dash"

RecordName = Annotated[str, typer.Argument(metavar="RECORD", help=f"{RECORD_HELP}.", show_default=False)]


def not_empty(option: str, names: Sequence[str] | None) -> Sequence[str] | None:
    """The names that an option was given. Raises ``UsageProblem`` where one is empty, as nothing has such a name."""
    if names is not None and not all(name.strip() for name in names):
        raise UsageProblem(f"{option} must not be empty")
    return names


def principal_of(tenant: str, user: str | None, scopes: Sequence[str] | None) -> Principal:
    """Whose memory the options mean. Raises ``UsageProblem``."""
    found: dict[str, str] = {}
    for name, id_ in [*([(HOME_SCOPE, user)] if user is not None else []), *map(_scope, scopes or ())]:
        if name in found:
            raise UsageProblem(f"the scope {one_line(name)!r} is given twice")
        found[name] = id_
    if not found:
        raise UsageProblem("whose memory? Give --user ID, or --scope NAME=ID")
    try:
        return Principal(tenant, found)
    except InvalidArgument as error:
        raise UsageProblem(str(error)) from error


def _scope(text: str) -> tuple[str, str]:
    name, equals, id_ = text.partition("=")
    if not (name and equals and id_):
        raise UsageProblem(f"--scope {one_line(text)!r} is not a NAME=ID, such as workspace=ops")
    return name, id_


@asynccontextmanager
async def open_memory(url: str | None, principal: Principal, *, create: bool = False) -> AsyncGenerator[Memory]:
    """The memory of ``principal`` in a store that must be there, unless ``create``."""
    async with (open_or_create if create else open_existing)(url) as store:
        yield MemoryClient(store).of(principal)


def whose(principal: Principal) -> str:
    """A principal for people: ``user 42 of acme``."""
    scopes = sorted(principal.scopes.items(), key=lambda one: (one[0] != principal.home, one[0]))
    return one_line(f"{', '.join(f'{name} {id_}' for name, id_ in scopes)} of {principal.tenant}")
