"""Tests that copies are exact and verified, can be resumed after a crash, and repeat the source's redactions."""

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
    return [copied async for copied in copy_store(source, target, **options)]


async def copy_completely(source: Store, target: Store, **options: Any) -> list[CopiedRun]:
    """Copy every run without a problem. Check that a second copy has nothing to do."""
    results = await copy_all(source, target, **options)
    assert [copied.problem for copied in results] == [""] * len(results)
    again = await copy_all(source, target, **options)
    assert [(copied.digest, copied.already_stored, copied.copied, copied.problem) for copied in again] == [
        (copied.digest, copied.events, 0, "") for copied in results
    ]
    return results


async def contents(store: Store) -> list[object]:
    """Return the content of all runs in the order of the store's list, without the times of their creation."""
    return [await store.load_run(info.agent, info.run) for info in (await runs_by_age(store))[::-1]]


async def is_undamaged(store: Store) -> bool:
    reports = [await check_run(store, info, lambda: None) for info in await runs_by_age(store)]
    return not any(finding.severity == "error" for report in reports for finding in report.findings)


def comparable(snapshot: Snapshot) -> object:
    """Return the parts of a snapshot that are equal in both stores. Markers have other ids, times and seqs in each."""
    return snapshot.meta, [
        (event.seq, None, getattr(event.data, "reason", None))
        if "redaction" in (event.type, getattr(event.data, "original_type", None))
        else event
        for event in snapshot.log
    ]


async def text_of(store: Store, agent: str = "a", run: str = "r") -> str:
    return repr(list((await store.load_run(agent, run)).log))


class Watched:
    """A store that calls a hook before or after each of its methods."""

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
            result = await method(*args, **options)
            if self._after is not None:
                await self._after(name)
            return result

        return call


def watched(store: Store, **hooks: Callable[[str], Awaitable[object]]) -> Any:
    return Watched(store, **hooks)


def once(name: str, action: Callable[[], Awaitable[object]]) -> Callable[[str], Awaitable[object]]:
    """Return a hook that runs ``action`` at the first call of ``name``."""
    actions = [action]

    async def hook(method: str) -> None:
        if method == name and actions:
            await actions.pop()()

    return hook


async def fill(store: Store) -> None:
    """Append runs of every kind."""
    await import_jsonl(store, sample_lines("demo.jsonl"))
    await store.append_events(
        "@memory", "own", *notes(1), meta={"k": [1, 1.0, 2**70, None], "a": {"": "\x00"}}, reserved=True
    )
    await store.append_events("a", "redacted", *notes(1, 2, 3))
    await store.redact_events("a", "redacted", [1, 3], reason="asked")
    await store.redact_events("a", "redacted", [4], reason="and its marker")
    await store.append_events("a", "again", *notes(1, 2, 3))
    await store.delete_run("a", "again")
    await store.append_events("a", "again", *notes(4, 5))
    await store.append_events("a", "gone", *notes(1))
    await store.delete_run("a", "gone")


