"""Tests network and server faults: an operation is executed once, or raises a clear error in time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from pymongo.errors import OperationFailure, PyMongoError, WriteConcernError

from agent_memory_log import Store, VersionConflict, open_store
from agent_memory_log.errors import StoreUnavailable
from tests.mongo.cancelling import cancel_at
from tests.mongo.failpoints import fail_command
from tests.mongo.followers import passing
from tests.mongo.kinds import KINDS, opened
from tests.mongo.messages import Request, When, command
from tests.mongo.operations import FAR_OFF, OPERATIONS, Operation, about, log, note, notes, select, state
from tests.mongo.ports import HOST
from tests.mongo.server import USER, MongoServer
from tests.tcp_proxy import Fault, TcpProxy
from tests.waiting import cancel

_T = TypeVar("_T")

WITHOUT_MOTOR = ("async", "sync")
"""The kinds of client for slow tests. Motor uses the same library code, and other tests cover Motor itself."""
SHORT = 1
"""The timeout in seconds of calls that must time out."""
SHORT_WITH_RECONNECT = 2
"""The same timeout for calls whose driver must first find its server again, which takes half a second."""
SECRET = "hush"
LONGEST = 20
"""The longest duration in seconds of a call that respects its timeout, even on a busy machine."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[MongoServer]:
    with MongoServer(tmp_path_factory.mktemp("faults"), test_commands=True, sync_on_commit=False) as server:
        yield server


@pytest.fixture
def proxy(server: MongoServer) -> Generator[TcpProxy]:
    with TcpProxy(server.port) as proxy:
        yield proxy


_names = itertools.count()


def _new_agent() -> str:
    return f"agent-{next(_names)}-x"


@pytest.fixture
def direct(server: MongoServer) -> str:
    """Return the URI of the tests' database without the proxy."""
    return server.uri("faults")


@pytest.fixture
def through(server: MongoServer, proxy: TcpProxy) -> str:
    """Return the URI through the proxy, with a driver that soon reconnects."""
    return server.uri("faults", port=proxy.port, serverMonitoringMode="poll")


@pytest.fixture
async def other(direct: str) -> AsyncGenerator[Store]:
    """Open a handle that bypasses the faults."""
    async with open_store(direct) as store:
        yield store


async def _try(operation: Operation, agent: str, store: Store, other: Store, fault: Callable[[], object]) -> object:
    """Run an operation during a fault. Return its result, the content of the run, and the result of one more append.

    ``fault`` is called after the preparation.
    """
    await operation.prepare(other if operation.cold else store, agent)
    fault()
    result = await operation.act(store, agent)
    run_content = await state(other, agent)
    assert await state(store, agent) == run_content
    after = await store.append_events(agent, "run", note("after"))
    return result, run_content, after.inserted, after.version


_outcomes_without_fault: dict[str, tuple[object, list[str]]] = {}


async def _try_without_fault(operation: Operation, uri: str, other: Store, proxy: TcpProxy) -> tuple[object, list[str]]:
    """Run an operation without a fault. Return its outcome and commands, which are equal for all kinds of client."""
    if operation.name not in _outcomes_without_fault:
        agent = _new_agent()
        is_about = about(agent)
        commands: list[str] = []

        def record_command(request: Request) -> bool:
            if is_about(request):
                commands.append(request.command)
            return False

        async with open_store(uri) as store:
            await operation.prepare(other if operation.cold else store, agent)
            recording = proxy.drop_request(record_command)
            await operation.act(store, agent)
            recording.cancel()
        async with open_store(uri) as store:
            outcome = await _try(operation, _new_agent(), store, other, lambda: None)
        _outcomes_without_fault[operation.name] = outcome, commands
    return _outcomes_without_fault[operation.name]


async def _in_time(call: Awaitable[_T]) -> _T:
    async with asyncio.timeout(LONGEST):
        return await call


async def _open_and_close(kind: str, uri: str, timeout: float = SHORT) -> None:
    async with opened(kind, uri, timeout=timeout):
        pass


def _nth(when: When, number: int) -> When:
    met = itertools.count()
    return lambda request: when(request) and next(met) == number


