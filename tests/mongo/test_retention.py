"""Tests runs with an end: the removal of commits by the server, and runs with removed commits.

The server removes commits one day after the end. These tests change the end and remove the commits themselves, because
the server's monitor works on all databases. Only one test uses the monitor.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from agent_memory_log import Event, PlannerNote, Store, ToolCall, new_event, open_store, open_sync_store
from agent_memory_log.conformance.ends import FAR_ENDS, until_expired
from agent_memory_log.errors import RunExpired, StoreUnavailable
from agent_memory_log.events.event import format_timestamp
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import ExpireResult, RunHead
from agent_memory_log_mongo import SyncMongoStore
from agent_memory_log_mongo.documents.commits import BLANKING
from agent_memory_log_mongo.operations.removing import REMOVAL_DELAY_SECONDS
from agent_memory_log_mongo.operations.run_documents import FIRST_CEILING
from tests.mongo.server import GivenServer, MongoServer

Document = dict[str, Any]

FAR: dict[str, JsonValue] = {"expires_at": FAR_ENDS[0]}
LONG_AGO = timedelta(seconds=REMOVAL_DELAY_SECONDS, days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def _note(event_id: str | None = None) -> Event:
    return new_event(PlannerNote(note="n"), event_id=event_id)


def _notes(count: int) -> list[Event]:
    return [_note() for _ in range(count)]


@pytest.fixture
def database(mongo_uri: str) -> Generator[Database[Document]]:
    """Open the store's database with pymongo itself."""
    with MongoClient[Document](mongo_uri) as client:
        yield client.get_default_database()


@pytest_asyncio.fixture
async def store(mongo_uri: str) -> AsyncGenerator[Store]:
    async with open_store(mongo_uri) as opened:
        yield opened


async def _peek(store: Store, run: str) -> RunHead | None:
    (head,) = await store.peek_runs([("agent", run)])
    return head


def _run_of(database: Database[Document], run: str = "run") -> Document:
    (matches,) = database["amlog_runs"].find({"run": run})
    return matches


