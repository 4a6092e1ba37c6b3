"""Makes the events that the benchmarks store. They repeat the five events of one turn of an agent.

- user message: 120 characters
- thinking: 600 characters, and a signature of 80
- tool call: 200 bytes
- tool result: 1 KB of JSON
- assistant message: 300 characters

On average, an event has about 470 bytes of content.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

from agent_memory_log import (
    AssistantMessage,
    Event,
    EventData,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
)

_PROSE = "The parcel left the warehouse on Tuesday and the carrier says that it will arrive before the weekend. "
_ROWS = [
    {"sku": f"AB-{n:05}", "title": "Enamel mug, 350 ml, sea green", "quantity": n, "price": 12.5} for n in range(12)
]


def _text(length: int) -> str:
    return (_PROSE * (length // len(_PROSE) + 1))[:length]


def _json(length: int) -> str:
    """Return JSON text of about ``length`` bytes that looks like the result of a tool."""
    rows = list(_ROWS)
    while len(json.dumps({"rows": rows})) > length - 30:
        rows.pop()
    text = json.dumps({"rows": rows, "note": ""})
    return text[:-2] + _text(length - len(text)) + '"}'


def payloads() -> tuple[EventData, ...]:
    """Return the payloads of one turn."""
    return (
        UserMessage(message=_text(120)),
        Thinking(text=_text(600), signature="s" * 80, final=True),
        ToolCall("call_7Wf3", "orders.find", payload_json=json.dumps({"query": _text(185)})),
        ToolResult("call_7Wf3", "orders.find", result_json=_json(1024), duration_ns=182_000_000),
        AssistantMessage(message=_text(300)),
    )


def events(count: int) -> list[Event]:
    """Return ``count`` events of the workload, ready for an append."""
    cycle = itertools.cycle(payloads())
    return [new_event(next(cycle)) for _ in range(count)]


def chunks(items: list[Event], size: int) -> Iterator[list[Event]]:
    """Yield ``items`` in lists of ``size``. The last list may be shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
