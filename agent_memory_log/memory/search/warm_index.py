"""Keeps one subject's recall index up to date with its records and with the messages of its linked runs.

Needs the extra ``recall``. A warm index returns the same results as an index that is built from the whole store.

A refresh reads the vectors before the records and runs, so that a vector of an unknown text belongs to a removed text.
The lock of the index is always taken before the lock of the subject.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import datetime
from hashlib import blake2b, sha256
from typing import TypeVar

import msgspec

from agent_memory_log.capabilities import IndexFolder
from agent_memory_log.errors import (
    AgentMemoryLogError,
    CursorOutOfRange,
    StoreUnavailable,
    VersionConflict,
)
from agent_memory_log.events.event import new_event
from agent_memory_log.memory.operations import Search
from agent_memory_log.memory.records.messages import RunMessage, message_of
from agent_memory_log.memory.records.principals import VECTORS_RUN
from agent_memory_log.memory.records.record import Evidence, RunId, place_name
from agent_memory_log.memory.search.indexed_texts import IndexedTexts, message_document, record_document
from agent_memory_log.memory.search.linked_runs import UNREAD, KnownRuns, News, read_new
from agent_memory_log.memory.search.packing import pack
from agent_memory_log.memory.search.stored_vectors import StoredVectors
from agent_memory_log.memory.stream.payloads import MemoryRemembered, MemoryVectors
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.stream.subjects import FORGOTTEN, Subject
from agent_memory_log.memory.stream.vectors import VECTOR_TYPES, TextName, is_alive, name_of, record_name
from agent_memory_log.recall import DocumentHit, Embedded, Embedder, IndexFile, IndexLost, RecallIndex, embed
from agent_memory_log.recall.index.database import FORMAT
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, append, load, redact, work
from agent_memory_log.store import RunHead

TEXTS_AT_ONCE = 128
"""The most texts in one call of an embedder. Their vectors are then stored before the next call."""

_ATTEMPTS = 100

_STREAM, _RUNS, _RECORDS = "stream", "runs", "records"
"""The spaces of the marks: the stream's mark, the head of each run that was read, and a digest of each record."""

_T = TypeVar("_T")


