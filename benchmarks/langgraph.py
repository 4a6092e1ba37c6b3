"""The rows and numbers of the LangGraph checkpointer, beside LangGraph's own class for SQLite.

Both run the same graph: a question, a tool call, its result and an answer for each turn. The texts are random words.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]  # it has types

from agent_memory_log.integrations.langgraph import MemoryLogSaver
from benchmarks.measure import Progress, Ratio, compare, timed
from benchmarks.scratch import scratch
from benchmarks.table import Figure, Row

_CONFIG: RunnableConfig = {"configurable": {"thread_id": "kim"}}
_TURNS = 80
_WORDS = 60
_LOADS = 20
_PUTS = 50
_SAVER = "SqliteSaver"

Open = Callable[[Path], AbstractContextManager[BaseCheckpointSaver[Any]]]


def rows(disk: Path) -> list[Row]:
    """Return every comparison."""
    return [
        Row("LangGraph, 20 turns, on disk", _SAVER, 2, lambda n, p: _turns(disk, n, p)),
        Row(f"LangGraph, load after {_TURNS} turns", _SAVER, None, lambda n, p: _loads(disk, n, p)),
    ]


def figures(disk: Path) -> list[Figure]:
    """Return every plain number."""
    return [
        Figure(f"LangGraph, bytes on disk, {_TURNS} turns", f"of {_SAVER}'s", 0.1, lambda: _bytes(disk)),
        Figure("LangGraph, 2 processes on a thread", "writes lost", 0, lambda: _lost(disk)),
    ]


def _log_saver(folder: Path) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    return MemoryLogSaver(f"sqlite:///{folder / 'log.db'}")


def _sqlite_saver(folder: Path) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415  # it may not be installed

    return SqliteSaver.from_conn_string(str(folder / "sqlite.db"))


def _graph(saver: BaseCheckpointSaver[Any]) -> Any:  # noqa: ANN401  # LangGraph's class has no whole type
    words = random.Random(1)  # noqa: S311  # the same texts for both

    def text() -> str:
        return " ".join(f"{words.getrandbits(32):x}" for _ in range(_WORDS))

    def model(state: MessagesState) -> dict[str, list[BaseMessage]]:
        if isinstance(state["messages"][-1], ToolMessage):
            return {"messages": [AIMessage(text())]}
        return {"messages": [AIMessage("", tool_calls=[{"name": "search", "args": {"text": text()}, "id": "call"}])]}

    def tool(_: MessagesState) -> dict[str, list[BaseMessage]]:
        return {"messages": [ToolMessage(text(), tool_call_id="call", name="search")]}

    def next_node(state: MessagesState) -> str:
        last = state["messages"][-1]
        return "tool" if isinstance(last, AIMessage) and last.tool_calls else END

    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", next_node)
    builder.add_edge("tool", "model")
    return builder.compile(checkpointer=saver)


def _run(saver: BaseCheckpointSaver[Any], turns: int) -> None:
    graph = _graph(saver)
    for number in range(turns):
        graph.invoke({"messages": [HumanMessage(f"question {number}")]}, _CONFIG)


def _turns(disk: Path, rounds: int, progress: Progress) -> Ratio | str:
    if find_spec("langgraph.checkpoint.sqlite") is None:
        return "langgraph-checkpoint-sqlite is not installed"

    def side(open_saver: Open) -> float:
        with scratch(disk) as folder, open_saver(folder) as saver:
            return timed(lambda: _run(saver, 20), 20)

    return compare(lambda: side(_log_saver), lambda: side(_sqlite_saver), rounds, progress)


def _loads(disk: Path, rounds: int, progress: Progress) -> Ratio | str:
    if find_spec("langgraph.checkpoint.sqlite") is None:
        return "langgraph-checkpoint-sqlite is not installed"
    with scratch(disk) as folder, _log_saver(folder) as log_saver, _sqlite_saver(folder) as sqlite_saver:
        _run(log_saver, _TURNS)
        _run(sqlite_saver, _TURNS)

        def side(saver: BaseCheckpointSaver[Any]) -> float:
            return timed(lambda: [saver.get_tuple(_CONFIG) for _ in range(_LOADS)], _LOADS)

        return compare(lambda: side(log_saver), lambda: side(sqlite_saver), rounds, progress)


def _bytes(disk: Path) -> float | None:
    if find_spec("langgraph.checkpoint.sqlite") is None:
        return None
    with scratch(disk) as folder:
        for open_saver in (_log_saver, _sqlite_saver):
            with open_saver(folder) as saver:
                _run(saver, _TURNS)
        sizes = {name: sum(file.stat().st_size for file in folder.glob(f"{name}.db*")) for name in ("log", "sqlite")}
        return sizes["log"] / sizes["sqlite"]


def _put(folder: Path, name: str) -> None:
    with _log_saver(folder) as saver:
        for number in range(_PUTS):
            checkpoint = {**empty_checkpoint(), "id": f"{name}-{number}"}
            place: RunnableConfig = {"configurable": {"thread_id": "kim", "checkpoint_ns": ""}}
            saver.put_writes(saver.put(place, checkpoint, {}, {}), [("text", name)], "task")  # type: ignore[arg-type]  # a TypedDict


def _lost(disk: Path) -> float:
    with scratch(disk) as folder:
        spawn = multiprocessing.get_context("spawn")
        processes = [spawn.Process(target=_put, args=(folder, name)) for name in "ab"]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        with _log_saver(folder) as saver:
            stored = [item for item in saver.list(_CONFIG) if item.pending_writes]
        return len(processes) * _PUTS - len(stored)
