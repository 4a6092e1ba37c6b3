"""The work of a processor without a message: it repeats failed work, and looks at the runs of active loops."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from time import monotonic

from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.events.event import new_event
from agent_memory_log.memory import Principal
from agent_memory_log.memory.records.principals import STREAM_RUN, stream_of
from agent_memory_log.processor import Loop
from agent_memory_log.processor.transport.configuration import ProcessorSettings
from agent_memory_log.processor.transport.graph import Graph, Owner, ledger_name, owners_of
from agent_memory_log.processor.transport.handling import IDLE, Handler
from agent_memory_log.processor.transport.ledger import END, LOOP, Ledgers, MessageHandled
from agent_memory_log.processor.transport.metrics import Metrics
from agent_memory_log.processor.transport.publishing import Publisher
from agent_memory_log.store import RunHead, Store

_LOG = logging.getLogger("agent_memory_log.processor")

_PAUSE = 1.0
_LOOK_PAUSE = 5.0
_LONGEST_PAUSE = 60.0
_MOST_FAILURES = 10
_LONGEST_RETRY = 3_600.0
"""The longest time in seconds until a failed extraction is tried again."""

_REMEMBERED = timedelta(days=7)
"""The age of the last change of a ledger from which on a starting processor does not read it."""


class Chores:
    """The chores of one processor. Several processors may do them at the same time.

    Args:
        settings: The settings.
        store: The log.
        handler: Has the active loops.
        graph: Knows whose memory is in the graph.
        ledgers: The ledgers.
        publisher: Publishes the outbox.
        metrics: Counts failures.
    """

    def __init__(
        self,
        settings: ProcessorSettings,
        store: Store,
        handler: Handler,
        graph: Graph,
        ledgers: Ledgers,
        publisher: Publisher,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._store = store
        self._handler = handler
        self._graph = graph
        self._ledgers = ledgers
        self._publisher = publisher
        self._metrics = metrics
        self._heads: dict[tuple[str, str], RunHead | None] = {}
        self._retries: dict[str, tuple[float, float]] = {}
        self._began = False

    async def run(self) -> None:
        """Do the chores until this is cancelled. Each has a pause of its own. While it fails, its pauses double."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._take_up, _LONGEST_PAUSE))
            group.create_task(self._repeat(self._publisher.retry, _PAUSE))
            group.create_task(self._repeat(self._settle_extractions, _PAUSE))
            group.create_task(self._repeat(self._find_owners, _LONGEST_PAUSE))
            group.create_task(self._repeat(self._look_at_runs, _LOOK_PAUSE))

    async def _repeat(self, chore: Callable[[], Awaitable[bool]], pause: float) -> None:
        failures = 0
        while True:
            try:
                is_done = await chore()
            except AgentMemoryLogError as error:
                self._metrics.failed("chore")
                _LOG.warning("a chore comes again: %s", error)
                is_done = False
            except Exception:  # noqa: BLE001  # a chore never ends the processor
                self._metrics.failed("chore")
                _LOG.exception("a chore comes again")
                is_done = False
            failures = 0 if is_done else min(failures + 1, _MOST_FAILURES)
            await asyncio.sleep(min(_PAUSE * 2**failures, _LONGEST_PAUSE) if failures else pause)

    async def _take_up(self) -> bool:
        """Take the loops that other processors left: at the start those of the last days, and later the idle ones."""
        now = datetime.now(UTC)
        async for loop_id, loop, changed in self._handler.loops_since(now - (2 * IDLE if self._began else _REMEMBERED)):
            if not self._began or now - changed > IDLE:
                self._handler.active.setdefault(loop_id, (loop, monotonic()))
        self._began = True
        return True

    async def _find_owners(self) -> bool:
        await self._graph.find_owners()
        return True

    async def _settle_extractions(self) -> bool:
        """Try each pending extraction again when it is due. A model may fail for hours, and each try costs tokens."""
        self._retries = {name: self._retries.get(name, (0.0, _PAUSE)) for name in self._ledgers.pending()}
        for name, (due, pause) in self._retries.items():
            if due <= monotonic():
                self._retries[name] = monotonic() + pause, min(2 * pause, _LONGEST_RETRY)
                await self._handler.settle_extractions(name)
        return True

    async def _look_at_runs(self) -> bool:
        """Extract from runs with new events, publish changes of memory, and end loops that do nothing."""
        loops = {loop_id: loop for loop_id, (loop, _) in self._handler.active.items()}
        # Many loops may use the memory of an owner, and it may be forgotten after the last of them has ended.
        owners = dict(self._graph.owners)
        for loop_id, loop in loops.items():
            owners.update((ledger_name(owner), Owner(loop_id, owner)) for owner in owners_of(loop.principal))
        runs = {_run(loop) for loop in loops.values()}
        runs.update(run for owner in owners.values() for run in _memory_runs(owner.principal))
        changed = await self._changed(runs)
        pending = set(self._ledgers.pending())
        free = asyncio.Semaphore(self._settings.concurrency)

        async def look_at(loop_id: str, loop: Loop) -> None:
            async with free:
                has_changed = changed.get(_run(loop), False)
                await self._look_at(loop_id, has_changed=has_changed, is_pending=LOOP + loop_id in pending)

        async def publish(owner: Owner) -> None:
            async with free:
                if not await self._handler.publish_graph(owner.loop_id, owner.principal, adds=owner.is_mapped):
                    for run in _memory_runs(owner.principal):
                        self._heads.pop(run, None)  # the next call publishes it again

        # An extraction may ask a model, so the loops do not wait for each other.
        results = await asyncio.gather(
            *(look_at(loop_id, loop) for loop_id, loop in loops.items()),
            *(
                publish(owner)
                for name, owner in owners.items()
                if changed.keys() & _memory_runs(owner.principal)
                or owner.is_mapped != self._graph.owners.get(name, owner).is_mapped
            ),
            return_exceptions=True,
        )
        errors = [result for result in results if isinstance(result, BaseException)]
        if errors:
            self._heads = {}  # the next call looks at every run
            raise errors[0]
        return True

    async def _look_at(self, loop_id: str, *, has_changed: bool, is_pending: bool) -> None:
        if (entry := self._handler.active.get(loop_id)) is None:  # it ended meanwhile
            return
        (loop, active_at), now = entry, monotonic()
        if has_changed:
            self._handler.active[loop_id] = loop, now
        if is_pending:  # a failed extraction is tried again when it is due
            return
        if has_changed:
            await self._extract_if_due(loop_id, loop)
        elif now - active_at > IDLE.total_seconds():
            await self.end(loop_id)

    async def _changed(self, runs: set[tuple[str, str]]) -> dict[tuple[str, str], bool]:
        """Return the runs that changed since the last call or are new to it, each with whether it has events."""
        names = sorted(runs)
        heads = dict(zip(names, await self._store.peek_runs(names), strict=True))
        changed = {
            run: head is not None and head.version > 0
            for run, head in heads.items()
            if run not in self._heads or self._heads[run] != head
        }
        self._heads = heads
        return changed

    async def _extract_if_due(self, loop_id: str, loop: Loop) -> None:
        settings = self._settings.extraction.llm_assisted
        if settings.enabled:
            every = settings.trigger_iteration_interval or None
            await self._handler.extract_from_run(loop_id, loop, every=every, at=settings.trigger_context_threshold)

    async def end(self, loop_id: str) -> None:
        """End a loop: extract the rest of its run, and take the last checkpoint. Raises the errors of the store.

        A loop that gets a message meanwhile, or whose extraction fails, does not end.
        """
        if loop_id not in self._handler.active:
            loop = await self._handler.find(loop_id)
            if loop is None:
                return
            self._handler.active.setdefault(loop_id, (loop, monotonic()))
        loop, _ = self._handler.active[loop_id]
        if self._settings.extraction.llm_assisted.enabled:
            await self._handler.extract_from_run(loop_id, loop)
        if not await self._handler.settle_extractions(LOOP + loop_id):
            return
        async with self._ledgers.locked(LOOP + loop_id) as ledger:
            if self._handler.active.get(loop_id, (None,))[0] is not loop:  # each message stores a new one
                return
            if not ledger.has_ended:
                # The id of a checkpoint is a key of a bucket, and different loops may have the same letters and digits.
                digest = hashlib.sha256(loop_id.encode()).hexdigest()[:16]
                name = f"{self._ledgers.deployment}:{digest}:end:{ledger.version}"
                is_enabled = self._settings.checkpoint.enabled
                results = await self._handler.checkpoint(loop_id, loop, "ended", name) if is_enabled else []
                await self._ledgers.append(ledger, new_event(MessageHandled(END), event_id=name), *results)
                await self._publisher.publish(ledger)
            self._handler.active.pop(loop_id, None)


def _run(loop: Loop) -> tuple[str, str]:
    return loop.agent, loop.run


def _memory_runs(principal: Principal) -> set[tuple[str, str]]:
    return {(stream_of(principal.subject(scope)), STREAM_RUN) for scope in principal.scopes}
