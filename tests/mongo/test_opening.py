"""Tests opening a database: new ones, missing indexes, roles, options and invalid URLs."""

from __future__ import annotations

import asyncio
import re
import socket
import warnings
from collections.abc import Generator
from typing import Any

import pytest
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from agent_memory_log import Event, PlannerNote, new_event, open_store, open_sync_store
from agent_memory_log.errors import EventTooLarge, InvalidArgument, SchemaTooNew, StoreClosed, StoreUnavailable
from agent_memory_log_mongo import (
    SCHEMA_VERSION,
    MongoStore,
    Settings,
    SyncMongoStore,
    WeakerPromises,
)
from agent_memory_log_mongo.operations.preparing import COMMIT_INDEXES, ERASURE_INDEXES, RUN_INDEXES
from tests.mongo.ports import HOST, port_of
from tests.mongo.server import MongoServer, with_database
from tests.processes import finish, start

Document = dict[str, Any]


@pytest.fixture
def database(mongo_uri: str) -> Generator[Database[Document]]:
    """Open the store's database with pymongo itself."""
    with MongoClient[Document](mongo_uri) as client:
        yield client.get_default_database()


def _note(text: str = "n") -> Event:
    return new_event(PlannerNote(note=text))


def _open(uri: str) -> SyncMongoStore:
    store = open_sync_store(uri)
    assert isinstance(store, SyncMongoStore)
    return store


def _with_options(uri: str, **options: str | int) -> str:
    return with_database(uri, uri.partition("?")[0].rpartition("/")[2], **options)


def _indexes(database: Database[Document], prefix: str = "amlog_") -> dict[str, list[Document]]:
    """Return the definitions of the indexes of each collection, sorted by name."""
    indexes_by_collection: dict[str, list[Document]] = {}
    for name in ("commits", "erasures", "runs"):
        listed = [dict(index) for index in database[f"{prefix}{name}"].list_indexes()]
        definitions = [{key: index[key] for key in index if key not in ("v", "ns")} for index in listed]
        indexes_by_collection[name] = sorted(definitions, key=lambda index: str(index["name"]))
    return indexes_by_collection


def _expected_indexes() -> dict[str, list[Document]]:
    id_index = {"name": "_id_", "key": {"_id": 1}}
    all_indexes = {
        "commits": [id_index, *COMMIT_INDEXES],
        "erasures": [id_index, *ERASURE_INDEXES],
        "runs": [id_index, *RUN_INDEXES],
    }
    return {name: sorted(indexes, key=lambda index: str(index["name"])) for name, indexes in all_indexes.items()}


# The schema.


def test_eight_processes_open_a_new_database_at_once(mongo_uri: str, database: Database[Document]) -> None:
    started = [start("open_at_once", mongo_uri, f"w{number}") for number in range(8)]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        finish(process)
    assert _indexes(database) == _expected_indexes()
    assert list(database["amlog_info"].find()) == [{"_id": "schema", "version": SCHEMA_VERSION}]
    assert sorted(database.list_collection_names()) == ["amlog_commits", "amlog_erasures", "amlog_info", "amlog_runs"]
    with _open(mongo_uri) as store:
        assert store.load_run("agent", "run").version == 8


def test_opening_creates_indexes_only_once(mongo_uri: str) -> None:
    class CommandNames(CommandListener):
        def __init__(self) -> None:
            self.names: list[str] = []

        def started(self, event: CommandStartedEvent) -> None:
            self.names.append(event.command_name)

        def succeeded(self, event: CommandSucceededEvent) -> None:
            pass

        def failed(self, event: CommandFailedEvent) -> None:
            raise AssertionError(event.failure)

    _open(mongo_uri).close()
    listener = CommandNames()
    with MongoClient[Document](mongo_uri, event_listeners=[listener]) as client:
        SyncMongoStore.open(client, client.get_default_database().name).close()
        assert listener.names
        assert set(listener.names) <= {"find", "listCollections", "listIndexes"}, "opening again only looks"


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 2**40])
async def test_newer_schema_is_refused_with_advice(mongo_uri: str, database: Database[Document], version: int) -> None:
    with _open(mongo_uri) as store:
        store.append_events("agent", "run", _note())
    database["amlog_info"].update_one({}, {"$set": {"version": version}})
    before = list(database["amlog_commits"].find())
    for attempt in (open_store(mongo_uri), asyncio.to_thread(open_sync_store, mongo_uri)):
        with pytest.raises(SchemaTooNew, match=f"schema version {version}.*upgrade") as caught:
            await attempt
        assert (caught.value.actual, caught.value.supported) == (version, SCHEMA_VERSION)
    assert list(database["amlog_commits"].find()) == before


