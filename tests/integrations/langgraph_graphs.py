"""Graphs of LangGraph for tests: with messages and a tool, with a tool alone, and with a delta channel."""

# LangGraph's py.typed is one folder above its packages, where basedpyright does not look.
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Annotated, Any, TypedDict, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from agent_memory_log.integrations.langgraph import MemoryLogSaver


def agent(state: MessagesState) -> dict[str, list[BaseMessage]]:
    """Call the tool once for each question, and then answer."""
    last = state["messages"][-1]
    if isinstance(last, HumanMessage):
        call = {"name": "weather", "args": {"city": last.content}, "id": f"call-{len(state['messages'])}"}
        return {"messages": [AIMessage("", tool_calls=[call], usage_metadata=None)]}
    return {"messages": [AIMessage(f"It is {last.text}.")]}


def weather(state: MessagesState) -> dict[str, list[BaseMessage]]:
    call = cast("AIMessage", state["messages"][-1]).tool_calls[0]
    return {"messages": [ToolMessage("sunny", tool_call_id=call["id"], name="weather")]}


def route(state: MessagesState) -> str:
    return "weather" if cast("AIMessage", state["messages"][-1]).tool_calls else END


def weather_graph(saver: MemoryLogSaver) -> Any:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("weather", weather)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", route)
    builder.add_edge("weather", "agent")
    return builder.compile(checkpointer=saver)


def tool_graph(saver: MemoryLogSaver, tool: BaseTool) -> Any:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([tool]))
    builder.add_edge(START, "tools")
    return builder.compile(checkpointer=saver)


def joined(items: list[str], updates: Sequence[list[str]]) -> list[str]:
    return [*items, *chain.from_iterable(updates)]


class Items(TypedDict):
    items: Annotated[list[str], DeltaChannel(joined)]


def add(state: Items) -> Items:
    return {"items": [f"answer {len(state['items'])}"]}


def delta_graph(saver: MemoryLogSaver) -> Any:
    builder: Any = StateGraph(Items)
    builder.add_node("add", add)
    builder.add_edge(START, "add")
    builder.add_edge("add", END)
    return builder.compile(checkpointer=saver)
