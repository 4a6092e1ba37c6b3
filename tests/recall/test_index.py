"""The recall index: what it finds, what it never finds, and that its past leaves no trace."""

from __future__ import annotations

import gc
import tracemalloc
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.recall import Document, DocumentHit, RecallIndex

NOW = datetime(2024, 6, 1, tzinfo=UTC)


def index_of(*documents: Document) -> RecallIndex:
    index = RecallIndex()
    for document in documents:
        index.add(document)
    return index


def talk(*turns: tuple[str, str], session: str = "s", start: datetime = NOW - timedelta(days=90)) -> list[Document]:
    return [
        Document(id=f"{session}/{at}", text=text, session=session, position=at, speaker=speaker, time=start)
        for at, (speaker, text) in enumerate(turns)
    ]


def found(index: RecallIndex, query: str, top_k: int = 10) -> list[str]:
    return [hit.id for hit in index.search(query, now=NOW, top_k=top_k)]


_ENGLISH = ["refund", "order", "ship", "Mara", "Jonas", "yesterday", "when", "?", "went", "3", "March"]
_WORDS = st.sampled_from([*_ENGLISH, "Treppe", "Treppenhaus", "und", "die", "猫", "昨日", "ปลา", "\x00", "é"])
_TEXTS = st.lists(_WORDS, min_size=1, max_size=4).map(" ".join)
_EVERYTHING = "when went Mara on March 3 for a refund of the order? Treppe 猫"
_CLOSE = st.integers(0, 6).map(lambda each: NOW - timedelta(hours=4 * each))
_DOCUMENTS = st.builds(
    Document,
    id=st.integers(0, 12).map(str),
    text=_TEXTS,
    kind=st.sampled_from(["message", "episode", "preference"]),
    session=st.sampled_from(["", "a", "b"]),
    position=st.integers(0, 5),
    speaker=st.sampled_from(["", "Mara", "Jonas"]),
    time=st.none() | st.integers(0, 600).map(lambda each: NOW - timedelta(hours=4 * each)) | _CLOSE,
    importance=st.integers(0, 5).map(float),
    confidence=st.sampled_from([1.0, 0.5]),
    key=st.sampled_from(["", "tea"]),
    expires=st.sampled_from([None, NOW, NOW + timedelta(days=1)]),
)


def _search(index: RecallIndex, query: str) -> list[DocumentHit]:
    return index.search(query, now=NOW, top_k=5, boost_preferences={"tea"})


class RecallMachine(RuleBasedStateMachine):
    """Whatever was added, replaced and removed: the index finds what a new one of the documents left finds."""

    def __init__(self) -> None:
        super().__init__()
        self.index = RecallIndex()
        self.left: dict[str, Document] = {}

    @rule(document=_DOCUMENTS)
    def add(self, document: Document) -> None:
        self.index.add(document)
        self.left.pop(document.id, None)
        self.left[document.id] = document

    @rule(name=st.integers(0, 12).map(str))
    def remove(self, name: str) -> None:
        self.index.remove(name)
        self.left.pop(name, None)

    @rule()
    def rebuild(self) -> None:
        self.index._rebuild()

    @rule(query=_TEXTS)
    def search(self, query: str) -> None:
        fresh = index_of(*self.left.values())
        assert _search(self.index, query) == _search(fresh, query)

    @invariant()
    def holds_what_is_left(self) -> None:
        assert len(self.index) == len(self.left)
        hits = _search(self.index, _EVERYTHING)
        assert hits == _search(index_of(*self.left.values()), _EVERYTHING)
        assert {hit.id for hit in hits} <= {one.id for one in self.left.values() if one.expires != NOW}


TestRecallMachine = RecallMachine.TestCase
TestRecallMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@given(st.lists(_DOCUMENTS, unique_by=lambda document: document.id, max_size=12), _TEXTS)
@settings(deadline=None)
def test_order_does_not_depend_on_the_order_of_arrival(documents: list[Document], query: str) -> None:
    shuffled = sorted(documents, key=lambda document: document.text)
    assert _search(index_of(*documents), query) == _search(index_of(*shuffled), query)