# Networks.


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        *[pytest.param("async", operation, id=f"async {operation.name}") for operation in OPERATIONS],
        *[
            pytest.param(kind, operation, id=f"{kind} {operation.name}")
            for kind in ("sync", "motor")
            for operation in select("create", "append partly known", "redact", "delete")
        ],
    ],
)
async def test_lost_request_or_reply_does_not_repeat_an_operation(
    kind: str, operation: Operation, proxy: TcpProxy, through: str, other: Store
) -> None:
    expected, commands = await _try_without_fault(operation, through, other, proxy)
    assert commands

    async def trial(number: int, lose: Callable[[When], Fault]) -> None:
        agent = _new_agent()
        faults: list[Fault] = []
        async with opened(kind, through) as store:
            outcome = await _try(
                operation, agent, store, other, lambda: faults.append(lose(_nth(about(agent), number)))
            )
        assert faults[0].happened.is_set()
        assert (number, lose.__name__, outcome) == (number, lose.__name__, expected)

    # All operations run at once, because a driver waits half a second before it reconnects.
    async with asyncio.TaskGroup() as trials:
        for number, name in enumerate(commands):
            trials.create_task(trial(number, proxy.drop_reply))
            if name in {"insert", "update"}:
                trials.create_task(trial(number, proxy.drop_request))


@pytest.mark.parametrize("kind", KINDS)
async def test_append_with_a_lost_reply_succeeds_while_others_append(
    kind: str, proxy: TcpProxy, through: str, other: Store
) -> None:
    agent = _new_agent()
    async with opened(kind, through) as store:
        await store.append_events(agent, "run", *notes("a", 3))
        # The first insert is refused, because one of its events is already stored.
        fault = proxy.drop_reply(_nth(command("insert"), 1))
        appending = asyncio.create_task(store.append_events(agent, "run", note("b0"), note("a1"), note("b1")))
        await passing(fault.happened.is_set)
        proxy.refuse_connections()
        proxy.close_connections()
        assert (await other.append_events(agent, "run", *notes("c", 2))).version == 7
        proxy.accept_connections()
        result = await appending
        assert (result.version, result.inserted) == (5, 2), "as it was when it was stored"
        assert [event.seq for event in result.events] == [4, 2, 5]
        assert (await store.append_events(agent, "run", note("d"))).version == 8
    ids = [event.event_id for event in (await other.load_run(agent, "run")).log]
    assert ids == ["a0", "a1", "a2", "b0", "b1", "c0", "c1", "d"]


@pytest.mark.parametrize("kind", KINDS)
async def test_append_with_a_lost_reply_does_not_conflict_with_itself(
    kind: str, proxy: TcpProxy, through: str, other: Store
) -> None:
    agent = _new_agent()
    async with opened(kind, through) as store:
        fault = proxy.drop_reply(command("insert"))
        appending = asyncio.create_task(store.append_events(agent, "run", *notes("a", 2), expected_version=0))
        await passing(fault.happened.is_set)
        await other.append_events(agent, "run", note("b"))
        result = await appending
        assert (result.version, result.inserted) == (2, 2)
        fault = proxy.drop_request(command("insert"))
        proxy.drop_request(command("find"))
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(agent, "run", note("c"), expected_version=2)
        assert caught.value.actual == 3


@pytest.mark.parametrize("kind", WITHOUT_MOTOR)
async def test_stale_connections_are_replaced(kind: str, proxy: TcpProxy, through: str) -> None:
    agent = _new_agent()
    async with opened(kind, through) as store:
        for version in range(1, 5):
            if version % 2:
                proxy.close_connections()
            else:
                proxy.drop_request(lambda request: request.command in {"insert", "update"})
            assert (await store.append_events(agent, "run", note(f"n{version}"))).version == version


# Servers.

NOT_PRIMARY, NOT_PRIMARY_FOR_READS, INTERRUPTED, STEPPED_DOWN, SHUTTING_DOWN = 10107, 13435, 11602, 189, 91
TIMED_OUT = 64
UNAUTHORIZED = 13


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("async", NOT_PRIMARY),
        ("async", INTERRUPTED),
        ("async", SHUTTING_DOWN),
        ("sync", STEPPED_DOWN),
        ("motor", NOT_PRIMARY_FOR_READS),
    ],
)
async def test_operations_survive_a_primary_step_down(
    kind: str, code: int, server: MongoServer, proxy: TcpProxy, through: str, other: Store
) -> None:
    operations = select("create", "append", "append partly known", "redact", "delete", "read")
    expected = {
        operation.name: (await _try_without_fault(operation, through, other, proxy))[0] for operation in operations
    }
    async with opened(kind, through) as store:
        agents = {operation.name: _new_agent() for operation in operations}
        for operation in operations:
            await operation.prepare(store, agents[operation.name])
        with fail_command(server, "insert", "update", "find", "aggregate", error_code=code, times=8):
            result = await asyncio.gather(*(operation.act(store, agents[operation.name]) for operation in operations))
        for operation, answer in zip(operations, result, strict=True):
            agent = agents[operation.name]
            run_content = await state(other, agent)
            after = await store.append_events(agent, "run", note("after"))
            assert (answer, run_content, after.inserted, after.version) == expected[operation.name], operation.name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("code", [TIMED_OUT, SHUTTING_DOWN])
