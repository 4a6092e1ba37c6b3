"""Ledgers: runs with the messages that were handled for a loop, and the outbox with their results.

A message and its results are one append. So no result exists without its message, and a message that arrives again
finds its results. ``MessagesPublished`` joins the next append, so a message costs one write.
"""

from __future__ import annotations

import logging
from asyncio import Lock
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec

from agent_memory_log.errors import (
    AgentMemoryLogError,
    EventConflict,
    StoreClosed,
    StoreCorrupt,
    StoreUnavailable,
    VersionConflict,
)
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.fields import Int64
from agent_memory_log.events.nested import EventPlace
from agent_memory_log.events.payloads import EventData
from agent_memory_log.events.registry import register_payload
from agent_memory_log.memory import Principal
from agent_memory_log.store import Store

_LOG = logging.getLogger("agent_memory_log.processor")

END = "end"
"""The port of a ``MessageHandled`` that no message brought: the loop ended."""

LOOP = "loop/"
"""The prefix of the names of the ledgers of loops."""

_DEAD_LETTERS = "dead-letters"
_PAGE = 1_000
_MOST_LEDGERS = 10_000
_MOST_MARKS = 2_000
"""The most published messages that one event names. The next append names the others."""


@register_payload
class MessageHandled(EventData, frozen=True):
    """A message of NATS whose effect is in the log. The id of its event names the message.

    Attributes:
        port: The port that it came from.
        kind: The type in the message.
        sequence: The message's sequence in its stream.
        user_id: The user in the message, or ``""``.
        note: The error, or ``""``.
    """

    event_type = "processor_handled"

    port: str
    kind: str = ""
    sequence: Int64 = 0
    user_id: str = ""
    note: str = ""


@register_payload
class OutgoingMessage(EventData, frozen=True):
    """A message to publish. The id of its event is the id that receivers deduplicate by.

    Attributes:
        port: The port that it goes to.
        loop_id: The id of the loop.
        subject: Its subject.
        message: Its JSON text, or ``""`` if it holds words of the run or of memory. It is then written when it is
            published, so that no second copy of the words must be erased.
        context: The ``InjectedContext`` of the loop's run with the text of a context.
        note: The error, or ``""``.
        record: The id of the memory record whose triples the message adds to the graph, or ``""``.
        updated: The time of the latest change of this record. A record that changed since is not published.
        bucket: The bucket for a pointer that is stored first, or ``""``.
        key: The key of the pointer.
        value: The pointer.
    """

    event_type = "processor_outgoing"

    port: str
    loop_id: str
    subject: str
    message: str = ""
    context: EventPlace | None = None
    note: str = ""
    record: str = ""
    updated: datetime | None = None
    bucket: str = ""
    key: str = ""
    value: str = ""


@register_payload
class MessagesPublished(EventData, frozen=True):
    """Messages of the outbox that NATS has stored, by their ids."""

    event_type = "processor_published"

    ids: tuple[str, ...]


@register_payload
class ExtractionPending(EventData, frozen=True):
    """An extraction that failed. It is tried again until an ``ExtractionSettled`` names it.

    Attributes:
        agent: The agent of the run to extract from.
        run: The id of this run.
        error: Why it failed.
    """

    event_type = "processor_extraction_pending"

    agent: str
    run: str
    error: str = ""


@register_payload
class ExtractionSettled(EventData, frozen=True):
    """The end of a pending extraction, which succeeded. ``pending`` is the id of its event."""

    event_type = "processor_extraction_settled"

    pending: str


@register_payload
class GraphChanged(EventData, frozen=True):
    """The change of the graph by the messages of the same append.

    Attributes:
        loop_id: The loop that the messages name.
        principal: The owner of the memory, which has one scope.
        records: The time of the change of each added record, by its id.
        removed: The ids of the deleted records.
    """

    event_type = "processor_graph_changed"

    loop_id: str
    principal: Principal
    records: Mapping[str, datetime] = msgspec.field(default_factory=dict[str, datetime])
    removed: tuple[str, ...] = ()


