"""The table of a store's operations, for the wire: a local call on a store builds no such struct.

To add an operation, add a struct here and a line to ``STORE_METHODS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, StoreCall
from agent_memory_log.store import AppendResult, Erasures, ExpireResult, Flaw, RunHead, RunPage

_Result = TypeVar("_Result")

_Agent = Annotated[str, Meta(description="The id of the agent.")]
_Run = Annotated[str, Meta(description="The id of the run.")]
_After = Annotated[int, Meta(ge=0, description="Only the events after this seq.")]
_Limit = Annotated[int | None, Meta(ge=1, description="At most this many. Default: all.")]


class Appended(msgspec.Struct, frozen=True):
    """The result of an append.

    Attributes:
        version: The run's version after the append.
        inserted: How many of the events were new.
        event_ids: The id of each event, in the order of the request.
        seqs: The seq of each event, in the same order.
        stored: All events as stored, if some of them were stored before. Otherwise they are the events of the request.
    """

    version: int
    inserted: int
    event_ids: tuple[str, ...]
    seqs: tuple[int, ...]
    stored: tuple[Event, ...] = ()


class AppendEvents(Operation[Appended], frozen=True):
    """Append all events or none. Repeat a request without an answer: an event whose id is stored is not stored again.

    Give each event its ``event_id`` before the first request.
    """

    writes = True
    right = "write"
    positional = 2

    agent: _Agent
    run: _Run
    events: Annotated[tuple[Event, ...], Meta(description="The events, in the order in which they get their seqs.")]
    expected_version: Annotated[int | None, Meta(ge=0, description="The version that the run must have.")] = None
    meta: Annotated[Mapping[str, JsonValue] | None, Meta(description="Stored with the run if it is new.")] = None
    first_seq: Annotated[int | None, Meta(ge=1, description="For imports: the seq of the first event.")] = None
    reserved: Annotated[bool, Meta(description="Whether to accept the library's own names.")] = False


class LoadRun(Operation[Snapshot], frozen=True):
    """Read events of a run in seq order. To read on, pass ``last_seq`` of the result as ``after``."""

    positional = 2

    agent: _Agent
    run: _Run
    after: _After = 0
    types: Annotated[
        tuple[str, ...] | None, Meta(description="The event types to read, such as ``user_message``. Default: all.")
    ] = None
    limit: _Limit = None
    last: Annotated[int | None, Meta(ge=1, description="Read only the newest events, at most 64 on a server.")] = None


class FindEvents(Operation[tuple[Event | None, ...]], frozen=True):
    """Return the events of a run that have the given ids, in the same order. An unknown id gives null."""

    positional = 3

    agent: _Agent
    run: _Run
    event_ids: Annotated[tuple[str, ...], Meta(description="The ids of the events.")]


class ListRuns(Operation[RunPage], frozen=True):
    """List the runs that hold events and have not expired, the most recently created first.

    A page has only the runs that the caller may read. It can be empty although another page follows.
    """

    positional = 1

    agent: Annotated[str | None, Meta(description="Only the runs of this agent. Default: all agents.")] = None
    limit: Annotated[int, Meta(ge=1, description="The most runs of a page.")] = 50
    cursor: Annotated[str | None, Meta(description="The ``cursor`` of the page before.")] = None
    include_reserved: Annotated[bool, Meta(description="Whether to include the library's own agents.")] = False


class PeekRuns(Operation[tuple[RunHead | None, ...]], frozen=True):
    """Return the head of each run, in the same order. It is null for a run that has expired."""

    positional = 1

    runs: Annotated[tuple[tuple[str, str], ...], Meta(description="The runs, as (agent, run).")]


class RedactEvents(Operation[AppendResult], frozen=True):
    """Replace each event of ``seqs`` by a ``redacted`` event and append one ``redaction`` that names them."""

    writes = True
    right = "erase"
    positional = 3

    agent: _Agent
    run: _Run
    seqs: Annotated[tuple[int, ...], Meta(description="The seqs of the events to redact.")]
    reason: Annotated[str, Meta(description="Stored with the redacted events and with the marker.")] = ""


class DeleteRun(Operation[None], frozen=True):
    """Remove the run's events, event ids and meta. The next event continues from the run's version."""

    writes = True
    right = "erase"
    positional = 2

    agent: _Agent
    run: _Run


class ReadErasures(Operation[Erasures], frozen=True):
    """Read the erasure journal, which names the events that a redaction or deletion removed."""

    after: Annotated[int, Meta(ge=0, description="Only the entries after this position.")] = 0
    runs: Annotated[
        tuple[tuple[str, str], ...] | None, Meta(description="Only these runs, as (agent, run). Default: all.")
    ] = None
    limit: _Limit = None


class ExpireRuns(Operation[ExpireResult], frozen=True):
    """Delete every run whose ``expires_at`` is not later than ``before``."""

    writes = True
    right = "erase"

    before: Annotated[datetime | None, Meta(description="A time that is not in the future. Default: now.")] = None
    dry_run: Annotated[bool, Meta(description="Only count the runs.")] = False


class CheckStore(Operation[Flaw], frozen=True):
    """Compare the stored data with its checksums, indexes and lists, and report each flaw."""

    stream = True
    positional = 2

    agent: Annotated[str | None, Meta(description="Check the runs of this agent. Default: all agents.")] = None
    run: Annotated[str | None, Meta(description="Check only this run of ``agent``.")] = None


class FollowRun(Operation[RunHead], frozen=True):
    """Report the head of a run now and after each change, without events. Read the events with ``load_run``.

    The report ends with an error when the run is deleted or expires. To continue after a lost connection, pass the
    ``first_seq`` of an earlier head: the call then fails with ``run_deleted`` if the run was deleted meanwhile.
    """

    stream = True
    positional = 2

    agent: _Agent
    run: _Run
    after: _After = 0
    first_seq: Annotated[int | None, Meta(ge=1, description="The ``first_seq`` of an earlier head of the run.")] = None


STORE_METHODS: Mapping[str, type[Operation[Any]]] = {
    "append_events": AppendEvents,
    "load_run": LoadRun,
    "find_events": FindEvents,
    "list_runs": ListRuns,
    "peek_runs": PeekRuns,
    "redact_events": RedactEvents,
    "delete_run": DeleteRun,
    "erasures": ReadErasures,
    "expire_runs": ExpireRuns,
    "check": CheckStore,
    "follow": FollowRun,
}
"""The operations by the names of the store's methods."""

_NAMES: Mapping[type[Operation[Any]], str] = {operation: name for name, operation in STORE_METHODS.items()}


def execute_on_store(operation: Operation[_Result]) -> Steps[_Result]:
    """Call the method of the store that an operation names. The store checks the arguments.

    The operation is not a stream. Raises the errors of the method.
    """
    fields = type(operation).__struct_fields__
    values = {name: getattr(operation, name) for name in fields}
    arguments = [values.pop(name) for name in fields[: operation.positional]]
    arguments.extend(values.pop("events", ()))
    result = yield StoreCall(_NAMES[type(operation)], tuple(arguments), values)
    return cast("_Result", _appended(result) if isinstance(operation, AppendEvents) else result)


def _appended(result: AppendResult) -> Appended:
    events = result.events
    stored = () if result.inserted == len(events) else events
    ids, seqs = tuple(event.event_id for event in events), tuple(event.seq for event in events)
    return Appended(result.version, result.inserted, ids, seqs, stored)
