"""Copying runs: exact, resumable after a death at any moment, as redacted as the source, and read back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    AppendResult,
    Event,
    JsonValue,
    PlannerNote,
    Redacted,
    Snapshot,
    Store,
    UserMessage,
    new_event,
    open_store,
    steps,
)
from agent_memory_log.errors import EventTooLarge, InvalidArgument, RunExpired, StoreClosed, StoreUnavailable
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.samples import sample_lines
from agent_memory_log.transfer import comparing, importing
from agent_memory_log.transfer.copying import CopiedRun, copy_run, copy_store, runs_by_age
from agent_memory_log.transfer.jsonl import import_jsonl
from agent_memory_log.transfer.verifying import check_run
from tests.strategies import events, json_maps

TIME = datetime(2026, 3, 1, tzinfo=UTC)

BOTH_WAYS = pytest.mark.parametrize(
    ("source_url", "target_url"), [("memory:", "sqlite:///{}/b.db"), ("sqlite:///{}/a.db", "memory:")]
)


def notes(*numbers: int, prefix: str = "n") -> list[Event]:
    return [new_event(PlannerNote(f"content {n}"), timestamp=TIME, event_id=f"{prefix}{n}") for n in numbers]


async def copy_all(source: Store, target: Store, **options: Any) -> list[CopiedRun]:
    return [one async for one in copy_store(source, target, **options)]


async def copied_whole(source: Store, target: Store, **options: Any) -> list[CopiedRun]:
    """Copy; every run must get there, and copying again must find nothing to do."""
    results = await copy_all(source, target, **options)
    assert [one.problem for one in results] == [""] * len(results)
    again = await copy_all(source, target, **options)
    assert [(one.digest, one.already, one.copied, one.problem) for one in again] == [
        (one.digest, one.events, 0, "") for one in results
    ]
    return results


async def contents(store: Store) -> list[object]:
    """Everything a store shows of its runs, in the order in which it lists them, but when they were created."""
    return [await store.load_run(info.agent, info.run) for info in (await runs_by_age(store))[::-1]]


async def is_whole(store: Store) -> bool:
    reports = [await check_run(store, info, lambda: None) for info in await runs_by_age(store)]
    return not any(finding.severity == "error" for report in reports for finding in report.findings)


def comparable(snapshot: Snapshot) -> object:
    """A snapshot without what each store makes up by itself: ids, times and exact extent of its redaction markers."""
    return snapshot.meta, [
        (event.seq, None, getattr(event.data, "reason", None))
        if "redaction" in (event.type, getattr(event.data, "original_type", None))
        else event
        for event in snapshot.log
    ]


async def text_of(store: Store, agent: str = "a", run: str = "r") -> str:
    return repr(list((await store.load_run(agent, run)).log))


class Watched:
    """A store at each call of which something may happen, before it or after it."""

    def __init__(
        self,
        store: Store,
        *,
        before: Callable[[str], Awaitable[object]] | None = None,
        after: Callable[[str], Awaitable[object]] | None = None,
    ) -> None:
        self._store = store
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **options: Any) -> Any:
            if self._before is not None:
                await self._before(name)
            found = await method(*args, **options)
            if self._after is not None:
                await self._after(name)
            return found

        return call


def watched(store: Store, **hooks: Callable[[str], Awaitable[object]]) -> Any:
    return Watched(store, **hooks)


def once(name: str, then: Callable[[], Awaitable[object]]) -> Callable[[str], Awaitable[object]]:
    """Something that happens at the first call of ``name``."""
    left = [then]

    async def hook(called: str) -> None:
        if called == name and left:
            await left.pop()()

    return hook


async def fill(one: Store) -> None:
    """Runs of every kind."""
    await import_jsonl(one, sample_lines("demo.jsonl"))
    await one.append_events(
        "@memory", "own", *notes(1), meta={"k": [1, 1.0, 2**70, None], "a": {"": "\x00"}}, reserved=True
    )
    await one.append_events("a", "redacted", *notes(1, 2, 3))
    await one.redact_events("a", "redacted", [1, 3], reason="asked")
    await one.redact_events("a", "redacted", [4], reason="and its marker")
    await one.append_events("a", "again", *notes(1, 2, 3))
    await one.delete_run("a", "again")
    await one.append_events("a", "again", *notes(4, 5))
    await one.append_events("a", "gone", *notes(1))
    await one.delete_run("a", "gone")


class TestWholeStores:
    async def test_to_mongodb_and_back(self, mongo_uri: str, tmp_path: Path) -> None:
        async with open_store("memory:") as one, open_store(mongo_uri) as two:
            await fill(one)
            await copied_whole(one, two)
            assert await contents(two) == await contents(one)
            async with open_store(f"sqlite:///{tmp_path}/c.db") as three:
                await copied_whole(two, three)
                assert await contents(three) == await contents(one)
                assert await is_whole(three)

    @BOTH_WAYS
    async def test_everything_is_kept_in_its_order(self, source_url: str, target_url: str, tmp_path: Path) -> None:
        async with open_store(source_url.format(tmp_path)) as one, open_store(target_url.format(tmp_path)) as two:
            await fill(one)
            results = await copied_whole(one, two)
            assert await contents(two) == await contents(one)
            assert await is_whole(two)
        assert [(copied.run, copied.version, copied.events, copied.copied, copied.already) for copied in results] == [
            ("2026-03-06-slow-checkout", 45, 45, 45, 0),
            ("own", 1, 1, 1, 0),
            ("redacted", 5, 5, 5, 0),
            ("again", 5, 2, 2, 0),
        ]
        assert all(len(copied.digest) == 64 for copied in results)

    async def test_of_one_agent(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            for agent in ("a", "b", "@own"):
                await one.append_events(agent, "r", *notes(1), reserved=True)
            assert [copied.agent for copied in await copied_whole(one, two, agent="b")] == ["b"]
            assert [copied.agent for copied in await copied_whole(one, two, agent="@own")] == ["@own"]
            assert [info.agent for info in await runs_by_age(two)] == ["b", "@own"]

    async def test_more_runs_and_events_than_a_page(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(steps, "_PAGE", 2)
        monkeypatch.setattr(comparing, "BATCH_EVENTS", 2)
        monkeypatch.setattr(importing, "BATCH_EVENTS", 3)
        async with open_store("memory:") as one, open_store("memory:") as two:
            for run in range(1, 8):
                await one.append_events("a", str(run), *notes(*range(run)))
            await copied_whole(one, two)
            assert await contents(two) == await contents(one)

    async def test_pages_are_as_large_as_a_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(comparing, "_FIRST_PAGE_EVENTS", 2)
        monkeypatch.setattr(comparing, "BATCH_BYTES", 20_000)
        pages: list[int] = []

        class Counting:
            def __init__(self, store: Store) -> None:
                self._store = store

            async def load_run(self, *args: Any, **options: Any) -> Snapshot:
                page = await self._store.load_run(*args, **options)
                pages.append(len(page.log))
                return page

            def __getattr__(self, name: str) -> Any:
                return getattr(self._store, name)

        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *(new_event(PlannerNote("x" * 1000)) for _ in range(100)))
            counting: Any = Counting(one)
            await copied_whole(counting, two)
        assert 10 < max(pages) < 20

    async def test_what_is_seen_is_all_that_is_stored_and_read_back(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(*range(120)))
            seen: list[int] = []
            await copy_all(one, two, seen=seen.append)
            assert sum(seen) == 240
            seen.clear()
            await copy_all(one, two, seen=seen.append)
            assert sum(seen) == 120

    async def test_an_empty_store_and_a_run_that_is_not_there(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            assert await copy_all(one, two) == []
            copied = await copy_run(one, two, "a", "r")
            assert (copied.gone, copied.problem) == (True, "holds no events in the source any more")
            assert (await two.load_run("a", "r")).version == 0

    async def test_a_store_is_not_its_own_target(self) -> None:
        async with open_store("memory:") as store:
            await store.append_events("a", "r", *notes(1))
            with pytest.raises(InvalidArgument, match="one store"):
                await copy_run(store, store, "a", "r")

    async def test_what_is_about_the_whole_store_is_raised(self) -> None:
        async def refuse(name: str) -> None:
            if name == "append_events":
                raise StoreUnavailable("the disk is full")

        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1))
            with pytest.raises(StoreUnavailable, match="full"):
                await copy_all(one, watched(two, before=refuse))
            await two.aclose()
            with pytest.raises(StoreClosed):
                await copy_all(one, two)


class Stage(msgspec.Struct):
    """What happens to a run between two copies: events are appended, then some of all are redacted."""

    events: list[Event]
    redacted: set[int]


_appended = st.lists(events().filter(lambda event: not isinstance(event.data, Redaction)), max_size=4)
_stages = st.lists(st.builds(Stage, _appended, st.sets(st.integers(1, 9), max_size=3)), min_size=1, max_size=4)


async def carry_out(store: Store, stage: Stage, meta: Mapping[str, JsonValue]) -> None:
    there = await store.load_run("a", "r")
    known = {event.event_id for event in there.log}
    new = {event.event_id: event for event in stage.events if event.event_id not in known}
    result = await store.append_events("a", "r", *new.values(), meta=meta)
    await store.redact_events("a", "r", {seq for seq in stage.redacted if seq <= result.version}, reason="asked")


@given(_stages, json_maps().map(lambda meta: {key: value for key, value in meta.items() if key != "expires_at"}))
async def test_any_run_at_any_time_is_copied_as_it_is_then(
    stages: Sequence[Stage], meta: Mapping[str, JsonValue]
) -> None:
    async with (
        open_store("memory:") as one,
        open_store("memory:") as two,
        open_store("memory:") as fresh,
        open_store("memory:") as empty,
    ):
        for stage in stages:
            await carry_out(one, stage, meta)
            warm = await two.load_run("a", "r")
            await copied_whole(one, two)
            there, here = await one.load_run("a", "r"), await two.load_run("a", "r")
            assert comparable(here) == comparable(there)
            # Who follows the target learns of each redaction.
            assert warm.extend(await two.load_run("a", "r", after=warm.last_seq)) == here
        await copied_whole(one, fresh)
        assert await fresh.load_run("a", "r") == await one.load_run("a", "r")
        assert [copied.digest for copied in await copy_all(two, empty)] == [
            copied.digest for copied in await copy_all(one, fresh)
        ]


class Death(BaseException):
    """Ends a copy as nothing that it could catch."""


class TestGoingOn:
    @pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
    @BOTH_WAYS
    async def test_from_a_death_at_any_write(
        self, source_url: str, target_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, done: bool
    ) -> None:
        monkeypatch.setattr(comparing, "BATCH_EVENTS", 3)
        monkeypatch.setattr(importing, "BATCH_EVENTS", 3)
        async with open_store(source_url.format(tmp_path)) as one:
            await one.append_events("a", "r", *notes(*range(1, 9)), meta={"k": 1})
            await one.append_events("a", "s", *notes(1, 2))
            await one.redact_events("a", "r", [2, 5])
            await one.append_events("a", "r", *notes(11, 12))
            deaths = 0
            while True:
                place = tmp_path / str(deaths)
                place.mkdir()
                async with open_store(target_url.format(place)) as two:
                    await two.append_events("a", "r", *notes(1, 2), meta={"k": 1})
                    died = await self._dies(one, two, deaths, done=done)
                    there = {info.run: info.version for info in await runs_by_age(two)}
                    results = await copied_whole(one, two)
                    assert sum(copied.copied for copied in results) == 13 - sum(there.values())
                    assert comparable(await two.load_run("a", "r")) == comparable(await one.load_run("a", "r"))
                    assert await two.load_run("a", "s") == await one.load_run("a", "s")
                if not died:
                    break
                deaths += 1
            assert deaths == 5  # three batches, a redaction, and the other run

    async def _dies(self, one: Store, two: Store, after: int, *, done: bool) -> bool:
        left = after

        async def die(name: str) -> None:
            nonlocal left
            if name in ("append_events", "redact_events"):
                if not left:
                    raise Death
                left -= 1

        try:
            await copy_all(one, watched(two, after=die) if done else watched(two, before=die))
        except Death:
            return True
        return False

    async def test_with_what_the_source_got_since(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1, 2))
            await copied_whole(one, two)
            await one.append_events("a", "r", *notes(3, 4, 5))
            await one.append_events("a", "s", *notes(1))
            first, second = await copied_whole(one, two)
            assert (first.already, first.copied, first.version) == (2, 3, 5)
            assert (second.already, second.copied, second.version) == (0, 1, 1)
            assert await contents(two) == await contents(one)

    async def test_with_what_the_source_gets_meanwhile_the_next_time(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1))
            growing = watched(two, after=once("append_events", lambda: one.append_events("a", "r", *notes(2))))
            (copied,) = await copy_all(one, growing)
            assert (copied.problem, copied.version, copied.copied) == ("", 1, 1)
            await copied_whole(one, two)
            assert await contents(two) == await contents(one)

    async def test_two_copies_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(comparing, "BATCH_EVENTS", 7)
        async with open_store("memory:") as one, open_store("memory:") as two:
            for run in "rst":
                await one.append_events("a", run, *notes(*range(50)))

            async def breathe(_: str) -> None:
                await asyncio.sleep(0)

            quick, slow = watched(two, after=breathe), watched(two, before=breathe, after=breathe)
            results = await asyncio.gather(*(copy_all(one, handle) for handle in (quick, slow)))
            assert {copied.problem for result in results for copied in result} == {""}
            assert sum(copied.copied for result in results for copied in result) == 150
            assert await contents(two) == await contents(one)

    async def test_beside_a_copy_that_is_further(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1, 2))

            async def grow_and_copy() -> None:
                await one.append_events("a", "r", *notes(3))
                await copied_whole(one, two)

            hook = once("load_run", grow_and_copy)
            copied = await copy_run(watched(one, after=hook), watched(two, after=hook), "a", "r")
            assert (copied.problem, copied.copied, copied.version) == ("", 0, 3)


class TestWhatIsInTheWay:
    @pytest.fixture
    async def pair(self) -> tuple[Store, Store]:
        """A store with the runs ``a/r`` and ``a/s``, and another with a copy of them."""
        one, two = await open_store("memory:"), await open_store("memory:")
        await one.append_events("a", "r", *notes(1, 2, 3), meta={"k": 1})
        await one.append_events("a", "s", *notes(1))
        await copied_whole(one, two)
        return one, two

    async def refused(self, one: Store, two: Store) -> tuple[int, str]:
        """Copy where ``a/r`` cannot be copied, leaving it as it is, and the others are."""
        await one.append_events("a", "s", *notes(7))
        await one.append_events("a", "t", *notes(1))
        before = await two.load_run("a", "r")
        first, *others = await copy_all(one, two)
        assert (first.run, first.copied, first.digest, first.gone) == ("r", 0, "", False)
        assert await two.load_run("a", "r") == before
        assert [(copied.run, copied.problem, copied.copied) for copied in others] == [("s", "", 1), ("t", "", 1)]
        return first.seq, first.problem

    async def test_another_event(self, pair: tuple[Store, Store]) -> None:
        one, two = pair
        await one.append_events("a", "r", *notes(4, 5))
        await two.append_events("a", "r", *notes(8))
        seq, problem = await self.refused(one, two)
        assert seq == 4
        assert problem == (
            "the target holds another event: a planner_note with the id 'n8', where the source has a planner_note "
            "with the id 'n4'"
        )

    @pytest.mark.parametrize(
        ("changed", "what"),
        [
            ({"timestamp": TIME + timedelta(microseconds=1)}, "timestamp"),
            ({"data": PlannerNote("other")}, "data"),
            ({"labels": {"k": "v"}}, "labels"),
            ({"type": "user_message", "data": UserMessage(structured=True), "labels": {"": ""}}, "type and data and l"),
        ],
    )
    async def test_another_content_under_the_same_id(self, changed: dict[str, Any], what: str) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            first, second = notes(1, 2)
            await one.append_events("a", "r", first, second)
            await two.append_events("a", "r", first, msgspec.structs.replace(second, **changed))
            seq, problem = await self.refused(one, two)
            assert seq == 2
            assert problem.startswith(f"the target holds an event with the same id and another {what}")

    async def test_numbers_that_json_tells_apart(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            for store, number in ((one, 1), (two, 1.0)):
                event = new_event(UserMessage(structured=number), timestamp=TIME, event_id="e")
                await store.append_events("a", "r", event)
            assert (await self.refused(one, two))[0] == 1

    async def test_the_order_of_keys_is_no_difference(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            for store, keys in ((one, "ab"), (two, "ba")):
                event = new_event(
                    UserMessage(structured=dict.fromkeys(keys)),
                    timestamp=TIME,
                    labels=dict.fromkeys(keys, ""),
                    event_id="e",
                )
                await store.append_events("a", "r", event, meta=dict.fromkeys(keys))
            await copied_whole(one, two)

    async def test_more_than_the_source_has(self, pair: tuple[Store, Store]) -> None:
        one, two = pair
        await two.append_events("a", "r", *notes(8))
        assert await self.refused(one, two) == (4, "the target goes on to version 4, the source ends at 3")

    async def test_another_meta(self, pair: tuple[Store, Store]) -> None:
        one, _ = pair
        async with open_store("memory:") as two:
            await two.append_events("a", "r", *notes(1), meta={"k": 1.0})
            await two.append_events("a", "s", *notes(1))
            await one.redact_events("a", "r", [1])
            seq, problem = await self.refused(one, two)
            assert seq == 0
            assert problem.startswith("the target's run has another meta")
            assert problem.endswith("; seq 1 is redacted in the source, and was found readable in the target")

    async def test_redacted_in_the_target_only(self, pair: tuple[Store, Store]) -> None:
        one, two = pair
        await two.redact_events("a", "r", [2], reason="here")
        assert await self.refused(one, two) == (
            2,
            "is redacted in the target and not in the source: redact it there too",
        )
        await one.redact_events("a", "r", [2], reason="here")
        await copied_whole(one, two)

    async def test_a_run_that_was_deleted_in_the_target(self, pair: tuple[Store, Store]) -> None:
        one, two = pair
        await two.delete_run("a", "r")
        seq, problem = await self.refused(one, two)
        assert seq == 1
        assert problem.startswith("the target's run was deleted at version 3, and its numbers never start again")

    async def test_a_run_that_was_deleted_and_written_again_in_the_source(self, pair: tuple[Store, Store]) -> None:
        one, two = pair
        await one.delete_run("a", "r")
        await one.append_events("a", "r", *notes(4, 5))
        second, *_ = [copied for copied in await copy_all(one, two) if copied.run == "r"]
        assert second.seq == 1
        assert "still holds what was deleted in the source" in second.problem
        assert "delete the target's run, and copy it again" in second.problem
        await two.delete_run("a", "r")
        await copied_whole(one, two)
        assert [event.seq for event in (await two.load_run("a", "r")).log] == [4, 5]

    async def test_a_run_that_begins_elsewhere(self, pair: tuple[Store, Store]) -> None:
        one, _ = pair
        async with open_store("memory:") as two:
            await two.append_events("a", "r", *notes(2, 3), first_seq=2)
            await two.append_events("a", "s", *notes(1))
            assert await self.refused(one, two) == (1, "the target's run begins at seq 2, the source's at seq 1")

    async def test_content_that_was_redacted_where_the_runs_part_is_reported(self, pair: tuple[Store, Store]) -> None:
        one, two = pair
        await one.redact_events("a", "r", [2])
        await two.append_events("a", "r", *notes(8))
        seq, problem = await self.refused(one, two)
        assert seq == 4
        assert problem.endswith("; seq 2 is redacted in the source, and was found readable in the target")

    async def test_a_redaction_that_is_behind_what_the_target_refuses_is_reported(self) -> None:
        async with open_store("memory:") as one, open_store("memory:?max_event_bytes=60") as two:
            await one.append_events("a", "r", *notes(1, 2))
            await copied_whole(one, two)
            await one.append_events("a", "r", new_event(PlannerNote("long " * 20)))
            await one.redact_events("a", "r", [2])
            (copied,) = await copy_all(one, two)
            assert copied.seq == 3
            assert copied.problem.endswith("; seq 2 is redacted in the source, and was found readable in the target")
            await one.redact_events("a", "r", [3])
            await copied_whole(one, two)
            assert "content 2" not in await text_of(two)

    async def test_a_redaction_that_the_target_refuses(self) -> None:
        async def refuse(name: str) -> None:
            if name == "redact_events":
                raise EventTooLarge("the marker has 5 bytes; the limit is 3", size=5, limit=3)

        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1, 2))
            await copied_whole(one, two)
            await one.redact_events("a", "r", [2])
            (copied,) = await copy_all(one, watched(two, before=refuse))
            assert copied.seq == 3
            assert copied.problem.startswith("the target refuses the redaction: the marker has 5 bytes")

    async def test_another_writer_before_the_first_batch(self, pair: tuple[Store, Store]) -> None:
        one, two = pair
        await one.append_events("a", "r", *notes(4, 5))
        meddling = watched(two, before=once("append_events", lambda: two.append_events("a", "r", *notes(8))))
        copied = await copy_run(one, meddling, "a", "r")
        assert (copied.seq, copied.copied) == (4, 0)
        assert copied.problem.startswith("the target holds another event")
        assert [event.event_id for event in (await two.load_run("a", "r")).log] == ["n1", "n2", "n3", "n8"]

    async def test_another_writer_after_the_last_batch(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1, 2))
            meddling = watched(two, after=once("append_events", lambda: two.append_events("a", "r", *notes(8))))
            copied = await copy_run(one, meddling, "a", "r")
            assert (copied.seq, copied.problem) == (3, "the target goes on to version 3, the source ends at 2")

    async def test_another_writer_who_creates_the_run(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1, 2), meta={"k": 1})
            meddling = watched(two, before=once("append_events", lambda: two.append_events("a", "r", *notes(1, 2))))
            copied = await copy_run(one, meddling, "a", "r")
            assert (copied.seq, copied.copied) == (0, 0)
            assert copied.problem.startswith("the target's run has another meta")

    async def test_another_event_where_the_source_has_a_redacted_one(self) -> None:
        first, second = notes(1, 2)
        for original, event_id in (("planner_note", "other"), ("user_message", "n2")):
            mask = msgspec.structs.replace(second, type="redacted", data=Redacted(original), event_id=event_id)
            async with open_store("memory:") as one, open_store("memory:") as two:
                await one.append_events("a", "r", first, mask)
                await two.append_events("a", "r", first, second)
                seq, problem = await self.refused(one, two)
                assert seq == 2
                assert problem.startswith("the target holds an")

    async def test_an_event_that_the_target_refuses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(comparing, "_FIRST_PAGE_EVENTS", 3)
        async with open_store("memory:") as one, open_store("memory:?max_event_bytes=30") as two:
            await one.append_events("a", "r", *notes(*range(1, 8)), new_event(PlannerNote("long " * 20)), *notes(9, 10))
            await one.append_events("a", "s", *notes(1))
            for already, copied in ((0, 7), (7, 0)):
                first, second = await copy_all(one, two)
                assert (first.seq, first.already, first.copied) == (8, already, copied)
                assert first.problem.startswith("the target refuses it: event ")
                assert first.problem.endswith("the limit is 30")
                assert second.problem == ""

    async def test_batches_over_the_targets_limit_are_made_smaller(self) -> None:
        async with open_store("memory:") as one, open_store("memory:?max_event_bytes=30") as two:
            await one.append_events("a", "r", *notes(*range(200)))  # a batch has 16 times as much
            await copied_whole(one, two)
            assert await contents(two) == await contents(one)

    async def test_an_event_that_cannot_be_read(self, tmp_path: Path) -> None:
        async with open_store(f"sqlite:///{tmp_path}/a.db") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(*range(1, 120)))
            await one.append_events("a", "s", *notes(1))
            with sqlite3.connect(tmp_path / "a.db") as connection:
                connection.execute("UPDATE events SET data = '{' WHERE id & 4294967295 = 77")
            connection.close()
            first, second = await copy_all(one, two)
            assert (first.seq, first.copied, second.problem) == (77, 76, "")
            assert first.problem.startswith("in the source, cannot be read: ")

    async def test_an_event_that_is_missing(self, tmp_path: Path) -> None:
        async with open_store(f"sqlite:///{tmp_path}/a.db") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(*range(1, 9)))
            with sqlite3.connect(tmp_path / "a.db") as connection:
                connection.execute("DELETE FROM events WHERE id & 4294967295 IN (1, 2)")
            connection.close()
            (copied,) = await copy_all(one, two)
            assert (copied.seq, copied.copied, copied.gone) == (1, 0, False)
            assert copied.problem.startswith("is missing in the source")

    @pytest.mark.parametrize("seq", [1, 60, 119])
    async def test_a_target_that_does_not_keep_what_it_was_given(self, seq: int) -> None:
        class Forgetful:
            def __init__(self, store: Store) -> None:
                self._store = store

            async def append_events(self, agent: str, run: str, *events: Event, **options: Any) -> AppendResult:
                kept = [msgspec.structs.replace(one, labels={}) if one.seq == seq else one for one in events]
                return await self._store.append_events(agent, run, *kept, **options)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._store, name)

        async with open_store("memory:") as one, open_store("memory:") as two:
            labelled = [msgspec.structs.replace(event, labels={"k": "v"}) for event in notes(*range(1, 120))]
            await one.append_events("a", "r", *labelled)
            forgetful: Any = Forgetful(two)
            (copied,) = await copy_all(one, forgetful)
            assert (copied.seq, copied.problem) == (
                seq,
                "the target holds an event with the same id and another labels",
            )


class TestRedactions:
    @BOTH_WAYS
    async def test_what_was_redacted_since_is_redacted_in_the_target(
        self, source_url: str, target_url: str, tmp_path: Path
    ) -> None:
        async with open_store(source_url.format(tmp_path)) as one, open_store(target_url.format(tmp_path)) as two:
            await one.append_events("a", "r", *notes(1, 2, 3, 4))
            await copied_whole(one, two)
            await one.redact_events("a", "r", [2], reason="first")
            await one.append_events("a", "r", *notes(6))
            await one.redact_events("a", "r", [1, 4, 6], reason="second")
            assert "content 2" in await text_of(two)
            (copied,) = await copied_whole(one, two)
            assert (copied.already, copied.copied, copied.redacted) == (4, 3, 3)
            text = await text_of(two)
            assert [f"content {number}" in text for number in (1, 2, 3, 4, 6)] == [False, False, True, False, False]
            log = (await two.load_run("a", "r")).log
            assert [event.data for event in log if event.type == "redaction"] == [
                Redaction(seqs=(2,), reason="first"),
                Redaction(seqs=(1, 4), reason="second"),  # 6 came redacted
            ]
            assert comparable(await two.load_run("a", "r")) == comparable(await one.load_run("a", "r"))
            assert await is_whole(two)

    @pytest.mark.parametrize("copied_between", [False, True])
    async def test_a_marker_that_was_redacted(self, *, copied_between: bool) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1, 2))
            await copied_whole(one, two)
            await one.redact_events("a", "r", [2], reason="first")
            if copied_between:
                await copied_whole(one, two)
            await one.redact_events("a", "r", [3], reason="second")
            warm = await two.load_run("a", "r")
            await copied_whole(one, two)
            cold = await two.load_run("a", "r")
            assert [event.data for event in cold.log[1:3]] == [
                Redacted(original_type="planner_note", reason="second"),
                Redacted(original_type="redaction", reason="second"),
            ]
            assert warm.extend(await two.load_run("a", "r", after=warm.last_seq)) == cold

    async def test_what_is_redacted_while_it_is_copied(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1, 2, 3))
            redacting = watched(two, after=once("append_events", lambda: one.redact_events("a", "r", [2])))
            (copied,) = await copy_all(one, redacting)
            assert (copied.problem, copied.version, copied.redacted) == ("", 4, 1)
            assert (copied.already, copied.copied) == (0, 4)
            assert "content 2" not in await text_of(two)
            await copied_whole(one, two)

    async def test_a_source_that_is_redacted_again_and_again(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(*range(1, 30)))
            numbers = iter(range(1, 30))

            async def redact(name: str) -> None:
                if name in ("append_events", "redact_events"):
                    await one.redact_events("a", "r", [next(numbers)])

            (copied,) = await copy_all(one, watched(two, after=redact))
            assert copied.problem.startswith("changed again and again while it was copied: copy it again")
            await copied_whole(one, two)

    async def test_redacted_where_no_marker_says_so(self) -> None:
        first, second = notes(1, 2)
        mask = msgspec.structs.replace(second, type="redacted", data=Redacted(original_type="planner_note"))
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", first, mask)
            await two.append_events("a", "r", first, second)
            (copied,) = await copy_all(one, two)
            assert (copied.seq, copied.digest) == (2, "")
            assert "no marker says so, and still readable in the target: redact it there" in copied.problem
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", first, mask)
            await two.append_events(
                "a", "r", first, msgspec.structs.replace(mask, data=Redacted("planner_note", "why"))
            )
            (copied,) = await copy_all(one, two)
            assert (copied.seq, copied.problem) == (2, "is redacted for another reason in the target")

    async def test_more_was_redacted_in_the_target(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            for store in (one, two):
                await store.append_events("a", "r", *notes(1, 2))
            await one.redact_events("a", "r", [1])
            await two.redact_events("a", "r", [1, 2])
            (copied,) = await copy_all(one, two)
            assert (copied.seq, copied.problem) == (
                2,
                "is redacted in the target and not in the source: redact it there too",
            )

    async def test_another_writer_before_the_marker(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1, 2))
            await copied_whole(one, two)
            await one.redact_events("a", "r", [1])
            meddling = watched(two, before=once("redact_events", lambda: two.append_events("a", "r", *notes(8))))
            (copied,) = await copy_all(one, meddling)
            assert (copied.seq, copied.redacted) == (3, 1)
            assert copied.problem.startswith("the redaction marker stands at seq 4 in the target")
            assert "content 1" not in await text_of(two)


class TestGone:
    @pytest.mark.parametrize("written_again", [False, True])
    async def test_deleted_while_it_is_copied(self, monkeypatch: pytest.MonkeyPatch, *, written_again: bool) -> None:
        monkeypatch.setattr(comparing, "BATCH_EVENTS", 2)
        async with open_store("memory:") as one, open_store("memory:") as two:

            async def delete() -> None:
                await one.delete_run("a", "r")
                if written_again:
                    await one.append_events("a", "r", *notes(8, 9))

            await one.append_events("a", "r", *notes(1, 2, 3, 4))
            await one.append_events("a", "s", *notes(1))
            first, second = await copy_all(one, watched(two, after=once("append_events", delete)))
            assert (first.gone, first.copied, first.digest) == (True, 2, "")
            assert first.problem.startswith("was deleted in the source while it was copied")
            assert second.problem == ""

    @pytest.mark.parametrize("in_source", [True, False])
    async def test_expired_while_it_is_copied(self, *, in_source: bool) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1, 2))
            await one.append_events("a", "s", *notes(1))
            expiry: list[Exception] = []

            async def expire(name: str) -> None:
                if name == "load_run" and expiry:
                    raise expiry[0]

            async def end() -> None:
                expiry.append(RunExpired("a/r expired at 2026-03-01T00:00:00Z"))

            source, target = (watched(one, before=expire), two) if in_source else (one, watched(two, before=expire))
            copied = await copy_run(source, watched(target, after=once("append_events", end)), "a", "r")
            assert (copied.gone, copied.copied, copied.seq) == (in_source, 2, 0)
            prefix = "" if in_source else "in the target, "
            assert copied.problem == f"{prefix}a/r expired at 2026-03-01T00:00:00Z"

    async def test_deleted_in_the_target_while_it_is_copied(self) -> None:
        async with open_store("memory:") as one, open_store("memory:") as two:
            await one.append_events("a", "r", *notes(1, 2))
            deleting = watched(two, after=once("append_events", lambda: two.delete_run("a", "r")))
            (copied,) = await copy_all(one, deleting)
            assert (copied.gone, copied.problem) == (False, "was deleted in the target while it was copied there")
