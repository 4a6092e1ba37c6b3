"""Selects the events that a model still receives after a compaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from agent_memory_log.events.context_payloads import Compaction
from agent_memory_log.events.event import Event
from agent_memory_log.events.payloads import ModelRequest, SystemMessage
from agent_memory_log.transcript.json_types import is_list, is_map


def items_of(data: Compaction, provider: str) -> list[Mapping[str, object]] | None:
    """Return the messages of a compaction in the provider's own form; None if it has no such form."""
    own = data.structured.get(provider) if is_map(data.structured) else None
    items = own.get("items") if is_map(own) else None
    return cast("list[Mapping[str, object]]", items) if is_list(items) and all(map(is_map, items)) else None


def is_readable(data: Compaction, provider: str) -> bool:
    """Return whether the provider can read the compaction."""
    return bool(data.text) or items_of(data, provider) is not None


def compacted(log: Sequence[Event], compaction: Compaction, provider: str) -> list[Event]:
    """Return the events to send: the compaction, the events that it does not replace, and the model requests.

    System messages stay too, unless the compaction has the provider's own form, which includes them.
    """
    position = next(index for index in reversed(range(len(log))) if log[index].data is compaction)
    stay = (ModelRequest,) if items_of(compaction, provider) is not None else (ModelRequest, SystemMessage)
    head: list[Event] = []
    later: list[Event] = []
    for event in log[:position]:
        if compaction.up_to and event.seq > compaction.up_to:
            if not isinstance(event.data, Compaction):
                later.append(event)
        elif isinstance(event.data, stay):
            head.append(event)
    return [*head, log[position], *later, *log[position + 1 :]]
