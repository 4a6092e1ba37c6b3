"""Tests concurrent writers: seqs have no gaps and no duplicates, even if other processes delete, redact or die."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from typing import Any

import bson
import pytest
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from agent_memory_log import Event, Redacted, Store, VersionConflict, new_event, open_store, open_sync_store
from agent_memory_log.errors import CursorOutOfRange, InvalidEvent, RunDeleted
from agent_memory_log.events.payloads import Redaction
from agent_memory_log_mongo import SyncMongoStore
from tests import processes
from tests.mongo.followers import Follower, passing
from tests.mongo.held import HeldRequest
from tests.mongo.kinds import KINDS, opened
from tests.mongo.messages import Request, command
from tests.mongo.operations import note, notes
from tests.mongo.programs import TASKS, run_of, sizes
from tests.mongo.server import GivenServer, MongoServer
from tests.tcp_proxy import TcpProxy
from tests.waiting import cancel

Document = dict[str, Any]


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.mongo.programs", *arguments],
        cwd=processes.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _begin(started: list[subprocess.Popen[str]]) -> None:
    """Start the work of all processes at once when all are ready."""
    for process in started:
        assert process.stdout is not None
        output = process.stdout.readline()
        assert output == "ready\n", process.communicate()[1]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def _finish(process: subprocess.Popen[str]) -> Any:
    return json.loads(processes.finish(process))


def _by_run(acknowledged: list[tuple[str, int, str]]) -> dict[str, dict[int, str]]:
    """Return the acknowledged ids by run and seq. Assert that no seq was assigned twice."""
    ids_by_run: dict[str, dict[int, str]] = {}
    for run, seq, event_id in acknowledged:
        stored = ids_by_run.setdefault(run, {}).setdefault(seq, event_id)
        assert stored == event_id, f"{run} has two events {seq}"
    return ids_by_run


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[MongoServer | GivenServer]:
    """Start a server that flushes only on request and does not drop its databases, because both are slow."""
    server_uri = os.environ.get("AMLOG_TEST_MONGO_URI")
    if server_uri:
        yield GivenServer(server_uri)
        return
    with MongoServer(tmp_path_factory.mktemp("processes"), sync_on_commit=False) as server:
        yield server


@pytest.fixture
def database(server: MongoServer | GivenServer) -> Generator[str]:
    """Return the name of a database that only this test uses. Drop the database of a given server at the end."""
    name = f"amlog_test_{uuid.uuid4().hex}"
    yield name
    if isinstance(server, GivenServer):
        with server.client() as client:
            client.drop_database(name)


@pytest.fixture
def uri(server: MongoServer | GivenServer, database: str) -> str:
    """Return the URI of the test's database."""
    return server.uri(database)


@pytest.fixture
def commits(server: MongoServer | GivenServer, database: str) -> Generator[Collection[Document]]:
    """Return the store's collection of commits."""
    with server.client() as client:
        yield client[database]["amlog_commits"]


@pytest.fixture
def runs(commits: Collection[Document]) -> Collection[Document]:
    """Return the store's collection of run documents."""
    return commits.database["amlog_runs"]


@pytest.fixture
async def other(uri: str) -> AsyncGenerator[Store]:
    """Open a second handle on the same database."""
    async with open_store(uri) as store:
        yield store


# Processes.

PROCESSES = 8


def test_processes_append_while_others_follow(uri: str) -> None:
    append_while_others_follow(uri, [("one", 1, 5), ("many", 40, 10)])


