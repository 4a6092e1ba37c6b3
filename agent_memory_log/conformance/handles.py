"""Promise 14: a closed handle, one inherited by a fork, and one used from another event loop say so."""

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
from agent_memory_log.conformance.samples import AGENT, RUN, said
from agent_memory_log.conformance.threaded import ThreadedStore
from agent_memory_log.errors import StoreClosed
from agent_memory_log.events.event import Event
from agent_memory_log.store import Store


@contract
class HandleLife(Suite):
    """Tests of a handle's life."""

    async def test_14_a_closed_handle_says_so(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, said("one"))
        await store.aclose()
        for call in _calls(store):
            with pytest.raises(StoreClosed):
                await call()

    async def test_14_closing_again_does_nothing(self, store: Store) -> None:
        for _ in range(3):
            await store.aclose()

    async def test_14_closing_a_handle_leaves_the_others_open(
        self, store: Store, other: Store, open_handle: Handles
    ) -> None:
        given = [said("one"), said("two")]
        await store.append_events(AGENT, RUN, given[0])
        await store.aclose()
        await other.append_events(AGENT, RUN, given[1])
        check_run(await other.load_run(AGENT, RUN), given)
        check_run(await (await open_handle()).load_run(AGENT, RUN), given)

    async def test_14_leaving_the_async_with_block_closes_the_handle(self, store: Store) -> None:
        async with store as entered:
            await entered.append_events(AGENT, RUN, said("one"))
        with pytest.raises(StoreClosed):
            await store.load_run(AGENT, RUN)
        with pytest.raises(StoreClosed):
            async with store:
                pass

    async def test_14_another_event_loop_is_told(self, store: Store) -> None:
        """A synchronous handle belongs to no loop: it goes on working."""
        given = said("one")
        await store.append_events(AGENT, RUN, given)
        for call in _calls(store):

            async def elsewhere(call: Callable[[], Awaitable[object]] = call) -> None:
                await call()

            if isinstance(store, ThreadedStore):
                await on_another_loop(elsewhere)
            else:
                with pytest.raises(StoreClosed):
                    await on_another_loop(elsewhere)
        if not isinstance(store, ThreadedStore):
            check_run(await store.load_run(AGENT, RUN), [given])

    async def test_14_closing_on_another_event_loop_is_told(self, store: Store, other: Store) -> None:
        """A synchronous handle belongs to no loop: it is closed."""
        given = said("one")
        await store.append_events(AGENT, RUN, given)
        if isinstance(store, ThreadedStore):
            await on_another_loop(store.aclose)
        else:
            with pytest.raises(StoreClosed):
                await on_another_loop(store.aclose)
        await store.aclose()
        check_run(await other.load_run(AGENT, RUN), [given])

    async def test_14_a_handle_inherited_by_a_fork_is_told(self, open_handle: Handles) -> None:
        if not hasattr(os, "fork"):
            pytest.skip("this system has no fork")
        store = await open_handle()
        given = [said("one"), said("two")]
        await store.append_events(AGENT, RUN, given[0])
        assert await _in_a_fork(store) == b"store_closed"
        await store.append_events(AGENT, RUN, given[1])
        check_run(await store.load_run(AGENT, RUN), given)


def _calls(store: Store) -> list[Callable[[], Awaitable[object]]]:
    """A call of each method; the last two change the run."""

    def follow() -> Awaitable[Event]:
        return anext(store.follow(AGENT, RUN))

    return [
        lambda: store.load_run(AGENT, RUN),
        follow,
        store.list_runs,
        lambda: store.append_events(AGENT, RUN),
        lambda: store.redact_events(AGENT, RUN, [1]),
        lambda: store.append_events(AGENT, RUN, said("two")),
        lambda: store.delete_run(AGENT, RUN),
    ]


async def _in_a_fork(store: Store) -> bytes:
    """The code of the error that a child process gets from the handle it inherited."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python and drivers warn of forking beside threads; that a handle survives it unharmed is what is tested.
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
        os.waitpid(child, 0)  # noqa: ASYNC222  # it was killed, and there is nothing to wait for


def _answer_and_exit(store: Store, writing: int) -> None:
    answer = b"no error"
    try:
        if isinstance(store, ThreadedStore):
            store.raw.load_run(AGENT, RUN)
        else:
            asyncio.run(_load(store))
    except StoreClosed as error:
        answer = error.code.encode()
    except BaseException as error:  # noqa: BLE001  # the child must not go on into the parent's test run
        answer = repr(error).encode()[:1000]
    finally:
        os.write(writing, answer)
        os._exit(0)


async def _load(store: Store) -> None:
    await store.load_run(AGENT, RUN)
