"""Promises 1, 3, 4 and 5 when many tasks, handles and threads write to one run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from agent_memory_log.conformance.checks import seqs_of
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, user_message
from agent_memory_log.errors import VersionConflict
from agent_memory_log.events.event import Event
from agent_memory_log.store import AppendResult, Store

_HANDLES = 3
_TASKS = 8
_APPENDS = 5


@contract
class Concurrency(Suite):
    """Tests with many writers at once."""

    async def test_3_many_tasks_on_one_handle_leave_no_gap(self, store: Store) -> None:
        results = await asyncio.gather(*(_write(store, number) for number in range(_TASKS)))
        _check(await _log(store), results)

    async def test_3_many_tasks_on_many_handles_leave_no_gap(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(_HANDLES)]
        results = await asyncio.gather(*(_write(handles[number % _HANDLES], number) for number in range(_TASKS)))
        for handle in handles:
            _check(await _log(handle), results)

    async def test_3_many_threads_leave_no_gap(self, store: Store, open_handle: Handles) -> None:

        async def work(handle: Store, thread: int) -> list[list[AppendResult]]:
            return await asyncio.gather(*(_write(handle, thread * 2 + task) for task in range(2)))

        results = [appends for thread in await open_handle.on_threads(_HANDLES, work) for appends in thread]
        _check(await _log(store), results)

    async def test_3_runs_written_at_once_keep_their_own_seqs(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(_HANDLES)]
        runs = [f"run-{number}" for number in range(_TASKS)]
        await asyncio.gather(*(_write(handles[index % _HANDLES], 0, run) for index, run in enumerate(runs * 2)))
        for run in runs:
            assert seqs_of(await _log(handles[0], run)) == list(range(1, 4 * _APPENDS + 1))

    async def test_4_the_same_event_from_many_writers_is_stored_once(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(_HANDLES)]
        for number in range(_APPENDS):
            event, own = user_message(f"shared {number}"), [user_message(f"own {number}") for _ in range(_TASKS)]
            results = await asyncio.gather(
                *(handles[task % _HANDLES].append_events(AGENT, RUN, event, own[task]) for task in range(_TASKS))
            )
            assert sum(result.inserted for result in results) == _TASKS + 1
            assert len({result.events[0].seq for result in results}) == 1
        log = await _log(handles[0])
        assert seqs_of(log) == list(range(1, _APPENDS * (_TASKS + 1) + 1))
        assert len({event.event_id for event in log}) == len(log)

    async def test_5_exactly_one_of_many_writers_at_one_version_succeeds(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(_HANDLES)]

        async def attempt(number: int, version: int) -> tuple[int, int] | None:
            events = user_message(f"{number} at {version}"), user_message("too")
            try:
                await handles[number % _HANDLES].append_events(AGENT, RUN, *events, expected_version=version)
            except VersionConflict as conflict:
                return conflict.expected, conflict.actual
            return None

        for round_ in range(_APPENDS):
            version = round_ * 2
            conflicts = await asyncio.gather(*(attempt(number, version) for number in range(_TASKS)))
            assert conflicts.count(None) == 1
            assert set(conflicts) == {None, (version, version + 2)}
        assert seqs_of(await _log(handles[0])) == list(range(1, 2 * _APPENDS + 1))


async def _write(store: Store, writer: int, run: str = RUN) -> list[AppendResult]:
    """Append batches of two events, and await each append before the next."""
    results: list[AppendResult] = []
    for number in range(_APPENDS):
        batch = [user_message(f"{writer}/{number}/{part}", labels={"writer": str(writer)}) for part in range(2)]
        results.append(await store.append_events(AGENT, run, *batch))
        await asyncio.sleep(0)
    return results


async def _log(store: Store, run: str = RUN) -> list[Event]:
    return list((await store.load_run(AGENT, run)).log)


def _check(log: list[Event], writers: Iterable[list[AppendResult]]) -> None:
    """Assert that the log has every event once, without gaps.

    Each writer's events must be in the order of its appends, at the seqs that the appends returned.
    """
    by_seq = {event.seq: event for event in log}
    assert list(by_seq) == list(range(1, len(log) + 1))
    reported = 0
    for results in writers:
        seqs = [seq for result in results for seq in seqs_of(result.events)]
        assert seqs == sorted(set(seqs))
        for result in results:
            assert result.inserted == len(result.events)
            assert result.version >= result.events[-1].seq
            for event in result.events:
                assert by_seq[event.seq] == event
        reported += len(seqs)
    assert reported == len(log)
