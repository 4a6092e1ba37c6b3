"""The store's calls as operations, their arguments checked: what both surfaces have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent_memory_log.backend_kit import (
    check_after,
    check_append,
    check_ids,
    check_limit,
    check_listing,
    check_meta,
    check_not_reserved,
    check_runs,
    check_seqs,
    check_types,
    prepare_batch,
)
from agent_memory_log.errors import InvalidArgument, StoreUnavailable
from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult, RunHead, RunPage
from agent_memory_log_mongo import checks, following, listing, reads, removal, writes
from agent_memory_log_mongo.documents import Run
from agent_memory_log_mongo.place import Place
from agent_memory_log_mongo.settings import MAX_DOCUMENT_BYTES
from agent_memory_log_mongo.steps import Steps
from agent_memory_log_mongo.writes import Append

carry_out_append = writes.append
expire = removal.expire


def append(
    place: Place,
    agent: str,
    run: str,
    events: tuple[Event, ...],
    expected_version: int | None,
    meta: Mapping[str, JsonValue] | None,
    first_seq: int | None,
    *,
    reserved: bool,
) -> Append:
    """An append, checked. Raises ``InvalidEvent``, ``InvalidArgument``, ``EventTooLarge``."""
    check_ids(agent, run)
    if expected_version is not None or first_seq is not None:
        check_append(expected_version, first_seq)
    batch = prepare_batch(events, place.settings.max_event_bytes, MAX_DOCUMENT_BYTES)
    check_not_reserved(agent, batch, reserved=reserved)
    owned_meta = None if meta is None else check_meta(meta)
    return Append(Run.of(agent, run), batch, expected_version, owned_meta, first_seq)


def kept_waiting(name: str, wanted: Append) -> StoreUnavailable:
    """The error for an append whose time was up before its turn came."""
    return StoreUnavailable(
        f"{name}: other appends of this handle to {wanted.run.name} took all of the time; "
        "nothing of this one was stored"
    )


def load(
    place: Place, agent: str, run: str, after: int, types: Iterable[str] | None, limit: int | None
) -> Steps[Snapshot]:
    """See ``Store.load_run``."""
    check_ids(agent, run)
    check_after(after)
    check_limit(limit)
    return reads.load(place, Run.of(agent, run), after, check_types(types), limit)


def follow(place: Place, agent: str, run: str, after: int) -> tuple[bytes, Steps[None]]:
    """See ``Store.follow``; with the run's key."""
    check_ids(agent, run)
    check_after(after)
    followed = Run.of(agent, run)
    return followed.key, following.follow(place, followed, after)


def list_runs(
    place: Place, agent: str | None, limit: int, cursor: str | None, include_reserved: bool
) -> Steps[RunPage]:
    """See ``Store.list_runs``."""
    check_listing(agent, limit)
    return listing.list_runs(place, agent, limit, cursor, include_reserved)


def peek_runs(place: Place, runs: Iterable[tuple[str, str]]) -> Steps[tuple[RunHead | None, ...]]:
    """See ``Store.peek_runs``."""
    return listing.peek_runs(place, [Run.of(*one) for one in check_runs(runs)])


def check(place: Place, agent: str | None, run: str | None) -> Steps[None]:
    """See ``Store.check``."""
    if run is not None and agent is None:
        raise InvalidArgument(f"a run is checked by its agent and its own id, found no agent for the run {run!r}")
    check_ids(agent if agent is not None else "any", run if run is not None else "any")
    return checks.check(place, agent, Run.of(agent, run) if agent is not None and run is not None else None)


def redact(place: Place, agent: str, run: str, seqs: Iterable[int], reason: str) -> tuple[bytes, Steps[AppendResult]]:
    """See ``Store.redact_events``; with the run's key."""
    check_ids(agent, run)
    redacted = Run.of(agent, run)
    return redacted.key, removal.redact(place, redacted, check_seqs(seqs), reason)


def delete(place: Place, agent: str, run: str) -> tuple[bytes, Steps[int]]:
    """See ``Store.delete_run``; with the run's key."""
    check_ids(agent, run)
    deleted = Run.of(agent, run)
    return deleted.key, removal.delete(place, deleted)
