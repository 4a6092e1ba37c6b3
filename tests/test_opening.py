"""Tests of opening stores by URL: unknown schemes, invalid options, hidden passwords, and other packages' backends."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_memory_log import Store, UserMessage, new_event, open_store, open_sync_store
from agent_memory_log.backend_kit import StoreUrl
from agent_memory_log.backend_kit.urls import without_credentials
from agent_memory_log.errors import BackendNotFound, InvalidArgument, StoreClosed
from agent_memory_log.opening import installed_backends
from agent_memory_log_inmem import MemoryStore, SyncMemoryStore
from tests.waiting import PATIENCE


async def _open(url: str, way: str) -> None:
    if way == "await":
        await open_store(url)
    elif way == "with":
        async with open_store(url):
            pass
    else:
        open_sync_store(url)


async def _check_refused(url: str, error: type[Exception], *texts: str) -> None:
    for way in ("await", "with", "sync"):
        with pytest.raises(error) as caught:
            await _open(url, way)
        for text in texts:
            assert text in str(caught.value)


async def test_error_for_an_unknown_scheme_lists_installed_backends() -> None:
    await _check_refused("postgres://host/db", BackendNotFound, "postgres:", "install", "memory", "sqlite")


@pytest.mark.parametrize("url", ["", "runs.db", "/tmp/runs.db", "./a:b", "C:\\runs.db", ":memory:", "1abc:x", "a b:x"])
async def test_text_that_is_not_a_url_is_refused(url: str) -> None:
    await _check_refused(url, InvalidArgument, "is not a store URL", "sqlite:///")


@pytest.mark.parametrize("url", [5, None, b"memory:", Path("runs.db")])
async def test_url_of_a_wrong_type_is_refused(url: str) -> None:
    await _check_refused(url, InvalidArgument, "is not a store URL")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory:?nope=1", "no option 'nope'"),
        ("memory:?nope", "no option 'nope'"),
        ("memory:?max_event_bytes=1&max_event_bytes=2", "appears twice"),
        ("memory:?max_event_bytes=x", "must be an integer from 1"),
        ("memory:?max_event_bytes=0", "must be an integer from 1"),
        ("memory:?max_event_bytes=-1", "must be an integer from 1"),
        ("memory:?max_event_bytes=1.5", "must be an integer from 1"),
        ("memory:?max_event_bytes=" + "9" * 5000, "must be an integer from 1"),
        ("memory:a#b", "%23"),
        ("memory:a\nb", "percent-encode"),
        ("memory://[half", "is not a store URL"),
    ],
)
async def test_error_names_the_invalid_option(url: str, message: str) -> None:
    await _check_refused(url, InvalidArgument, message)


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("memory:", ""),
        ("memory:a/b", "a/b"),
        ("memory:a%23%3F%20b", "a#? b"),
        ("sqlite:///runs.db", "runs.db"),
        ("sqlite:////var/runs.db", "/var/runs.db"),
        ("sqlite:runs.db", "runs.db"),
        ("SQLITE:///Runs.db?x=1", "Runs.db"),
        ("mongodb+srv://user:p%40ss@host:27/db", "user:p@ss@host:27/db"),
    ],
)
def test_urls_are_parsed(url: str, location: str) -> None:
    parsed = StoreUrl.parse(url)
    assert parsed.location == location
    assert parsed.scheme == url.partition(":")[0].lower()
    assert parsed.rest() == url


def test_options_are_read_by_name() -> None:
    url = StoreUrl.parse("x1:a?mode=fast&size=7")
    assert url.choice("mode", ("safe", "fast")) == "fast"
    assert url.choice("other", ("safe", "fast")) == "safe"
    assert url.number("size", 1) == 7
    assert url.number("depth", 3) == 3
    url.finish()
    with pytest.raises(InvalidArgument, match="must be safe or fast, got 'odd'"):
        StoreUrl.parse("x1:a?mode=odd").choice("mode", ("safe", "fast"))


def test_rest_of_a_url_keeps_its_spelling() -> None:
    url = StoreUrl.parse("x1://u:p%40ss@h/d%20b?a=1&size=7&b=c:d,e&a=%41+2&f&%67=")
    assert url.number("size", 1) == 7
    assert url.rest() == "x1://u:p%40ss@h/d%20b?a=1&b=c:d,e&a=%41+2&f&%67="
    url.finish()
    assert url.rest() == "x1://u:p%40ss@h/d%20b"
    for only_one in ("x1://h/d?size=7", "x1://h/d"):
        url = StoreUrl.parse(only_one)
        assert url.option("size", "7") == "7"
        assert url.rest() == "x1://h/d"


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("x1://user:secret@host:1/db?w=1", "x1://***@host:1/db?w=1"),
        ("x1://user@host,other:2/db", "x1://***@host,other:2/db"),
        ("x1://user:sec@ret/se:cr?e=t@host/db", "x1://***@host/db"),
        ("x1://user:sec//ret@host", "x1://***@host"),
        ("x1:/user:secret@host/db", "x1:***@host/db"),
        ("x1:user:secret@host/db", "x1:***@host/db"),
        ("x1:///user:secret@host/db", "x1://***@host/db"),
        ("//user:secret@host/db", "//***@host/db"),
        ("us_er:secret@host/db", "us_er:***@host/db"),
        ("secret@host/db", "***@host/db"),
        ("x1://user:sec\nret@host/db", "x1://***@host/db"),
        ("x1://user:sec#ret@host/db", "x1://***@host/db"),
        ("x1://user:sec[ret@host/db", "x1://***@host/db"),
        ("x1://user:secret/db?w=1", "x1://user:***/db?w=1"),
        ("x1://user:1secret", "x1://user:***"),
        ("x1://one:1,user:secret?w=1", "x1://one:1,user:***?w=1"),
        ("x1://h/d?tlsCertificateKeyFilePassword=secret&w=1", "x1://h/d?tlsCertificateKeyFilePassword=***&w=1"),
        ("x1://h/d?w=1;proxyPASSWORD=secret;x=2", "x1://h/d?w=1;proxyPASSWORD=***;x=2"),
        ("x1://h/d?w=1?password=se?cret&x=2", "x1://h/d?w=1?password=***&x=2"),
        ("x1://h?authMechanismProperties=AWS_SESSION_TOKEN:secret", "x1://h?authMechanismProperties=***"),
        ("x1://h/d?apiToken=secret&clientSecret=secret", "x1://h/d?apiToken=***&clientSecret=***"),
        ("x1://one:1,[::1]:2/db?a=b:c", "x1://one:1,[::1]:2/db?a=b:c"),
        ("sqlite:////var/a:b.db", "sqlite:////var/a:b.db"),
        ("sqlite:///C:/runs.db", "sqlite:///C:/runs.db"),
        ("memory:a:b", "memory:a:b"),
    ],
)
def test_messages_mask_credentials_of_a_url(url: str, masked: str) -> None:
    assert without_credentials(url) == masked
    text = _text_of(lambda: StoreUrl.parse(url))
    assert masked in text
    assert "secret" not in text
    opening = open_store(url)
    assert "secret" not in f"{opening!r} {opening}"


@pytest.mark.parametrize(
    "url",
    [
        "x1://user:sec@ret/db@host",
        "x1://user:27/secret@host/db",
        "x1://user:27/secret@host",
        "x1://user:27?secret@host/db",
        "x1://user:secret@host/db?a=b@c",
        "x1://host/db?a=1;b=2",
        "x1://host?a=1;b=2",
    ],
)
def test_possible_password_after_the_hosts_is_refused(url: str) -> None:
    text = _text_of(StoreUrl.parse(url).check_hosts)
    assert "percent-encode" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    "url", ["x1://us;er:sec%40ret@host/d;b?a=%40%3B", "x1://user:p@ss@host", "x1://host", "x1:host/db", "x1://h/?a=1&b"]
)
def test_other_text_after_the_hosts_is_accepted(url: str) -> None:
    StoreUrl.parse(url).check_hosts()


def _text_of(call: Callable[[], object]) -> str:
    """Return the text of the call's result or error."""
    try:
        return repr(call())
    except InvalidArgument as error:
        return f"{error} {error.__context__!r}"