@pytest.mark.parametrize("version", ["1", 1.5, {"a": 1}, None])
def test_foreign_schema_is_refused(mongo_uri: str, database: Database[Document], version: object) -> None:
    database["amlog_info"].insert_one({"_id": "schema", "version": version})
    if version is None:  # A version of None counts as no version.
        _open(mongo_uri).close()
        return
    with pytest.raises(StoreUnavailable, match="another program may have written"):
        _open(mongo_uri)


@pytest.mark.parametrize("missing_index", [*COMMIT_INDEXES, *RUN_INDEXES], ids=lambda index: index["name"])
def test_opening_creates_a_missing_index(mongo_uri: str, database: Database[Document], missing_index: Document) -> None:
    with _open(mongo_uri) as store:
        store.append_events("agent", "run", _note())
    collection = database["amlog_commits" if missing_index in COMMIT_INDEXES else "amlog_runs"]
    collection.drop_index(missing_index["name"])
    assert _indexes(database) != _expected_indexes()
    with _open(mongo_uri) as store:
        assert store.load_run("agent", "run").version == 1
    assert _indexes(database) == _expected_indexes()


@pytest.mark.parametrize("dropped", [["commits"], ["runs"], ["commits", "runs"], ["info"]], ids=str)
def test_opening_creates_a_missing_collection(mongo_uri: str, database: Database[Document], dropped: list[str]) -> None:
    with _open(mongo_uri) as store:
        store.append_events("agent", "run", _note())
    for name in dropped:
        database.drop_collection(f"amlog_{name}")
    with _open(mongo_uri) as store:
        store.append_events("agent", "other", _note())
        assert "other" in [run.run for run in store.list_runs().runs]
    assert _indexes(database) == _expected_indexes()
    assert database["amlog_info"].find_one() == {"_id": "schema", "version": SCHEMA_VERSION}


# Roles.


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[MongoServer]:
    """Start a server with two users: one may read ``held`` and ``new``, the other may read and write ``held``."""
    with MongoServer(tmp_path_factory.mktemp("guarded"), auth=True) as server:
        server.create_user("reader", "pw", "read", database="held")
        server.create_user("reader", "pw", "read", database="new")
        server.create_user("writer", "pw", "readWrite", database="held")
        yield server


async def test_reader_role_opens_and_reads_a_store(guarded: MongoServer) -> None:
    with _open(guarded.uri("held")) as store:
        store.append_events("agent", "run", _note("one"), _note("two"), meta={"a": 1})
    url = f"mongodb://reader:pw@{HOST}:{guarded.port}/held"
    with _open(url) as reader:
        assert reader.load_run("agent", "run").version == 2
        assert len(reader.load_run("agent", "run", types=["planner_note"], after=1).log) == 1
        assert [run.meta for run in reader.list_runs().runs] == [{"a": 1}]
        assert next(reader.follow("agent", "run")).seq == 1
        assert reader.expire_runs(dry_run=True).runs == 0
        for write in (
            lambda: reader.append_events("agent", "run", _note()),
            lambda: reader.append_events("agent", "new", _note()),
            lambda: reader.redact_events("agent", "run", [1]),
            lambda: reader.delete_run("agent", "run"),
        ):
            with pytest.raises(StoreUnavailable, match=r"this user lacks a privilege.*privileges.*not authorized"):
                write()
        assert reader.load_run("agent", "run").version == 2
    async with open_store(url) as asynchronous:
        assert (await asynchronous.load_run("agent", "run")).version == 2


def test_reader_role_cannot_create_a_store(guarded: MongoServer) -> None:
    with pytest.raises(StoreUnavailable, match="this user lacks a privilege"):
        _open(f"mongodb://reader:pw@{HOST}:{guarded.port}/new")


