"""Tests TLS, authentication, hidden passwords, and ids that look like operators."""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from bson.objectid import ObjectId
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import MongoClient

from agent_memory_log import (
    AgentMemoryLogError,
    Event,
    PlannerNote,
    SyncStore,
    UnknownPayload,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.backend_kit import StoreUrl, encode_cursor
from agent_memory_log.cli.main import main
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, InvalidEvent, StoreUnavailable
from agent_memory_log_mongo import MongoStore, SyncMongoStore
from tests import amlog
from tests.mongo.certificates import Certificates, make_certificates
from tests.mongo.ports import HOST
from tests.mongo.server import MongoServer

Document = dict[str, Any]

SECRET = "s3cr3t"
"""A text between the special characters of every password. If an output has it, the output shows a part."""

PASSWORD = SECRET.join(["", "/", "@", ":", "%", "?", "#", "&", "=", "+", " ", "[", "]", ";", "%41", "é", "\\", '"', ""])
"""A password with all characters that a URL must escape."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Generator[MongoServer]:
    """Start a server that accepts only TLS, with the user ``us3r`` and ``PASSWORD``."""
    with MongoServer(tmp_path_factory.mktemp("server"), auth=True, certificates=certificates) as started:
        started.create_user("us3r", PASSWORD, "root")
        yield started


def _note(text: str = "n", **fields: Any) -> Event:
    return new_event(PlannerNote(note=text), **fields)


# Connections and logins.


def _url(server: MongoServer, certificates: Certificates, password: str = PASSWORD, **options: str) -> str:
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return (
        f"mongodb://us3r:{quote(password, safe='')}@{HOST}:{server.port}/db?authSource=admin&tls=true"
        f"&tlsCAFile={quote(str(certificates.authority), safe='')}{more}"
    )


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", None])  # the test server supports no other
async def test_url_options_enable_tls_and_a_password(
    server: MongoServer, certificates: Certificates, mechanism: str | None
) -> None:
    options = {} if mechanism is None else {"authMechanism": mechanism}
    url = _url(server, certificates, **options)
    async with open_store(url) as store:
        version = (await store.append_events("agent", "run", _note())).version
    with open_sync_store(url) as sync:
        assert sync.load_run("agent", "run").version == version
    plus = url.replace(quote(PASSWORD, safe=""), quote_plus(PASSWORD))
    with open_sync_store(plus) as sync:
        assert sync.load_run("agent", "run").version == version


async def test_clients_keep_their_own_credentials(server: MongoServer, certificates: Certificates) -> None:
    options: dict[str, Any] = {"username": "us3r", "password": PASSWORD, "authSource": "admin"}
    options |= {"tls": True, "tlsCAFile": str(certificates.authority)}
    with (
        MongoClient[Document](HOST, server.port, **options) as client,
        SyncMongoStore.open(client, "clients") as store,
    ):
        store.append_events("agent", "run", _note())
        assert SECRET not in f"{store!r} {store}"
    motor: AsyncIOMotorClient[Document] = AsyncIOMotorClient(HOST, server.port, **options)
    async with await MongoStore.open(motor, "clients") as asynchronous:
        assert (await asynchronous.load_run("agent", "run")).version == 1
        assert SECRET not in f"{asynchronous!r} {asynchronous}"
    motor.close()


@pytest.mark.parametrize("name", ["key.pem", "no-such-file.pem"])
def test_invalid_ca_file_is_refused(server: MongoServer, certificates: Certificates, name: str) -> None:
    url = _url(server, certificates).replace("authority.pem", name)
    with pytest.raises(InvalidArgument, match="driver does not accept"):
        open_sync_store(url)


def test_untrusted_server_is_refused(server: MongoServer, certificates: Certificates, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        open_sync_store(_url(server, make_certificates(tmp_path), timeoutMS="1000"))
    url = _url(server, certificates, timeoutMS="1000")
    without = url.replace("tls=true", "tls=false").replace(
        f"&tlsCAFile={quote(str(certificates.authority), safe='')}", ""
    )
    with pytest.raises(StoreUnavailable):
        open_sync_store(without)
    open_sync_store(url).close()


# Passwords.


def _all_of(error: BaseException) -> str:
    """Return all text of an error and its causes, including causes that a traceback omits."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is not None and cause not in seen:
            seen.append(cause)
            waiting += [cause.__cause__, cause.__context__]
    texts = [f"{cause} {cause!r} {cause.args!r} {vars(cause)!r} {getattr(cause, '__notes__', [])}" for cause in seen]
    texts += ["".join(traceback.format_exception(cause)) for cause in seen]
    if isinstance(error, AgentMemoryLogError):
        texts.append(f"{pickle.dumps(error)!r}")
    return "\n".join(texts)


@pytest.fixture
def output(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Collect the texts of a test with all warnings and log records. Assert at the end that they have no secret."""
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield texts
    texts += [f"{warning.message} {warning.source!r}" for warning in warned]
    texts += [f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.records]
    assert texts
    leaks = [text[max(0, text.index(SECRET) - 300) :][:600] for text in texts if SECRET in text]
    assert not leaks, leaks[0]


def _show_url(url: str, output: list[str]) -> None:
    """Collect the texts of a URL before it is opened."""
    opening = open_store(url)
    output.append(f"{opening!r} {opening}")
    try:
        parsed = StoreUrl.parse(url)
    except InvalidArgument as error:
        output.append(_all_of(error))
    else:
        output.append(f"{parsed!r} {parsed} {parsed.masked}")


async def _show_attempts(url: str, output: list[str]) -> list[type[AgentMemoryLogError]]:
    """Collect the texts of each way to open an invalid store. Return the error types."""
    _show_url(url, output)
    ends: list[type[AgentMemoryLogError]] = []
    for attempt in (open_store(url), asyncio.to_thread(open_sync_store, url)):
        with pytest.raises(AgentMemoryLogError) as caught:
            await attempt
        output.append(_all_of(caught.value))
        ends.append(type(caught.value))
    return ends


async def test_correct_password_is_not_shown(
    server: MongoServer, certificates: Certificates, output: list[str]
) -> None:
    url = _url(server, certificates)
    _show_url(url, output)
    async with open_store(url) as store:
        assert isinstance(store, MongoStore)
        output.append(
            f"{store!r} {store} {store._database.settings!r} {store._database.name} {vars(store._database)!r}"
        )
        await store.append_events("agent", "run", _note())
        with pytest.raises(AgentMemoryLogError) as caught:
            await store.load_run("agent", "run", after=1000)
        output.append(_all_of(caught.value))
    with pytest.raises(AgentMemoryLogError) as caught:
        await store.load_run("agent", "run")
    output.append(_all_of(caught.value))
    with open_sync_store(url) as sync:
        assert isinstance(sync, SyncMongoStore)
        output.append(f"{sync!r} {sync} {sync._database.settings!r} {sync._database.name} {vars(sync._database)!r}")
        follower = sync.follow("agent", "run")
        next(follower)
        follower.close()
        output.append(f"{follower!r} {sync.list_runs()!r}")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-1"])
async def test_wrong_password_is_not_shown(
    server: MongoServer, certificates: Certificates, output: list[str], mechanism: str
) -> None:
    url = _url(server, certificates, f"{PASSWORD}not", authMechanism=mechanism, timeoutMS="3000")
    assert await _show_attempts(url, output) == [StoreUnavailable, StoreUnavailable]
    assert "the user, the password or authSource is wrong" in output[-1]


@pytest.mark.parametrize(
    "options",
    ["", "&nope=1", "&timeoutMS=soon", "&w=0", "&readPreference=nearest", "&collection_prefix=%24", "&tlsCAFile=/none"],
)
@pytest.mark.parametrize("host", ["no-such-host.invalid", "bad host", "[::", "a:b:c", "", "h:99999", "a%2Fb.sock"])
async def test_password_for_a_missing_server_is_not_shown(output: list[str], host: str, options: str) -> None:
    url = f"mongodb://us3r:{quote(PASSWORD, safe='')}@{host}/db?timeoutMS=30{options}".replace(
        "timeoutMS=30&timeoutMS", "timeoutMS"
    )
    await _show_attempts(url, output)


PIECES = (
    *("/", "@", ":", "%", "?", "#", "&", "=", "+", " ", "[", "]", ";", ",", "\\", "//", "@/", "/@", ":/", "?@", "@?"),
    *(
        "?w=",
        "/?max_event_bytes=",
        "?readPreference=",
        "/a?collection_prefix=",
        "?collection=$",
        "?layout=",
        "/a?x=",
        "?authMechanismProperties=",
    ),
)
"""Characters in a password that was not percent-encoded."""


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("start", [SECRET, "27"])
@pytest.mark.parametrize("scheme", ["mongodb", "mongodb+srv"])
async def test_unescaped_password_is_not_shown(output: list[str], scheme: str, start: str, piece: str) -> None:
    for end in (
        "@no-such-host.invalid/db?timeoutMS=30",
        "@no-such-host.invalid",
        f"@no-such-host.invalid/{scheme}?a=b@c",
    ):
        await _show_attempts(f"{scheme}://us3r:{start}{piece}{SECRET}{end}", output)


@pytest.mark.parametrize(
    "url",
    [
        "mongodb:/us3r:{0}@no-such-host.invalid/db",
        "mongodb:us3r:{0}@no-such-host.invalid/db",
        "mongodb:///us3r:{0}@no-such-host.invalid/db",
        "mongodb//us3r:{0}@no-such-host.invalid/db",
        "us3r:{0}@no-such-host.invalid/db",
        "us_3r:{0}@no-such-host.invalid/db",
        "//us3r:{0}@no-such-host.invalid/db",
        "mongo://us3r:{0}@no-such-host.invalid/db",
        "mongodb://us3r:{0}",
        "mongodb://us3r:{0}/db",
        "mongodb://us3r:%2F{0}/db",
        "mongodb://h/db?authMechanismProperties={0}",
        "mongodb://h/db?authMechanismProperties=AWS_SESSION_TOKEN:{0},{0}:{0}",
        "mongodb://:{0}@no-such-host.invalid/db?timeoutMS=30",
        "mongodb://us3r:a{0}\n@no-such-host.invalid/db",
        "mongodb://h/db?tls=true&tlsCertificateKeyFile=/none&tlsCertificateKeyFilePassword={0}",
        "mongodb://h/db?tlsCertificateKeyFilePassword={0}&nope=1",
        "mongodb://h/db?nope=1;tlsCertificateKeyFilePassword={0}",
        "mongodb://h/db?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:{0}&nope=1",
        "mongodb://h/db?proxyHost=p&proxyUsername=u&proxyPassword={0}&nope=1",
    ],
)
async def test_password_in_an_invalid_url_is_not_shown(output: list[str], url: str) -> None:
    await _show_attempts(url.replace("{0}", SECRET), output)


# Passwords on the command line.


def _commands(url: str, folder: Path) -> dict[str, list[str]]:
    """Return every command for a store. Commands with two stores get a file as the second one."""
    events, chat = folder / "events.jsonl", folder / "chat.jsonl"
    events.write_text("")
    chat.write_text("")
    store, file = ["--store", url], f"sqlite:///{folder / 'runs.db'}"
    return {
        "demo": ["demo", *store],
        "import jsonl": ["import", "jsonl", str(events), *store],
        "import openai-chat": ["import", "openai-chat", str(chat), "--agent", "a", *store],
        "export": ["export", *store],
        "copy from": ["copy", url, file],
        "copy to": ["copy", file, url],
        "copy to itself": ["copy", url, url],
        "copy three": ["copy", file, url, url],
        "runs": ["runs", *store],
        "show": ["show", "agent/run", *store],
        "show a URL": ["show", url, *store],
        "tail": ["tail", "agent/none", *store],
        "stats": ["stats", *store],
        "verify": ["verify", *store],
        "delete": ["delete", "agent/none", "--yes", *store],
        "redact": ["redact", "agent/none", "1", "--yes", *store],
        "expire": ["expire", "--yes", *store],
        "compact": ["compact", *store],
    }


def _ran(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command in this process. Return its status and its output with the traceback."""
    status = main(["--debug", *arguments])
    written = capsys.readouterr()
    return status, written.out + written.err


def _failing(server: MongoServer, certificates: Certificates) -> dict[str, str]:
    """Return invalid URLs with a password that must stay hidden."""
    escaped = quote(PASSWORD, safe="")
    return {
        "a wrong password": _url(server, certificates, f"{PASSWORD}not", timeoutMS="3000"),
        "an unknown host": f"mongodb://us3r:{escaped}@no-such-host.invalid/db?timeoutMS=30",
        "an unknown service": f"mongodb+srv://us3r:{escaped}@no-such-host.invalid/db?timeoutMS=30",
        "a password that was not escaped": f"mongodb://us3r:27/{SECRET}@no-such-host.invalid/db",
        "no host": f"mongodb://us3r:{SECRET}/db",
        "an unknown option": f"mongodb://us3r:{escaped}@no-such-host.invalid/db?nope=1",
        "no database": f"mongodb://us3r:{escaped}@no-such-host.invalid",
        "an unknown scheme": f"mongo://us3r:{SECRET}@no-such-host.invalid/db",
        "a control character": f"mongodb://us3r:{SECRET}\x01@no-such-host.invalid/db",
    }


FAILING = (
    *("a wrong password", "an unknown host", "an unknown service", "a password that was not escaped", "no host"),
    *("an unknown option", "no database", "an unknown scheme", "a control character"),
)


@pytest.mark.parametrize("failing", FAILING)
def test_failed_command_shows_no_password(
    server: MongoServer,
    certificates: Certificates,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    output: list[str],
    failing: str,
) -> None:
    url = _failing(server, certificates)[failing]
    amlog.append(f"sqlite:///{tmp_path / 'runs.db'}", "agent", "run", _note())
    # The driver is slow with an unknown host. All commands open their store in the same way.
    commands = list(_commands(url, tmp_path).items())[:: 4 if failing == "an unknown host" else 1]
    for name, arguments in commands:
        status, written = _ran(arguments, capsys)
        assert status in (1, 2), f"{name}: {written}"
        assert "amlog: " in written
        output.append(f"{name}: {written}")


COMMANDS_THAT_SHOW_ARGUMENTS = {
    "demo": "it names its store",
    "show a URL": "it says that the URL names no run",
}
"""Commands that show a part of their arguments, and the condition."""


def test_successful_command_shows_no_password(
    server: MongoServer,
    certificates: Certificates,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    output: list[str],
) -> None:
    url = _url(server, certificates).replace("/db?", "/commands?")
    amlog.append(f"sqlite:///{tmp_path / 'runs.db'}", "agent", "run", _note())
    for run in ("run", "none"):
        amlog.append(url, "agent", run, _note(), _note())
    for name, arguments in _commands(url, tmp_path).items():
        if name not in {*COMMANDS_THAT_SHOW_ARGUMENTS, "tail"}:  # tail does not end
            output.append(f"{name}: {_ran(arguments, capsys)[1]}")


@pytest.mark.parametrize("name", COMMANDS_THAT_SHOW_ARGUMENTS)
def test_other_commands_show_no_password(
    server: MongoServer, certificates: Certificates, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    url = _url(server, certificates).replace("/db?", "/others?")
    _, written = _ran([*_commands(url, tmp_path)[name], "--json"], capsys)
    assert SECRET not in written


def test_no_process_list_shows_a_password(server: MongoServer, certificates: Certificates, tmp_path: Path) -> None:
    urls = _failing(server, certificates)
    names = ("runs", "export", "copy from", "stats", "tail", "verify", "copy to itself", "expire", "compact")
    started = [
        (name, amlog.start(*_commands(urls[failing], tmp_path)[name], AMLOG_DEBUG="1", AMLOG_STORE=urls[failing]))
        for name, failing in zip(names, FAILING, strict=True)
    ]
    for name, process in started:
        out, err = process.communicate(timeout=amlog.PATIENCE)
        written = (out + err).decode()
        assert process.returncode in (1, 2), f"{name}: {written}"
        assert "amlog: " in written, name
        assert SECRET not in written, f"{name}: {written}"


# Ids and operators.

ODD_IDS = ("$where", "$gt", "$", "a.b", ".", "a\x00b", "\x00", '{"$gt": ""}', "_id", "$$ROOT", "/.*/", "own", " ")


def test_ids_that_look_like_operators_are_text(mongo_uri: str) -> None:
    with open_sync_store(mongo_uri) as store:
        for number, odd in enumerate(ODD_IDS):
            store.append_events(odd, odd, _note(odd, event_id=odd, labels={odd: odd}), meta={odd: odd})
            store.append_events("agent", odd, _note(f"agent {odd}", event_id=odd))
            store.append_events(odd, "run", new_event(UnknownPayload(type=odd, data={odd: number}), event_id=odd))
        for number, odd in enumerate(ODD_IDS):
            with open_sync_store(mongo_uri) as fresh:
                (event,) = fresh.load_run(odd, odd).log
                assert (event.data, event.event_id, event.labels) == (PlannerNote(note=odd), odd, {odd: odd})
                (alone,) = fresh.load_run("agent", odd).log
                assert alone.data == PlannerNote(note=f"agent {odd}")
                (typed,) = fresh.load_run(odd, "run", types=[odd]).log
                assert typed.data == UnknownPayload(type=odd, data={odd: number})
                assert not fresh.load_run(odd, odd, types=[odd]).log
                assert sorted(run.run for run in fresh.list_runs(odd).runs) == sorted([odd, "run"])
                assert fresh.append_events(odd, odd, event).inserted == 0
        store.redact_events("$where", "$where", [1], reason="$where")
        store.delete_run("$gt", "$gt")
        for odd in ODD_IDS:
            assert len(store.load_run("agent", odd).log) == 1
            assert len(store.load_run(odd, odd).log) == {"$where": 2, "$gt": 0}.get(odd, 1)


OPERATORS: tuple[Any, ...] = (
    {"$gt": ""},
    {"$ne": None},
    {"$regex": ".*"},
    {"$where": "1"},
    ["$gt", ""],
    [{"$gt": ""}],
    re.compile(".*"),
    b"agent",
    ObjectId(24 * "0"),
)


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_ids_other_than_text_are_refused(mongo_uri: str, operator: Any) -> None:
    with open_sync_store(mongo_uri) as store:
        store.append_events("agent", "run", _note(event_id="e-1"), meta={"a": 1})
        store.append_events("other", "other", _note(event_id="e-2"))
        before = _everything(store)
        calls: list[Callable[[str, str], object]] = [
            store.load_run,
            store.append_events,
            store.delete_run,
            lambda agent, run: store.append_events(agent, run, _note()),
            lambda agent, run: store.redact_events(agent, run, [1]),
            lambda agent, run: next(store.follow(agent, run)),
        ]
        for agent, run in (("agent", operator), (operator, "run"), (operator, operator)):
            for call in calls:
                with pytest.raises(InvalidEvent, match="non-empty text"):
                    call(agent, run)
        with pytest.raises(InvalidEvent):
            store.list_runs(operator)
        with pytest.raises(CursorOutOfRange):
            store.list_runs(cursor=operator)
        event = _note()
        for wrong in (
            Event(event.type, event.timestamp, event.data, {}, operator),
            Event(event.type, event.timestamp, event.data, {"k": operator}, "e-3"),
            Event(operator, event.timestamp, event.data, {}, "e-3"),
        ):
            with pytest.raises(InvalidEvent):
                store.append_events("agent", "run", wrong)
        for refused in (
            lambda: store.load_run("agent", "run", types=[operator]),
            lambda: store.load_run("agent", "run", after=operator),
            lambda: store.load_run("agent", "run", limit=operator),
            lambda: store.redact_events("agent", "run", [operator]),
            lambda: store.append_events("agent", "run", event, expected_version=operator),
            lambda: store.append_events("agent", "run", event, first_seq=operator),
        ):
            with pytest.raises(InvalidArgument):
                refused()
        assert _everything(store) == before


def _everything(store: SyncStore) -> object:
    runs = store.list_runs(include_reserved=True).runs
    return runs, [store.load_run(run.agent, run.run) for run in runs]


def test_list_reads_cursors_only_as_numbers(mongo_uri: str) -> None:
    with open_sync_store(mongo_uri) as store:
        store.append_events("agent", "run", _note())
        for cursor in (encode_cursor(2**63 - 1, 2**63 - 1), encode_cursor(-(2**63), -(2**63)), encode_cursor(-1, 5)):
            assert len(store.list_runs(cursor=cursor).runs) <= 1
        for cursor in ("$gt", "eyIkZ3QiOiAiIn0", "WyIkZ3QiLCAxXQ", "", "\x00"):
            with pytest.raises(CursorOutOfRange):
                store.list_runs(cursor=cursor)