class TestWholeStores:
    async def test_runs_are_copied_to_mongodb_and_back(self, mongo_uri: str, tmp_path: Path) -> None:
        async with open_store("memory:") as source, open_store(mongo_uri) as target:
            await fill(source)
            await copy_completely(source, target)
            assert await contents(target) == await contents(source)
            async with open_store(f"sqlite:///{tmp_path}/c.db") as third:
                await copy_completely(target, third)
                assert await contents(third) == await contents(source)
                assert await is_undamaged(third)

    @BOTH_WAYS
    async def test_copies_keep_content_and_order(self, source_url: str, target_url: str, tmp_path: Path) -> None:
        async with open_store(source_url.format(tmp_path)) as source, open_store(target_url.format(tmp_path)) as target:
            await fill(source)
            results = await copy_completely(source, target)
            assert await contents(target) == await contents(source)
            assert await is_undamaged(target)
        assert [
            (copied.run, copied.version, copied.events, copied.copied, copied.already_stored) for copied in results
        ] == [
            ("2026-03-06-slow-checkout", 45, 45, 45, 0),
            ("own", 1, 1, 1, 0),
            ("redacted", 5, 5, 5, 0),
            ("again", 5, 2, 2, 0),
        ]
        assert all(len(copied.digest) == 64 for copied in results)

    async def test_copy_of_one_agent_leaves_other_agents_out(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            for agent in ("a", "b", "@own"):
                await source.append_events(agent, "r", *notes(1), reserved=True)
            assert [copied.agent for copied in await copy_completely(source, target, agent="b")] == ["b"]
            assert [copied.agent for copied in await copy_completely(source, target, agent="@own")] == ["@own"]
            assert [info.agent for info in await runs_by_age(target)] == ["b", "@own"]

    async def test_stores_larger_than_a_page_are_copied(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(steps, "_PAGE", 2)
        monkeypatch.setattr(comparing, "BATCH_EVENTS", 2)
        monkeypatch.setattr(importing, "BATCH_EVENTS", 3)
        async with open_store("memory:") as source, open_store("memory:") as target:
            for run in range(1, 8):
                await source.append_events("a", str(run), *notes(*range(run)))
            await copy_completely(source, target)
            assert await contents(target) == await contents(source)

    async def test_page_size_adapts_to_the_size_of_a_batch(self, monkeypatch: pytest.MonkeyPatch) -> None:
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

        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *(new_event(PlannerNote("x" * 1000)) for _ in range(100)))
            counting: Any = Counting(source)
            await copy_completely(counting, target)
        assert 10 < max(pages) < 20

    async def test_progress_counts_stored_and_compared_events(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(*range(120)))
            counts: list[int] = []
            await copy_all(source, target, progress=counts.append)
            assert sum(counts) == 240
            counts.clear()
            await copy_all(source, target, progress=counts.append)
            assert sum(counts) == 120

    async def test_empty_stores_and_missing_runs_are_reported(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            assert await copy_all(source, target) == []
            copied = await copy_run(source, target, "a", "r")
            assert (copied.vanished, copied.problem) == (True, "no longer holds events in the source")
            assert (await target.load_run("a", "r")).version == 0

    async def test_store_cannot_be_copied_to_itself(self) -> None:
        async with open_store("memory:") as store:
            await store.append_events("a", "r", *notes(1))
            with pytest.raises(InvalidArgument, match="same store"):
                await copy_run(store, store, "a", "r")

    async def test_failure_of_a_whole_store_raises(self) -> None:
        async def refuse(name: str) -> None:
            if name == "append_events":
                raise StoreUnavailable("the disk is full")

        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1))
            with pytest.raises(StoreUnavailable, match="full"):
                await copy_all(source, watched(target, before=refuse))
            await target.aclose()
            with pytest.raises(StoreClosed):
                await copy_all(source, target)


class Stage(msgspec.Struct):
    """The changes of a run between target copies: new events, and then seqs to redact."""

    events: list[Event]
    redacted: set[int]


_appended = st.lists(events().filter(lambda event: not isinstance(event.data, Redaction)), max_size=4)
_stages = st.lists(st.builds(Stage, _appended, st.sets(st.integers(1, 9), max_size=3)), min_size=1, max_size=4)


async def carry_out(store: Store, stage: Stage, meta: Mapping[str, JsonValue]) -> None:
    snapshot = await store.load_run("a", "r")
    stored_ids = {event.event_id for event in snapshot.log}
    new = {event.event_id: event for event in stage.events if event.event_id not in stored_ids}
    result = await store.append_events("a", "r", *new.values(), meta=meta)
    await store.redact_events("a", "r", {seq for seq in stage.redacted if seq <= result.version}, reason="asked")


