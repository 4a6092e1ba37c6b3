"""``amlog memory ingest``: stores the turns of a conversation, and learns memories from them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.memory.derive import extractor_of, report_map, write_report
from agent_memory_log.cli.memory.options import Scopes, Tenant, User, principal_of
from agent_memory_log.cli.memory.table import default, option
from agent_memory_log.cli.options import AsJson, StoreUrl, is_of_server, open_or_create, run_async, store_url
from agent_memory_log.cli.output import Output
from agent_memory_log.memory import DeriveReport, Extractor, MemoryClient, Principal, ServesMemory
from agent_memory_log.memory.operations import Ingest
from agent_memory_log.memory.records.messages import ConversationTurn


def ingest(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file. Use - for standard input.", show_default=False)
    ],
    source_id: Annotated[str, option(Ingest, "source_id", "--source-id", metavar="NAME")],
    *,
    tenant: Tenant,
    user: User = None,
    scopes: Scopes = None,
    store: StoreUrl = None,
    first_turn: Annotated[int, option(Ingest, "first_turn", "--first-turn", metavar="N")] = default(
        Ingest, "first_turn"
    ),
    model: Annotated[
        bool, typer.Option("--model", help="Use the model in OPENAI_MODEL. Needs OPENAI_API_KEY.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Store the turns of a conversation as a run, and learn memories from it.

    Each line of the file is a turn: {"role": "user", "text": "Call me Kim"}. The role is user or assistant. A turn that
    is stored already is not stored again, so the whole conversation can be given each time. A short conversation is
    read too. The store is created if it does not exist. On the store of a server, the server learns.

    With --json: an object with the keys of amlog memory derive.
    """
    if model and is_of_server(store_url(store)):
        raise UsageProblem("--model has no effect on a server: start the server with amlog serve --model")
    turns = _turns(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes(), file)
    call = Ingest(turns, source_id, first_turn)
    with extractor_of(with_model=model) as extractor:
        report = run_async(_ingest(store, principal_of(tenant, user, scopes), call, extractor))
    output = Output()
    if as_json:
        output.json(report_map(report))
    else:
        write_report(output, report)
    output.flush()
    if report.status == "stopped":
        raise typer.Exit(1)


def _turns(data: bytes, name: str) -> tuple[ConversationTurn, ...]:
    """Return the turns of a file. Raises ``CommandFailed`` with the number of a line that is no turn."""
    turns: list[ConversationTurn] = []
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                turns.append(msgspec.json.decode(line, type=ConversationTurn))
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                raise CommandFailed(f"{name}, line {number}: {error}; nothing was stored") from error
    return tuple(turns)


async def _ingest(url: str | None, principal: Principal, call: Ingest, extractor: Extractor) -> DeriveReport:
    async with open_or_create(url) as store:
        client = MemoryClient(store, extractor=None if isinstance(store, ServesMemory) else extractor)
        return await client.of(principal).execute(call)