async def test_unmet_write_concern_does_not_repeat_an_operation(
    kind: str, code: int, server: MongoServer, proxy: TcpProxy, through: str, other: Store
) -> None:
    async with opened(kind, through) as store:
        for operation in select("create", "append partly known", "append at a seq", "create again", "redact", "delete"):
            expected, commands = await _try_without_fault(operation, through, other, proxy)
            for number in range(commands.count("insert") + commands.count("update")):
                with contextlib.ExitStack() as stack:
                    fault = fail_command(
                        server,
                        "insert",
                        "update",
                        skip=number,
                        times=1,
                        write_concern_error={"code": code, "errmsg": "not there yet"},
                    )
                    outcome = await _try(operation, _new_agent(), store, other, partial(stack.enter_context, fault))
                assert (operation.name, number, outcome) == (operation.name, number, expected)


@pytest.mark.parametrize("kind", WITHOUT_MOTOR)
async def test_missing_majority_raises_store_unavailable(
    kind: str, server: MongoServer, direct: str, other: Store
) -> None:
    agent = _new_agent()
    async with opened(kind, direct, timeout=SHORT) as store:
        # A read with majority concern decides about an insert in doubt. An update is repeated.
        fault = fail_command(server, "update", write_concern_error={"code": TIMED_OUT, "errmsg": "no majority"})
        with fault, pytest.raises(StoreUnavailable, match="no majority") as caught:
            await _in_time(store.append_events(agent, "run", note("a")))
        assert isinstance(caught.value.__cause__, WriteConcernError)
        assert (await other.load_run(agent, "run")).version == 0
        assert (await other.list_runs(agent)).runs == ()
        assert (await store.append_events(agent, "run", note("a"))).version == 1
    assert [event.event_id for event in (await other.load_run(agent, "run")).log] == ["a"]


@pytest.mark.parametrize("kind", KINDS)
async def test_permanent_error_is_raised_without_retries(
    kind: str, server: MongoServer, direct: str, other: Store
) -> None:
    agent = _new_agent()
    async with opened(kind, direct) as store:
        await store.append_events(agent, "run", note("a"))
        with fail_command(server, "insert", "find", "aggregate", error_code=UNAUTHORIZED, times=4):
            for refused in (
                lambda: store.append_events(agent, "run", note("b")),
                lambda: store.redact_events(agent, "run", [1]),
                lambda: store.load_run(agent, "run"),
                lambda: store.list_runs(agent),
            ):
                with pytest.raises(StoreUnavailable, match=r"lacks a privilege.*\(code 13\)") as caught:
                    await _in_time(refused())
                assert isinstance(caught.value.__cause__, OperationFailure)
        assert (await store.append_events(agent, "run", note("b"))).version == 2
    assert [event.event_id for event in (await other.load_run(agent, "run")).log] == ["a", "b"]


# Time.


@pytest.mark.parametrize("kind", WITHOUT_MOTOR)
async def test_slow_server_raises_store_unavailable(kind: str, proxy: TcpProxy, through: str, other: Store) -> None:
    agent = _new_agent()
    async with opened(kind, through, timeout=SHORT) as store:
        await store.append_events(agent, "run", note("a"))
        calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
            ("insert", lambda: store.append_events(agent, "run", note("b"))),
            ("find", lambda: store.load_run(agent, "run")),
            ("insert", lambda: store.delete_run(agent, "run")),
        ]
        for slow, call in calls:
            with proxy.hold_replies(command(slow)) as reply:
                with pytest.raises(StoreUnavailable, match="MongoDB database faults: ") as caught:
                    await _in_time(call())
                assert reply.happened.is_set()
            assert isinstance(caught.value.__cause__, PyMongoError)
            await _in_time(call())
        result = await store.append_events(agent, "run", note("b"))
        assert (result.version, result.inserted) == (3, 1)
    assert [event.event_id for event in (await other.load_run(agent, "run")).log] == ["b"]


async def test_frozen_server_raises_store_unavailable(tmp_path: Path) -> None:
    async def run_out_of_time(call: Awaitable[object]) -> None:
        with pytest.raises(StoreUnavailable) as caught:
            await _in_time(call)
        assert isinstance(caught.value.__cause__, PyMongoError)

    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(MongoServer(tmp_path, sync_on_commit=False))
        stores = [
            await stack.enter_async_context(opened(kind, server.uri(kind), timeout=SHORT_WITH_RECONNECT))
            for kind in KINDS
        ]
        for store in stores:
            await store.append_events("agent", "run", note("a"))
        server.freeze()
        async with asyncio.TaskGroup() as trials:
            for store in stores:
                trials.create_task(run_out_of_time(store.append_events("agent", "run", note("b"))))
                trials.create_task(run_out_of_time(store.load_run("agent", "run")))
                trials.create_task(run_out_of_time(anext(store.follow("agent", "run", after=1))))
        server.thaw()
        for store in stores:
            assert (await store.append_events("agent", "run", note("b"))).version == 2


