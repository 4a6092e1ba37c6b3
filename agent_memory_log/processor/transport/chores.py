"""The work of a processor without a message: it repeats failed work, and looks at the runs of active loops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.memory.records.principals import STREAM_RUN, stream_of
from agent_memory_log.processor import Loop
from agent_memory_log.processor.transport.configuration import ProcessorSettings
from agent_memory_log.processor.transport.handling import LOOP, Handler
from agent_memory_log.processor.transport.ledger import Ledgers
from agent_memory_log.processor.transport.metrics import Metrics
from agent_memory_log.processor.transport.publishing import Publisher
from agent_memory_log.store import RunHead, Store

_LOG = logging.getLogger("agent_memory_log.processor")

_PAUSE = 1.0
_LOOK_PAUSE = 5.0
_LONGEST_PAUSE = 60.0
_REMEMBERED = timedelta(days=7)
"""The age of the last change of a ledger from which on a starting processor does not read it."""

_IDLE = timedelta(hours=1)
"""The time without a message and a new event of its run after which a loop ends."""


class Chores:
    """The chores of one processor. Several processors may do them at the same time.

    Args:
        settings: The settings.
        store: The log.
        handler: Has the active loops.
        ledgers: The ledgers.
        publisher: Publishes the outbox.
        metrics: Counts failures.
    """

    def __init__(
        self,
        settings: ProcessorSettings,
        store: Store,
        handler: Handler,
        ledgers: Ledgers,
        publisher: Publisher,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._store = store
        self._handler = handler
        self._ledgers = ledgers
        self._publisher = publisher
        self._metrics = metrics
        self._heads: dict[tuple[str, str], RunHead] = {}

    async def run(self) -> None:
        """Do the chores until this is cancelled. Each has pauses of its own, which double while it fails."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._repeat(self._take_up, _PAUSE, until_done=True))
            group.create_task(self._repeat(self._publisher.retry, _PAUSE))
            group.create_task(self._repeat(self._settle_extractions, _PAUSE))
            group.create_task(self._repeat(self._look_at_runs, _LOOK_PAUSE))

    async def _repeat(
        self, chore: Callable[[], Awaitable[bool]], first_pause: float, *, until_done: bool = False
    ) -> None:
        pause, is_done = first_pause, False
        while not (is_done and until_done):
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
            pause = first_pause if is_done else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _take_up(self) -> bool:
        """Read the ledgers that changed in the last days, so that what an earlier process left is done."""
        now = datetime.now(UTC)
        async for name in self._ledgers.names(now - _REMEMBERED):
            async with self._ledgers.locked(name) as ledger:
                loop_id = name.removeprefix(LOOP)
                loop = self._settings.route(loop_id, ledger.user_id) if name.startswith(LOOP) else None
                if loop is not None and not ledger.has_ended:
                    self._handler.active.setdefault(loop_id, (loop, ledger.updated or now))
        return True

    async def _settle_extractions(self) -> bool:
        are_settled = True
        for name in self._ledgers.pending():
            are_settled &= await self._handler.settle_extractions(name)
        return are_settled

    async def _look_at_runs(self) -> bool:
        """Extract from runs with new events, publish changes of memory, and end loops that do nothing."""
        loops = {loop_id: loop for loop_id, (loop, _) in self._handler.active.items()}
        changed = await self._changed({run for loop in loops.values() for run in (_run(loop), *_memory_runs(loop))})
        free = asyncio.Semaphore(self._settings.concurrency)

        async def look_at(loop_id: str, loop: Loop) -> None:
            async with free:
                await self._look_at(loop_id, loop, changed)

        # An extraction may ask a model, so the loops do not wait for each other.
        results = await asyncio.gather(
            *(look_at(loop_id, loop) for loop_id, loop in loops.items()), return_exceptions=True
        )
        errors = [result for result in results if isinstance(result, BaseException)]
        if errors:
            self._heads = {}  # the next call looks at every run
            raise errors[0]
        return True

    async def _look_at(self, loop_id: str, loop: Loop, changed: set[tuple[str, str]]) -> None:
        now = datetime.now(UTC)
        if _run(loop) in changed:
            self._handler.active[loop_id] = loop, now
            await self._extract_if_due(loop_id, loop)
        if changed.intersection(_memory_runs(loop)):
            await self._handler.publish_graph(loop_id, loop)
        _, active_at = self._handler.active.get(loop_id, (loop, now))
        if now - active_at > _IDLE:
            await self.end(loop_id)

    async def _changed(self, runs: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the runs that changed since the last call."""
        names = sorted(runs)
        heads = zip(names, await self._store.peek_runs(names), strict=True)
        current = {run: head for run, head in heads if head is not None and head.version}
        changed = {run for run, head in current.items() if self._heads.get(run) != head}
        self._heads = current
        return changed

    async def _extract_if_due(self, loop_id: str, loop: Loop) -> None:
        settings = self._settings.extraction.llm_assisted
        if settings.enabled:
            every = settings.trigger_iteration_interval or None
            await self._handler.extract_from_run(loop_id, loop, every=every, at=settings.trigger_context_threshold)

    async def end(self, loop_id: str) -> None:
        """End a loop: extract the rest of its run, and take the last checkpoint. Raises the errors of the store."""
        if (entry := self._handler.active.get(loop_id)) is None:
            return
        loop = entry[0]
        if self._settings.extraction.llm_assisted.enabled:
            await self._handler.extract_from_run(loop_id, loop)
        if not await self._handler.settle_extractions(LOOP + loop_id):
            return
        await self._handler.take_last_checkpoint(loop_id, loop)
        self._handler.active.pop(loop_id, None)


def _run(loop: Loop) -> tuple[str, str]:
    return loop.agent, loop.run


def _memory_runs(loop: Loop) -> list[tuple[str, str]]:
    principal = loop.principal
    return [(stream_of(principal.subject(scope)), STREAM_RUN) for scope in principal.scopes]
