"""Promise 14: a handle raises ``StoreClosed`` if it is closed, inherited by a fork or used on another event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import warnings
from collections.abc import Awaitable, Callable

import pytest

from agent_memory_log.conformance.checks import check_run
from agent_memory_log.conformance.harness import Handles, Suite, contract, on_another_loop
from agent_memory_log.conformance.samples import AGENT, RUN, user_message
from agent_memory_log.conformance.threaded import ThreadedStore
from agent_memory_log.errors import StoreClosed
from agent_memory_log.events.event import Event
from agent_memory_log.store import Store


@contract
class HandleLife(Suite):
    """Tests of opening, closing and misusing a handle."""

    async def test_14_a_closed_handle_raises_store_closed(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        await store.aclose()
        for call in _calls(store):
            with pytest.raises(StoreClosed):
                await call()

    async def test_14_closing_a_closed_handle_does_nothing(self, store: Store) -> None:
        for _ in range(3):
            await store.aclose()

    async def test_14_closing_a_handle_leaves_the_others_open(
        self, store: Store, other: Store, open_handle: Handles
    ) -> None:
        originals = [user_message("one"), user_message("two")]
        await store.append_events(AGENT, RUN, originals[0])
        await store.aclose()
        await other.append_events(AGENT, RUN, originals[1])
        check_run(await other.load_run(AGENT, RUN), originals)
        check_run(await (await open_handle()).load_run(AGENT, RUN), originals)

    async def test_14_leaving_async_with_closes_the_handle(self, store: Store) -> None:
        async with store as entered:
            await entered.append_events(AGENT, RUN, user_message("one"))
        with pytest.raises(StoreClosed):
            await store.load_run(AGENT, RUN)
        with pytest.raises(StoreClosed):
            async with store:
                pass

    async def test_14_a_call_on_another_event_loop_raises_store_closed(self, store: Store) -> None:
        """A synchronous handle belongs to no event loop, so it continues to work."""
        original = user_message("one")
        await store.append_events(AGENT, RUN, original)
        for call in _calls(store):

            async def elsewhere(call: Callable[[], Awaitable[object]] = call) -> None:
                await call()

            if isinstance(store, ThreadedStore):
                await on_another_loop(elsewhere)
            else:
                with pytest.raises(StoreClosed):
                    await on_another_loop(elsewhere)
        if not isinstance(store, ThreadedStore):
            check_run(await store.load_run(AGENT, RUN), [original])

    async def test_14_closing_on_another_event_loop_raises_store_closed(self, store: Store, other: Store) -> None:
        """A synchronous handle belongs to no event loop, so the call closes it."""
        original = user_message("one")
        await store.append_events(AGENT, RUN, original)
        if isinstance(store, ThreadedStore):
            await on_another_loop(store.aclose)
        else:
            with pytest.raises(StoreClosed):
                await on_another_loop(store.aclose)
        await store.aclose()
        check_run(await other.load_run(AGENT, RUN), [original])

    async def test_14_a_handle_inherited_by_a_fork_raises_store_closed(self, open_handle: Handles) -> None:
        if not hasattr(os, "fork"):
            pytest.skip("this system has no fork")
        store = await open_handle()
        originals = [user_message("one"), user_message("two")]
        await store.append_events(AGENT, RUN, originals[0])
        assert await _in_a_fork(store) == b"store_closed"
        await store.append_events(AGENT, RUN, originals[1])
        check_run(await store.load_run(AGENT, RUN), originals)


def _calls(store: Store) -> list[Callable[[], Awaitable[object]]]:
    """Return a call of each method. The last two calls change the run."""

    def follow() -> Awaitable[Event]:
        return anext(store.follow(AGENT, RUN))

    return [
        lambda: store.load_run(AGENT, RUN),
        lambda: store.find_events(AGENT, RUN, ["unknown"]),
        follow,
        store.list_runs,
        lambda: store.append_events(AGENT, RUN),
        lambda: store.redact_events(AGENT, RUN, [1]),
        lambda: store.append_events(AGENT, RUN, user_message("two")),
        lambda: store.delete_run(AGENT, RUN),
    ]


async def _in_a_fork(store: Store) -> bytes:
    """Return the code of the error that a forked child gets from the inherited handle."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python and drivers warn about a fork in a process with threads. This test needs exactly that.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        _answer_and_exit(store, writing)
    os.close(writing)

    def read() -> None:
        loop.remove_reader(reading)
        answer.set_result(os.read(reading, 1000))

    loop.add_reader(reading, read)
    try:
        return await answer
    finally:
        loop.remove_reader(reading)
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)  # noqa: ASYNC222  # the child was killed, so this does not block


def _answer_and_exit(store: Store, writing: int) -> None:
    answer = b"no error"
    try:
        if isinstance(store, ThreadedStore):
            store.raw.load_run(AGENT, RUN)
        else:
            asyncio.run(_load(store))
    except StoreClosed as error:
        answer = error.code.encode()
    except BaseException as error:  # noqa: BLE001  # the child must not continue with the parent's tests
        answer = repr(error).encode()[:1000]
    finally:
        os.write(writing, answer)
        os._exit(0)


async def _load(store: Store) -> None:
    await store.load_run(AGENT, RUN)