@given(_stages, json_maps().map(lambda meta: {key: value for key, value in meta.items() if key != "expires_at"}))
async def test_repeated_copies_follow_any_changes_of_a_run(
    stages: Sequence[Stage], meta: Mapping[str, JsonValue]
) -> None:
    async with (
        open_store("memory:") as source,
        open_store("memory:") as target,
        open_store("memory:") as fresh,
        open_store("memory:") as empty,
    ):
        for stage in stages:
            await carry_out(source, stage, meta)
            warm = await target.load_run("a", "r")
            await copy_completely(source, target)
            copied = await target.load_run("a", "r")
            assert comparable(copied) == comparable(await source.load_run("a", "r"))
            # A reader that extends its snapshot of the target receives each redaction.
            assert warm.extend(await target.load_run("a", "r", after=warm.last_seq)) == copied
        await copy_completely(source, fresh)
        assert await fresh.load_run("a", "r") == await source.load_run("a", "r")
        assert [result.digest for result in await copy_all(target, empty)] == [
            result.digest for result in await copy_all(source, fresh)
        ]


class Death(BaseException):
    """Ends a copy like a crash: it is not an ``Exception``, so the copy cannot catch it."""


class TestResuming:
    @pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
    @BOTH_WAYS
    async def test_copy_resumes_after_a_crash_at_any_write(
        self, source_url: str, target_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, done: bool
    ) -> None:
        monkeypatch.setattr(comparing, "BATCH_EVENTS", 3)
        monkeypatch.setattr(importing, "BATCH_EVENTS", 3)
        async with open_store(source_url.format(tmp_path)) as source:
            await source.append_events("a", "r", *notes(*range(1, 9)), meta={"k": 1})
            await source.append_events("a", "s", *notes(1, 2))
            await source.redact_events("a", "r", [2, 5])
            await source.append_events("a", "r", *notes(11, 12))
            deaths = 0
            while True:
                folder = tmp_path / str(deaths)
                folder.mkdir()
                async with open_store(target_url.format(folder)) as target:
                    await target.append_events("a", "r", *notes(1, 2), meta={"k": 1})
                    died = await self._dies(source, target, deaths, done=done)
                    versions = {info.run: info.version for info in await runs_by_age(target)}
                    results = await copy_completely(source, target)
                    assert sum(copied.copied for copied in results) == 13 - sum(versions.values())
                    assert comparable(await target.load_run("a", "r")) == comparable(await source.load_run("a", "r"))
                    assert await target.load_run("a", "s") == await source.load_run("a", "s")
                if not died:
                    break
                deaths += 1
            assert deaths == 5  # three batches, a redaction, and the other run

    async def _dies(self, source: Store, target: Store, after: int, *, done: bool) -> bool:
        left = after

        async def die(name: str) -> None:
            nonlocal left
            if name in ("append_events", "redact_events"):
                if not left:
                    raise Death
                left -= 1

        try:
            await copy_all(source, watched(target, after=die) if done else watched(target, before=die))
        except Death:
            return True
        return False

    async def test_later_events_are_copied_by_the_next_copy(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1, 2))
            await copy_completely(source, target)
            await source.append_events("a", "r", *notes(3, 4, 5))
            await source.append_events("a", "s", *notes(1))
            first, second = await copy_completely(source, target)
            assert (first.already_stored, first.copied, first.version) == (2, 3, 5)
            assert (second.already_stored, second.copied, second.version) == (0, 1, 1)
            assert await contents(target) == await contents(source)

    async def test_events_appended_during_a_copy_are_copied_by_the_next_copy(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1))
            growing = watched(target, after=once("append_events", lambda: source.append_events("a", "r", *notes(2))))
            (copied,) = await copy_all(source, growing)
            assert (copied.problem, copied.version, copied.copied) == ("", 1, 1)
            await copy_completely(source, target)
            assert await contents(target) == await contents(source)

    async def test_two_concurrent_copies_store_each_event_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(comparing, "BATCH_EVENTS", 7)
        async with open_store("memory:") as source, open_store("memory:") as target:
            for run in "rst":
                await source.append_events("a", run, *notes(*range(50)))

            async def breathe(_: str) -> None:
                await asyncio.sleep(0)

            quick, slow = watched(target, after=breathe), watched(target, before=breathe, after=breathe)
            results = await asyncio.gather(*(copy_all(source, handle) for handle in (quick, slow)))
            assert {copied.problem for result in results for copied in result} == {""}
            assert sum(copied.copied for result in results for copied in result) == 150
            assert await contents(target) == await contents(source)

    async def test_copy_succeeds_beside_a_more_advanced_copy(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1, 2))

            async def grow_and_copy() -> None:
                await source.append_events("a", "r", *notes(3))
                await copy_completely(source, target)

            hook = once("load_run", grow_and_copy)
            copied = await copy_run(watched(source, after=hook), watched(target, after=hook), "a", "r")
            assert (copied.problem, copied.copied, copied.version) == ("", 0, 3)


