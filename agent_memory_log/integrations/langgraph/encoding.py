"""Converts Python values to nodes and back."""

from __future__ import annotations

import base64
import hashlib
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any, TypeGuard, cast

import msgspec
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot  # pyright: ignore[reportPrivateUsage]  # savers handle it

from agent_memory_log import Event, JsonValue, SyncStore, new_event
from agent_memory_log.errors import StoreCorrupt
from agent_memory_log.integrations.langgraph.messages import Carrier, carried, message_events
from agent_memory_log.integrations.langgraph.payloads import (
    Delta,
    Entries,
    Items,
    Node,
    Packed,
    Plain,
    Ref,
    StateValue,
)
from agent_memory_log.integrations.langgraph.places import Place

MESSAGE = "m:"
"""The beginning of the event ids of messages."""

VALUE = "v:"
"""The beginning of the event ids of values."""

_OWN_EVENT = 256
"""The size of a node, in bytes of JSON, from which it gets an event of its own."""

_DEEPEST = 4
"""The depth to which lists and dicts are split."""

_PARTS = 32
"""The most items of a part of a list."""


class Encoder:
    """Converts values to nodes, and collects the events that hold their parts.

    Args:
        serde: The serializer. Values are split only with the default class: another one may encrypt.
        stored: The ids of events that the run has.
        salt: A text that makes the ids of values different from those without it.
    """

    def __init__(self, serde: SerializerProtocol, stored: AbstractSet[str] = frozenset(), salt: str = "") -> None:
        self._serde = serde
        self.takes: Callable[[BaseMessage], bool] = lambda _: False
        """Returns whether to make events of a message. A message that has none is a value."""
        self._splits = type(serde) is JsonPlusSerializer
        self._stored = stored
        self._salt = salt.encode()
        self.events: dict[str, list[Event]] = {}
        """The new events by id. A message may have several."""
        self.used: set[str] = set()
        """The ids of all events that the nodes need directly or that were stored for them."""

    def node(self, value: Any, depth: int = 0) -> Node:  # noqa: ANN401  # a state may hold anything
        """Return the node of a value. Raises what the serializer raises."""
        if self._splits and depth < _DEEPEST:
            if isinstance(value, BaseMessage):
                return self._message(value)
            if _is_list_of_parts(value):
                return self._list([self.node(item, depth + 1) for item in value])
            if _has_parts(value):
                return self._placed(Entries({key: self.node(item, depth + 1) for key, item in value.items()}))
            if isinstance(value, _DeltaSnapshot):
                return Delta(self.node(value.value, depth + 1))
        return self._placed(self.leaf(value))

    def leaf(self, value: object, *, most: int = _OWN_EVENT * 2) -> Node:
        """Return the node of a value that is not split. It refers to no event.

        Args:
            value: The value.
            most: The largest serialized size, in bytes, of a value that is stored as JSON. A larger one is compressed.
        """
        form, data = self._serde.dumps_typed(value)
        if self._splits and len(data) <= most and _is_plain(value):
            return Plain(cast("JsonValue", value))
        smaller = zlib.compress(data)
        return Packed(form, smaller, compressed=True) if len(smaller) < len(data) else Packed(form, data)

    def _message(self, message: BaseMessage) -> Node:
        is_taken = self.takes(message)  # before the message is serialized, for LangGraph may add an id meanwhile
        form, data = self._serde.dumps_typed(message)
        event_id = MESSAGE + _digest(data)
        if event_id not in self._stored and event_id not in self.events:
            events = message_events(message, form, data, event_id) if is_taken else []
            if not events:
                return self._placed(self.leaf(message))
            self.events[event_id] = events
        self.used.add(event_id)
        return Ref(event_id)

    def _list(self, nodes: list[Node]) -> Node:
        levels = 0
        while len(nodes) > _PARTS:
            parts = [nodes[start : start + _PARTS] for start in range(0, len(nodes), _PARTS)]
            nodes = [self._placed(Items(tuple(part), levels), always=True) for part in parts]
            levels += 1
        return self._placed(Items(tuple(nodes), levels))

    def _placed(self, node: Node, *, always: bool = False) -> Node:
        encoded = msgspec.json.encode(node)
        if len(encoded) < _OWN_EVENT and not always:
            return node
        event_id = VALUE + _digest(self._salt + encoded)
        if event_id not in self._stored and event_id not in self.events:
            self.events[event_id] = [new_event(StateValue(node), event_id=event_id)]
        self.used.add(event_id)
        return Ref(event_id)