def _move_end(database: Database[Document], run: str) -> None:
    """Move the end of a run into the past, so that the server may remove its commits."""
    end = datetime.now(UTC) - LONG_AGO
    change = {"$set": {"end": (end - EPOCH) // MICROSECOND, "expires_at": end}}
    assert database["amlog_runs"].update_many({"run": run, "end": {"$exists": True}}, change).matched_count == 1
    assert database["amlog_commits"].update_many({"run": run, "end": {"$exists": True}}, change).matched_count


def _remove(database: Database[Document], run: str, indexes: Sequence[int] | None = None) -> None:
    """Remove the commits with these indexes, or all if None. A server may remove them in any order too."""
    before = datetime.now(UTC) - timedelta(seconds=REMOVAL_DELAY_SECONDS)
    matches = database["amlog_commits"].find({"run": run, "expires_at": {"$lt": before}}, {"_id": 1}).sort("s", 1)
    commits = [commit["_id"] for commit in matches]
    assert commits
    chosen = commits if indexes is None else [commits[number] for number in indexes]
    assert database["amlog_commits"].delete_many({"_id": {"$in": chosen}}).deleted_count == len(chosen)


class Ended(msgspec.Struct, frozen=True):
    """An expired run, and the events that it had before its end."""

    run: str
    events: list[Event]


async def _ended(
    store: Store, sizes: Sequence[int], *, before: Callable[[str], Coroutine[None, None, object]] | None = None
) -> Ended:
    """Create an expired run whose commits have these numbers of events. Call ``before`` with its id first."""
    seconds = 0.1
    while True:
        ended = Ended(f"run of {seconds} s", [])
        if before is not None:
            await before(ended.run)
        end = format_timestamp(datetime.now(UTC) + timedelta(seconds=seconds))
        try:
            for size in sizes:
                result = await store.append_events("agent", ended.run, *_notes(size), meta={"expires_at": end})
                ended.events.extend(result.events)
        except RunExpired:
            await store.delete_run("agent", ended.run)
            seconds *= 2
        else:
            await until_expired(store, run=ended.run)
            return ended


async def _live_and_die(store: Store, run: str) -> None:
    await store.append_events("agent", run, _note())
    await store.delete_run("agent", run)


# Stored documents.


async def test_every_commit_has_the_end_of_its_run(store: Store, database: Database[Document]) -> None:
    end = "2999-03-04T05:06:07.123456789+02:00"
    await store.append_events("agent", "run", *_notes(2), meta={"expires_at": end})
    await store.append_events("agent", "run", new_event(ToolCall("tc", "t")), meta={"expires_at": FAR_ENDS[0]})
    await store.redact_events("agent", "run", [1])
    await store.append_events("agent", "run", _note())
    await store.append_events("agent", "endless", _note(), _note())
    commits = list(database["amlog_commits"].find({"run": "run"}))
    instant = datetime(2999, 3, 4, 3, 6, 7, 123456, tzinfo=UTC)
    assert len(commits) == 4
    for document in [*commits, _run_of(database)]:
        assert document["end"] == (instant - EPOCH) // MICROSECOND
        assert document["expires_at"].replace(tzinfo=UTC) == instant.replace(microsecond=123000)
    for document in [*database["amlog_commits"].find({"run": "endless"}), _run_of(database, "endless")]:
        assert not {"end", "expires_at"} & document.keys()
    await store.delete_run("agent", "run")
    newest = database["amlog_commits"].find_one({"run": "run"}, sort=[("s", -1)])
    assert newest is not None
    assert not {"end", "expires_at"} & newest.keys(), "what marks a deletion is never removed"
    assert not {"end", "expires_at"} & _run_of(database).keys()
    await store.append_events("agent", "run", _note())
    newest = database["amlog_commits"].find_one({"run": "run"}, sort=[("s", -1)])
    assert newest is not None
    assert not {"end", "expires_at"} & newest.keys(), "a new life has an end of its own"


def test_ttl_index_removes_only_commits_after_one_day(mongo_uri: str, database: Database[Document]) -> None:
    open_sync_store(mongo_uri).close()
    by_time = [index for index in database["amlog_commits"].list_indexes() if "expireAfterSeconds" in index]
    assert [(dict(index["key"]), index["expireAfterSeconds"]) for index in by_time] == [({"expires_at": 1}, 86_400)]
    assert not [index for index in database["amlog_runs"].list_indexes() if "expireAfterSeconds" in index]


def test_server_removes_commits_of_expired_runs(tmp_path: Path) -> None:
    with MongoServer(tmp_path) as server, server.client() as client:
        database = client["db"]
        with open_sync_store(server.uri("db")) as store:
            for run in ("run", "yesterday", "far", "endless", "deleted"):
                store.append_events("agent", run, _note(), meta=None if run == "endless" else FAR)
                store.append_events("agent", run, _note())
            store.delete_run("agent", "deleted")
        _move_end(database, "run")
        end = datetime.now(UTC) - timedelta(hours=23)
        change = {"$set": {"end": (end - EPOCH) // MICROSECOND, "expires_at": end}}
        for name in ("commits", "runs"):
            database[f"amlog_{name}"].update_many({"run": "yesterday"}, change)
        database["amlog_commits"].update_many(
            {"run": "deleted", "expires_at": {"$exists": True}}, {"$set": {"expires_at": end - LONG_AGO}}
        )
        assert server.delete_expired() == 4
        left = database["amlog_commits"].aggregate([{"$group": {"_id": "$run", "n": {"$sum": 1}}}])
        assert {item["_id"]: item["n"] for item in left} == {"yesterday": 2, "far": 2, "endless": 2, "deleted": 1}
        assert database["amlog_runs"].count_documents({}) == 5
        with open_sync_store(server.uri("db")) as store:
            for run in ("run", "yesterday"):
                with pytest.raises(RunExpired):
                    store.load_run("agent", run)
            for run in ("far", "endless"):
                assert [event.seq for event in store.load_run("agent", run).log] == [1, 2]
            assert (store.load_run("agent", "deleted").version, len(store.load_run("agent", "deleted").log)) == (2, 0)
            assert store.append_events("agent", "deleted", _note()).version == 3
            assert sorted(run.run for run in store.list_runs().runs) == ["deleted", "endless", "far"]


# Runs with removed commits.

REFUSED: dict[str, Callable[[Store, Ended], Coroutine[None, None, object]]] = {
    "load": lambda store, ended: store.load_run("agent", ended.run),
    "load after": lambda store, ended: store.load_run("agent", ended.run, after=3),
    "load after the end": lambda store, ended: store.load_run("agent", ended.run, after=ended.events[-1].seq),
    "load far after the end": lambda store, ended: store.load_run("agent", ended.run, after=10_000),
    "load a part": lambda store, ended: store.load_run("agent", ended.run, after=1, limit=2),
    "load rare types": lambda store, ended: store.load_run("agent", ended.run, types=["planner_note"]),
    "load common types": lambda store, ended: store.load_run("agent", ended.run, types=["tool_call"], limit=1),
    "append": lambda store, ended: store.append_events("agent", ended.run, _note()),
    "append many": lambda store, ended: store.append_events("agent", ended.run, *_notes(3)),
    "append known ones": lambda store, ended: store.append_events("agent", ended.run, *ended.events),
    "append with an end": lambda store, ended: store.append_events("agent", ended.run, _note(), meta=FAR),
    "append expecting 0": lambda store, ended: store.append_events("agent", ended.run, _note(), expected_version=0),
    "append expecting 1": lambda store, ended: store.append_events("agent", ended.run, _note(), expected_version=1),
    "append at a seq": lambda store, ended: store.append_events("agent", ended.run, _note(), first_seq=20),
    "redact": lambda store, ended: store.redact_events("agent", ended.run, [1]),
    "redact the last": lambda store, ended: store.redact_events("agent", ended.run, [ended.events[-1].seq]),
    "redact nothing": lambda store, ended: store.redact_events("agent", ended.run, []),
    "follow": lambda store, ended: _first_of(store, ended, 0),
    "follow on": lambda store, ended: _first_of(store, ended, ended.events[-1].seq),
}
SIZES = (1, 2, 1, 3)
REMOVED = ((), (1,), (3,), (0, 1, 2), (1, 2, 3), None)
"""The indexes of the removed commits; None means all."""


async def _first_of(store: Store, ended: Ended, after: int) -> Event:
    async with aclosing(store.follow("agent", ended.run, after=after)) as events:
        return await anext(events)


@pytest.fixture(params=REMOVED, ids=str)
def removed(request: pytest.FixtureRequest) -> Sequence[int] | None:
    """Return the indexes of the removed commits."""
    indexes: Sequence[int] | None = request.param
    return indexes


@pytest.fixture(params=[False, True], ids=["first life", "second life"])
def deleted_before(request: pytest.FixtureRequest) -> bool:
    """Return whether the run was deleted once before."""
    deleted: bool = request.param
    return deleted


async def test_every_call_raises_run_expired(
    mongo_uri: str, store: Store, database: Database[Document], removed: Sequence[int] | None, deleted_before: bool
) -> None:
    """The handles are the writer of the run and a new one."""
    ended = await _ended(store, SIZES, before=partial(_live_and_die, store) if deleted_before else None)
    _move_end(database, ended.run)
    _remove(database, ended.run, removed)
    commits = list(database["amlog_commits"].find())
    async with open_store(mongo_uri) as fresh:
        for handle in (store, fresh):
            for name, call in REFUSED.items():
                with pytest.raises(RunExpired, match=f"agent/{ended.run} expired at"):
                    await call(handle, ended)
                assert list(database["amlog_commits"].find()) == commits, name
            assert (await handle.list_runs()).runs == ()
            assert (await handle.list_runs("agent", include_reserved=True)).runs == ()
            assert await _peek(handle, ended.run) is None
            nothing = await handle.append_events("agent", ended.run)
            assert (nothing.inserted, nothing.events) == (0, ())
            if removed is None:
                assert nothing.version >= ended.events[-1].seq, "it does not go back"


@pytest.mark.parametrize("how", ["delete", "expire"])
async def test_recreated_run_continues_above_all_old_seqs(
    mongo_uri: str,
    store: Store,
    database: Database[Document],
    removed: Sequence[int] | None,
    deleted_before: bool,
    how: str,
) -> None:
    ended = await _ended(store, SIZES, before=partial(_live_and_die, store) if deleted_before else None)
    _move_end(database, ended.run)
    _remove(database, ended.run, removed)
    last = ended.events[-1].seq
    async with open_store(mongo_uri) as fresh:
        if how == "delete":
            await fresh.delete_run("agent", ended.run)
        else:
            counted = await fresh.expire_runs(dry_run=True)
            assert counted.runs == 1
            assert counted.events <= len(ended.events)
            assert removed != () or counted.events == len(ended.events)
            assert await fresh.expire_runs() == counted, "a dry run counts what goes"
        assert await fresh.expire_runs() == ExpireResult(runs=0, events=0)
        for handle in (store, fresh):
            snapshot = await handle.load_run("agent", ended.run)
            assert len(snapshot.log) == 0
            assert snapshot.version >= last
            assert await _peek(handle, ended.run) == RunHead(snapshot.version, snapshot.first_seq)
        first = await store.append_events("agent", ended.run, *_notes(2))
        second = await fresh.append_events("agent", ended.run, ended.events[0])
        seqs = [event.seq for event in (*first.events, *second.events)]
        assert seqs[0] > last, "no number is given twice"
        assert seqs == list(range(seqs[0], seqs[0] + 3))
        for handle in (store, fresh):
            snapshot = await handle.load_run("agent", ended.run)
            assert (snapshot.version, len(snapshot.log)) == (seqs[-1], 3)
        assert [run.version for run in (await store.list_runs()).runs] == [seqs[-1]]
        await fresh.delete_run("agent", ended.run)
        assert (await store.append_events("agent", ended.run, _note())).version == seqs[-1] + 1


@pytest.mark.parametrize("remembered", ["a life", "a deletion"])
async def test_stale_writer_assigns_no_seq_twice(
    mongo_uri: str, store: Store, database: Database[Document], remembered: str
) -> None:
    """The writer remembers a head from before the run was deleted and recreated."""
    async with open_store(mongo_uri) as away:

        async def begin(run: str) -> None:
            await away.append_events("agent", run, _note())
            await store.delete_run("agent", run)
            if remembered == "a deletion":
                assert (await away.load_run("agent", run)).version == 1

        ended = await _ended(store, SIZES, before=begin)
        _move_end(database, ended.run)
        _remove(database, ended.run)
        with pytest.raises(RunExpired):
            await away.append_events("agent", ended.run, _note())
        await store.delete_run("agent", ended.run)
        assert (await away.append_events("agent", ended.run, _note())).version > ended.events[-1].seq


async def test_repeatedly_expired_run_never_reuses_a_seq(
    mongo_uri: str, store: Store, database: Database[Document]
) -> None:
    version = 0
    for size in (1, 1100, 3, 1):
        # Each round has a new handle without remembered heads.
        async with open_store(mongo_uri) as writer:
            await writer.append_events("agent", "run", _note(), meta=FAR)
            result = await writer.append_events("agent", "run", *_notes(size))
        assert result.version - size > version
        version = result.version
        _move_end(database, "run")
        _remove(database, "run")
        assert (await store.expire_runs()).runs == 1
    assert (await store.append_events("agent", "run", _note())).version > version


async def test_seqs_of_a_daily_expired_run_grow_slowly(
    mongo_uri: str, store: Store, database: Database[Document]
) -> None:
    """Each recreation skips some seqs. If the seqs doubled each time, they would soon reach their limit."""
    lives = 12
    for _ in range(lives):
        async with open_store(mongo_uri) as writer:
            await writer.append_events("agent", "run", _note(), meta=FAR)
            await writer.append_events("agent", "run", *_notes(3))
        _move_end(database, "run")
        _remove(database, "run")
        assert (await store.expire_runs()).runs == 1
    assert (await store.load_run("agent", "run")).version <= lives * 2 * FIRST_CEILING


async def test_expire_continues_after_removed_runs(mongo_uri: str, store: Store, database: Database[Document]) -> None:
    for number in range(5):
        await store.append_events("agent", f"run-{number}", *_notes(2), meta=FAR)
        _move_end(database, f"run-{number}")
        if number % 2:
            _remove(database, f"run-{number}")
    await store.append_events("agent", "stays", _note(), meta=FAR)
    async with open_store(mongo_uri) as fresh:
        assert await fresh.expire_runs(dry_run=True) == ExpireResult(runs=5, events=6)
        assert await fresh.expire_runs() == ExpireResult(runs=5, events=6)
        assert await fresh.expire_runs() == ExpireResult(runs=0, events=0)
        assert [run.run for run in (await fresh.list_runs()).runs] == ["stays"]


# The ceiling.


class Raises(CommandListener):
    """A listener that counts the updates of a ceiling.

    It calls ``then`` after the next update, and ``inserted`` after an insert.
    """

    def __init__(self) -> None:
        self.raised = 0
        self.then: Callable[[], object] | None = None
        self.inserted: Callable[[], object] | None = None

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "update" and list(event.command["updates"][0]["u"]) == ["$max"]:
            self.raised += 1

    def succeeded(self, event: CommandSucceededEvent) -> None:
        then, inserted = self.then, self.inserted
        if event.command_name == "update" and then is not None:
            self.then = None
            then()
        if event.command_name == "insert" and inserted is not None:
            self.inserted = None
            inserted()

    def failed(self, event: CommandFailedEvent) -> None:
        pass


@pytest.fixture(scope="module")
def large(mongo_server: MongoServer | GivenServer) -> Generator[str]:
    """Return one database for all tests of ceilings, because dropping long runs is slow."""
    name = f"amlog_test_{uuid.uuid4().hex}"
    yield mongo_server.uri(name)
    if isinstance(mongo_server, GivenServer):  # a MongoServer deletes its own data
        with mongo_server.client() as client:
            client.drop_database(name)


@pytest.fixture
def run() -> str:
    return uuid.uuid4().hex


class Writer:
    """A store on a client with a listener, and the ceiling of its run."""

    def __init__(self, client: MongoClient[Document], store: SyncMongoStore, listener: Raises, run: str) -> None:
        self._client = client
        self._store = store
        self._run = run
        self.heard = listener

    def append(self, count: int) -> int:
        """Append ``count`` events, and return the version."""
        return self._store.append_events("agent", self._run, *_notes(count), meta=FAR).version

    @property
    def ceiling(self) -> int:
        """Return the ceiling in the run's document."""
        ceiling: int = _run_of(self._client.get_default_database(), self._run)["ceiling"]
        return ceiling


@contextmanager
def _writer(uri: str, run: str) -> Generator[Writer]:
    listener = Raises()
    with (
        MongoClient[Document](uri, event_listeners=[listener]) as client,
        SyncMongoStore.open(client, client.get_default_database().name) as store,
    ):
        yield Writer(client, store, listener, run)


def test_ceiling_doubles(large: str, run: str) -> None:
    with _writer(large, run) as writer:
        assert writer.append(1) <= writer.ceiling
        for _ in range(9):
            assert writer.append(400) <= writer.ceiling
        assert 1 <= writer.heard.raised <= 2, "seldom, for thousands of events"


def test_run_without_an_end_never_raises_its_ceiling(large: str, run: str) -> None:
    listener = Raises()
    with (
        MongoClient[Document](large, event_listeners=[listener]) as client,
        SyncMongoStore.open(client, client.get_default_database().name) as store,
    ):
        for _ in range(3):
            store.append_events("agent", run, *_notes(400))
        assert listener.raised == 0


@pytest.mark.parametrize("size", [1, 1024, 1025])
def test_first_append_is_below_the_ceiling(large: str, run: str, size: int) -> None:
    with _writer(large, run) as writer, open_sync_store(large) as fresh_store:
        assert writer.append(size) == size <= writer.ceiling
        assert fresh_store.redact_events("agent", run, [1]).version <= writer.ceiling
        assert writer.append(1) == size + 2 <= writer.ceiling


def test_no_append_exceeds_the_ceiling(large: str, run: str) -> None:
    """Each of four concurrent writers checks the ceiling after each of its appends."""
    wrong: list[tuple[int, int]] = []
    barrier = threading.Barrier(4)
    sizes = (150, 1, 250, 1, 300, 5)

    def write() -> None:
        with _writer(large, run) as writer:
            barrier.wait()
            for size in sizes:
                version = writer.append(size)
                ceiling = writer.ceiling
                if ceiling < version:
                    wrong.append((ceiling, version))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    with _writer(large, run) as writer:
        assert writer.append(1) == 4 * sum(sizes) + 1 <= writer.ceiling


@pytest.mark.parametrize(("first", "second"), [(1, 1100), (1100, 1)])
def test_concurrent_creators_agree_on_the_ceiling(large: str, run: str, first: int, second: int) -> None:
    """One writer writes the run's document, and the other stores the first commit and corrects the document."""
    with _writer(large, run) as writer, _writer(large, run) as other:
        writer.heard.then = lambda: other.append(first)
        assert writer.append(second) == first + second <= writer.ceiling
        assert writer.heard.then is None
        for item in (writer, other):
            assert item.append(600) <= item.ceiling


def test_late_correction_keeps_the_ceiling(large: str, run: str) -> None:
    seen: list[int] = []
    with _writer(large, run) as first, _writer(large, run) as slow, _writer(large, run) as third:
        # Two writers create the run. Before the slow one corrects the document, a third appends many events.
        slow.heard.inserted = lambda: third.append(1100)
        first.heard.then = lambda: seen.extend([slow.append(1), slow.ceiling])
        assert first.append(1) == 1102 <= first.ceiling
        assert slow.heard.inserted is None
        assert seen[0] == 1
        assert seen[1] >= 1101


def test_second_announcement_does_not_raise_the_ceiling(
    large: str, run: str, mongo_server: MongoServer | GivenServer
) -> None:
    with _writer(large, run) as dead, _writer(large, run) as writer, _writer(large, run) as other:
        dead.append(1)
        with mongo_server.client() as client:
            # As if the writer had died before its commit: its document is stored, with a low ceiling.
            commits = client[large.partition("?")[0].rpartition("/")[2]]["amlog_commits"]
            assert commits.delete_many({"run": run}).deleted_count == 1
        writer.heard.then = lambda: other.append(1)
        assert writer.append(1100) == 1101 <= writer.ceiling


def test_redaction_does_not_exceed_the_ceiling(large: str, run: str) -> None:
    with _writer(large, run) as writer, open_sync_store(large) as fresh_store:
        version = writer.append(1)
        version = writer.append(writer.ceiling - version)
        assert version == writer.ceiling
        assert fresh_store.redact_events("agent", run, [1]).version == version + 1 <= writer.ceiling


@pytest.mark.parametrize("end", [FAR_ENDS[0], None])
async def test_peek_prefers_the_newest_commit_to_the_run_document(
    mongo_uri: str, store: Store, database: Database[Document], end: str | None
) -> None:
    """The run document may be outdated, because the process of a writer or a deletion died."""
    runs, commits = database["amlog_runs"], database["amlog_commits"]
    meta: dict[str, JsonValue] | None = {"expires_at": end} if end else None
    past = {"end": 1, "expires_at": EPOCH}
    expected = {
        "announced": RunHead(0, 1),  # the first commit of the run was not stored
        "contested": RunHead(1, 1),  # the document of another writer, with an end
        "deleted": RunHead(1, 2),  # the run document still lists the deleted run
        "begun anew": RunHead(2, 2),
    }
    for run in expected:
        await store.append_events("agent", run, _note(), meta=meta)
    before = _run_of(database, "deleted")
    for run in ("deleted", "begun anew"):
        await store.delete_run("agent", run)
    await store.append_events("agent", "begun anew", _note(), meta=meta)
    commits.delete_many({"run": "announced"})
    for run in ("contested", "begun anew"):
        runs.update_one({"run": run}, {"$set": past})
    runs.replace_one({"run": "deleted"}, before | past)
    async with open_store(mongo_uri) as fresh:
        for run, head in expected.items():
            snapshot = await fresh.load_run("agent", run)
            assert await _peek(fresh, run) == RunHead(snapshot.version, snapshot.first_seq) == head, run
        matches = await fresh.peek_runs([("agent", run) for run in expected])
        assert matches == tuple(expected.values())


async def test_peek_retries_during_a_deletion(mongo_uri: str, database: Database[Document]) -> None:
    """The query may see the emptied newest commit without the tombstone."""
    async with open_store(f"{mongo_uri}{'&' if '?' in mongo_uri else '?'}timeoutMS=500") as store:
        await store.append_events("agent", "run", _note())
        (commit,) = database["amlog_commits"].find()
        database["amlog_commits"].update_one({"_id": commit["_id"]}, cast("list[Document]", BLANKING))
        with pytest.raises(StoreUnavailable):
            await _peek(store, "run")
        peeking = asyncio.create_task(_peek(store, "run"))
        await asyncio.sleep(0)
        database["amlog_commits"].replace_one({"_id": commit["_id"]}, commit)
        assert await peeking == RunHead(1, 1)