@given(st.lists(_DOCUMENTS, max_size=12), _TEXTS)
@settings(deadline=None)
def test_shares_add_up_in_the_order_of_their_names(documents: list[Document], query: str) -> None:
    hits = _search(index_of(*documents), query)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert list(hit.matched_by) == sorted(hit.matched_by)
        assert hit.score == pytest.approx(sum(hit.matched_by.values()))
        assert hit.score > 0


def test_a_thousand_removals_rebuild_the_index_and_keep_what_is_left() -> None:
    index = index_of(*(Document(id=str(at), text=f"word{at} common") for at in range(1000)))
    for at in range(990):
        index.remove(str(at))
    assert len(index._ids) < 600
    assert set(found(index, "common", top_k=50)) == {str(at) for at in range(990, 1000)}
    assert found(index, "word995") == ["995"]


def test_an_index_takes_at_most_two_kilobytes_a_message() -> None:
    texts = [
        f"turn {at} of topic{at % 700} tells about thing{at % 1300} and place{at // 3} on day {at}"
        for at in range(3000)
    ]
    gc.collect()
    tracemalloc.start()
    index = index_of(
        *(
            Document(
                id=f"agent/run-{at // 100}/{at}", text=text, session=f"agent/run-{at // 100}", position=at, time=NOW
            )
            for at, text in enumerate(texts)
        )
    )
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / len(index) < 2048


def test_the_rarer_word_decides() -> None:
    index = index_of(
        *(Document(id=f"o{at}", text="my order number is here") for at in range(20)),
        Document(id="refund", text="the refund came"),
    )
    assert found(index, "what about the refund of my order?")[0] == "refund"


def test_the_answer_to_a_question_is_found_without_its_words() -> None:
    index = index_of(
        *talk(
            ("Mara", "Who will look after the parrot in August?"),
            ("Jonas", "Ines does, she lives downstairs."),
            ("Mara", "Good."),
            ("Jonas", "Bread is finished by the way."),
            ("Mara", "I'll get some."),
        )
    )
    hits = index.search("Who looks after the parrot?", now=NOW)
    assert {hit.id for hit in hits[:2]} == {"s/0", "s/1"}
    shares = {hit.id: hit.matched_by for hit in hits}
    assert "words" not in shares["s/1"]
    assert shares["s/1"]["neighbours"] > shares["s/2"]["neighbours"]


def test_what_follows_a_question_is_lifted_more_than_what_follows_a_statement() -> None:
    asked = talk(("A", "parrot?"), ("B", "downstairs"), session="asked")
    told = talk(("A", "parrot."), ("B", "downstairs"), session="told")
    hits = {hit.id: hit.matched_by for hit in index_of(*asked, *told).search("parrot", now=NOW)}
    assert hits["asked/1"]["neighbours"] > hits["told/1"]["neighbours"]


def test_a_turn_lends_to_those_beside_it_and_less_behind_many_words() -> None:
    long = "bread " * 200
    turns = talk(("A", "parrot"), ("B", "hm"), ("A", "oh"), ("B", long), ("A", "ah"), ("B", "eh"))
    shares = {hit.id: hit.matched_by.get("neighbours", 0) for hit in index_of(*turns).search("parrot", now=NOW)}
    assert shares["s/1"] > shares["s/2"] > shares["s/3"] > 10 * shares["s/4"] > 0 == shares["s/5"]
    backwards = [msgspec.structs.replace(turn, position=9 - turn.position) for turn in turns]
    assert shares == {
        hit.id: hit.matched_by.get("neighbours", 0) for hit in index_of(*backwards).search("parrot", now=NOW)
    }