def test_user_of_one_database_creates_and_writes_a_store(guarded: MongoServer) -> None:
    with _open(f"mongodb://writer:pw@{HOST}:{guarded.port}/held?collection_prefix=own_") as store:
        store.append_events("agent", "run", _note(), meta={"expires_at": "9999-01-01T00:00:00Z"})
        store.redact_events("agent", "run", [1])
        store.delete_run("agent", "run")
        assert store.expire_runs().runs == 0


# Options.


async def test_prefixes_separate_stores_in_one_database(mongo_uri: str, database: Database[Document]) -> None:
    prefixed, unprefixed = (
        _with_options(mongo_uri, collection_prefix="one-"),
        _with_options(mongo_uri, collection_prefix=""),
    )
    with _open(prefixed) as first, _open(unprefixed) as second, _open(mongo_uri) as third:
        for store, text in ((first, "one"), (second, "none"), (third, "default")):
            store.append_events("agent", "run", _note(text))
            store.append_events("agent", text, _note())
        for store, text in ((first, "one"), (second, "none"), (third, "default")):
            assert [event.data for event in store.load_run("agent", "run").log] == [PlannerNote(note=text)]
            assert sorted(run.run for run in store.list_runs().runs) == sorted(["run", text])
        first.delete_run("agent", "run")
        assert second.load_run("agent", "run").version == third.load_run("agent", "run").version == 1
        assert len(second.load_run("agent", "run").log) == 1
    names = ("commits", "erasures", "info", "runs")
    expected = sorted(f"{prefix}{name}" for prefix in ("one-", "", "amlog_") for name in names)
    assert sorted(database.list_collection_names()) == expected
    for prefix in ("one-", "", "amlog_"):
        assert _indexes(database, prefix) == _expected_indexes()
    async with open_store(unprefixed) as asynchronous:
        assert [event.data for event in (await asynchronous.load_run("agent", "run")).log] == [PlannerNote(note="none")]


def test_max_event_bytes_limits_an_event(mongo_uri: str) -> None:
    with _open(_with_options(mongo_uri, max_event_bytes=1000)) as store:
        store.append_events("agent", "run", _note("x" * 900))
        with pytest.raises(EventTooLarge, match="limit is 1,000"):
            store.append_events("agent", "run", _note("x" * 1000))


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, Settings()),
        ({"collection_prefix": "a"}, Settings(collection_prefix="a")),
        ({"max_event_bytes": 1}, Settings(max_event_bytes=1)),
        ({"max_event_bytes": 16 * 1024 * 1024}, Settings(max_event_bytes=16 * 1024 * 1024)),
        ({"timeoutMS": 1500}, Settings(timeout_seconds=1.5)),
        ({"TIMEOUTms": "2500.5"}, Settings(timeout_seconds=2.5005)),
        ({"timeoutMS": 0}, Settings()),
        ({"w": "majority", "journal": "true", "readConcernLevel": "majority"}, Settings()),
        ({"w": "regions"}, Settings(write_concern="regions")),
        ({"readConcernLevel": "linearizable"}, Settings(read_concern="linearizable")),
        ({"readPreference": "primary"}, Settings()),
        ({"appname": "of-ours", "maxPoolSize": 3, "retryWrites": "false"}, Settings()),
    ],
    ids=str,
)
async def test_url_options_become_settings(mongo_uri: str, options: dict[str, str | int], settings: Settings) -> None:
    # Opening an existing store writes nothing, so this server need not support the write concern.
    _open(_with_options(mongo_uri, collection_prefix=settings.collection_prefix)).close()
    url = _with_options(mongo_uri, **options)
    with _open(url) as store:
        assert store._database.settings == settings
    async with open_store(url) as asynchronous:
        assert isinstance(asynchronous, MongoStore)
        assert asynchronous._database.settings == settings


class _ConcernListener(CommandListener):
    """A listener that records the read and write concerns of commands."""

    def __init__(self) -> None:
        self.concerns: dict[str, set[str]] = {}

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name in ("find", "aggregate", "insert", "update"):
            requested = {
                name: event.command.get(name) for name in ("readConcern", "writeConcern") if name in event.command
            }
            self.concerns.setdefault(event.command_name, set()).add(str(requested))

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass


