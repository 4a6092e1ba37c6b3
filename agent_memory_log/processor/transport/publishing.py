"""Publishes the messages of the outbox. A message that NATS does not take stays there, and is tried again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from agent_memory_log.events.context_payloads import InjectedContext
from agent_memory_log.events.event import Event
from agent_memory_log.memory import MemoryClient, Record
from agent_memory_log.processor.transport.ledger import DeadLetter, Ledger, Ledgers, OutgoingMessage
from agent_memory_log.processor.transport.messages import (
    GraphMutationMessage,
    InjectedContextMessage,
    Source,
    write_message,
)
from agent_memory_log.processor.transport.metrics import Metrics
from agent_memory_log.processor.triples import triples_of
from agent_memory_log.store import Store

_LOG = logging.getLogger("agent_memory_log.processor")


class PublishFailed(Exception):
    """NATS did not store a message. It stays in the outbox."""


class MessageTooLarge(Exception):
    """NATS stores no message of this ``size`` in bytes."""

    def __init__(self, subject: str, size: int) -> None:
        super().__init__(f"NATS stores no message of {size:,} bytes on {subject}")
        self.size = size


class Wire(Protocol):
    """The calls of NATS that the outbox needs."""

    async def publish(self, subject: str, data: bytes, *, message_id: str, note: str) -> None:
        """Store a message in its stream, once for each id. Raises ``PublishFailed`` and ``MessageTooLarge``."""
        ...

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        """Store a value in a bucket, which is made if it is missing. Raises ``PublishFailed``."""
        ...


class Publisher:
    """Publishes the outbox of ledgers.

    Args:
        store: The log, which has the texts of contexts.
        memory: The memory client, which has the records of triples.
        ledgers: The ledgers.
        wire: The connection to NATS.
        metrics: Counts messages and failures.
    """

    def __init__(self, store: Store, memory: MemoryClient, ledgers: Ledgers, wire: Wire, metrics: Metrics) -> None:
        self._store = store
        self._memory = memory
        self._ledgers = ledgers
        self._wire = wire
        self._metrics = metrics

    async def publish(self, ledger: Ledger) -> None:
        """Publish the messages of a ledger that are not published. The caller holds the ledger's lock.

        A message that fails holds up only later messages of its port. One that is too large is a dead letter without
        its words. Failures are counted, and not raised.
        """
        failed: set[str] = set()
        records: Mapping[str, Record] | None = None
        for message_id, event in list(ledger.unpublished.items()):
            message = event.data
            if not isinstance(message, OutgoingMessage) or message.port in failed:
                continue
            try:
                if message.record and records is None:
                    records = await self._records(ledger)
                is_sent = await self._publish_or_bury(message, event, ledger, records or {})
            except Exception as error:  # noqa: BLE001  # one message never holds up other ports and other ledgers
                failed.add(message.port)
                self._metrics.failed("publish")
                _LOG.warning("%s was not published: %r", message_id, error)
            else:
                ledger.mark_published(message_id)
                if is_sent:
                    self._metrics.published(message.port)

    async def _publish_or_bury(
        self, message: OutgoingMessage, event: Event, ledger: Ledger, records: Mapping[str, Record]
    ) -> bool:
        """Publish a message. Returns False if there is nothing to publish, or if the message is too large."""
        try:
            return await self._publish(message, event, ledger, records)
        except MessageTooLarge as error:
            self._metrics.failed("publish")
            _LOG.error("%s is a dead letter: %s", event.event_id, error)
            letter = DeadLetter(message.port, message.subject, str(error), error.size, b"")
            await self._ledgers.bury(event.event_id, letter)
            return False

    async def _publish(
        self, message: OutgoingMessage, event: Event, ledger: Ledger, records: Mapping[str, Record]
    ) -> bool:
        """Publish a message. Returns False if its memory was forgotten or changed."""
        data, note = message.message.encode(), message.note
        if message.context is not None:
            data, note = await self._context(message, event)
        if message.record:
            record = records.get(message.record)
            if record is None or record.updated != message.updated or ledger.graph_change is None:
                return False
            triples = triples_of(record, ledger.graph_change.principal)
            seconds = int(event.timestamp.timestamp())
            data = write_message(GraphMutationMessage("add_triples", message.loop_id, triples, seconds))
        if message.bucket:
            await self._wire.put(message.bucket, message.key, message.value.encode())
        await self._wire.publish(message.subject, data, message_id=event.event_id, note=note)
        return True

    async def _records(self, ledger: Ledger) -> Mapping[str, Record]:
        """Return the active records of the principal of a ledger, by their ids."""
        if ledger.graph_change is None:
            return {}
        records = await self._memory.of(ledger.graph_change.principal).list()
        return {record.id: record for record in records}

    async def _context(self, message: OutgoingMessage, event: Event) -> tuple[bytes, str]:
        """Return the message with a logged context, and its note. An erased context is empty."""
        place = message.context
        assert place is not None  # noqa: S101  # the caller checked it
        (logged,) = await self._store.find_events(place.agent, place.run, [place.event_id])
        seconds = int(event.timestamp.timestamp())
        if logged is None or not isinstance(logged.data, InjectedContext):
            empty = InjectedContextMessage(message.loop_id, "", 0, "post_compaction", seconds)
            return write_message(empty), "the context was erased"
        context = logged.data
        source: Source = "pre_task" if context.source == "pre_task" else "post_compaction"
        text = InjectedContextMessage(message.loop_id, context.text, context.token_count, source, seconds)
        return write_message(text), message.note

    async def retry(self) -> bool:
        """Publish the rest of all outboxes that this processor read, and mark the published messages.

        Returns whether the outboxes are empty. Raises the errors of the store.
        """
        for name in self._ledgers.open_ledgers():
            async with self._ledgers.locked(name) as ledger:
                await self.publish(ledger)
                if ledger.unmarked:
                    await self._ledgers.append(ledger)
            await asyncio.sleep(0)
        return not self._ledgers.unpublished()