@pytest.mark.parametrize("kind", WITHOUT_MOTOR)
async def test_timeout_applies_to_each_expired_run(kind: str, server: MongoServer) -> None:
    """To expire all four runs takes longer than one timeout."""
    name = f"expiring_{kind}"
    async with opened(kind, server.uri(name), timeout=3) as store:
        for number in range(4):
            await store.append_events("agent", f"run-{number}", note("a"), meta={"expires_at": FAR_OFF})
        with server.client() as client:
            for collection in ("amlog_runs", "amlog_commits"):
                client[name][collection].update_many({}, {"$set": {"end": 0}})
        with fail_command(server, "insert", block_ms=1000):
            assert (await store.expire_runs()).runs == 4
        assert (await store.expire_runs(dry_run=True)).runs == 0


@pytest.mark.parametrize("kind", WITHOUT_MOTOR)
async def test_append_waits_for_its_handle_no_longer_than_its_timeout(
    kind: str, proxy: TcpProxy, through: str, other: Store
) -> None:
    agent = _new_agent()
    async with opened(kind, through, timeout=2) as store:
        await store.append_events(agent, "run", note("a"))
        with proxy.hold_replies(command("insert")) as reply:
            first = asyncio.create_task(store.append_events(agent, "run", note("b")))
            await passing(reply.happened.is_set)
            waiting = [asyncio.create_task(store.append_events(agent, "run", note(f"w{n}"))) for n in range(5)]
            for task in (first, *waiting):
                with pytest.raises(StoreUnavailable):
                    await _in_time(task)
        await store.append_events(agent, "run", note("c"))
    stored = [event.event_id for event in (await other.load_run(agent, "run")).log]
    # An append that got the lock at the last moment may be stored.
    assert (stored[:2], stored[-1]) == (["a", "b"], "c")
    assert len(set(stored)) == len(stored)


@pytest.mark.parametrize("kind", WITHOUT_MOTOR)
async def test_refused_connection_raises_store_unavailable(
    kind: str, server: MongoServer, proxy: TcpProxy, through: str
) -> None:
    agent = _new_agent()
    async with opened(kind, through, timeout=SHORT_WITH_RECONNECT) as store:
        await store.append_events(agent, "run", note("a"))
        proxy.refuse_connections()
        proxy.close_connections()
        with pytest.raises(StoreUnavailable, match=r"refused|Connect call failed") as caught:
            await _in_time(store.append_events(agent, "run", note("b")))
        assert isinstance(caught.value.__cause__, PyMongoError)
        with pytest.raises(StoreUnavailable, match=r"refused|Connect call failed") as caught:
            await _in_time(_open_and_close(kind, server.uri("faults", port=proxy.port)))
        assert isinstance(caught.value.__cause__, PyMongoError)
        proxy.accept_connections()
        assert (await store.append_events(agent, "run", note("b"))).version == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_unresolvable_host_raises_store_unavailable(kind: str) -> None:
    uri = f"mongodb://me:{SECRET}@no-such-host.invalid/d"
    with pytest.raises(StoreUnavailable, match=r"no-such-host\.invalid") as caught:
        await _in_time(_open_and_close(kind, uri))
    assert isinstance(caught.value.__cause__, PyMongoError)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


async def test_wrong_password_raises_store_unavailable(tmp_path: Path) -> None:
    with MongoServer(tmp_path, auth=True) as server:
        for kind in KINDS:
            for user in (USER, "nobody"):
                uri = f"mongodb://{user}:{SECRET}@{HOST}:{server.port}/d?authSource=admin"
                with pytest.raises(StoreUnavailable, match=r"wrong.*\(code 18\)") as caught:
                    await _in_time(_open_and_close(kind, uri, timeout=30))
                assert isinstance(caught.value.__cause__, OperationFailure)
                assert SECRET not in "".join(traceback.format_exception(caught.value))
            with pytest.raises(StoreUnavailable, match=r"\(code 13\)"):
                await _in_time(_open_and_close(kind, f"mongodb://{HOST}:{server.port}/d", timeout=30))
            async with opened(kind, server.uri("d")) as store:
                assert (await store.append_events(kind, "run", note("a"))).version == 1


