"""Tests deriving from 100 real runs: repeatably, in any slices, and against labels written by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agent_memory_log import Event, open_sync_store
from agent_memory_log.memory import Candidate, RunSlice, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.transcript import parse
from tests.memory.derive_report import PAGE, build_page, derive_all, read_labels, read_runs, topic_of
from tests.memory.stores import somebody

TAU = Path(__file__).resolve().parents[3] / "shared" / "data" / "tau_airline_train.jsonl"

pytestmark = pytest.mark.skipif(not TAU.exists(), reason="the runs are not part of the repository")


def logs() -> list[list[Event]]:
    return [
        [
            msgspec.structs.replace(event, seq=seq)
            for seq, event in enumerate(parse(run.messages, "openai-chat", source=str(number)), 1)
        ]
        for number, run in enumerate(read_runs(TAU))
    ]


def test_deriving_every_run_a_second_time_writes_nothing(tmp_path: Path) -> None:
    with open_sync_store(f"sqlite:///{tmp_path / 'runs.db'}?durability=os") as store:
        me = SyncMemoryClient(store, extractor=RuleExtractor(), max_keyed=None).of(somebody())
        for number, log in enumerate(logs()):
            store.append_events("airline", str(number), *log)
            first = me.derive("airline", str(number))
            assert (first.status, first.blocked) == ("ok", ())
        before = (me.stats(), me.list())
        for number in range(100):
            again = me.derive("airline", str(number))
            assert (again.status, again.outcomes, again.position) == ("ok", (), again.after)
        assert (me.stats(), me.list()) == before


def test_any_cut_into_two_slices_gives_the_same_candidates() -> None:
    extractor = RuleExtractor()

    def read(log: list[Event], after: int) -> tuple[tuple[Candidate, ...], int]:
        new = [event for event in log if event.seq > after]
        extraction = extractor.extract(RunSlice("airline", "run", {}, after, new, ("user",)))
        assert extraction.position is not None
        return extraction.candidates, extraction.position

    for log in logs()[::4]:
        expected = read(log, 0)
        for cut in range(len(log)):
            first, position = read(log[:cut], 0)
            second, end = read(log, position)
            assert (first + second, end) == expected


def test_the_labels_cover_exactly_the_derived_memories_of_the_sample() -> None:
    derived = derive_all(read_runs(TAU))
    for run in read_labels().runs:
        derived_memories = [(item.evidence[0].seq, item.kind, topic_of(item)) for item in derived.outcomes[run.run]]
        assert derived_memories == [(memory.seq, memory.kind, memory.key) for memory in run.memories]


def test_the_labels_quote_the_runs_they_name() -> None:
    runs = read_runs(TAU)
    labels = read_labels().runs
    assert len(labels) == 20
    for labelled in labels:
        run = runs[labelled.run]
        assert (run.task_id, run.trial) == (labelled.task_id, labelled.trial)
        user_text = " ".join(str(message["content"]) for message in run.messages if message["role"] == "user")
        for statement in labelled.statements:
            assert statement.quote.casefold().rstrip(".") in user_text.casefold().replace("\u2019", "'")


def test_the_report_page_matches_the_runs() -> None:
    assert build_page(read_runs(TAU)) == PAGE.read_text(encoding="utf-8")