def test_a_talk_in_which_several_turns_have_the_words_lends_them_all() -> None:
    apart = talk(("A", "the parrot"), ("B", "-"), ("A", "the wedding"), ("B", "-"), ("A", "the boat"), session="apart")
    once = talk(("A", "the parrot"), ("B", "-"), ("A", "the parrot"), ("B", "-"), ("A", "hm"), session="once")
    hits = {hit.id: hit.matched_by for hit in index_of(*apart, *once).search("parrot wedding boat", now=NOW)}
    assert hits["apart/1"]["session"] > 2 * hits["once/1"]["session"]


def test_of_two_turns_with_the_words_the_one_that_tells_comes_first() -> None:
    asks = Document(id="asks", text="the parrot is green?")
    tells = Document(id="tells", text="the parrot is green")
    assert found(index_of(asks, tells), "What colour is the green parrot?") == ["tells", "asks"]


def test_a_reply_without_the_words_does_not_come_before_the_question_that_has_them() -> None:
    index = index_of(*talk(("A", "Where is my order?"), ("B", "One moment.")))
    question, reply = index.search("order", now=NOW)
    assert question.score == pytest.approx(reply.score)
    assert (question.id, reply.id) == ("s/0", "s/1")


def test_a_date_makes_no_text_longer() -> None:
    dated = Document(id="dated", text="parrot yesterday", time=NOW)
    plain = Document(id="plain", text="parrot downstairs", time=NOW)
    scores = {hit.id: hit.score for hit in index_of(dated, plain).search("parrot", now=NOW)}
    assert scores["dated"] == scores["plain"]


def test_the_turns_beside_a_removed_one_become_neighbours() -> None:
    turns = talk(("A", "parrot"), ("B", "hm"), ("A", "downstairs"), ("B", "upstairs"))
    index = index_of(*turns)
    index.remove("s/1")
    assert _search(index, "parrot") == _search(index_of(turns[0], *turns[2:]), "parrot")
    assert "neighbours" in index.search("parrot", now=NOW)[1].matched_by


def test_a_turn_that_comes_late_takes_its_place() -> None:
    turns = talk(("A", "parrot"), ("B", "hm"), ("A", "downstairs"))
    late = index_of(turns[0], turns[2], turns[1])
    assert _search(late, "parrot") == _search(index_of(*turns), "parrot")


def test_who_is_named_is_preferred_to_who_is_spoken_to() -> None:
    index = index_of(*talk(("Mara", "Jonas, I paint boats at the harbour"), ("Jonas", "I paint boats in a shed, Mara")))
    assert found(index, "What does Mara paint?")[0] == "s/0"
    assert found(index, "What does Jonas paint?")[0] == "s/1"


@pytest.mark.parametrize(
    ("text", "query"), [("im Treppenhaus", "Wo ist die Treppe?"), ("die Treppe", "Wo ist das Treppenhaus?")]
)
def test_a_compound_is_found_by_what_it_begins_with_and_the_other_way_round(text: str, query: str) -> None:
    index = index_of(Document(id="stairs", text=text), Document(id="cellar", text="der Keller"))
    assert found(index, query) == ["stairs"]
    index.add(Document(id="new", text="am Treppenabsatz"))
    assert set(found(index, "Wo ist die Treppe?")) == {"stairs", "new"}


def test_no_compound_is_looked_for_where_words_are_written_apart() -> None:
    assert found(index_of(Document(id="a", text="the carpet")), "where is the carp?") == []


def test_a_removed_speakers_name_is_a_word_again() -> None:
    turns = talk(("Mara", "hello"), ("Jonas", "Mara paints"), ("Jonas", "boats at sea"))
    index = index_of(*turns)
    index.remove("s/0")
    assert _search(index, "Mara boats") == _search(index_of(*turns[1:]), "Mara boats")