def _use_everything(store: SyncMongoStore) -> None:
    for _ in range(2):
        store.append_events("agent", "run", _note(), _note(), meta={"expires_at": "9999-01-01T00:00:00Z"})
        store.append_events("agent", "run", *store.load_run("agent", "run").log)
        store.load_run("agent", "run", types=["planner_note"], after=1)
        store.list_runs()
        store.redact_events("agent", "run", [store.load_run("agent", "run").version])
        store.expire_runs()
        store.delete_run("agent", "run")


@pytest.mark.parametrize(
    ("settings", "writes", "reads"),
    [
        (Settings(), {"w": "majority", "j": True}, "majority"),
        (Settings(read_concern="linearizable"), {"w": "majority", "j": True}, "linearizable"),
        (Settings(journal=False, write_concern=1, read_concern="local"), {"w": 1, "j": False}, "local"),
    ],
    ids=["promised", "linearizable", "weaker"],
)
@pytest.mark.filterwarnings("ignore::agent_memory_log_mongo.WeakerPromises")
def test_every_command_has_its_read_or_write_concern(
    mongo_uri: str, settings: Settings, writes: dict[str, object], reads: str
) -> None:
    """The store does not use the read and write concerns of the caller's client."""
    sent = _ConcernListener()
    with (
        MongoClient[Document](mongo_uri, event_listeners=[sent], w=1, readConcernLevel="local") as client,
        SyncMongoStore.open(client, client.get_default_database().name, settings) as store,
    ):
        _use_everything(store)
    requested = str({"writeConcern": writes})
    assert sent.concerns == {
        "find": {str({"readConcern": {"level": reads}})},
        "aggregate": {str({"readConcern": {"level": reads}})},
        "insert": {requested},
        "update": {requested},
    }


WEAKER = [
    ({"w": 1}, Settings(write_concern=1), "write concern 1 .*failover can lose an acknowledged append"),
    ({"w": 2}, Settings(write_concern=2), "write concern 2 .*failover can lose an acknowledged append"),
    ({"journal": "false"}, Settings(journal=False), "without the journal.*acknowledged append can be lost.*killed"),
    ({"readConcernLevel": "local"}, Settings(read_concern="local"), "read concern local .*failover rolls back"),
    ({"readConcernLevel": "available"}, Settings(read_concern="available"), "read concern available .*rolls back"),
]


@pytest.mark.parametrize(("options", "settings", "expected"), WEAKER, ids=lambda value: str(value)[:40])
async def test_weaker_setting_issues_a_warning(
    mongo_uri: str, options: dict[str, str | int], settings: Settings, expected: str
) -> None:
    _open(mongo_uri).close()
    url = _with_options(mongo_uri, **options)
    with pytest.warns(WeakerPromises, match=expected) as caught:
        _open(url).close()
    assert len(caught) == 1
    with pytest.warns(WeakerPromises, match=expected) as caught:
        async with open_store(url) as asynchronous:
            assert isinstance(asynchronous, MongoStore)
    assert len(caught) == 1
    with MongoClient[Document](mongo_uri) as client, pytest.warns(WeakerPromises, match=expected) as caught:
        SyncMongoStore.open(client, client.get_default_database().name, settings).close()
    assert [warning.filename for warning in caught] == [__file__], "it points to whoever asked for less"


def test_each_weaker_setting_has_its_own_warning(mongo_uri: str) -> None:
    with pytest.warns(WeakerPromises) as caught:
        _open(_with_options(mongo_uri, w=1, journal="false", readConcernLevel="local")).close()
    assert len(caught) == 3


