"""The result of an append, from the answer of the server and the events of the request; the check of a cursor."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory_log.backend_kit import Prepared
from agent_memory_log.errors import CursorOutOfRange, StoreUnavailable
from agent_memory_log.service.store_operations import Appended
from agent_memory_log.store import AppendResult


def append_result(appended: Appended, batch: Sequence[Prepared]) -> AppendResult:
    """Return the result of an append. The server does not send back events that are new to it.

    Raises ``StoreUnavailable`` if the answer is that of another append.
    """
    ids = tuple([event.event_id for event in batch])
    stored = tuple([event.event_id for event in appended.stored]) or ids
    if appended.event_ids != ids or stored != ids or len(appended.seqs) != len(ids):
        raise StoreUnavailable("the server answered with the result of another append; it is safe to repeat the call")
    events = appended.stored or tuple([event.to_event(seq) for event, seq in zip(batch, appended.seqs, strict=True)])
    return AppendResult(appended.version, appended.inserted, events)


def check_cursor(cursor: str) -> None:
    """Check that a cursor can be sent. Raises ``CursorOutOfRange``."""
    if not isinstance(cursor, str) or not cursor.isascii():
        raise CursorOutOfRange(f"{cursor!r} is not a cursor that list_runs returned")
