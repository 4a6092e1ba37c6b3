"""Publishes the messages of the outbox. A message that NATS does not take stays there, and is tried again."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.events.context_payloads import InjectedContext
from agent_memory_log.events.event import Event
from agent_memory_log.processor.transport.ledger import Ledger, Ledgers, OutgoingMessage
from agent_memory_log.processor.transport.messages import InjectedContextMessage, Source, write_message
from agent_memory_log.processor.transport.metrics import Metrics
from agent_memory_log.store import Store

_LOG = logging.getLogger("agent_memory_log.processor")


class PublishFailed(Exception):
    """NATS did not store a message. It stays in the outbox."""


class Wire(Protocol):
    """The calls of NATS that the outbox needs."""

    async def publish(self, subject: str, data: bytes, *, message_id: str, note: str) -> None:
        """Store a message in its stream, once for each id. Raises ``PublishFailed``."""
        ...

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        """Store a value in a bucket, which is made if it is missing. Raises ``PublishFailed``."""
        ...


class Publisher:
    """Publishes the outbox of ledgers.

    Args:
        store: The log, which has the texts of contexts.
        ledgers: The ledgers.
        wire: The connection to NATS.
        metrics: Counts messages and failures.
    """

    def __init__(self, store: Store, ledgers: Ledgers, wire: Wire, metrics: Metrics) -> None:
        self._store = store
        self._ledgers = ledgers
        self._wire = wire
        self._metrics = metrics

    async def publish(self, ledger: Ledger) -> None:
        """Publish the messages of a ledger that are not published. The caller holds the ledger's lock.

        A message that fails holds up only later messages of its port. Failures of NATS and of the store are counted,
        and not raised.
        """
        failed: set[str] = set()
        for message_id, event in list(ledger.unpublished.items()):
            message = event.data
            if not isinstance(message, OutgoingMessage) or message.port in failed:
                continue
            try:
                await self._publish(message, event)
            except (PublishFailed, StoreUnavailable) as error:
                failed.add(message.port)
                self._metrics.failed("publish")
                _LOG.warning("%s was not published: %s", message_id, error)
            else:
                ledger.mark_published(message_id)
                self._metrics.published(message.port)

    async def _publish(self, message: OutgoingMessage, event: Event) -> None:
        data, note = message.message.encode(), message.note
        if message.context is not None:
            data, note = await self._context(message, event)
        if message.bucket:
            await self._wire.put(message.bucket, message.key, message.value.encode())
        await self._wire.publish(message.subject, data, message_id=event.event_id, note=note)

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