# Calls that are cancelled.


@pytest.mark.parametrize("kind", ["async", "motor"])
@pytest.mark.parametrize("name", ["create", "append", "append partly known", "redact", "delete"])
async def test_cancelled_call_leaves_store_and_handle_consistent(
    kind: str, name: str, direct: str, other: Store
) -> None:
    (operation,) = select(name)
    async with opened(kind, direct) as store:
        agent = _new_agent()
        await operation.prepare(store, agent)
        before = await log(other, agent)
        await operation.act(store, agent)
        expected = await log(other, agent)
        number, cancelled = -1, True
        while cancelled:
            number += 1
            agent = _new_agent()
            await operation.prepare(store, agent)
            cancelled = await cancel_at(number, operation.act(store, agent))
            if name not in {"redact", "delete"}:
                assert await log(other, agent) in {before, expected}, "all of it or nothing"
            await _in_time(operation.act(store, agent))
            again = await log(other, agent)
            assert await log(store, agent) == again
            # A repeated redaction appends a second marker.
            assert again[: len(expected)] == expected
            assert len(again) <= len(expected) + (name == "redact")
            assert (await store.append_events(agent, "run", note("after"))).inserted == 1
        # A call of Motor has one await for each command.
        assert number >= (1 if kind == "motor" else 3)


@pytest.mark.parametrize("kind", ["async", "motor"])
async def test_waiting_append_can_be_cancelled(kind: str, proxy: TcpProxy, through: str, other: Store) -> None:
    agent = _new_agent()
    async with opened(kind, through) as store:
        await store.append_events(agent, "run", note("a"))
        with proxy.hold_replies(command("insert"), times=1) as reply:
            tasks = [asyncio.create_task(store.append_events(agent, "run", note(f"w{n}"))) for n in range(5)]
            await passing(reply.happened.is_set)
            for number in (3, 1, 0):
                await cancel(tasks[number])
                assert tasks[number].cancelled()
            # The first append was stored, but its caller got no result.
            assert [(await task).version for task in (tasks[2], tasks[4])] == [3, 4]
        assert (await store.append_events(agent, "run", note("w0"))).inserted == 0
    assert [event.event_id for event in (await other.load_run(agent, "run")).log] == ["a", "w0", "w2", "w4"]


# A server that is killed.


class _Writer:
    """A writer that appends batches to two runs until it is stopped, and keeps the acknowledged events."""

    def __init__(self, name: str, store: Store) -> None:
        self.acknowledged: dict[tuple[str, int], str] = {}
        self.stopped = False
        self._name = name
        self._store = store

    async def work(self) -> None:
        """Append batches until ``stopped`` is true."""
        for number in itertools.count():
            run = ("shared", self._name)[number % 3 == 0]
            result = await self._store.append_events("agent", run, *notes(f"{self._name}-{number}-", 1 + number % 4))
            assert result.inserted == 1 + number % 4
            for event in result.events:
                self.acknowledged[run, event.seq] = event.event_id
            if self.stopped:
                return


async def test_acknowledged_events_are_stored_once_after_a_server_kill(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        # Each write requests durability itself, so the test does not depend on ``sync_on_commit``.
        server = stack.enter_context(MongoServer(tmp_path, sync_on_commit=False))
        writers: list[_Writer] = []
        for kind in KINDS:
            store = await stack.enter_async_context(opened(kind, server.uri("d")))
            writers += [_Writer(f"{kind}{number}", store) for number in range(3)]

        def acknowledged() -> int:
            return sum(len(writer.acknowledged) for writer in writers)

        tasks = [asyncio.create_task(writer.work()) for writer in writers]
        for _ in range(3):
            enough = acknowledged() + 150
            while acknowledged() < enough:
                done, _ = await asyncio.wait(tasks, timeout=0.01)
                assert not done, "a writer failed, or nobody could write"
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        for writer in writers:
            writer.stopped = True
        await asyncio.gather(*tasks)
        ids_by_run: dict[str, dict[int, str]] = {}
        for writer in writers:
            for (run, seq), event_id in writer.acknowledged.items():
                assert ids_by_run.setdefault(run, {}).setdefault(seq, event_id) == event_id
        assert set(ids_by_run) == {"shared", *(writer._name for writer in writers)}
        async with open_store(server.uri("d")) as store:
            for run, events in ids_by_run.items():
                snapshot = await store.load_run("agent", run)
                assert {event.seq: event.event_id for event in snapshot.log} == events
                assert [event.seq for event in snapshot.log] == list(range(1, snapshot.version + 1))
                assert len(set(events.values())) == len(events)
