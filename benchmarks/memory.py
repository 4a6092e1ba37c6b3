"""The rows of the table that measure derived memory, on SQLite.

The floor loads the events of the same stream without a snapshot. To compute the records, a client must load them first.
"""

from __future__ import annotations

from pathlib import Path

from agent_memory_log import Event, SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Principal, SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.records.record import Evidence, Source
from agent_memory_log.memory.stream.payloads import MemoryClosed, MemoryRemembered
from benchmarks import workload
from benchmarks.measure import Progress, Ratio, compare, timed
from benchmarks.scratch import scratch
from benchmarks.table import Row

_ME = Principal("acme", {"user": "42"})
_WITH = Principal("acme", {"user": "43"})
_LOOKS = 200
_RUNS = 100
_EVENTS_A_STATEMENT = 20


def rows(fast: Path) -> list[Row]:
    """Return every comparison."""
    rows: list[Row] = []
    for count in (1_000, 10_000, 100_000):
        rows += [
            _row(fast, f"Memory, open {count:,} records cold", 1.5, count, count, snapshot=False),
            _row(fast, f"Memory, open {count:,}, all live, by a snapshot", 0.7, count, count, snapshot=True),
            _row(fast, f"Memory, open {count:,}, a fifth live, by a snapshot", 0.3, count, count // 5, snapshot=True),
        ]
    return [
        *rows,
        Row("Memory, get from 10,000 warm", "the check for news", None, lambda n, p: warm(fast, "get", n, p)),
        Row("Memory, list 100 warm", "the check for news", None, lambda n, p: warm(fast, "list", n, p)),
        Row("Memory, derive, runs of 30 events", "reading the run", None, lambda n, p: deriving(fast, 30, n, p)),
        Row("Memory, derive, 1,000 events", "reading the run", None, lambda n, p: deriving(fast, 1_000, n, p)),
    ]


def _row(fast: Path, name: str, target: float, count: int, live: int, *, snapshot: bool) -> Row:
    return Row(name, "loading its events", target, lambda n, p: opening(fast, count, live, n, p, snapshot=snapshot))


def _statements(count: int, live: int) -> list[Event]:
    """Return a stream of ``count`` statements about ``live`` keys. A repeated key closes its older statement."""
    events: list[Event] = []
    open_ids: dict[int, str] = {}
    for number in range(count):
        key = number % live
        remembered = MemoryRemembered(
            kind="fact",
            key=f"fact-{key}",
            data={"key": f"fact-{key}", "value": f"the customer's order number {number} was shipped on Tuesday"},
            source=Source("run", "support-agent/run-42"),
            evidence=(Evidence("support-agent", "run-42", number + 1, "rules/1"),),
        )
        event = new_event(remembered)
        events.append(event)
        if key in open_ids:
            events.append(new_event(MemoryClosed((open_ids[key],), "superseded", event.event_id, "superseded")))
        open_ids[key] = event.event_id
    return events


def _fill(store: SyncStore, principal: Principal, events: list[Event]) -> str:
    agent = stream_of(principal.subject("user"))
    for batch in workload.chunks(events, 5_000):
        store.append_events(agent, STREAM_RUN, *batch, reserved=True)
    return agent


def _client(store: SyncStore, principal: Principal) -> SyncMemory:
    return SyncMemoryClient(store, max_keyed=None).of(principal)


def opening(parent: Path, count: int, live: int, rounds: int, progress: Progress, *, snapshot: bool) -> Ratio:
    """Get one record of a subject that the client has not opened yet, against loading its events."""
    events = _statements(count, live)
    with scratch(parent) as folder, open_sync_store(f"sqlite:///{folder / 'ours.db'}") as store:
        agent = _fill(store, _ME, events)
        principal = _ME
        if snapshot:
            principal = _WITH
            _fill(store, _WITH, events)
            _client(store, _WITH).maintain()
            assert _client(store, _WITH).stats().snapshot_parts
        repeat = max(1, 10_000 // count)

        def measured() -> float:
            def work() -> None:
                for _ in range(repeat):
                    assert _client(store, principal).get(key="fact-1") is not None

            return timed(work, repeat)

        def baseline() -> float:
            return timed(lambda: [store.load_run(agent, STREAM_RUN) for _ in range(repeat)], repeat)

        return compare(measured, baseline, rounds if count < 100_000 else min(rounds, 5), progress)


def warm(parent: Path, call: str, rounds: int, progress: Progress) -> Ratio:
    """Call ``get`` or ``list`` on a client that has read all events, against a read that returns no new events."""
    count = 100 if call == "list" else 10_000
    with scratch(parent) as folder, open_sync_store(f"sqlite:///{folder / 'ours.db'}") as store:
        agent = _fill(store, _ME, _statements(count, count))
        me = _client(store, _ME)
        me.list()
        version = store.load_run(agent, STREAM_RUN, limit=1).version

        def measured() -> float:
            def work() -> None:
                for _ in range(_LOOKS):
                    if call == "list":
                        me.list()
                    else:
                        me.get(key="fact-1")

            return timed(work, _LOOKS)

        def baseline() -> float:
            return timed(lambda: [store.load_run(agent, STREAM_RUN, after=version) for _ in range(_LOOKS)], _LOOKS)

        return compare(measured, baseline, rounds, progress)


def deriving(parent: Path, length: int, rounds: int, progress: Progress) -> Ratio:
    """Derive memories from runs of ``length`` events, against loading them. Every twentieth event is a statement.

    The write is part of the measurement. A real disk adds one fsync for each run.
    """
    runs = max(1, _RUNS * 30 // length)
    with scratch(parent) as folder, open_sync_store(f"sqlite:///{folder / 'ours.db'}") as store:
        for run in range(runs):
            events = workload.events(length)
            for place in range(0, length, _EVENTS_A_STATEMENT):
                events[place] = new_event(UserMessage(f"I prefer the colour {run}-{place} for part {place}."))
            store.append_events("agent", str(run), *events)
        users = 0

        def measured() -> float:
            nonlocal users
            users += 1
            me = SyncMemoryClient(store, extractor=RuleExtractor()).of(Principal("acme", {"user": f"d{users}"}))
            assert me.list() == ()

            def work() -> None:
                for run in range(runs):
                    assert me.derive("agent", str(run)).written

            return timed(work, runs)

        def baseline() -> float:
            return timed(lambda: [len(store.load_run("agent", str(run)).log) for run in range(runs)], runs)

        return compare(measured, baseline, rounds, progress)
