"""A client of a server embeds texts and queries itself, and finds the same as with an embedded store."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import SyncStore, UserMessage, new_event, open_store, open_sync_store
from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument, MemoryStopped
from agent_memory_log.memory import Episode, MemoryClient, Principal, SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.records.principals import VECTORS_RUN
from agent_memory_log.memory.records.vectors import QueryVectors, TextVectors, VectorsReport
from agent_memory_log.memory.search.packing import MOST_BYTES, MOST_TOKENS, read_query, sent_query
from agent_memory_log.memory.stream.payloads import MemoryVectors
from agent_memory_log.recall import Embedded, Embeddings
from agent_memory_log.recall.embedding import Kind, unit
from agent_memory_log.service.callers import OneCaller
from agent_memory_log.service.grants import RIGHTS, Grant
from tests.memory.stores import SaidPreferences, SetClock
from tests.memory.surfaces import SyncServedStore, sync_client_of
from tests.memory.test_search_vectors import Meaning
from tests.service.serving import serving

PRINCIPAL = Principal("acme", {"user": "1", "workspace": "ops"})
OTHER = Principal("acme", {"user": "2"})

_numbers = itertools.count()


class Side:
    """A store with memories, which is used as an embedded one and as one on a server."""

    def __init__(self) -> None:
        self.store: SyncStore = open_sync_store(f"memory:sent-{next(_numbers)}")
        self.clock = SetClock()
        self.server = SyncMemoryClient(self.store, clock=self.clock, extractor=SaidPreferences())

    def embedded(self, embedder: Meaning, principal: Principal = PRINCIPAL) -> SyncMemory:
        client = SyncMemoryClient(self.store, clock=self.clock, extractor=SaidPreferences(), embedder=embedder)
        return client.of(principal)

    def remote(self, embedder: Any, principal: Principal = PRINCIPAL, rights: Sequence[Any] = RIGHTS) -> SyncMemory:
        grant = Grant("caller", frozenset(rights), principal, ("*",))
        return sync_client_of(SyncServedStore(self.server, grant), embedder=embedder).of(principal)

    def seed(self, me: SyncMemory) -> None:
        for number, text in enumerate(("my puppy ate it", "pets=hound", "a storm is coming")):
            event = new_event(UserMessage(text), event_id=f"{number}", timestamp=self.clock())
            self.store.append_events("chat", "run", event)
        me.derive("chat", "run")
        me.remember(Episode("x"), text="the automobile broke")
        me.remember(key="car", value="an old vehicle", scope="workspace")

    def stored(self, principal: Principal = PRINCIPAL, scope: str = "user") -> int:
        """Return the number of stored vectors."""
        run = self.store.load_run(stream_of(principal.subject(scope)), VECTORS_RUN, types=["memory_vectors"])
        return len(run.log)


def answers(me: SyncMemory, query: str) -> str:
    """Return everything that a search and a context say, without ids."""
    hits, context = me.search(query, top_k=9), me.context(query)
    texts = [(hit.text, hit.score, dict(hit.matched_by)) for hit in hits]
    of_context = (context.text, context.note, context.tokens, context.scopes_to_embed)
    return repr((texts, hits.note, hits.plan, hits.scopes_to_embed, *of_context))


class Weighed(Meaning):
    """An embedder that says which word each token of a question is part of, so that rare words weigh more."""

    def __init__(self) -> None:
        super().__init__(tokens=True)

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        words = tuple(tuple(text.casefold().split()) for text in texts)
        return msgspec.structs.replace(super().embed(texts, kind), words=words)


@pytest.mark.parametrize("model", [Meaning, lambda: Meaning(tokens=True), Weighed])
@pytest.mark.parametrize("query", ["dog", "vehicle", "weather", "who broke it?", "the puppy storm", " "])
def test_a_remote_client_with_an_embedder_finds_what_an_embedded_one_finds(
    query: str, model: Callable[[], Meaning]
) -> None:
    local, server = Side(), Side()
    embedded, remote = local.embedded(model()), server.remote(model())
    local.seed(embedded)
    server.seed(remote)
    for _ in range(2):  # the second time, all texts have vectors
        assert answers(remote, query) == answers(embedded, query)
    if query.strip():
        assert server.stored() == local.stored() == 5
        assert server.stored(scope="workspace") == 1


TEXTS = ("the automobile broke", "a puppy barked", "a storm is coming", "nothing of note")


async def test_the_same_holds_over_http() -> None:
    embedder = Meaning(tokens=True)
    url, other = f"memory:sent-{next(_numbers)}", f"memory:sent-{next(_numbers)}"
    async with open_store(url) as store:
        me = MemoryClient(store, embedder=embedder).of(PRINCIPAL)
        for text in TEXTS:
            await me.remember(Episode("x"), text=text)
        expected = [(hit.text, round(hit.score, 6)) for hit in await me.search("vehicle")]
    assert expected[0][0] == TEXTS[0]
    with serving(lambda: open_store(other), callers=OneCaller(PRINCIPAL)) as server:
        config = {"mode": "remote", "base_url": server.url}
        async with MemoryClient(config=config, embedder=embedder) as client:
            for text in TEXTS:
                await client.remember(Episode("x"), text=text)
            assert [(hit.text, round(hit.score, 6)) for hit in await client.search("vehicle")] == expected
        with SyncMemoryClient(config=config, embedder=embedder) as sync_client:
            assert [(hit.text, round(hit.score, 6)) for hit in sync_client.search("vehicle")] == expected
    assert embedder.asked == [*TEXTS, *TEXTS]  # once for each store


def test_each_text_is_embedded_once_by_all_clients() -> None:
    side = Side()
    first, second, embedded = Meaning(), Meaning(), Meaning()
    me = side.remote(first)
    side.seed(me)
    me.search("dog")
    assert len(first.asked) == 6
    assert answers(side.remote(second), "dog") == answers(me, "dog") == answers(side.embedded(embedded), "dog")
    assert second.asked == embedded.asked == []


class Interrupted(Meaning):
    """An embedder that does something else before it embeds the first texts."""

    def __init__(self, first: Callable[[], object]) -> None:
        super().__init__()
        self._first = [first]

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        if kind == "document" and self._first:
            self._first.pop()()
        return super().embed(texts, kind)


def test_two_clients_that_embed_at_once_get_the_same() -> None:
    side = Side()
    second = side.remote(Meaning())
    during: list[str] = []
    first = side.remote(Interrupted(lambda: during.append(answers(second, "dog"))))
    side.seed(first)
    after = answers(first, "dog")
    assert [after] == during
    assert side.stored() == 5


def test_texts_that_change_while_they_are_embedded() -> None:
    local, server = Side(), Side()
    remote = server.remote(Interrupted(lambda: change(server, server.remote(None))))

    def change(side: Side, me: SyncMemory) -> None:
        me.remember(key="pets", value="a horse")  # in place of "hound"
        (broken,) = [record.id for record in me.list() if record.text == "the automobile broke"]
        me.delete(broken)  # archives
        me.forget(key="car", scope="workspace")
        side.store.append_events("chat", "run", new_event(UserMessage("a dog barked"), timestamp=side.clock()))

    server.seed(remote)
    after = answers(remote, "dog")
    embedded = local.embedded(Meaning())
    local.seed(embedded)
    change(local, embedded)
    assert after == answers(embedded, "dog")
    assert "the automobile broke" not in after
    assert server.stored() == local.stored() == 5
    assert server.stored(scope="workspace") == 0


class Breaking(Meaning):
    """An embedder that fails after the first batch of texts."""

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        if kind == "document" and self.asked:
            raise OSError("no route to the model")
        return super().embed(texts, kind)


def test_a_client_continues_where_a_model_failed() -> None:
    side = Side()
    me = side.remote(Breaking())
    for number in range(200):
        me.remember(Episode("x"), text=f"storm {number}" if number < 3 else f"note {number}")
    hits = me.search("storm")
    assert "no route to the model" in hits.note
    assert "vectors" not in hits[0].matched_by
    assert side.stored() == 128
    well = Meaning()
    assert side.remote(well).search("rain").note == ""
    assert len(well.asked) == 72


def test_a_client_continues_where_an_embedded_one_began_to_change_the_model() -> None:
    side = Side()
    old = side.embedded(Meaning("old"))
    for number in range(200):
        old.remember(Episode("x"), text=f"note {number}")
    old.search("dog")
    assert "no route to the model" in side.embedded(Breaking("new")).search("dog").note
    assert side.stored() == 328
    new = Meaning("new")
    me = side.remote(new)
    assert me.search("dog").note == ""
    assert len(new.asked) == 72
    assert me.texts_to_embed("new", 4) == ()


def test_a_text_whose_stored_vectors_are_unreadable_is_compared_by_words() -> None:
    side = Side()
    embedder = Meaning()
    me = side.remote(embedder)
    me.remember(Episode("x"), text="the automobile broke")
    (text,) = me.texts_to_embed("meaning", 4)
    wrong = MemoryVectors("meaning", 4, b"123", text.seq, text.record)
    side.store.append_events(stream_of(PRINCIPAL.subject("user")), VECTORS_RUN, new_event(wrong), reserved=True)
    hits = me.search("automobile")
    assert [hit.text for hit in hits] == ["the automobile broke"]
    assert hits.note == "texts without vectors were compared by words"
    assert hits.scopes_to_embed == ()
    assert embedder.asked == ["the automobile broke"]


def test_many_texts_take_several_calls() -> None:
    side = Side()
    embedder = Meaning()
    me = side.remote(embedder)
    for number in range(300):
        me.remember(Episode("x"), text=f"storm {number}" if number < 3 else f"note {number}")
    assert {hit.text for hit in me.search("rain", top_k=3)} == {"storm 0", "storm 1", "storm 2"}
    assert len(embedder.asked) == side.stored() == 300
    assert me.texts_to_embed(embedder.model, embedder.dimension) == ()


def test_another_model_is_refused_until_the_vectors_are_dropped() -> None:
    side = Side()
    me = side.remote(Meaning("old"))
    side.seed(me)
    expected = answers(me, "dog")
    new = side.remote(Meaning("new"))
    for call in (lambda: new.search("dog"), lambda: new.context("dog"), lambda: new.texts_to_embed("new", 4)):
        with pytest.raises(InvalidArgument, match=r"vectors of the model 'old'.*'new'.*drop_vectors"):
            call()
    with pytest.raises(InvalidArgument, match="vectors of the model 'old' with the dimension 4"):
        new.store_vectors("old", 3, [TextVectors("user", "AQID", "x")])
    assert answers(me, "dog") == expected
    embedded_too = side.embedded(Meaning("old"))
    assert answers(embedded_too, "dog") == expected
    assert new.drop_vectors() == 6
    assert (side.stored(), side.stored(scope="workspace")) == (0, 0)
    assert answers(new, "dog") == expected
    assert side.stored() == 5
    with pytest.raises(InvalidArgument, match="vectors of the model 'new'"):
        me.search("dog")


def test_dropped_vectors_are_not_compared_and_are_embedded_again() -> None:
    side = Side()
    embedder = Meaning()
    me, other = side.remote(embedder), side.embedded(Meaning())
    side.seed(me)
    expected = answers(me, "dog")
    assert answers(other, "dog") == expected
    me.drop_vectors()
    assert len(me.texts_to_embed(embedder.model, embedder.dimension)) == 6
    assert answers(me, "dog") == answers(other, "dog") == expected
    assert len(embedder.asked) == 12


def test_a_model_that_fails_leaves_words_and_a_note_as_in_an_embedded_store() -> None:
    local, server = Side(), Side()
    failing, other = Meaning(), Meaning()
    embedded, remote = local.embedded(failing), server.remote(other)
    local.seed(embedded)
    server.seed(remote)
    failing.fails = other.fails = True
    assert "no route to the model" in answers(remote, "storm")
    assert answers(remote, "storm") == answers(embedded, "storm")
    failing.fails = other.fails = False
    failing.fails_once = other.fails_once = True
    assert answers(remote, "storm") == answers(embedded, "storm")
    assert server.stored() == 5


def test_a_client_without_an_embedder_compares_words() -> None:
    side = Side()
    side.seed(side.remote(Meaning()))
    side.remote(Meaning()).search("dog")
    assert side.remote(None).search("storm")[0].text == "a storm is coming"
    assert not any("vectors" in hit.matched_by for hit in side.remote(None).search("storm", top_k=9))


def test_a_token_that_may_only_read_uses_the_stored_vectors_and_embeds_no_text() -> None:
    side = Side()
    writer = side.remote(Meaning())
    side.seed(writer)
    writer.search("dog")
    embedder = Meaning()
    reader = side.remote(embedder, rights=["read"])
    assert answers(reader, "dog") == answers(writer, "dog")
    writer.remember(Episode("x"), text="a dog barked")
    hits = reader.search("hound", top_k=9)
    assert any("vectors" in hit.matched_by for hit in hits)
    assert "the token may not write" in hits.note
    assert embedder.asked == []
    assert side.stored() == 5


def test_vectors_for_the_records_of_others_are_left_out() -> None:
    side = Side()
    mine, yours = side.remote(Meaning()), side.remote(Meaning(), OTHER)
    record = mine.remember(Episode("x"), text="the automobile broke").record
    assert record is not None
    side.store.append_events("chat", "mine", new_event(UserMessage("my puppy"), timestamp=side.clock()))
    mine.link_run("chat", "mine")
    assert {text.text for text in mine.texts_to_embed("meaning", 4)} == {"the automobile broke", "my puppy"}
    assert yours.texts_to_embed("meaning", 4) == ()
    for text in mine.texts_to_embed("meaning", 4):
        vectors = TextVectors("user", _rows(4), text.record, text.agent, text.run, text.seq)
        assert yours.store_vectors("meaning", 4, [vectors]) == VectorsReport(0, 1)
        with pytest.raises(MemoryStopped, match="workspace"):
            yours.store_vectors("meaning", 4, [TextVectors("workspace", _rows(4), text.record)])
    assert side.stored() == side.stored(OTHER) == 0
    assert len(mine.texts_to_embed("meaning", 4)) == 2


def test_stored_vectors_are_not_replaced() -> None:
    side = Side()
    me = side.remote(Meaning())
    me.remember(Episode("x"), text="the automobile broke")
    expected = answers(me, "car")
    (text,) = [record.id for record in me.list()]
    seq = side.store.load_run(stream_of(PRINCIPAL.subject("user")), VECTORS_RUN).log[0].data.to_map()["seq"]
    assert isinstance(seq, int)
    forged = TextVectors("user", _rows(4), text, "", "", seq)
    assert me.store_vectors("meaning", 4, [forged, forged]) == VectorsReport(0, 2)
    assert answers(me, "car") == expected


def test_a_forgotten_text_gets_no_vectors() -> None:
    side = Side()
    me = side.remote(Meaning())
    me.remember(key="pet", value="a hound")
    (text,) = me.texts_to_embed("meaning", 4)
    me.forget(key="pet")
    late = TextVectors(text.scope, _rows(4), text.record, text.agent, text.run, text.seq)
    assert me.store_vectors("meaning", 4, [late]) == VectorsReport(0, 1)
    assert side.stored() == 0


def _rows(size: int) -> str:
    return base64.b64encode(bytes(range(1, size + 1))).decode()


WRONG_TEXTS = {
    "no base64": "AQI*",
    "not ASCII": "AQIé",
    "no rows": "",
    "a part of a row": _rows(5),
    "too many rows": base64.b64encode(bytes(MOST_BYTES + 4)).decode(),
    "far too long": "A" * (4 * MOST_BYTES),
}


@pytest.mark.parametrize("wrong", WRONG_TEXTS)
def test_wrong_vectors_of_texts_are_refused_before_any_is_stored(wrong: str) -> None:
    side = Side()
    me = side.remote(Meaning())
    side.seed(me)
    texts = me.texts_to_embed("meaning", 4)
    vectors = [TextVectors(text.scope, _rows(4), text.record, text.agent, text.run, text.seq) for text in texts]
    with pytest.raises(InvalidArgument, match=rf"^vectors\[{len(vectors)}\]\.rows must be|^vectors\[{len(vectors)}\]"):
        me.store_vectors("meaning", 4, [*vectors, TextVectors("user", WRONG_TEXTS[wrong], "x")])
    assert side.stored() == 0


def test_limits_of_calls_are_checked() -> None:
    me = Side().remote(Meaning())
    with pytest.raises(InvalidArgument, match=r"^vectors must be those of at most 128 texts, got 129"):
        me.store_vectors("m", 4, [TextVectors("user", _rows(4), "x")] * 129)
    for model in ("", "m" * 513):
        with pytest.raises(InvalidArgument, match=r"^model must have 1 to 512 characters"):
            me.texts_to_embed(model, 4)
    for dimension in (0, 16_385):
        with pytest.raises(InvalidArgument, match=r"^dimension must be an integer from 1 to 16,384"):
            me.store_vectors("m", dimension, [])
    with pytest.raises(InvalidArgument, match="seq"):
        TextVectors("user", _rows(4), seq=-1)


def _numbers_as_text(*numbers: float) -> str:
    return base64.b64encode(np.array(numbers, "<f4").tobytes()).decode()


WRONG_QUERIES = {
    "another dimension": QueryVectors("m", 3, _numbers_as_text(1, 0, 0, 0)),
    "no rows": QueryVectors("m", 2, ""),
    "no unit": QueryVectors("m", 2, _numbers_as_text(3, 4)),
    "NaN": QueryVectors("m", 2, _numbers_as_text(float("nan"), 0)),
    "infinite": QueryVectors("m", 2, _numbers_as_text(float("inf"), 0)),
    "huge": QueryVectors("m", 2, _numbers_as_text(3e38, 3e38)),
    "too many": QueryVectors("m", 1, _numbers_as_text(*[1.0] * (MOST_TOKENS + 2))),
    "no model": QueryVectors("", 1, _numbers_as_text(1)),
    "no dimension": QueryVectors("m", 0, _numbers_as_text(1)),
    "too few words": QueryVectors("m", 1, _numbers_as_text(1, 1, 1), ("dog",)),
    "a word without a token": QueryVectors("m", 1, _numbers_as_text(1), ("dog",)),
    "a word that is no text": QueryVectors("m", 1, _numbers_as_text(1, 1), cast("Any", (1,))),
}


@pytest.mark.parametrize("wrong", WRONG_QUERIES)
def test_wrong_vectors_of_a_query_are_refused(wrong: str) -> None:
    me = Side().remote(None)
    me.remember(key="pet", value="a hound")
    for call in (me.search, me.context):
        with pytest.raises(InvalidArgument, match=r"^vectors|^dimension|^words"):
            call("dog", vectors=WRONG_QUERIES[wrong])


@given(st.integers(1, 6), st.integers(0, 5), st.randoms(use_true_random=False))
def test_the_vectors_of_a_query_arrive_as_they_were_sent(dimension: int, tokens: int, random: Any) -> None:
    rows = unit(np.array([[random.uniform(-1, 1) for _ in range(dimension)] for _ in range(tokens + 1)], np.float32))
    words = (tuple(map(str, range(tokens))),) if tokens else None
    sent = Embedded(Embeddings(rows[:1], (rows[1:],) if tokens else None, words), "", ("m", dimension))
    received = read_query(sent_query(sent))
    assert received.model == sent.model
    assert received.embeddings is not None
    assert received.embeddings.words == words
    assert np.array_equal(received.embeddings.pooled, rows[:1])
    assert np.array_equal((received.embeddings.tokens or (rows[1:],))[0], rows[1:])
    assert (received.embeddings.tokens is None) == (not tokens)


@given(st.binary(max_size=40), st.integers(1, 9), st.text(max_size=9))
def test_any_bytes_are_vectors_or_an_error(data: bytes, dimension: int, text: str) -> None:
    for rows in (base64.b64encode(data).decode(), text):
        try:
            received = read_query(QueryVectors("m", dimension, rows))
        except AgentMemoryLogError:
            continue
        assert received.embeddings is not None
        assert received.embeddings.pooled.shape == (1, dimension)
