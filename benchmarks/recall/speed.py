"""Measures the speed and memory of the recall index, and the speed of SQLite's full-text search on the same texts."""

from __future__ import annotations

import gc
import statistics
import tracemalloc
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import msgspec

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.recall import Document, RecallIndex
from benchmarks.measure import no_collections
from benchmarks.recall.corpus import Conversation
from benchmarks.recall.rankers import TOP, full_text

MESSAGES: Final = 10_000
RUNS: Final = 100


class Speed(msgspec.Struct, frozen=True):
    """The measured speed and memory.

    Attributes:
        median: The median time of a search with the recall index, in seconds.
        slowest: The 99th percentile of that time, in seconds.
        fts5_median: The median time of a search with FTS5, in seconds.
        fts5_slowest: The 99th percentile of that time, in seconds.
        stored: The median time of ``me.search`` over ``RUNS`` runs in a SQLite file, in seconds.
        stored_slowest: The 99th percentile of that time, in seconds.
        built: The messages that the index adds in a second.
        memory: The bytes of the index for each message.
    """

    median: float
    slowest: float
    fts5_median: float
    fts5_slowest: float
    stored: float
    stored_slowest: float
    built: float
    memory: float


def measure(conversations: Sequence[Conversation]) -> Speed:
    """Measure searches with the questions of ``conversations`` over ``MESSAGES`` messages made from their turns."""
    documents = documents_of(conversations, MESSAGES)
    questions = [question.question for conversation in conversations for question in conversation.questions]
    now = max(turn.time for conversation in conversations for turn in conversation.turns)
    _build(documents[:100])
    with no_collections():
        start = perf_counter()
        index = _build(documents)
        built = len(documents) / (perf_counter() - start)
    median, slowest = timed(lambda question: index.search(question, now=now, top_k=TOP), questions)
    fts5_median, fts5_slowest = timed(full_text([document.text for document in documents], TOP), questions)
    stored, stored_slowest = _stored(documents, questions)
    del index
    gc.collect()
    tracemalloc.start()
    index = _build(documents)
    memory = tracemalloc.get_traced_memory()[0] / len(index)
    tracemalloc.stop()
    return Speed(median, slowest, fts5_median, fts5_slowest, stored, stored_slowest, built, memory)


def _stored(documents: Sequence[Document], questions: Sequence[str]) -> tuple[float, float]:
    run_length = len(documents) // RUNS
    with TemporaryDirectory() as folder, open_sync_store(f"sqlite:///{folder}/runs.db") as store:
        me = SyncMemoryClient(store).of(Principal(tenant="bench", scopes={"user": "1"}))
        for number in range(RUNS):
            turns = documents[number * run_length : (number + 1) * run_length]
            events = [new_event(UserMessage(turn.text), labels={"speaker": turn.speaker}) for turn in turns]
            store.append_events("agent", f"run-{number}", *events)
            me.link_run("agent", f"run-{number}")
        return timed(lambda question: me.search(question, top_k=TOP), questions)


def documents_of(conversations: Sequence[Conversation], count: int) -> list[Document]:
    """Return ``count`` messages that are made from the turns of ``conversations``."""
    turns = [turn for conversation in conversations for turn in conversation.turns]
    mixed = islice(zip(cycle(turns), cycle([turns[at * 7919 % len(turns)] for at in range(len(turns) + 1)])), count)
    return [
        Document(
            # Texts join halves of two turns, and every fourth has a unique word. So they repeat as little as in a talk.
            id=f"agent/run-{number // 400}/{number}",
            text=f"{turn.text[: len(turn.text) // 2]} {other.text[len(other.text) // 2 :]}"
            + f" w{number}" * (number % 4 == 0),
            session=f"agent/run-{number // 400}",
            position=number,
            speaker=turn.speaker,
            time=turn.time,
        )
        for number, (turn, other) in enumerate(mixed)
    ]


def _build(documents: Sequence[Document]) -> RecallIndex:
    index = RecallIndex()
    for document in documents:
        index.add(document)
    return index


def timed(search: Callable[[str], object], questions: Sequence[str]) -> tuple[float, float]:
    """Return the median time of a search, and the 99th percentile, in seconds."""
    for question in questions:
        search(question)
    times: list[float] = []
    for question in questions:
        start = perf_counter()
        search(question)
        times.append(perf_counter() - start)
    return statistics.median(times), statistics.quantiles(times, n=100)[-1]
