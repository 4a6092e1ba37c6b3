"""Tests that calls take linear time in every dimension of their data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from agent_memory_log import open_sync_store
from agent_memory_log.events.payloads import ToolCall, ToolResult
from agent_memory_log.interchange.atif import from_atif
from agent_memory_log.memory import Candidate, Evidence, Preference, Principal, SyncMemoryClient, alias_key
from agent_memory_log.memory.extraction.rules import RuleExtractor
from agent_memory_log.memory.extraction.statements import read_statements
from agent_memory_log.memory.search import searching
from agent_memory_log.recording.streams import joined
from agent_memory_log.replay.expectations import read_expectations
from agent_memory_log.store import SyncStore
from agent_memory_log.transcript import provider_names
from examples.capture_and_apply.verifiers import is_concise
from tests.growth import (
    CALLS,
    FLAT,
    MOST,
    SMALL_READS,
    answers,
    chat_stream,
    cited_stream,
    fill_run,
    foreign,
    growth,
    index_of,
    messages,
    record_calls,
    resume_calls,
    run,
    slice_of,
    slow_calls,
    slow_transcripts,
    verify_redacted,
)

_NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize("provider", provider_names())
def test_transcripts_take_linear_time(provider: str) -> None:
    assert slow_transcripts(provider, 500, MOST) == {}


def test_a_name_with_many_titles_takes_linear_time() -> None:
    numbers = count()  # no name is read twice, so that no cache helps

    def read(titles: str) -> None:
        alias_key(f"{titles}Ana {next(numbers)}")

    assert growth(partial(read, "dr " * 50_000), partial(read, "dr " * 200_000), MOST) <= MOST


@pytest.mark.parametrize("name", CALLS)
def test_calls_on_runs_take_linear_time(name: str) -> None:
    assert slow_calls(name, 300, MOST) == {}


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@pytest.mark.parametrize("name", SMALL_READS)
def test_small_reads_do_not_grow_with_the_run(tmp_path: Path, name: str, backend: str) -> None:
    def opened(events: int) -> SyncStore:
        return open_sync_store("memory:" if backend == "memory" else f"sqlite:///{tmp_path / str(events)}")

    with opened(500) as small, opened(8000) as large:
        fill_run(small, 500)
        fill_run(large, 8000)
        of_small, of_large = (
            lambda store=store: [SMALL_READS[name](store) for _ in range(30)] for store in (small, large)
        )
        assert growth(of_small, of_large, FLAT) <= FLAT


def test_foreign_step_with_many_calls_takes_linear_time() -> None:
    small, large = foreign(run("parallel", 2000)), foreign(run("parallel", 8000))
    assert growth(partial(from_atif, small), partial(from_atif, large), MOST) <= MOST


@pytest.mark.parametrize("provider", provider_names())
def test_expectations_of_merged_answers_take_linear_time(provider: str) -> None:
    small, large = (
        partial(read_expectations, answers(150), provider),
        partial(read_expectations, answers(600), provider),
    )
    assert growth(small, large, MOST) <= MOST


@pytest.mark.parametrize("ids", ["{}".format, "call".format], ids=["different ids", "same id"])
def test_recording_takes_linear_time(ids: Callable[[int], str]) -> None:
    assert growth(partial(record_calls, ids, 1000), partial(record_calls, ids, 4000), MOST) <= MOST


def test_resuming_open_calls_with_one_id_takes_linear_time() -> None:
    assert growth(partial(resume_calls, 400), partial(resume_calls, 1600), MOST) <= MOST


def test_streams_take_linear_time() -> None:
    for provider, stream in (("openai-chat", chat_stream), ("anthropic", cited_stream)):
        assert growth(partial(joined, stream(1000), provider), partial(joined, stream(4000), provider), MOST) <= MOST


def test_verifying_redacted_runs_takes_linear_time() -> None:
    small, large = (lambda: asyncio.run(verify_redacted(1500))), (lambda: asyncio.run(verify_redacted(6000)))
    assert growth(small, large, MOST) <= MOST


@pytest.mark.parametrize(
    "text",
    [
        "I prefer tea.",
        "I prefer tea" + "\xa0" * 900 + "x",
        "that works " + "thanks " * 50,
        "use " * 200,
        "and I " * 200,
    ],
    ids=lambda text: text[:12],
)
def test_derive_takes_linear_time(text: str) -> None:
    extract = RuleExtractor().extract
    small, large = messages(40, text), messages(160, text)
    assert growth(partial(extract, small), partial(extract, large), MOST) <= MOST


def test_derive_with_uncorrected_failures_takes_linear_time() -> None:
    small, large = (
        slice_of(
            payload
            for number in range(count)
            for payload in (
                ToolCall(f"{number}", "toolset.tool", payload_json=f'{{"key-{number}":1}}'),
                ToolResult(f"{number}", "toolset.tool", error_message="failed" if number < count // 2 else ""),
            )
        )
        for count in (400, 1600)
    )
    extract = RuleExtractor().extract
    assert growth(partial(extract, small), partial(extract, large), MOST) <= MOST


@pytest.mark.parametrize("text", ["on Monday ", "3/4/2026 ", "tea ", "a1.", "猫"], ids=repr)
def test_index_and_search_take_linear_time(text: str) -> None:
    assert growth(partial(index_of, 1, text * 2000), partial(index_of, 1, text * 8000), MOST) <= MOST
    assert growth(partial(index_of, 100, text), partial(index_of, 400, text), MOST) <= MOST
    small, large = index_of(500, text), index_of(2000, text)
    assert growth(partial(small.search, text * 5, now=_NOW), partial(large.search, text * 5, now=_NOW), MOST) <= MOST


@pytest.mark.parametrize("end", ["", "x"])
def test_is_concise_takes_linear_time(end: str) -> None:
    for unit in (".", ".\xa0", "!?", ".'"):
        small, large = unit * 2000 + end, unit * 8000 + end
        assert growth(partial(is_concise, "concise", small), partial(is_concise, "concise", large), MOST) <= MOST


@pytest.mark.parametrize("unit", ["\xa0", '"', "\n", "- ", "I prefer ", "`", "«", "> ", ". "], ids=repr)
def test_statements_take_linear_time(unit: str) -> None:
    small, large = (f"I prefer tea{unit * (size // len(unit))}x" for size in (900, 3600))
    assert growth(partial(read_statements, small), partial(read_statements, large), MOST) <= MOST


@pytest.mark.parametrize(
    "unit",
    [
        "don't, ", "no more, ", "bitte, ", "siempre, ", "toujours, ", "when I say, ", "I'd rather you, ",
        "I see, so use ", "before you give ", "answers in a ", "dass du, ", "mir wäre lieber, ", "no hace falta, ",
        "quand tu me dis, ",
    ],
)  # fmt: skip
def test_sentences_of_many_clauses_take_linear_time(unit: str) -> None:
    """An order could begin at each clause of such a sentence, which has the words of lasting orders."""
    small, large = (f"always you your {unit * (size // len(unit))}x" for size in (900, 3600))
    assert growth(partial(read_statements, small), partial(read_statements, large), MOST) <= MOST


def test_quadratic_time_is_detected() -> None:
    def work(size: int) -> Callable[[], object]:
        return lambda: sum(1 for _ in range(size) for _ in range(size))

    assert growth(work(300), work(1200), MOST) > MOST
    assert growth(work(300), work(600), MOST) <= MOST


@pytest.mark.parametrize("call", ["kinds", "boosts"])
def test_filters_by_kinds_and_boosts_take_linear_time(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record needs one lookup of its name, without a loop over the caller's names."""
    monkeypatch.setattr(searching, "index_maker", lambda: None)

    def call_with(count: int) -> Callable[[], object]:
        store = stores.enter_context(open_sync_store("memory:"))
        me = SyncMemoryClient(store, max_keyed=None).of(Principal("acme", {"user": "1"}))
        me.write([Candidate(Preference(f"key {number}", "zebra")) for number in range(count)])
        names = [f"name {number}" for number in range(count)]
        if call == "kinds":
            return partial(me.list, kinds=names)
        return partial(me.search, "zebra", boost_preferences=names)

    with ExitStack() as stores:
        assert growth(call_with(400), call_with(1600), MOST) <= MOST


def test_a_statement_that_a_run_repeats_takes_linear_time() -> None:
    """Each repetition adds one evidence, without a look at those before it."""

    def write(count: int) -> None:
        with open_sync_store("memory:") as store:
            me = SyncMemoryClient(store).of(Principal("acme", {"user": "1"}))
            me.write([_statement(number) for number in range(count)])

    assert growth(partial(write, 1_000), partial(write, 4_000), MOST) <= MOST


def _statement(number: int) -> Candidate:
    return Candidate(Preference("language", "german"), evidence=(Evidence("support", "run", number + 1),))