def test_a_removed_document_lends_nothing_and_makes_no_word_more_common() -> None:
    turns = talk(("A", "parrot in Bergen"), ("B", "hm"), ("A", "a coat"), ("B", "a parrot"), ("A", "die Katze und"))
    index = index_of(*turns)
    index.remove("s/0")
    index.remove("s/4")
    for query in ("Bergen coat", "parrot coat", "Bergen", "Katzen"):
        assert _search(index, query) == _search(index_of(*turns[1:4]), query)
    assert index.search("Bergen", now=NOW) == []


def test_when_prefers_texts_that_speak_of_time() -> None:
    index = index_of(
        Document(id="a", text="the boiler broke badly"), Document(id="b", text="the boiler broke on Friday")
    )
    assert found(index, "When did the boiler break?")[0] == "b"
    assert found(index, "Did the boiler break badly?")[0] == "a"


def test_a_day_finds_what_was_said_of_it_and_on_it() -> None:
    index = index_of(
        Document(id="of", text="we met yesterday", time=datetime(2024, 3, 4, 9, tzinfo=UTC)),
        Document(id="on", text="the ferry is late", time=datetime(2024, 3, 3, 9, tzinfo=UTC)),
        Document(id="other", text="we had soup", time=datetime(2024, 4, 3, 9, tzinfo=UTC)),
    )
    assert set(found(index, "What happened on March 3rd?")) == {"of", "on"}
    assert set(found(index, "2024-03-03")) == {"of", "on"}


def test_a_month_without_a_year_is_of_any_year_and_a_year_alone_is_a_time() -> None:
    index = index_of(
        Document(id="long ago", text="we met in March", time=datetime(2019, 3, 20, tzinfo=UTC)),
        Document(id="soup", text="we had soup", time=datetime(2019, 8, 3, tzinfo=UTC)),
        Document(id="number", text="a march of 3 men", time=datetime(2021, 8, 3, tzinfo=UTC)),
    )
    assert found(index, "What happened in March?") == ["long ago"]
    assert found(index, "What happened on the 3rd of March?") == []
    assert set(found(index, "What happened in 2019?")) == {"long ago", "soup"}


def test_the_best_session_lifts_its_turns() -> None:
    turns = talk(("A", "the wedding is in Bergen"), ("B", "-"), ("B", "-"), ("A", "bring a coat"), session="bergen")
    index = index_of(*turns, Document(id="x", text="a coat is in the hall", session="other"))
    best = index.search("What coat for the wedding in Bergen?", now=NOW)
    assert next(hit for hit in best if hit.id == "bergen/3").matched_by["session"] > 0


def test_a_night_of_silence_ends_a_talk_and_what_bridges_it_goes_on() -> None:
    evening, morning = NOW - timedelta(hours=14), NOW
    turns = [
        Document(id="a", text="the parrot", session="s", position=1, time=evening),
        Document(id="b", text="upstairs", session="s", position=2, time=evening),
        Document(id="c", text="downstairs", session="s", position=4, time=morning),
    ]
    index = index_of(*turns)
    assert found(index, "parrot") == ["a", "b"]
    index.add(Document(id="late", text="hm", session="s", position=3, time=NOW - timedelta(hours=9)))
    assert set(found(index, "parrot")) == {"a", "b", "late"}
    index.add(Document(id="later", text="hm", session="s", position=3, time=NOW - timedelta(hours=5)))
    assert set(found(index, "parrot")) == {"a", "b", "late", "later", "c"}
    index.remove("late")
    assert found(index, "parrot") == ["a", "b"]


@pytest.mark.parametrize("query", ["", "   ", "?", "\x00", "the of and", "👍", "\u0301"])
def test_a_query_without_a_word_finds_nothing(query: str) -> None:
    assert found(index_of(Document(id="a", text="the parrot \x00 👍")), query) == []


