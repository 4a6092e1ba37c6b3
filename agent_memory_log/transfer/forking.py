"""Forks a run: creates a new run of the same agent that begins with the first events of an existing run.

The events keep their seqs, ids, times and labels, as in a copy. A repeated fork therefore stores nothing, and the seqs
in redaction markers still name the same events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, RunDeleted
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, encode_canonical, encode_json
from agent_memory_log.events.reserved import check_not_reserved
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, all_runs, append, load, run_async, run_sync
from agent_memory_log.store import RunInfo, Store, SyncStore
from agent_memory_log.transfer.importing import BATCH_BYTES, BATCH_EVENTS

FORKED_FROM = "forked_from"
"""The key in a forked run's meta. Its value is the ``{agent, run, seq}`` of the source run."""


class ForkedRun(msgspec.Struct, frozen=True):
    """The result of a fork.

    Attributes:
        agent: The id of the agent.
        run: The id of the new run.
        version: The new run's version. It is above the seq of the fork if events were appended to the new run.
        events: How many of its events come from the source run.
        inserted: How many of these events were stored by this call.
    """

    agent: str
    run: str
    version: int
    events: int
    inserted: int


async def fork_run(store: Store, agent: str, run: str, at: int, new_run: str) -> ForkedRun:
    """Create ``new_run`` with the events of ``run`` up to and including seq ``at``.

    The new run has the meta of ``run``, including its ``expires_at``. Its meta also holds the source as
    ``forked_from``: ``{agent, run, seq}``. Redacted events stay redacted. A later redaction in one of the runs does not
    change the other; ``forks_of`` finds the forks.

    A repeated call continues an interrupted fork. If the fork is complete, the call stores nothing, even if events were
    appended to the new run.

        await fork_run(store, "support-agent", "run-42", 7, "run-42-retry")

    Args:
        store: The store that holds the run.
        agent: The id of the agent of both runs.
        run: The id of the run to fork.
        at: The seq of the last event to take over, from 1.
        new_run: The id of the new run.

    Returns:
        The new run's version and the number of its events.

    Raises:
        InvalidEvent: The agent's id begins with ``@``. Such runs are the library's own.
        InvalidArgument: ``at`` is not an integer from 1, or the new run already holds or held other events.
        CursorOutOfRange: ``run`` has no event with the seq ``at``.
        RunDeleted: ``run`` was deleted during the fork.
        AgentMemoryLogError: The errors of ``load_run`` and ``append_events``.
    """
    return await run_async(_fork(agent, run, at, new_run), store)


def fork_run_sync(store: SyncStore, agent: str, run: str, at: int, new_run: str) -> ForkedRun:
    """``fork_run`` without ``await``."""
    return run_sync(_fork(agent, run, at, new_run), store)


async def forks_of(store: Store, agent: str, run: str, *, first_seq: int = 1) -> list[RunInfo]:
    """Return the forks of a run, and their forks, that hold its event with the seq ``first_seq``.

    A fork keeps its events when the source run is redacted or deleted. Redact or delete the forks too.
    """
    return await run_async(_forks(agent, run, first_seq), store)


def forks_of_sync(store: SyncStore, agent: str, run: str, *, first_seq: int = 1) -> list[RunInfo]:
    """``forks_of`` without ``await``."""
    return run_sync(_forks(agent, run, first_seq), store)


def _forks(agent: str, run: str, first_seq: int) -> Steps[list[RunInfo]]:
    by_source: dict[str, list[RunInfo]] = {}
    for info in (yield from all_runs(agent)):
        source = info.meta.get(FORKED_FROM)
        if isinstance(source, Mapping) and source.get("agent") == agent and _holds(source.get("seq"), first_seq):
            by_source.setdefault(str(source.get("run")), []).append(info)
    forks: list[RunInfo] = []
    waiting = [run]
    while waiting:
        # A run is taken out with its source, so a circle in the metas ends.
        inner = by_source.pop(waiting.pop(), [])
        forks += inner
        waiting += [info.run for info in inner]
    return forks


def _holds(at: JsonValue, first_seq: int) -> bool:
    return isinstance(at, int) and at >= first_seq


def _fork(agent: str, run: str, at: int, new_run: str) -> Steps[ForkedRun]:
    check_not_reserved(agent, (), reserved=False)
    if type(at) is not int or at < 1:
        raise InvalidArgument(f"at must be an integer from 1, got {describe(at)}")
    if new_run == run:
        raise InvalidArgument(f"new_run is the same as run ({agent}/{run}): choose another id")
    # With no types, the store reads no event.
    source = yield from load(agent, run, types=())
    if source.first_seq > source.version:
        raise CursorOutOfRange(f"{agent}/{run} holds no events, so it cannot be forked at seq {at}")
    if not source.first_seq <= at <= source.version:
        raise CursorOutOfRange(f"{agent}/{run} has seqs {source.first_seq} to {source.version}, but at is {at}")
    forked_from: JsonValue = {"agent": agent, "run": run, "seq": at}
    target = yield from load(agent, new_run, types=())
    _check_target(target, forked_from)
    version = max(target.version, source.first_seq - 1)
    inserted = 0
    meta: Mapping[str, JsonValue] = {**source.meta, FORKED_FROM: forked_from}
    while version < at:
        page = yield from load(agent, run, version, limit=min(BATCH_EVENTS, at - version))
        if page.first_seq > version + 1 or not page.log:
            raise RunDeleted(f"{agent}/{run} was deleted during the fork")
        events = _first_batch(page.log)
        # The first batch creates the run with the seq of its first event. It needs no expected version, because another
        # identical fork may have created the run. Each further batch must follow exactly after the one before.
        begins = version < source.first_seq
        result = yield from append(
            agent,
            new_run,
            events,
            meta=meta,
            first_seq=source.first_seq if begins else None,
            expected_version=None if begins else version,
        )
        inserted += result.inserted
        version = result.version
    return ForkedRun(agent, new_run, version, at - source.first_seq + 1, inserted)


def _check_target(target: Snapshot, forked_from: JsonValue) -> None:
    name = f"{target.agent}/{target.run}"
    if not target.version:
        return
    if target.first_seq > target.version:
        raise InvalidArgument(f"{name} was deleted, and its seqs cannot be used again: choose another id for new_run")
    if encode_canonical(target.meta.get(FORKED_FROM)) != encode_canonical(forked_from):
        raise InvalidArgument(f"{name} already exists and is not this fork: choose another id for new_run")


def _first_batch(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return the first events that fit into one append, at least one."""
    size = 0
    for index, event in enumerate(events):
        size += len(encode_json(event.to_map()))
        if size > BATCH_BYTES and index:
            return tuple(events[:index])
    return tuple(events)