def append_while_others_follow(uri: str, phases: Sequence[tuple[str, int, int]]) -> None:
    """Let processes append to the same runs while others follow them.

    Args:
        uri: The URI of an empty database.
        phases: The phases in order: the first ``("one", 1, …)``, the second ``("many", …)``. Each has a name, the
            number of its runs, and the number of appends of each task.
    """
    last: dict[str, int] = {}
    for name, count_of_runs, count in phases:
        for writer, task, (number, size) in itertools.product(range(PROCESSES), range(TASKS), enumerate(sizes(count))):
            run = run_of(name, count_of_runs, writer, task, number)
            last[run] = last.get(run, 0) + size
    assert len(last) == 1 + phases[1][1]
    followed = [f"{run}={last[run]}" for run in ("one-0", *(f"many-{number}" for number in range(0, phases[1][1], 10)))]
    texts = [":".join(map(str, phase)) for phase in phases]
    writers = [_start("append", uri, str(number), *texts) for number in range(PROCESSES)]
    followers = [_start("follow", uri, *followed), _start("follow_sync", uri, followed[0])]
    _begin([*followers, *writers])
    acknowledged = _by_run([tuple(item) for process in writers for item in _finish(process)])
    assert {run: len(events) for run, events in acknowledged.items()} == last
    with open_sync_store(uri) as store:
        for run, events in acknowledged.items():
            log = store.load_run("agent", run).log
            assert [event.seq for event in log] == list(range(1, last[run] + 1))
            assert {event.seq: event.event_id for event in log} == events
            assert len(set(events.values())) == len(events)
    for process in followers:
        for run, seen in _finish(process).items():
            assert [tuple(item) for item in seen] == sorted(acknowledged[run].items())


class _Eraser:
    """The tasks that delete runs and redact events while other processes append. They check each result."""

    def __init__(self, store: Store, reader: Store) -> None:
        self.markers: list[tuple[str, int, str]] = []
        self.redacted: set[str] = set()
        self.deleted_up_to: dict[str, int] = {}
        self.stopped = False
        self._store = store
        self._reader = reader
        self._random = random.Random(1)

    async def work(self, run: str, *, deletes: bool, redacts: bool) -> None:
        """Redact events of the run and delete the run, again and again, until ``stopped`` is true."""
        while not self.stopped:
            if redacts:
                for _ in range(3):
                    await self._redact(run)
            if deletes:
                await self._delete(run)

    async def _delete(self, run: str) -> None:
        version = (await self._reader.load_run("agent", run)).version
        await self._store.delete_run("agent", run)
        self.deleted_up_to[run] = version
        assert all(event.seq > version for event in (await self._reader.load_run("agent", run)).log)

    async def _redact(self, run: str) -> None:
        log = (await self._reader.load_run("agent", run)).log
        if not log:
            return
        chosen = self._random.choices(log, k=min(len(log), 3))
        result = await self._store.redact_events("agent", run, {event.seq for event in chosen}, reason="asked")
        if result.inserted:
            (marker,) = result.events
            self.markers.append((run, marker.seq, marker.event_id))
        self.redacted.update(event.event_id for event in chosen)
        after = {event.seq: event for event in (await self._reader.load_run("agent", run)).log}
        assert all(isinstance(after[event.seq].data, Redacted) for event in chosen)


async def _follow_through_deletions(store: Store, run: str) -> list[Event]:
    """Follow a run until the task is cancelled, and begin again after each deletion. Return its events."""
    events: list[Event] = []
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            with contextlib.suppress(RunDeleted):
                async for event in store.follow("agent", run, after=events[-1].seq if events else 0):
                    events.append(event)  # noqa: PERF401  # a deletion must not lose the earlier events
    return events


async def test_runs_are_deleted_and_redacted_while_processes_append(
    uri: str, commits: Collection[Document], other: Store
) -> None:
    writers = [_start("append", uri, str(number), "run:5:25") for number in range(4)]
    async with open_store(uri) as store, opened("sync", uri) as reader:
        eraser = _Eraser(store, reader)
        await asyncio.to_thread(_begin, writers)
        erasing = [
            asyncio.create_task(eraser.work("run-0", deletes=True, redacts=False)),
            asyncio.create_task(eraser.work("run-1", deletes=True, redacts=True)),
            asyncio.create_task(eraser.work("run-2", deletes=False, redacts=True)),
        ]
        following = {run: asyncio.create_task(_follow_through_deletions(other, run)) for run in ("run-0", "run-1")}
        async with Follower(other, "run-2") as follower:
            output = [await asyncio.to_thread(_finish, process) for process in writers]
            # Fast writers may finish before the first deletion.
            await passing(lambda: eraser.deleted_up_to.get("run-0") and eraser.redacted)
            eraser.stopped = True
            await asyncio.gather(*erasing)
            await follower.until((await other.load_run("agent", "run-2")).version)
    assert eraser.deleted_up_to["run-0"] > 0
    assert eraser.redacted
    acknowledged = _by_run([*(tuple(item) for lines in output for item in lines), *eraser.markers])
    assert set(acknowledged) == {f"run-{number}" for number in range(5)}
    erased = set(eraser.redacted)
    for run, events in acknowledged.items():
        snapshot = await other.load_run("agent", run)
        newest = commits.find_one({"agent": "agent", "run": run}, sort=[("s", -1)])
        assert newest is not None
        base = newest.get("b", 0)
        assert base >= eraser.deleted_up_to.get(run, 0)
        assert sorted(events) == list(range(1, snapshot.version + 1)), "each seq was given once"
        assert {event.seq: event.event_id for event in snapshot.log} == {
            seq: event_id for seq, event_id in events.items() if seq > base
        }
        erased.update(event_id for seq, event_id in events.items() if seq <= base)
    assert [(event.seq, event.event_id) for event in follower.events] == sorted(acknowledged["run-2"].items())
    for run, task in following.items():
        task.cancel()
        seen = {event.seq: event.event_id for event in await task}
        assert len(seen) == len(task.result())
        assert list(seen) == sorted(seen)
        assert seen.items() <= acknowledged[run].items()
    stored = b"".join(bson.encode(document) for document in commits.find())
    assert [event_id for event_id in sorted(erased) if f"text of {event_id}\0".encode() in stored] == []


