"""The results of a store's methods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue

MAX_FIRST_SEQ = 2**31
"""The largest seq that a run can begin with. Every store has room for 2**31 further events."""


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """The result of an append.

    Attributes:
        version: The run's version after the append.
        inserted: How many of the events were new. The others were already stored.
        events: The stored events with their seqs, in the order of the arguments. An event that was already stored is
            returned as it is in the store.
    """

    version: int
    inserted: int
    events: tuple[Event, ...]


class RunInfo(msgspec.Struct, frozen=True):
    """A run without its events.

    Attributes:
        agent: The id of the agent.
        run: The id of the run.
        version: The seq of the newest event.
        created: When this store created the run, in UTC. An append to a deleted run creates it again.
        updated: The timestamp of the newest event, which is the one with the highest seq.
        event_count: How many events the run holds, including redacted ones.
        meta: The map that was given when the run was created. See ``Store.append_events`` for its ``expires_at``.
    """

    agent: str
    run: str
    version: int
    created: datetime
    updated: datetime
    event_count: int
    meta: Mapping[str, JsonValue]


class RunPage(msgspec.Struct, frozen=True):
    """One page of ``Store.list_runs``.

    Attributes:
        runs: The runs, the most recently created first.
        cursor: The cursor of the next page, or None on the last page.
    """

    runs: tuple[RunInfo, ...]
    cursor: str | None


class RunHead(msgspec.Struct, frozen=True, gc=False):
    """The position of a run: the ``version`` and the ``first_seq`` that a ``Snapshot`` of it would have.

    If both are unchanged, the run is unchanged. An append and a redaction raise ``version``, and a deletion raises
    ``first_seq``. The next append to a deleted run raises both. A run without events has a ``first_seq`` above its
    version. A run that never had events is at version 0.

    Attributes:
        version: The seq of the newest event, or 0.
        first_seq: The first seq that the run can still hold.
    """

    version: int
    first_seq: int


class ExpireResult(msgspec.Struct, frozen=True):
    """The result of ``Store.expire_runs``. A dry run returns the same numbers and removes nothing.

    Attributes:
        runs: How many runs were removed.
        events: How many events those runs held.
    """

    runs: int
    events: int


class Flaw(msgspec.Struct, frozen=True):
    """A problem that ``Store.check`` reports.

    Attributes:
        agent_id: The agent of the run, or None for the whole store.
        run_id: The run, or None for the whole store.
        seq: The event, or None for the whole run or the whole store.
        message: The problem and, if possible, its remedy, without the names of agent and run.
        is_damage: False for information that is not damage, such as the number of events without a checksum.
    """

    agent_id: str | None
    run_id: str | None
    seq: int | None
    message: str
    is_damage: bool = True


class Erasure(msgspec.Struct, frozen=True):
    """An entry of the erasure journal: events that ``redact_events`` or ``delete_run`` removed. It holds no content.

    Attributes:
        position: The position in the journal, from 1.
        agent: The id of the agent.
        run: The id of the run.
        seqs: The seqs of redacted events. It is empty for a deletion.
        up_to: For a deletion, the run's version: all events up to this seq are gone. It is 0 for a redaction.
    """

    position: int
    agent: str
    run: str
    seqs: tuple[int, ...] = ()
    up_to: int = 0


class Erasures(msgspec.Struct, frozen=True):
    """The result of ``Store.erasures``.

    Attributes:
        position: The position up to which the journal was read. To read on, pass it as ``after``.
        entries: The entries, in the order of the journal.
    """

    position: int
    entries: tuple[Erasure, ...] = ()
