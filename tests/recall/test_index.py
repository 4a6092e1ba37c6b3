"""Tests of the recall index: its hits, their order and scores, and the removal of documents."""

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


def ids_of_hits(index: RecallIndex, query: str, top_k: int = 10) -> list[str]:
    return [hit.id for hit in index.search(query, now=NOW, top_k=top_k)]


_ENGLISH = ["refund", "order", "ship", "Mara", "Jonas", "yesterday", "when", "?", "went", "3", "March"]
_WORDS = st.sampled_from([*_ENGLISH, "Treppe", "Treppenhaus", "und", "die", "猫", "昨日", "ปลา", "\x00", "é"])
_TEXTS = st.lists(_WORDS, min_size=1, max_size=4).map(" ".join)
_BROAD_QUERY = "when went Mara on March 3 for a refund of the order? Treppe 猫"
_RECENT = st.integers(0, 6).map(lambda count: NOW - timedelta(hours=4 * count))
_DOCUMENTS = st.builds(
    Document,
    id=st.integers(0, 12).map(str),
    text=_TEXTS,
    kind=st.sampled_from(["message", "episode", "preference"]),
    session=st.sampled_from(["", "a", "b"]),
    position=st.integers(0, 5),
    speaker=st.sampled_from(["", "Mara", "Jonas"]),
    time=st.none() | st.integers(0, 600).map(lambda count: NOW - timedelta(hours=4 * count)) | _RECENT,
    importance=st.integers(0, 5).map(float),
    confidence=st.sampled_from([1.0, 0.5]),
    key=st.sampled_from(["", "tea"]),
    expires=st.sampled_from([None, NOW, NOW + timedelta(days=1)]),
)


def _search(index: RecallIndex, query: str) -> list[DocumentHit]:
    return index.search(query, now=NOW, top_k=5, boost_preferences={"tea"})


class RecallMachine(RuleBasedStateMachine):
    """After any additions, replacements and removals, the index returns the same hits as a new index."""

    def __init__(self) -> None:
        super().__init__()
        self.index = RecallIndex()
        self.documents: dict[str, Document] = {}

    @rule(document=_DOCUMENTS)
    def add(self, document: Document) -> None:
        self.index.add(document)
        self.documents.pop(document.id, None)
        self.documents[document.id] = document

    @rule(name=st.integers(0, 12).map(str))
    def remove(self, name: str) -> None:
        self.index.remove(name)
        self.documents.pop(name, None)

    @rule(query=_TEXTS)
    def search(self, query: str) -> None:
        fresh = index_of(*self.documents.values())
        assert _search(self.index, query) == _search(fresh, query)

    @invariant()
    def equals_a_new_index(self) -> None:
        assert len(self.index) == len(self.documents)
        hits = _search(self.index, _BROAD_QUERY)
        assert hits == _search(index_of(*self.documents.values()), _BROAD_QUERY)
        assert {hit.id for hit in hits} <= {
            document.id for document in self.documents.values() if document.expires != NOW
        }


TestRecallMachine = RecallMachine.TestCase
TestRecallMachine.settings = settings(stateful_step_count=30)


@given(st.lists(_DOCUMENTS, unique_by=lambda document: document.id, max_size=12), _TEXTS)
def test_order_of_additions_does_not_change_the_hits(documents: list[Document], query: str) -> None:
    shuffled = sorted(documents, key=lambda document: document.text)
    assert _search(index_of(*documents), query) == _search(index_of(*shuffled), query)


@given(st.lists(_DOCUMENTS, max_size=12), _TEXTS)
def test_parts_of_a_score_add_up_and_are_sorted_by_name(documents: list[Document], query: str) -> None:
    hits = _search(index_of(*documents), query)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert list(hit.matched_by) == sorted(hit.matched_by)
        assert hit.score == pytest.approx(sum(hit.matched_by.values()))
        assert hit.score > 0


