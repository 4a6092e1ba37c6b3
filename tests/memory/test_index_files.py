"""Tests of the index files beside a store: they change no search, are private to a subject, and lose erased texts."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_memory_log import SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Hits, Principal, SyncMemory, SyncMemoryClient
from tests.amlog import Amlog
from tests.effort import EXAMPLES
from tests.memory.stores import SetClock, somebody
from tests.memory.test_search_vectors import Meaning
from tests.store_clock import StoreClock

WORDS = ("zebra", "puppy", "storm", "vehicle", "tuesday", "Mara", "when", "went")
RUNS = st.sampled_from(["first", "second", "third"])
QUERY = "when did the zebra see a puppy and the storm? Mara vehicle tuesday"


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Amlog:
    return Amlog(tmp_path, capsys)


def without_file(store: SyncStore, **options: object) -> SyncMemoryClient:
    """Return a client whose indexes are in memory."""
    client = SyncMemoryClient(store, **options)  # type: ignore[arg-type]  # the options of a client
    client._indexes.folder = None
    return client


def texts_and_scores(hits: Hits) -> list[tuple[str, float]]:
    return [(hit.text, round(hit.score, 4)) for hit in hits]


class StoreMachine(RuleBasedStateMachine):
    """Clients that share index files find what a client with an index in memory finds, after any changes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.clock = SetClock()
        self.who = somebody(user="1")
        self.stores = [open_sync_store(f"sqlite:///{self.folder}/runs.db?durability=os") for _ in range(3)]
        self.control = without_file(self.stores[2], clock=self.clock, embedder=Meaning(tokens=True)).of(self.who)
        self.clients = [self.client(0), self.client(1)]
        self.number = 0

    def client(self, at: int) -> SyncMemory:
        return SyncMemoryClient(self.stores[at], clock=self.clock, embedder=Meaning(tokens=True)).of(self.who)

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)

    @rule(run=RUNS, words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), count=st.integers(1, 3))
    def say(self, run: str, words: list[str], count: int) -> None:
        self.clock.move(hours=4)
        for _ in range(count):
            self.number += 1
            text = f"{' '.join(words)} unique{self.number}"
            event = new_event(UserMessage(text), labels={"speaker": words[0]}, timestamp=self.clock.time)
            self.stores[0].append_events("agent", run, event)

    @rule(run=RUNS, at=st.integers(0, 1))
    def link(self, run: str, at: int) -> None:
        self.clients[at].link_run("agent", run)

    @rule(key=st.sampled_from(["zebra", "storm"]), value=st.sampled_from(WORDS), at=st.integers(0, 1))
    def remember(self, key: str, value: str, at: int) -> None:
        self.clients[at].remember(key=key, value=value)

    @rule(key=st.sampled_from(["zebra", "storm"]), at=st.integers(0, 1))
    def forget(self, key: str, at: int) -> None:
        self.clients[at].forget(key=key)

    @rule(run=RUNS, seq=st.integers(1, 5))
    def redact(self, run: str, seq: int) -> None:
        if any(event.seq == seq for event in self.stores[1].load_run("agent", run).log):
            self.stores[1].redact_events("agent", run, [seq])

    @rule(run=RUNS)
    def delete(self, run: str) -> None:
        self.stores[1].delete_run("agent", run)

    @rule(at=st.integers(0, 1))
    def forget_all(self, at: int) -> None:
        self.clients[at].forget_all()

    @rule(at=st.integers(0, 1), words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join))
    def search(self, at: int, words: str) -> None:
        assert texts_and_scores(self.clients[at].search(words)) == texts_and_scores(self.control.search(words))

    @rule(at=st.integers(0, 1))
    def restart(self, at: int) -> None:
        self.clients[at] = self.client(at)

    @rule()
    def lose_the_files(self) -> None:
        shutil.rmtree(self.folder / "runs.db-index", ignore_errors=True)

    @invariant()
    def clients_find_the_same(self) -> None:
        expected = texts_and_scores(self.control.search(QUERY, top_k=50))
        for me in self.clients:
            assert texts_and_scores(me.search(QUERY, top_k=50)) == expected


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=EXAMPLES // 2, stateful_step_count=15)


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}"


def content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (folder / "runs.db-index").iterdir())


