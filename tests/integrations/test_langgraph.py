"""Tests of MemoryLogSaver: the promises that LangGraph's own tests do not check."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import string
from collections.abc import Callable, Iterable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import INTERRUPT
from msgspec.structs import replace

from agent_memory_log import (
    AssistantMessage,
    Redacted,
    SyncStore,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_sync_store,
)
from agent_memory_log.capabilities import Compacts
from agent_memory_log.errors import InvalidArgument, StoreClosed, StoreCorrupt
from agent_memory_log.integrations.langgraph import MemoryLogSaver, memory_tool
from agent_memory_log.integrations.langgraph.payloads import Ref, StateCheckpoint
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.transcript import build
from tests.integrations.langgraph_graphs import delta_graph, tool_graph, weather_graph

RUN = ("langgraph/1", "checkpoints")
CONFIG: RunnableConfig = {"configurable": {"thread_id": "1"}}


# Random text does not become small when it is compressed, so these values get events of their own.
LONG, OTHER = ([random.Random(seed).randbytes(1000).hex()] for seed in (1, 2))


def ask(graph: Any, text: str, config: RunnableConfig = CONFIG) -> list[BaseMessage]:
    return cast("list[BaseMessage]", graph.invoke({"messages": [HumanMessage(text)]}, config)["messages"])


def checkpoint(checkpoint_id: str, /, **values: object) -> Checkpoint:
    return {
        **empty_checkpoint(),
        "id": checkpoint_id,
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, 1),
    }


def config(thread: object, namespace: str = "", checkpoint_id: str | None = None) -> RunnableConfig:
    place = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": place if checkpoint_id is None else {**place, "checkpoint_id": checkpoint_id}}


def values_at(saver: MemoryLogSaver, place: RunnableConfig) -> dict[str, Any]:
    stored = saver.get_tuple(place)
    assert stored is not None
    return stored.checkpoint["channel_values"]


def ids_of(checkpoints: Iterable[CheckpointTuple]) -> list[str]:
    return [item.checkpoint["id"] for item in checkpoints]


def test_messages_are_typed_events_of_the_run(url: str) -> None:
    with MemoryLogSaver(url) as saver:
        graph = weather_graph(saver)
        ask(graph, "Paris")
        messages = ask(graph, "Lima")
        log = saver.store.load_run(*RUN).log
        payloads = [event.data for event in log if event.event_id.startswith("m:")]
        assert [type(payload) for payload in payloads] == [UserMessage, ToolCall, ToolResult, AssistantMessage] * 2
        assert [payload.message for payload in payloads if isinstance(payload, UserMessage)] == ["Paris", "Lima"]
        transcript = build(saver.store.load_run(*RUN), "openai-chat")
        assert [message["role"] for message in transcript] == ["user", "assistant", "tool", "assistant"] * 2
        assert transcript[3]["content"] == "It is sunny."
        assert saver.get_tuple(CONFIG) is not None
        assert values_at(saver, CONFIG)["messages"] == messages


MESSAGES: list[BaseMessage] = [
    HumanMessage("hello", name="Ann", additional_kwargs={"a": [1]}),
    HumanMessage(
        [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "https://a.example/b"}}]
    ),
    AIMessage("", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    AIMessage([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "done"}]),
    AIMessage(
        "both", tool_calls=[{"name": "a", "args": {"x": "\x00"}, "id": "1"}, {"name": "b", "args": {}, "id": "2"}]
    ),
    AIMessage("", invalid_tool_calls=[{"name": "a", "args": "{", "id": "1", "error": "no JSON"}]),
    ToolMessage("broken", tool_call_id="1", status="error", artifact={"rows": 3}),
    ToolMessage([{"type": "text", "text": "part"}], tool_call_id="2"),
    SystemMessage("\U0001f600 be brief"),
    RemoveMessage("7"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: f"{message.type}-{str(message.content)[:8]}")
@pytest.mark.parametrize("message_id", [None, "7"])
def test_messages_come_back_unchanged(url: str, message: BaseMessage, message_id: str | None) -> None:
    message = message.model_copy(update={"id": message_id or message.id})
    value = {"one": message, "many": [message, message], "in": {"messages": [message], "other": [1, message]}}
    with MemoryLogSaver(url) as saver:
        stored = saver.put(config("1"), checkpoint("1", **value), {}, dict.fromkeys(value, 1))
        saver.put_writes(stored, [("one", message), ("many", [message])], "task")
        latest = saver.get_tuple(stored)
        assert latest is not None
        assert latest.checkpoint["channel_values"] == value
        assert [write[2] for write in latest.pending_writes or ()] == [message, [message]]


async def test_an_agent_looks_into_memory(url: str) -> None:
    with MemoryLogSaver(url) as saver:
        memory = SyncMemoryClient(saver.store).of(Principal(tenant="acme", scopes={"user": "kim"}))
        memory.remember(key="units", value="metric")
        graph = tool_graph(saver, memory_tool(memory))
        call = AIMessage("", tool_calls=[{"name": "search_memory", "args": {"query": "units"}, "id": "c1"}])
        for thread in ("sync", "async"):
            state = {"messages": [call]}
            place = config(thread)
            result = graph.invoke(state, place) if thread == "sync" else await graph.ainvoke(state, place)
            assert "metric" in result["messages"][-1].text
            log = saver.store.load_run(f"langgraph/{thread}", "checkpoints", types=["tool_call", "tool_result"]).log
            assert [event.data.tool_name for event in log] == ["search_memory", "search_memory"]  # type: ignore[attr-defined]  # both have it


def test_an_error_of_a_tool_is_an_error_of_the_result(url: str) -> None:
    with MemoryLogSaver(url) as saver:
        message = ToolMessage("no such city", tool_call_id="1", name="weather", status="error", id="m")
        saver.put(config("1"), checkpoint("1", messages=[message]), {}, {"messages": 1})
        (result,) = (event.data for event in saver.store.load_run(*RUN, types=["tool_result"]).log)
        assert result == ToolResult(
            "1", "weather", error_message="no such city", structured=cast("ToolResult", result).structured
        )


def test_a_redacted_message_leaves_the_state(url: str) -> None:
    with MemoryLogSaver(url) as saver:
        graph = weather_graph(saver)
        ask(graph, "my card is 4111")
        ask(graph, "Lima")
        (seq,) = (
            event.seq for event in saver.store.load_run(*RUN, types=["user_message"]).log if "4111" in str(event.data)
        )
        saver.store.redact_events(*RUN, [seq], reason="private")
        messages = values_at(saver, CONFIG)["messages"]
        assert "4111" not in str([message for message in messages if isinstance(message, HumanMessage)])
        assert [message.type for message in messages] == ["ai", "tool", "ai", "human", "ai", "tool", "ai"]
        ask(graph, "Rome")
        assert "my card" not in str([event.data for event in saver.store.load_run(*RUN, types=["user_message"]).log])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=20,
)


LONG_LISTS = st.integers(1, 90).map(lambda length: [f"{number} is long " * 5 for number in range(length)])


@given(st.dictionaries(st.text(min_size=1), JSON | LONG_LISTS))
def test_every_value_comes_back_with_its_type(values: dict[str, Any]) -> None:
    serde = JsonPlusSerializer()
    with MemoryLogSaver("memory:") as saver:
        stored = saver.put(config("1"), checkpoint("1", **values), {}, dict.fromkeys(values, 1))
        expected = {name: serde.loads_typed(serde.dumps_typed(value)) for name, value in values.items()}
        assert repr(values_at(saver, stored)) == repr(expected)


THREADS = st.text(min_size=1, max_size=3) | st.sampled_from(["a/b", "a%2Fb", "@a", "x" * 600, "x" * 601, "", "a|b:c"])


@given(st.sets(st.tuples(THREADS, THREADS), min_size=2, max_size=5))
def test_threads_and_namespaces_never_meet(places: set[tuple[str, str]]) -> None:
    with MemoryLogSaver("memory:") as saver:
        for number, (thread, namespace) in enumerate(places):
            saver.put(config(thread, namespace), checkpoint("1", number=number), {}, {"number": 1})
        for number, (thread, namespace) in enumerate(places):
            assert values_at(saver, config(thread, namespace)) == {"number": number}
            assert values_at(saver, config(thread, namespace, "1")) == {"number": number}
        listed = {tuple(item.config.get("configurable", {}).values())[:2] for item in saver.list(None)}
        assert listed == places


def test_a_long_conversation_costs_little(tmp_path: Path) -> None:
    """A list is stored in parts, so that the cost of a message does not grow with the list."""
    text = random.Random(1)
    with MemoryLogSaver(f"sqlite:///{tmp_path}/runs.db?durability=os") as saver:
        graph = weather_graph(saver)
        sizes: list[int] = []
        for _ in range(60):
            ask(graph, "".join(text.choices(string.ascii_letters, k=300)))
            sizes.append(sum(len(str(event.data.to_map())) for event in saver.store.load_run(*RUN).log))
    assert sizes[-1] - sizes[-2] < 2 * (sizes[10] - sizes[9])


@pytest.mark.parametrize("again", [False, True])
def test_pruning_keeps_the_state_of_delta_channels(url: str, again: bool) -> None:
    with MemoryLogSaver(url) as saver:
        graph = delta_graph(saver)
        expected: dict[str, list[str]] = {}
        for number in range(5):
            expected = graph.invoke({"items": [f"question {number}"]}, CONFIG)
        for _ in range(1 + again):
            saver.prune(["1"])
        assert len(list(saver.list(CONFIG))) == 1
        assert graph.get_state(CONFIG).values == expected
        expected = {"items": [*expected["items"], "more", f"answer {len(expected['items']) + 1}"]}
        assert graph.invoke({"items": ["more"]}, CONFIG) == expected
        saver.prune(["1"])
        assert graph.get_state(CONFIG).values == expected


def test_pruning_keeps_messages_and_gives_the_space_back(tmp_path: Path) -> None:
    with open_sync_store(f"sqlite:///{tmp_path}/runs.db") as store:
        saver = MemoryLogSaver(store)
        for number in range(30):
            noise = random.Random(number)
            values = {"messages": [HumanMessage(f"{number}", id=f"{number}")], "document": noise.randbytes(3000)}
            saver.put(config("1"), checkpoint(f"{number:02}", **values), {}, dict.fromkeys(values, 1))
        assert isinstance(store, Compacts)
        before = store.compact().after
        latest = values_at(saver, config("1"))
        saver.prune(["1"])
        assert len(store.load_run(*RUN, types=["user_message"]).log) == 30
        assert values_at(saver, config("1")) == latest
        assert ids_of(saver.list(config("1"))) == ["29"]
        assert before - store.compact().after > 28 * 3000


def test_deleting_a_graph_run_erases_its_messages(url: str) -> None:
    with MemoryLogSaver(url) as saver:
        for number in range(3):
            messages = [HumanMessage(f"secret {number}", id=str(number))]
            place = config("1", "", str(number - 1) if number else None)
            saver.put(place, checkpoint(str(number), messages=messages), {"run_id": str(number)}, {"messages": 1})
        saver.delete_for_runs(["0", "1"])
        assert ids_of(saver.list(config("1"))) == ["2"]
        assert "secret 0" not in str([event.data for event in saver.store.load_run(*RUN).log])
        assert values_at(saver, config("1")) == {"messages": [HumanMessage("secret 2", id="2")]}
        saver.delete_for_runs(["2"])
        assert len(saver.store.load_run(*RUN).log) == 0


def test_a_pruned_value_can_come_back(url: str) -> None:
    value = {"text": LONG}
    with MemoryLogSaver(url) as saver:
        saver.put(config("1"), checkpoint("1", **value), {}, {"text": 1})
        saver.put(config("1"), checkpoint("2", text=OTHER), {}, {"text": 1})
        saver.prune(["1"])
        stored = saver.put(config("1"), checkpoint("3", **value), {}, {"text": 1})
        assert values_at(saver, stored) == value
        with_another = MemoryLogSaver(saver.store)
        stored = with_another.put(config("1"), checkpoint("4", **value), {}, {"text": 1})
        assert values_at(with_another, stored) == value


class Meanwhile:
    """A store that calls a function once before a method, as another process could act then."""

    def __init__(self, store: SyncStore, method: str, act: Callable[[], object]) -> None:
        self._store = store
        self._method = method
        self._acts = [act]

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self._acts:
            self._acts.pop()()
        return getattr(self._store, name)


@pytest.mark.parametrize("method", ["append_events", "redact_events"])
def test_a_checkpoint_that_is_stored_during_a_pruning_keeps_its_values(url: str, method: str) -> None:
    value = {"text": LONG}
    with open_sync_store(url) as store:
        saver = MemoryLogSaver(store)
        saver.put(config("1"), checkpoint("1", **value), {}, {"text": 1})
        saver.put(config("1"), checkpoint("2", text=OTHER), {}, {"text": 1})

        def act() -> None:
            """Store the value again that the pruning is about to erase. This saver knows that the run has it."""
            saver.put(config("1"), checkpoint("3", **value), {}, {"text": 1})

        MemoryLogSaver(cast("SyncStore", Meanwhile(store, method, act))).prune(["1"])
        assert values_at(saver, config("1")) == value
        assert ids_of(MemoryLogSaver(store).list(config("1")))[0] == "3"


def test_a_thread_that_is_deleted_during_a_read_is_not_there(url: str) -> None:
    with open_sync_store(url) as store:
        saver = MemoryLogSaver(store)
        saver.put(config("1"), checkpoint("1", text=LONG), {}, {"text": 1})
        reads = 0

        class Deleting:
            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

            def find_events(self, *arguments: Any) -> Any:
                nonlocal reads
                reads += 1
                if reads == 2:  # after the checkpoint, before its values
                    saver.delete_thread("1")
                return store.find_events(*arguments)

        assert MemoryLogSaver(cast("SyncStore", Deleting())).get_tuple(config("1")) is None
        assert reads == 3


def test_a_missing_value_is_an_error(url: str) -> None:
    with open_sync_store(url) as store:
        saver = MemoryLogSaver(store)
        saver.put(config("1"), checkpoint("1", text=LONG), {}, {"text": 1})
        (broken,) = (event for event in store.load_run(*RUN).log if event.event_id == "c:1/0")
        assert isinstance(broken.data, StateCheckpoint)
        data = replace(broken.data, values={"text": Ref("v:nothing")})
        store.append_events(*RUN, new_event(data, event_id="c:1/1"))
        with pytest.raises(StoreCorrupt, match="langgraph/1/checkpoints has no value v:nothing"):
            saver.get_tuple(config("1"))


def test_the_first_result_of_a_task_counts_and_its_last_interrupt(url: str) -> None:
    with MemoryLogSaver(url) as saver:
        stored = saver.put(config("1"), checkpoint("1"), {}, {})
        for value in ("first", "second"):
            saver.put_writes(stored, [("channel", value)], "task", "path")
            saver.put_writes(stored, [(INTERRUPT, value)], "task", "path")
        latest = saver.get_tuple(stored)
        assert latest is not None
        assert latest.pending_writes == [("task", INTERRUPT, "second"), ("task", "channel", "first")]


def test_a_thread_that_was_deleted_elsewhere_begins_again(url: str) -> None:
    value = {"text": LONG}
    with open_sync_store(url) as store:
        saver = MemoryLogSaver(store)
        first = saver.put(config("1"), checkpoint("1", **value), {}, {"text": 1})
        MemoryLogSaver(store).delete_thread("1")
        saver.put(first, checkpoint("2", **value), {}, {})
        assert values_at(saver, config("1")) == value
        assert saver.get_tuple(first) is None


def test_savers_take_turns_at_a_checkpoint(url: str) -> None:
    with open_sync_store(url) as store:
        savers = [MemoryLogSaver(store), MemoryLogSaver(store)]
        stored = savers[0].put(config("1"), checkpoint("1"), {}, {})
        for number in range(6):
            savers[number % 2].put_writes(stored, [("channel", number)], f"{number}")
        latest = savers[0].get_tuple(stored)
        assert latest is not None
        assert [write[2] for write in latest.pending_writes or ()] == list(range(6))


def _turns(path: str, name: str, turns: int, everyone: Barrier) -> None:
    everyone.wait()
    with MemoryLogSaver(f"sqlite:///{path}") as saver:
        for number in range(turns):
            stored = saver.put(config("1"), checkpoint(f"{name}-{number}", name=[name] * 99, number=number), {}, {})
            saver.put_writes(stored, [("a", number)], f"task {name}")
            saver.put_writes(config("1", "", "shared"), [("b", f"{name} {number}")], f"{name} {number}")


def test_processes_lose_no_write(tmp_path: Path) -> None:
    path, turns = f"{tmp_path}/runs.db", 40
    spawn = multiprocessing.get_context("spawn")
    everyone = spawn.Barrier(3)
    processes = [spawn.Process(target=_turns, args=(path, name, turns, everyone)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    with MemoryLogSaver(f"sqlite:///{path}") as saver:
        stored = {item.checkpoint["id"]: item for item in saver.list(config("1"))}
        assert stored.keys() == {f"{name}-{number}" for name in "abc" for number in range(turns)}
        for checkpoint_id, item in stored.items():
            name, number = checkpoint_id.split("-")
            assert item.checkpoint["channel_values"] == {"name": [name] * 99, "number": int(number)}
            assert item.pending_writes == [(f"task {name}", "a", int(number))]
        saver.put(config("1"), checkpoint("shared"), {}, {})
        shared = saver.get_tuple(config("1", "", "shared"))
        assert shared is not None
        writes = {write[2] for write in shared.pending_writes or ()}
        assert writes == {f"{name} {number}" for name in "abc" for number in range(turns)}


async def test_many_event_loops_share_a_saver(url: str) -> None:
    with MemoryLogSaver(url) as saver:
        graph = weather_graph(saver)

        def run_loop(number: int) -> None:
            asyncio.run(graph.ainvoke({"messages": [HumanMessage("Lima")]}, config(f"{number}")))

        await asyncio.gather(*(asyncio.to_thread(run_loop, number) for number in range(8)))
        threads = {item.config.get("configurable", {})["thread_id"] for item in saver.list(None)}
        assert threads == {str(number) for number in range(8)}


def test_threads_that_arrive_backwards_have_the_same_latest_checkpoint(url: str) -> None:
    """A user who copies a thread from another saver gets the newest checkpoint first."""
    with MemoryLogSaver(url) as saver:
        for number in range(99, 0, -1):
            saver.put(config("1"), checkpoint(f"{number:02}", number=number), {}, {"number": 1})
        for reader in (saver, MemoryLogSaver(saver.store)):
            assert values_at(reader, config("1")) == {"number": 99}
            assert ids_of(reader.list(config("1"), limit=3)) == ["99", "98", "97"]
        before = config("1", "", "50")
        assert ids_of(saver.list(config("1"), before=before, limit=2)) == ["49", "48"]


def test_encrypted_values_are_nowhere_in_clear(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"1234567890123456")
    with MemoryLogSaver(f"sqlite:///{path}", serde=serde) as saver:
        messages = ask(weather_graph(saver), "Timbuktu")
        assert values_at(saver, CONFIG)["messages"] == messages
    assert not any(b"Timbuktu" in file.read_bytes() for file in tmp_path.iterdir())


def test_a_saver_of_another_class_of_versions_can_be_continued(url: str) -> None:
    with MemoryLogSaver(url) as saver:
        assert saver.get_next_version(None, None) == 1
        assert saver.get_next_version(1, None) == 2
        assert saver.get_next_version("00000009.0.5", None) == "00000010.0.5"


def test_bad_arguments(url: str) -> None:
    with (
        MemoryLogSaver(url) as saver,
        pytest.raises(InvalidArgument, match="keep_latest or delete, got str 'all'"),
    ):
        saver.prune(["1"], strategy="all")
    with pytest.raises(StoreClosed):
        saver.get_tuple(CONFIG)


def test_a_cold_read_costs_the_checkpoint_and_not_the_run() -> None:
    """A long thread is read from its end: the number of events that a read decodes stays the same."""

    class Counting:
        def __init__(self, store: SyncStore) -> None:
            self._store = store
            self.events = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def load_run(self, *arguments: Any, **options: Any) -> Any:
            snapshot = self._store.load_run(*arguments, **options)
            self.events += len(snapshot.log)
            return snapshot

        def find_events(self, *arguments: Any) -> Any:
            events = self._store.find_events(*arguments)
            self.events += sum(event is not None for event in events)
            return events

    with open_sync_store("memory:") as store:
        saver = MemoryLogSaver(store)
        counts: list[int] = []
        for number in range(200):
            saver.put(config("1"), checkpoint(f"{number:03}", number=number, text="long " * 200), {}, {"number": 1})
            counting = Counting(store)
            assert values_at(MemoryLogSaver(cast("SyncStore", counting)), config("1"))["number"] == number
            counts.append(counting.events)
        assert max(counts) == counts[10] == counts[-1]
        assert not any(isinstance(event.data, Redacted) for event in store.load_run(*RUN).log)
