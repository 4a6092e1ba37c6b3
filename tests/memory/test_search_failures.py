"""Tests searches that fail, are cancelled or meet other writers: they lose no data and leave no stale vectors."""

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
from agent_memory_log.recall.embedding import Kind
from agent_memory_log.recall.index import recall_index
from agent_memory_log.recall.index.vectors import VectorIndex
from tests.memory.stores import OpenStore, open_memory_store, somebody, store_url
from tests.memory.test_search_vectors import CLOCK, Meaning, client, subject_with_run, user_message, vectors
from tests.waiting import PATIENCE

__all__ = ["open_memory_store", "store_url"]


def texts(hits: Hits) -> list[str]:
    return sorted(hit.text for hit in hits)


@contextmanager
def replaced_call(me: SyncMemory, name: str, call: Callable[..., Any]) -> Generator[None]:
    """Replace one method of the client's store."""
    raw = getattr(me._store.get(), name)
    setattr(me._store.get(), name, call)
    try:
        yield
    finally:
        setattr(me._store.get(), name, raw)


def refuse(*_: object, **__: object) -> None:
    raise StoreUnavailable("not now")


def run_during_embedding(embedder: Meaning, action: Callable[[], object]) -> None:
    """Run ``action`` while the embedder embeds documents the next time."""
    raw = embedder.embed
    meanwhile = [action]

    def embed(texts: Sequence[str], kind: Kind) -> Embeddings:
        if kind == "document" and meanwhile:
            meanwhile.pop()()
        return raw(texts, kind)

    embedder.embed = embed  # type: ignore[method-assign]  # the same embedder with one more step


def delete_run_and_search(store: SyncStore, me: SyncMemory, agent: str) -> None:
    """Delete the run, and search without vectors, so that the index notices the deletion."""
    store.delete_run(agent, "run")
    me.search("")


def vector_messages(store: SyncStore, me: SyncMemory) -> set[tuple[str, int]]:
    """Return the run and seq of each message with stored vectors."""
    return {(data.run, data.seq) for data in vectors(store, me) if data.run}


def test_vectors_of_redacted_messages_are_removed_after_any_search(open_memory_store: OpenStore) -> None:
    store, me, agent = subject_with_run(open_memory_store, Meaning())
    me.search("dog")
    store.redact_events(agent, "run", [1])
    me.search("")
    me.search("rain")
    assert vector_messages(store, me) == {("run", 2), ("run", 3)}


def test_the_next_search_redacts_vectors_after_a_failed_redaction(open_memory_store: OpenStore) -> None:
    store, me, agent = subject_with_run(open_memory_store, Meaning())
    me.search("dog")
    store.redact_events(agent, "run", [1])
    with replaced_call(me, "redact_events", refuse):
        me.search("rain")
    assert len(vectors(store, me)) == 5
    me.search("rain")
    assert vector_messages(store, me) == {("run", 2), ("run", 3)}


