"""What goes wrong in the middle of a search, or is broken off there, loses nothing and leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from agent_memory_log import Event, SyncStore, open_store, open_sync_store
from agent_memory_log.errors import InvalidArgument, StoreUnavailable
from agent_memory_log.memory import Episode, Hits, MemoryClient, Principal, SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.records.principals import VECTORS_RUN
from agent_memory_log.memory.stream import context as contexts
from agent_memory_log.recall import Embeddings
from agent_memory_log.recall import index as recall_index
from agent_memory_log.recall.embedding import Kind
from agent_memory_log.recall.vectors import VectorIndex
from tests.memory.stores import OpenStore, open_memory_store, somebody, store_url
from tests.memory.test_search_vectors import CLOCK, Meaning, client, life, said, vectors
from tests.waiting import PATIENCE

__all__ = ["open_memory_store", "store_url"]


def texts(hits: Hits) -> list[str]:
    return sorted(hit.text for hit in hits)


@contextmanager
def instead(me: SyncMemory, name: str, call: Callable[..., Any]) -> Generator[None]:
    """Another call in place of one of the store's."""
    raw = getattr(me._store, name)
    setattr(me._store, name, call)
    try:
        yield
    finally:
        setattr(me._store, name, raw)


def refuse(*_: object, **__: object) -> None:
    raise StoreUnavailable("not now")


def embed_in_the_middle(embedder: Meaning, happen: Callable[[], object]) -> None:
    """Let something happen while documents are embedded the next time."""
    raw = embedder.embed
    meanwhile = [happen]

    def embed(texts: Sequence[str], kind: Kind) -> Embeddings:
        if kind == "document" and meanwhile:
            meanwhile.pop()()
        return raw(texts, kind)

    embedder.embed = embed  # type: ignore[method-assign]  # another embedder, but for that


def delete_and_look(store: SyncStore, me: SyncMemory, agent: str) -> None:
    """Delete the run; and let a search that needs no vectors see it."""
    store.delete_run(agent, "run")
    me.search("")


def places(store: SyncStore, me: SyncMemory) -> set[tuple[str, int]]:
    """The messages whose vectors stand in the store."""
    return {(one.run, one.seq) for one in vectors(store, me) if one.run}


def test_vectors_go_whichever_search_saw_that_their_text_is_gone(open_memory_store: OpenStore) -> None:
    store, me, agent = life(open_memory_store, Meaning())
    me.search("dog")
    store.redact_events(agent, "run", [1])
    me.search("")
    me.search("rain")
    assert places(store, me) == {("run", 2), ("run", 3)}


def test_vectors_that_could_not_be_redacted_are_redacted_later(open_memory_store: OpenStore) -> None:
    store, me, agent = life(open_memory_store, Meaning())
    me.search("dog")
    store.redact_events(agent, "run", [1])
    with instead(me, "redact_events", refuse):
        me.search("rain")
    assert len(vectors(store, me)) == 5
    me.search("rain")
    assert places(store, me) == {("run", 2), ("run", 3)}


