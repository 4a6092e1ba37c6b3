"""Names the texts whose vectors a subject stores, and erases the vectors of texts that are gone."""

from __future__ import annotations

from typing import NamedTuple

from agent_memory_log.memory.records.principals import VECTORS_RUN
from agent_memory_log.memory.stream.payloads import MemoryVectors
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.stream.subjects import FORGOTTEN, Subject
from agent_memory_log.steps import Steps, load, redact

VECTOR_TYPES = (MemoryVectors.event_type,)


class TextName(NamedTuple):
    """The name of a text: a record and the event that last changed its words, or an event of a run."""

    record: str
    agent: str
    run: str
    seq: int


def record_name(live: Live) -> TextName:
    """Return the name of a record's words."""
    return TextName(live.id, "", "", live.worded or live.seq)


def name_of(data: MemoryVectors) -> TextName:
    """Return the name of the text that the vectors belong to."""
    return TextName(data.record, data.agent, data.run, data.seq)


def is_alive(state: State, name: TextName) -> bool:
    """Return whether a search may still find the text, according to the subject's state."""
    if name.agent:
        return state.may_find(name.agent, name.run, name.seq)
    live = state.records.get(name.record)
    return live is not None and record_name(live) == name


def erase_orphans(subject: Subject) -> Steps[int]:
    """Redact the vectors of all texts that are forgotten or no longer active. Return the number of redacted events.

    Call ``refresh`` on the subject first. Raises the errors of the store.
    """
    stored = yield from load(subject.agent, VECTORS_RUN, types=VECTOR_TYPES)
    if not stored.log:
        return 0
    yield from subject.refresh()  # after loading the vectors, so that the state knows the text of each of them
    orphans = subject.ask(
        lambda state: tuple(
            event.seq
            for event in stored.log
            if isinstance(event.data, MemoryVectors) and not is_alive(state, name_of(event.data))
        )
    )
    if orphans:
        yield from redact(subject.agent, VECTORS_RUN, orphans, FORGOTTEN)
    return len(orphans)
