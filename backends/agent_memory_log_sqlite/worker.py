"""A thread that works for an event loop: jobs go in by a queue, their outcomes come back to the loop's futures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

_Job = TypeVar("_Job")
_T = TypeVar("_T")

_Outcomes = list[tuple[asyncio.Future[Any], object]]


class Worker(Generic[_Job]):
    """Runs jobs in order on one thread; those that wait together are handed over together, at most ``most`` at once.

    ``carry_out`` is called on the thread with a list of jobs and returns the outcome of each: a value, or an exception
    for the one who waits; ``at_end`` is called on the thread when the last job is done.
    """

    def __init__(
        self, name: str, carry_out: Callable[[list[_Job]], list[object]], most: int, at_end: Callable[[], object]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[asyncio.Future[Any], _Job] | None] = SimpleQueue()
        self._carry_out = carry_out
        self._most = most
        self._at_end = at_end
        self.working = threading.Lock()
        """Held while the thread carries out jobs."""
        self._ended = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def do(self, job: _Job) -> Any:  # noqa: ANN401  # the job's type says what it gives; callers annotate it
        """Queue ``job`` and wait for its outcome. A cancelled wait does not undo the job."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put((future, job))
        return await future

    def end(self) -> None:
        """Let the thread end once the jobs queued so far are done."""
        self._queue.put(None)

    async def ended(self) -> None:
        """Wait until it has. Raises what ``at_end`` raised."""
        await asyncio.shield(self._ended)
        self._thread.join()  # it said so in its last line

    def _run(self) -> None:
        ended = False
        while not ended:
            item = self._queue.get()
            waiting: list[tuple[asyncio.Future[Any], _Job]] = []
            while item is not None:
                waiting.append(item)
                if len(waiting) == self._most:
                    break
                try:
                    item = self._queue.get_nowait()
                except Empty:
                    break
            else:
                ended = True
            if waiting:
                self._finish(waiting)
        try:
            outcome: object = self._at_end()
        except Exception as error:  # noqa: BLE001  # it is raised where the end is awaited
            outcome = error
        self._call(_settle, [(self._ended, outcome)])

    def _finish(self, waiting: list[tuple[asyncio.Future[Any], _Job]]) -> None:
        try:
            with self.working:
                outcomes = self._carry_out([job for _, job in waiting])
        except BaseException as error:  # noqa: BLE001  # whatever it is, it belongs to those who wait
            outcomes = [error] * len(waiting)
        self._call(_settle, [(future, outcome) for (future, _), outcome in zip(waiting, outcomes, strict=True)])

    def _call(self, callback: Callable[[_Outcomes], None], outcomes: _Outcomes) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, outcomes)
        except RuntimeError:
            return  # the loop is closed, and nobody waits any more


def _settle(outcomes: _Outcomes) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue  # cancelled while it waited
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def call_each(jobs: list[Callable[[], _T]]) -> list[object]:
    """Carry out callables one by one; for a ``Worker`` whose jobs have nothing to share."""
    outcomes: list[object] = []
    for job in jobs:
        try:
            outcomes.append(job())
        except Exception as error:  # noqa: BLE001  # it is raised where the job is awaited
            outcomes.append(cast("object", error))
    return outcomes
