"""A state machine drives memory and a plain dict side by side: two clients, crashes, erasures, snapshots, a set clock.

After each step both clients list what the dict holds, what they keep warm is byte for byte what a fold of the whole
stream gives, and nothing that was forgotten stands in the stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from agent_memory_log import AppendResult, Event, Snapshot, SyncStore
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.events.jsonvalue import encode_json
from agent_memory_log.memory import Episode, Principal, SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.records.kinds import fold_key
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.records.record import Status
from agent_memory_log.memory.stream import snapshots
from agent_memory_log.memory.stream.subjects import folded
from agent_memory_log.steps import run_sync
from tests.memory.stores import OpenStore, SetClock, open_memory_store, store_url

__all__ = ["open_memory_store", "store_url"]

MAX_KEYED = 4
SCOPES = ("user", "workspace")
KEYS = ("language", " Language", "tone", "näme", "NÄME", "$key.%/", "five")
VALUES = ("~engl~", "~germ~", "~dry~", "~Ünï~", "~\0nul~")
_tenants = itertools.count()


class Dying:
    """A store that fails before, or after, its so-manyth call that writes; or lets something happen before it."""

    def __init__(self, raw: SyncStore) -> None:
        self.raw = raw
        self.left: int | None = None
        self.after = False
        self.meanwhile: Callable[[], None] | None = None

    def _writing(self, call: Callable[[], Any]) -> Any:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        if self.left is None:
            return call()
        self.left -= 1
        if self.left >= 0:
            return call()
        if self.after:
            call()
        raise StoreUnavailable("the process dies here")

    def append_events(self, agent: str, run: str, *events: Event, **options: Any) -> AppendResult:
        found: AppendResult = self._writing(lambda: self.raw.append_events(agent, run, *events, **options))
        return found

    def redact_events(self, agent: str, run: str, seqs: Any, *, reason: str = "") -> AppendResult:
        found: AppendResult = self._writing(lambda: self.raw.redact_events(agent, run, seqs, reason=reason))
        return found

    def load_run(self, agent: str, run: str, **options: Any) -> Snapshot:
        return self.raw.load_run(agent, run, **options)

    def peek_runs(self, runs: Any) -> Any:
        return self.raw.peek_runs(runs)


class Known(msgspec.Struct):
    """A record as the dict knows it."""

    scope: str
    kind: str
    key: str
    text: str
    importance: float
    until: datetime | None
    updated: datetime
    created: datetime
    status: str = "active"


class MemoryIsADict(RuleBasedStateMachine):
    def __init__(self, stores: list[SyncStore]) -> None:
        super().__init__()
        self.dying = [Dying(store) for store in stores]
        self.clock = SetClock()
        self.principal = Principal(f"machine {next(_tenants)}", dict.fromkeys(SCOPES, "x"))
        self.clients: list[SyncMemory] = []
        for number in range(len(stores)):
            self.clients.append(self.new_client(number))
        self.known: dict[str, Known] = {}

    def new_client(self, number: int) -> SyncMemory:
        store: Any = self.dying[number]
        return SyncMemoryClient(store, max_keyed=MAX_KEYED, clock=self.clock).of(self.principal)

    def tick(self) -> datetime:
        """Each step has a time of its own, so that what was updated last is never a matter of luck."""
        self.clock.move(seconds=1)
        return self.clock.time

    def active(self, scope: str) -> dict[str, Known]:
        return {name: one for name, one in self.known.items() if one.scope == scope and one.status == "active"}

    def is_expired(self, one: Known) -> bool:
        return one.until is not None and one.until <= self.clock.time

    def find(self, scope: str, kind: str, key: str) -> tuple[str, Known] | None:
        found = [
            (name, one)
            for name, one in self.active(scope).items()
            if one.kind == kind and fold_key(one.key) == fold_key(key)
        ]
        assert len(found) <= 1
        return found[0] if found else None

    def write_to_dict(self, scope: str, kind: str, key: str, value: str, ttl: int | None, record: str) -> str:
        """What ``remember`` must do; returns the action."""
        now = self.clock.time
        until = now + timedelta(days=ttl if ttl is not None else 180) if kind == "preference" or ttl else None
        known = self.find(scope, kind, key)
        if known is not None:
            one = known[1]
            if one.text == value and not self.is_expired(one):
                one.until, one.updated = until, now
                return "refreshed"
            one.status = "expired" if self.is_expired(one) else "superseded"
        self.known[record] = Known(scope, kind, key.strip(), value, 0.5, until, now, now)
        others = [(name, one) for name, one in self.active(scope).items() if one.key and name != record]
        others.sort(key=lambda pair: (not self.is_expired(pair[1]), pair[1].updated, pair[1].created))
        for _, one in others[: max(0, len(others) + 1 - MAX_KEYED)]:
            one.status = "expired" if self.is_expired(one) else "archived"
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
        done = self.clients[client].remember(kind=kind, key=key, value=value, scope=scope, ttl_days=ttl)
        assert done.record is not None
        assert done.action == self.write_to_dict(scope, kind, key, value, ttl, done.record.id)

    @rule(
        client=st.integers(0, 1), scope=st.sampled_from(SCOPES), text=st.sampled_from(VALUES), stars=st.integers(1, 5)
    )
    def remember_episode(self, client: int, scope: str, text: str, stars: int) -> None:
        now = self.tick()
        importance = (stars - 1) / 4
        done = self.clients[client].remember(Episode("error"), text=text, scope=scope, importance=importance)
        assert done.record is not None
        same = [one for one in self.active(scope).values() if one.kind == "episode" and one.text == text]
        if same:
            assert done.action == "refreshed"
            same[0].updated = now
        else:
            assert done.action == "written"
            self.known[done.record.id] = Known(scope, "episode", "", text, importance, None, now, now)

    @rule(hours=st.integers(1, 100))
    def wait(self, hours: int) -> None:
        self.clock.move(hours=hours)

    @precondition(lambda self: any(one.status == "active" for one in self.known.values()))
    @rule(client=st.integers(0, 1), data=st.data(), value=st.none() | st.sampled_from(VALUES), stars=st.integers(1, 5))
    def update(self, client: int, data: st.DataObject, value: str | None, stars: int) -> None:
        record = data.draw(st.sampled_from([name for name, one in self.known.items() if one.status == "active"]))
        one = self.known[record]
        now = self.tick()
        if self.is_expired(one) or (value is not None and not one.key):
            return
        importance = (stars - 1) / 4
        done = self.clients[client].update(record, value=value, importance=importance)
        if value is not None and value != one.text:
            assert (done.action, done.superseded) == ("written", record)
            assert done.record is not None
            assert self.write_to_dict(one.scope, one.kind, one.key, value, None, done.record.id) == "written"
            self.known[done.record.id].importance = importance
        elif importance == one.importance:
            assert done.action == "unchanged"
        else:
            assert done.action == "changed"
            one.importance, one.updated = importance, now

    def erase_from_dict(self, chosen: list[str]) -> None:
        for name in chosen:
            del self.known[name]

    def of_key(self, scope: str, key: str) -> list[str]:
        return [
            name
            for name, one in self.known.items()
            if one.scope == scope and one.key and fold_key(one.key) == fold_key(key)
        ]

    @rule(client=st.integers(0, 1), scope=st.sampled_from(SCOPES), key=st.sampled_from(KEYS))
    def forget(self, client: int, scope: str, key: str) -> None:
        self.tick()
        chosen = self.of_key(scope, key)
        assert self.clients[client].forget(key=key, scope=scope).records == len(chosen)
        self.erase_from_dict(chosen)

    @precondition(lambda self: bool(self.known))
    @rule(client=st.integers(0, 1), data=st.data())
    def forget_one(self, client: int, data: st.DataObject) -> None:
        self.tick()
        record = data.draw(st.sampled_from(sorted(self.known)))
        one = self.known[record]
        same = [
            name
            for name, other in self.known.items()
            if (other.scope, other.kind, fold_key(other.key), other.text)
            == (one.scope, one.kind, fold_key(one.key), one.text)
        ]
        assert self.clients[client].forget(id=record).records == len(same)
        self.erase_from_dict(same)

    @rule(client=st.integers(0, 1), scope=st.sampled_from(SCOPES))
    def forget_all(self, client: int, scope: str) -> None:
        self.tick()
        chosen = [name for name, one in self.known.items() if one.scope == scope]
        assert self.clients[client].forget_all(scopes=[scope]).records == len(chosen)
        self.erase_from_dict(chosen)

    @rule(
        client=st.integers(0, 1),
        key=st.sampled_from(KEYS),
        value=st.sampled_from(VALUES),
        calls=st.integers(0, 3),
        after=st.booleans(),
    )
    def remember_and_die(self, client: int, key: str, value: str, calls: int, after: bool) -> None:
        """The new process finds it remembered, or not; nothing between."""
        self.tick()
        dying = self.dying[client]
        dying.left, dying.after = calls, after
        with suppress(StoreUnavailable):
            self.clients[client].remember(key=key, value=value, scope="user")
        dying.left = None
        self.clients[client] = self.new_client(client)
        found = self.clients[client].get(key=key, kind="preference", scope="user")
        if found is not None and found.updated == self.clock.time:
            assert found.value == value
            self.write_to_dict("user", "preference", key, value, None, found.id)

    @rule(client=st.integers(0, 1), key=st.sampled_from(KEYS), calls=st.integers(0, 3), after=st.booleans())
    def forget_and_die(self, client: int, key: str, calls: int, after: bool) -> None:
        """Forgetting again finishes, whoever does it."""
        self.tick()
        dying = self.dying[client]
        dying.left, dying.after = calls, after
        with suppress(StoreUnavailable):
            self.clients[client].forget(key=key, scope="user")
        dying.left = None
        self.clients[client] = self.new_client(client)
        self.clients[1 - client].forget(key=key, scope="user")
        self.erase_from_dict(self.of_key("user", key))

    @rule(
        key=st.sampled_from(KEYS),
        value=st.none() | st.sampled_from(VALUES),
        other_key=st.sampled_from(KEYS),
        other_value=st.none() | st.sampled_from(VALUES),
    )
    def two_at_once(self, key: str, value: str | None, other_key: str, other_value: str | None) -> None:
        """One client writes between another's look and its write; without a value, it forgets."""

        self.tick()

        def do(client: int, key: str, value: str | None) -> None:
            if value is None:
                report = self.clients[client].forget(key=key)
                chosen = self.of_key("user", key)
                assert report.records == len(chosen)
                self.erase_from_dict(chosen)
            else:
                done = self.clients[client].remember(key=key, value=value)
                assert done.record is not None
                assert done.action == self.write_to_dict("user", "preference", key, value, None, done.record.id)

        self.dying[0].meanwhile = lambda: do(1, other_key, other_value)
        do(0, key, value)
        if self.dying[0].meanwhile is not None:
            self.dying[0].meanwhile = None
            do(1, other_key, other_value)

    @precondition(lambda self: bool(self.known))
    @rule(data=st.data())
    def redact_from_outside(self, data: st.DataObject) -> None:
        """An operator redacts a record's events in the store itself: it is as if it had never been told."""
        self.tick()
        record = data.draw(st.sampled_from(sorted(self.known)))
        agent = stream_of(self.principal.subject(self.known[record].scope))
        stream = self.dying[0].raw.load_run(agent, STREAM_RUN)
        seqs = [
            event.seq
            for event in stream.log
            if event.event_id == record or getattr(event.data, "record", None) == record
        ]
        self.dying[0].raw.redact_events(agent, STREAM_RUN, seqs, reason="operator")
        self.clients[0].cleanup(older_than_days=10_000)  # a write, which takes snapshots of it along
        del self.known[record]
        for one in self.known.values():
            if one.status == "active" and self.is_expired(one):
                one.status = "expired"

    @rule(client=st.integers(0, 1))
    def restart(self, client: int) -> None:
        self.clients[client] = self.new_client(client)

    @rule(client=st.integers(0, 1), days=st.integers(0, 3), stars=st.integers(1, 6))
    def cleanup(self, client: int, days: int, stars: int) -> None:
        now = self.tick()
        report = self.clients[client].cleanup(older_than_days=days, below_stars=stars)
        old: list[str] = []
        for name, one in self.known.items():
            if one.status != "active":
                continue
            if self.is_expired(one):
                one.status = "expired"
            elif (
                one.kind == "episode"
                and one.created < now - timedelta(days=days)
                and 1 + int(one.importance * 4 + 0.5) < stars
            ):
                one.status = "archived"
                old.append(name)
        assert sorted(record.id for record in report.archived) == sorted(old)

    @rule(client=st.integers(0, 1))
    def rebuild(self, client: int) -> None:
        assert self.clients[client].rebuild().equal

    @invariant()
    def both_clients_list_what_the_dict_holds(self) -> None:
        expected = {
            name: (one.scope, one.kind, one.key, one.text, one.importance, one.until)
            for name, one in self.known.items()
            if one.status == "active" and not self.is_expired(one)
        }
        for client in self.clients:
            found = {
                one.id: (one.scope, one.kind, one.key, one.value or one.text, one.importance, one.valid_until)
                for one in client.list()
            }
            assert found == expected

    @invariant()
    def closed_records_have_the_status_of_the_dict(self) -> None:
        statuses: tuple[Status, ...] = ("superseded", "archived")
        for status in statuses:
            found = {one.id for one in self.clients[0].list(status=status)}
            assert found == {name for name, one in self.known.items() if one.status == status}

    @invariant()
    def what_is_warm_is_what_a_fold_of_the_whole_stream_gives(self) -> None:
        for client in (*self.clients, self.new_client(0)):
            for scope in SCOPES:
                subject = client._context.subject(scope)
                run_sync(subject.refresh(), self.dying[0].raw)
                stream = run_sync(subject.load_all(), self.dying[0].raw)
                assert subject.ask(lambda state: state.to_bytes()) == folded(stream).to_bytes()

    @invariant()
    def only_what_the_dict_holds_is_in_the_stream(self) -> None:
        for scope in SCOPES:
            stream = self.dying[0].raw.load_run(stream_of(self.principal.subject(scope)), STREAM_RUN)
            text = "".join(encode_json(event.to_map()).decode() for event in stream.log)
            kept = {one.text for one in self.known.values() if one.scope == scope}
            for value in VALUES:
                assert value in kept or encode_json(value).decode()[1:-1] not in text.replace("\\\\", "\\")


@pytest.fixture
def small_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots every few events, in parts of a record or two."""
    monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 6)
    monkeypatch.setattr(snapshots, "PART_BYTES", 300)


@pytest.mark.usefixtures("small_snapshots")
def test_memory_is_a_dict(open_memory_store: OpenStore, store_url: str) -> None:
    stores = [open_memory_store(), open_memory_store()]

    class OnThisStore(MemoryIsADict):
        def __init__(self) -> None:
            super().__init__(stores)

    examples = {"memory": 150, "sqlite": 25}.get(store_url.partition(":")[0], 6)
    run_state_machine_as_test(OnThisStore, settings=settings(max_examples=examples, stateful_step_count=25))
