"""Holds the texts of one subject's records and messages in a recall index. Needs the extra ``recall``."""

from __future__ import annotations

from datetime import datetime

import msgspec

from agent_memory_log.memory.operations import Search
from agent_memory_log.memory.records.kinds import Preference, fold_key, fold_keys
from agent_memory_log.memory.records.messages import MESSAGE, RunMessage
from agent_memory_log.memory.records.record import Evidence, RunId, place_name, stars_of
from agent_memory_log.memory.search.packing import unpack
from agent_memory_log.memory.stream.state import Live
from agent_memory_log.memory.stream.vectors import TextName
from agent_memory_log.recall import Document, DocumentHit, Embedded, RecallIndex


class _Entry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A text of the index, with its name, and the message if the text is one."""

    name: TextName
    text: str
    message: RunMessage | None


_read_entry = msgspec.msgpack.Decoder(_Entry).decode


class IndexedTexts:
    """Texts with their vectors, by document id and by name. Not safe for use by several threads at once."""

    def __init__(self, index: RecallIndex) -> None:
        self._index = index

    def put(self, document: Document, name: TextName, message: RunMessage | None = None) -> TextName | None:
        """Add a text, and replace a text with the same id. Returns the replaced text's name if it had another name."""
        old = self._name_of(document.id)
        text = document.text if message is None else ""  # the message has it
        note = msgspec.msgpack.encode(_Entry(name, text, message))
        self._index.add(msgspec.structs.replace(document, note=note), keep_vectors=old == name)
        return None if old == name else old

    def remove(self, document: str) -> TextName | None:
        """Remove a text. Returns its name, or None if the index does not hold it."""
        name = self._name_of(document)
        if name is not None:
            self._index.remove(document)
        return name

    def _name_of(self, document: str) -> TextName | None:
        note = self._index.note_of(document)
        return None if note is None else _read_entry(note).name

    def has(self, name: TextName) -> bool:
        """Return whether the index holds a text with this name."""
        return self._name_of(_document_of(name)) == name

    def of_run(self, run_id: RunId, up_to: int | None = None) -> list[str]:
        """Return the ids of a run's messages, the last first. Limit them to seqs of at most ``up_to``."""
        session = _session_of(*run_id)
        return (self._index.ids_of(session) if up_to is None else self._index.ids_of(session, up_to))[::-1]

    def use_model(self, model: str, dimension: int) -> bool:
        """Hold only vectors of this model from now on. Returns whether the model changed."""
        return self._index.use_model(model, dimension)

    def without_vectors(self, limit: int) -> list[tuple[TextName, str]]:
        """Return the first texts without vectors, at most ``limit``."""
        entries = [_read_entry(note) for _, note in self._index.without_vectors(limit)]
        return [(entry.name, entry.text if entry.message is None else entry.message.text) for entry in entries]

    def put_vectors(self, name: TextName, model: str, dimension: int, packed: bytes) -> bool:
        """Give a text its vectors. Returns whether this was possible.

        It is not possible if the index does not hold the text, or if the vectors are of another model.
        """
        embeddings = unpack(packed, dimension) if (model, dimension) == self._index.model else None
        if embeddings is None or not self.has(name):
            return False
        self._index.put_vectors([_document_of(name)], embeddings)
        return True

    def search(
        self, call: Search, top_k: int, now: datetime, embedded: Embedded | None, *, changes: bool = False
    ) -> list[tuple[DocumentHit, RunMessage | None]]:
        """Return the best ``top_k`` texts, each with its message if it is one."""
        matches = self._index.search(
            call.query,
            now=now,
            top_k=top_k,
            kinds=call.kinds,
            since=call.since,
            until=call.until,
            min_importance=call.min_importance,
            boost_preferences=fold_keys(call.boost_preferences),
            embedded=None if embedded is None or embedded.model != self._index.model else embedded.embeddings,
            changes=changes,
        )
        return [(match, _read_entry(match.note).message) for match in matches]


def _document_of(name: TextName) -> str:
    return name.record or place_name(Evidence(name.agent, name.run, name.seq))


def _session_of(agent: str, run: str) -> str:
    return msgspec.json.encode((agent, run)).decode()


def record_document(live: Live) -> Document:
    """Return the searchable document of a record: its text, its key as words, its tags and its entities.

    An entity that is in the text already counts once, as its words do.
    """
    memory = live.memory
    text = memory.text or live.data.describe()
    key = memory.key.replace("_", " ")
    text = text.replace(memory.key, key) if memory.key and memory.key in text else f"{text} {key}"
    other_names = (name for name in memory.entities if name not in text)
    return Document(
        id=live.id,
        text=" ".join((text, *memory.tags, *other_names)).strip(),
        kind=memory.kind,
        position=live.seq,
        time=memory.valid_from or live.created,
        importance=stars_of(min(max(memory.importance, 0), 1)),
        confidence=min(max(memory.confidence, 0), 1),
        lasting=bool(memory.key),
        key=fold_key(memory.key) if memory.kind == Preference.kind else "",
        expires=memory.valid_until,
    )


def message_document(message: RunMessage) -> Document:
    """Return the searchable document of a message."""
    return Document(
        id=place_name(message.evidence),
        text=message.text,
        kind=MESSAGE,
        session=_session_of(message.agent, message.run),
        position=message.seq,
        speaker=message.speaker,
        time=message.time,
    )
