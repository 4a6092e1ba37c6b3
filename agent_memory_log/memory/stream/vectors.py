"""The stream of a subject's vectors: what each event is the vectors of, and erasing those of what is gone."""

from __future__ import annotations

from typing import NamedTuple

from agent_memory_log.memory.records.principals import VECTORS_RUN
from agent_memory_log.memory.stream.payloads import MemoryVectors
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.stream.subjects import FORGOTTEN, Subject
from agent_memory_log.steps import Steps, load, redact

VECTOR_TYPES = (MemoryVectors.event_type,)


class TextName(NamedTuple):
    """What a text is known by: a record and the event that last changed its words, or an event of a run."""

    record: str
    agent: str
    run: str
    seq: int


def record_name(live: Live) -> TextName:
    """The name of a record's words."""
    return TextName(live.id, "", "", live.worded or live.seq)


def name_of(data: MemoryVectors) -> TextName:
    """The name of the text whose vectors these are."""
    return TextName(data.record, data.agent, data.run, data.seq)


def is_alive(state: State, name: TextName) -> bool:
    """Whether there may be something to find under a name, as far as the subject's own stream tells."""
    if name.agent:
        return state.may_find(name.agent, name.run, name.seq)
    live = state.records.get(name.record)
    return live is not None and record_name(live) == name


def erase_orphans(subject: Subject) -> Steps[int]:
    """Redact the vectors of everything that was forgotten, or is active no longer; how many there were.

    The subject is read before. Raises what the store raises.
    """
    stored = yield from load(subject.agent, VECTORS_RUN, types=VECTOR_TYPES)
    if not stored.log:
        return 0
    yield from subject.refresh()  # after the vectors: whoever stored one knew what it is of
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