@register_payload
class DeadLetter(EventData, frozen=True):
    """A message that cannot be handled.

    Attributes:
        port: The port that it came from.
        subject: Its subject.
        error: Why it cannot be handled.
        size: Its bytes.
        data: Its first bytes.
    """

    event_type = "processor_dead_letter"

    port: str
    subject: str
    error: str
    size: Int64
    data: bytes


class Ledger:
    """The state of one ledger, folded from its events.

    Attributes:
        name: The name of the ledger.
        version: The version of the run that the state shows.
        handled: The ids of the handled messages.
        sequences: The sequence of the message that was handled last, by its port.
        has_ended: True if the loop ended after its last message.
        user_id: The first user that a message named, or None.
        updated: The time of the newest event.
        unpublished: The events of the outbox that are not known to be published, by their ids.
        unmarked: The ids of published messages that the ledger does not name yet.
        pending: The pending extractions, by the ids of their events.
        graph: The time of the change of each record that the graph holds, by its id.
        graph_change: The latest change of the graph, or None.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0
        self.handled: set[str] = set()
        self.sequences: dict[str, int] = {}
        self.has_ended = False
        self.user_id: str | None = None
        self.updated: datetime | None = None
        self.unpublished: dict[str, Event] = {}
        self.unmarked: list[str] = []
        self.pending: dict[str, ExtractionPending] = {}
        self.graph: dict[str, datetime] = {}
        self.graph_change: GraphChanged | None = None

    def fold(self, events: Sequence[Event]) -> None:
        """Take the next events of the run."""
        for event in events:
            self.version = event.seq
            self.updated = event.timestamp
            self._fold(event)

    def _fold(self, event: Event) -> None:
        match event.data:
            case MessageHandled() as data:
                self.handled.add(event.event_id)
                self.sequences[data.port] = data.sequence
                self.has_ended = data.port == END
                self.user_id = self.user_id or data.user_id or None
            case OutgoingMessage():
                self.unpublished[event.event_id] = event
            case MessagesPublished(ids):
                for message_id in ids:
                    self.unpublished.pop(message_id, None)
            case ExtractionPending() as data:
                self.pending[event.event_id] = data
            case ExtractionSettled(pending):
                self.pending.pop(pending, None)
            case GraphChanged() as data:
                for record in data.removed:
                    self.graph.pop(record, None)
                self.graph.update(data.records)
                self.graph_change = data
            case _:
                pass

    def mark_published(self, message_id: str) -> None:
        """Note that a message is published. The next append writes it to the ledger."""
        if self.unpublished.pop(message_id, None) is not None:
            self.unmarked.append(message_id)

    @property
    def is_open(self) -> bool:
        """True if the ledger has unpublished messages, or anything else to do."""
        return bool(self.unpublished or self.unmarked or self.pending)


class Ledgers:
    """The ledgers of all loops of a deployment, which any number of processors may share.

    Args:
        store: The log.
        deployment: The name of the stream with the suffix of the consumers. Ids of messages begin with it, so that
            two deployments may publish to one stream.
    """

    def __init__(self, store: Store, deployment: str) -> None:
        self.deployment = deployment
        self._store = store
        self._agent = f"@processor/{deployment}"
        self._ledgers: OrderedDict[str, Ledger] = OrderedDict()
        self._locks: dict[str, tuple[Lock, int]] = {}

    @asynccontextmanager
    async def locked(self, name: str) -> AsyncGenerator[Ledger]:
        """Yield the current state of a ledger. Blocks for the same ledger wait for each other, in order.

        Raises the errors of the store.
        """
        lock, users = self._locks.get(name, (Lock(), 0))
        self._locks[name] = lock, users + 1
        try:
            async with lock:
                ledger = self._ledgers.get(name) or Ledger(name)
                await self.refresh(ledger)
                self._ledgers[name] = ledger
                self._ledgers.move_to_end(name)
                yield ledger
        finally:
            lock, users = self._locks.pop(name)
            if users > 1:
                self._locks[name] = lock, users - 1
            self._forget_oldest()

    async def refresh(self, ledger: Ledger) -> None:
        """Read the events that other processors appended."""
        snapshot = await self._store.load_run(self._agent, ledger.name, after=ledger.version)
        ledger.fold(snapshot.log)
        ledger.version = max(ledger.version, snapshot.version)

    async def append(self, ledger: Ledger, *events: Event) -> bool:
        """Append a message and its results, or nothing if the first event is already there.

        The end of a loop is not appended either if another processor appended meanwhile. Returns whether the events
        were appended. Raises the errors of the store.
        """
        while True:
            marked = min(len(ledger.unmarked), _MOST_MARKS)
            marks = [new_event(MessagesPublished(tuple(ledger.unmarked[:marked])))] if marked else []
            try:
                result = await self._store.append_events(
                    self._agent,
                    ledger.name,
                    *events,
                    *marks,
                    expected_version=ledger.version,
                    reserved=True,
                )
            except VersionConflict:
                # Another processor appended. Its event may be this one.
                old_version = ledger.version
                await self.refresh(ledger)
                if ledger.version == old_version:
                    raise
                if events and (events[0].data == MessageHandled(END) or await self._holds(ledger, events[0])):
                    return False
            except EventConflict:
                await self.refresh(ledger)
                return False
            else:
                # If the append was repeated, another processor may have appended before or after it.
                if result.events[0].seq == ledger.version + 1:
                    ledger.fold(result.events)
                else:
                    await self.refresh(ledger)
                del ledger.unmarked[:marked]
                return True

    async def _holds(self, ledger: Ledger, event: Event) -> bool:
        stored = await self._store.find_events(self._agent, ledger.name, [event.event_id])
        return stored[0] is not None

    async def bury(self, message_id: str, letter: DeadLetter) -> bool:
        """Append a dead letter. Returns whether it is new. Raises the errors of the store."""
        try:
            event = new_event(letter, event_id=message_id)
            result = await self._store.append_events(self._agent, _DEAD_LETTERS, event, reserved=True)
        except EventConflict:
            return False
        return result.inserted > 0

    def open_ledgers(self) -> list[str]:
        """Return the names of the ledgers that this processor read and that have anything to do.

        A ledger that is in use is left out. Its user publishes its messages.
        """
        return [name for name, ledger in self._ledgers.items() if ledger.is_open and name not in self._locks]

    def pending(self) -> list[str]:
        """Return the names of the ledgers that this processor read and that have pending extractions."""
        return [name for name, ledger in self._ledgers.items() if ledger.pending]

    def unpublished(self) -> int:
        """Return the number of messages in the outboxes that this processor read."""
        return sum(len(ledger.unpublished) for ledger in self._ledgers.values())

    async def states(self, prefix: str, since: datetime | None = None) -> AsyncIterator[Ledger]:
        """Yield the current state of each ledger whose name begins with a prefix and that changed since a time.

        It is for reading only. A ledger that is damaged is left out. Raises if the store is down.
        """
        cursor = None
        while True:
            page = await self._store.list_runs(self._agent, limit=_PAGE, cursor=cursor)
            for info in page.runs:
                if info.run.startswith(prefix) and (since is None or info.updated >= since):
                    ledger = self._ledgers.get(info.run)
                    if ledger is None or ledger.version < info.version:
                        try:
                            async with self.locked(info.run) as ledger:
                                # Otherwise a listing of more ledgers than are kept would read all of them each time.
                                self._ledgers.move_to_end(info.run, last=False)
                        except AgentMemoryLogError as error:
                            if is_outage(error):
                                raise
                            _LOG.error("the ledger %r cannot be read, and is left out: %s", info.run, error)
                            continue
                    yield ledger
            if (cursor := page.cursor) is None:
                return

    def _forget_oldest(self) -> None:
        if len(self._ledgers) > _MOST_LEDGERS:
            for name in list(self._ledgers)[: len(self._ledgers) - _MOST_LEDGERS]:
                if name not in self._locks and not self._ledgers[name].is_open:
                    del self._ledgers[name]


def is_outage(error: Exception) -> bool:
    """Return whether an error says that the store is down or full, so that the same call may succeed later."""
    return isinstance(error, StoreUnavailable | StoreClosed) and not isinstance(error, StoreCorrupt)
