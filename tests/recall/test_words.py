"""Tests of words, languages, dates and questions: which words a text has, and which of them are equal."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.recall.analysis import analyse, ask
from agent_memory_log.recall.dates import dates_in
from agent_memory_log.recall.languages import STEMMERS, language_of, stems, stop_words
from agent_memory_log.recall.words import LONGEST_WORD, fold, words

AT = datetime(2024, 5, 8, 12, tzinfo=UTC)  # a Wednesday


def terms(text: str, at: datetime | None = None) -> list[str]:
    return list(analyse(text, at).terms)


def date_terms(text: str, at: datetime | None = AT) -> set[str]:
    folded = fold(text)
    return set(dates_in(folded, words(folded), at).terms)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("I went to the harbour with my brother", "en"),
        ("Ich habe gestern die Katzen gefüttert", "de"),
        ("ayer compré dos libros para mi hermana", "es"),
        ("le chat est sur la table et il dort", "fr"),
        ("Я вчера купил новую машину", "ru"),
        ("gatto che è sulla tavola degli amici", "it"),
        ("jag vet inte var du är", "sv"),
        ("मैं कल बाज़ार गया था", "hi"),
        ("إلى أين ذهبت مع هؤلاء", "ar"),
        ("An email bounced", "en"),
        ("Katzen", "en"),
        ("Катя", "ru"),
        ("", "en"),
    ],
)
def test_function_words_decide_the_language_of_a_text(text: str, language: str) -> None:
    assert language_of(words(fold(text))) == language


_FOREIGN_WORDS = sorted(
    {word for language in STEMMERS for word in stop_words(language) if word.isascii() and word not in stop_words("en")}
)


@given(st.sampled_from(_FOREIGN_WORDS), st.sampled_from(["{}", "An {} bounced", "{} {}", "Kim's {}, Robin's {}!"]))
def test_one_function_word_does_not_decide_the_language(word: str, sentence: str) -> None:
    # A function word may be the topic of an English text: the list for Czech has "email".
    text_words = words(fold(sentence.format(word, word)))
    language = language_of(text_words)
    assert language == "en" or len(stop_words(language).intersection(text_words)) > 1
    assert language_of([word]) == "en"
    assert terms(word)


@pytest.mark.parametrize("language", STEMMERS)
def test_every_language_has_folded_function_words(language: str) -> None:
    assert len(stop_words(language)) > 30
    assert all(word == fold(word) for word in stop_words(language))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("She went running", "to go for a run"),
        ("the children were taught", "teaching a child"),
        ("three wolves", "3 wolf"),
        ("she lives downstairs", "where does she live"),
        ("photos of my bike", "a pic"),
        ("went biking", "a bicycle"),
        ("their marriage", "when did they marry"),
        ("1,000 euros", "1000 euro"),
        ("on the 3rd", "3"),
        ("café", "CAFE"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),  # noqa: RUF001  # the text has compatibility forms
        ("die Katzen schliefen und", "der Katze und"),
        ("los libros de ella", "el libro de ella"),
        ("купил машину и", "купила машины и"),
        ("١٢٣", "123"),
        ("don't like Mara's dog", "dog Mara like"),
        ("我昨天買了一隻貓", "貓"),
        ("東京に行きました", "東京"),
        ("학교에서 만났어", "학교"),
        ("ฉันชอบกินข้าว", "กินข้าว"),
        ("हिन्दी में पानी", "पानी"),
    ],
)
def test_texts_with_the_same_meaning_share_a_term(text: str, other: str) -> None:
    assert set(terms(text)) & set(terms(other))


def test_mark_inside_a_word_does_not_divide_it() -> None:
    assert words(fold("हिन्दी")) == ["हिन्दी"]


def test_long_word_is_shortened_to_the_limit() -> None:
    assert terms("x" * 100_000) == ["x" * LONGEST_WORD]


@given(st.text())
def test_terms_are_never_empty_or_too_long(text: str) -> None:
    text_terms = terms(text, AT)
    assert all(0 < len(term) <= LONGEST_WORD * 4 for term in text_terms)
    assert text_terms == terms(text, AT)
    ask(text, AT, ["de", "en"])


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_case_and_compatibility_forms_do_not_matter(text: str) -> None:
    assert words(fold(fold(text))) == words(fold(text))


@pytest.mark.parametrize("text", ["\x00", "\u0301", "\u0301\u0302", "👩‍👩‍👧", "\u202e", "___", "'", "٪", "\udc80"])
def test_text_without_words_has_no_terms(text: str) -> None:
    assert terms(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "on March 3rd, 2024",
        "3 March 2024",
        "3/3/2024",
        "03.03.2024",
        "2024-03-03",
        "2024/3/3",
        "am 3. März 2024",
        "el 3 de marzo de 2024",
        "le 3 mars 2024",
        "3 марта 2024",
        "2024年3月3日",
        "March 3rd",
        "am 03.03.",
    ],
)
def test_every_notation_of_a_day_gives_the_same_terms(text: str) -> None:
    assert date_terms(text) == {"@2024-03-03", "@2024-03", "@-03-03", "@-03"}


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("yesterday", "2024-05-07"),
        ("gestern", "2024-05-07"),
        ("ayer", "2024-05-07"),
        ("昨天我去了", "2024-05-07"),
        ("昨日行った", "2024-05-07"),
        ("一昨日行った", "2024-05-06"),
        ("last night", "2024-05-07"),
        ("two days ago", "2024-05-06"),
        ("2 days ago", "2024-05-06"),
        ("last Friday", "2024-05-03"),
        ("next Friday", "2024-05-10"),
        ("last Wednesday", "2024-05-01"),
        ("today", "2024-05-08"),
        ("tomorrow", "2024-05-09"),
    ],
)
def test_relative_day_counts_from_the_time_of_the_text(text: str, day: str) -> None:
    exact = {term for term in date_terms(text) if len(term) == 11}
    assert exact == {f"@{day}"}
    assert date_terms(text, None) == set()


def test_month_without_a_year_gets_the_nearest_year() -> None:
    assert "@2023-12" in date_terms("in December", datetime(2024, 1, 10, tzinfo=UTC))
    assert "@2025-01" in date_terms("in January", datetime(2024, 12, 10, tzinfo=UTC))
    assert "@2024-05" in date_terms("in May", AT)


@pytest.mark.parametrize("text", ["last year", "a year ago", "one year ago"])
def test_last_year_has_the_term_of_its_number(text: str) -> None:
    assert date_terms(text) == {"2023"}
    assert "2023" in terms("back in 2023")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What broke on 3 March?", {"broke", "@-03-03"}),
        ("What broke on March 3rd, 2024?", {"broke", "@2024-03-03"}),
        ("What broke on 2024-03-03?", {"broke", "@2024-03-03"}),
        ("What broke in March?", {"broke", "@-03"}),
        ("What broke yesterday?", {"broke", "yesterday", "@2024-05-07"}),
        ("What broke in 2023?", {"broke", "2023"}),
        ("Which 3 boats broke?", {"3", "boats", "broke"}),
    ],
)
def test_question_looks_up_its_date_instead_of_the_words_of_the_date(query: str, expected: set[str]) -> None:
    assert {word for word, _ in ask(query, AT, ["en"]).words} == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("When did the boiler break?", True),
        ("Until when is the hall booked?", True),
        ("Who mends boats, and when?", True),
        ("On which two dates were they away?", True),
        ("Seit wann wohnt sie dort?", True),
        ("¿Desde cuándo vive allí?", True),
        ("她什么时候搬家？", True),  # noqa: RUF001  # the question mark of Chinese
        ("What did she say when the boat came?", False),
        ("¿Qué temperatura tenía el mar cuando se bañó?", False),
        ("What does it write since then?", False),
    ],
)
def test_when_asks_for_a_time_unless_it_is_a_conjunction(query: str, *, expected: bool) -> None:
    assert ask(query, AT, ["en"]).asks_for_time == expected


@pytest.mark.parametrize(
    "text", ["you may go", "a long march", "99/99/2020", "31 February", "2024-13-01", "1.2.3", "0"]
)
def test_text_without_a_date_has_no_date_terms(text: str) -> None:
    assert not date_terms(text)


@given(st.text(alphabet="0123456789-/.: maychyesterdayago月日年"), st.datetimes(timezones=st.just(UTC)))
def test_any_text_like_a_date_can_be_read(text: str, at: datetime) -> None:
    date_terms(text, at)


def test_very_long_word_does_not_enter_the_cache_of_stems() -> None:
    long_word = "x" * 100_000
    assert analyse(long_word, None).terms == [long_word[:LONGEST_WORD]]
    assert not any(long_word in cache for cache in map(stems, STEMMERS))