@pytest.mark.parametrize("kind", KINDS)
async def test_load_ends_while_others_append(
    kind: str, server: MongoServer | GivenServer, database: str, uri: str
) -> None:
    """Another append is stored before each query for commits reaches the server."""
    if isinstance(server, GivenServer):
        pytest.skip("a proxy stands before a server of this machine")
    with TcpProxy(server.port) as proxy, open_sync_store(uri) as writer:
        writer.append_events("agent", "run", *notes("a", 3))
        finds = itertools.count()

        def append_another(request: Request) -> bool:
            if request.command == "find" and request.body["find"] == "amlog_commits":
                writer.append_events("agent", "run", note(f"b{next(finds)}"))
            return False

        async with opened(kind, server.uri(database, port=proxy.port)) as store:
            proxy.drop_request(append_another)
            async with asyncio.timeout(processes.PATIENCE):
                snapshot = await store.load_run("agent", "run")
            assert next(finds) <= 4
            assert snapshot.version >= 4
            assert [event.seq for event in snapshot.log] == list(range(1, snapshot.version + 1))


def test_inherited_handle_is_refused_after_a_fork(uri: str) -> None:
    assert processes.run("use_inherited", uri).split() == ["StoreClosed", "StoreClosed", "nothing", "2"]


def test_forked_child_opens_its_own_handle(uri: str) -> None:
    assert processes.run("open_own_in_a_child", uri).split() == ["nothing", "2"]
    assert processes.run("outlive_the_parent", uri).split()[-1] == "nothing"


# Handles that remember an outdated state of the run.


@pytest.mark.parametrize("kind", KINDS)
async def test_handle_detects_a_deletion_by_another_handle(kind: str, uri: str, other: Store) -> None:
    async with opened(kind, uri) as store:
        await store.append_events("agent", "run", *notes("a", 3), meta={"life": 1})
        await other.delete_run("agent", "run")
        result = await store.append_events("agent", "run", note("a0"), meta={"life": 2})
        assert (result.version, result.inserted) == (4, 1), "its ids are forgotten, its numbers are not"
        for life in range(3, 6):
            await other.delete_run("agent", "run")
            await other.append_events("agent", "run", *notes("a", 2), meta={"life": life})
        # Versions by now: 4, deleted, 6, deleted, 8, deleted, 10.
        with pytest.raises(VersionConflict) as caught:
            await store.append_events("agent", "run", note("b"), expected_version=4)
        assert caught.value.actual == 10
        with pytest.raises(CursorOutOfRange):
            await store.redact_events("agent", "run", [4])
        assert (await store.append_events("agent", "run", note("a1"), note("b"))).inserted == 1
        assert (await store.load_run("agent", "run")).meta == {"life": 5}
        await _assert_both_load(store, other, ["a0", "a1", "b"], 11)
        await other.delete_run("agent", "run")
        await store.delete_run("agent", "run")
        await _assert_both_load(store, other, [], 11)
        assert (await store.list_runs()).runs == ()


