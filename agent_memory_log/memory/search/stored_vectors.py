"""What an index knows of its subject's stream of vectors: what is in there, what is missing, what has to go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agent_memory_log.memory.stream.payloads import MemoryVectors
from agent_memory_log.memory.stream.vectors import TextName, name_of
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import AppendResult

_BATCH_BYTES = 2 * 1024 * 1024

IsThere = Callable[[TextName], bool]
"""Whether the index has a text."""


class StoredVectors:
    """The vectors of one model in a stream, as far as it was read. Not for several threads at once."""

    def __init__(self) -> None:
        """Nothing was read."""
        self.is_known = False
        self.read_to = 0
        self._stored: dict[TextName, dict[int, tuple[str, int]]] = {}
        self._removed: list[TextName] = []
        self._orphans: set[int] = set()
        self._made: dict[TextName, MemoryVectors] = {}

    @property
    def orphans(self) -> tuple[int, ...]:
        """The seqs of vectors of what is gone."""
        return tuple(sorted(self._orphans))

    def is_news(self, newer: Snapshot) -> bool:
        """Whether something of what was read has to be taken in."""
        return not self.is_known or bool(self._removed) or max(newer.last_seq, newer.after) > self.read_to

    def take(self, newer: Snapshot, is_there: IsThere) -> list[MemoryVectors] | None:
        """Take in what was read; the vectors in it of what is there. None: it does not follow what is known."""
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
            and self._note(event.seq, event.data, is_there)
        ]
        self.read_to = max(self.read_to, newer.last_seq)
        self.drop(name for name in self._removed if not is_there(name))
        self._removed.clear()
        self._orphans = {seq for seq in self._orphans if seq >= newer.first_seq}  # the others were deleted
        self.is_known = True
        return fresh

    def _note(self, seq: int, data: MemoryVectors, is_there: IsThere) -> bool:
        name = name_of(data)
        found = is_there(name)
        if found:
            self._stored.setdefault(name, {})[seq] = (data.model, data.dimension)
        else:
            self._orphans.add(seq)
        return found

    def remove(self, name: TextName) -> None:
        """A text was taken out; it may have been for another to take its place."""
        self._made.pop(name, None)
        if name in self._stored:
            self._removed.append(name)

    def drop(self, names: Iterable[TextName]) -> None:
        """The vectors of these texts have to go."""
        for name in names:
            self._orphans.update(self._stored.pop(name, {}))

    def dropped(self, orphans: Iterable[int]) -> None:
        """They have gone."""
        self._orphans.difference_update(orphans)

    def make(self, one: MemoryVectors) -> None:
        """Vectors that are to be stored."""
        self._made[name_of(one)] = one

    def to_store(self) -> tuple[list[MemoryVectors], int]:
        """Vectors that were made, as many as one append takes, and the version of the stream that lacks them."""
        for name, one in list(self._made.items()):
            if (one.model, one.dimension) in self._stored.get(name, {}).values():
                del self._made[name]
        return _first(list(self._made.values())), self.read_to

    def refuse(self, batch: Iterable[MemoryVectors]) -> None:
        """They cannot be stored."""
        for one in batch:
            self._made.pop(name_of(one), None)

    def store(self, batch: Sequence[MemoryVectors], result: AppendResult, version: int, is_there: IsThere) -> None:
        """They were stored behind a version."""
        self.refuse(batch)
        for event, data in zip(result.events, batch, strict=True):
            self._note(event.seq, data, is_there)
        if self.read_to == version:
            self.read_to = result.version


def _first(vectors: Sequence[MemoryVectors]) -> list[MemoryVectors]:
    size = 0
    for count, one in enumerate(vectors):
        size += len(one.vectors)
        if count and size > _BATCH_BYTES:
            return list(vectors[:count])
    return list(vectors)
