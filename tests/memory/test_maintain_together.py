"""Processes maintain one memory at the same time and are killed: no work is lost, and no work is done twice."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import SyncStore, open_sync_store
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.memory import Candidate, Episode, Fact, MaintainReport, SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.governance import maintenance
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.stream.payloads import MemoryClosed, MemoryMaintained
from tests import processes
from tests.growth import calls_of
from tests.memory.stores import TOGETHER, SetClock, somebody
from tests.memory.test_machine import CrashingStore

DAYS = 65
TOPICS = 6


def project(topic: int) -> str:
    """Return a name without a number, because two numbers would be a conflict."""
    return f"project{chr(97 + topic // 26)}{chr(97 + topic % 26)}"


def fill(store: SyncStore, topics: int = TOPICS) -> None:
    """Store three episodes about each topic, and one episode and one fact about each that stay alone."""
    me = SyncMemoryClient(store, clock=SetClock(), max_keyed=None).of(TOGETHER)
    me.write([candidate for topic in range(topics) for candidate in _candidates(topic)])


def _candidates(topic: int) -> list[Candidate]:
    episodes = [
        Candidate(
            Episode("discovery"), text=f"We looked at {project(topic)} with {part}.", entities=(f"{project(topic)}",)
        )
        for part in ("alpha", "beta", "gamma")
    ]
    weak = Candidate(Episode("error"), text=f"A dull thing happened, number {topic}.", importance=0)
    return [*episodes, weak, Candidate(Fact(f"fact {topic}", f"value{topic}"))]


def check(store: SyncStore, topics: int = TOPICS) -> None:
    """Check that the memory is what one undisturbed round makes of it."""
    clock = SetClock()
    clock.move(days=DAYS)
    me = SyncMemoryClient(store, clock=clock).of(TOGETHER)
    expected = [
        f"We looked at {project(topic)} with alpha. We looked at {project(topic)} with beta. "
        f"We looked at {project(topic)} with gamma."
        for topic in range(topics)
    ]
    assert sorted(record.text for record in me.list(kinds=["episode"])) == sorted(expected)
    assert len(me.list(kinds=["fact"])) == topics
    stream = store.load_run(stream_of(TOGETHER.subject("user")), STREAM_RUN)
    closed = Counter(
        record for event in stream.log if isinstance(event.data, MemoryClosed) for record in event.data.records
    )
    assert len(closed) == 4 * topics
    assert set(closed.values()) == {1}
    positions = [event.data for event in stream.log if isinstance(event.data, MemoryMaintained)]
    assert positions[-1].step == maintenance.DONE
    order = [(maintenance.STEPS.index(data.step), data.after) for data in positions]
    for before, later in pairwise(order):
        is_new_round = before[0] == maintenance.STEPS.index(maintenance.DONE)
        assert is_new_round or before < later, "a slice was repeated"
    assert me.rebuild().equal


@pytest.mark.parametrize("kind", ["sqlite", "mongo"])
def test_processes_share_rounds_and_survive_kills(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url: str = f"sqlite:///{tmp_path / 'm.db'}" if kind == "sqlite" else request.getfixturevalue("mongo_uri")
    chance = random.Random(5)
    with open_sync_store(url) as store:
        fill(store)
        for _ in range(3):
            killed = processes.start("maintain_together", url, str(DAYS))
            assert killed.stdout is not None
            for _ in range(chance.randrange(1, 6)):
                killed.stdout.readline()
            killed.kill()
            killed.communicate(timeout=processes.PATIENCE)
        both = [processes.start("maintain_together", url, str(DAYS)) for _ in range(2)]
        for process in both:
            assert processes.finish(process).endswith("\n0\n")
        check(store)


def _opened(store: Any, clock: SetClock) -> SyncMemory:
    return SyncMemoryClient(store, clock=clock, max_keyed=None).of(TOGETHER)


@pytest.mark.parametrize("write", range(8))
def test_another_process_between_read_and_write_repeats_nothing(write: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SLICE", 4)
    monkeypatch.setattr(maintenance, "GROUPS_AT_ONCE", 1)
    raw, clock = open_sync_store("memory:"), SetClock()
    fill(raw, 2)
    clock.move(days=DAYS)
    crashing = CrashingStore(raw)
    me, other = _opened(crashing, clock), _opened(raw, clock)
    reports: list[MaintainReport] = []
    left = write

    def interrupt() -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            crashing.before_write = interrupt
        else:
            reports.append(other.maintain())

    crashing.before_write = interrupt
    reports.append(me.maintain())
    crashing.before_write = None
    for action in ("demoted", "decayed", "consolidated"):
        changed = Counter(change.record for report in reports for change in getattr(report, action))
        assert set(changed.values()) == {1}, action
    check(raw, 2)


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_write_repeats_nothing(after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SLICE", 3)
    monkeypatch.setattr(maintenance, "GROUPS_AT_ONCE", 1)
    for write in range(12):
        raw, clock = open_sync_store("memory:"), SetClock()
        fill(raw, 2)
        clock.move(days=DAYS)
        crashing = CrashingStore(raw)
        crashing.left, crashing.after = write, after
        with suppress(StoreUnavailable):
            _opened(crashing, clock).maintain()
        _opened(raw, clock).maintain()
        check(raw, 2)
        raw.delete_run(stream_of(TOGETHER.subject("user")), STREAM_RUN)


def test_the_work_of_a_round_is_linear() -> None:
    counts: list[int] = []
    for topics in (60, 240):
        store, clock = open_sync_store("memory:"), SetClock()
        me = SyncMemoryClient(store, clock=clock, max_keyed=None).of(somebody(user="1"))
        me.write([candidate for topic in range(topics) for candidate in _candidates(topic)])
        clock.move(days=DAYS)
        counts.append(calls_of(lambda: me.maintain(profile_tokens=1)))  # noqa: B023  # called at once
    assert counts[1] < 4.6 * counts[0]
