"""Cases, strategies and helpers that the tests of all providers' transcripts share."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from hypothesis import strategies as st

from agent_memory_log import Event, EventData, JsonValue, Snapshot, new_event
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.transcript import build, parse

Message = dict[str, Any]

THOUGHT = "private thought"
"""The first words of every reasoning text, signature and encrypted block (in base64) of the sound conversations."""

_ENCODED_THOUGHT = base64.b64encode(THOUGHT.encode())


class Case(NamedTuple):
    """One provider's inputs for the tests that run for every provider.

    Attributes:
        provider: The provider's name.
        conversations: Handwritten conversations, valid or invalid. Parsing and building returns equal messages.
        valid: Handwritten valid conversations. Parsing and building returns equal messages here too.
        good: A strategy for messages of the documented shape, which tests put in any order.
        odd: A strategy for maps that resemble messages.
        sound: A strategy for whole valid conversations that contain ``THOUGHT`` in their reasoning only.
        judge: A function that raises if the provider's own package refuses the transcript.
        tools: A function that takes a tool's name, description and schema and returns the provider's list of tools.
    """

    provider: str
    conversations: Mapping[str, list[Message]]
    valid: Mapping[str, list[Message]]
    good: st.SearchStrategy[Message]
    odd: st.SearchStrategy[Message]
    sound: st.SearchStrategy[list[Message]]
    judge: Callable[[Sequence[Message]], None]
    tools: Callable[[str, str, Mapping[str, JsonValue]], JsonValue]

    @property
    def hostile(self) -> st.SearchStrategy[list[Message]]:
        """A strategy for transcripts of good and odd messages in any order."""
        return st.lists(self.odd | self.good, max_size=7)


def numbered(events: Iterable[Event]) -> list[Event]:
    """Return the events with seqs from 1, as a store returns them."""
    return [
        Event(event.type, event.timestamp, event.data, event.labels, event.event_id, seq)
        for seq, event in enumerate(events, 1)
    ]


def snapshot_of(events: Iterable[Event]) -> Snapshot:
    """Return the snapshot of a run that holds these events."""
    log = numbered(events)
    return Snapshot("agent", "run", log, version=len(log))


def run_of(*payloads: EventData) -> Snapshot:
    """Return the snapshot of a run that holds these payloads."""
    return snapshot_of(new_event(payload) for payload in payloads)


def assert_exact(messages: Sequence[Message], provider: str) -> list[Event]:
    """Check that the built messages equal the parsed ``messages``, and return the events.

    The messages are built in one step and in two.
    """
    before = copy.deepcopy(messages)
    events = parse(messages, provider)
    snapshot = snapshot_of(events)
    built = build(snapshot, provider)
    assert encode_canonical(built) == encode_canonical(messages)
    assert messages == before
    assert not built.losses
    updated = build(snapshot_of(events[: len(events) // 2]), provider)
    updated.update(snapshot)
    assert encode_canonical(updated) == encode_canonical(messages)
    assert len({event.event_id for event in events}) == len(events)
    for event in events:
        assert Event.from_map(event.to_map()) == event
    return events


def holds_thought(messages: Sequence[object]) -> bool:
    """Return whether the messages contain any reasoning of a sound conversation."""
    text = encode_canonical(messages)
    return THOUGHT.encode() in text or _ENCODED_THOUGHT in text


def consume(value: object) -> None:
    """Iterate over the whole value, since pydantic checks the items of an ``Iterable`` only during iteration."""
    if isinstance(value, Mapping):
        for item in cast("Mapping[str, object]", value).values():
            consume(item)
    elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        for item in cast("Iterable[object]", value):
            consume(item)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", " ", "text", "null", "{}", "assistant", "function", "tool_use", "a"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "x"]), inner),
    max_leaves=6,
)


def maps(values_by_key: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Message]:
    """Return a strategy for maps of some of these keys, each with a value of its strategy or any JSON value."""
    return st.fixed_dictionaries({}, optional={key: value | json_values for key, value in values_by_key.items()})


def shaped(
    required: Mapping[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[Message]:
    """Return a strategy for maps that have all the required keys and some of the optional keys."""
    return st.fixed_dictionaries(dict(required), optional=optional)


texts = st.sampled_from(["", " ", "Hi", '{"a": 1}', "null", "[]", "a\nb", "Grüße 🧾"])
spoken_texts = st.sampled_from(["Hi", "Where is it?", '{"a": 1}', "a\nb", "Grüße 🧾"])
names = st.sampled_from(["f", "get_order", "orders--find", "mcp__s__t", "a-b"])
arguments = st.sampled_from(["{}", '{"id": 7}', '{"a": {"b": [1, 2.5, null]}}', '{"text": "x"}'])
