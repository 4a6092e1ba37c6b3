"""A state machine that runs the same operations on SQLite and the in-memory store and compares their results."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_memory_log import AgentMemoryLogError, AppendResult, Event, PlannerNote, Snapshot, SyncStore, open_sync_store
from agent_memory_log.capabilities import Compacts
from agent_memory_log.events.event import new_event
from agent_memory_log.store import RunHead, RunPage
from tests import strategies

RUNS = ("a", "b", "A")
TYPES = st.none() | st.sets(st.sampled_from(["planner_note", "redacted", "redaction", "user_message", "tool_call"]))

# Both strategies are created once, because Hypothesis needs more time to create a strategy than to draw from it.
_ANY_EVENT = strategies.events()
_ANY_META = st.none() | strategies.json_maps().map(dict)


@st.composite
def _events(draw: st.DrawFn) -> Event:
    """Draw any event. Hypothesis then prints the short name of this function instead of the long strategy."""
    return draw(_ANY_EVENT)


@st.composite
def _metas(draw: st.DrawFn) -> dict[str, Any] | None:
    return draw(_ANY_META)


def _comparable(event: Event) -> object:
    """Return the parts of an event that are equal in both stores. Markers have other ids and times in each."""
    is_marker = event.type == "redaction"
    return (event.seq, event.data, event.labels, None if is_marker else (event.event_id, event.timestamp))


def _peek(store: SyncStore, runs: list[str]) -> object:
    """Return the heads of runs. Check that they agree with ``load_run``."""
    heads = store.peek_runs([("agent", run) for run in runs])
    loaded = [store.load_run("agent", run, limit=1) for run in runs]
    assert heads == tuple(RunHead(snapshot.version, snapshot.first_seq) for snapshot in loaded)
    return heads


def _last(store: SyncStore, run: str, after: int, types: set[str] | None, last: int) -> Snapshot:
    """Return the newest events. Check that they end the events after ``after``, and equal a read that begins there."""
    snapshot = store.load_run("agent", run, after=after, types=types, last=last)
    assert list(snapshot.log) == list(store.load_run("agent", run, after=after, types=types).log)[-last:]
    assert snapshot == store.load_run("agent", run, after=snapshot.after, types=types)
    return snapshot


def _list(store: SyncStore, agent: str | None, limit: int) -> RunPage:
    """Return a page of runs. Check the time of each run's newest event, which differs between stores for a marker."""
    page = store.list_runs(agent, limit=limit)
    for info in page.runs:
        (newest,) = store.load_run(info.agent, info.run, last=1).log
        assert (info.version, info.updated) == (newest.seq, newest.timestamp)
    return page


def _outcome(call: Callable[[], Any]) -> object:
    """Return the result or the error of a call, in a form that is equal for both stores."""
    try:
        result = call()
    except AgentMemoryLogError as error:
        return (error.code, getattr(error, "actual", None), getattr(error, "seq", None))
    if isinstance(result, AppendResult):
        return (result.version, result.inserted, [_comparable(event) for event in result.events])
    if isinstance(result, Snapshot):
        return _snapshot(result)
    if isinstance(result, RunPage):
        runs = [(run.agent, run.run, run.version, run.event_count, run.meta) for run in result.runs]
        return (runs, result.cursor is None)
    return result


def _snapshot(snapshot: Snapshot) -> object:
    return (
        (snapshot.version, snapshot.last_seq, snapshot.first_seq, snapshot.after, snapshot.meta, snapshot.types),
        [_comparable(event) for event in snapshot.log],
        [event.seq for event in snapshot.events],
    )


class StoresAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.url = f"sqlite:///{self.folder / 'runs.db'}?durability=os"
        self.sqlite = open_sync_store(self.url)
        self.memory = open_sync_store("memory:")
        self.last: tuple[str, tuple[Event, ...]] | None = None
        self.warm: dict[str, Snapshot] = {}

    def teardown(self) -> None:
        self.sqlite.close()
        self.memory.close()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[SyncStore], object]) -> object:
        outcome = _outcome(lambda: call(self.sqlite))
        assert outcome == _outcome(lambda: call(self.memory))
        return outcome

    @rule(
        run=st.sampled_from(RUNS),
        events=st.lists(_events(), min_size=0, max_size=4),
        ids=st.lists(st.sampled_from("uvwxyz"), min_size=4, max_size=4),
        expected=st.none() | st.integers(0, 12),
        meta=_metas(),
    )
    def append(
        self, run: str, events: list[Event], ids: list[str], expected: int | None, meta: dict[str, Any] | None
    ) -> None:
        # There are only a few ids, so that some are already stored and some are repeated in a batch.
        batch = tuple(
            new_event(event.data, timestamp=event.timestamp, labels=event.labels, event_id=event_id)
            for event, event_id in zip(events, ids, strict=False)
        )
        self.both(lambda store: store.append_events("agent", run, *batch, expected_version=expected, meta=meta))
        self.last = (run, batch)

    @rule(run=st.sampled_from(RUNS), count=st.integers(1, 120))
    def append_many(self, run: str, count: int) -> None:
        notes = tuple(new_event(PlannerNote(note=str(number))) for number in range(count))
        self.both(lambda store: store.append_events("agent", run, *notes))
        self.last = (run, notes)

    @rule()
    def retry(self) -> None:
        if self.last is not None:
            run, events = self.last
            self.both(lambda store: store.append_events("agent", run, *events, expected_version=0))

    @rule(run=st.sampled_from(RUNS), first_seq=st.integers(1, 200))
    def import_at(self, run: str, first_seq: int) -> None:
        note = new_event(PlannerNote(note="imported"))
        self.both(lambda store: store.append_events("agent", run, note, first_seq=first_seq))

    @rule(run=st.sampled_from(RUNS), after=st.integers(0, 30), types=TYPES, limit=st.none() | st.integers(1, 20))
    def load(self, run: str, after: int, types: set[str] | None, limit: int | None) -> None:
        self.both(lambda store: store.load_run("agent", run, after=after, types=types, limit=limit))

    @rule(run=st.sampled_from(RUNS), after=st.integers(0, 30), types=TYPES, last=st.integers(1, 20))
    def load_last(self, run: str, after: int, types: set[str] | None, last: int) -> None:
        self.both(lambda store: _last(store, run, after, types, last))

    @rule(run=st.sampled_from(RUNS), ids=st.lists(st.sampled_from("uvwxyz0"), max_size=5))
    def find(self, run: str, ids: list[str]) -> None:
        self.both(lambda store: [event and _comparable(event) for event in store.find_events("agent", run, ids)])

    @rule(run=st.sampled_from(RUNS), seqs=st.sets(st.integers(1, 20), max_size=4), reason=strategies.texts())
    def redact(self, run: str, seqs: set[int], reason: str) -> None:
        self.both(lambda store: store.redact_events("agent", run, seqs, reason=reason))

    @rule(run=st.sampled_from(RUNS))
    def delete(self, run: str) -> None:
        self.both(lambda store: store.delete_run("agent", run))

    @rule(limit=st.integers(1, 4), agent=st.sampled_from([None, "agent", "nobody"]))
    def list_runs(self, limit: int, agent: str | None) -> None:
        self.both(lambda store: _list(store, agent, limit))

    @rule(runs=st.lists(st.sampled_from(RUNS), max_size=4))
    def peek(self, runs: list[str]) -> None:
        self.both(lambda store: _peek(store, runs))

    @rule()
    def reopen(self) -> None:
        self.sqlite.close()
        self.sqlite = open_sync_store(self.url)

    @rule()
    def compact(self) -> None:
        assert isinstance(self.sqlite, Compacts)
        self.sqlite.compact()

    @rule(run=st.sampled_from(RUNS), types=TYPES, limit=st.none() | st.integers(1, 20))
    def extend(self, run: str, types: set[str] | None, limit: int | None) -> None:
        """Check that an extended snapshot equals a new read of the run."""
        key = f"{run} {sorted(types) if types is not None else None}"
        extended = self.warm.get(key) or self.sqlite.load_run("agent", run, types=types)
        while True:
            newer = self.sqlite.load_run("agent", run, after=extended.last_seq, types=types, limit=limit)
            extended = extended.extend(newer)
            if extended.last_seq == extended.version:
                break
        self.warm[key] = extended
        assert extended == self.sqlite.load_run("agent", run, types=types)

    @invariant()
    def every_run_is_equal(self) -> None:
        for run in RUNS:
            self.both(lambda store: store.load_run("agent", run))  # noqa: B023  # called at once


TestStoresAgree = StoresAgree.TestCase
TestStoresAgree.settings = settings(stateful_step_count=25)