class _StreamMark(msgspec.Struct, frozen=True, array_like=True):
    """What the index holds of the subject's stream.

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

    mark: _StreamMark
    removed: list[str]
    lives: list[tuple[Live, bytes]]
    forgotten: list[Evidence]
    forgotten_up_to: list[tuple[RunId, int]]
    unlinked: list[RunId]
    searchable: list[frozenset[int]]


class _EmbeddedBatch(msgspec.Struct, frozen=True):
    """The result of embedding one batch.

    Attributes:
        texts: The number of texts that got vectors. None: the stored vectors must be read first.
        note: The reason of a failure, or ``""``.
    """

    texts: int | None
    note: str = ""


class WarmIndex:
    """The index of a subject's texts. Tasks and threads may share it, because a lock protects it."""

    def __init__(self, subject: Subject, folder: IndexFolder | None) -> None:
        """Open the index in a file of ``folder``, or make one in memory for None. ``refresh`` reads the subject."""
        self.subject = subject
        self._index = RecallIndex(None if folder is None else index_file(folder, subject.agent))
        self._texts = IndexedTexts(self._index)
        self._lock = self._index.lock
        self._embedding = threading.Lock()
        self._forget()

    @contextmanager
    def _changing(self) -> Generator[None]:
        """Change the index under the lock. If the change fails, clear the index, so that everything is read again."""
        with self._lock:
            try:
                with self._index.changing():
                    yield
            except BaseException:
                self._forget()
                if not self._index.has_file:  # a file has kept nothing of the change
                    self._index.clear()
                raise

    @contextmanager
    def _reading(self) -> Generator[None]:
        with self._lock, self._index.reading():
            yield

    def _locked(self, do: Callable[[], _T]) -> Steps[_T]:
        """Call a short function under the lock. If the lock is taken, a worker thread waits, not the event loop."""
        if not self._lock.acquire(blocking=False):
            return (yield from work(lambda: self._wait_for_lock(do)))
        try:
            return do()
        finally:
            self._lock.release()

    def _wait_for_lock(self, do: Callable[[], _T]) -> _T:
        with self._lock:
            return do()

    def _forget(self) -> None:
        """Forget what was compared with the index, because the index has changed or was lost."""
        self._state: State | None = None
        self._digests: dict[str, tuple[MemoryRemembered, bytes]] = {}
        self._known_runs: KnownRuns | None = None
        self._known_at = -1
        self._forget_vectors()

    def _clear(self) -> None:
        self._forget()
        self._index.clear()

    def _forget_vectors(self) -> None:
        self._vectors = StoredVectors()

    def _has_text(self, name: TextName) -> bool:
        with self._reading():
            return self._texts.has(name)

    def _use_model(self, embedder: Embedder) -> None:
        """Hold only this embedder's vectors from now on."""
        if self._index.model != (embedder.model, embedder.dimension):
            with self._changing():
                self._texts.use_model(embedder.model, embedder.dimension)
            self._forget_vectors()

    @property
    def size(self) -> int:
        """The approximate number of bytes of memory that the index takes."""
        return self._index.size

    def refresh(self, embedder: Embedder | None) -> Steps[None]:
        """Read new records, messages and vectors. Raises the errors of ``Store.load_run``."""
        is_done = False
        while not is_done:
            try:
                is_done = yield from self._refresh(embedder)
            except IndexLost:
                yield from self._locked(self._forget)
        if embedder is not None:
            yield from self._drop_orphans()
        if self._index.may_hold_erased:
            yield from work(self._scrub)

    def _scrub(self) -> None:
        with self._lock, suppress(IndexLost):
            self._index.scrub()

    def _refresh(self, embedder: Embedder | None) -> Steps[bool]:
        """Read something new. Returns whether there was nothing else."""
        # Vectors are read first. Their writer had read the text before, so the later reads see the text, or see
        # that it was removed.
        vectors = None if embedder is None else (yield from self._read_vectors(embedder))
        mark = yield from self._locked(self._mark)
        yield from self.subject.refresh()
        runs = yield from self._locked(lambda: self._linked(mark))
        new = yield from read_new(runs)
        if (yield from self._locked(lambda: self._is_current(new.news, vectors))):
            return new.is_complete
        is_applied = yield from work(lambda: self._apply(runs, new.news, vectors, embedder))
        return is_applied and new.is_complete

    def _mark(self) -> _StreamMark | None:
        with self._reading():
            return self._stored_mark()

    def _stored_mark(self) -> _StreamMark | None:
        data = self._index.marks.of(_STREAM).get("")
        return None if data is None else msgspec.msgpack.decode(data, type=_StreamMark)

    def _linked(self, mark: _StreamMark | None) -> KnownRuns:
        """Return the linked runs with their last heads.

        ``mark`` is older than the state. If it is not, the index is of another stream, and is cleared.
        """
        first_seq, version, linked = self.subject.ask(
            lambda state: (state.first_seq, state.version, tuple(state.linked))
        )
        if mark is not None and (mark.first_seq != first_seq or mark.version > version):
            self._clear()
        with self._reading():
            if (
                self._known_runs is None
                or self._known_runs.run_ids != linked
                or self._known_at != self._index.generation
            ):
                self._known_runs = KnownRuns(linked, tuple(map(self._head, linked)))
                self._known_at = self._index.generation
        return self._known_runs

    def _head(self, run_id: RunId) -> RunHead | None:
        data = self._index.marks.of(_RUNS).get(_run_name(run_id))
        return UNREAD if data is None else msgspec.msgpack.decode(data, type=RunHead | None)

    def _is_current(self, news: Sequence[News], vectors: Snapshot | None) -> bool:
        """Return whether the index already contains everything that was read."""
        state, version = self.subject.ask(lambda state: (state, state.version))
        with self._reading():
            mark = self._stored_mark()
            if (
                state is not self._state
                or mark is None
                or version != mark.version
                or any(item.is_newer_than(self._head(item.run_id)) for item in news)
            ):
                return False
        return vectors is None or not self._vectors.needs(vectors)

    def _apply(
        self,
        runs: KnownRuns,
        news: Sequence[News],
        vectors: Snapshot | None,
        embedder: Embedder | None,
    ) -> bool:
        """Apply everything that was read.

        Returns False if the index or the state changed meanwhile. The caller then reads everything again.
        """
        with self._changing():
            if not all(self._holds(run_id, head) for run_id, head in runs):
                return False
            old = self._stored_mark()
            state, changes = self.subject.ask(lambda state: (state, self._compare(state, old, news)))
            if old is not None and old.version > changes.mark.version:
                return False
            for record in changes.removed:
                self._index.marks.remove(_RECORDS, record)
                self._remove(record)
            for live, digest in changes.lives:
                self._index.marks.put(_RECORDS, live.id, digest)
                self._note_removed(self._texts.put(record_document(live), record_name(live)))
            for run_id in changes.unlinked:
                self._drop_run(run_id)
                self._index.marks.remove(_RUNS, _run_name(run_id))
            for run_id, seq in changes.forgotten_up_to:
                self._remove(*self._texts.of_run(run_id, seq))
            self._remove(*map(place_name, changes.forgotten))
            if changes.mark != old:
                self._index.marks.put(_STREAM, "", msgspec.msgpack.encode(changes.mark))
            for item, seqs in zip(news, changes.searchable, strict=True):
                self._apply_run(item, seqs)
            is_complete = self._apply_vectors(vectors, embedder)
            self._state = state
        return is_complete

    def _compare(self, state: State, old: _StreamMark | None, news: Sequence[News]) -> _Changes:
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
        mark = _StreamMark(state.first_seq, state.version, digest)
        if state is self._state and mark == old:
            return _Changes(mark, [], [], [], [], [], searchable)
        known = self._index.marks.of(_RECORDS)
        is_equal = old is not None and old.forgotten == digest
        linked = set(map(_run_name, state.linked))
        return _Changes(
            mark,
            [record for record in known if record not in state.records],
            [
                (copy(live), digest)
                for record, live in state.records.items()
                if known.get(record) != (digest := self._digest(live))
            ],
            [] if is_equal else [Evidence(*event) for event in forgotten],
            [] if is_equal else list(state.until.items()),
            [_run_id(name) for name in self._index.marks.of(_RUNS) if name not in linked],
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
        head = self._head(run_id)
        return known_head is None or (head is not None and known_head.version <= head.version)

    def _drop_run(self, run_id: RunId) -> None:
        # Removal starts with the last document. Removing an earlier document moves all later ones.
        self._remove(*self._texts.of_run(run_id))

    def _apply_run(self, news: News, searchable: frozenset[int]) -> None:
        newer, run_id = news.snapshot, news.run_id
        head = self._head(run_id)
        if newer is None or news.from_start:
            self._drop_run(run_id)
            head = UNREAD
        if newer is None:
            self._index.marks.put(_RUNS, _run_name(run_id), msgspec.msgpack.encode(None))
            return
        head = head or UNREAD
        if newer.first_seq < head.first_seq:
            return  # the snapshot is older than the index: the run lost events after it was loaded
        new_head = RunHead(max(head.version, newer.last_seq), newer.first_seq)
        self._index.marks.put(_RUNS, _run_name(run_id), msgspec.msgpack.encode(new_head))
        is_off = newer.meta.get("memory") is False
        if is_off:
            self._drop_run(run_id)
        elif newer.first_seq != head.first_seq:
            self._remove(*self._texts.of_run(run_id, newer.first_seq - 1))
        self._remove(*(place_name(Evidence(*run_id, seq)) for seq in sorted(newer.redactions, reverse=True)))
        for event in newer.log:
            if event.seq > head.version and not is_off and event.seq in searchable:
                message = message_of(*run_id, event)
                if message is not None:
                    self._texts.put(message_document(message), TextName("", *run_id, event.seq), message)

    def _remove(self, *documents: str) -> None:
        for document in documents:
            self._note_removed(self._texts.remove(document))

    def _note_removed(self, name: TextName | None) -> None:
        if name is not None:
            self._vectors.remove(name)

    def _read_vectors(self, embedder: Embedder) -> Steps[Snapshot]:
        after = yield from self._locked(lambda: self._vectors_from(embedder))
        try:
            newer = yield from load(self.subject.agent, VECTORS_RUN, after, VECTOR_TYPES)
        except CursorOutOfRange:  # the run was deleted, or the store lost its last events
            yield from self._locked(self._forget_vectors)
            newer = yield from load(self.subject.agent, VECTORS_RUN, 0, VECTOR_TYPES)
        return newer

    def _vectors_from(self, embedder: Embedder) -> int:
        self._use_model(embedder)
        return self._vectors.read_to

    def _apply_vectors(self, vectors: Snapshot | None, embedder: Embedder | None) -> bool:
        if vectors is None or embedder is None:
            return True
        self._use_model(embedder)
        fresh = self._vectors.apply(vectors, self._has_text)
        if fresh is None:
            return False
        for data in fresh:
            self._texts.put_vectors(name_of(data), data.model, data.dimension, data.vectors)
        return True

    def _drop_orphans(self) -> Steps[None]:
        """Redact the vectors of texts that are gone. If this fails, the next search tries again."""
        orphans = yield from self._locked(lambda: self._vectors.orphans)
        if orphans:
            with suppress(AgentMemoryLogError):
                yield from redact(self.subject.agent, VECTORS_RUN, orphans, FORGOTTEN)
                yield from self._locked(lambda: self._vectors.note_redacted(orphans))

    def embed_lacking(self, embedder: Embedder) -> Steps[str]:
        """Embed all texts without vectors, and store the vectors. Returns a note about a failure, or ``""``."""
        for _ in range(_ATTEMPTS):
            with suppress(IndexLost):
                while True:
                    batch = yield from work(lambda: self._embed_batch(embedder))
                    # Store even after an empty batch: a cancelled search may have left vectors that are not stored yet.
                    yield from self._store_vectors(embedder)
                    if not batch.texts:
                        break
                if batch.texts is not None:
                    return batch.note
            yield from self.refresh(embedder)
        return f"other searches kept replacing the embedding model {embedder.model}, words alone were compared"

    def _embed_batch(self, embedder: Embedder) -> _EmbeddedBatch:
        # Batches are embedded one after another, so that no text goes to the embedder twice.
        with self._embedding:
            with self._lock:
                self._use_model(embedder)
                if not self._vectors.is_read:
                    return _EmbeddedBatch(None)
                with self._reading():
                    batch = self._texts.without_vectors(TEXTS_AT_ONCE)
            if not batch:
                return _EmbeddedBatch(0)
            embedded = embed(embedder, [text for _, text in batch], "document")
            embeddings = embedded.embeddings
            if embeddings is None:
                return _EmbeddedBatch(0, embedded.note)
            with self._changing():
                for row, (name, _) in enumerate(batch):
                    packed = pack(embeddings.pooled[row], None if embeddings.tokens is None else embeddings.tokens[row])
                    vectors = MemoryVectors(*embedded.model, packed, name.seq, name.record, name.agent, name.run)
                    if self._texts.put_vectors(name, vectors.model, vectors.dimension, packed):
                        self._vectors.add(vectors)
            return _EmbeddedBatch(len(batch))

    def _store_vectors(self, embedder: Embedder) -> Steps[None]:
        """Store vectors, so that no other process embeds the texts again. If this fails, the next search retries."""
        with suppress(AgentMemoryLogError):
            for _ in range(_ATTEMPTS):
                batch, version = yield from self._locked(lambda: self._vectors.to_store())  # noqa: PLW0108  # _vectors may be replaced meanwhile
                if not batch:
                    break
                events = tuple(map(new_event, batch))
                try:
                    result = yield from append(
                        self.subject.agent, VECTORS_RUN, events, expected_version=version, reserved=True
                    )
                except VersionConflict:
                    yield from self.refresh(embedder)
                    continue
                except StoreUnavailable:
                    raise
                except AgentMemoryLogError:  # the store would refuse these events again
                    yield from self._locked(lambda: self._vectors.give_up(batch))  # noqa: B023  # called at once
                    raise
                yield from self._locked(lambda: self._vectors.note_stored(batch, result, version, self._has_text))  # noqa: B023  # called at once
                # A text may have been forgotten since it was read, by a writer that could not see these vectors.
                yield from self.subject.refresh()
                yield from self._locked(lambda: self._drop_forgotten(batch))  # noqa: B023  # called at once
                yield from self._drop_orphans()

    def _drop_forgotten(self, batch: Sequence[MemoryVectors]) -> None:
        names = list(map(name_of, batch))
        self._vectors.drop(self.subject.ask(lambda state: [name for name in names if not is_alive(state, name)]))

    def search(
        self, call: Search, now: datetime, embedded: Embedded | None
    ) -> list[tuple[DocumentHit, RunMessage | None]] | None:
        """Return the best texts, each with its message if it is one.

        Returns None if the index was cleared. ``refresh`` it and search again.
        """
        try:
            with self._reading():
                return None if self._stored_mark() is None else self._texts.search(call, now, embedded)
        except IndexLost:
            self._forget()
            return None


def index_file(folder: IndexFolder, agent: str) -> IndexFile:
    """Return the file of the index of the subject whose stream has this agent id.

    Subjects and releases have different files. The name tells nothing about the subject.
    """
    owner = sha256(agent.encode("utf-8", "surrogatepass")).hexdigest()
    return IndexFile(folder.path / f"{owner[:40]}-{FORMAT}.db", owner, folder.mode)


def _run_name(run_id: RunId) -> str:
    return msgspec.json.encode(run_id).decode()


def _run_id(name: str) -> RunId:
    return msgspec.json.decode(name, type=tuple[str, str])