@pytest.mark.parametrize("kind", KINDS)
async def test_marker_for_a_deleted_run_is_refused(kind: str, uri: str, other: Store) -> None:
    async with opened(kind, uri) as store:
        await store.append_events("agent", "run", *notes("a", 3))
        await store.redact_events("agent", "run", [1])
        await other.delete_run("agent", "run")
        with pytest.raises(InvalidEvent, match="event 1 is not redacted"):
            await store.append_events("agent", "run", new_event(Redaction(seqs=(1,), reason="")))
        assert (await other.load_run("agent", "run")).version == 4


@pytest.mark.parametrize("kind", KINDS)
async def test_handle_detects_appends_by_another_handle(kind: str, uri: str, other: Store) -> None:
    async with opened(kind, uri) as store:
        for number in range(5):
            assert (await store.append_events("agent", "run", note(f"a{number}"))).version == 3 * number + 1
            await other.append_events("agent", "run", note(f"b{number}"), note(f"c{number}"))
            assert (await store.load_run("agent", "run")).version == 3 * number + 3
            if number == 3:
                await other.redact_events("agent", "run", [12])
                await store.redact_events("agent", "run", [12])
                await other.append_events("agent", "run", note("d"))
                break
        ids = [event.event_id for event in (await store.load_run("agent", "run")).log]
        assert ids[-1] == "d"
        assert len(ids) == len(set(ids)) == 14


async def _assert_both_load(store: Store, other: Store, ids: list[str], version: int) -> None:
    for handle in (store, other):
        snapshot = await handle.load_run("agent", "run")
        assert [event.event_id for event in snapshot.log] == ids
        assert snapshot.version == version
        assert [event.seq for event in snapshot.log] == list(range(version - len(ids) + 1, version + 1))


# Concurrent creation of a run.


async def _assert_meta(store: Store, meta: Mapping[str, object], run: str = "run") -> None:
    assert (await store.load_run("agent", run)).meta == meta
    listed = {item.run: item.meta for item in (await store.list_runs("agent")).runs}
    assert listed[run] == meta


async def test_concurrent_creators_agree_on_the_meta(uri: str, other: Store) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(kind, uri)) for kind in (*KINDS, *KINDS)]
        for run in map(str, range(8)):
            results = await asyncio.gather(
                *(
                    store.append_events("agent", run, note(f"n{number}"), meta={"by": number, "again": False})
                    for number, store in enumerate(stores)
                )
            )
            assert sorted(result.version for result in results) == list(range(1, len(stores) + 1))
            (winner,) = [number for number, result in enumerate(results) if result.version == 1]
            for store in (*stores, other):
                await _assert_meta(store, {"by": winner, "again": False}, run)
            await other.delete_run("agent", run)
            await stores[0].append_events("agent", run, note("n0"), meta={"by": 0, "again": True})
            for store in (stores[0], stores[-1], other):
                await _assert_meta(store, {"by": 0, "again": True}, run)


@pytest.mark.parametrize("kind", KINDS)
async def test_later_writer_can_create_the_run_first(
    kind: str, server: MongoServer | GivenServer, database: str, other: Store
) -> None:
    if isinstance(server, GivenServer):
        pytest.skip("a proxy stands before a server of this machine")
    with TcpProxy(server.port) as proxy:
        async with opened(kind, server.uri(database, port=proxy.port)) as store:
            with proxy.hold_replies(command("update")) as reply:
                slow = asyncio.create_task(
                    store.append_events("agent", "run", note("slow"), meta={"by": "slow", "also": 1})
                )
                await passing(reply.happened.is_set)
                await other.append_events("agent", "run", note("fast"), meta={"by": "fast"})
                await _assert_meta(other, {"by": "fast"})
            assert (await slow).version == 2
            for reader in (store, other):
                await _assert_meta(reader, {"by": "fast"})


async def test_run_can_be_created_after_its_first_writer_died(
    uri: str, commits: Collection[Document], other: Store
) -> None:
    async with open_store(uri) as store:
        await store.append_events("agent", "run", note("a"), meta={"by": "the dead", "session": 7})
        commits.delete_many({})
    assert (await other.list_runs()).runs == ()
    assert (await other.load_run("agent", "run")).version == 0
    result = await other.append_events("agent", "run", note("b"), meta={"by": "another"})
    assert result.version == 1
    async with open_store(uri) as reader:
        for handle in (other, reader):
            await _assert_meta(handle, {"by": "another"})


