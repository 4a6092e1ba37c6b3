"""Operations on a store for the fault tests, and the readers that compare their results.

Each trial has its own agent, so that trials do not affect each other in their database.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import bson

from agent_memory_log import AppendResult, Event, PlannerNote, Snapshot, Store, new_event
from agent_memory_log.events.payloads import Redaction
from agent_memory_log_mongo.documents.commits import Run
from tests.mongo.messages import Request, When

FAR_OFF = "2999-01-01T00:00:00Z"
"""The ``expires_at`` of the runs that expire."""

Act = Callable[[Store, str], Coroutine[Any, Any, object]]


def note(event_id: str) -> Event:
    """Return an event with this id, whose text contains the id."""
    return new_event(PlannerNote(note=f"text of {event_id}"), event_id=event_id)


def notes(prefix: str, count: int) -> list[Event]:
    """Return ``count`` events with different ids."""
    return [note(f"{prefix}{number}") for number in range(count)]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that a fault interrupts.

    Attributes:
        name: The name in the test's id.
        prepare: Stores the events that the operation needs, without a fault.
        act: The operation during which the fault happens.
        cold: Whether ``act`` uses another handle than ``prepare``.
    """

    name: str
    prepare: Act
    act: Act
    cold: bool = False


async def _nothing(_store: Store, _agent: str) -> None:
    pass


async def _two_appends(store: Store, agent: str) -> None:
    await store.append_events(agent, "run", *notes("a", 3), meta={"made": "first"})
    await store.append_events(agent, "run", *notes("b", 2))


async def _one_with_an_end(store: Store, agent: str) -> None:
    await store.append_events(agent, "run", note("a"), meta={"expires_at": FAR_OFF})


async def _created_and_deleted(store: Store, agent: str) -> None:
    await _two_appends(store, agent)
    await store.delete_run(agent, "run")


async def _create(store: Store, agent: str) -> object:
    return _comparable(await store.append_events(agent, "run", *notes("n", 3), meta={"made": agent[:1]}))


async def _append(store: Store, agent: str) -> object:
    return _comparable(await store.append_events(agent, "run", note("n")))


async def _append_expecting(store: Store, agent: str) -> object:
    return _comparable(await store.append_events(agent, "run", *notes("n", 2), expected_version=5))


async def _append_partly_known(store: Store, agent: str) -> object:
    batch = (note("n0"), note("b1"), note("n1"), note("a0"), note("n0"))
    return _comparable(await store.append_events(agent, "run", *batch))


async def _append_known(store: Store, agent: str) -> object:
    return _comparable(await store.append_events(agent, "run", note("b1"), note("a2"), expected_version=77))


async def _append_at(store: Store, agent: str) -> object:
    return _comparable(await store.append_events(agent, "run", *notes("n", 2), first_seq=40))


async def _append_beyond_the_ceiling(store: Store, agent: str) -> object:
    return _comparable(await store.append_events(agent, "run", *notes("n", 1100)))


async def _redact(store: Store, agent: str) -> object:
    return _comparable(await store.redact_events(agent, "run", [1, 5, 2], reason="asked"))


async def _delete(store: Store, agent: str) -> object:
    await store.delete_run(agent, "run")
    return None


async def _read(store: Store, agent: str) -> object:
    return [
        _snapshot(await store.load_run(agent, "run")),
        _snapshot(await store.load_run(agent, "run", after=1, limit=3)),
        await _listed(store, agent),
    ]


OPERATIONS = [
    Operation("create", _nothing, _create),
    Operation("append", _two_appends, _append),
    Operation("append cold", _two_appends, _append, cold=True),
    Operation("append at the version expected", _two_appends, _append_expecting),
    Operation("append partly known", _two_appends, _append_partly_known),
    Operation("append known", _two_appends, _append_known),
    Operation("append at a seq", _created_and_deleted, _append_at),
    Operation("append beyond the ceiling", _one_with_an_end, _append_beyond_the_ceiling, cold=True),
    Operation("create again", _created_and_deleted, _create),
    Operation("redact", _two_appends, _redact),
    Operation("delete", _two_appends, _delete),
    Operation("read", _two_appends, _read, cold=True),
]


def select(*names: str) -> list[Operation]:
    """Return the operations with these names."""
    return [operation for operation in OPERATIONS if operation.name in names]


async def state(store: Store, agent: str) -> object:
    """Return the readable content of the trial's run, without the parts that differ between trials."""
    return [_snapshot(await store.load_run(agent, "run")), await _listed(store, agent)]


async def log(store: Store, agent: str) -> tuple[object, ...]:
    """Return the events of the trial's run."""
    return tuple(map(_event, (await store.load_run(agent, "run")).log))


def about(agent: str) -> When:
    """Return a predicate for requests about the trial's run."""
    name, key = agent.encode(), Run.of(agent, "run").key

    def is_about(request: Request) -> bool:
        parts = [bson.encode(request.body), *map(bson.encode, request.documents)]
        return any(name in part or key in part for part in parts)

    return is_about


def _comparable(result: AppendResult) -> tuple[int, int, list[int]]:
    return result.version, result.inserted, [event.seq for event in result.events]


def _snapshot(snapshot: Snapshot) -> tuple[object, ...]:
    return snapshot.version, snapshot.last_seq, snapshot.meta, list(map(_event, snapshot.log))


def _event(event: Event) -> tuple[object, ...]:
    # The store chooses the id of a redaction marker, so the ids of markers are not compared.
    return event.seq, isinstance(event.data, Redaction) or event.event_id, event.data


async def _listed(store: Store, agent: str) -> list[tuple[Any, ...]]:
    page = await store.list_runs(agent)
    return [(run.run, run.version, run.event_count, run.meta) for run in page.runs]