class TestConflicts:
    @pytest.fixture
    async def pair(self) -> tuple[Store, Store]:
        """Open a store with the runs ``a/r`` and ``a/s``, and a second store with a copy of them."""
        source, target = await open_store("memory:"), await open_store("memory:")
        await source.append_events("a", "r", *notes(1, 2, 3), meta={"k": 1})
        await source.append_events("a", "s", *notes(1))
        await copy_completely(source, target)
        return source, target

    async def refused(self, source: Store, target: Store) -> tuple[int, str]:
        """Check that the copy reports ``a/r``, leaves it unchanged, and copies the other runs."""
        await source.append_events("a", "s", *notes(7))
        await source.append_events("a", "t", *notes(1))
        before = await target.load_run("a", "r")
        first, *other_results = await copy_all(source, target)
        assert (first.run, first.copied, first.digest, first.vanished) == ("r", 0, "", False)
        assert await target.load_run("a", "r") == before
        assert [(copied.run, copied.problem, copied.copied) for copied in other_results] == [("s", "", 1), ("t", "", 1)]
        return first.seq, first.problem

    async def test_different_event_is_reported(self, pair: tuple[Store, Store]) -> None:
        source, target = pair
        await source.append_events("a", "r", *notes(4, 5))
        await target.append_events("a", "r", *notes(8))
        seq, problem = await self.refused(source, target)
        assert seq == 4
        assert problem == (
            "the target holds another event: a planner_note with the id 'n8', but the source has a planner_note "
            "with the id 'n4'"
        )

    @pytest.mark.parametrize(
        ("changed", "difference"),
        [
            ({"timestamp": TIME + timedelta(microseconds=1)}, "timestamp"),
            ({"data": PlannerNote("other")}, "data"),
            ({"labels": {"k": "v"}}, "labels"),
            ({"type": "user_message", "data": UserMessage(structured=True), "labels": {"": ""}}, "type and data and l"),
        ],
    )
    async def test_different_content_with_the_same_id_is_reported(
        self, changed: dict[str, Any], difference: str
    ) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            first, second = notes(1, 2)
            await source.append_events("a", "r", first, second)
            await target.append_events("a", "r", first, msgspec.structs.replace(second, **changed))
            seq, problem = await self.refused(source, target)
            assert seq == 2
            assert problem.startswith(f"the target holds an event with the same id but other {difference}")

    async def test_integer_and_float_are_different_content(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            for store, number in ((source, 1), (target, 1.0)):
                event = new_event(UserMessage(structured=number), timestamp=TIME, event_id="e")
                await store.append_events("a", "r", event)
            assert (await self.refused(source, target))[0] == 1

    async def test_order_of_keys_is_not_a_difference(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            for store, keys in ((source, "ab"), (target, "ba")):
                event = new_event(
                    UserMessage(structured=dict.fromkeys(keys)),
                    timestamp=TIME,
                    labels=dict.fromkeys(keys, ""),
                    event_id="e",
                )
                await store.append_events("a", "r", event, meta=dict.fromkeys(keys))
            await copy_completely(source, target)

    async def test_additional_events_in_the_target_are_reported(self, pair: tuple[Store, Store]) -> None:
        source, target = pair
        await target.append_events("a", "r", *notes(8))
        assert await self.refused(source, target) == (4, "the target continues to version 4, the source ends at 3")

    async def test_different_meta_is_reported(self, pair: tuple[Store, Store]) -> None:
        source, _ = pair
        async with open_store("memory:") as target:
            await target.append_events("a", "r", *notes(1), meta={"k": 1.0})
            await target.append_events("a", "s", *notes(1))
            await source.redact_events("a", "r", [1])
            seq, problem = await self.refused(source, target)
            assert seq == 0
            assert problem.startswith("the target's run has another meta")
            assert problem.endswith("; seq 1 is redacted in the source, but is readable in the target")

    async def test_redaction_only_in_the_target_is_reported(self, pair: tuple[Store, Store]) -> None:
        source, target = pair
        await target.redact_events("a", "r", [2], reason="here")
        assert await self.refused(source, target) == (
            2,
            "is redacted in the target, but not in the source: redact it there too",
        )
        await source.redact_events("a", "r", [2], reason="here")
        await copy_completely(source, target)

    async def test_deleted_run_in_the_target_is_reported(self, pair: tuple[Store, Store]) -> None:
        source, target = pair
        await target.delete_run("a", "r")
        seq, problem = await self.refused(source, target)
        assert seq == 1
        assert problem.startswith("the target's run was deleted at version 3; seqs are never reused")

    async def test_run_recreated_in_the_source_is_reported(self, pair: tuple[Store, Store]) -> None:
        source, target = pair
        await source.delete_run("a", "r")
        await source.append_events("a", "r", *notes(4, 5))
        second, *_ = [copied for copied in await copy_all(source, target) if copied.run == "r"]
        assert second.seq == 1
        assert "still holds events that were deleted in the source" in second.problem
        assert "delete the target's run and copy it again" in second.problem
        await target.delete_run("a", "r")
        await copy_completely(source, target)
        assert [event.seq for event in (await target.load_run("a", "r")).log] == [4, 5]

    async def test_different_first_seq_is_reported(self, pair: tuple[Store, Store]) -> None:
        source, _ = pair
        async with open_store("memory:") as target:
            await target.append_events("a", "r", *notes(2, 3), first_seq=2)
            await target.append_events("a", "s", *notes(1))
            assert await self.refused(source, target) == (1, "the target's run begins at seq 2, the source's at seq 1")

    async def test_readable_content_is_reported_with_a_conflict(self, pair: tuple[Store, Store]) -> None:
        source, target = pair
        await source.redact_events("a", "r", [2])
        await target.append_events("a", "r", *notes(8))
        seq, problem = await self.refused(source, target)
        assert seq == 4
        assert problem.endswith("; seq 2 is redacted in the source, but is readable in the target")

    async def test_redaction_after_a_refused_event_is_reported(self) -> None:
        async with open_store("memory:") as source, open_store("memory:?max_event_bytes=60") as target:
            await source.append_events("a", "r", *notes(1, 2))
            await copy_completely(source, target)
            await source.append_events("a", "r", new_event(PlannerNote("long " * 20)))
            await source.redact_events("a", "r", [2])
            (copied,) = await copy_all(source, target)
            assert copied.seq == 3
            assert copied.problem.endswith("; seq 2 is redacted in the source, but is readable in the target")
            await source.redact_events("a", "r", [3])
            await copy_completely(source, target)
            assert "content 2" not in await text_of(target)

    async def test_redaction_that_the_target_refuses_is_reported(self) -> None:
        async def refuse(name: str) -> None:
            if name == "redact_events":
                raise EventTooLarge("the marker has 5 bytes; the limit is 3", size=5, limit=3)

        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1, 2))
            await copy_completely(source, target)
            await source.redact_events("a", "r", [2])
            (copied,) = await copy_all(source, watched(target, before=refuse))
            assert copied.seq == 3
            assert copied.problem.startswith("the target refuses the redaction: the marker has 5 bytes")

    async def test_event_of_another_writer_before_the_first_batch_is_reported(self, pair: tuple[Store, Store]) -> None:
        source, target = pair
        await source.append_events("a", "r", *notes(4, 5))
        meddling = watched(target, before=once("append_events", lambda: target.append_events("a", "r", *notes(8))))
        copied = await copy_run(source, meddling, "a", "r")
        assert (copied.seq, copied.copied) == (4, 0)
        assert copied.problem.startswith("the target holds another event")
        assert [event.event_id for event in (await target.load_run("a", "r")).log] == ["n1", "n2", "n3", "n8"]

    async def test_event_of_another_writer_after_the_last_batch_is_reported(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1, 2))
            meddling = watched(target, after=once("append_events", lambda: target.append_events("a", "r", *notes(8))))
            copied = await copy_run(source, meddling, "a", "r")
            assert (copied.seq, copied.problem) == (3, "the target continues to version 3, the source ends at 2")

    async def test_meta_of_another_writer_is_reported(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1, 2), meta={"k": 1})
            meddling = watched(
                target, before=once("append_events", lambda: target.append_events("a", "r", *notes(1, 2)))
            )
            copied = await copy_run(source, meddling, "a", "r")
            assert (copied.seq, copied.copied) == (0, 0)
            assert copied.problem.startswith("the target's run has another meta")

    async def test_different_event_is_reported_even_if_the_source_redacted_its_own(self) -> None:
        first, second = notes(1, 2)
        for original, event_id in (("planner_note", "other"), ("user_message", "n2")):
            mask = msgspec.structs.replace(second, type="redacted", data=Redacted(original), event_id=event_id)
            async with open_store("memory:") as source, open_store("memory:") as target:
                await source.append_events("a", "r", first, mask)
                await target.append_events("a", "r", first, second)
                seq, problem = await self.refused(source, target)
                assert seq == 2
                assert problem.startswith("the target holds an")

    async def test_event_that_the_target_refuses_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(comparing, "_FIRST_PAGE_EVENTS", 3)
        async with open_store("memory:") as source, open_store("memory:?max_event_bytes=30") as target:
            await source.append_events(
                "a", "r", *notes(*range(1, 8)), new_event(PlannerNote("long " * 20)), *notes(9, 10)
            )
            await source.append_events("a", "s", *notes(1))
            for already_stored, copied in ((0, 7), (7, 0)):
                first, second = await copy_all(source, target)
                assert (first.seq, first.already_stored, first.copied) == (8, already_stored, copied)
                assert first.problem.startswith("the target refuses it: event ")
                assert first.problem.endswith("the limit is 30")
                assert second.problem == ""

    async def test_batches_above_the_targets_limit_are_split(self) -> None:
        async with open_store("memory:") as source, open_store("memory:?max_event_bytes=30") as target:
            await source.append_events("a", "r", *notes(*range(200)))  # a batch has 16 times as much
            await copy_completely(source, target)
            assert await contents(target) == await contents(source)

    async def test_unreadable_event_is_reported(self, tmp_path: Path) -> None:
        async with open_store(f"sqlite:///{tmp_path}/a.db") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(*range(1, 120)))
            await source.append_events("a", "s", *notes(1))
            with sqlite3.connect(tmp_path / "a.db") as connection:
                connection.execute("UPDATE events SET data = '{' WHERE id & 4294967295 = 77")
            connection.close()
            first, second = await copy_all(source, target)
            assert (first.seq, first.copied, second.problem) == (77, 76, "")
            assert first.problem.startswith("in the source, cannot be read: ")

    async def test_missing_event_is_reported(self, tmp_path: Path) -> None:
        async with open_store(f"sqlite:///{tmp_path}/a.db") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(*range(1, 9)))
            with sqlite3.connect(tmp_path / "a.db") as connection:
                connection.execute("DELETE FROM events WHERE id & 4294967295 IN (1, 2)")
            connection.close()
            (copied,) = await copy_all(source, target)
            assert (copied.seq, copied.copied, copied.vanished) == (1, 0, False)
            assert copied.problem.startswith("is missing in the source")

    @pytest.mark.parametrize("seq", [1, 60, 119])
    async def test_changed_event_in_the_target_is_reported(self, seq: int) -> None:
        class Forgetful:
            def __init__(self, store: Store) -> None:
                self._store = store

            async def append_events(self, agent: str, run: str, *events: Event, **options: Any) -> AppendResult:
                changed = [msgspec.structs.replace(event, labels={}) if event.seq == seq else event for event in events]
                return await self._store.append_events(agent, run, *changed, **options)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._store, name)

        async with open_store("memory:") as source, open_store("memory:") as target:
            labelled = [msgspec.structs.replace(event, labels={"k": "v"}) for event in notes(*range(1, 120))]
            await source.append_events("a", "r", *labelled)
            forgetful: Any = Forgetful(target)
            (copied,) = await copy_all(source, forgetful)
            assert (copied.seq, copied.problem) == (
                seq,
                "the target holds an event with the same id but other labels",
            )


