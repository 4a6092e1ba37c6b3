"""What the tests of every provider's transcripts share: the cases they are run on, and how a package's types judge."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from agent_memory_log import Event, EventData, JsonValue, Snapshot, new_event
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.transcript import build, parse

Message = dict[str, Any]

unhurried = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    # The phase that explains failures loses their message where strategies are drawn inside a test.
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
"""A busy machine is no finding."""

THOUGHT = "private thought"
"""Begins every reasoning text, signature and encrypted block of the sound conversations; the latter in base64."""

_ENCODED_THOUGHT = base64.b64encode(THOUGHT.encode())


class Case(NamedTuple):
    """A provider, for the tests that hold for all of them.

    - ``conversations``: made by hand, valid or not, to come back exactly.
    - ``valid``: made by hand, nothing is wrong with them; they too come back exactly.
    - ``good``: messages of the shape the provider documents, in any order; ``odd``: maps that are nearly messages.
    - ``sound``: whole conversations nothing is wrong with, each of which holds ``THOUGHT`` in its reasoning alone.
    - ``judge``: raises where the provider's own package refuses a transcript.
    - ``tools``: one tool's name, description and schema, as the provider is told of its tools.
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
        """Transcripts of anything, in any order."""
        return st.lists(self.odd | self.good, max_size=7)


def numbered(events: Iterable[Event]) -> list[Event]:
    """Events as a store gives them back, with seqs from 1."""
    return [
        Event(event.type, event.timestamp, event.data, event.labels, event.event_id, seq)
        for seq, event in enumerate(events, 1)
    ]


def snapshot_of(events: Iterable[Event]) -> Snapshot:
    """A run of these events."""
    log = numbered(events)
    return Snapshot("agent", "run", log, version=len(log))


def run_of(*payloads: EventData) -> Snapshot:
    """A run that was recorded by hand."""
    return snapshot_of(new_event(payload) for payload in payloads)


def assert_exact(messages: Sequence[Message], provider: str) -> list[Event]:
    """The events of ``messages``, from which equal messages are built, at once or in two steps; nothing is lost."""
    before = copy.deepcopy(messages)
    events = parse(messages, provider)
    whole = snapshot_of(events)
    built = build(whole, provider)
    assert encode_canonical(built) == encode_canonical(messages)
    assert messages == before
    assert not built.losses
    grown = build(snapshot_of(events[: len(events) // 2]), provider)
    grown.update(whole)
    assert encode_canonical(grown) == encode_canonical(messages)
    assert len({event.event_id for event in events}) == len(events)
    for event in events:
        assert Event.from_map(event.to_map()) == event
    return events


def holds_thought(messages: Sequence[object]) -> bool:
    """Whether any reasoning of a sound conversation is left."""
    text = encode_canonical(messages)
    return THOUGHT.encode() in text or _ENCODED_THOUGHT in text


def consume(value: object) -> None:
    """Look at all of what pydantic made: it checks the items of an ``Iterable`` only when they are asked for."""
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


def maps(known: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Message]:
    """Maps of some of these keys, each with what belongs there or with anything."""
    return st.fixed_dictionaries({}, optional={key: value | json_values for key, value in known.items()})


def shaped(
    required: Mapping[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]
) -> st.SearchStrategy[Message]:
    """Maps that have all of the required keys and some of the optional ones."""
    return st.fixed_dictionaries(dict(required), optional=optional)


texts = st.sampled_from(["", " ", "Hi", '{"a": 1}', "null", "[]", "a\nb", "Grüße 🧾"])
said = st.sampled_from(["Hi", "Where is it?", '{"a": 1}', "a\nb", "Grüße 🧾"])
names = st.sampled_from(["f", "get_order", "orders--find", "mcp__s__t", "a-b"])
arguments = st.sampled_from(["{}", '{"id": 7}', '{"a": {"b": [1, 2.5, null]}}', '{"text": "x"}'])
