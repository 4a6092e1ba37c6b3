"""What importers and copies share: reading lines, event ids derived from a place, appending to one run in batches."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from agent_memory_log.errors import DecodeError, EventConflict, EventTooLarge, InvalidEvent, VersionConflict
from agent_memory_log.events.event import Event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, decode_json
from agent_memory_log.events.payloads import Redacted
from agent_memory_log.steps import Steps, append, load
from agent_memory_log.store import AppendResult

BATCH_EVENTS = 500
"""How many events an importer appends at once, at most."""

BATCH_BYTES = 4 * 1024 * 1024
"""How many bytes of encoded events an importer appends at once, about."""


_ATTEMPTS = 5
"""How often an import looks again when the run turns out not to be empty."""


def derived_event_id(kind: str, source: str, *position: int) -> str:
    """The id of an event that came without one: 32 hex digits that stand for its place, whatever its content.

    ``kind`` says what numbers ``position`` counts, so that two importers never give one id to two things.
    """
    place = "\n".join((kind, *map(str, position), source))  # the source, which may hold anything, comes last
    return hashlib.blake2b(place.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def line_bytes(text: bytes | str) -> bytes:
    """A line as UTF-8, without white space around it or a byte order mark before it."""
    line = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return line.strip().removeprefix(codecs.BOM_UTF8)


def decode_line(text: bytes | str, number: int) -> dict[str, JsonValue]:
    """The JSON object on line ``number`` of a file. Raises ``DecodeError`` naming the line."""
    found = decode_document(text, f"line {number}")
    if not isinstance(found, dict):
        raise DecodeError(f"line {number} must be a JSON object, found {describe(found)}")
    return cast("dict[str, JsonValue]", found)


def decode_document(text: bytes | str, where: str) -> object:
    """The JSON value of a file or a line, which may begin with a byte order mark of UTF-8.

    Raises ``DecodeError`` naming ``where``.
    """
    line = line_bytes(text)
    try:
        return decode_json(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in line[:4]:
            raise DecodeError(f"{where} is UTF-16 or UTF-32, and must be UTF-8: convert the file") from error
        raise DecodeError(f"{where} is not JSON: {error}") from error


class _Item(msgspec.Struct, frozen=True):
    event: Event
    where: str


class RunImport:
    """Appends events to one run, in their order: ``add`` each, carry out ``flush`` when ``full`` and at the end.

    What cannot be stored is named by the ``where`` it was added with, as in ``line 7``; everything before it is stored
    then, and nothing from it on. Adding the same events again stores nothing, so an import that was interrupted goes on
    when it is repeated.
    """

    def __init__(
        self,
        agent: str,
        run: str,
        *,
        meta: Mapping[str, JsonValue] | None = None,
        exact: bool = False,
        reserved: bool = False,
    ) -> None:
        """``meta`` is kept with the run if this import creates it.

        With ``exact`` an event goes where its seq says or nowhere: a run that is not at the version before it is a
        ``VersionConflict``. ``reserved`` is as for ``append_events``.
        """
        self.agent = agent
        self.run = run
        self.version = 0
        self.inserted = 0
        self.refused: Event | None = None
        self._meta = meta
        self._exact = exact
        self._reserved = reserved
        self._pending: list[_Item] = []
        self._bytes = 0
        self._begun = False

    def add(self, event: Event, *, size: int, where: str) -> None:
        """Take in an event of about ``size`` bytes. Where it has a ``seq`` and the run holds no events, it keeps it."""
        self._pending.append(_Item(event, where))
        self._bytes += size

    @property
    def full(self) -> bool:
        """Whether there is enough for a batch."""
        return len(self._pending) >= BATCH_EVENTS or self._bytes >= BATCH_BYTES

    def flush(self) -> Steps[list[Event]]:
        """Append what was added since the last flush; the events as they stand in the store, in the order added.

        Raises what ``append_events`` raises, with the place of the event in the message.
        """
        pending, self._pending, self._bytes = self._pending, [], 0
        return (yield from self._append(pending)) if pending else []

    def _append(self, items: Sequence[_Item]) -> Steps[list[Event]]:
        try:
            result = yield from self._append_once([item.event for item in items])
        except EventConflict as error:
            item = next(item for item in items if item.event.event_id == error.event_id)
            self.refused = item.event
            redacted = " (it was redacted where this comes from)" if isinstance(item.event.data, Redacted) else ""
            raise EventConflict(f"{item.where}: {error}{redacted}", event_id=error.event_id, seq=error.seq) from error
        except (InvalidEvent, EventTooLarge) as error:
            if len(items) == 1:
                self.refused = items[0].event
                raise _placed(error, items[0].where) from error
            # The batch is refused whole, for one event or for its size: halves find the one, or fit.
            half = len(items) // 2
            return (yield from self._append(items[:half])) + (yield from self._append(items[half:]))
        self.version = result.version
        self.inserted += result.inserted
        return list(result.events)

    def _append_once(self, events: Sequence[Event]) -> Steps[AppendResult]:
        for attempt in range(_ATTEMPTS):
            first_seq = None if self._begun else (yield from self._seq_to_keep(events[0].seq))
            expected = events[0].seq - 1 if self._exact and first_seq is None else None
            try:
                result = yield from append(
                    self.agent,
                    self.run,
                    events,
                    expected_version=expected,
                    meta=self._meta,
                    first_seq=first_seq,
                    reserved=self._reserved,
                )
            except VersionConflict:
                if first_seq is None or attempt == _ATTEMPTS - 1:
                    raise
                continue  # another writer began the run after we looked
            self._begun = True
            return result
        raise AssertionError("the last attempt returns or raises")

    def _seq_to_keep(self, seq: int) -> Steps[int | None]:
        if not seq:
            return None
        there = yield from load(self.agent, self.run, limit=1)
        return None if there.log or seq <= there.version else seq


def _placed(error: InvalidEvent | EventTooLarge, where: str) -> InvalidEvent | EventTooLarge:
    if isinstance(error, InvalidEvent):
        return InvalidEvent(f"{where}: {error}", field=error.field)
    return EventTooLarge(f"{where}: {error}", size=error.size, limit=error.limit)
