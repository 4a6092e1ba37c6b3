"""Holds the texts of one subject's records and messages in a recall index. Needs the extra ``recall``."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

import msgspec

from agent_memory_log.memory.operations import Search
from agent_memory_log.memory.records.kinds import Preference, fold_key, fold_keys
from agent_memory_log.memory.records.messages import MESSAGE, RunMessage
from agent_memory_log.memory.records.record import place_name, stars_of
from agent_memory_log.memory.search.packing import unpack
from agent_memory_log.memory.stream.state import Live
from agent_memory_log.memory.stream.vectors import TextName
from agent_memory_log.recall import Document, DocumentHit, Embedded, RecallIndex

_TEXT_BYTES = 1_100
_BYTES_A_CHARACTER = 2
"""The approximate bytes of memory per text, and per character of it. Measured with 2,000 messages."""


def _vector_bytes(packed: bytes, dimension: int, *, is_kept: bool) -> int:
    """Return the approximate bytes that vectors take in a ``VectorIndex``, which reserves rows for growth.

    ``is_kept`` adds the size of the packed bytes.
    """
    tokens = len(packed) - dimension
    return 200 + 6 * dimension + 2 * tokens + (len(packed) if is_kept else 0)


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A text of the index, with its name, and the message if the text is one."""

    name: TextName
    text: str
    message: RunMessage | None

    @property
    def size(self) -> int:
        return _TEXT_BYTES + _BYTES_A_CHARACTER * len(self.text)


class IndexedTexts:
    """Texts with their vectors, by document id and by name. Not safe for use by several threads at once.

    ``size`` is the approximate number of bytes of memory that the texts take.
    """

    def __init__(self) -> None:
        self.size = 0
        self._index = RecallIndex()
        self._entries: dict[str, _Entry] = {}
        self._names: dict[TextName, str] = {}
        self._without_vectors: dict[str, None] = {}
        self._model: tuple[str, int] | None = None
        self._packed: dict[str, bytes] = {}
        self._vector_sizes: dict[str, int] = {}

    def put(self, document: Document, name: TextName, message: RunMessage | None = None) -> TextName | None:
        """Add a text, and replace a text with the same id. Returns the replaced text's name if it had another name."""
        replaced = self._entries.get(document.id)
        packed = self._packed.get(document.id) if replaced is not None and replaced.name == name else None
        self.remove(document.id)
        self._index.add(document)
        entry = self._entries[document.id] = _Entry(name, document.text, message)
        self._names[name] = document.id
        self.size += entry.size
        self._without_vectors[document.id] = None
        if packed is not None and self._model is not None:
            self.put_vectors(name, *self._model, packed)
        return None if replaced is None or replaced.name == name else replaced.name

    def remove(self, document: str) -> TextName | None:
        """Remove a text. Returns its name, or None if the index does not hold it."""
        entry = self._entries.pop(document, None)
        if entry is None:
            return None
        self._index.remove(document)
        self._names.pop(entry.name, None)
        self._without_vectors.pop(document, None)
        self._packed.pop(document, None)
        self.size -= entry.size + self._vector_sizes.pop(document, 0)
        return entry.name

    def has(self, name: TextName) -> bool:
        """Return whether the index holds a text with this name."""
        return name in self._names

    def use_model(self, model: str, dimension: int) -> bool:
        """Hold only vectors of this model from now on. Returns whether the model changed."""
        if (model, dimension) == self._model:
            return False
        self._model = (model, dimension)
        self._index.use_model(model, dimension)
        self._packed.clear()
        self.size -= sum(self._vector_sizes.values())
        self._vector_sizes.clear()
        self._without_vectors = dict.fromkeys(self._entries)
        return True

    def without_vectors(self, limit: int) -> list[tuple[TextName, str]]:
        """Return the first texts without vectors, at most ``limit``."""
        documents = islice(self._without_vectors, limit)
        return [(entry.name, entry.text) for entry in map(self._entries.__getitem__, documents)]

    def put_vectors(self, name: TextName, model: str, dimension: int, packed: bytes) -> bool:
        """Give a text its vectors. Returns whether this was possible.

        It is not possible if the index does not hold the text, or if the vectors are of another model.
        """
        document = self._names.get(name)
        embeddings = unpack(packed, dimension) if (model, dimension) == self._model else None
        if document is None or embeddings is None:
            return False
        self._index.put_vectors([document], embeddings)
        self._without_vectors.pop(document, None)
        if name.record:
            self._packed[document] = packed  # a refreshed record is put again with the same words
        size = _vector_bytes(packed, dimension, is_kept=bool(name.record))
        self.size += size - self._vector_sizes.get(document, 0)
        self._vector_sizes[document] = size
        return True

    def search(
        self, call: Search, now: datetime, embedded: Embedded | None
    ) -> list[tuple[DocumentHit, RunMessage | None]]:
        """Return the best texts, each with its message if it is one."""
        matches = self._index.search(
            call.query,
            now=now,
            top_k=call.top_k,
            kinds=call.kinds,
            since=call.since,
            until=call.until,
            min_importance=call.min_importance,
            boost_preferences=fold_keys(call.boost_preferences),
            embedded=None if embedded is None or embedded.model != self._model else embedded.embeddings,
        )
        return [(match, self._entries[match.id].message) for match in matches]


def record_document(live: Live) -> Document:
    """Return the searchable document of a record: its text, its key as words, its tags and its entities."""
    memory = live.memory
    text = memory.text or live.data.describe()
    key = memory.key.replace("_", " ")
    text = text.replace(memory.key, key) if memory.key and memory.key in text else f"{text} {key}"
    return Document(
        id=live.id,
        text=" ".join((text, *memory.tags, *memory.entities)).strip(),
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
        session=f"{message.agent}\0{message.run}",
        position=message.seq,
        speaker=message.speaker,
        time=message.time,
    )
