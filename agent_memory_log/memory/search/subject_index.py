"""The search index of one subject: applies the news of its stream and of its linked runs. Needs the extra ``recall``.

Marks in the index say how far it has read them. So any process can continue with an index in a file.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from copy import copy
from hashlib import blake2b

import msgspec

from agent_memory_log.memory.records.messages import message_of
from agent_memory_log.memory.records.record import Evidence, RunId, place_name
from agent_memory_log.memory.search.indexed_texts import IndexedTexts, message_document, record_document
from agent_memory_log.memory.search.linked_runs import NOTHING, UNREAD, KnownRuns, News, Reached
from agent_memory_log.memory.search.stored_vectors import StoredVectors
from agent_memory_log.memory.stream.payloads import MemoryRemembered
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.memory.stream.vectors import TextName, name_of, record_name
from agent_memory_log.recall import IndexFile, RecallIndex
from agent_memory_log.recall.embedding import Model
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import RunHead

_STREAM, _RUNS, _RECORDS = "stream", "runs", "records"
"""The spaces of the marks: the stream's mark, how far each run was read, and a digest of each record."""

_NO_MODEL: Model = ("", 0)

_read_reached = msgspec.msgpack.Decoder(Reached).decode


class StreamMark(msgspec.Struct, frozen=True, array_like=True):
    """The point up to which the index holds the subject's stream.

    Attributes:
        first_seq: The stream's first seq.
        version: The stream's version.
        forgotten: A digest of the events that may not be searched.
    """

    first_seq: int
    version: int
    forgotten: bytes


class _Changes(msgspec.Struct, frozen=True):
    """The differences between the index and the subject's state.

    Attributes:
        mark: The mark of the state.
        removed: The ids of records that are no longer active.
        lives: The records that are new or changed, with a digest of each.
        forgotten: The messages that may have been forgotten since the index was changed.
        forgotten_up_to: The runs of which messages may have been forgotten, up to a seq.
        unlinked: The runs that are not linked.
        searchable: For each linked run in the news, the seqs of the new messages that may be searched.
    """

    mark: StreamMark
    removed: list[str]
    lives: list[tuple[Live, bytes]]
    forgotten: list[Evidence]
    forgotten_up_to: list[tuple[RunId, int]]
    unlinked: list[RunId]
    searchable: list[frozenset[int]]


