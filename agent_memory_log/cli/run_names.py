"""How a run is named on the command line: ``AGENT/RUN``, or ``RUN`` where that is unique over the agents.

In each part ``/`` and ``%`` are percent-encoded, and so is what a terminal or a shell would not take as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import quote, unquote

from agent_memory_log import steps
from agent_memory_log.backend_kit.urls import without_credentials
from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.terminal_text import INVISIBLE, one_line
from agent_memory_log.errors import RunExpired
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import RunInfo, Store

_SHOWN_CANDIDATES = 5
_encoded = re.compile(rf"[/%\x00-\x20\x7f-\xa0{INVISIBLE}]")


def run_name(agent: str, run: str) -> str:
    """The name by which ``parse_name`` and every command know a run; printable, and safe to show."""
    return f"{_encode(agent)}/{_encode(run)}"


def run_map(agent: str, run: str, **fields: JsonValue) -> dict[str, JsonValue]:
    """A run as JSON: its name, its agent and run, and what a command has to say about it."""
    return {"name": run_name(agent, run), "agent": agent, "run": run, **fields}


def _encode(part: str) -> str:
    return _encoded.sub(lambda match: quote(match[0], safe=""), part)


def parse_name(name: str) -> tuple[str | None, str]:
    """The agent (None: not said) and the run of a name. Raises ``UsageProblem`` when it is none."""
    parts = name.split("/")
    if len(parts) > 2 or not all(parts):  # noqa: PLR2004  # AGENT/RUN has two
        raise UsageProblem(
            f"{one_line(without_credentials(name))!r} does not name a run: give AGENT/RUN or RUN; in a part, write %2F "
            "for / and %25 for %"
        )
    try:
        decoded = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{one_line(name)!r} does not name a run: {error.object!r} is not UTF-8") from error
    return (None if len(decoded) == 1 else decoded[0]), decoded[-1]


async def runs_of(store: Store, agent: str | None = None, *, reserved: bool = False) -> list[RunInfo]:
    """Every run of an agent, or of all; with the library's own where ``reserved``."""
    return await steps.run_async(steps.all_runs(agent, include_reserved=reserved), store)


async def resolve(store: Store, name: str) -> tuple[str, str]:
    """The agent and run that ``name`` stands for; a full name need not exist. Raises ``CommandFailed``."""
    agent, run = parse_name(name)
    if agent is not None:
        return agent, run
    infos = [info for info in await runs_of(store) if info.run == run]
    if len(infos) == 1:
        return infos[0].agent, run
    if not infos:
        raise CommandFailed(f"no run {_encode(run)!r}: see amlog runs")
    candidates = ", ".join(run_name(info.agent, run) for info in infos[:_SHOWN_CANDIDATES])
    more = f" and {len(infos) - _SHOWN_CANDIDATES} more" if len(infos) > _SHOWN_CANDIDATES else ""
    raise CommandFailed(f"{len(infos)} agents have a run {_encode(run)!r}: name one of {candidates}{more}")


async def existing_run(store: Store, name: str) -> Snapshot:
    """The run that ``name`` stands for, which holds events, without reading them. Raises ``CommandFailed``."""
    agent, run = await resolve(store, name)
    with suppress(RunExpired):
        there = await store.load_run(agent, run, types=())
        if event_count(there):
            return there
    raise CommandFailed(f"no run {run_name(agent, run)}: see amlog runs")


def event_count(snapshot: Snapshot) -> int:
    """How many events a run holds, whether or not they were read."""
    return snapshot.version - snapshot.first_seq + 1


async def load_existing(
    store: Store,
    name: str,
    *,
    after: int = 0,
    types: Iterable[str] | None = None,
    limit: int | None = None,
) -> Snapshot:
    """Read the run that ``name`` stands for, which holds events; see ``Store.load_run``. Raises ``CommandFailed``."""
    agent, run = await resolve(store, name)
    snapshot = await store.load_run(agent, run, after=after, types=types, limit=limit)
    if not snapshot.version:
        raise CommandFailed(f"no run {run_name(agent, run)}: see amlog runs")
    if snapshot.first_seq > snapshot.version:
        raise CommandFailed(f"{run_name(agent, run)} was deleted, at version {snapshot.version}")
    return snapshot
