"""Tracks the vectors in a subject's stream: the stored ones, those to store, and those to redact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from agent_memory_log.memory.stream.payloads import MemoryVectors
from agent_memory_log.memory.stream.vectors import TextName, name_of
from agent_memory_log.recall import RecallIndex
from agent_memory_log.recall.embedding import Model
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult

_BATCH_BYTES = 2 * 1024 * 1024

_STORED, _REMOVED, _ORPHANS, _READ_TO = "vectors", "removed texts", "orphans", "vectors read to"
"""The spaces of the marks.

They hold the text and model of each stored vector by its seq, and the names of removed texts. They also hold the seqs
of vectors without a text, and the seq up to which the stream was read.
"""

HasText = Callable[[TextName], bool]
"""A function that returns whether the index holds a text."""


class _Vector(msgspec.Struct, frozen=True, array_like=True):
    """A stored vector: the name of its text, its model, and its dimension."""

    name: TextName
    model: str
    dimension: int


_read_vector = msgspec.msgpack.Decoder(_Vector).decode
_read_name = msgspec.json.Decoder(TextName).decode


class StoredVectors:
    """The vectors in a stream, up to ``read_to``, as marks of the index. Not safe for use by several threads at once.

    Use it in the index's ``changing``, or in ``reading`` for what changes nothing.
    """

    def __init__(self, index: RecallIndex) -> None:
        """Continue with what the marks of the index say."""
        self.is_read = False
        self._index = index
        self._marks: Mapping[str, bytes] = {}
        self._by_name: dict[TextName, dict[int, _Vector]] = {}
        self._unstored: dict[TextName, MemoryVectors] = {}

    def clear(self) -> None:
        """Forget everything, so that the stream is read from its beginning."""
        for space in (_STORED, _REMOVED, _ORPHANS, _READ_TO):
            for name in tuple(self._index.marks.of(space)):
                self._index.marks.remove(space, name)
        self._by_name.clear()
        self._unstored.clear()
        self.is_read = False

    @property
    def read_to(self) -> int:
        """The seq up to which the stream was read."""
        return int(self._index.marks.of(_READ_TO).get("", b"0"))

    @property
    def orphans(self) -> tuple[int, ...]:
        """The seqs of vectors whose text is gone."""
        return tuple(sorted(map(int, self._index.marks.of(_ORPHANS))))

    def _stored(self) -> dict[TextName, dict[int, _Vector]]:
        """Return the stored vectors of each text, by seq."""
        marks = self._index.marks.of(_STORED)
        if marks is not self._marks:  # another process changed the index
            self._marks, self._by_name = marks, {}
            for seq, data in marks.items():
                vector = _read_vector(data)
                self._by_name.setdefault(vector.name, {})[int(seq)] = vector
        return self._by_name

    def needs(self, newer: Snapshot) -> bool:
        """Return whether ``newer`` has to be applied with ``apply``."""
        return (
            not self.is_read or bool(self._index.marks.of(_REMOVED)) or max(newer.last_seq, newer.after) > self.read_to
        )

    def has(self, name: TextName, model: Model) -> bool:
        """Return whether a text has vectors of a model that are stored or will be."""
        unstored = self._unstored.get(name)
        return self._has_stored(name, model) or (unstored is not None and model == (unstored.model, unstored.dimension))

    def _has_stored(self, name: TextName, model: Model) -> bool:
        return any(model == (vector.model, vector.dimension) for vector in self._stored().get(name, {}).values())

    def are_dropped(self, newer: Snapshot, has_text: HasText) -> bool:
        """Return whether a snapshot redacts the vectors of a text that the index holds."""
        return bool(newer.redactions) and any(
            not newer.redactions.keys().isdisjoint(vectors) and has_text(name)
            for name, vectors in self._stored().items()
        )

    def apply(self, newer: Snapshot, has_text: HasText) -> list[MemoryVectors] | None:
        """Apply a snapshot of the stream. Returns the new vectors whose texts the index holds.

        Returns None if events are missing between ``read_to`` and the snapshot.
        """
        marks, read_to = self._index.marks, self.read_to
        if newer.after > read_to:
            return None
        if newer.redactions:
            for name, vectors in self._stored().items():
                for seq in newer.redactions.keys() & vectors.keys():
                    self._forget(name, seq)
        fresh = [
            event.data
            for event in newer.log
            if event.seq > read_to
            and isinstance(event.data, MemoryVectors)
            and self._note(event.seq, event.data, has_text)
        ]
        self._note_read_to(max(read_to, newer.last_seq))
        removed = tuple(marks.of(_REMOVED))
        self.drop(name for name in map(_read_name, removed) if not has_text(name))
        for text in removed:
            marks.remove(_REMOVED, text)
        self.note_redacted(seq for seq in self.orphans if seq < newer.first_seq)  # earlier events were deleted
        self.is_read = True
        return fresh

    def _note_read_to(self, seq: int) -> None:
        if seq != self.read_to:
            self._index.marks.put(_READ_TO, "", b"%d" % seq)

    def _note(self, seq: int, data: MemoryVectors, has_text: HasText) -> bool:
        vector = _Vector(name_of(data), data.model, data.dimension)
        is_indexed = has_text(vector.name)
        if is_indexed:
            self._stored().setdefault(vector.name, {})[seq] = vector
            self._index.marks.put(_STORED, str(seq), msgspec.msgpack.encode(vector))
        else:
            self._index.marks.put(_ORPHANS, str(seq), b"")
        return is_indexed

    def _forget(self, name: TextName, seq: int) -> None:
        del self._stored()[name][seq]
        self._index.marks.remove(_STORED, str(seq))

    def remove(self, name: TextName) -> None:
        """Note that a text was removed. The next ``apply`` drops its vectors unless the text was put back."""
        self._unstored.pop(name, None)
        if self._index.marks.of(_STORED):
            self._index.marks.put(_REMOVED, msgspec.json.encode(name).decode(), b"")

    def drop(self, names: Iterable[TextName]) -> None:
        """Mark the stored vectors of these texts as orphans."""
        for name in names:
            for seq in tuple(self._stored().get(name, ())):
                self._forget(name, seq)
                self._index.marks.put(_ORPHANS, str(seq), b"")

    def note_redacted(self, orphans: Iterable[int]) -> None:
        """Note that these orphans were redacted."""
        for seq in orphans:
            self._index.marks.remove(_ORPHANS, str(seq))

    def add(self, vectors: MemoryVectors) -> None:
        """Add vectors that have to be stored."""
        self._unstored[name_of(vectors)] = vectors

    def to_store(self) -> tuple[list[MemoryVectors], int]:
        """Return vectors for the next append, and the version of the stream to append them at."""
        for name, vectors in list(self._unstored.items()):
            if self._has_stored(name, (vectors.model, vectors.dimension)):
                del self._unstored[name]
        return _first_batch(list(self._unstored.values())), self.read_to

    def give_up(self, batch: Iterable[MemoryVectors]) -> None:
        """Stop trying to store these vectors."""
        for vectors in batch:
            self._unstored.pop(name_of(vectors), None)

    def note_stored(
        self, batch: Sequence[MemoryVectors], result: AppendResult, version: int, has_text: HasText
    ) -> None:
        """Note that vectors were appended at ``version``."""
        self.give_up(batch)
        for event, data in zip(result.events, batch, strict=True):
            self._note(event.seq, data, has_text)
        if self.read_to == version:
            self._note_read_to(result.version)


def _first_batch(all_vectors: Sequence[MemoryVectors]) -> list[MemoryVectors]:
    """Return as many vectors as one append takes, at least the first."""
    size = 0
    for count, vectors in enumerate(all_vectors):
        size += len(vectors.vectors)
        if count and size > _BATCH_BYTES:
            return list(all_vectors[:count])
    return list(all_vectors)