async def test_list_uses_the_first_commit_after_the_creator_died(
    uri: str, runs: Collection[Document], other: Store
) -> None:
    async with open_store(uri) as store:
        await store.append_events("agent", "run", note("a"), meta={"by": "one who announced it and lost", "old": 1})
        announced = runs.find_one()
        await store.delete_run("agent", "run")
        await store.append_events("agent", "run", note("b"), meta={"by": "the winner"})
    assert announced is not None
    runs.replace_one({"_id": announced["_id"]}, {**announced, "g": 1})
    async with open_store(uri) as reader:
        for handle in (other, reader):
            await _assert_meta(handle, {"by": "the winner"})
        await reader.delete_run("agent", "run")
        assert (await other.list_runs()).runs == ()
        await other.append_events("agent", "run", note("c"), meta={"by": "the next"})
        await _assert_meta(reader, {"by": "the next"})


async def test_lost_reply_does_not_prevent_a_document_correction(
    server: MongoServer | GivenServer, database: str, commits: Collection[Document], runs: Collection[Document]
) -> None:
    if isinstance(server, GivenServer):
        pytest.skip("a proxy stands before a server of this machine")
    meta = {"by": "the winner", "expires_at": "2999-01-01T00:00:00Z"}
    with TcpProxy(server.port) as proxy:
        async with opened("async", server.uri(database, port=proxy.port)) as store:
            await store.append_events("agent", "run", note("a"), meta={"by": "the dead"})
            commits.delete_many({})
        async with opened("async", server.uri(database, port=proxy.port)) as store:
            fault = proxy.drop_reply(command("insert"))
            assert (await store.append_events("agent", "run", note("b"), meta=meta)).version == 1
            assert fault.happened.is_set()
    (document,) = runs.find()
    assert document["meta"] == meta
    assert "end" in document, "or nobody would know, when the server has removed its commits, that it was there"


async def test_list_omits_a_run_deleted_during_the_query(
    server: MongoServer | GivenServer, database: str, runs: Collection[Document], other: Store
) -> None:
    if isinstance(server, GivenServer):
        pytest.skip("a proxy stands before a server of this machine")
    await other.append_events("agent", "run", note("a"))
    await other.append_events("agent", "stays", note("a"))
    runs.update_one({"run": "run"}, {"$inc": {"c": -1}})  # as if the creator had died before it corrected the document
    with TcpProxy(server.port) as proxy:
        async with opened("async", server.uri(database, port=proxy.port)) as store:
            held_query = HeldRequest(proxy, command("find"))
            listing = asyncio.create_task(store.list_runs())
            await passing(held_query.happened.is_set)
            await other.delete_run("agent", "run")
            held_query.release()
            assert [run.run for run in (await listing).runs] == ["stays"]


class _LateDatabase(Database[Document]):
    """A database whose first insert of a commit fails for the sender, but reaches the server just before the second."""

    late: Document | None = None
    sent = 0

    def command(  # type: ignore[override]  # the library calls only this overload
        self, command: Any, *arguments: Any, **options: Any
    ) -> Document:
        if command.get("insert") == "amlog_commits":
            _LateDatabase.sent += 1
            if _LateDatabase.sent == 1:
                _LateDatabase.late = command
                raise AutoReconnect("the connection is gone")
            if _LateDatabase.late is not None:
                super().command(_LateDatabase.late, *arguments, **options)
                _LateDatabase.late = None
        return super().command(command, *arguments, **options)


class _LateClient(MongoClient[Document]):
    def __getitem__(self, name: str) -> Database[Document]:
        return _LateDatabase(self, name)


async def test_late_marker_is_not_repeated(uri: str, other: Store) -> None:
    await other.append_events("agent", "run", *notes("a", 3))
    with _LateClient(uri) as client, SyncMongoStore.open(client, client.get_default_database().name) as store:
        result = store.redact_events("agent", "run", [2], reason="asked")
    assert _LateDatabase.sent == 2
    assert (result.version, result.inserted) == (4, 1)
    log = (await other.load_run("agent", "run")).log
    assert [type(event.data).__name__ for event in log] == ["PlannerNote", "Redacted", "PlannerNote", "Redaction"]
    assert log[3].event_id == result.events[0].event_id