def test_an_empty_index_finds_nothing() -> None:
    assert found(RecallIndex(), "parrot") == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Ich habe den Kuchen gebacken", "Wer backt Kuchen?"),
        ("我昨天買了一隻黑貓", "她買了什麼貓"),
        ("駅で財布をなくしました", "財布はどこ"),
        ("ฉันทำกระเป๋าสตางค์หายที่สถานี", "กระเป๋าสตางค์อยู่ที่ไหน"),
        ("학교에서 지갑을 잃어버렸어", "지갑 어디"),
        ("मैंने बाज़ार में किताब खरीदी", "किताब कहाँ है"),
        ("أضعت محفظتي في المحطة", "أين محفظتي"),
        ("איבדתי את הארנק בתחנה", "איפה הארנק"),
        ("Я потерял кошелёк на вокзале", "где кошелек"),
        ("Perdí la cartera en la estación", "estacion cartera"),
        ("Έχασα το πορτοφόλι στον σταθμό", "σταθμός πορτοφόλι"),
        ("x" * 5000 + " parrot", "x" * 5000),
        ("مرحبا parrot \u202e back", "parrot"),
        ("a\x00parrot", "parrot"),
    ],
)
def test_every_script_is_found(text: str, query: str) -> None:
    index = index_of(Document(id="that", text=text), Document(id="else", text="something of no concern"))
    assert found(index, query)[:1] == ["that"]


def test_a_question_in_one_language_finds_a_text_in_another_by_the_word_they_share() -> None:
    index = index_of(
        Document(id="de", text="Ich habe die Refunds mit der Buchhaltung geklärt"), Document(id="x", text="tea")
    )
    assert found(index, "what about the refunds?") == ["de"]


def test_kinds_times_and_stars_choose() -> None:
    index = index_of(
        Document(id="m", text="parrot", time=NOW - timedelta(days=2)),
        Document(id="e", text="parrot", kind="episode", importance=3, time=NOW - timedelta(days=1)),
        Document(id="p", text="parrot", kind="preference"),
    )
    assert {hit.id for hit in index.search("parrot", now=NOW, kinds={"episode", "preference"})} == {"e", "p"}
    assert index.search("parrot", now=NOW, kinds={"unheard of"}) == []
    assert {hit.id for hit in index.search("parrot", now=NOW, since=NOW - timedelta(days=1))} == {"e"}
    assert {hit.id for hit in index.search("parrot", now=NOW, until=NOW - timedelta(days=1))} == {"m"}
    assert {hit.id for hit in index.search("parrot", now=NOW, min_importance=3)} == {"e"}
    assert index.search("parrot", now=NOW, min_importance=4) == []


def test_stars_recency_and_confidence_count() -> None:
    episode = Document(id="base", text="parrot", kind="episode", importance=2, time=NOW - timedelta(days=60))
    better = [
        msgspec.structs.replace(episode, id="stars", importance=5),
        msgspec.structs.replace(episode, id="recent", time=NOW),
    ]
    doubtful = msgspec.structs.replace(episode, id="doubtful", confidence=0.5)
    order = found(index_of(episode, *better, doubtful), "parrot")
    assert set(order[:2]) == {"stars", "recent"}
    assert order[2:] == ["base", "doubtful"]


def test_a_boosted_preference_enters_without_a_word_and_others_do_not() -> None:
    index = index_of(
        Document(id="tea", text="green tea", kind="preference", key="drink"),
        Document(id="sea", text="the sea", kind="preference", key="place"),
    )
    hits = index.search("parrot", now=NOW, boost_preferences={"drink", "unknown"})
    assert [(hit.id, list(hit.matched_by)) for hit in hits] == [("tea", ["preference"])]


def test_what_has_expired_is_not_found() -> None:
    index = index_of(
        Document(id="a", text="parrot", expires=NOW), Document(id="b", text="parrot", expires=NOW + timedelta(1))
    )
    assert found(index, "parrot") == ["b"]