def test_numbers_of_removed_documents_are_used_again() -> None:
    index = index_of(*(Document(id=str(at), text=f"word{at} common") for at in range(1000)))
    for at in range(990):
        index.remove(str(at))
    for at in range(500):
        index.add(Document(id=f"new {at}", text="new"))
    assert index._columns.count == 1000
    assert set(ids_of_hits(index, "common", top_k=50)) == {str(at) for at in range(990, 1000)}
    assert ids_of_hits(index, "word995") == ["995"]


def test_index_needs_at_most_two_kilobytes_a_message() -> None:
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
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert memory / len(index) < 2048


def test_rare_word_weighs_more_than_common_words() -> None:
    index = index_of(
        *(Document(id=f"o{at}", text="my order number is here") for at in range(20)),
        Document(id="refund", text="the refund came"),
    )
    assert ids_of_hits(index, "what about the refund of my order?")[0] == "refund"


def test_turn_after_a_matching_question_is_found_without_its_words() -> None:
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


def test_turn_after_a_question_gains_more_than_turn_after_a_statement() -> None:
    question = talk(("A", "parrot?"), ("B", "downstairs"), session="question")
    statement = talk(("A", "parrot."), ("B", "downstairs"), session="statement")
    hits = {hit.id: hit.matched_by for hit in index_of(*question, *statement).search("parrot", now=NOW)}
    assert hits["question/1"]["neighbours"] > hits["statement/1"]["neighbours"]


def test_neighbours_gain_less_after_many_words() -> None:
    long = "bread " * 200
    turns = talk(("A", "parrot"), ("B", "hm"), ("A", "oh"), ("B", long), ("A", "ah"), ("B", "eh"))
    shares = {hit.id: hit.matched_by.get("neighbours", 0) for hit in index_of(*turns).search("parrot", now=NOW)}
    assert shares["s/1"] > shares["s/2"] > shares["s/3"] > 10 * shares["s/4"] > 0 == shares["s/5"]
    backwards = [msgspec.structs.replace(turn, position=9 - turn.position) for turn in turns]
    assert shares == {
        hit.id: hit.matched_by.get("neighbours", 0) for hit in index_of(*backwards).search("parrot", now=NOW)
    }


def test_talk_with_more_words_of_the_question_gains_more() -> None:
    several = talk(
        ("A", "the parrot"), ("B", "-"), ("A", "the wedding"), ("B", "-"), ("A", "the boat"), session="several"
    )
    single = talk(("A", "the parrot"), ("B", "-"), ("A", "the parrot"), ("B", "-"), ("A", "hm"), session="single")
    hits = {hit.id: hit.matched_by for hit in index_of(*several, *single).search("parrot wedding boat", now=NOW)}
    assert hits["several/1"]["session"] > 2 * hits["single/1"]["session"]


def test_statement_comes_before_a_question_with_the_same_words() -> None:
    question = Document(id="question", text="the parrot is green?")
    statement = Document(id="statement", text="the parrot is green")
    hits = ids_of_hits(index_of(question, statement), "What colour is the green parrot?")
    assert hits == ["statement", "question"]


def test_matching_question_comes_before_a_reply_with_an_equal_score() -> None:
    index = index_of(*talk(("A", "Where is my order?"), ("B", "One moment.")))
    question, reply = index.search("order", now=NOW)
    assert question.score == pytest.approx(reply.score)
    assert (question.id, reply.id) == ("s/0", "s/1")


def test_terms_of_a_date_do_not_count_as_length() -> None:
    dated = Document(id="dated", text="parrot yesterday", time=NOW)
    plain = Document(id="plain", text="parrot downstairs", time=NOW)
    scores = {hit.id: hit.score for hit in index_of(dated, plain).search("parrot", now=NOW)}
    assert scores["dated"] == scores["plain"]


def test_turns_around_a_removed_turn_become_neighbours() -> None:
    turns = talk(("A", "parrot"), ("B", "hm"), ("A", "downstairs"), ("B", "upstairs"))
    index = index_of(*turns)
    index.remove("s/1")
    assert _search(index, "parrot") == _search(index_of(turns[0], *turns[2:]), "parrot")
    assert "neighbours" in index.search("parrot", now=NOW)[1].matched_by