def _updates_a_runs_document(request: Request) -> bool:
    return request.command == "update" and request.body["update"] == "amlog_runs"


async def test_slow_deletion_does_not_unlist_a_recreated_run(
    server: MongoServer | GivenServer, database: str, uri: str, other: Store
) -> None:
    if isinstance(server, GivenServer):
        pytest.skip("a proxy stands before a server of this machine")
    await other.append_events("agent", "run", note("a"), meta={"life": 1})
    with TcpProxy(server.port) as deleter_proxy, TcpProxy(server.port) as creator_proxy:
        unlisting = HeldRequest(deleter_proxy, _updates_a_runs_document)
        async with opened("async", server.uri(database, port=deleter_proxy.port)) as deleter:
            deleting = asyncio.create_task(deleter.delete_run("agent", "run"))
            await passing(unlisting.happened.is_set)
            async with opened("async", server.uri(database, port=creator_proxy.port)) as creator:
                with creator_proxy.hold_replies(command("insert")) as reply:
                    creating = asyncio.create_task(creator.append_events("agent", "run", note("b"), meta={"life": 2}))
                    await passing(reply.happened.is_set)
                    await cancel(creating)
            unlisting.release()
            await deleting
    async with open_store(uri) as reader:
        await _assert_meta(reader, {"life": 2})


@pytest.mark.parametrize("kind", ["async", "motor"])
async def test_run_is_listed_after_its_creator_died(
    kind: str, server: MongoServer | GivenServer, database: str, other: Store
) -> None:
    if isinstance(server, GivenServer):
        pytest.skip("a proxy stands before a server of this machine")
    with TcpProxy(server.port) as proxy:
        async with opened(kind, server.uri(database, port=proxy.port)) as creator:
            with proxy.hold_replies(command("insert")) as reply:
                creating = asyncio.create_task(creator.append_events("agent", "run", note("b"), meta={"life": 1}))
                await passing(reply.happened.is_set)
                await cancel(creating)
                await _assert_meta(other, {"life": 1})


# Operations whose process died.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("emptied", [0, 2])
async def test_unfinished_deletion_hides_the_events(
    kind: str,
    emptied: int,
    uri: str,
    commits: Collection[Document],
    runs: Collection[Document],
    other: Store,
) -> None:
    await other.append_events("agent", "run", *notes("a", 3), meta={"life": 1})
    await other.append_events("agent", "run", note("b"))
    await other.append_events("agent", "run", note("c"))
    all_commits, listed = list(commits.find().sort("s")), runs.find_one()
    async with opened(kind, uri) as used_handle, opened(kind, uri) as new_handle:
        assert (await used_handle.append_events("agent", "run", note("d"))).version == 6
        all_commits = list(commits.find().sort("s"))
        await other.delete_run("agent", "run")
        for commit in all_commits[emptied:]:
            commits.replace_one({"_id": commit["_id"]}, commit)
        assert listed is not None
        runs.replace_one({"_id": listed["_id"]}, listed)
        # The run is deleted.
        for store in (used_handle, new_handle):
            for read in (
                store.load_run("agent", "run"),
                store.load_run("agent", "run", after=2),
                store.load_run("agent", "run", limit=2),
                store.load_run("agent", "run", types=["planner_note"]),
                store.load_run("agent", "run", types=["tool_call"]),
                store.load_run("agent", "run", last=2),
                store.load_run("agent", "run", types=["planner_note"], last=2),
            ):
                snapshot = await read
                assert (snapshot.version, list(snapshot.log), snapshot.meta) == (6, [], {})
            assert await store.find_events("agent", "run", ["a0", "c"]) == (None, None)
            assert (await store.list_runs("agent")).runs == ()
            with pytest.raises(CursorOutOfRange):
                await store.redact_events("agent", "run", [1])
        # The ids of the deleted events can be used again.
        for version, store in enumerate((used_handle, new_handle), 7):
            event = note(f"a{version - 7}")
            result = await store.append_events("agent", "run", event, meta={"life": 2})
            assert (result.version, result.inserted) == (version, 1)
        await _assert_meta(other, {"life": 2})
        # A repeated deletion also removes the recreated run.
        await new_handle.delete_run("agent", "run")
        await _assert_both_load(used_handle, other, [], 8)
    stored = b"".join(bson.encode(document) for document in (*commits.find(), *runs.find()))
    assert b"text of" not in stored
    assert b"life" not in stored