def test_the_next_search_stores_vectors_after_a_failed_append(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, agent = subject_with_run(open_memory_store, embedder)
    with replaced_call(me, "append_events", refuse):
        me.search("rain")
    store.redact_events(agent, "run", [1])
    me.search("rain")
    assert vector_messages(store, me) == {("run", 2), ("run", 3)}
    assert (len(vectors(store, me)), len(embedder.asked)) == (4, 5)


def test_vectors_that_the_store_refuses_are_not_sent_again() -> None:
    with open_sync_store("memory:") as store:
        _, me, _ = subject_with_run(lambda: store, Meaning())
        offered: list[str] = []

        def too_large(_: str, run: str, *__: Event, **___: object) -> None:
            offered.append(run)
            raise InvalidArgument("too large")

        with replaced_call(me, "append_events", too_large):
            me.search("rain")
            me.search("rain")
        assert offered == [VECTORS_RUN]


@pytest.mark.parametrize("late", [0, 0.2], ids=["before it begins", "while it waits"])
async def test_the_next_search_stores_the_vectors_of_a_cancelled_search(late: float) -> None:
    may_continue = threading.Event()

    class Slow(Meaning):
        def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
            if kind == "document":
                may_continue.wait(PATIENCE)
            return super().embed(texts, kind)

    async with open_store("memory:") as store, asyncio.timeout(PATIENCE):
        embedder = Slow()
        me = MemoryClient(store, clock=CLOCK, embedder=embedder).of(somebody(user="1"))
        for text in ("a puppy", "a storm"):
            await me.remember(Episode("x"), text=text)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(me.search("dog"), 0.05)
        asyncio.get_running_loop().call_later(late, may_continue.set)
        assert (await me.search("dog"))[0].text == "a puppy"
        stored = await store.load_run(stream_of(me.principal.subject("user")), VECTORS_RUN)
        assert (len(stored.log), sorted(embedder.asked)) == (2, ["a puppy", "a storm"])


def test_a_run_deleted_during_embedding_leaves_no_vectors(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    store, me, agent = subject_with_run(open_memory_store, embedder)
    run_during_embedding(embedder, lambda: delete_run_and_search(store, me, agent))
    me.search("dog")
    # The deletion drops a record, so the index is built again, perhaps before a vector of this search is stored.
    assert len(set(embedder.asked)) == 5
    assert vector_messages(store, me) == set()


def test_a_run_deleted_while_its_vectors_are_stored_leaves_no_vectors(open_memory_store: OpenStore) -> None:
    store, me, agent = subject_with_run(open_memory_store, Meaning())
    raw = me._store.get().append_events
    meanwhile = [lambda: delete_run_and_search(store, me, agent)]

    def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
        if run == VECTORS_RUN and meanwhile:
            meanwhile.pop()()
        return raw(agent, run, *events, **options)

    with replaced_call(me, "append_events", append_events):
        me.search("dog")
    assert vector_messages(store, me) == set()


def test_a_rebuild_during_a_search_embeds_no_text_again(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    _, me, _ = subject_with_run(open_memory_store, embedder)
    expected = me.search("dog", top_k=9)
    raw = me._store.get().load_run
    # ``pop`` returns the last action first. The first load reads the vectors, and the rebuild precedes the second load.
    meanwhile: list[Callable[[], object]] = [lambda: (me.rebuild(), me.search("")), lambda: None]

    def load_run(agent: str, run: str, **options: Any) -> Any:
        if meanwhile:
            meanwhile.pop()()
        return raw(agent, run, **options)

    with replaced_call(me, "load_run", load_run):
        assert me.search("dog", top_k=9) == expected
    assert not meanwhile
    assert len(embedder.asked) == 5


def test_a_record_forgotten_during_embedding_is_not_found(open_memory_store: OpenStore) -> None:
    embedder = Meaning()
    _, me, _ = subject_with_run(open_memory_store, embedder)
    run_during_embedding(embedder, lambda: me.forget(key="pets"))
    hit_texts = texts(me.search("hound puppy", top_k=9))
    assert "my puppy ate it" in hit_texts
    assert not {"pets: hound", "pets=hound", ""}.intersection(hit_texts)


def test_a_rebuild_during_embedding_embeds_no_text_with_vectors_again() -> None:
    with open_sync_store("memory:") as store:
        embedder = Meaning()
        _, me, agent = subject_with_run(lambda: store, embedder)
        me.search("dog")
        store.append_events(agent, "run", user_message("one more dog"))
        run_during_embedding(embedder, lambda: (me.rebuild(), me.search("")))
        assert me.search("dog").note == ""
        assert set(embedder.asked[5:]) == {"one more dog"}
        assert len(vectors(store, me)) == 6


def test_an_index_switched_to_another_model_is_compared_by_words_only() -> None:
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

        run_during_embedding(embedder, use_another)
        hits = me.search("hound", top_k=9)
        assert {hit.record.scope for hit in hits if hit.record and "vectors" in hit.matched_by} == {"workspace"}


def test_vectors_of_another_dimension_are_stored_after_a_conflict() -> None:
    with open_sync_store("memory:") as store:
        embedder = Meaning()
        _, me, _ = subject_with_run(lambda: store, embedder)
        me.search("dog")
        embedder.dimension += 1
        raw = me._store.get().append_events
        meanwhile = [lambda: client(store, Meaning("other")).of(me.principal).search("dog")]

        def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
            if run == VECTORS_RUN and meanwhile:
                meanwhile.pop()()
            return raw(agent, run, *events, **options)

        # Both clients share the store. ``meanwhile`` is empty for the inner call, so it does not recurse.
        with replaced_call(me, "append_events", append_events):
            me.search("dog")
        models = [(item.model, item.dimension) for item in vectors(store, me)]
        assert {item: models.count(item) for item in models} == {("meaning", 4): 5, ("meaning", 5): 5, ("other", 4): 5}


def test_search_works_after_the_vector_stream_was_deleted() -> None:
    with open_sync_store("memory:") as store:
        embedder = Meaning()
        _, me, agent = subject_with_run(lambda: store, embedder)
        me.search("dog")
        store.delete_run(stream_of(me.principal.subject("user")), VECTORS_RUN)
        store.append_events(agent, "run", user_message("another dog"))
        assert "another dog" in texts(me.search("dog"))
        store.redact_events(agent, "run", [1, 4])
        me.search("rain")
        assert vectors(store, me) == []


def test_vectors_are_discarded_if_the_model_changes_during_embedding() -> None:
    with open_sync_store("memory:") as store:
        embedder = Meaning()
        _, me, _ = subject_with_run(lambda: store, embedder)
        raw = embedder.embed

        def embed(texts: Sequence[str], kind: Kind) -> Embeddings:
            if kind == "document" and embedder.model == "meaning":
                embedder.model = "other"
            return raw(texts, kind)

        embedder.embed = embed  # type: ignore[method-assign]  # the model is replaced during a call
        hits = me.search("a hound", top_k=9)
        assert "the model changed to other" in hits.note
        assert hits
        assert not any("vectors" in hit.matched_by for hit in hits)
        assert vectors(store, me) == []
        assert me.search("dog").note == ""
        assert {data.model for data in vectors(store, me)} == {"other"}


class Odd:
    """An embedder with configurable properties. Exceptions among them are raised."""

    def __init__(self, **properties: Any) -> None:
        self._properties: dict[str, Any] = {
            "model": "odd",
            "dimension": 3,
            "answer": Embeddings(np.ones((1, 3), np.float32)),
            **properties,
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
        answer = self._properties[name]
        if isinstance(answer, BaseException):
            raise answer
        return answer


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
def test_search_compares_words_if_the_embedder_is_invalid(odd: dict[str, Any], note: str) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, embedder=Odd(**odd)).of(somebody(user="1"))
        me.remember(key="pets", value="hound")
        hits = me.search("hound")
        assert texts(hits) == ["pets: hound"]
        assert note in hits.note


def test_a_dimension_may_be_a_numpy_integer() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, embedder=Odd(dimension=np.int64(3))).of(somebody(user="1"))
        me.remember(key="pets", value="hound")
        assert me.search("hound").note == ""
        assert len(vectors(store, me)) == 1


@pytest.mark.parametrize(
    ("owner", "name"), [(recall_index, "analyse"), (recall_index, "properties_of"), (VectorIndex, "put")]
)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_index_is_built_again(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, error: type[BaseException]
) -> None:
    with open_sync_store("memory:") as store:
        _, me, agent = subject_with_run(lambda: store, Meaning())
        store.append_events(agent, "run", user_message("one more dog"))
        raw = getattr(owner, name)
        calls_left = [3]

        def fail_third_call(*arguments: Any) -> Any:
            calls_left[0] -= 1
            if not calls_left[0]:
                raise error
            return raw(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail_third_call)
            with pytest.raises(error):
                me.search("dog")
        hits = me.search("dog", top_k=50)
        assert hits == client(store, Meaning()).of(me.principal).search("dog", top_k=50)
        assert len(vectors(store, me)) == 6


async def test_a_search_that_waits_for_the_index_does_not_block_the_loop() -> None:
    async with open_store("memory:") as store, asyncio.timeout(PATIENCE):
        memory = MemoryClient(store, clock=CLOCK)
        me = memory.of(somebody(user="1"))
        await me.remember(key="zebra", value="kim")
        await me.search("zebra")
        (index,) = memory._indexes._indexes.values()
        is_held, may_release = threading.Event(), threading.Event()

        def hold_the_lock() -> None:
            with index._lock:
                is_held.set()
                may_release.wait(PATIENCE)

        indexing = asyncio.create_task(asyncio.to_thread(hold_the_lock))
        await asyncio.to_thread(is_held.wait, PATIENCE)
        searching = asyncio.create_task(me.search("zebra"))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not searching.done()
        may_release.set()
        assert texts(await searching) == ["zebra: kim"]
        await indexing


async def test_context_works_if_the_subject_leaves_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "WARM_SUBJECTS", 1)
    async with open_store("memory:") as store:
        me = MemoryClient(store, clock=CLOCK).of(Principal("many", {"user": "1", "workspace": "2"}))
        await store.append_events("agent", "run", user_message("The zebra is late"))
        await me.link_run("agent", "run")
        memory_context = await me.context("zebra")
        assert [evidence.seq for evidence in memory_context.messages] == [1]
