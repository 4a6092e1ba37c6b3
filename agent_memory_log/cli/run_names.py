"""Names of runs on the command line: ``AGENT/RUN``, or ``RUN`` if only one agent has a run of that name.

In each part ``/``, ``%``, whitespace, control characters and invisible characters are percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
    """Return the printable name of a run. ``parse_name`` and every command accept it."""
    return f"{_encode(agent)}/{_encode(run)}"


def run_map(agent: str, run: str, **fields: JsonValue) -> dict[str, JsonValue]:
    """Return the JSON object of a run: its name, agent and run, then the ``fields`` of the command."""
    return {"name": run_name(agent, run), "agent": agent, "run": run, **fields}


def _encode(part: str) -> str:
    return _encoded.sub(lambda match: quote(match[0], safe=""), part)


def parse_name(name: str) -> tuple[str | None, str]:
    """Return the agent and the run of a name. A name without a slash has None as its agent.

    Raises ``UsageProblem`` for a text that is not a name.
    """
    parts = name.split("/")
    if len(parts) > 2 or not all(parts):  # noqa: PLR2004  # AGENT/RUN has two
        raise UsageProblem(
            f"{one_line(without_credentials(name))!r} is not the name of a run: give AGENT/RUN or RUN, and write %2F "
            "for / and %25 for % inside a name"
        )
    try:
        decoded = [unquote(part, errors="strict") for part in parts]
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{one_line(name)!r} is not the name of a run: {error.object!r} is not UTF-8") from error
    return (None if len(decoded) == 1 else decoded[0]), decoded[-1]


async def runs_of(store: Store, agent: str | None = None, *, reserved: bool = False) -> list[RunInfo]:
    """Return every run of ``agent``, or of all agents for None. ``reserved`` includes the library's own agents."""
    return await steps.run_async(steps.all_runs(agent, include_reserved=reserved), store)


def fork_names(forks: Sequence[RunInfo]) -> list[str]:
    """Return the names of forks for the output."""
    return [run_name(info.agent, info.run) for info in forks]


async def resolve(store: Store, name: str) -> tuple[str, str]:
    """Return the agent and run of ``name``.

    An AGENT/RUN is not looked up, so the run may be missing. Raises ``CommandFailed`` if a name without an agent
    matches no run or several.
    """
    agent, run = parse_name(name)
    if agent is not None:
        return agent, run
    infos = [info for info in await runs_of(store) if info.run == run]
    if len(infos) == 1:
        return infos[0].agent, run
    if not infos:
        raise CommandFailed(f"no run {_encode(run)!r}: list the runs with amlog runs")
    candidates = ", ".join(run_name(info.agent, run) for info in infos[:_SHOWN_CANDIDATES])
    more = f" and {len(infos) - _SHOWN_CANDIDATES} more" if len(infos) > _SHOWN_CANDIDATES else ""
    raise CommandFailed(f"{len(infos)} agents have a run {_encode(run)!r}: give one of {candidates}{more}")


async def existing_run(store: Store, name: str) -> Snapshot:
    """Return the head of the run called ``name``, without its events.

    Raises ``CommandFailed`` if the run has no events or has expired.
    """
    agent, run = await resolve(store, name)
    with suppress(RunExpired):
        head = await store.load_run(agent, run, types=())
        if event_count(head):
            return head
    raise CommandFailed(f"no run {run_name(agent, run)}: list the runs with amlog runs")


def event_count(snapshot: Snapshot) -> int:
    """Return the number of events in the run, including events that the snapshot does not contain."""
    return snapshot.version - snapshot.first_seq + 1


async def load_existing(
    store: Store,
    name: str,
    *,
    after: int = 0,
    types: Iterable[str] | None = None,
    limit: int | None = None,
) -> Snapshot:
    """Load the run called ``name``. Raises ``CommandFailed`` if it does not exist or was deleted.

    The options have the same meaning as in ``Store.load_run``.
    """
    agent, run = await resolve(store, name)
    snapshot = await store.load_run(agent, run, after=after, types=types, limit=limit)
    if not snapshot.version:
        raise CommandFailed(f"no run {run_name(agent, run)}: list the runs with amlog runs")
    if snapshot.first_seq > snapshot.version:
        raise CommandFailed(f"the run {run_name(agent, run)} was deleted at version {snapshot.version}")
    return snapshot
