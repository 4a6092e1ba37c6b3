"""Pulls the messages of one port, passes them to the handler, and reports the outcome of each to NATS."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from nats.aio.msg import Msg

from agent_memory_log.processor.transport.handling import Handler
from agent_memory_log.processor.transport.ledger import is_outage
from agent_memory_log.processor.transport.messages import Incoming
from agent_memory_log.processor.transport.metrics import BURIED, POSTPONED, REFUSED, RETRIED, Metrics
from agent_memory_log.processor.transport.wire import WIRE_ERRORS, NatsWire

_LOG = logging.getLogger("agent_memory_log.processor")

_FETCH_SECONDS = 1.0
_ACK_SECONDS = 5.0
_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 30.0
_MOST_FAILURES = 10
"""The number of unexpected errors after which a message is a dead letter."""

_MOST_COUNTED = 1_000
"""The most messages whose unexpected errors are counted. Another processor may have got the rest of them."""


class PortSource(msgspec.Struct, frozen=True):
    """The origin of the messages of a port.

    Attributes:
        port: The name of the port.
        stream: The stream.
        consumer: The name of the durable consumer.
        subject: The subject.
        deployment: The name of the stream in the ids of messages, with the suffix of the consumers.
        newest_only: Whether only the newest message of each subject counts.
        in_order: Whether the messages of a subject are handled in their order, whichever processor gets them.
    """

    port: str
    stream: str
    consumer: str
    subject: str
    deployment: str
    newest_only: bool = False
    in_order: bool = False


class PortConsumer:
    """The pull consumer of one port.

    Args:
        source: The origin of the messages.
        wire: The connection.
        handler: Handles the messages.
        metrics: Counts the outcomes.
        concurrency: The most messages that are handled at a time.
        ack_seconds: The time after which NATS delivers a message again if it hears nothing of it.
    """

    def __init__(
        self,
        source: PortSource,
        wire: NatsWire,
        handler: Handler,
        metrics: Metrics,
        *,
        concurrency: int,
        ack_seconds: float,
    ) -> None:
        self.source = source
        self.problem = "it has not started"
        self._wire = wire
        self._handler = handler
        self._metrics = metrics
        self._concurrency = concurrency
        self._ack_seconds = ack_seconds
        self._tasks: dict[asyncio.Task[None], Msg] = {}
        self._failures: Counter[str] = Counter()
        self._settled = 0
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Pull until ``stop``, then wait for the messages that were pulled.

        It tries again with pauses after any error, such as a missing stream, bucket or consumer, or a server that is
        down.
        """
        source, pause = self.source, _FIRST_PAUSE
        heartbeat = asyncio.create_task(self._keep_in_progress())
        try:
            while not self._stopping.is_set():
                try:
                    subscription = await self._wire.pull(
                        source.stream, source.consumer, source.subject, newest_only=source.newest_only
                    )
                    self.problem = ""
                    pause = _FIRST_PAUSE
                    self._settled = 0  # a stream that was made again counts from 1 again
                    try:
                        await self._pull(subscription.fetch, subscription.consumer_info)
                    finally:
                        await subscription.unsubscribe()
                except Exception as error:  # noqa: BLE001  # no error ends a port
                    is_usual = isinstance(error, WIRE_ERRORS)
                    self.problem = f"stream {source.stream}: {error if is_usual else repr(error)}"
                    self._metrics.failed("consumer")
                    level = logging.INFO if is_usual else logging.ERROR
                    _LOG.log(level, "%s: %s", source.port, self.problem, exc_info=not is_usual)
                    await self._pause(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            heartbeat.cancel()

    def stop(self) -> None:
        """Pull no more messages."""
        self._stopping.set()

    async def _pull(
        self, fetch: Callable[[int, float], Awaitable[list[Msg]]], look: Callable[[], Awaitable[object]]
    ) -> None:
        while not self._stopping.is_set():
            if len(self._tasks) >= self._concurrency:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                continue
            try:
                messages = await fetch(self._concurrency - len(self._tasks), _FETCH_SECONDS)
            except TimeoutError:
                await look()  # a consumer that was deleted does not answer
                continue
            for message in messages:
                task = asyncio.create_task(self._settle(message))
                self._tasks[task] = message
                task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("%s: a message was not settled", self.source.port, exc_info=error)

    async def _settle(self, message: Msg) -> None:
        metadata = message.metadata
        source, sequence = self.source, metadata.sequence.stream
        # A stream that was made again counts from 1 again, so the id has the time of the message too.
        stored = int(metadata.timestamp.timestamp() * 1e6)
        name = f"{source.deployment}:{sequence}:{stored}"
        incoming = Incoming(source.port, message.subject, message.data, name, sequence)
        has_earlier = partial(self._has_earlier, message, self._settled) if source.in_order else None
        try:
            try:
                outcome = await self._handler.handle(incoming, has_earlier)
            except Exception as error:
                if is_outage(error) or not self._has_failed_too_often(name):
                    raise
                _LOG.exception("%s: unexpected error", incoming.message_id)
                outcome = await self._handler.bury(incoming, f"{type(error).__name__}: {error}")
        except Exception as error:  # noqa: BLE001  # any error: the message comes again
            self._metrics.settled(source.port, RETRIED)
            self._metrics.failed("store" if is_outage(error) else "message")
            _LOG.warning("%s comes again: %s: %s", incoming.message_id, type(error).__name__, error)
            await self._answer(message.nak(min(_FIRST_PAUSE * 2 ** min(metadata.num_delivered, 20), _LONGEST_PAUSE)))
            return
        self._metrics.settled(source.port, outcome)
        if outcome == POSTPONED:
            await self._answer(message.nak(_FIRST_PAUSE))
            return
        del self._failures[name]
        await self._answer(message.term() if outcome in (REFUSED, BURIED) else message.ack_sync(_ACK_SECONDS))

    async def _has_earlier(self, message: Msg, settled: int, after: int) -> bool:
        """Return whether a message of the same subject, before this one and after ``after``, may not be settled.

        Another processor has it, or it comes again. Each message up to the sequence ``settled`` was settled before the
        ledger was read: a refused message and a dead letter too, which no ledger has.
        """
        source, sequence = self.source, message.metadata.sequence.stream
        try:
            first = await self._wire.next_sequence(source.stream, message.subject, max(after, settled))
            if first is None or first >= sequence:
                return False
            self._settled = await self._wire.settled(source.stream, source.consumer)
        except WIRE_ERRORS as error:
            self._metrics.failed("consumer")
            _LOG.warning("%s: the messages before %d are unknown: %r", source.port, sequence, error)
        return True

    def _has_failed_too_often(self, name: str) -> bool:
        """Count an unexpected error of a message, and return whether the message is a dead letter."""
        if len(self._failures) >= _MOST_COUNTED:
            self._failures.clear()
        self._failures[name] += 1
        return self._failures[name] >= _MOST_FAILURES

    async def _answer(self, answer: Awaitable[object]) -> None:
        try:
            await answer
        except WIRE_ERRORS as error:
            # NATS delivers the message again. Its effect is in the log, so nothing happens twice.
            self._metrics.failed("acknowledgement")
            _LOG.info("%s: a message was not acknowledged: %r", self.source.port, error)

    async def _keep_in_progress(self) -> None:
        """Tell NATS of messages that take long, so that it does not deliver them again."""
        while True:
            await asyncio.sleep(self._ack_seconds / 3)
            for message in list(self._tasks.values()):
                await self._answer(message.in_progress())

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
