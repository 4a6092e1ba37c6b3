"""Tests damaged documents: reads refuse gaps, ``verify=on`` also refuses changes, and ``check`` lists all damage."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from zlib import crc32

import bson
import msgspec
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from agent_memory_log import Event, PlannerNote, SyncStore, Thinking, new_event, open_store, open_sync_store
from agent_memory_log.errors import InvalidArgument, StoreCorrupt
from agent_memory_log.store import Flaw
from agent_memory_log_mongo import SCHEMA_VERSION, SyncMongoStore
from agent_memory_log_mongo.documents.commits import BLANKING
from tests.mongo.server import GivenServer, MongoServer, with_database

Document = dict[str, Any]
Damage = Callable[[Database[Document], str], object]

META = {"session": "s-1"}


@pytest.fixture(scope="module")
def uri(mongo_server: MongoServer | GivenServer) -> Generator[str]:
    """Return one database for most tests of this module. Each test damages its own run."""
    name = f"amlog_test_{uuid.uuid4().hex}"
    yield mongo_server.uri(name)
    if isinstance(mongo_server, GivenServer):  # a MongoServer deletes its own data
        with mongo_server.client() as client:
            client.drop_database(name)


@pytest.fixture(scope="module")
def writer(uri: str) -> Generator[SyncMongoStore]:
    with open_sync_store(uri) as opened:
        assert isinstance(opened, SyncMongoStore)
        yield opened


@pytest.fixture(scope="module")
def reader(uri: str) -> Generator[SyncMongoStore]:
    """Open a handle without remembered heads."""
    with open_sync_store(uri) as opened:
        assert isinstance(opened, SyncMongoStore)
        yield opened


@pytest.fixture(scope="module")
def verifier(uri: str) -> Generator[SyncStore]:
    with open_sync_store(_verifying(uri)) as opened:
        yield opened


@pytest.fixture(scope="module")
def database(uri: str) -> Generator[Database[Document]]:
    with MongoClient[Document](uri) as client:
        yield client.get_default_database()


@pytest.fixture
def run(writer: SyncStore) -> str:
    """Write two equal runs of six events, with commits that begin at seqs 1, 4 and 5. Return the name of the first.

    The second run has the same name with `` other`` at the end.
    """
    name = uuid.uuid4().hex
    for run_name in (name, f"{name} other"):
        writer.append_events("agent", run_name, _note("1"), _note("2"), _thought("3"), meta=META)
        writer.append_events("agent", run_name, _note("4"))
        writer.append_events("agent", run_name, _thought("5"), _thought("6"))
    return name


def _note(text: str) -> Event:
    at = datetime(2026, 5, 1, 12, 30, 0, 123456, tzinfo=UTC)
    return new_event(PlannerNote(note=text), labels={"role": text}, timestamp=at)


def _thought(text: str) -> Event:
    return new_event(Thinking(text=text))


def _verifying(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    path = rest.partition("/")[2].partition("?")[0]
    return with_database(f"{scheme}://{rest}", path, verify="on")


def _expected(commit: Document) -> list[int]:
    """Return the checksums of a commit, as ``documents/checksums.py`` defines them."""
    first = commit["v"] - commit["n"] + 1
    sums = [crc32(bson.encode(event), crc32(commit["k"]) + seq) for seq, event in enumerate(commit["events"], first)]
    own = {name: value for name, value in commit.items() if name not in {"sums", "events", "t", "ts"}}
    sums = [*sums[: commit["n"]], crc32(bson.encode(own))]
    return [value - 2**32 if value >= 2**31 else value for value in sums]


def _update(place: int, change: object) -> Damage:
    def damage(database: Database[Document], run: str) -> None:
        assert database["amlog_commits"].update_one({"run": run, "s": place}, cast("Document", change)).modified_count

    return damage


def _remove(place: int) -> Damage:
    return lambda database, run: database["amlog_commits"].delete_one({"run": run, "s": place})


def _pull_one(**numbers: int) -> Damage:
    def damage(database: Database[Document], run: str) -> None:
        commit = database["amlog_commits"].find_one({"run": run, "s": 1})
        assert commit is not None
        change = {"$set": {"events": [commit["events"][0], commit["events"][2]], **numbers}}
        database["amlog_commits"].update_one({"_id": commit["_id"]}, change)

    return damage


def _exchange(*fields: str) -> Damage:
    """Exchange fields of the first commits of two runs."""

    def damage(database: Database[Document], run: str) -> None:
        commits = list(database["amlog_commits"].find({"run": {"$in": [run, f"{run} other"]}, "s": 1}))
        assert len(commits) == 2
        database["amlog_commits"].delete_many({"_id": {"$in": [commit["_id"] for commit in commits]}})
        for commit, other in zip(commits, reversed(commits), strict=True):
            database["amlog_commits"].insert_one(commit | {name: other[name] for name in fields})

    return damage


def _swap_events(*, with_sums: bool) -> Damage:
    def damage(database: Database[Document], run: str) -> None:
        commit = database["amlog_commits"].find_one({"run": run, "s": 1})
        assert commit is not None
        for name in ("events", "sums")[: 1 + with_sums]:
            commit[name][:2] = reversed(commit[name][:2])
        database["amlog_commits"].replace_one({"_id": commit["_id"]}, commit)

    return damage


# Each value has the damage, whether every read refuses it, and the seqs of the flaws.
DAMAGES: dict[str, tuple[Damage, bool, set[int | None]]] = {
    "an event removed": (_pull_one(), True, {1}),
    "an event removed and not counted": (_pull_one(n=2), True, {1, 2}),
    "an event removed, the rest moved up": (_pull_one(n=2, v=2), True, {1, 3}),
    "content changed": (_update(1, {"$set": {"events.1.data.note": "2 "}}), False, {2}),
    "content of the newest changed": (_update(5, {"$set": {"events.1.data.text": "2"}}), False, {6}),
    "a field added": (_update(1, {"$set": {"events.1.data.more": 1}}), False, {2}),
    "labels changed": (_update(1, {"$set": {"events.0.labels.role": "x"}}), False, {1}),
    "labels removed": (_update(1, {"$unset": {"events.0.labels": 1}}), False, {1}),
    "a type changed": (_update(4, {"$set": {"events.0.type": "thinking"}}), False, {4}),
    "an id changed": (_update(4, {"$set": {"events.0.id": "another"}}), False, {4}),
    "a time changed": (_update(1, {"$set": {"events.1.us": 457}}), False, {2}),
    "events exchanged": (_swap_events(with_sums=False), False, {1, 2}),
    "events exchanged with their sums": (_swap_events(with_sums=True), False, {1, 2}),
    "a place changed": (_update(4, {"$set": {"s": 40}}), True, {4, 7}),
    "a version changed": (_update(4, {"$set": {"v": 5}}), True, {4, 5, 6}),
    "the newest version changed": (_update(5, {"$set": {"v": 7}}), True, {5, 6}),
    "a commit removed": (_remove(4), True, {4}),
    "the first commit removed": (_remove(1), True, {1}),
    "a commit emptied": (_update(4, BLANKING), True, {None}),
    "the newest commit emptied": (_update(5, BLANKING), True, {None}),
    "sums removed": (_update(4, {"$unset": {"sums": 1}}), True, {4}),
    "sums that are none": (_update(4, {"$set": {"sums": 5}}), False, {4}),
    "a meta changed": (_update(1, {"$set": {"meta.session": "s-2"}}), False, {1, None}),
    "an end added": (_update(5, {"$set": {"end": 2**60}}), False, {5}),
    "when it was created changed": (_update(5, {"$inc": {"c": 1}}), False, {5}),
    "commits exchanged between runs": (_exchange("k"), False, {1}),
    "ids exchanged between runs": (_exchange("agent", "run", "_id"), False, {1}),
    "events exchanged between runs": (_exchange("events"), False, {1, 2, 3}),
    "the index by type": (_update(1, {"$unset": {"t": 1, "ts": 1}}), False, {1}),
    "an event that is none": (_update(4, {"$set": {"events.0": 5}}), True, {4}),
    "a number that is none": (_update(4, {"$set": {"n": "1"}}), True, {4}),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_reads_refuse_damage(
    reader: SyncMongoStore, verifier: SyncStore, database: Database[Document], run: str, name: str
) -> None:
    damage, refused, seqs = DAMAGES[name]
    assert list(reader.check("agent", run)) == []
    damage(database, run)
    if refused:
        with pytest.raises(StoreCorrupt if "none" not in name else Exception, match=run):
            reader.load_run("agent", run)
    else:
        reader.load_run("agent", run)
    if name != "the index by type":
        with pytest.raises(StoreCorrupt if "none" not in name else Exception, match=run):
            verifier.load_run("agent", run)
    flaws = list(reader.check("agent", run))
    assert {flaw.seq for flaw in flaws} == seqs, flaws
    assert all(flaw.agent_id == "agent" and flaw.run_id == run and flaw.is_damage for flaw in flaws)


@pytest.mark.parametrize("place", [1, 4])
def test_every_read_refuses_a_gap(reader: SyncMongoStore, database: Database[Document], run: str, place: int) -> None:
    _remove(place)(database, run)
    types = ["thinking"]
    hole: list[Callable[[], object]] = [
        lambda: reader.load_run("agent", run),
        lambda: reader.load_run("agent", run, after=place - 1, limit=1),
        lambda: reader.load_run("agent", run, after=place - 1),
        lambda: reader.load_run("agent", run, types=types),
        lambda: list(zip(range(6), reader.follow("agent", run), strict=False)),
        lambda: reader.redact_events("agent", run, [place]),
    ]
    for read in hole:
        with pytest.raises(StoreCorrupt, match=rf"agent/{run}: .*event.* {place}\b.* missing"):
            read()
    assert [event.seq for event in reader.load_run("agent", run, after=4, limit=1).log] == [5] if place == 4 else True


LIST_DAMAGES: dict[str, Document] = {
    "its meta": {"$set": {"meta.session": "s-2"}},
    "when it was created": {"$inc": {"c": 1}},
    "its place in the list": {"$set": {"order": "0"}},
    "whose it is": {"$set": {"own": True}},
    "its ids": {"$set": {"run": "another"}},
    "its sum": {"$unset": {"sum": 1}},
    "its listing": {"$unset": {"order": 1}},
}


@pytest.mark.parametrize("name", [*LIST_DAMAGES, "all of it"])
def test_verify_refuses_a_damaged_run_document(
    reader: SyncMongoStore, verifier: SyncStore, database: Database[Document], run: str, name: str
) -> None:
    if name == "all of it":
        database["amlog_runs"].delete_one({"run": run})
    else:
        assert database["amlog_runs"].update_one({"run": run}, LIST_DAMAGES[name]).modified_count
    flaws = list(reader.check("agent", run))
    assert flaws
    assert {(flaw.agent_id, flaw.run_id, flaw.seq, flaw.is_damage) for flaw in flaws} == {("agent", run, None, True)}
    assert len(reader.load_run("agent", run).log) == 6, "the list decides nothing about a run"
    if name not in {"all of it", "its sum", "its listing", "its place in the list"}:
        with pytest.raises(StoreCorrupt, match="document differs"):
            verifier.list_runs("agent")
    database["amlog_runs"].delete_one({"_id": _commit(database, run)["k"]})


def _commit(database: Database[Document], run: str, place: int = 1) -> Document:
    commit = database["amlog_commits"].find_one({"run": run, "s": place})
    assert commit is not None
    return commit


def test_erased_content_leaves_no_checksum(
    writer: SyncMongoStore, verifier: SyncStore, database: Database[Document], run: str
) -> None:
    before = _commit(database, run)
    assert before["sums"] == _expected(before)
    writer.redact_events("agent", run, [2], reason="asked")
    after = _commit(database, run)
    assert after["sums"] == _expected(after)
    assert [old == new for old, new in zip(before["sums"], after["sums"], strict=True)] == [True, False, True, True]
    assert verifier.load_run("agent", run).version == 7
    assert list(writer.check("agent", run)) == []
    writer.delete_run("agent", run)
    *emptied, tombstone = database["amlog_commits"].find({"run": run}).sort("s", 1)
    assert not any("sums" in commit for commit in emptied)
    assert tombstone["sums"] == _expected(tombstone)
    assert "sum" not in cast("Document", database["amlog_runs"].find_one({"run": run}))
    assert list(writer.check("agent", run)) == []


def _sound_store(store: SyncMongoStore) -> None:
    """Make runs with redactions, deletions, ends and unfinished operations."""
    soon = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    for run, meta in {"plain": META, "ends": {"expires_at": soon}, "odd": {"$a.b": 2**70, "": [2**40]}}.items():
        store.append_events("agent", run, *[_note(str(number)) for number in range(1, 113)], meta=cast("Any", meta))
        store.append_events("agent", run, _thought("after"))
        store.redact_events("agent", run, [7, 8, 113], reason="asked")
        store.delete_run("agent", run)
        store.append_events("agent", run, _thought("new"), _note("life"), meta=cast("Any", meta))
    store.append_events("agent", "later", _note("n"), first_seq=1000)
    store.append_events("agent", "later", _note("n"))
    store.append_events("@memory/a/user/1", "stream", _note("n"), reserved=True)
    store.append_events("agent", "deleted", _note("n"))
    store.delete_run("agent", "deleted")


async def test_check_lists_the_flaws_of_damaged_runs_only(mongo_uri: str) -> None:
    with MongoClient[Document](mongo_uri) as client, open_sync_store(mongo_uri) as store:
        assert isinstance(store, SyncMongoStore)
        database = client.get_default_database()
        _sound_store(store)
        assert list(store.check()) == list(store.check("agent")) == list(store.check("agent", "unknown")) == []
        with pytest.raises(InvalidArgument, match="agent"):
            list(store.check(None, "run"))
        with open_sync_store(_verifying(mongo_uri)) as verifying:
            for listed in verifying.list_runs(include_reserved=True).runs:
                verifying.load_run(listed.agent, listed.run)
        # An unfinished deletion is no damage. A run outside the list is checked too.
        deleted = database["amlog_commits"].find_one_and_update({"run": "deleted", "n": 0}, {"$set": {"n": 1}})
        assert deleted is not None
        database["amlog_runs"].delete_one({"run": "stream"})
        database["amlog_commits"].delete_one({"run": "later", "s": 1})
        database["amlog_commits"].insert_one({"k": b"?", "s": 1, "v": 1, "n": 1, "events": [{"id": 1}]})
        flaws = sorted(store.check(), key=repr)
        assert [(flaw.agent_id, flaw.run_id, flaw.seq, flaw.is_damage) for flaw in flaws] == [
            ("@memory/a/user/1", "stream", None, True),
            ("agent", "deleted", None, False),
            ("agent", "later", 1000, True),
            (None, None, 1, True),
        ]
    async with open_store(mongo_uri) as asynchronous:
        assert sorted([flaw async for flaw in asynchronous.check()], key=repr) == flaws


def test_events_of_schema_version_1_have_no_checksums(mongo_uri: str) -> None:
    with MongoClient[Document](mongo_uri) as client:
        database = client.get_default_database()
        commits = database["amlog_commits"]
        with open_sync_store(mongo_uri) as store:
            store.append_events("agent", "run", _note("1"), _note("2"))
            store.append_events("agent", "run", _note("3"))
        commits.update_many({}, {"$unset": {"sums": 1}})
        database["amlog_runs"].update_many({}, {"$unset": {"sum": 1}})
        database["amlog_info"].update_one({}, {"$set": {"version": 1}})
        for count in (4, 5):
            with open_sync_store(_verifying(mongo_uri)) as store:
                assert isinstance(store, SyncMongoStore)
                store.redact_events("agent", "run", [1])
                store.append_events("agent", "run", _note("with a sum"))
                assert [event.seq for event in store.load_run("agent", "run").log] == [*range(1, count + 2)]
                (flaw,) = store.check()
                assert flaw == Flaw("agent", "run", None, flaw.message, is_damage=False)
                assert flaw.message.startswith("3 events have no checksum")
        upgraded = {"_id": "schema", "version": SCHEMA_VERSION, "upgraded_from": 1}
        assert database["amlog_info"].find_one() == upgraded
        commits.update_one({"s": count + 1}, {"$unset": {"sums": 1}})
        with open_sync_store(mongo_uri) as store, pytest.raises(StoreCorrupt, match="lost its checksums"):
            store.load_run("agent", "run")


def test_check_reads_a_run_with_a_flaw_twice(
    reader: SyncMongoStore, database: Database[Document], run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first read may see emptied commits without the tombstone, while a deletion is in progress."""
    commit = _commit(database, run, 4)
    _update(4, BLANKING)(database, run)

    def restore(_seconds: float) -> None:
        database["amlog_commits"].replace_one({"_id": commit["_id"]}, commit)

    database_of_reader = reader._database
    surface = msgspec.structs.replace(database_of_reader.surface, sleep=restore)
    monkeypatch.setattr(database_of_reader, "surface", surface)
    assert list(reader.check("agent", run)) == []


def test_check_reports_no_flaw_while_others_write(writer: SyncMongoStore, reader: SyncMongoStore) -> None:
    name = uuid.uuid4().hex
    ended = threading.Event()

    def write() -> None:
        try:
            for number in range(40):
                version = writer.append_events(name, f"run {number % 2}", _note("n"), _thought("t")).version
                if number % 3 == 1:
                    writer.redact_events(name, f"run {number % 2}", [version])
                if number % 5 == 4:
                    writer.delete_run(name, f"run {number % 2}")
        finally:
            ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    damage: list[Flaw] = []
    while not ended.is_set():
        damage += [flaw for flaw in reader.check(name) if flaw.is_damage]
    thread.join()
    assert damage == list(reader.check(name)) == []