class Decoder:
    """Converts nodes of a run to values. It reads the events to which they refer, one level at a time.

    Args:
        serde: The serializer.
    """

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self.events: dict[str, Event] = {}
        """The events that were read, by id."""

    def read(self, store: SyncStore, place: Place, nodes: Iterable[Node]) -> None:
        """Read every event that ``nodes`` need. An erased message is left out, also one that a copy left out.

        Raises:
            StoreCorrupt: The run has no event for a value.
        """
        missing = list(dict.fromkeys(refs(nodes)))
        sought: set[str] = set()
        while missing := [event_id for event_id in missing if event_id not in self.events and event_id not in sought]:
            sought.update(missing)
            events = [event for event in store.find_events(place.agent, place.run, missing) if event is not None]
            self.events.update((event.event_id, event) for event in events)
            for event_id in missing:
                if event_id not in self.events and event_id.startswith(VALUE):
                    raise StoreCorrupt(f"{place.agent}/{place.run} has no value {event_id}, which a checkpoint needs")
            parts = [event.data.node for event in events if isinstance(event.data, StateValue)]
            missing = list(dict.fromkeys(refs(parts)))

    def values(self, nodes: Mapping[str, Node]) -> dict[str, Any]:
        """Return the value of each node. A value that was erased is left out."""
        return {name: self.value(node) for name, node in nodes.items() if self.has(node)}

    def has(self, node: Node) -> bool:
        """Return whether the value is in the run. An item of a list does not count: it is left out of the list."""
        if isinstance(node, Ref):
            event = self.events.get(node.event_id)
            if event is None:
                return False
            return self.has(event.data.node) if isinstance(event.data, StateValue) else isinstance(event.data, Carrier)
        return self.has(node.value) if isinstance(node, Delta) else True

    def value(self, node: Node) -> Any:  # noqa: ANN401  # a state may hold anything
        """Return the value of a node that is in the run."""
        value: Any
        match node:
            case Plain():
                value = node.value
            case Packed():
                data = zlib.decompress(node.data) if node.compressed else node.data
                value = self._serde.loads_typed((node.form, data))
            case Items():
                value = [self.value(item) for item in node.items if self.has(item)]
                if node.levels:
                    value = list(chain.from_iterable(cast("list[list[Any]]", value)))
            case Entries():
                value = self.values(node.entries)
            case Delta():
                value = _DeltaSnapshot(self.value(node.value))
            case Ref():
                value = self._stored(self.events[node.event_id])
        return value

    def _stored(self, event: Event) -> Any:  # noqa: ANN401  # a state may hold anything
        if isinstance(event.data, StateValue):
            return self.value(event.data.node)
        return self._serde.loads_typed(carried(event.data))


def refs(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the ids of the events to which nodes refer."""
    for node in nodes:
        if isinstance(node, Ref):
            yield node.event_id
        elif isinstance(node, Items):
            yield from refs(node.items)
        elif isinstance(node, Entries):
            yield from refs(node.entries.values())
        elif isinstance(node, Delta):
            yield from refs((node.value,))


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.blake2b(data, digest_size=15).digest()).decode()


def _is_list_of_parts(value: object) -> TypeGuard[list[object]]:
    """Return whether a value is a list whose items are worth storing one by one: not numbers, not empty."""
    if type(value) is not list:
        return False
    items = cast("list[object]", value)
    return bool(items) and not isinstance(items[0], (int, float, complex, type(None)))


def _has_parts(value: object) -> TypeGuard[dict[str, object]]:
    """Return whether a value is a dict with keys of text that holds a message or a list."""
    if type(value) is not dict:
        return False
    items = cast("dict[object, object]", value)
    return all(type(key) is str for key in items) and any(
        isinstance(item, BaseMessage) or type(item) is list for item in items.values()
    )


def _is_plain(value: object) -> bool:
    """Return whether a value equals its JSON: nothing but text, numbers, lists and dicts of exactly these types."""
    kind = type(value)
    if kind is list:
        return all(map(_is_plain, cast("list[object]", value)))
    if kind is dict:
        pairs = cast("dict[object, object]", value).items()
        return all(type(key) is str and _is_plain(key) and _is_plain(item) for key, item in pairs)
    if kind is float:
        return math.isfinite(cast("float", value))
    return value is None or kind in (bool, int, str)
