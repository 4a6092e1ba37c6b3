"""Processes remember, derive and forget concurrently. Each record is stored once. Forgotten records do not return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from agent_memory_log import AppendResult, Event, Snapshot, SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Principal, SyncMemoryClient, stream_of
from agent_memory_log.memory.stream.payloads import MemoryRemembered
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.steps import Steps, run_sync
from tests.memory.stores import TOGETHER, SaidPreferences
from tests.processes import finish, start

SECRET = "wolfram-4711-secret"
WRITES = 6
STATED = 8


@pytest.mark.parametrize("kind", ["sqlite", "mongo"])
def test_processes_can_write_and_forget_at_the_same_time(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url: str = f"sqlite:///{tmp_path / 'm.db'}" if kind == "sqlite" else request.getfixturevalue("mongo_uri")
    with open_sync_store(url) as store:
        texts = [f"stated {number}=v" for number in range(STATED)]
        texts.insert(STATED // 2, f"codeword={SECRET}")
        store.append_events("agent", "run", *(new_event(UserMessage(text)) for text in texts))
        writers = [start("remember_together", url, writer, str(WRITES)) for writer in ("one", "two")]
        forgetting = start("forget_together", url)
        assert finish(forgetting) == "1\n"
        for process in writers:
            finish(process)
        me = SyncMemoryClient(store, extractor=SaidPreferences(), max_keyed=None).of(TOGETHER)
        # Every write was stored exactly once.
        numbers = range(WRITES)
        written_values = {f"{writer} {number}" for writer in ("one", "two") for number in numbers}
        stated = {f"stated {number}" for number in range(STATED)}
        assert Counter(record.key for record in me.list()) == Counter({*written_values, *stated, "shared"})
        assert Counter(version.record.value for version in me.history("shared")) == Counter(written_values)
        for version in me.history("shared"):
            assert (version.record.status == "active") is (version.closed_at is None)
        stream = store.load_run(stream_of(TOGETHER.subject("user")), "records")
        remembered = [event.data for event in stream.log if isinstance(event.data, MemoryRemembered)]
        assert Counter(payload.key for payload in remembered if payload.evidence) == Counter(stated)
        # The forgotten value does not return.
        assert SECRET not in repr(stream.log)
        assert {outcome.action for outcome in me.rederive()[0].outcomes} == {"unchanged", "forgotten"}
        assert me.get(key="codeword") is None
        assert me.rebuild().equal


class RepeatingStore:
    """A store whose answer to an append is lost once. The append is repeated after another writer wrote."""

    def __init__(self, raw: SyncStore) -> None:
        self.raw = raw
        self.meanwhile: Callable[[], object] | None = None

    def append_events(self, agent: str, run: str, *events: Event, **options: Any) -> AppendResult:
        result = self.raw.append_events(agent, run, *events, **options)
        if self.meanwhile is None:
            return result
        meanwhile, self.meanwhile = self.meanwhile, None
        meanwhile()
        return self.raw.append_events(agent, run, *events, **options)

    def load_run(self, agent: str, run: str, **options: Any) -> Snapshot:
        return self.raw.load_run(agent, run, **options)

    def erasures(self, **options: Any) -> Any:
        return self.raw.erasures(**options)


def test_a_repeated_append_hides_no_write_of_another_client() -> None:
    with open_sync_store("memory:") as store:
        repeating = RepeatingStore(store)
        me, other = (
            SyncMemoryClient(cast("SyncStore", own_store)).of(Principal("acme", {"user": "42"}))
            for own_store in (repeating, store)
        )
        me.remember(key="tea", value="green")
        repeating.meanwhile = lambda: other.remember(key="city", value="Rome")
        me.remember(key="tea", value="black")
        me.remember(key="city", value="Lyon")
        assert [(record.key, record.value) for record in other.list()] == [("tea", "black"), ("city", "Lyon")]
        assert [(record.key, record.value) for record in me.list()] == [("tea", "black"), ("city", "Lyon")]
        assert me.rebuild().equal


def test_a_late_opening_of_the_stream_hides_no_event() -> None:
    """A task opens an empty stream. Before it holds the state, others write and read. No event is left out."""
    principal = Principal("acme", {"user": "42"})
    subject = Subject(principal.subject("user"))
    with open_sync_store("memory:") as store:

        def answer(request: Any) -> Any:
            return getattr(store, request.method)(*request.arguments, **request.options)

        opening = subject.reopen()
        empty = answer(next(opening))
        SyncMemoryClient(store).of(principal).remember(key="tea", value="green")
        run_sync(subject.refresh(), store)
        reading = subject.refresh()
        nothing_new = answer(next(reading))
        with pytest.raises(StopIteration):
            opening.send(empty)
        run_sync(_continued(reading, nothing_new), store)
        assert [live.memory.key for live in subject.ask(lambda state: list(state.records.values()))] == ["tea"]


def _continued(steps: Steps[None], result: object) -> Steps[None]:
    """Continue an operation with the result of its request."""
    with suppress(StopIteration):
        while True:
            result = yield steps.send(result)