@pytest.mark.parametrize("kind", KINDS)
async def test_repeated_delete_finishes_a_deletion(
    kind: str, uri: str, commits: Collection[Document], runs: Collection[Document], other: Store
) -> None:
    await other.append_events("agent", "run", *notes("a", 3), meta={"life": 1})
    all_commits, listed = list(commits.find()), runs.find_one()
    await other.delete_run("agent", "run")
    for commit in all_commits:
        commits.replace_one({"_id": commit["_id"]}, commit)
    assert listed is not None
    runs.replace_one({"_id": listed["_id"]}, listed)
    async with opened(kind, uri) as store:
        await store.delete_run("agent", "run")
        await _assert_both_load(store, other, [], 3)
    stored = b"".join(bson.encode(document) for document in (*commits.find(), *runs.find()))
    assert b"text of" not in stored
    assert b"life" not in stored


@pytest.mark.parametrize("kind", KINDS)
async def test_repeated_redact_finishes_a_redaction(
    kind: str, uri: str, commits: Collection[Document], other: Store
) -> None:
    await other.append_events("agent", "run", *notes("a", 3))
    await other.append_events("agent", "run", note("b"))
    all_commits = list(commits.find())
    warm = await other.load_run("agent", "run")
    await other.redact_events("agent", "run", [2, 4], reason="asked")
    for commit in all_commits:
        commits.replace_one({"_id": commit["_id"]}, commit)
    async with opened(kind, uri) as store:
        # Every read applies the stored marker. This includes a read of only the new events.
        for snapshot in (
            await store.load_run("agent", "run"),
            warm.extend(await store.load_run("agent", "run", after=warm.last_seq)),
        ):
            assert [event.seq for event in snapshot.log if isinstance(event.data, Redacted)] == [2, 4]
        assert (await store.find_events("agent", "run", ["a1", "a2", "b"])) == tuple(list(snapshot.log)[1:4])
        for last, seqs in ((1, [3]), (2, [1, 3]), (3, [1, 3])):
            newest = await store.load_run("agent", "run", types=["planner_note"], last=last)
            assert [event.seq for event in newest.log] == seqs
        await store.redact_events("agent", "run", [2, 4], reason="asked")
        for handle in (store, other):
            log = (await handle.load_run("agent", "run", limit=4)).log
            assert [event.seq for event in log if isinstance(event.data, Redacted)] == [2, 4]
        await store.redact_events("agent", "run", [2, 4], reason="asked")
        assert (await store.append_events("agent", "run", note("c"))).inserted == 1
    stored = b"".join(bson.encode(document) for document in commits.find())
    assert [event_id for event_id in ("a0", "a1", "a2", "b") if f"text of {event_id}\0".encode() in stored] == [
        "a0",
        "a2",
    ]


def _masks_a_commit(request: Request) -> bool:
    return request.command == "update" and request.body["update"] == "amlog_commits"


@pytest.mark.parametrize("kind", KINDS)
async def test_late_redaction_leaves_a_deleted_run_empty(
    kind: str, server: MongoServer | GivenServer, database: str, commits: Collection[Document], other: Store
) -> None:
    if isinstance(server, GivenServer):
        pytest.skip("a proxy stands before a server of this machine")
    await other.append_events("agent", "run", *notes("a", 3))
    with TcpProxy(server.port) as proxy:
        async with opened(kind, server.uri(database, port=proxy.port)) as redactor:
            with HeldRequest(proxy, _masks_a_commit) as masking:
                redacting = asyncio.create_task(redactor.redact_events("agent", "run", [2], reason="too late"))
                await passing(masking.happened.is_set)
                await other.delete_run("agent", "run")
            await redacting
            assert b"too late" not in b"".join(bson.encode(document) for document in commits.find())
            assert (await redactor.append_events("agent", "run", *notes("a", 3))).inserted == 3
            await _assert_both_load(redactor, other, ["a0", "a1", "a2"], 7)