def test_vectors_that_could_not_be_stored_are_stored_later(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, agent = life(open_memory_store, embedder)
    with instead(me, "append_events", refuse):
        me.search("rain")
    store.redact_events(agent, "run", [1])
    me.search("rain")
    assert places(store, me) == {("run", 2), ("run", 3)}
    assert (len(vectors(store, me)), len(embedder.asked)) == (4, 5)


def test_what_a_store_refuses_for_good_is_not_offered_again() -> None:
    with open_sync_store("memory:") as store:
        _, me, _ = life(lambda: store, Meaning())
        offered: list[str] = []

        def too_large(_: str, run: str, *__: Event, **___: object) -> None:
            offered.append(run)
            raise InvalidArgument("too large")

        with instead(me, "append_events", too_large):
            me.search("rain")
            me.search("rain")
        assert offered == [VECTORS_RUN]


@pytest.mark.parametrize("late", [0, 0.2], ids=["before it begins", "while it waits"])
async def test_what_was_embedded_in_a_search_that_was_cancelled_is_stored_by_the_next(late: float) -> None:
    goes_on = threading.Event()

    class Slow(Meaning):
        def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
            if kind == "document":
                goes_on.wait(PATIENCE)
            return super().embed(texts, kind)

    async with open_store("memory:") as store, asyncio.timeout(PATIENCE):
        embedder = Slow()
        me = MemoryClient(store, clock=CLOCK, embedder=embedder).of(somebody(user="1"))
        for text in ("a puppy", "a storm"):
            await me.remember(Episode("x"), text=text)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(me.search("dog"), 0.05)
        asyncio.get_running_loop().call_later(late, goes_on.set)
        assert (await me.search("dog"))[0].text == "a puppy"
        stored = await store.load_run(stream_of(me.principal.subject("user")), VECTORS_RUN)
        assert (len(stored.log), sorted(embedder.asked)) == (2, ["a puppy", "a storm"])


def test_what_is_deleted_while_it_is_embedded_leaves_no_vectors(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, agent = life(open_memory_store, embedder)
    embed_in_the_middle(embedder, lambda: delete_and_look(store, me, agent))
    me.search("dog")
    assert len(embedder.asked) == 5
    assert places(store, me) == set()


def test_what_is_deleted_while_its_vectors_are_stored_leaves_none(open_memory_store: OpenStore) -> None:
    store, me, agent = life(open_memory_store, Meaning())
    raw = me._store.append_events
    meanwhile = [lambda: delete_and_look(store, me, agent)]

    def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
        if run == VECTORS_RUN and meanwhile:
            meanwhile.pop()()
        return raw(agent, run, *events, **options)

    with instead(me, "append_events", append_events):
        me.search("dog")
    assert places(store, me) == set()


def test_what_is_read_anew_meanwhile_is_not_embedded_again(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    _, me, _ = life(open_memory_store, embedder)
    found = me.search("dog", top_k=9)
    raw = me._store.load_run
    # The first one is that of the vectors.
    meanwhile: list[Callable[[], object]] = [lambda: (me.rebuild(), me.search("")), lambda: None]

    def load_run(agent: str, run: str, **options: Any) -> Any:
        if meanwhile:
            meanwhile.pop()()
        return raw(agent, run, **options)

    with instead(me, "load_run", load_run):
        assert me.search("dog", top_k=9) == found
    assert not meanwhile
    assert len(embedder.asked) == 5


def test_what_is_forgotten_while_it_is_embedded_is_not_found(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    _, me, _ = life(open_memory_store, embedder)
    embed_in_the_middle(embedder, lambda: me.forget(key="pets"))
    found = texts(me.search("hound puppy", top_k=9))
    assert "my puppy ate it" in found
    assert not {"pets: hound", "pets=hound", ""}.intersection(found)


def test_what_has_vectors_is_not_embedded_again_where_all_is_read_anew_meanwhile() -> None:
    with open_sync_store("memory:") as store:
        embedder = Meaning()
        _, me, agent = life(lambda: store, embedder)
        me.search("dog")
        store.append_events(agent, "run", said("one more dog"))
        embed_in_the_middle(embedder, lambda: (me.rebuild(), me.search("")))
        assert me.search("dog").note == ""
        assert set(embedder.asked[5:]) == {"one more dog"}
        assert len(vectors(store, me)) == 6


def test_an_index_that_was_given_another_model_meanwhile_is_not_compared_by_it() -> None:
    with open_sync_store("memory:") as store:
        embedder = Meaning()
        me = client(store, embedder).of(somebody())
        for scope in ("user", "workspace"):
            me.remember(key="pets", value="hound", scope=scope)
            me.remember(key="weather", value="bad", scope=scope)
        me.search("dog")
        me.remember(key="food", value="dog", scope="workspace")

        def use_another() -> None:
            embedder.model = "other"
            me.search("dog", scopes=["user"])
            embedder.model = "meaning"

        embed_in_the_middle(embedder, use_another)
        hits = me.search("hound", top_k=9)
        assert {hit.record.scope for hit in hits if hit.record and "vectors" in hit.matched_by} == {"workspace"}


def test_vectors_of_another_dimension_are_stored_though_another_client_was_faster() -> None:
    with open_sync_store("memory:") as store:
        embedder = Meaning()
        _, me, _ = life(lambda: store, embedder)
        me.search("dog")
        embedder.dimension += 1
        raw = me._store.append_events
        meanwhile = [lambda: client(store, Meaning("other")).of(me.principal).search("dog")]

        def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
            if run == VECTORS_RUN and meanwhile:
                meanwhile.pop()()
            return raw(agent, run, *events, **options)

        # One store for both: what is called in between must not call again.
        with instead(me, "append_events", append_events):
            me.search("dog")
        made = [(one.model, one.dimension) for one in vectors(store, me)]
        assert {one: made.count(one) for one in made} == {("meaning", 4): 5, ("meaning", 5): 5, ("other", 4): 5}


def test_vectors_whose_stream_was_deleted_hinder_nothing() -> None:
    with open_sync_store("memory:") as store:
        embedder = Meaning()
        _, me, agent = life(lambda: store, embedder)
        me.search("dog")
        store.delete_run(stream_of(me.principal.subject("user")), VECTORS_RUN)
        store.append_events(agent, "run", said("another dog"))
        assert "another dog" in texts(me.search("dog"))
        store.redact_events(agent, "run", [1, 4])
        me.search("rain")
        assert vectors(store, me) == []


def test_a_model_that_becomes_another_meanwhile_is_not_mixed() -> None:
    with open_sync_store("memory:") as store:
        embedder = Meaning()
        _, me, _ = life(lambda: store, embedder)
        raw = embedder.embed

        def embed(texts: Sequence[str], kind: Kind) -> Embeddings:
            if kind == "document" and embedder.model == "meaning":
                embedder.model = "other"
            return raw(texts, kind)

        embedder.embed = embed  # type: ignore[method-assign]  # a model that is replaced while it is asked
        hits = me.search("a hound", top_k=9)
        assert "the model changed to other" in hits.note
        assert hits
        assert not any("vectors" in hit.matched_by for hit in hits)
        assert vectors(store, me) == []
        assert me.search("dog").note == ""
        assert {one.model for one in vectors(store, me)} == {"other"}


class Odd:
    """An embedder that says what it is told to say."""

    def __init__(self, **said: Any) -> None:
        self._said: dict[str, Any] = {
            "model": "odd",
            "dimension": 3,
            "answer": Embeddings(np.ones((1, 3), np.float32)),
            **said,
        }

    @property
    def model(self) -> Any:
        return self._answer("model")

    @property
    def dimension(self) -> Any:
        return self._answer("dimension")

    def embed(self, texts: Sequence[str], kind: Kind) -> Any:  # noqa: ARG002  # the protocol's
        return self._answer("answer")

    def _answer(self, name: str) -> Any:
        found = self._said[name]
        if isinstance(found, BaseException):
            raise found
        return found


@pytest.mark.parametrize(
    ("odd", "note"),
    [
        ({"dimension": 0, "answer": Embeddings(np.ones((1, 0), np.float32))}, "dimension must be an integer from 1"),
        ({"dimension": "3"}, "dimension must be an integer from 1"),
        ({"dimension": OSError("no weights")}, "no weights"),
        ({"model": 3}, "model must be text"),
        ({"model": OSError("no name")}, "Odd failed"),
        ({"answer": TimeoutError()}, "TimeoutError"),
        ({"answer": [[1.0, 0.0, 0.0]]}, "must return Embeddings"),
    ],
)
def test_whatever_is_wrong_with_an_embedder_words_are_compared(odd: dict[str, Any], note: str) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, embedder=Odd(**odd)).of(somebody(user="1"))
        me.remember(key="pets", value="hound")
        hits = me.search("hound")
        assert texts(hits) == ["pets: hound"]
        assert note in hits.note


def test_a_dimension_may_be_numpys() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, embedder=Odd(dimension=np.int64(3))).of(somebody(user="1"))
        me.remember(key="pets", value="hound")
        assert me.search("hound").note == ""
        assert len(vectors(store, me)) == 1


def test_what_is_no_embedder_is_named() -> None:
    with open_sync_store("memory:") as store:
        anything: Any = "all-MiniLM-L6-v2"
        me = SyncMemoryClient(store, embedder=anything).of(somebody(user="1"))
        with pytest.raises(InvalidArgument, match=r"embedder must have model, dimension and embed.*all-MiniLM-L6-v2"):
            me.search("dog")


@pytest.mark.parametrize(
    ("owner", "name"), [(recall_index, "analyse"), (recall_index, "turn_of"), (VectorIndex, "put")]
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_index_that_was_broken_off_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: type[BaseException]
) -> None:
    with open_sync_store("memory:") as store:
        _, me, agent = life(lambda: store, Meaning())
        store.append_events(agent, "run", said("one more dog"))
        raw = getattr(owner, name)
        left = [3]

        def break_off(*given: Any) -> Any:
            left[0] -= 1
            if not left[0]:
                raise error
            return raw(*given)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, break_off)
            with pytest.raises(error):
                me.search("dog")
        found = me.search("dog", top_k=50)
        assert found == client(store, Meaning()).of(me.principal).search("dog", top_k=50)
        assert len(vectors(store, me)) == 6


async def test_a_search_that_waits_for_another_keeps_nobody_else_waiting() -> None:
    async with open_store("memory:") as store, asyncio.timeout(PATIENCE):
        memory = MemoryClient(store, clock=CLOCK)
        me = memory.of(somebody(user="1"))
        await me.remember(key="zebra", value="kim")
        await me.search("zebra")
        (index,) = memory._indexes._indexes.values()
        is_held, lets_go = threading.Event(), threading.Event()

        def index_much() -> None:
            with index._lock:
                is_held.set()
                lets_go.wait(PATIENCE)

        indexing = asyncio.create_task(asyncio.to_thread(index_much))
        await asyncio.to_thread(is_held.wait, PATIENCE)
        found = asyncio.create_task(me.search("zebra"))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not found.done()
        lets_go.set()
        assert texts(await found) == ["zebra: kim"]
        await indexing


async def test_context_needs_no_subject_to_stay_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "WARM_SUBJECTS", 1)
    async with open_store("memory:") as store:
        me = MemoryClient(store, clock=CLOCK).of(Principal("many", {"user": "1", "workspace": "2"}))
        await store.append_events("agent", "run", said("The zebra is late"))
        await me.link_run("agent", "run")
        told = await me.context("zebra")
        assert [one.seq for one in told.messages] == [1]
