"""Tests of the recorders: the stored events, their order and their parent calls, with tasks, threads and errors."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic_ns
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    Annotation,
    AssistantMessage,
    Event,
    PlannerNote,
    Reader,
    RetryHint,
    Snapshot,
    Store,
    SyncStore,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    decode_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import EventConflict, EventTooLarge, InvalidArgument, InvalidEvent, StoreClosed
from agent_memory_log.events.nested import Bounds, ToolTelemetry
from agent_memory_log.recording import RecordedCall, RunRecorder, SyncRunRecorder
from tests.effort import EXAMPLES
from tests.waiting import PATIENCE, until

AGENT = "support-agent"
RUN = "run-42"


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'runs.db'}"


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Store]:
    async with open_store(url) as store:
        yield store


@pytest.fixture
def sync_store(url: str) -> Generator[SyncStore]:
    with open_sync_store(url) as store:
        yield store


async def load(store: Store) -> Snapshot:
    return await store.load_run(AGENT, RUN)


def results(snapshot: Snapshot) -> list[ToolResult]:
    return [event.data for event in snapshot.log if isinstance(event.data, ToolResult)]


def calls(snapshot: Snapshot) -> dict[str, ToolCall]:
    """Return the calls by the name of their tool."""
    return {event.data.tool_name: event.data for event in snapshot.log if isinstance(event.data, ToolCall)}


# The stored events.


async def test_each_method_records_its_payload(store: Store) -> None:
    async with RunRecorder(store, AGENT, RUN, meta={"session_id": "s-1"}) as recorder:
        event = await recorder.user("Where is my order?", structured={"a": [1]}, labels={"role": "user"})
        assert event.seq == 1
        await recorder.system("Be kind.")
        await recorder.thinking("hm", signature="sig", content_index=2)
        await recorder.thinking(redacted=b"\x00\xff")
        await recorder.assistant("On its way.")
        await recorder.note("ask about the parcel")
        await recorder.annotate("checked", labels={"by": "ann"})
        await recorder.retry_hint(RetryHint(reason="timeout"))
        await recorder.record(PlannerNote("any payload"))
    snapshot = await load(store)
    assert [event.data for event in snapshot.log] == [
        UserMessage("Where is my order?", {"a": [1]}),
        SystemMessage("Be kind."),
        Thinking(text="hm", signature="sig", content_index=2, final=True),
        Thinking(redacted=b"\x00\xff", final=True),
        AssistantMessage("On its way."),
        PlannerNote("ask about the parcel"),
        Annotation("checked"),
        RetryHint(reason="timeout"),
        PlannerNote("any payload"),
    ]
    assert [event.labels for event in snapshot.log if event.labels] == [{"role": "user"}, {"by": "ann"}]
    assert snapshot.meta == {"session_id": "s-1"}
    assert list(snapshot.events) == list(snapshot.log)


def test_synchronous_recorder_records_nested_calls_and_errors(sync_store: SyncStore) -> None:
    with SyncRunRecorder(sync_store, AGENT, RUN, meta={"session_id": "s-1"}) as recorder:
        assert recorder.user("Where is my order?").seq == 1
        with recorder.tool_call("orders.find", {"id": 7}) as call:
            with recorder.tool_call("db.query") as inner:
                inner.result([1])
            call.result("found")
        with pytest.raises(ValueError, match="no such order"), recorder.tool_call("orders.find", {"id": 8}):
            raise ValueError("no such order")
    snapshot = sync_store.load_run(AGENT, RUN)
    assert [event.type for event in snapshot.log] == [
        "user_message",
        "tool_call",
        "tool_call",
        "tool_result",
        "tool_result",
        "tool_call",
        "tool_result",
    ]
    outer, inner_call = (decode_event(snapshot.log[index], ToolCall) for index in (1, 2))
    assert inner_call.parent_tool_call_id == outer.tool_call_id
    assert [result.result_json for result in results(snapshot)] == ["[1]", "found", ""]
    assert results(snapshot)[-1].error_message == "no such order"
    assert snapshot.meta == {"session_id": "s-1"}


async def test_tool_call_is_recorded_with_all_its_fields(store: Store) -> None:
    hint = RetryHint(reason="missing_fields", message="say which order")
    async with RunRecorder(store, AGENT, RUN) as recorder:
        async with recorder.tool_call(
            "orders.find", '{ "id":7}', tool_call_id="tc-1", queue="fast", expected_children_total=2, labels={"a": "b"}
        ) as call:
            start = monotonic_ns()
            while monotonic_ns() == start:
                pass
            call.result(
                {"found": 12345678901234567890123},
                preview="one order",
                bounds=Bounds(returned=1, total=9, truncated=True),
                server_data={"secret": True},
                telemetry=ToolTelemetry(model="m", tokens_used=3),
            )
        async with recorder.tool_call("orders.cancel") as call:
            call.retry(hint)
        async with recorder.tool_call("orders.list") as call:
            call.fail("not now", preview="failed", server_data="{}")
        async with recorder.tool_call("orders.nothing") as call:
            call.result(None)
    snapshot = await load(store)
    assert snapshot.log[0].data == ToolCall(
        "tc-1", "orders.find", payload_json='{ "id":7}', queue="fast", expected_children_total=2
    )
    assert snapshot.log[0].labels == {"a": "b"}
    successful, retried, failed, null_result = results(snapshot)
    assert successful.duration_ns > 0
    assert successful.result_json == '{"found":12345678901234567890123}'
    assert successful.bounds == Bounds(returned=1, total=9, truncated=True)
    assert (successful.server_data, successful.preview) == ('{"secret":true}', "one order")
    assert successful.telemetry == ToolTelemetry(model="m", tokens_used=3)
    assert (retried.error_message, retried.retry_hint, retried.result_json) == ("say which order", hint, "")
    assert (failed.error_message, failed.preview, failed.server_data) == ("not now", "failed", "{}")
    assert null_result.result_json == "null"


async def test_block_without_outcome_records_an_empty_result(store: Store) -> None:
    async with RunRecorder(store, AGENT, RUN) as recorder, recorder.tool_call("mail.send"):
        pass
    snapshot = await load(store)
    (result,) = results(snapshot)
    assert (result.result_json, result.error_message) == ("", "")
    assert not Reader(snapshot).open_tool_calls()


async def test_outcome_after_the_block_is_refused(store: Store) -> None:
    recorder = RunRecorder(store, AGENT, RUN)
    calls: list[RecordedCall] = []
    async with recorder.tool_call("mail.send") as call:
        calls.append(call)
        call.result("sent")
    with pytest.raises(InvalidEvent):  # noqa: PT012  # the error leaves the block
        async with recorder.tool_call("mail.send") as call:
            calls.append(call)
            call.result(float("nan"))
    for ended in calls:
        with pytest.raises(InvalidArgument, match=r"^the block of the call '.*' of 'mail.send' has ended"):
            ended.result("too late")
    assert [result.result_json for result in results(await load(store))] == ["sent"]


async def test_call_without_id_gets_an_id_that_all_providers_accept(store: Store) -> None:
    async with RunRecorder(store, AGENT, RUN) as recorder:
        for _ in range(2):
            async with recorder.tool_call("a") as call:
                assert len(call.tool_call_id) <= 40
                assert call.tool_call_id.replace("_", "").isalnum()
    assert len({event.data.tool_call_id for event in (await load(store)).log if isinstance(event.data, ToolCall)}) == 2


async def test_non_json_value_raises_and_leaves_the_call_open(store: Store) -> None:
    async with RunRecorder(store, AGENT, RUN) as recorder:
        with pytest.raises(InvalidEvent, match=r"result_json\.a\[0\]") as caught:
            async with recorder.tool_call("a") as call:
                call.result({"a": [float("nan")]})
        assert caught.value.field == "data.result_json.a[0]"
        with pytest.raises(InvalidEvent, match="payload"):
            recorder.tool_call("b", {"when": object()})
        with pytest.raises(InvalidArgument, match="text that gives the reason"):
            async with recorder.tool_call("c") as call:
                call.fail(" ")
    snapshot = await load(store)
    assert not results(snapshot)
    assert [event.data.tool_name for event in Reader(snapshot).open_tool_calls()] == ["a", "c"]  # type: ignore[attr-defined]


# Exceptions and cancellation.


class ErrorWithoutText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such order"), "no such order"),
        (KeyError("id"), "'id'"),
        (TimeoutError(), "TimeoutError"),
        (OSError("\udcff"), "\\udcff"),
        (ErrorWithoutText(), "ErrorWithoutText"),
        (KeyboardInterrupt(), "interrupted: KeyboardInterrupt"),
    ],
)
async def test_exception_is_recorded_and_raised_unchanged(store: Store, error: BaseException, message: str) -> None:
    hint = RetryHint(reason="timeout")
    recorder = RunRecorder(store, AGENT, RUN)
    with pytest.raises(type(error)) as caught:  # noqa: PT012  # the whole block is under test
        async with recorder.tool_call("orders.find") as call:
            call.result("half of it")
            call.retry(hint)
            raise error
    assert caught.value is error
    assert caught.value.__cause__ is None
    assert not hasattr(error, "__notes__")
    snapshot = await load(store)
    (result,) = results(snapshot)
    assert (result.error_message, result.result_json, result.retry_hint) == (message, "", hint)
    assert snapshot.log[-1].labels == {"error_type": type(error).__name__}


async def test_exception_replaces_an_earlier_result(store: Store) -> None:
    recorder = RunRecorder(store, AGENT, RUN)
    with pytest.raises(ValueError, match="late"):  # noqa: PT012  # the whole block is under test
        async with recorder.tool_call("orders.find") as call:
            call.result("half of it", server_data={"kept": True})
            raise ValueError("late")
    (result,) = results(await load(store))
    assert (result.error_message, result.result_json, result.server_data) == ("late", "", '{"kept":true}')


async def test_cancelled_call_is_recorded_as_interrupted(store: Store) -> None:
    never, started = asyncio.Event(), asyncio.Event()
    async with RunRecorder(store, AGENT, RUN) as recorder:

        async def tool() -> None:
            async with recorder.tool_call("slow"):
                started.set()
                await never.wait()

        task = asyncio.create_task(tool())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [result.error_message for result in results(await load(store))] == ["interrupted: CancelledError"]


class PausingStore:
    """A store whose appends wait for ``let_go``."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.waiting = 0

    async def append_events(self, *arguments: Any, **options: Any) -> Any:
        self.waiting += 1
        await self.let_go.wait()
        self.waiting -= 1
        return await self.store.append_events(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


async def test_second_cancellation_does_not_lose_the_result(store: Store) -> None:
    pausing: Any = PausingStore(store)
    never = asyncio.Event()
    started = asyncio.Event()
    async with RunRecorder(pausing, AGENT, RUN) as recorder:

        async def tool() -> None:
            async with recorder.tool_call("slow"):
                pausing.let_go.clear()
                started.set()
                await never.wait()

        task = asyncio.create_task(tool())
        await started.wait()
        task.cancel()
        await until(lambda: pausing.waiting)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not results(await load(store))
        pausing.let_go.set()
    assert [result.error_message for result in results(await load(store))] == ["interrupted: CancelledError"]


async def test_cancelled_operation_does_not_block_later_operations(store: Store) -> None:
    pausing: Any = PausingStore(store)
    recorder = RunRecorder(pausing, AGENT, RUN)
    pausing.let_go.clear()
    tasks = [asyncio.create_task(recorder.note(str(number))) for number in range(4)]
    await until(lambda: pausing.waiting)
    tasks[2].cancel()  # this append still waits
    tasks[0].cancel()  # this append is in progress
    pausing.let_go.set()
    await asyncio.wait(tasks)
    assert [task.cancelled() for task in tasks] == [True, False, True, False]
    async with asyncio.timeout(10):
        await recorder.note("last")
    assert [decode_event(event, PlannerNote).note for event in (await load(store)).log] == ["1", "3", "last"]


async def test_error_that_cannot_be_recorded_is_still_raised(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    recorder = RunRecorder(store, AGENT, RUN)
    error = ValueError("no such order")
    with pytest.raises(ValueError, match="no such order") as caught:  # noqa: PT012  # the whole block is under test
        async with recorder.tool_call("orders.find"):
            await store.aclose()
            raise error
    assert caught.value is error
    assert "could not be recorded" in error.__notes__[0]
    with pytest.raises(StoreClosed):
        await recorder.note("closed")


class HookBroke(Exception):
    """An error of a caller's hook, which is not an error of this library."""


def breaks_at_results(event: Event) -> Event:
    if isinstance(event.data, ToolResult):
        raise HookBroke("the hook broke")
    return event


async def test_failing_hook_keeps_the_tool_error() -> None:
    error = ValueError("no such order")
    async with open_store("memory:") as store:
        recorder = RunRecorder(store, AGENT, RUN, before_append=breaks_at_results)
        with pytest.raises(ValueError, match="no such order") as caught:
            async with recorder.tool_call("orders.find"):
                raise error
        with pytest.raises(HookBroke):
            async with recorder.tool_call("orders.find"):
                pass
    assert caught.value is error
    assert error.__notes__ == ["this exception could not be recorded: the hook broke"]


def test_failing_hook_keeps_the_tool_error_in_sync_code() -> None:
    error = ValueError("no such order")
    with open_sync_store("memory:") as store:
        recorder = SyncRunRecorder(store, AGENT, RUN, before_append=breaks_at_results)
        with pytest.raises(ValueError, match="no such order") as caught, recorder.tool_call("orders.find"):
            raise error
        with pytest.raises(HookBroke), recorder.tool_call("orders.find"):
            pass
    assert caught.value is error
    assert error.__notes__ == ["this exception could not be recorded: the hook broke"]


async def test_result_that_is_too_large_raises_and_leaves_the_call_open(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store, RunRecorder(store, AGENT, RUN) as recorder:
        with pytest.raises(EventTooLarge):
            async with recorder.tool_call("big") as call:
                call.result("x" * 70_000_000)
        assert len(Reader(await load(store)).open_tool_calls()) == 1


# Order, tasks and threads.


class DelayingStore(PausingStore):
    """A store that lets other tasks run before each append. Earlier appends wait longer."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.delay = 40

    async def append_events(self, *arguments: Any, **options: Any) -> Any:
        self.delay = max(self.delay - 1, 0)
        for _ in range(self.delay):
            await asyncio.sleep(0)
        return await self.store.append_events(*arguments, **options)


async def test_events_are_stored_in_the_order_of_the_calls(store: Store) -> None:
    delayed: Any = DelayingStore(store)
    async with RunRecorder(delayed, AGENT, RUN) as recorder:
        await asyncio.gather(*(recorder.note(str(number)) for number in range(30)))
    snapshot = await load(store)
    assert [decode_event(event, PlannerNote).note for event in snapshot.log] == [str(number) for number in range(30)]
    assert list(snapshot.events) == list(snapshot.log)


async def test_result_is_stored_before_later_events(store: Store) -> None:
    delayed: Any = DelayingStore(store)
    ended = asyncio.Event()
    async with RunRecorder(delayed, AGENT, RUN) as recorder:

        async def tool() -> None:
            async with recorder.tool_call("a"):
                ended.set()

        async def note() -> None:
            await ended.wait()
            await recorder.note("after")

        await asyncio.gather(tool(), note())
    assert [event.type for event in (await load(store)).log] == ["tool_call", "tool_result", "planner_note"]


async def test_calls_in_tasks_and_threads_have_the_right_parent(store: Store, tmp_path: Path) -> None:
    async with RunRecorder(store, AGENT, RUN) as recorder:
        with open_sync_store(f"sqlite:///{tmp_path / 'other.db'}") as other_store:
            other = SyncRunRecorder(other_store, AGENT, "other")

            async def tool(name: str, inside: str | None = None) -> None:
                async with recorder.tool_call(name):
                    if inside is not None:
                        await asyncio.gather(tool(inside), tool(f"{inside}-2"))

            def in_thread() -> None:
                with other.tool_call("inner"), other.tool_call("innermost"):
                    asyncio.run_coroutine_threadsafe(tool("from-thread"), loop).result()

            loop = asyncio.get_running_loop()
            async with recorder.tool_call("root"):
                await asyncio.gather(tool("a", "aa"), tool("b", "bb"))
                await asyncio.to_thread(in_thread)
                async with recorder.tool_call("given", parent_tool_call_id="elsewhere"):
                    pass
            await tool("after")
            calls_by_name = calls(await load(store))
            inner = calls(other_store.load_run(AGENT, "other"))
    ids = {name: data.tool_call_id for name, data in calls_by_name.items()}
    assert {name: data.parent_tool_call_id for name, data in calls_by_name.items()} == {
        "root": "",
        "a": ids["root"],
        "aa": ids["a"],
        "aa-2": ids["a"],
        "b": ids["root"],
        "bb": ids["b"],
        "bb-2": ids["b"],
        "from-thread": ids["root"],
        "given": "elsewhere",
        "after": "",
    }
    assert inner["inner"].parent_tool_call_id == ""
    assert inner["innermost"].parent_tool_call_id == inner["inner"].tool_call_id


async def test_parent_is_a_call_of_the_same_recorder(store: Store) -> None:
    mine, other = RunRecorder(store, AGENT, RUN), RunRecorder(store, AGENT, "other")
    async with mine.tool_call("outer"), other.tool_call("of another run"), mine.tool_call("inner"):
        pass
    calls_by_name = calls(await load(store))
    assert calls_by_name["inner"].parent_tool_call_id == calls_by_name["outer"].tool_call_id
    assert calls(await store.load_run(AGENT, "other"))["of another run"].parent_tool_call_id == ""


def test_threads_that_share_a_recorder_have_separate_calls(sync_store: SyncStore) -> None:
    recorder = SyncRunRecorder(sync_store, AGENT, RUN)
    barrier = threading.Barrier(8)

    def child(number: int) -> None:
        with recorder.tool_call(f"child-{number}"):
            barrier.wait()
            with recorder.tool_call(f"grandchild-{number}") as call:
                call.result(number)

    with recorder.tool_call("root"), ThreadPoolExecutor(8) as pool:
        for waiting in [pool.submit(contextvars.copy_context().run, child, number) for number in range(8)]:
            waiting.result()
    snapshot = sync_store.load_run(AGENT, RUN)
    calls_by_name = calls(snapshot)
    for number in range(8):
        assert calls_by_name[f"child-{number}"].parent_tool_call_id == calls_by_name["root"].tool_call_id
        assert (
            calls_by_name[f"grandchild-{number}"].parent_tool_call_id == calls_by_name[f"child-{number}"].tool_call_id
        )
    assert list(snapshot.events) == list(snapshot.log)
    _check_calls_and_results(snapshot)


def test_generator_closed_in_another_context_keeps_parents_right(sync_store: SyncStore) -> None:
    recorder = SyncRunRecorder(sync_store, AGENT, RUN)

    def tool() -> Generator[None]:
        with recorder.tool_call("generator"):
            yield

    unfinished = tool()
    contextvars.copy_context().run(next, unfinished)
    with recorder.tool_call("other"):
        unfinished.close()
        with recorder.tool_call("inner"):
            pass
    calls_by_name = calls(sync_store.load_run(AGENT, RUN))
    assert calls_by_name["inner"].parent_tool_call_id == calls_by_name["other"].tool_call_id
    assert "interrupted: GeneratorExit" in {result.error_message for result in results(sync_store.load_run(AGENT, RUN))}


def test_generator_closed_during_an_append_ends_its_call(sync_store: SyncStore) -> None:
    class Collecting:
        """A store whose next append closes a generator, as a garbage collection could."""

        left: Generator[None] | None = None

        def append_events(self, *arguments: Any, **options: Any) -> Any:
            left, self.left = self.left, None
            if left is not None:
                left.close()
            return sync_store.append_events(*arguments, **options)

    store: Any = Collecting()
    recorder = SyncRunRecorder(store, AGENT, RUN)

    def tool() -> Generator[None]:
        with recorder.tool_call("generator"):
            yield

    def use() -> None:
        left = tool()
        next(left)
        store.left = left
        recorder.note("later")

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    kinds = [event.type for event in sync_store.load_run(AGENT, RUN).log]
    assert kinds == ["tool_call", "tool_result", "planner_note"]


async def test_timestamps_never_decrease_when_the_clock_is_set_back(store: Store) -> None:
    recorder = RunRecorder(store, AGENT, RUN)
    ahead = datetime.now(UTC) + timedelta(hours=1)
    recorder._operations._latest = ahead
    assert (await recorder.note("one")).timestamp == ahead
    assert (await recorder.note("two")).timestamp == ahead


class Tree(NamedTuple):
    """A tool that waits, calls other tools in parallel, and has the outcome ``ends``."""

    waits: int
    inside: tuple[Tree, ...]
    ends: str


def trees() -> st.SearchStrategy[Tree]:
    ends = st.sampled_from(["result", "nothing", "error", "fail", "cancel"])
    leaves = st.builds(Tree, st.integers(0, 3), st.just(()), ends)
    return st.recursive(
        leaves,
        lambda inner: st.builds(Tree, st.integers(0, 3), st.lists(inner, max_size=3).map(tuple), ends),
        max_leaves=8,
    )


def _check_calls_and_results(snapshot: Snapshot) -> None:
    """Assert that each call has one later result with the same parent, and that parents come before nested calls."""
    reader = Reader(snapshot)
    call_ids: set[str] = set()
    for event in snapshot.log:
        if isinstance(event.data, ToolCall):
            assert event.data.parent_tool_call_id in call_ids | {""}
            call_ids.add(event.data.tool_call_id)
            result_event = reader.result_for(event)
            assert result_event is not None
            result = decode_event(result_event, ToolResult)
            assert result_event.seq > event.seq
            assert (result.tool_name, result.parent_tool_call_id) == (
                event.data.tool_name,
                event.data.parent_tool_call_id,
            )
    assert len(reader.tool_calls()) == len(results(snapshot))
    assert not reader.open_tool_calls()


@given(st.lists(trees(), min_size=1, max_size=3))
@settings(max_examples=2 * EXAMPLES)
def test_any_interleaving_of_parallel_tools_gives_a_valid_log(forest: list[Tree]) -> None:
    parents: dict[str, str] = {}

    async def tool(recorder: RunRecorder, tree: Tree, name: str, outer: str) -> None:
        parents[name] = outer
        async with recorder.tool_call(name) as call:
            for _ in range(tree.waits):
                await asyncio.sleep(0)
            await asyncio.gather(
                *(tool(recorder, inner, f"{name}.{index}", name) for index, inner in enumerate(tree.inside)),
                return_exceptions=True,
            )
            if tree.ends == "result":
                call.result(name)
            elif tree.ends == "fail":
                call.fail(name)
            elif tree.ends == "error":
                raise ValueError(name)
            elif tree.ends == "cancel":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

    async def main() -> Snapshot:
        async with open_store("memory:") as store:
            delayed: Any = DelayingStore(store)
            async with RunRecorder(delayed, AGENT, RUN) as recorder:
                await asyncio.gather(
                    *(tool(recorder, tree, str(index), "") for index, tree in enumerate(forest)),
                    return_exceptions=True,
                )
            return await load(store)

    snapshot = asyncio.run(main())
    _check_calls_and_results(snapshot)
    calls_by_name = calls(snapshot)
    assert {name: data.parent_tool_call_id for name, data in calls_by_name.items()} == {
        name: calls_by_name[outer].tool_call_id if outer else "" for name, outer in parents.items()
    }


# Steps with a key.


async def test_repeated_steps_append_nothing(store: Store) -> None:
    ran: list[str] = []

    async def run() -> None:
        async with RunRecorder(store, AGENT, RUN) as recorder:
            await recorder.user("Where is my order?", key="ask")
            async with recorder.tool_call("orders.find", {"id": 7}, key="find") as call:
                async with recorder.tool_call("db.query", key="query") as inner:
                    if inner.recorded is None:
                        ran.append("db.query")
                        inner.result([1])
                if call.recorded is None:
                    ran.append("orders.find")
                    call.result({"state": "sent"})
                else:
                    assert call.recorded.result() == {"state": "sent"}
                    call.result("another result, which is ignored")
            with pytest.raises(ValueError, match="late"):
                async with recorder.tool_call("orders.cancel", key="cancel") as call:
                    raise ValueError("late")
            await recorder.assistant("Sent.", key="ask")

    await run()
    first = await load(store)
    await run()
    assert await load(store) == first
    assert ran == ["db.query", "orders.find"]


async def test_other_content_under_a_used_key_is_a_conflict(store: Store) -> None:
    recorder = RunRecorder(store, AGENT, RUN)
    await recorder.user("one", key="k")
    await recorder.note("one", key="k")
    with pytest.raises(EventConflict, match=r"^the step 'k' is recorded at seq 1 with other content") as caught:
        await recorder.user("two", key="k")
    assert caught.value.seq == 1
    async with recorder.tool_call("a", {"id": 1}, key="k"):
        pass
    with pytest.raises(EventConflict, match=r"^the step 'k' is recorded at seq 3"):
        await recorder.tool_call("a", {"id": 2}, key="k").__aenter__()
    other = RunRecorder(store, AGENT, "another run")
    await other.user("two", key="k")
    for invalid in ("", 7):
        with pytest.raises(InvalidArgument, match="key"):
            await recorder.note("x", key=invalid)  # type: ignore[arg-type]  # the invalid argument under test


async def test_same_characters_in_different_ids_give_different_event_ids(store: Store) -> None:
    first_recorder, second_recorder = RunRecorder(store, "a", "bc"), RunRecorder(store, "a", "b")
    first = await first_recorder.note("x", key="d")
    second = await second_recorder.note("x", key="cd")
    assert first.event_id != second.event_id


async def test_open_call_is_resumed_by_its_key_or_its_id(store: Store) -> None:
    recorder = RunRecorder(store, AGENT, RUN)
    open_call = await recorder.tool_call("a", {"id": 1}, key="k").__aenter__()
    await recorder.tool_call("orders.find", '{"id": 7}', tool_call_id="tc-1").__aenter__()
    await recorder.tool_call("orders.find", '{"id": 8}', tool_call_id="tc-2").__aenter__()
    (first, second, third) = (await load(store)).log

    resumed = RunRecorder(store, AGENT, RUN)
    async with resumed.tool_call("a", {"id": 1}, key="k") as call:
        assert call.tool_call_id == open_call.tool_call_id
        assert (call.event.seq, call.recorded) == (first.seq, None)
        call.result("again")
    async with resumed.tool_call("orders.find", {"id": 7}, tool_call_id="tc-1") as call:
        assert call.event.seq == second.seq
    async with resumed.tool_call(third) as call:
        assert (call.tool_name, call.recorded) == ("orders.find", None)
    async with resumed.tool_call(third) as call:
        assert call.recorded is not None
    # With other arguments, or after the result, a call with the same id is a new call.
    for number in (9, 7):
        async with resumed.tool_call("orders.find", {"id": number}, tool_call_id="tc-1") as call:
            assert call.recorded is None
    snapshot = await load(store)
    assert len(snapshot.log) == 10
    _check_calls_and_results(snapshot)
    with pytest.raises(InvalidArgument, match="not a recorded tool_call"):
        resumed.tool_call(Event("user_message", first.timestamp, UserMessage("x"), {}, "e", 1))


@pytest.mark.parametrize(
    ("open_call", "arguments", "is_same"),
    [
        ('{"x": 1.5}', '{"x":1.50}', True),
        ('{"b": 1, "a": 2}', {"a": 2, "b": 1}, True),
        ('{"x": 1.5}', '{"x":"1.5"}', False),
        ('{"x": 1e400}', '{"x":"1E+400"}', False),
        ('{"x": 1}', {"x": 1.0}, False),
        ('{"x": 1}', {"x": True}, False),
        ("{broken", "{broken", True),
        ("{broken", {}, False),
    ],
)
def test_open_call_is_resumed_only_for_equal_arguments(
    sync_store: SyncStore, open_call: str, arguments: str | dict[str, float], is_same: bool
) -> None:
    SyncRunRecorder(sync_store, AGENT, RUN).tool_call("f", open_call, tool_call_id="tc-1").__enter__()
    with SyncRunRecorder(sync_store, AGENT, RUN).tool_call("f", arguments, tool_call_id="tc-1") as call:
        assert (call.event.seq == 1) is is_same


async def test_call_made_twice_at_once_keeps_the_first_result(store: Store) -> None:
    first, second = RunRecorder(store, AGENT, RUN), RunRecorder(store, AGENT, RUN)
    async with first.tool_call("f", key="k") as first_call:
        async with second.tool_call("f", key="k") as call:
            assert (call.recorded, first_call.recorded) == (None, None)
            call.result("first")
        first_call.result("second")
    snapshot = await load(store)
    assert [result.result_json for result in results(snapshot)] == ["first"]
    assert snapshot.version == 2


async def test_result_appended_without_the_recorder_is_returned(store: Store) -> None:
    async with RunRecorder(store, AGENT, RUN) as recorder:
        call_event = await recorder.record(ToolCall("tc-1", "a"))
        await recorder.record(ToolResult("tc-1", "a", result_json="1"))
        async with recorder.tool_call(call_event) as call:
            assert call.recorded == ToolResult("tc-1", "a", result_json="1")
    assert (await load(store)).version == 2


async def test_erased_result_is_not_recorded_again(store: Store) -> None:
    async with RunRecorder(store, AGENT, RUN) as recorder:
        await recorder.user("secret", key="ask")
        async with recorder.tool_call("a", key="k") as call:
            call.result("secret")
    await store.redact_events(AGENT, RUN, [1, 2, 3])
    async with RunRecorder(store, AGENT, RUN) as recorder:
        await recorder.user("another text", key="ask")
        async with recorder.tool_call("a", key="k") as call:
            assert call.recorded is not None
            assert call.recorded.error_message == "the recorded result was erased"
    assert (await load(store)).version == 4


async def test_deleted_run_records_its_steps_again(store: Store) -> None:
    async with RunRecorder(store, AGENT, RUN) as recorder:
        async with recorder.tool_call("a", key="k") as call:
            call.result(1)
        await store.delete_run(AGENT, RUN)
        async with recorder.tool_call("a", key="k") as call:
            assert call.recorded is None
            call.result(2)
    assert [result.result_json for result in results(await load(store))] == ["2"]


def test_both_recorders_write_the_same_ids() -> None:
    async def recorded() -> list[str]:
        async with open_store("memory:") as store, RunRecorder(store, AGENT, RUN) as recorder:
            async with recorder.tool_call("a", key="k"):
                await recorder.note("n", key="k")
            return [event.event_id for event in (await load(store)).log]

    with open_sync_store("memory:") as store, SyncRunRecorder(store, AGENT, RUN) as recorder:
        with recorder.tool_call("a", key="k"):
            recorder.note("n", key="k")
        assert [event.event_id for event in store.load_run(AGENT, RUN).log] == asyncio.run(recorded())


# Requests.


async def test_request_is_recorded_only_when_it_changes(store: Store) -> None:
    tools: Any = [{"name": "orders--find", "input_schema": {"type": "object"}}]
    async with RunRecorder(store, AGENT, RUN) as recorder:
        first = await recorder.request("anthropic", "claude", system="Be kind.", tools=tools)
        assert first is not None
        assert await recorder.request("anthropic", "claude", system="Be kind.", tools=[dict(tools[0])]) is None
    async with RunRecorder(store, AGENT, RUN) as recorder:
        assert await recorder.request("anthropic", "claude", system="Be kind.", tools=tools, parameters={}) is None
        changes: list[Callable[[], Any]] = [
            lambda: recorder.request("anthropic", "other", system="Be kind.", tools=tools),
            lambda: recorder.request("anthropic", "other", system="Be quick.", tools=tools),
            lambda: recorder.request("anthropic", "other", system="Be quick."),
            lambda: recorder.request("anthropic", "other", system="Be quick.", parameters={"top_k": 1}),
            lambda: recorder.request("anthropic", "other", system="Be quick.", parameters={"top_k": 1.0}),
            lambda: recorder.request("openai-chat", "other", system="Be quick.", parameters={"top_k": 1.0}),
        ]
        for change in changes:
            assert await change() is not None
            assert await change() is None
        with pytest.raises(InvalidArgument, match="unknown provider"):
            await recorder.request("nobody", "m")
    assert (await load(store)).version == 7
