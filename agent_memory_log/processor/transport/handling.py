"""Handles each message: appends its results to the log, then publishes them. This module does not use NATS."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from time import monotonic

import msgspec

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.nested import EventPlace
from agent_memory_log.memory import ConversationTurn, MemoryClient, Principal
from agent_memory_log.memory.records.principals import conversations_of
from agent_memory_log.memory.records.reports.outcomes import DeriveReport
from agent_memory_log.processor import Loop, LoopContext, LoopMemory
from agent_memory_log.processor.transport.configuration import ProcessorSettings
from agent_memory_log.processor.transport.graph import Graph
from agent_memory_log.processor.transport.ledger import (
    LOOP,
    DeadLetter,
    ExtractionPending,
    ExtractionSettled,
    Ledgers,
    MessageHandled,
    OutgoingMessage,
    is_outage,
)
from agent_memory_log.processor.transport.messages import (
    CheckpointEventMessage,
    ContextEvent,
    HydrateRequest,
    Incoming,
    InjectedContextMessage,
    Source,
    read_message,
    write_message,
)
from agent_memory_log.processor.transport.metrics import BURIED, HANDLED, POSTPONED, REFUSED, REPEATED, Metrics
from agent_memory_log.processor.transport.publishing import Publisher

_LOG = logging.getLogger("agent_memory_log.processor")

COMPACTION_EVENTS = "compaction_events"
HYDRATE_REQUESTS = "hydrate_requests"
ENTITY_STATES = "entity_states"

IDLE = timedelta(hours=1)
"""The time without a message and a new event of its run after which a loop ends."""

_MOST_DEAD_BYTES = 65_536
_MOST_ERROR = 500


class Handler:
    """Handles messages: appends their results to the ledger of their loop, and publishes them.

    Args:
        settings: The settings.
        loops: The memory of loops.
        memory: The memory client with the extractor.
        ledgers: The ledgers.
        publisher: Publishes the outbox.
        graph: Publishes the changes of the graph.
        metrics: Counts outcomes and failures.

    Attributes:
        active: The active loops of this processor, each with the monotonic time of its latest change, by their ids.
    """

    def __init__(
        self,
        settings: ProcessorSettings,
        loops: LoopMemory,
        memory: MemoryClient,
        ledgers: Ledgers,
        publisher: Publisher,
        graph: Graph,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._loops = loops
        self._memory = memory
        self._ledgers = ledgers
        self._publisher = publisher
        self._graph = graph
        self._metrics = metrics
        self.active: dict[str, tuple[Loop, float]] = {}

    async def loops_since(self, time: datetime) -> AsyncIterator[tuple[str, Loop, datetime]]:
        """Yield the loops of all processors that have not ended, each with its latest change, if that is not older.

        Raises the errors of the store.
        """
        async for ledger in self._ledgers.states(LOOP, time):
            loop_id = ledger.name.removeprefix(LOOP)
            loop = self._settings.route(loop_id, ledger.user_id)
            if loop is not None and not ledger.has_ended and ledger.updated is not None:
                yield loop_id, loop, ledger.updated

    async def find(self, loop_id: str) -> Loop | None:
        """Return a loop that had messages and has not ended, or None. Raises the errors of the store."""
        async with self._ledgers.locked(LOOP + loop_id) as ledger:
            has_messages = ledger.version > 0 and not ledger.has_ended
            return self._settings.route(loop_id, ledger.user_id) if has_messages else None

    async def handle(self, incoming: Incoming, has_earlier: Callable[[int], Awaitable[bool]] | None = None) -> str:
        """Bring about the effect of a message, and return its outcome, a word of ``metrics``.

        When it returns, the effect is in the log, or the message has none, or it is ``POSTPONED`` and must come again.
        It must also come again after an error, such as those of the store.

        Args:
            incoming: The message.
            has_earlier: Returns whether a message of the loop that came after a sequence and before this message may
                not be settled. Default: the messages of a loop have no order.
        """
        self._metrics.arrived(len(incoming.data))
        try:
            message = self._read(incoming)
        except DecodeError as error:
            return await self.bury(incoming, str(error))
        if isinstance(message, str):
            return await self._hydrate_for_entity(incoming, message)
        user_id = message.user_id if isinstance(message, ContextEvent) else None
        async with self._ledgers.locked(LOOP + message.loop_id) as ledger:
            is_new = incoming.message_id not in ledger.handled
            if is_new and has_earlier and await has_earlier(ledger.sequences.get(incoming.port, 0)):
                return POSTPONED
            loop = self._settings.route(message.loop_id, user_id or ledger.user_id)
            if loop is None or (user_id and ledger.user_id and user_id != ledger.user_id):
                _LOG.warning("%r: no entry of loops maps the loop", incoming.subject)
                return REFUSED
            self.active[message.loop_id] = loop, monotonic()
            if not is_new:
                await self._publisher.publish(ledger)
                return REPEATED
            if isinstance(message, HydrateRequest):
                notes, results = await self._answer(incoming, message, loop)
            else:
                notes, results = await self._react(incoming, message, loop)
            handled = MessageHandled(
                incoming.port, message.type, incoming.sequence, user_id or "", "; ".join(notes)[:_MOST_ERROR]
            )
            is_new = await self._ledgers.append(ledger, new_event(handled, event_id=incoming.message_id), *results)
            await self._publisher.publish(ledger)
        if message.type == "compaction_starting":  # later messages of the loop do not wait for the graph
            await self.publish_graph(message.loop_id, loop.principal)
        return HANDLED if is_new else REPEATED

    async def bury(self, incoming: Incoming, error: str) -> str:
        """Append a dead letter for a message that cannot be handled. Raises the errors of the store."""
        _LOG.error("%s is a dead letter: %s", incoming.message_id, error)
        letter = DeadLetter(
            incoming.port, incoming.subject, _storable(error), len(incoming.data), incoming.data[:_MOST_DEAD_BYTES]
        )
        await self._ledgers.bury(incoming.message_id, letter)
        return BURIED

    def _read(self, incoming: Incoming) -> ContextEvent | HydrateRequest | str:
        """Return the message, or the id of the entity that changed. Raises ``DecodeError``."""
        ports = self._settings.ports
        if incoming.port == ENTITY_STATES:
            return incoming.subject.removeprefix(f"$KV.{ports.entity_states}.")
        message: ContextEvent | HydrateRequest
        if incoming.port == COMPACTION_EVENTS:
            port, message = ports.compaction_events, read_message(incoming.data, ContextEvent)
        else:
            port, message = ports.hydrate_requests, read_message(incoming.data, HydrateRequest)
        # NATS decides who may publish on a subject, so the loop of a message is that of its subject.
        if port.endswith(("*", ">")) and incoming.subject.rpartition(".")[2] != message.loop_id:
            raise DecodeError(f"loop_id must be the last token of the subject {incoming.subject!r}")
        return message

    async def _answer(self, incoming: Incoming, request: HydrateRequest, loop: Loop) -> tuple[list[str], list[Event]]:
        settings = self._settings.hydration
        is_enabled = settings.pre_task.enabled if request.type == "pre_task" else settings.post_compaction.enabled
        if not is_enabled:
            return [f"hydration.{request.type} is not enabled"], []
        context = await self._hydrate(incoming, request.type, request.task_description or "", loop)
        return [context.note] if context.note else [], [
            self._context_event(incoming, request.loop_id, loop, request.type, context)
        ]

    async def _react(self, incoming: Incoming, event: ContextEvent, loop: Loop) -> tuple[list[str], list[Event]]:
        notes: list[str] = []
        results: list[Event] = []
        if event.type == "compaction_starting":
            if self._settings.extraction.llm_assisted.enabled:
                results += await self._extract(incoming, event, loop)
                failed = [result.data for result in results if isinstance(result.data, ExtractionPending)]
                notes += [f"extraction failed: {pending.error}" for pending in failed]
            if self._settings.checkpoint.enabled:
                results += await self.checkpoint(event.loop_id, loop, event.type, incoming.message_id)
        elif event.type == "compaction_complete" and self._settings.hydration.post_compaction.enabled:
            context = await self._hydrate(incoming, "post_compaction", "", loop)
            notes += [context.note] if context.note else []
            results.append(self._context_event(incoming, event.loop_id, loop, "post_compaction", context))
        return notes, results

    async def publish_graph(self, loop_id: str, principal: Principal, *, adds: bool = True) -> bool:
        """Publish the changes of the graph, and return whether that succeeded. Raises if the store is down."""
        try:
            await self._graph.publish_changes(loop_id, principal, adds=adds)
        except Exception as error:  # noqa: BLE001  # the graph never fails a loop
            self._noted("graph", error)
            return False
        return True

    async def _hydrate(self, incoming: Incoming, source: Source, task: str, loop: Loop) -> LoopContext:
        """Return a context, or an empty one with a note if there is an error. Raises if the store is down."""
        hydration, event_id = self._settings.hydration, incoming.message_id
        try:
            if source == "pre_task":
                pre_task = hydration.pre_task
                return await self._loops.hydrate_pre_task(
                    loop,
                    task,
                    max_tokens=pre_task.max_context_tokens,
                    decisions=pre_task.include_decisions,
                    files=pre_task.include_files,
                    event_id=event_id,
                )
            recovery = hydration.post_compaction
            return await self._loops.hydrate_post_compaction(
                loop,
                max_tokens=recovery.max_recovery_tokens,
                from_checkpoint=recovery.reconstruct_from_checkpoint,
                event_id=event_id,
            )
        except Exception as error:  # noqa: BLE001  # the loop gets an answer after any error
            return LoopContext(source=source, note=self._noted("hydration", error))

    def _noted(self, work: str, error: Exception) -> str:
        """Count and log an error, and return a note. Raises the error if the store is down."""
        if is_outage(error):
            raise error
        self._metrics.failed(work)
        _LOG.warning("%s failed", work, exc_info=error)
        return _storable(f"{work} failed: {type(error).__name__}: {error}")

    def _context_event(
        self, incoming: Incoming, loop_id: str, loop: Loop, source: Source, context: LoopContext
    ) -> Event:
        now = datetime.now(UTC)
        outgoing = OutgoingMessage(
            "injected_context",
            loop_id,
            self._settings.ports.injected_context.replace("{loop_id}", loop_id),
            note=context.note,
        )
        if context.event is None:
            empty = InjectedContextMessage(loop_id, "", 0, source, int(now.timestamp()))
            outgoing = msgspec.structs.replace(outgoing, message=write_message(empty).decode())
        else:
            place = EventPlace(agent=loop.agent, run=loop.run, seq=context.event.seq, event_id=context.event.event_id)
            outgoing = msgspec.structs.replace(outgoing, context=place)
        return new_event(outgoing, timestamp=now, event_id=f"{incoming.message_id}:context")

    async def _extract(self, incoming: Incoming, event: ContextEvent, loop: Loop) -> list[Event]:
        """Extract from the run, or from the summary if there is no run. Returns a pending extraction if it failed."""
        agent, run = loop.agent, loop.run
        try:
            if event.summary and not (await self._loops.progress(loop)).iteration:
                agent, run = conversations_of(loop.principal.subject(loop.principal.home)), incoming.message_id
                report = await self._memory.of(loop.principal).ingest([ConversationTurn("user", event.summary)], run)
            else:
                report = (await self._loops.extract(loop)).report
        except Exception as error:  # noqa: BLE001  # an extractor may raise any error
            note = self._noted("extraction", error)
        else:
            note = self._why_stopped(report)
        if not note:
            return []
        pending = ExtractionPending(agent, run, note)
        return [new_event(pending, event_id=f"{incoming.message_id}:extraction")]

    def _why_stopped(self, report: DeriveReport) -> str:
        """Return why an extraction failed, or ``""``."""
        if report.status != "stopped":
            return ""
        self._metrics.failed("extraction")
        return _storable(report.error or report.stop_reason)

    async def extract_from_run(
        self, loop_id: str, loop: Loop, *, every: int | None = None, at: float | None = None
    ) -> None:
        """Extract if it is due, as ``LoopMemory.extract`` says. A failure becomes a pending extraction.

        Raises the errors of the store.
        """
        try:
            report = (await self._loops.extract(loop, every=every, at=at)).report
        except Exception as error:  # noqa: BLE001  # an extractor may raise any error
            note, position = self._noted("extraction", error), 0
        else:
            note, position = self._why_stopped(report), report.position
        if note:
            async with self._ledgers.locked(LOOP + loop_id) as ledger:
                if not ledger.pending:
                    pending = ExtractionPending(loop.agent, loop.run, note)
                    await self._ledgers.append(ledger, new_event(pending, event_id=f"run:{ledger.version}:{position}"))

    async def checkpoint(self, loop_id: str, loop: Loop, reason: str, event_id: str) -> list[Event]:
        """Take a checkpoint. Returns the message about it, or nothing if it failed. Raises if the store is down."""
        settings = self._settings.checkpoint
        now = datetime.now(UTC)
        try:
            checkpoint = await self._loops.checkpoint(
                loop, reason=reason, retention_days=settings.retention_days, event_id=_key(event_id)
            )
        except Exception as error:  # noqa: BLE001  # a checkpoint never fails a loop
            self._noted("checkpoint", error)
            return []
        message = CheckpointEventMessage(
            loop_id, checkpoint.checkpoint_id, settings.storage_bucket, int(now.timestamp())
        )
        outgoing = OutgoingMessage(
            "checkpoint_events",
            loop_id,
            self._settings.ports.checkpoint_events.replace("{loop_id}", loop_id),
            write_message(message).decode(),
            bucket=settings.storage_bucket,
            key=checkpoint.checkpoint_id,
            value=checkpoint.pointer().decode(),
        )
        return [new_event(outgoing, timestamp=now, event_id=f"{event_id}:checkpoint")]

    async def _hydrate_for_entity(self, incoming: Incoming, entity: str) -> str:
        """Publish a context to each active loop whose memory knows the entity, also to loops of other processors."""
        recovery = self._settings.hydration.post_compaction
        if not recovery.enabled:
            return HANDLED
        outcome = REPEATED
        recent = {loop_id: loop async for loop_id, loop, _ in self.loops_since(datetime.now(UTC) - IDLE)}
        for loop_id, loop in {**recent, **{loop_id: loop for loop_id, (loop, _) in self.active.items()}}.items():
            for_loop = msgspec.structs.replace(incoming, message_id=f"{incoming.message_id}:{loop_id}")
            async with self._ledgers.locked(LOOP + loop_id) as ledger:
                if ledger.has_ended:  # another processor may have ended it
                    self.active.pop(loop_id, None)
                    continue
                if for_loop.message_id in ledger.handled:
                    continue
                try:
                    context = await self._loops.hydrate_for_entities(
                        loop,
                        [entity],
                        self._settings.entity_depth,
                        max_tokens=recovery.max_recovery_tokens,
                        event_id=for_loop.message_id,
                    )
                except Exception as error:  # noqa: BLE001  # an error concerns one loop
                    self._noted("hydration", error)
                    continue
                if context.event is not None:
                    result = self._context_event(for_loop, loop_id, loop, "post_compaction", context)
                    handled = MessageHandled(incoming.port, entity[:_MOST_ERROR], incoming.sequence)
                    await self._ledgers.append(ledger, new_event(handled, event_id=for_loop.message_id), result)
                    await self._publisher.publish(ledger)
                    outcome = HANDLED
        return outcome

    async def settle_extractions(self, name: str) -> bool:
        """Try the pending extractions of a loop again. Returns whether none is left. Raises if the store is down."""
        loop_id = name.removeprefix(LOOP)
        async with self._ledgers.locked(name) as ledger:
            loop = self._settings.route(loop_id, ledger.user_id)
            if loop is None:
                return True
            for event_id, pending in list(ledger.pending.items()):
                try:
                    report = await self._memory.of(loop.principal).derive(pending.agent, pending.run)
                except Exception as error:  # noqa: BLE001  # an extractor may raise any error
                    self._noted("extraction", error)
                    return False
                if self._why_stopped(report):
                    return False
                settled = new_event(ExtractionSettled(event_id), event_id=f"{event_id}:settled")
                await self._ledgers.append(ledger, settled)
        await self.publish_graph(loop_id, loop.principal)
        return True


def _storable(note: str) -> str:
    """Return a text that a store takes: an error may hold half a surrogate pair, and any number of characters."""
    return note[:_MOST_ERROR].encode(errors="backslashreplace").decode()


def _key(message_id: str) -> str:
    """Return the id of the checkpoint for a message. It is a valid key of a bucket."""
    return "".join(character if character.isascii() and character.isalnum() else "-" for character in message_id)