def say(store: SyncStore, run: str, *texts: str, **options: object) -> None:
    events = [new_event(UserMessage(text), labels={"speaker": f"Speaker{run}"}) for text in texts]
    store.append_events("agent", run, *events, **options)  # type: ignore[arg-type]  # the options of an append


def _redact(store: SyncStore, _: SyncMemory) -> None:
    store.redact_events("agent", "run", [1])


def _delete(store: SyncStore, _: SyncMemory) -> None:
    store.delete_run("agent", "run")


def _forget_all(_: SyncStore, me: SyncMemory) -> None:
    me.forget_all()


def _expire(store: SyncStore, _: SyncMemory) -> None:
    store.expire_runs()


@pytest.mark.parametrize("after", ["search", "purge", "compact", "compact without search"])
@pytest.mark.parametrize("erase", [_redact, _delete, _forget_all, _expire])
def test_erased_words_are_gone_from_the_files(
    tmp_path: Path,
    amlog: Amlog,
    monkeypatch: pytest.MonkeyPatch,
    store_clock: StoreClock,
    erase: Callable[[SyncStore, SyncMemory], None],
    after: str,
) -> None:
    with open_sync_store(url_of(tmp_path)) as store, open_sync_store(url_of(tmp_path)) as other:
        me = SyncMemoryClient(store).of(Principal("acme", {"user": "1"}))
        say(store, "run", "the secretword of sesame", meta=store_clock.meta_with_an_end())
        say(store, "other run", "a zebra")
        me.link_runs([("agent", "run"), ("agent", "other run")])
        assert len(me.search("secretword zebra")) == 2
        assert b"secretword" in content(tmp_path)
        if erase is _expire:
            store_clock.pass_the_end()
        erase(store, me)
        if after == "search":
            SyncMemoryClient(other).of(Principal("acme", {"user": "1"})).search("zebra")
        elif after == "purge":
            me.purge()
        else:
            if after == "compact without search":
                from agent_memory_log.memory.search import index_files  # noqa: PLC0415  # to replace a cached function

                monkeypatch.setattr(index_files, "index_maker", lambda: None)
            amlog.ok("compact", "--store", url_of(tmp_path))
        folder = tmp_path / "runs.db-index"
        left = content(tmp_path) if folder.exists() else b""
        for word in (b"secretword", b"sesam", b"Speakerrun"):
            assert word not in left
        if erase is not _forget_all:
            assert [hit.text for hit in me.search("secretword zebra")] == ["a zebra"]


def test_compact_removes_the_files_of_subjects_that_are_gone(tmp_path: Path, amlog: Amlog) -> None:
    with open_sync_store(url_of(tmp_path)) as store:
        me = SyncMemoryClient(store).of(Principal("acme", {"user": "1"}))
        me.remember(key="animal", value="zebra")
        me.search("zebra")
        (tmp_path / "runs.db-index" / "old").write_text("zebra")
        for run in ("records", "vectors"):
            store.delete_run("@memory/acme/user/1", run)
    amlog.ok("compact", "--store", url_of(tmp_path))
    assert list((tmp_path / "runs.db-index").iterdir()) == []


HOSTILE = ["../../etc/passwd", "a/b", "a", "A", "é", "e\u0301", "x" * 60, "..", "%2F", "CON", "\ud7ff"]