def test_turn_added_late_is_placed_by_its_position() -> None:
    turns = talk(("A", "parrot"), ("B", "hm"), ("A", "downstairs"))
    late = index_of(turns[0], turns[2], turns[1])
    assert _search(late, "parrot") == _search(index_of(*turns), "parrot")


def test_turn_of_a_named_speaker_comes_before_a_turn_that_addresses_them() -> None:
    index = index_of(*talk(("Mara", "Jonas, I paint boats at the harbour"), ("Jonas", "I paint boats in a shed, Mara")))
    assert ids_of_hits(index, "What does Mara paint?")[0] == "s/0"
    assert ids_of_hits(index, "What does Jonas paint?")[0] == "s/1"


@pytest.mark.parametrize(
    ("text", "query"), [("im Treppenhaus", "Wo ist die Treppe?"), ("die Treppe", "Wo ist das Treppenhaus?")]
)
def test_compound_and_its_first_part_find_each_other(text: str, query: str) -> None:
    index = index_of(Document(id="stairs", text=text), Document(id="cellar", text="der Keller"))
    assert ids_of_hits(index, query) == ["stairs"]
    index.add(Document(id="new", text="am Treppenabsatz"))
    assert set(ids_of_hits(index, "Wo ist die Treppe?")) == {"stairs", "new"}


def test_language_without_compounds_matches_no_prefixes() -> None:
    assert ids_of_hits(index_of(Document(id="a", text="the carpet")), "where is the carp?") == []


def test_name_of_a_removed_speaker_has_the_weight_of_a_word() -> None:
    turns = talk(("Mara", "hello"), ("Jonas", "Mara paints"), ("Jonas", "boats at sea"))
    index = index_of(*turns)
    index.remove("s/0")
    assert _search(index, "Mara boats") == _search(index_of(*turns[1:]), "Mara boats")


def test_removed_document_has_no_effect_on_scores() -> None:
    turns = talk(("A", "parrot in Bergen"), ("B", "hm"), ("A", "a coat"), ("B", "a parrot"), ("A", "die Katze und"))
    index = index_of(*turns)
    index.remove("s/0")
    index.remove("s/4")
    for query in ("Bergen coat", "parrot coat", "Bergen", "Katzen"):
        assert _search(index, query) == _search(index_of(*turns[1:4]), query)
    assert index.search("Bergen", now=NOW) == []


def test_question_about_a_time_prefers_texts_that_mention_one() -> None:
    index = index_of(
        Document(id="a", text="the boiler broke badly"), Document(id="b", text="the boiler broke on Friday")
    )
    assert ids_of_hits(index, "When did the boiler break?")[0] == "b"
    assert ids_of_hits(index, "Did the boiler break badly?")[0] == "a"


def test_day_finds_texts_about_it_and_texts_from_it() -> None:
    index = index_of(
        Document(id="about", text="we met yesterday", time=datetime(2024, 3, 4, 9, tzinfo=UTC)),
        Document(id="from", text="the ferry is late", time=datetime(2024, 3, 3, 9, tzinfo=UTC)),
        Document(id="other", text="we had soup", time=datetime(2024, 4, 3, 9, tzinfo=UTC)),
    )
    assert set(ids_of_hits(index, "What happened on March 3rd?")) == {"about", "from"}
    assert set(ids_of_hits(index, "2024-03-03")) == {"about", "from"}


def test_month_finds_every_year_and_year_finds_all_its_texts() -> None:
    index = index_of(
        Document(id="long ago", text="we met in March", time=datetime(2019, 3, 20, tzinfo=UTC)),
        Document(id="soup", text="we had soup", time=datetime(2019, 8, 3, tzinfo=UTC)),
        Document(id="number", text="a march of 3 men", time=datetime(2021, 8, 3, tzinfo=UTC)),
    )
    assert ids_of_hits(index, "What happened in March?") == ["long ago"]
    assert ids_of_hits(index, "What happened on the 3rd of March?") == []
    assert set(ids_of_hits(index, "What happened in 2019?")) == {"long ago", "soup"}


