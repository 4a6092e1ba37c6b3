"""Forking a run: a new run of the same agent that begins as another one did, up to a seq, and goes its own way.

The events keep their seqs, ids, times and labels, as in a copy; so forking again stores nothing, and seqs that
redaction markers name still mean the same events.
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
from agent_memory_log.steps import Steps, append, load, run_async, run_sync
from agent_memory_log.store import Store, SyncStore
from agent_memory_log.transfer.importing import BATCH_BYTES, BATCH_EVENTS

FORKED_FROM = "forked_from"
"""The key of a forked run's meta under which it has ``{agent, run, seq}`` of what it was forked from."""


class ForkedRun(msgspec.Struct, frozen=True):
    """The result of a fork.

    Attributes:
        agent: The id of the agent.
        run: The id of the new run.
        version: The new run's version: the seq of the fork, or more if events were appended since.
        events: How many of its events come from the source.
        inserted: How many of those were stored now.
    """

    agent: str
    run: str
    version: int
    events: int
    inserted: int


async def fork_run(store: Store, agent: str, run: str, at: int, new_run: str) -> ForkedRun:
    """Begin ``new_run`` of ``agent`` with the events of ``run`` up to seq ``at``, that one included.

    The new run has the meta of ``run``, its ``expires_at`` too, and says in ``forked_from`` where it comes from:
    ``{agent, run, seq}``. Events that were redacted are redacted in it; a later redaction of one run does not reach the
    other. Forking again stores nothing, also when the new run has gone on; a fork that was interrupted goes on when it
    is repeated.

    Raises ``InvalidEvent`` for an agent that begins with ``@``, whose runs are the library's own; ``InvalidArgument``
    for an ``at`` that is no integer from 1 and for a new run that holds, or once held,
    something else; ``CursorOutOfRange`` for an ``at`` beyond the run's version or before its deletion; ``RunDeleted``
    when the run is deleted meanwhile; and what ``load_run`` and ``append_events`` raise.

        await fork_run(store, "support-agent", "run-42", 7, "run-42-retry")
    """
    return await run_async(_fork(agent, run, at, new_run), store)


def fork_run_sync(store: SyncStore, agent: str, run: str, at: int, new_run: str) -> ForkedRun:
    """``fork_run`` without ``await``."""
    return run_sync(_fork(agent, run, at, new_run), store)


def _fork(agent: str, run: str, at: int, new_run: str) -> Steps[ForkedRun]:
    check_not_reserved(agent, (), reserved=False)
    if type(at) is not int or at < 1:
        raise InvalidArgument(f"at must be an integer from 1, found {describe(at)}")
    if new_run == run:
        raise InvalidArgument(f"the new run must have another name than {agent}/{run} itself")
    # Asking for no type reads no event.
    source = yield from load(agent, run, types=())
    if source.first_seq > source.version:
        raise CursorOutOfRange(f"{agent}/{run} holds no events: there is nothing to fork at seq {at}")
    if not source.first_seq <= at <= source.version:
        raise CursorOutOfRange(f"{agent}/{run} holds the seqs {source.first_seq} to {source.version}, not {at}")
    forked_from: JsonValue = {"agent": agent, "run": run, "seq": at}
    target = yield from load(agent, new_run, types=())
    _check_target(target, forked_from)
    version = max(target.version, source.first_seq - 1)
    inserted = 0
    meta: Mapping[str, JsonValue] = {**source.meta, FORKED_FROM: forked_from}
    while version < at:
        page = yield from load(agent, run, version, limit=min(BATCH_EVENTS, at - version))
        if page.first_seq > version + 1 or not page.log:
            raise RunDeleted(f"{agent}/{run} was deleted while it was forked")
        events = _first_batch(page.log)
        # The first event begins the run with the seq it has, the next ones follow where they belong or not at all. Who
        # began it does not matter: another fork of the same may have been faster.
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
        raise InvalidArgument(f"{name} was deleted, and its seqs cannot be used again: choose another name")
    if encode_canonical(target.meta.get(FORKED_FROM)) != encode_canonical(forked_from):
        raise InvalidArgument(f"{name} is there already, and is not this fork: choose another name")


def _first_batch(events: Sequence[Event]) -> tuple[Event, ...]:
    """As many of ``events`` as go into one append, at least one."""
    size = 0
    for place, event in enumerate(events):
        size += len(encode_json(event.to_map()))
        if size > BATCH_BYTES and place:
            return tuple(events[:place])
    return tuple(events)