def test_hostile_ids_have_their_own_files_that_do_not_name_them(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    with open_sync_store(url_of(folder)) as store:
        client = SyncMemoryClient(store)
        names: dict[tuple[str, str], SyncMemory] = {}
        for tenant, user in [("t", name) for name in HOSTILE] + [(name, "u") for name in HOSTILE]:
            names[tenant, user] = client.of(Principal(tenant, {"user": user}))
            names[tenant, user].remember(key="animal", value=f"zebra of {len(names)}")
        texts = {name: [hit.text for hit in me.search("zebra")] for name, me in names.items()}
        assert len({str(text) for text in texts.values()}) == len(names) > 12
        again = SyncMemoryClient(store)
        for (tenant, user), text in texts.items():
            me = again.of(Principal(tenant, {"user": user}))
            assert [hit.text for hit in me.search("zebra")] == text
    files = [path.name for path in (folder / "runs.db-index").iterdir()]
    assert len({name.partition(".")[0] for name in files}) == len(names)
    assert all(set(name.partition("-")[0]) <= set("0123456789abcdef") for name in files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


def test_two_stores_in_one_folder_have_their_own_files(tmp_path: Path) -> None:
    for name in ("one.db", "two.db"):
        with open_sync_store(f"sqlite:///{tmp_path / name}") as store:
            me = SyncMemoryClient(store).of(Principal("acme", {"user": "1"}))
            me.remember(key="animal", value=f"zebra in {name}")
            assert [hit.record for hit in me.search("zebra")] == [me.get(key="animal")]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["one.db-index", "two.db-index"]


@pytest.mark.parametrize("more", range(3))
def test_a_store_that_a_backup_replaced_is_indexed_again(tmp_path: Path, amlog: Amlog, more: int) -> None:
    who = Principal("acme", {"user": "1"})
    with open_sync_store(url_of(tmp_path)) as store:
        for run in ("run", "old"):
            say(store, run, f"a zebra in {run}")
            SyncMemoryClient(store).of(who).link_run("agent", run)
        amlog.ok("backup", str(tmp_path / "backup.db"), "--store", url_of(tmp_path))
        SyncMemoryClient(store).of(who).search("zebra")
        say(store, "run", "the lost zebra")
        assert len(SyncMemoryClient(store).of(who).search("zebra")) == 3
    shutil.copyfile(tmp_path / "backup.db", tmp_path / "runs.db")
    with open_sync_store(url_of(tmp_path)) as store:
        say(store, "run", *(f"zebra {number} after the loss" for number in range(more)))
        expected = texts_and_scores(without_file(store).of(who).search("zebra"))
        assert len(expected) == 2 + more
        assert texts_and_scores(SyncMemoryClient(store).of(who).search("zebra")) == expected


def test_damage_is_never_an_error_of_a_search(tmp_path: Path) -> None:
    who = Principal("acme", {"user": "1"})
    with open_sync_store(url_of(tmp_path)) as store:
        say(store, "run", *(f"a zebra and number {number}" for number in range(300)))
        embedder = Meaning(tokens=True)
        client = SyncMemoryClient(store, embedder=embedder)
        client.of(who).link_run("agent", "run")
        expected = texts_and_scores(client.of(who).search("zebra 77"))
        (file,) = (path for path in (tmp_path / "runs.db-index").iterdir() if path.name.endswith(".db"))
        for seed in range(12):
            generator = random.Random(seed)
            data = bytearray(file.read_bytes())
            for _ in range(30):
                data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
            file.write_bytes(data)
            assert texts_and_scores(SyncMemoryClient(store, embedder=embedder).of(who).search("zebra 77")) == expected


def test_a_read_only_store_gets_no_files(tmp_path: Path) -> None:
    who = Principal("acme", {"user": "1"})
    with open_sync_store(url_of(tmp_path)) as store:
        say(store, "run", "a zebra")
        SyncMemoryClient(store).of(who).link_run("agent", "run")
    with open_sync_store(f"{url_of(tmp_path)}?mode=ro") as store:
        assert len(SyncMemoryClient(store).of(who).search("zebra")) == 1
    assert not (tmp_path / "runs.db-index").exists()


def test_a_new_process_reads_no_message_and_no_vector_again(tmp_path: Path) -> None:
    who = Principal("acme", {"user": "1"})
    with open_sync_store(url_of(tmp_path)) as store:
        say(store, "run", *(f"a puppy {number}" for number in range(20)))
        embedder = Meaning(tokens=True)
        SyncMemoryClient(store, embedder=embedder).of(who).link_run("agent", "run")
        expected = texts_and_scores(SyncMemoryClient(store, embedder=embedder).of(who).search("dog"))
        again = SyncMemoryClient(store, embedder=embedder).of(who)
        events: list[tuple[str, int]] = []
        raw = store.load_run

        def load_run(agent: str, run: str, **options: object) -> object:
            snapshot = raw(agent, run, **options)  # type: ignore[arg-type]  # the options of a load
            events.append((run, len(snapshot.log)))
            return snapshot

        store.load_run = load_run  # type: ignore[method-assign, assignment]  # counts the events
        assert texts_and_scores(again.search("dog")) == expected
        assert max(count for run, count in events if run in {"run", "vectors"}) <= 1
        assert len(embedder.asked) == 20