def test_turns_gain_from_their_session() -> None:
    turns = talk(("A", "the wedding is in Bergen"), ("B", "-"), ("B", "-"), ("A", "bring a coat"), session="bergen")
    index = index_of(*turns, Document(id="x", text="a coat is in the hall", session="other"))
    hits = index.search("What coat for the wedding in Bergen?", now=NOW)
    assert next(hit for hit in hits if hit.id == "bergen/3").matched_by["session"] > 0


def test_long_pause_ends_a_talk_and_a_turn_within_it_joins_the_talks() -> None:
    evening, morning = NOW - timedelta(hours=14), NOW
    turns = [
        Document(id="a", text="the parrot", session="s", position=1, time=evening),
        Document(id="b", text="upstairs", session="s", position=2, time=evening),
        Document(id="c", text="downstairs", session="s", position=4, time=morning),
    ]
    index = index_of(*turns)
    assert ids_of_hits(index, "parrot") == ["a", "b"]
    index.add(Document(id="late", text="hm", session="s", position=3, time=NOW - timedelta(hours=9)))
    assert set(ids_of_hits(index, "parrot")) == {"a", "b", "late"}
    index.add(Document(id="later", text="hm", session="s", position=3, time=NOW - timedelta(hours=5)))
    assert set(ids_of_hits(index, "parrot")) == {"a", "b", "late", "later", "c"}
    index.remove("late")
    assert ids_of_hits(index, "parrot") == ["a", "b"]


@pytest.mark.parametrize("query", ["", "   ", "?", "\x00", "the of and", "👍", "\u0301"])
def test_query_without_a_word_has_no_hits(query: str) -> None:
    assert ids_of_hits(index_of(Document(id="a", text="the parrot \x00 👍")), query) == []


def test_empty_index_has_no_hits() -> None:
    assert ids_of_hits(RecallIndex(), "parrot") == []


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
def test_texts_of_every_script_are_found(text: str, query: str) -> None:
    index = index_of(Document(id="match", text=text), Document(id="other", text="an unrelated text"))
    assert ids_of_hits(index, query)[:1] == ["match"]


def test_question_finds_a_text_in_another_language_by_a_shared_word() -> None:
    index = index_of(
        Document(id="de", text="Ich habe die Refunds mit der Buchhaltung geklärt"), Document(id="x", text="tea")
    )
    assert ids_of_hits(index, "what about the refunds?") == ["de"]


def test_kinds_times_and_stars_filter_the_hits() -> None:
    index = index_of(
        Document(id="m", text="parrot", time=NOW - timedelta(days=2)),
        Document(id="e", text="parrot", kind="episode", importance=3, time=NOW - timedelta(days=1)),
        Document(id="p", text="parrot", kind="preference"),
    )
    assert {hit.id for hit in index.search("parrot", now=NOW, kinds={"episode", "preference"})} == {"e", "p"}
    assert index.search("parrot", now=NOW, kinds={"unknown"}) == []
    assert {hit.id for hit in index.search("parrot", now=NOW, since=NOW - timedelta(days=1))} == {"e"}
    assert {hit.id for hit in index.search("parrot", now=NOW, until=NOW - timedelta(days=1))} == {"m"}
    assert {hit.id for hit in index.search("parrot", now=NOW, min_importance=3)} == {"e"}
    assert index.search("parrot", now=NOW, min_importance=4) == []


def test_stars_recency_and_confidence_change_the_order() -> None:
    episode = Document(id="base", text="parrot", kind="episode", importance=2, time=NOW - timedelta(days=60))
    better = [
        msgspec.structs.replace(episode, id="stars", importance=5),
        msgspec.structs.replace(episode, id="recent", time=NOW),
    ]
    doubtful = msgspec.structs.replace(episode, id="doubtful", confidence=0.5)
    order = ids_of_hits(index_of(episode, *better, doubtful), "parrot")
    assert set(order[:2]) == {"stars", "recent"}
    assert order[2:] == ["base", "doubtful"]