@pytest.mark.parametrize(
    "url", ["x1://user:sec?mode=ret@host", "x1://user:sec?size=ret@host", "x1://user:sec?ret=1&ret@host"]
)
def test_messages_hide_a_password_that_looks_like_options(url: str) -> None:
    assert "ret" not in _text_of(lambda: StoreUrl.parse(url).choice("mode", ("safe", "fast")))
    assert "ret" not in _text_of(lambda: StoreUrl.parse(url).number("size", 1))
    assert "ret" not in _text_of(lambda: StoreUrl.parse(url).finish())


async def test_named_memory_stores_are_shared_and_unnamed_ones_are_private() -> None:
    event = new_event(UserMessage(message="hi"), event_id="e-1")
    async with open_store("memory:") as first, open_store("memory:") as second:
        await first.append_events("agent", "run", event)
        assert len((await second.load_run("agent", "run")).log) == 0
    async with open_store("memory:test-opening") as first, open_store("memory:test-opening") as second:
        await first.append_events("agent", "run", event)
        assert len((await second.load_run("agent", "run")).log) == 1
    with open_sync_store("memory:test-opening") as later, open_sync_store("memory:test-opening-2") as elsewhere:
        assert len(later.load_run("agent", "run").log) == 1
        assert len(elsewhere.load_run("agent", "run").log) == 0


