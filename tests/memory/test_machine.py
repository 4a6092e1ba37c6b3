"""A state machine runs the same steps on memory and on a plain dict.

The steps use two clients and include crashes, erasures, snapshots and a manual clock. After each step, both clients
list the records of the dict. Their warm state equals a fold of the complete stream, byte for byte. The stream contains
no forgotten value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from agent_memory_log import AppendResult, Event, Snapshot, SyncStore, UserMessage, new_event
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory import Episode, MaintainReport, Principal, SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.governance.ageing import Strength, strength_of
from agent_memory_log.memory.records.kinds import fold_key
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.records.record import Status
from agent_memory_log.memory.stream import snapshots
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.state import Live
from agent_memory_log.memory.stream.subjects import Subject, folded
from agent_memory_log.steps import run_sync
from tests.effort import EXAMPLES
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, store_url

__all__ = ["open_memory_store", "store_url"]

MAX_KEYED = 4
SCOPES = ("user", "workspace")
KEYS = ("language", " Language", "tone", "näme", "NÄME", "$key.%/", "five")
VALUES = ("~engl~", "~germ~", "~dry~", "~Ünï~", "~\0nul~")
_tenants = itertools.count()


class CrashingStore:
    """A store that fails before or after a chosen write, or calls a function before a write."""

    def __init__(self, raw: SyncStore) -> None:
        self.raw = raw
        self.left: int | None = None
        self.after = False
        self.before_write: Callable[[], None] | None = None

    def _writing(self, call: Callable[[], Any]) -> Any:
        if self.before_write is not None:
            before_write, self.before_write = self.before_write, None
            before_write()
        if self.left is None:
            return call()
        self.left -= 1
        if self.left >= 0:
            return call()
        if self.after:
            call()
        raise StoreUnavailable("the process crashes here")

    def append_events(self, agent: str, run: str, *events: Event, **options: Any) -> AppendResult:
        result: AppendResult = self._writing(lambda: self.raw.append_events(agent, run, *events, **options))
        return result

    def redact_events(self, agent: str, run: str, seqs: Any, *, reason: str = "") -> AppendResult:
        result: AppendResult = self._writing(lambda: self.raw.redact_events(agent, run, seqs, reason=reason))
        return result

    def load_run(self, agent: str, run: str, **options: Any) -> Snapshot:
        return self.raw.load_run(agent, run, **options)

    def peek_runs(self, runs: Any) -> Any:
        return self.raw.peek_runs(runs)

    def erasures(self, **options: Any) -> Any:
        return self.raw.erasures(**options)


class ExpectedRecord(msgspec.Struct):
    """The expected content of a record."""

    scope: str
    kind: str
    key: str
    text: str
    importance: float
    until: datetime | None
    updated: datetime
    created: datetime
    status: str = "active"
    stated: bool = True
    support: set[int] = msgspec.field(default_factory=set[int])


class MemoryIsADict(RuleBasedStateMachine):
    def __init__(self, stores: list[SyncStore]) -> None:
        super().__init__()
        self.crashing = [CrashingStore(store) for store in stores]
        self.clock = SetClock()
        self.principal = Principal(f"machine {next(_tenants)}", dict.fromkeys(SCOPES, "x"))
        self.clients: list[SyncMemory] = []
        for number in range(len(stores)):
            self.clients.append(self.new_client(number))
        self.records: dict[str, ExpectedRecord] = {}
        self.said: set[int] = set()

    def new_client(self, number: int) -> SyncMemory:
        store: Any = self.crashing[number]
        return SyncMemoryClient(store, extractor=SaidPreferences(), max_keyed=MAX_KEYED, clock=self.clock).of(
            self.principal
        )

    def tick(self) -> datetime:
        """Give each step its own time, so that the order of updates is certain."""
        self.clock.move(seconds=1)
        return self.clock.time

    def active(self, scope: str) -> dict[str, ExpectedRecord]:
        return {
            record_id: entry
            for record_id, entry in self.records.items()
            if entry.scope == scope and entry.status == "active"
        }

    def is_expired(self, entry: ExpectedRecord) -> bool:
        return entry.until is not None and entry.until <= self.clock.time

    def find(self, scope: str, kind: str, key: str) -> tuple[str, ExpectedRecord] | None:
        matches = [
            (record_id, entry)
            for record_id, entry in self.active(scope).items()
            if entry.kind == kind and fold_key(entry.key) == fold_key(key)
        ]
        assert len(matches) <= 1
        return matches[0] if matches else None

    def write_to_dict(
        self, scope: str, kind: str, key: str, value: str, ttl: int | None, record: str, seq: int | None = None
    ) -> str:
        """Change the dict as ``remember`` must change memory, and return the expected action.

        ``seq`` is the event that supports the value, or None for a direct statement.
        """
        now = self.clock.time
        until = None if ttl is None else now + timedelta(days=ttl)
        match = self.find(scope, kind, key)
        if match is not None:
            entry = match[1]
            if entry.text == value and not self.is_expired(entry):
                entry.until, entry.updated = until, now
                entry.stated = entry.stated or seq is None
                entry.support |= set() if seq is None else {seq}
                return "refreshed"
            entry.status = "expired" if self.is_expired(entry) else "superseded"
        self.records[record] = ExpectedRecord(scope, kind, key.strip(), value, 0.5, until, now, now)
        self.records[record].stated = seq is None
        self.records[record].support = set() if seq is None else {seq}
        keyed = [
            (record_id, entry) for record_id, entry in self.active(scope).items() if entry.key and record_id != record
        ]
        keyed.sort(
            key=lambda pair: (
                not self.is_expired(pair[1]),
                1 + int(pair[1].importance * 4 + 0.5),
                pair[1].updated,
                pair[1].created,
            )
        )
        for _, entry in keyed[: max(0, len(keyed) + 1 - MAX_KEYED)]:
            entry.status = "expired" if self.is_expired(entry) else "archived"
        return "written"

    @rule(
        client=st.integers(0, 1),
        scope=st.sampled_from(SCOPES),
        kind=st.sampled_from(["preference", "fact"]),
        key=st.sampled_from(KEYS),
        value=st.sampled_from(VALUES),
        ttl=st.none() | st.integers(1, 5),
    )
    def remember(self, client: int, scope: str, kind: str, key: str, value: str, ttl: int | None) -> None:
        self.tick()
        outcome = self.clients[client].remember(kind=kind, key=key, value=value, scope=scope, ttl_days=ttl)
        assert outcome.record is not None
        assert outcome.action == self.write_to_dict(scope, kind, key, value, ttl, outcome.record.id)

    @rule(
        client=st.integers(0, 1), scope=st.sampled_from(SCOPES), text=st.sampled_from(VALUES), stars=st.integers(1, 5)
    )
    def remember_episode(self, client: int, scope: str, text: str, stars: int) -> None:
        now = self.tick()
        importance = (stars - 1) / 4
        outcome = self.clients[client].remember(Episode("error"), text=text, scope=scope, importance=importance)
        assert outcome.record is not None
        equal_entries = [
            entry for entry in self.active(scope).values() if entry.kind == "episode" and entry.text == text
        ]
        if equal_entries:
            assert outcome.action == "refreshed"
            equal_entries[0].updated = now
        else:
            assert outcome.action == "written"
            self.records[outcome.record.id] = ExpectedRecord(scope, "episode", "", text, importance, None, now, now)

    @rule(client=st.integers(0, 1), key=st.sampled_from(KEYS), value=st.sampled_from(VALUES))
    def say(self, client: int, key: str, value: str) -> None:
        """Append a statement to a run, and derive from it."""
        event = new_event(UserMessage(f"{key}={value}"), timestamp=self.tick())
        seq = self.crashing[client].raw.append_events("agent", self.principal.tenant, event).version
        report = self.clients[client].derive("agent", self.principal.tenant)
        outcome = report.outcomes[0]  # the others are archived records
        assert outcome.record is not None
        assert outcome.action == self.write_to_dict("user", "preference", key, value, None, outcome.record.id, seq)
        self.said.add(seq)

    @precondition(lambda self: bool(self.said))
    @rule(data=st.data(), whole_run=st.booleans(), client=st.integers(0, 1), calls=st.none() | st.integers(0, 2))
    def erase_statement(self, data: st.DataObject, whole_run: bool, client: int, calls: int | None) -> None:
        """Redact a statement, or delete the run. Its memories are gone at once, and the next purge erases them."""
        self.tick()
        raw, run = self.crashing[0].raw, self.principal.tenant
        if whole_run:
            erased = set(self.said)
            raw.delete_run("agent", run)
        else:
            erased = {data.draw(st.sampled_from(sorted(self.said)))}
            raw.redact_events("agent", run, erased)
        self.said -= erased
        for record, entry in list(self.records.items()):
            if entry.support and not entry.stated and entry.support <= erased:
                del self.records[record]
            elif entry.support:
                entry.support -= erased
                entry.stated = entry.stated or not entry.support
        self.both_clients_list_the_records_of_the_dict()
        self.closed_records_have_the_status_of_the_dict()
        self.crashing[client].left = calls
        with suppress(StoreUnavailable):
            self.clients[client].purge()
        self.crashing[client].left = None
        self.clients[1 - client].purge()

    @rule(hours=st.integers(1, 100))
    def wait(self, hours: int) -> None:
        self.clock.move(hours=hours)

    @precondition(lambda self: any(entry.status == "active" for entry in self.records.values()))
    @rule(client=st.integers(0, 1), data=st.data(), value=st.none() | st.sampled_from(VALUES), stars=st.integers(1, 5))
    def update(self, client: int, data: st.DataObject, value: str | None, stars: int) -> None:
        record = data.draw(
            st.sampled_from([record_id for record_id, entry in self.records.items() if entry.status == "active"])
        )
        entry = self.records[record]
        now = self.tick()
        if self.is_expired(entry) or (value is not None and not entry.key):
            return
        importance = (stars - 1) / 4
        outcome = self.clients[client].update(record, value=value, importance=importance)
        if value is not None and value != entry.text:
            assert (outcome.action, outcome.superseded) == ("written", record)
            assert outcome.record is not None
            assert self.write_to_dict(entry.scope, entry.kind, entry.key, value, None, outcome.record.id) == "written"
            self.records[outcome.record.id].importance = importance
        elif importance == entry.importance:
            assert outcome.action == "unchanged"
        else:
            assert outcome.action == "changed"
            entry.importance, entry.updated = importance, now

    def erase_from_dict(self, record_ids: list[str]) -> None:
        for record_id in record_ids:
            del self.records[record_id]

    def ids_of_key(self, scope: str, key: str) -> list[str]:
        return [
            record_id
            for record_id, entry in self.records.items()
            if entry.scope == scope and entry.key and fold_key(entry.key) == fold_key(key)
        ]

    @rule(client=st.integers(0, 1), scope=st.sampled_from(SCOPES), key=st.sampled_from(KEYS))
    def forget(self, client: int, scope: str, key: str) -> None:
        self.tick()
        record_ids = self.ids_of_key(scope, key)
        assert self.clients[client].forget(key=key, scope=scope).records == len(record_ids)
        self.erase_from_dict(record_ids)

    @precondition(lambda self: bool(self.records))
    @rule(client=st.integers(0, 1), data=st.data())
    def forget_one(self, client: int, data: st.DataObject) -> None:
        self.tick()
        record = data.draw(st.sampled_from(sorted(self.records)))
        entry = self.records[record]
        equal_ids = [
            record_id
            for record_id, other in self.records.items()
            if (other.scope, other.kind, fold_key(other.key), other.text)
            == (entry.scope, entry.kind, fold_key(entry.key), entry.text)
        ]
        assert self.clients[client].forget(id=record).records == len(equal_ids)
        self.erase_from_dict(equal_ids)

    @rule(client=st.integers(0, 1), scope=st.sampled_from(SCOPES))
    def forget_all(self, client: int, scope: str) -> None:
        self.tick()
        record_ids = [record_id for record_id, entry in self.records.items() if entry.scope == scope]
        assert self.clients[client].forget_all(scopes=[scope]).records == len(record_ids)
        self.erase_from_dict(record_ids)

    @rule(
        client=st.integers(0, 1),
        key=st.sampled_from(KEYS),
        value=st.sampled_from(VALUES),
        calls=st.integers(0, 3),
        after=st.booleans(),
    )
    def remember_and_crash(self, client: int, key: str, value: str, calls: int, after: bool) -> None:
        """After a crash, the new process reads either the complete new record or no change."""
        self.tick()
        crashing = self.crashing[client]
        crashing.left, crashing.after = calls, after
        with suppress(StoreUnavailable):
            self.clients[client].remember(key=key, value=value, scope="user")
        crashing.left = None
        self.clients[client] = self.new_client(client)
        record = self.clients[client].get(key=key, kind="preference", scope="user")
        if record is not None and record.updated == self.clock.time:
            assert record.value == value
            self.write_to_dict("user", "preference", key, value, None, record.id)

    @rule(client=st.integers(0, 1), key=st.sampled_from(KEYS), calls=st.integers(0, 3), after=st.booleans())
    def forget_and_crash(self, client: int, key: str, calls: int, after: bool) -> None:
        """After a crash, a forget by either client finishes the erasure."""
        self.tick()
        crashing = self.crashing[client]
        crashing.left, crashing.after = calls, after
        with suppress(StoreUnavailable):
            self.clients[client].forget(key=key, scope="user")
        crashing.left = None
        self.clients[client] = self.new_client(client)
        self.clients[1 - client].forget(key=key, scope="user")
        self.erase_from_dict(self.ids_of_key("user", key))

    @rule(
        key=st.sampled_from(KEYS),
        value=st.none() | st.sampled_from(VALUES),
        other_key=st.sampled_from(KEYS),
        other_value=st.none() | st.sampled_from(VALUES),
    )
    def write_concurrently(self, key: str, value: str | None, other_key: str, other_value: str | None) -> None:
        """Let a client write between the other client's read and write. If its value is None, it forgets the key."""

        self.tick()

        def do(client: int, key: str, value: str | None) -> None:
            if value is None:
                report = self.clients[client].forget(key=key)
                record_ids = self.ids_of_key("user", key)
                assert report.records == len(record_ids)
                self.erase_from_dict(record_ids)
            else:
                outcome = self.clients[client].remember(key=key, value=value)
                assert outcome.record is not None
                assert outcome.action == self.write_to_dict("user", "preference", key, value, None, outcome.record.id)

        self.crashing[0].before_write = lambda: do(1, other_key, other_value)
        do(0, key, value)
        if self.crashing[0].before_write is not None:
            self.crashing[0].before_write = None
            do(1, other_key, other_value)

    @precondition(lambda self: bool(self.records))
    @rule(data=st.data())
    def redact_from_outside(self, data: st.DataObject) -> None:
        """Redact a record's events in the store, as an operator may do. Memory must behave as if they never existed."""
        self.tick()
        record = data.draw(st.sampled_from(sorted(self.records)))
        agent = stream_of(self.principal.subject(self.records[record].scope))
        stream = self.crashing[0].raw.load_run(agent, STREAM_RUN)
        seqs = [
            event.seq
            for event in stream.log
            if event.event_id == record or getattr(event.data, "record", None) == record
        ]
        self.crashing[0].raw.redact_events(agent, STREAM_RUN, seqs, reason="operator")
        self.clients[0].maintain(weak_below=0)  # this write also erases the snapshots of the record
        del self.records[record]
        self.adopt_times()
        for entry in self.records.values():
            if entry.status == "active" and self.is_expired(entry):
                entry.status = "expired"

    @rule(client=st.integers(0, 1))
    def restart(self, client: int) -> None:
        self.clients[client] = self.new_client(client)

    @rule(client=st.integers(0, 1), text=st.sampled_from(VALUES))
    def use(self, client: int, text: str) -> None:
        """Build a context. A later write of this client stores which records it has."""
        self.clients[client].context(text)

    @rule(
        client=st.integers(0, 1),
        weak_below=st.sampled_from([0, 0.5, 0.95, 1]),
        days=st.integers(0, 3),
        calls=st.none() | st.integers(0, 5),
        after=st.booleans(),
    )
    def maintain(self, client: int, weak_below: float, days: int, calls: int | None, after: bool) -> None:
        """A round that a crash interrupts is completed by the other client, and nothing is done twice."""
        now = self.tick()
        lives = self.lives(client)
        for scope in SCOPES:  # the round first stores which records were used
            for record_id in self.subject(client, scope).uses_to_store(now):
                lives[record_id].used = tuple(dict.fromkeys((*lives[record_id].used, now.toordinal())))
        weak: dict[str, Strength] = {}
        for record_id, entry in self.records.items():
            if entry.status == "active" and not self.is_expired(entry):
                strength = strength_of(lives[record_id], now)
                if strength.retrievability < weak_below and strength.idle_days >= days:
                    weak[record_id] = strength
        crashing = self.crashing[client]
        crashing.left, crashing.after = calls, after
        reports: list[MaintainReport] = []
        with suppress(StoreUnavailable):
            reports.append(self.clients[client].maintain(weak_below=weak_below, unused_days=days))
        crashing.left = None
        if not reports:
            self.clients[client] = self.new_client(client)
        reports.append(self.clients[1 - client].maintain(weak_below=weak_below, unused_days=days))
        decayed = [change.record for report in reports for change in report.decayed]
        assert len(decayed) == len(set(decayed))
        assert set(decayed) <= weak.keys()
        for record_id, entry in self.records.items():
            if entry.status == "active" and (self.is_expired(entry) or record_id in weak):
                entry.status = "expired" if self.is_expired(entry) else "archived"
        self.adopt_times()

    def subject(self, client: int, scope: str) -> Subject:
        """Return a subject of a client."""
        context = self.clients[client]._context
        assert isinstance(context, Context)
        return context.subject(scope)

    def lives(self, client: int) -> dict[str, Live]:
        """Return copies of the active records in the state of a client."""
        lives: dict[str, Live] = {}
        for scope in SCOPES:
            subject = self.subject(client, scope)
            run_sync(subject.refresh(), self.crashing[0].raw)
            lives |= subject.ask(lambda state: {record: copy(live) for record, live in state.records.items()})
        return lives

    def adopt_times(self) -> None:
        """Adopt the times of the records that ``maintain`` linked to a conflict, because a link is a change."""
        for record_id, live in self.lives(0).items():
            self.records[record_id].updated = live.updated

    @rule(client=st.integers(0, 1))
    def rebuild(self, client: int) -> None:
        assert self.clients[client].rebuild().equal

    @invariant()
    def both_clients_list_the_records_of_the_dict(self) -> None:
        expected = {
            record_id: (entry.scope, entry.kind, entry.key, entry.text, entry.importance, entry.until)
            for record_id, entry in self.records.items()
            if entry.status == "active" and not self.is_expired(entry)
        }
        for client in self.clients:
            listed = {
                record.id: (
                    record.scope,
                    record.kind,
                    record.key,
                    record.value or record.text,
                    record.importance,
                    record.valid_until,
                )
                for record in client.list()
            }
            assert listed == expected

    @invariant()
    def closed_records_have_the_status_of_the_dict(self) -> None:
        statuses: tuple[Status, ...] = ("superseded", "archived")
        for status in statuses:
            listed_ids = {record.id for record in self.clients[0].list(status=status)}
            assert listed_ids == {record_id for record_id, entry in self.records.items() if entry.status == status}

    @invariant()
    def warm_state_equals_a_fold_of_the_stream(self) -> None:
        for client in (*self.clients, self.new_client(0)):
            assert isinstance(client._context, Context)
            for scope in SCOPES:
                subject = client._context.subject(scope)
                run_sync(subject.refresh(), self.crashing[0].raw)
                stream = run_sync(subject.load_all(), self.crashing[0].raw)
                assert subject.ask(lambda state: state.to_bytes()) == folded(stream).to_bytes()

    @invariant()
    def stream_holds_only_values_of_the_dict(self) -> None:
        for scope in SCOPES:
            stream = self.crashing[0].raw.load_run(stream_of(self.principal.subject(scope)), STREAM_RUN)
            text = "".join(encode_json(event.to_map()).decode() for event in stream.log)
            expected_texts = {entry.text for entry in self.records.values() if entry.scope == scope}
            for value in VALUES:
                assert value in expected_texts or encode_json(value).decode()[1:-1] not in text.replace("\\\\", "\\")


@pytest.fixture
def small_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a snapshot every few events, in parts of one or two records."""
    monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 6)
    monkeypatch.setattr(snapshots, "PART_BYTES", 300)


@pytest.mark.hypothesis  # for make torture
@pytest.mark.usefixtures("small_snapshots")
def test_memory_behaves_like_a_dict(open_memory_store: OpenStore, store_url: str) -> None:
    stores = [open_memory_store(), open_memory_store()]

    class OnThisStore(MemoryIsADict):
        def __init__(self) -> None:
            super().__init__(stores)

    share = {"memory": 1, "sqlite": 3}.get(store_url.partition(":")[0], 8)
    run_state_machine_as_test(OnThisStore, settings=settings(max_examples=EXAMPLES // share, stateful_step_count=25))