def test_boosted_preference_is_found_without_a_shared_word() -> None:
    index = index_of(
        Document(id="tea", text="green tea", kind="preference", key="drink"),
        Document(id="sea", text="the sea", kind="preference", key="place"),
    )
    hits = index.search("parrot", now=NOW, boost_preferences={"drink", "unknown"})
    assert [(hit.id, list(hit.matched_by)) for hit in hits] == [("tea", ["preference"])]


def test_expired_document_is_not_found() -> None:
    index = index_of(
        Document(id="a", text="parrot", expires=NOW), Document(id="b", text="parrot", expires=NOW + timedelta(1))
    )
    assert ids_of_hits(index, "parrot") == ["b"]


def test_newer_document_comes_first_if_scores_are_equal() -> None:
    index = index_of(
        Document(id="a", text="parrot", time=NOW - timedelta(days=2)),
        Document(id="c", text="parrot", time=NOW - timedelta(days=1)),
        Document(id="b", text="parrot", time=NOW - timedelta(days=1)),
    )
    assert ids_of_hits(index, "parrot") == ["b", "c", "a"]
    assert ids_of_hits(index, "parrot", top_k=2) == ["b", "c"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": ""}, "id"),
        ({"importance": 6.0}, "importance"),
        ({"importance": float("nan")}, "importance"),
        ({"confidence": -0.1}, "confidence"),
        ({"position": 2**63}, "position"),
        ({"time": datetime(2024, 1, 1)}, "time"),  # noqa: DTZ001  # the test needs a naive time
        ({"expires": datetime(2024, 1, 1)}, "expires"),  # noqa: DTZ001  # the test needs a naive time
    ],
)
def test_invalid_document_is_refused_and_the_old_one_stays(changes: dict[str, object], field: str) -> None:
    good = Document(id="a", text="parrot")
    index = index_of(good)
    with pytest.raises(InvalidArgument, match=f"^{field}:"):
        index.add(msgspec.structs.replace(good, **changes))
    assert ids_of_hits(index, "parrot") == ["a"]


def test_invalid_search_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"^top_k:"):
        RecallIndex().search("parrot", now=NOW, top_k=0)
    with pytest.raises(InvalidArgument, match=r"^since:"):
        RecallIndex().search("parrot", now=NOW, since=datetime(2024, 1, 1))  # noqa: DTZ001  # the test needs a naive time


def test_document_with_confidence_zero_is_not_found() -> None:
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
def test_top_k_returns_the_first_hits_of_a_longer_search(documents: list[Document], query: str) -> None:
    index = index_of(*documents)
    hits = index.search(query, now=NOW, top_k=50)
    for top_k in (1, 3, 7):
        assert index.search(query, now=NOW, top_k=top_k) == hits[:top_k]


def test_each_compound_of_a_text_counts() -> None:
    texts = ["Das Treppenhaus und die Treppenstufe", "Das Treppenhaus und die Katze", "Das ist die Katze und der Hund"]
    index = index_of(*(Document(id=str(at), text=text) for at, text in enumerate(texts)))
    both, single = index.search("Wo ist die Treppe und der Treppen?", now=NOW)[:2]
    assert (both.id, single.id) == ("0", "1")
    assert both.matched_by["words"] > single.matched_by["words"] * 1.2


def test_compound_added_later_is_found_among_many_words() -> None:
    index = index_of(*(Document(id=str(at), text=f"das und die wort{at}") for at in range(600)))
    assert ids_of_hits(index, "Wo ist die Treppe und der Hund?") == []
    for at, text in enumerate(["das und die Treppenstufe", "das und die Zebraherde", "das und die Treppenwand"]):
        index.add(Document(id=f"late {at}", text=text))
        ids_of_hits(index, "Wo ist die Treppe und der Hund?")
    assert set(ids_of_hits(index, "Wo ist die Treppe und der Hund?")) == {"late 0", "late 2"}


def test_more_than_five_stars_match_no_document() -> None:
    index = index_of(Document(id="a", text="zebra", importance=5))
    assert [hit.id for hit in index.search("zebra", now=NOW, min_importance=5)] == ["a"]
    for stars in (5.5, 1e39, 1e308):
        assert index.search("zebra", now=NOW, min_importance=stars) == []