def test_default_settings_issue_no_warning(mongo_uri: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({}, {"w": "majority"}, {"readConcernLevel": "linearizable"}, {"journal": "true"}):
            _open(_with_options(mongo_uri, **options)).close()


@pytest.fixture
def listening() -> Generator[tuple[str, socket.socket]]:
    """Return an address without a server, and the socket that would accept its connections."""
    with socket.create_server((HOST, 0)) as server:
        server.setblocking(False)
        yield f"{HOST}:{port_of(server)}", server


REFUSED = {
    "mongodb://{host}": "names no database",
    "mongodb://{host}/": "names no database",
    "mongodb://{host}/?w=majority": "names no database",
    "mongodb://{host}/a.b": "names no database",
    "mongodb://{host}/a/b": "names no database",
    "mongodb://{host}/a%20b": "names no database",
    "mongodb://{host}/%24a": "names no database",
    "mongodb://{host}/a%00b": "names no database",
    "mongodb://{host}/" + 64 * "a": "names no database",
    "mongodb:///db": "the driver does not accept",
    "mongodb://{host},/db": "the driver does not accept",
    "mongodb://{host}0/db": "the driver does not accept",
    "mongodb://one:27017,{host}/db?directConnection=true": "the driver does not accept",
    "mongodb+srv://{host}/db": "the driver does not accept",
    "mongodb+srv://one,two/db": "the driver does not accept",
    "mongodb://{host}/db?w=0": "write concern",
    "mongodb://{host}/db?w=": "write concern",
    "mongodb://{host}/db?w=-1": "option 'w'",
    "mongodb://{host}/db?readPreference=secondary": "readPreference 'secondary'",
    "mongodb://{host}/db?readPreference=primaryPreferred": "readPreference 'primaryPreferred'",
    "mongodb://{host}/db?READPREFERENCE=nearest": "readPreference 'nearest'",
    "mongodb://{host}/db?readPreferenceTags=dc:ny": "the driver does not accept",
    "mongodb://{host}/db?readConcernLevel=snapshot": "read concern",
    "mongodb://{host}/db?readConcernLevel=none": "read concern",
    "mongodb://{host}/db?collection_prefix=a.b": "collection_prefix",
    "mongodb://{host}/db?collection_prefix=%24a": "collection_prefix",
    "mongodb://{host}/db?collection_prefix=" + 65 * "a": "collection_prefix",
    "mongodb://{host}/db?max_event_bytes=0": "max_event_bytes",
    "mongodb://{host}/db?max_event_bytes=x": "max_event_bytes",
    "mongodb://{host}/db?max_event_bytes=16777217": "max_event_bytes",
    "mongodb://{host}/db?colection_prefix=a": "option 'colection_prefix'",
    "mongodb://{host}/db?nonsense": "option 'nonsense'",
    "mongodb://{host}/db?timeoutMS=soon": "option 'timeoutMS'",
    "mongodb://{host}/db?timeoutMS=-1": "option 'timeoutMS'",
    "mongodb://{host}/db?journal=maybe": "option 'journal'",
    "mongodb://{host}/db?maxPoolSize=many": "option 'maxPoolSize'",
    "mongodb://{host}/db?tls=true&tlsCAFile=/no/such/file": "option 'tlsCAFile'",
    "mongodb://{host}/db?tls=true&tlsInsecure=true&tlsAllowInvalidCertificates=true": "the driver does not accept",
    "mongodb://{host}/db?authMechanism=GSSAPI": "the driver does not accept",
    "mongodb://{host}/db?authSource=": "the driver does not accept",
    "mongodb://{host}/db?w=1&w=2": "'w' appears twice",
    "mongodb://{host}/db?w=1&W=2": "'W' appears twice",
    "mongodb://{host}/db?collection_prefix=a&collection_prefix=b": "appears twice",
    "mongodb://{host}/db?w=1;journal=false": "percent-encode",
    "mongodb://{host}/db?appname=a@b": "percent-encode",
    "mongodb://{host}/d@b": "percent-encode",
}


@pytest.mark.parametrize("url", REFUSED)
async def test_invalid_url_is_refused_before_any_connection(listening: tuple[str, socket.socket], url: str) -> None:
    host, server = listening
    url_with_host = url.replace("{host}", host)
    for attempt in (open_store(url_with_host), asyncio.to_thread(open_sync_store, url_with_host)):
        with pytest.raises(InvalidArgument, match=re.escape(REFUSED[url])):
            await attempt
    with pytest.raises(BlockingIOError):
        server.accept()


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"collection_prefix": "a b"}, "collection_prefix"),
        ({"collection_prefix": None}, "collection_prefix"),
        ({"write_concern": 0}, "write concern"),
        ({"write_concern": -1}, "write concern"),
        ({"write_concern": True}, "write concern"),
        ({"write_concern": ""}, "write concern"),
        ({"read_concern": "snapshot"}, "read concern"),
        ({"timeout_seconds": 0}, "timeout"),
        ({"timeout_seconds": -1.0}, "timeout"),
        ({"timeout_seconds": float("nan")}, "timeout"),
        ({"timeout_seconds": float("inf")}, "timeout"),
        ({"timeout_seconds": 2_147_484}, "timeout"),
        ({"timeout_seconds": "5"}, "timeout"),
        ({"timeout_seconds": None}, "timeout"),
        ({"write_concern": 1.5}, "write concern"),
        ({"write_concern": ["majority"]}, "write concern"),
        ({"journal": "false"}, "journal"),
        ({"read_concern": None}, "read concern"),
        ({"max_event_bytes": "1"}, "max_event_bytes"),
        ({"max_event_bytes": 0}, "max_event_bytes"),
        ({"max_event_bytes": 16 * 1024 * 1024 + 1}, "max_event_bytes"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused(wrong: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArgument, match=expected):
        Settings(**wrong)


# Clients that the caller opened.


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a$b", "a.b", None, 5], ids=repr)
async def test_invalid_database_name_is_refused(mongo_uri: str, name: Any) -> None:
    async with AsyncMongoClient[Document](mongo_uri) as client:
        with pytest.raises(InvalidArgument, match="not a valid database name") as caught:
            await MongoStore.open(client, name)
        assert caught.value.__cause__ is not None
    with (
        MongoClient[Document](mongo_uri) as sync_client,
        pytest.raises(InvalidArgument, match="not a valid database name"),
    ):
        SyncMongoStore.open(sync_client, name)


async def test_client_of_the_wrong_type_is_refused(mongo_uri: str, mongo_database: str) -> None:
    wrong: Any
    async with AsyncMongoClient[Document](mongo_uri) as wrong:
        with pytest.raises(InvalidArgument, match="SyncMongoStore takes pymongo's MongoClient, got a Async"):
            SyncMongoStore.open(wrong, mongo_database)
    with (
        MongoClient[Document](mongo_uri) as wrong,
        pytest.raises(InvalidArgument, match="MongoStore takes pymongo's AsyncMongoClient or Motor's"),
    ):
        await MongoStore.open(wrong, mongo_database)


async def test_settings_apply_to_every_client_type(mongo_uri: str, mongo_database: str) -> None:
    settings = Settings(collection_prefix="own_", max_event_bytes=1000, timeout_seconds=20)
    motor: AsyncIOMotorClient[Document] = AsyncIOMotorClient(mongo_uri)
    try:
        async with AsyncMongoClient[Document](mongo_uri) as client:
            for caller_client in (client, motor):
                async with await MongoStore.open(caller_client, mongo_database, settings) as store:
                    await store.append_events("agent", "run", _note())
                    with pytest.raises(EventTooLarge):
                        await store.append_events("agent", "run", _note("x" * 1000))
            assert (await client["admin"].command("ping"))["ok"] == 1, "it stays open"
        assert (await motor["admin"].command("ping"))["ok"] == 1, "it stays open"
    finally:
        motor.close()
    with MongoClient[Document](mongo_uri) as sync_client:
        with SyncMongoStore.open(sync_client, mongo_database, settings) as sync_store:
            assert sync_store.load_run("agent", "run").version == 2
        assert sync_client["admin"].command("ping")["ok"] == 1, "it stays open"
        names = sorted(sync_client[mongo_database].list_collection_names())
    assert names == ["own_commits", "own_erasures", "own_info", "own_runs"]


async def test_closed_client_is_named_in_the_error(mongo_uri: str, mongo_database: str) -> None:
    with MongoClient[Document](mongo_uri) as client:
        store = SyncMongoStore.open(client, mongo_database)
    with pytest.raises(StoreClosed, match="client"):
        store.load_run("agent", "run")
    store.close()
    async with AsyncMongoClient[Document](mongo_uri) as asynchronous:
        opened = await MongoStore.open(asynchronous, mongo_database)
    with pytest.raises(StoreClosed, match="client"):
        await opened.load_run("agent", "run")
    await opened.aclose()


# Missing servers.


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://no-such-host.invalid/db?timeoutMS=500",
        "mongodb+srv://no-such-host.invalid/db?timeoutMS=500&connectTimeoutMS=500",
    ],
)
async def test_unknown_host_raises_store_unavailable(url: str) -> None:
    for attempt in (open_store(url), asyncio.to_thread(open_sync_store, url)):
        with pytest.raises(StoreUnavailable, match="no-such-host") as caught:
            await attempt
        assert caught.value.__cause__ is not None