def test_of_two_alike_the_newer_comes_first() -> None:
    index = index_of(
        Document(id="a", text="parrot", time=NOW - timedelta(days=2)),
        Document(id="c", text="parrot", time=NOW - timedelta(days=1)),
        Document(id="b", text="parrot", time=NOW - timedelta(days=1)),
    )
    assert found(index, "parrot") == ["b", "c", "a"]
    assert found(index, "parrot", top_k=2) == ["b", "c"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": ""}, "id"),
        ({"importance": 6.0}, "importance"),
        ({"importance": float("nan")}, "importance"),
        ({"confidence": -0.1}, "confidence"),
        ({"position": 2**63}, "position"),
        ({"time": datetime(2024, 1, 1)}, "time"),  # noqa: DTZ001  # a naive time is what is refused
        ({"expires": datetime(2024, 1, 1)}, "expires"),  # noqa: DTZ001  # as above
    ],
)
def test_a_bad_document_is_refused_and_the_one_it_would_replace_stays(changes: dict[str, object], field: str) -> None:
    good = Document(id="a", text="parrot")
    index = index_of(good)
    with pytest.raises(InvalidArgument, match=f"^{field}:"):
        index.add(msgspec.structs.replace(good, **changes))
    assert found(index, "parrot") == ["a"]


def test_a_bad_search_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"^top_k:"):
        RecallIndex().search("parrot", now=NOW, top_k=0)
    with pytest.raises(InvalidArgument, match=r"^since:"):
        RecallIndex().search("parrot", now=NOW, since=datetime(2024, 1, 1))  # noqa: DTZ001  # as above


def test_what_nobody_believes_is_not_found() -> None:
    words = ["zebra", "mule", "when", "late", "March 3", "?"]
    index = index_of(
        *(
            Document(
                id=f"{at}",
                text=" ".join(words[at % 6 :] + words[: at % 5]),
                session="s",
                position=at,
                time=NOW - timedelta(hours=at),
                importance=at % 6,
                confidence=0 if at % 2 else 0.001,
            )
            for at in range(40)
        )
    )
    hits = index.search("when was the zebra late, on March 3?", now=NOW, top_k=50)
    assert {int(hit.id) % 2 for hit in hits} == {0}


@given(st.lists(_DOCUMENTS, unique_by=lambda document: document.id, max_size=12), _TEXTS)
@settings(deadline=None)
def test_the_first_hits_are_the_first_of_more(documents: list[Document], query: str) -> None:
    index = index_of(*documents)
    every = index.search(query, now=NOW, top_k=50)
    assert [index.search(query, now=NOW, top_k=most) for most in (1, 3, 7)] == [every[:most] for most in (1, 3, 7)]


def test_each_compound_in_a_text_counts() -> None:
    texts = ["Das Treppenhaus und die Treppenstufe", "Das Treppenhaus und die Katze", "Das ist die Katze und der Hund"]
    one = index_of(*(Document(id=str(at), text=text) for at, text in enumerate(texts)))
    both, single = one.search("Wo ist die Treppe und der Treppen?", now=NOW)[:2]
    assert (both.id, single.id) == ("0", "1")
    assert both.matched_by["words"] > single.matched_by["words"] * 1.2


def test_a_compound_that_comes_later_is_found_among_many_words() -> None:
    index = index_of(*(Document(id=str(at), text=f"das und die wort{at}") for at in range(600)))
    assert found(index, "Wo ist die Treppe und der Hund?") == []
    for at, text in enumerate(["das und die Treppenstufe", "das und die Zebraherde", "das und die Treppenwand"]):
        index.add(Document(id=f"late {at}", text=text))
        found(index, "Wo ist die Treppe und der Hund?")
    assert set(found(index, "Wo ist die Treppe und der Hund?")) == {"late 0", "late 2"}


def test_no_text_has_more_stars_than_there_are() -> None:
    index = index_of(Document(id="a", text="zebra", importance=5))
    assert [hit.id for hit in index.search("zebra", now=NOW, min_importance=5)] == ["a"]
    for many in (5.5, 1e39, 1e308):
        assert index.search("zebra", now=NOW, min_importance=many) == []
