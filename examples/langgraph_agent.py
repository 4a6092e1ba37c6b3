"""A LangGraph agent whose runs are in a log: ``python examples/langgraph_agent.py [runs.db]``.

The agent asks before it sends mail. This program stops there, as a process could die, and continues with another graph
on the same file. Then it reads the thread as typed events, as a transcript, and for memories. The model is
scripted, so the program needs no key, only ``agent-memory-log[langgraph]``.
"""

# ruff: noqa: INP001, T201  # a program for a terminal, in a folder of programs

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]  # it has types
from langgraph.types import Command, interrupt  # pyright: ignore[reportMissingTypeStubs]  # it has types

from agent_memory_log import ToolCall, ToolResult
from agent_memory_log.integrations.langgraph import MemoryLogSaver, MemoryLogStore
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.transcript import build

THREAD: RunnableConfig = {"configurable": {"thread_id": "kim"}}
AGENT, RUN = "langgraph/kim", "checkpoints"
QUESTION = "I prefer short answers. Please mail the report to Ann."


def model(state: MessagesState) -> dict[str, list[BaseMessage]]:
    """Answer as a model would: first with a call of the tool, then with a text."""
    if isinstance(state["messages"][-1], ToolMessage):
        return {"messages": [AIMessage("Done: Ann has the report.")]}
    call = {"name": "send_mail", "args": {"to": "ann@example.org", "subject": "Report"}, "id": "call-1"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def send_mail(_: MessagesState) -> dict[str, list[BaseMessage]]:
    """Ask for approval, and answer the call."""
    answer = interrupt("Send the mail?")
    return {"messages": [ToolMessage(f"approved: {answer}, sent", tool_call_id="call-1", name="send_mail")]}


def next_node(state: MessagesState) -> str:
    """Return the node after the model's answer."""
    last = state["messages"][-1]
    return "send_mail" if isinstance(last, AIMessage) and last.tool_calls else END


def graph(saver: MemoryLogSaver, store: MemoryLogStore) -> Any:  # noqa: ANN401  # LangGraph's class has no whole type
    """Return the agent. These two arguments are all that an existing graph needs."""
    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("send_mail", send_mail)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", next_node)
    builder.add_edge("send_mail", "model")
    return builder.compile(checkpointer=saver, store=store)


def main(path: Path) -> None:
    """Run the agent, stop it, continue it, and show what the log holds."""
    url = f"sqlite:///{path}"
    with MemoryLogSaver(url) as saver, MemoryLogStore(url) as store:
        state = graph(saver, store).invoke({"messages": [HumanMessage(QUESTION)]}, THREAD)
        print("the agent waits:", state["__interrupt__"][0].value)

    with MemoryLogSaver(url) as saver, MemoryLogStore(url) as store:
        state = graph(saver, store).invoke(Command(resume="yes"), THREAD)
        print("the agent answers:", state["messages"][-1].text)

        run = saver.store.load_run(AGENT, RUN)
        print("typed events:", [event.type for event in run.log if isinstance(event.data, ToolCall | ToolResult)])
        print("transcript:", [message["role"] for message in build(run, "anthropic")])
        me = SyncMemoryClient(saver.store).of(Principal("acme", {"user": "kim"}))
        me.derive(AGENT, RUN, extractor=RuleExtractor())
        print("memories:", [f"{record.key}: {record.text}" for record in me.list()])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "runs.db")
