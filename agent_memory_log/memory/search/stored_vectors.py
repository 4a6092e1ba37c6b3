"""Tracks the vectors in a subject's stream: the stored ones, those to store, and those to redact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agent_memory_log.memory.stream.payloads import MemoryVectors
from agent_memory_log.memory.stream.vectors import TextName, name_of
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult

_BATCH_BYTES = 2 * 1024 * 1024

HasText = Callable[[TextName], bool]
"""A function that returns whether the index holds a text."""


class StoredVectors:
    """The vectors of one model in a stream, up to ``read_to``. Not safe for use by several threads at once."""

    def __init__(self) -> None:
        """Start with nothing read."""
        self.is_read = False
        self.read_to = 0
        self._stored: dict[TextName, dict[int, tuple[str, int]]] = {}
        self._removed: list[TextName] = []
        self._orphans: set[int] = set()
        self._unstored: dict[TextName, MemoryVectors] = {}

    @property
    def orphans(self) -> tuple[int, ...]:
        """The seqs of vectors whose text is gone."""
        return tuple(sorted(self._orphans))

    def needs(self, newer: Snapshot) -> bool:
        """Return whether ``newer`` has to be applied with ``apply``."""
        return not self.is_read or bool(self._removed) or max(newer.last_seq, newer.after) > self.read_to

    def apply(self, newer: Snapshot, has_text: HasText) -> list[MemoryVectors] | None:
        """Apply a snapshot of the stream. Returns the new vectors whose texts the index holds.

        Returns None if events are missing between ``read_to`` and the snapshot.
        """
        if newer.after > self.read_to:
            return None
        if newer.redactions:
            for seqs in self._stored.values():
                for seq in newer.redactions.keys() & seqs.keys():
                    del seqs[seq]
        fresh = [
            event.data
            for event in newer.log
            if event.seq > self.read_to
            and isinstance(event.data, MemoryVectors)
            and self._note(event.seq, event.data, has_text)
        ]
        self.read_to = max(self.read_to, newer.last_seq)
        self.drop(name for name in self._removed if not has_text(name))
        self._removed.clear()
        self._orphans = {seq for seq in self._orphans if seq >= newer.first_seq}  # earlier events were deleted
        self.is_read = True
        return fresh

    def _note(self, seq: int, data: MemoryVectors, has_text: HasText) -> bool:
        name = name_of(data)
        is_indexed = has_text(name)
        if is_indexed:
            self._stored.setdefault(name, {})[seq] = (data.model, data.dimension)
        else:
            self._orphans.add(seq)
        return is_indexed

    def remove(self, name: TextName) -> None:
        """Note that a text was removed. The next ``apply`` drops its vectors unless the text was put back."""
        self._unstored.pop(name, None)
        if name in self._stored:
            self._removed.append(name)

    def drop(self, names: Iterable[TextName]) -> None:
        """Mark the stored vectors of these texts as orphans."""
        for name in names:
            self._orphans.update(self._stored.pop(name, {}))

    def note_redacted(self, orphans: Iterable[int]) -> None:
        """Note that these orphans were redacted."""
        self._orphans.difference_update(orphans)

    def add(self, vectors: MemoryVectors) -> None:
        """Add vectors that have to be stored."""
        self._unstored[name_of(vectors)] = vectors

    def to_store(self) -> tuple[list[MemoryVectors], int]:
        """Return vectors for the next append, and the version of the stream to append them at."""
        for name, vectors in list(self._unstored.items()):
            if (vectors.model, vectors.dimension) in self._stored.get(name, {}).values():
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
            self.read_to = result.version


def _first_batch(all_vectors: Sequence[MemoryVectors]) -> list[MemoryVectors]:
    """Return as many vectors as one append takes, at least the first."""
    size = 0
    for count, vectors in enumerate(all_vectors):
        size += len(vectors.vectors)
        if count and size > _BATCH_BYTES:
            return list(all_vectors[:count])
    return list(all_vectors)