class TestRedactions:
    @BOTH_WAYS
    async def test_later_redactions_are_repeated_in_the_target(
        self, source_url: str, target_url: str, tmp_path: Path
    ) -> None:
        async with open_store(source_url.format(tmp_path)) as source, open_store(target_url.format(tmp_path)) as target:
            await source.append_events("a", "r", *notes(1, 2, 3, 4))
            await copy_completely(source, target)
            await source.redact_events("a", "r", [2], reason="first")
            await source.append_events("a", "r", *notes(6))
            await source.redact_events("a", "r", [1, 4, 6], reason="second")
            assert "content 2" in await text_of(target)
            (copied,) = await copy_completely(source, target)
            assert (copied.already_stored, copied.copied, copied.redacted) == (4, 3, 3)
            text = await text_of(target)
            assert [f"content {number}" in text for number in (1, 2, 3, 4, 6)] == [False, False, True, False, False]
            log = (await target.load_run("a", "r")).log
            assert [event.data for event in log if event.type == "redaction"] == [
                Redaction(seqs=(2,), reason="first"),
                Redaction(seqs=(1, 4), reason="second"),  # event 6 was copied as redacted
            ]
            assert comparable(await target.load_run("a", "r")) == comparable(await source.load_run("a", "r"))
            assert await is_undamaged(target)

    @pytest.mark.parametrize("copied_between", [False, True])
    async def test_redacted_marker_is_copied(self, *, copied_between: bool) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1, 2))
            await copy_completely(source, target)
            await source.redact_events("a", "r", [2], reason="first")
            if copied_between:
                await copy_completely(source, target)
            await source.redact_events("a", "r", [3], reason="second")
            warm = await target.load_run("a", "r")
            await copy_completely(source, target)
            cold = await target.load_run("a", "r")
            assert [event.data for event in cold.log[1:3]] == [
                Redacted(original_type="planner_note", reason="second"),
                Redacted(original_type="redaction", reason="second"),
            ]
            assert warm.extend(await target.load_run("a", "r", after=warm.last_seq)) == cold

    async def test_redaction_during_a_copy_is_repeated(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1, 2, 3))
            redacting = watched(target, after=once("append_events", lambda: source.redact_events("a", "r", [2])))
            (copied,) = await copy_all(source, redacting)
            assert (copied.problem, copied.version, copied.redacted) == ("", 4, 1)
            assert (copied.already_stored, copied.copied) == (0, 4)
            assert "content 2" not in await text_of(target)
            await copy_completely(source, target)

    async def test_copy_gives_up_on_a_source_that_is_redacted_in_each_round(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(*range(1, 30)))
            numbers = iter(range(1, 30))

            async def redact(name: str) -> None:
                if name in ("append_events", "redact_events"):
                    await source.redact_events("a", "r", [next(numbers)])

            (copied,) = await copy_all(source, watched(target, after=redact))
            assert copied.problem.startswith("changed too often during the copy: copy it again")
            await copy_completely(source, target)

    async def test_redaction_without_a_marker_is_reported(self) -> None:
        first, second = notes(1, 2)
        mask = msgspec.structs.replace(second, type="redacted", data=Redacted(original_type="planner_note"))
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", first, mask)
            await target.append_events("a", "r", first, second)
            (copied,) = await copy_all(source, target)
            assert (copied.seq, copied.digest) == (2, "")
            assert "without a redaction marker, and still readable in the target: redact it" in copied.problem
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", first, mask)
            await target.append_events(
                "a", "r", first, msgspec.structs.replace(mask, data=Redacted("planner_note", "why"))
            )
            (copied,) = await copy_all(source, target)
            assert (copied.seq, copied.problem) == (2, "is redacted for another reason in the target")

    async def test_additional_redaction_in_the_target_is_reported(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            for store in (source, target):
                await store.append_events("a", "r", *notes(1, 2))
            await source.redact_events("a", "r", [1])
            await target.redact_events("a", "r", [1, 2])
            (copied,) = await copy_all(source, target)
            assert (copied.seq, copied.problem) == (
                2,
                "is redacted in the target, but not in the source: redact it there too",
            )

    async def test_event_of_another_writer_before_the_marker_is_reported(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1, 2))
            await copy_completely(source, target)
            await source.redact_events("a", "r", [1])
            meddling = watched(target, before=once("redact_events", lambda: target.append_events("a", "r", *notes(8))))
            (copied,) = await copy_all(source, meddling)
            assert (copied.seq, copied.redacted) == (3, 1)
            assert copied.problem.startswith("the redaction marker has seq 4 in the target")
            assert "content 1" not in await text_of(target)


