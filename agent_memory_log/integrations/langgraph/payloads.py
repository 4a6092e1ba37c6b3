"""The events that hold LangGraph's state, and the nodes that describe a Python value in them.

A node is small. A large value, an item of a list and a message are events of their own, to which nodes refer by event
id. An id is a digest of the content, so equal values are stored once in a run.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agent_memory_log import EventData, JsonValue, register_payload


class Plain(msgspec.Struct, frozen=True, array_like=True, tag="json"):
    """A value that equals its JSON."""

    value: JsonValue


class Packed(msgspec.Struct, frozen=True, array_like=True, tag="packed"):
    """A value as the serializer wrote it: the serializer's name for the form, and the bytes.

    Attributes:
        form: The form, for example ``msgpack``.
        data: The bytes.
        compressed: Whether ``data`` is compressed with zlib.
    """

    form: str
    data: bytes
    compressed: bool = False


class Ref(msgspec.Struct, frozen=True, array_like=True, tag="ref"):
    """A value that is in an event of its own: a ``StateValue``, or a message."""

    event_id: str


class Items(msgspec.Struct, frozen=True, array_like=True, tag="list"):
    """A list. With ``levels`` above 0, each item is a list with one level less, and the lists are joined.

    So a list that grows changes only its last parts.
    """

    items: tuple[Node, ...]
    levels: int = 0


class Entries(msgspec.Struct, frozen=True, array_like=True, tag="dict"):
    """A dict with keys of text."""

    entries: dict[str, Node]


class Delta(msgspec.Struct, frozen=True, array_like=True, tag="delta"):
    """The complete value of a delta channel, from which the later writes continue."""

    value: Node


Node = Plain | Packed | Ref | Items | Entries | Delta


class StateValue(EventData, frozen=True):
    """A part of a value.

    Attributes:
        node: The part.
    """

    event_type = "langgraph_value"

    node: Node


class StateCheckpoint(EventData, frozen=True):
    """A checkpoint. A later event for the same checkpoint replaces an earlier one.

    Attributes:
        checkpoint_id: The id of the checkpoint.
        checkpoint: The checkpoint without the values of its channels.
        metadata: The metadata.
        values: The values of the channels.
        parent_id: The id of the checkpoint before, or ``""``.
        newest: Whether the id is higher than all ids before. Threads that were copied from elsewhere may have others.
    """

    event_type = "langgraph_checkpoint"

    checkpoint_id: str
    checkpoint: Node
    metadata: Node
    values: Mapping[str, Node]
    parent_id: str = ""
    newest: bool = True


class Write(msgspec.Struct, frozen=True, array_like=True):
    """A pending write of a task: its index, its channel and its value."""

    index: int
    channel: str
    value: Node


class StateWrites(EventData, frozen=True):
    """The pending writes of a task, which belong to a checkpoint.

    Attributes:
        checkpoint_id: The id of the checkpoint.
        task_id: The id of the task.
        writes: The writes.
        task_path: The path of the task.
    """

    event_type = "langgraph_writes"

    checkpoint_id: str
    task_id: str
    writes: tuple[Write, ...]
    task_path: str = ""


class ChannelHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a delta channel before a checkpoint: the last complete value, and the writes after it."""

    writes: tuple[tuple[str, Node], ...]
    seed: Node | None = None


class StateHistory(EventData, frozen=True):
    """The histories of delta channels that a checkpoint needs after the checkpoints before it were pruned.

    Attributes:
        checkpoint_id: The id of the checkpoint.
        channels: The history of each delta channel.
    """

    event_type = "langgraph_history"

    checkpoint_id: str
    channels: Mapping[str, ChannelHistory]


class StatePruning(EventData, frozen=True):
    """The announcement of a pruning. A process that wrote to the run meanwhile stores its values again."""

    event_type = "langgraph_pruning"


class ItemPut(EventData, frozen=True):
    """An item that was put into a store. A later event with the same key replaces it.

    Attributes:
        key: The key in the namespace.
        value: The value.
        index: The fields to search, or None for those of the store. An empty list means none.
        ttl: The minutes after which the item expires, or None.
        vectors: The vectors of the item's texts, as 32-bit numbers, little end first. Each is under the SHA-256 of its
            text.
    """

    event_type = "langgraph_item"

    key: str
    value: Node
    index: tuple[str, ...] | None = None
    ttl: float | None = None
    vectors: Mapping[str, bytes] = {}


class ItemsRead(EventData, frozen=True):
    """A read after which the lifetimes of items begin again.

    Attributes:
        keys: The keys of the items.
    """

    event_type = "langgraph_items_read"

    keys: tuple[str, ...]


for payload in (StateValue, StateCheckpoint, StateWrites, StateHistory, StatePruning, ItemPut, ItemsRead):
    register_payload(payload)

STATE_TYPES = frozenset(
    payload.event_type for payload in (StateValue, StateCheckpoint, StateWrites, StateHistory, StatePruning)
)
"""The types of events that a pruning may erase."""