class SubjectIndex:
    """The index of a subject. Not safe for concurrent use by several threads, except under the index's lock.

    Attributes:
        subject: The subject.
        index: The index.
        texts: The texts of the index.
        vectors: The state of the stored vectors.
        is_verified: Whether it is known that the index is of this store and not of one that a backup replaced.
    """

    def __init__(self, subject: Subject, file: IndexFile | None) -> None:
        """Open the index in ``file``, or make an empty index in memory for None."""
        self.subject = subject
        self.index = RecallIndex(file)
        self.texts = IndexedTexts(self.index)
        self.is_verified = self.index.file is None
        self._refresh = 0
        self.forget()

    def forget(self) -> None:
        """Forget the comparison with the index, because the index changed or was lost."""
        self.vectors = StoredVectors(self.index)
        self._state: State | None = None
        self._compared_at = -1
        self._digests: dict[str, tuple[MemoryRemembered, bytes]] = {}
        self._known_runs: KnownRuns | None = None
        self._known_at = -1

    @contextmanager
    def changing(self) -> Generator[None]:
        """Change the index. If this fails, the index has no part of the change. An index in memory is then empty.

        Raises:
            IndexLost: See ``RecallIndex.changing``.
        """
        try:
            with self.index.changing():
                yield
        except BaseException:
            self.forget()
            if self.index.file is None:  # a file did not keep the change
                self.index.clear()
            raise

    def has_text(self, name: TextName) -> bool:
        """Return whether the index holds a text with this name."""
        return self.texts.has(name)

    def use_model(self, model: Model) -> None:
        """Hold only this model's vectors from now on."""
        if self.index.model != model:
            with self.changing():
                self.texts.use_model(*model)
                self.vectors.clear()

    def mark(self) -> StreamMark | None:
        """Return the mark of the stream, or None if the index is empty."""
        with self.index.reading():
            data = self.index.marks.of(_STREAM).get("")
        return None if data is None else msgspec.msgpack.decode(data, type=StreamMark)

    def linked(self, mark: StreamMark | None) -> KnownRuns:
        """Return the linked runs with their last heads.

        ``mark`` is older than the state. If it is not, the index is of another stream, and is cleared.
        """
        first_seq, version, linked = self.subject.ask(
            lambda state: (state.first_seq, state.version, tuple(state.linked))
        )
        if mark is not None and (mark.first_seq != first_seq or mark.version > version):
            self.forget()
            self.index.clear()
        with self.index.reading():
            runs = self._known_runs
            if runs is None or runs.run_ids != linked or self._known_at != self.index.generation:
                reached = tuple(map(self._reached, linked))
                runs = self._known_runs = KnownRuns(linked, reached, tuple([run.head for run in reached]))
                self._known_at = self.index.generation
        return runs

    def _reached(self, run_id: RunId) -> Reached:
        data = self.index.marks.of(_RUNS).get(_run_name(run_id))
        return NOTHING if data is None else _read_reached(data)

    def begin_refresh(self) -> None:
        """Begin a refresh, of one or more calls of ``apply``."""
        self._refresh = 0

    def drop_runs(self, run_ids: Sequence[RunId]) -> None:
        """Drop runs, so that they are read again from their beginning."""
        with self.changing():
            for run_id in run_ids:
                self._drop_run(run_id)
                self.index.marks.remove(_RUNS, _run_name(run_id))

    def is_current(self, news: Sequence[News], vectors: Snapshot | None) -> bool:
        """Return whether the index already contains everything that was read."""
        state, version = self.subject.ask(lambda state: (state, state.version))
        with self.index.reading():
            mark = self.mark()
            return (
                state is self._state
                and self._compared_at == self.index.generation
                and mark is not None
                and version == mark.version
                and not any(item.is_newer_than(self._reached(item.run_id).head) for item in news)
                and (vectors is None or not self.vectors.needs(vectors))
            )

    def apply(self, runs: KnownRuns, news: Sequence[News], vectors: Snapshot | None, model: Model | None) -> bool:
        """Apply everything that was read.

        Returns False if the index or the state changed meanwhile. The caller then reads everything again.
        """
        with self.changing():
            self._refresh = self._refresh or self.index.generation + 1
            if not all(self._holds(run_id, reached.head) for run_id, reached in runs):
                return False
            old = self.mark()
            state, changes = self.subject.ask(lambda state: (state, self._compare(state, old, news)))
            if old is not None and old.version > changes.mark.version:
                return False
            for record in changes.removed:
                self.index.marks.remove(_RECORDS, record)
                self._remove(record)
            for live, digest in changes.lives:
                self.index.marks.put(_RECORDS, live.id, digest)
                self._note_removed(self.texts.put(record_document(live), record_name(live)))
            for run_id in changes.unlinked:
                self._drop_run(run_id)
                self.index.marks.remove(_RUNS, _run_name(run_id))
            for run_id, seq in changes.forgotten_up_to:
                self._remove(*self.texts.of_run(run_id, seq))
            self._remove(*map(place_name, changes.forgotten))
            if changes.mark != old:
                self.index.marks.put(_STREAM, "", msgspec.msgpack.encode(changes.mark))
            for item, seqs in zip(news, changes.searchable, strict=True):
                self._apply_run(item, seqs)
            is_complete = self._apply_vectors(vectors, model)
        self._state, self._compared_at = state, self.index.generation
        return is_complete

    def _compare(self, state: State, old: StreamMark | None, news: Sequence[News]) -> _Changes:
        """Compare the index with the state.

        This runs under the subject's lock, so the slow changes to the index are made later.
        """
        searchable = [
            frozenset(event.seq for event in item.snapshot.log if state.may_find(*item.run_id, event.seq))
            if item.snapshot is not None
            else frozenset[int]()
            for item in news
        ]
        forgotten = [*state.forgotten, *state.in_runs]
        digest = blake2b(
            msgspec.msgpack.encode((sorted(forgotten), sorted(state.until.items()))), digest_size=16
        ).digest()
        mark = StreamMark(state.first_seq, state.version, digest)
        if state is self._state and mark == old and self._compared_at == self.index.generation:
            return _Changes(mark, [], [], [], [], [], searchable)
        digests = self.index.marks.of(_RECORDS)
        is_equal = old is not None and old.forgotten == digest
        unlinked: list[RunId] = []
        if state is not self._state:  # a state never unlinks a run
            linked = set(map(_run_name, state.linked))
            unlinked = [_run_id(name) for name in self.index.marks.of(_RUNS) if name not in linked]
        return _Changes(
            mark,
            [record for record in digests if record not in state.records],
            [
                (copy(live), digest)
                for record, live in state.records.items()
                if digests.get(record) != (digest := self._digest(live))
            ],
            [] if is_equal else [Evidence(*event) for event in forgotten],
            [] if is_equal else list(state.until.items()),
            unlinked,
            searchable,
        )

    def _digest(self, live: Live) -> bytes:
        """Return a digest of everything that the index holds of a record."""
        memory, digest = self._digests.get(live.id, (None, b""))
        if memory is not live.memory:
            digest = blake2b(msgspec.msgpack.encode((live.memory, record_name(live))), digest_size=16).digest()
            self._digests[live.id] = live.memory, digest
        return digest

    def _holds(self, run_id: RunId, known_head: RunHead | None) -> bool:
        """Return whether the index still holds a run up to the head that was known before the store was read."""
        head = self._reached(run_id).head
        return known_head is None or (head is not None and known_head.version <= head.version)

    def _drop_run(self, run_id: RunId) -> None:
        # Removal starts with the last document. Removing an earlier document moves all later ones.
        self._remove(*self.texts.of_run(run_id))

    def _apply_run(self, news: News, searchable: frozenset[int]) -> None:
        newer, run_id = news.snapshot, news.run_id
        reached = self._reached(run_id)
        if newer is None or news.from_start:
            self._drop_run(run_id)
            reached = NOTHING
        if newer is None:
            self._put_reached(run_id, Reached(None, read_in=self._refresh))
            return
        head = reached.head or UNREAD
        if newer.first_seq < head.first_seq:
            return  # the snapshot is older than the index: the run lost events after it was loaded
        new_head = RunHead(max(head.version, newer.last_seq), newer.first_seq)
        seq, event_id = (newer.log[-1].seq, newer.log[-1].event_id) if newer.log else (reached.seq, reached.event_id)
        if new_head.version == newer.last_seq:
            self._put_reached(run_id, Reached(new_head, seq, event_id, self._refresh))
        is_off = newer.meta.get("memory") is False
        if is_off:
            self._drop_run(run_id)
        elif newer.first_seq != head.first_seq:
            self._remove(*self.texts.of_run(run_id, newer.first_seq - 1))
        self._remove(*(place_name(Evidence(*run_id, seq)) for seq in sorted(newer.redactions, reverse=True)))
        for event in newer.log:
            if event.seq > head.version and not is_off and event.seq in searchable:
                message = message_of(*run_id, event)
                if message is not None:
                    self.texts.put(message_document(message), TextName("", *run_id, event.seq), message)

    def _put_reached(self, run_id: RunId, reached: Reached) -> None:
        self.index.marks.put(_RUNS, _run_name(run_id), msgspec.msgpack.encode(reached))

    def _remove(self, *documents: str) -> None:
        for document in documents:
            self._note_removed(self.texts.remove(document))

    def _note_removed(self, name: TextName | None) -> None:
        if name is not None:
            self.vectors.remove(name)

    def _apply_vectors(self, vectors: Snapshot | None, model: Model | None) -> bool:
        if vectors is None or model is None:
            return True
        self.use_model(model)
        if self.vectors.are_dropped(vectors, self.has_text):
            self.use_model(_NO_MODEL)  # which the next reading replaces
            return False
        fresh = self.vectors.apply(vectors, self.has_text)
        if fresh is None:
            return False
        for data in fresh:
            self.texts.put_vectors(name_of(data), data.model, data.dimension, data.vectors)
        return True


def _run_name(run_id: RunId) -> str:
    return msgspec.json.encode(run_id).decode()


def _run_id(name: str) -> RunId:
    return msgspec.json.decode(name, type=tuple[str, str])
