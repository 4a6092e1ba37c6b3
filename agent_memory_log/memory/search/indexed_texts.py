"""The texts of one subject in a recall index, by what they are the words of. Needs the extra ``recall``."""

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
"""What a text takes in memory, besides and for its characters: as measured with 2,000 messages, about."""


def _vector_bytes(packed: bytes, dimension: int, *, is_kept: bool) -> int:
    """What vectors take in memory, about, in a ``VectorIndex`` with room for more rows; and ``packed``, if kept."""
    tokens = len(packed) - dimension
    return 200 + 6 * dimension + 2 * tokens + (len(packed) if is_kept else 0)


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A text of the index: its name, the text, the message that it is."""

    name: TextName
    text: str
    message: RunMessage | None

    @property
    def size(self) -> int:
        return _TEXT_BYTES + _BYTES_A_CHARACTER * len(self.text)


class IndexedTexts:
    """Texts with their vectors, by document id and by name. Not for several threads at once.

    ``size`` is how many bytes of memory they take, about.
    """

    def __init__(self) -> None:
        self.size = 0
        self._index = RecallIndex()
        self._entries: dict[str, _Entry] = {}
        self._names: dict[TextName, str] = {}
        self._lacking: dict[str, None] = {}
        self._model: tuple[str, int] | None = None
        self._packed: dict[str, bytes] = {}
        self._vector_sizes: dict[str, int] = {}

    def put(self, document: Document, name: TextName, message: RunMessage | None = None) -> TextName | None:
        """Put a text in, in place of the one with its id; the name that this one had, where it is another."""
        known = self._entries.get(document.id)
        packed = self._packed.get(document.id) if known is not None and known.name == name else None
        self.remove(document.id)
        self._index.add(document)
        entry = self._entries[document.id] = _Entry(name, document.text, message)
        self._names[name] = document.id
        self.size += entry.size
        self._lacking[document.id] = None
        if packed is not None and self._model is not None:
            self.put_vectors(name, *self._model, packed)
        return None if known is None or known.name == name else known.name

    def remove(self, document: str) -> TextName | None:
        """Take a text out; its name, if it was there."""
        entry = self._entries.pop(document, None)
        if entry is None:
            return None
        self._index.remove(document)
        self._names.pop(entry.name, None)
        self._lacking.pop(document, None)
        self._packed.pop(document, None)
        self.size -= entry.size + self._vector_sizes.pop(document, 0)
        return entry.name

    def named(self, name: TextName) -> str | None:
        """The id of the text with a name; None if there is none."""
        return self._names.get(name)

    def use_model(self, model: str, dimension: int) -> bool:
        """Hold vectors of this model from now on, and none of another; whether that is new."""
        if (model, dimension) == self._model:
            return False
        self._model = (model, dimension)
        self._index.use_model(model, dimension)
        self._packed.clear()
        self.size -= sum(self._vector_sizes.values())
        self._vector_sizes.clear()
        self._lacking = dict.fromkeys(self._entries)
        return True

    def lacking(self, most: int) -> list[tuple[TextName, str]]:
        """Texts without vectors, the first ones."""
        return [(entry.name, entry.text) for entry in map(self._entries.__getitem__, islice(self._lacking, most))]

    def put_vectors(self, name: TextName, model: str, dimension: int, packed: bytes) -> bool:
        """Give a text its vectors, if it is there and they are of the model in use; whether that is so."""
        document = self._names.get(name)
        embeddings = unpack(packed, dimension) if (model, dimension) == self._model else None
        if document is None or embeddings is None:
            return False
        self._index.put_vectors([document], embeddings)
        self._lacking.pop(document, None)
        if name.record:
            self._packed[document] = packed  # a record that is said again is put again, its words the same
        size = _vector_bytes(packed, dimension, is_kept=bool(name.record))
        self.size += size - self._vector_sizes.get(document, 0)
        self._vector_sizes[document] = size
        return True

    def search(
        self, call: Search, now: datetime, embedded: Embedded | None
    ) -> list[tuple[DocumentHit, RunMessage | None]]:
        """The best texts, with the message of those that are one."""
        found = self._index.search(
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
        return [(one, self._entries[one.id].message) for one in found]


def record_document(live: Live) -> Document:
    """What is searched of a record: its words, its key as words, its tags and entities."""
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
    """What is searched of a message."""
    return Document(
        id=place_name(message.evidence),
        text=message.text,
        kind=MESSAGE,
        session=f"{message.agent}\0{message.run}",
        position=message.seq,
        speaker=message.speaker,
        time=message.time,
    )