class TestVanishedRuns:
    @pytest.mark.parametrize("written_again", [False, True])
    async def test_deletion_in_the_source_during_a_copy_is_reported(
        self, monkeypatch: pytest.MonkeyPatch, *, written_again: bool
    ) -> None:
        monkeypatch.setattr(comparing, "BATCH_EVENTS", 2)
        async with open_store("memory:") as source, open_store("memory:") as target:

            async def delete() -> None:
                await source.delete_run("a", "r")
                if written_again:
                    await source.append_events("a", "r", *notes(8, 9))

            await source.append_events("a", "r", *notes(1, 2, 3, 4))
            await source.append_events("a", "s", *notes(1))
            first, second = await copy_all(source, watched(target, after=once("append_events", delete)))
            assert (first.vanished, first.copied, first.digest) == (True, 2, "")
            assert first.problem.startswith("was deleted in the source during the copy")
            assert second.problem == ""

    @pytest.mark.parametrize("in_source", [True, False])
    async def test_expiry_during_a_copy_is_reported(self, *, in_source: bool) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1, 2))
            await source.append_events("a", "s", *notes(1))
            expiry: list[Exception] = []

            async def expire(name: str) -> None:
                if name == "load_run" and expiry:
                    raise expiry[0]

            async def end() -> None:
                expiry.append(RunExpired("a/r expired at 2026-03-01T00:00:00Z"))

            expiring = watched(source if in_source else target, before=expire)
            source_handle, target_handle = (expiring, target) if in_source else (source, expiring)
            copied = await copy_run(source_handle, watched(target_handle, after=once("append_events", end)), "a", "r")
            assert (copied.vanished, copied.copied, copied.seq) == (in_source, 2, 0)
            prefix = "" if in_source else "in the target, "
            assert copied.problem == f"{prefix}a/r expired at 2026-03-01T00:00:00Z"

    async def test_deletion_in_the_target_during_a_copy_is_reported(self) -> None:
        async with open_store("memory:") as source, open_store("memory:") as target:
            await source.append_events("a", "r", *notes(1, 2))
            deleting = watched(target, after=once("append_events", lambda: target.delete_run("a", "r")))
            (copied,) = await copy_all(source, deleting)
            assert (copied.vanished, copied.problem) == (False, "was deleted in the target during the copy")