async def test_store_can_be_awaited_or_entered() -> None:
    store = await open_store("memory:")
    assert isinstance(store, MemoryStore)
    await store.append_events("agent", "run", new_event(UserMessage()))
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreClosed):
        await store.load_run("agent", "run")
    async with open_store("memory:") as entered:
        assert isinstance(entered, MemoryStore)
    with pytest.raises(StoreClosed):
        await entered.load_run("agent", "run")
    async with await open_store("memory:") as awaited:
        await awaited.load_run("agent", "run")
    with open_sync_store("memory:") as sync:
        assert isinstance(sync, SyncMemoryStore)
    with pytest.raises(StoreClosed):
        sync.load_run("agent", "run")


async def test_store_is_closed_when_the_block_raises() -> None:
    opened: list[Store] = []

    async def fail() -> None:
        async with open_store("memory:") as store:
            opened.append(store)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    with pytest.raises(StoreClosed):
        await opened[0].load_run("agent", "run")


THIRD_PARTY = '''
"""A backend of another package: the in-memory backend with another scheme."""
from agent_memory_log_inmem import MemoryStore, SyncMemoryStore


class Backend:
    async def open_store(self, url):
        url.choice("colour", ("red", "blue"))
        url.finish()
        return MemoryStore()

    def open_sync_store(self, url):
        url.finish()
        return SyncMemoryStore()


backend = Backend()
'''


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install another distribution, with real metadata."""
    info = tmp_path / "third_party_log-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party-log\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[agent_memory_log.backends]\n"
        "thirdparty = third_party_log_backend:backend\n"
        "installed-later = third_party_log_backend:backend\n"
        "lacks-driver = third_party_log_driverless:backend\n"
        "lacks-object = third_party_log_backend:missing\n"
    )
    (tmp_path / "third_party_log_backend.py").write_text(THIRD_PARTY)
    (tmp_path / "third_party_log_driverless.py").write_text("import a_driver_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]  # pytest leaves it untyped
    importlib.invalidate_caches()
    yield
    for name in ("third_party_log_backend", "third_party_log_driverless"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("third_party")
async def test_scheme_of_another_package_can_be_opened() -> None:
    assert "thirdparty" in installed_backends()
    assert {"memory", "sqlite"} <= set(installed_backends())
    async with open_store("thirdparty://anywhere?colour=blue") as store:
        await store.append_events("agent", "run", new_event(UserMessage()))
        assert (await store.load_run("agent", "run")).version == 1
    with open_sync_store("thirdparty:") as sync:
        assert sync.load_run("agent", "run").version == 0
    with pytest.raises(InvalidArgument, match="must be red or blue"):
        await open_store("thirdparty:?colour=green")


def test_package_that_is_installed_later_is_found(request: pytest.FixtureRequest) -> None:
    with pytest.raises(BackendNotFound):
        open_sync_store("installed-later:")
    request.getfixturevalue("third_party")
    open_sync_store("installed-later:").close()


def test_entry_points_are_read_once_for_each_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    open_sync_store("memory:").close()
    monkeypatch.delattr("agent_memory_log.opening.entry_points")
    open_sync_store("memory:").close()


@pytest.mark.usefixtures("third_party")
async def test_error_for_a_missing_driver_names_the_package() -> None:
    await _check_refused(
        "lacks-driver:x", BackendNotFound, "third_party_log_driverless", "a_driver_that_is_not_there", "install"
    )
    await _check_refused("lacks-object:x", BackendNotFound, "third_party_log_backend:missing", "install")


_WITHOUT_THE_DRIVER = """
import asyncio, sys
sys.modules["pymongo"] = None  # as if it were not installed
from agent_memory_log import open_store, open_sync_store
from agent_memory_log.errors import BackendNotFound

async def open_and_close():
    async with open_store(sys.argv[1]):
        pass

for attempt in (lambda: open_sync_store(sys.argv[1]), lambda: asyncio.run(open_and_close())):
    try:
        attempt()
    except BackendNotFound as error:
        print(error)
"""


@pytest.mark.parametrize("url", ["mongodb://user:secret@host/db", "mongodb+srv://user:secret@host/db"])
def test_error_for_a_missing_mongodb_driver_names_the_extra(url: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT_THE_DRIVER, url], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    messages = ran.stdout.splitlines()
    assert len(messages) == 2
    for line in messages:
        assert "pip install 'agent-memory-log[mongo]'" in line
        assert "pymongo" in line
        assert "secret" not in line
