"""``amlog mcp``: serves the memory of one user, and runs, to a model over standard input and output."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from agent_memory_log.cli.errors import CommandFailed
from agent_memory_log.cli.memory.derive import Rules
from agent_memory_log.cli.memory.options import Scopes, Tenant, User, principal_of
from agent_memory_log.cli.options import StoreUrl, open_or_create
from agent_memory_log.memory import MemoryClient, ServesMemory
from agent_memory_log.service.executing import Executor
from agent_memory_log.service.grants import RIGHTS, Grant, rights_in
from agent_memory_log.service.limits import Limits


def mcp(
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--agents",
            metavar="PATTERN",
            help="Agents whose runs the model may read, such as 'support-*'. Repeatable. Default: none.",
            show_default=False,
        ),
    ] = None,
    store: StoreUrl = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only the tools that read.")] = False,
) -> None:
    """Serve memory to a model with MCP, the Model Context Protocol, over standard input and output.

    A program such as Claude Desktop starts this command. The user and the agents are fixed for as long as it runs, so
    a model cannot name others. The store is created if it does not exist. Needs the extra mcp.
    """
    try:
        from agent_memory_log.service.mcp.stdio import serve  # noqa: PLC0415  # needs the extra mcp
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        raise CommandFailed("amlog mcp needs the extra mcp: pip install 'agent-memory-log[mcp]'") from error
    rights = rights_in(["read"] if read_only else RIGHTS)
    grant = Grant("stdio", rights, principal_of(tenant, user, scopes), tuple(agents or ()))

    async def serve_store() -> None:
        async with open_or_create(store) as opened:
            memory = MemoryClient(opened, extractor=None if isinstance(opened, ServesMemory) else Rules())
            await serve(Executor(opened, memory, Limits()).caller(grant))

    asyncio.run(serve_store())  # a signal ends the process at once: a wait for standard input cannot be cancelled
