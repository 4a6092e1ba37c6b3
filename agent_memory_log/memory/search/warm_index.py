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
from typing import TypeVar

import msgspec

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
from agent_memory_log.memory.records.record import RunId
from agent_memory_log.memory.search.indexed_texts import IndexedTexts, message_document, record_document
from agent_memory_log.memory.search.linked_runs import UNREAD, KnownRuns, LinkedRun, News, read_new
from agent_memory_log.memory.search.packing import pack
from agent_memory_log.memory.search.stored_vectors import StoredVectors
from agent_memory_log.memory.stream.payloads import MemoryRemembered, MemoryVectors
from agent_memory_log.memory.stream.state import Live, State
from agent_memory_log.memory.stream.subjects import FORGOTTEN, Subject
from agent_memory_log.memory.stream.vectors import VECTOR_TYPES, TextName, is_alive, name_of, record_name
from agent_memory_log.recall import DocumentHit, Embedded, Embedder, embed
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, append, load, redact, work
from agent_memory_log.store import RunHead

TEXTS_AT_ONCE = 128
"""The most texts in one call of an embedder. Their vectors are then stored before the next call."""

_ATTEMPTS = 100

_T = TypeVar("_T")


class _Changes(msgspec.Struct, frozen=True):
    """The differences between the index and the subject's state.

    Attributes:
        version: The version of the state.
        removed: The ids of records that are no longer active.
        lives: The records that are new or changed.
        forgotten: The indexed messages that were forgotten.
        searchable: For each linked run in the news, the seqs of the new messages that may be searched.
    """

    version: int
    removed: list[str]
    lives: list[Live]
    forgotten: list[tuple[RunId, int]]
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

    def __init__(self, subject: Subject) -> None:
        """Start with an empty index. The first ``refresh`` reads the subject."""
        self.subject = subject
        self._lock = threading.RLock()
        self._embedding = threading.Lock()
        self._clear()

    @contextmanager
    def _changing(self) -> Generator[None]:
        """Change the index under the lock. If the change fails, clear the index, so that everything is read again."""
        with self._lock:
            try:
                yield
            except BaseException:
                self._clear()
                raise

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

    def _clear(self) -> None:
        self._texts = IndexedTexts()
        self._state: State | None = None
        self._version = -1
        self._forgetting: object = None
        self._memories: dict[str, MemoryRemembered] = {}
        self._runs: dict[RunId, LinkedRun] = {}
        self._known_runs: KnownRuns | None = None
        self._forget_vectors()

    def _forget_vectors(self) -> None:
        self._vectors = StoredVectors()

    def _has_text(self, name: TextName) -> bool:
        return self._texts.has(name)

    def _use_model(self, embedder: Embedder) -> None:
        """Hold only this embedder's vectors from now on."""
        if self._texts.use_model(embedder.model, embedder.dimension):
            self._forget_vectors()

    @property
    def size(self) -> int:
        """The approximate number of bytes of memory that the index takes."""
        return self._texts.size

    def refresh(self, embedder: Embedder | None) -> Steps[None]:
        """Read new records, messages and vectors. Raises the errors of ``Store.load_run``."""
        is_done = False
        while not is_done:
            # Vectors are read first. Their writer had read the text before, so the later reads see the text, or see
            # that it was removed.
            vectors = None if embedder is None else (yield from self._read_vectors(embedder))
            yield from self.subject.refresh()
            runs = yield from self._locked(self._linked)
            news = yield from read_new(runs)
            is_done = yield from self._locked(lambda: self._is_current(news, vectors))  # noqa: B023  # called at once
            if not is_done:
                is_done = yield from work(lambda: self._apply(runs, news, vectors, embedder))  # noqa: B023  # called at once
        if embedder is not None:
            yield from self._drop_orphans()

    def _linked(self) -> KnownRuns:
        """Return the linked runs with their last heads. If the subject has a new state, clear the index first."""
        state, linked = self.subject.ask(lambda state: (state, tuple(state.linked)))
        if state is not self._state:
            self._clear()
            self._state = state
        if self._known_runs is None or self._known_runs.run_ids != linked:
            self._known_runs = KnownRuns(linked, tuple(map(self._head, linked)))
        return self._known_runs

    def _head(self, run_id: RunId) -> RunHead | None:
        run = self._runs.get(run_id)
        return UNREAD if run is None else run.head

    def _is_current(self, news: Sequence[News], vectors: Snapshot | None) -> bool:
        """Return whether the index already contains everything that was read."""
        state, version = self.subject.ask(lambda state: (state, state.version))
        if (
            state is not self._state
            or version != self._version
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
            changes = self.subject.ask(lambda state: self._compare(state, news))
            if changes is None:
                return False
            for record in changes.removed:
                del self._memories[record]
                self._remove(record)
            for live in changes.lives:
                self._memories[live.id] = live.memory
                self._note_removed(self._texts.put(record_document(live), record_name(live)))
            for run_id, seq in reversed(changes.forgotten):
                self._remove(self._runs[run_id].ids.pop(seq))
            self._version = changes.version
            if news:
                self._known_runs = None
            for item, seqs in zip(news, changes.searchable, strict=True):
                self._apply_run(item, seqs)
            return self._apply_vectors(vectors, embedder)

    def _compare(self, state: State, news: Sequence[News]) -> _Changes | None:
        """Compare the index with the state. Returns None if the state has been replaced since it was indexed.

        This runs under the subject's lock, so the slow changes to the index are made later.
        """
        if state is not self._state:
            return None
        searchable = [
            frozenset(event.seq for event in item.snapshot.log if state.may_find(*item.run_id, event.seq))
            if item.snapshot is not None
            else frozenset[int]()
            for item in news
        ]
        if state.version == self._version:
            return _Changes(state.version, [], [], [], searchable)
        return _Changes(
            state.version,
            [record for record in self._memories if record not in state.records],
            [copy(live) for record, live in state.records.items() if self._memories.get(record) is not live.memory],
            self._newly_forgotten(state),
            searchable,
        )

    def _holds(self, run_id: RunId, known_head: RunHead | None) -> bool:
        """Return whether the index still holds a run up to the head that was known before the store was read."""
        head = self._head(run_id)
        return known_head is None or (head is not None and known_head.version <= head.version)

    def _newly_forgotten(self, state: State) -> list[tuple[RunId, int]]:
        forgetting = (len(state.forgotten), dict(state.until), tuple(state.in_runs))
        if forgetting == self._forgetting:
            return []
        self._forgetting = forgetting
        return [
            (run_id, seq) for run_id, run in self._runs.items() for seq in run.ids if not state.may_find(*run_id, seq)
        ]

    def _drop_run(self, run_id: RunId) -> None:
        run = self._runs.pop(run_id, None)
        if run is not None:
            # Removal starts with the last document. Removing an earlier document moves all later ones.
            for document in reversed(run.ids.values()):
                self._remove(document)

    def _apply_run(self, news: News, searchable: frozenset[int]) -> None:
        newer, run_id = news.snapshot, news.run_id
        if newer is None or news.from_start:
            self._drop_run(run_id)
        if newer is None:
            self._runs[run_id] = LinkedRun(None, {})
            return
        head = self._head(run_id) or UNREAD
        if newer.first_seq < head.first_seq:
            return  # the snapshot is older than the index: the run lost events after it was loaded
        run = self._runs.setdefault(run_id, LinkedRun(None, {}))
        run.head = RunHead(max(head.version, newer.last_seq), newer.first_seq)
        is_off = newer.meta.get("memory") is False
        if is_off or newer.first_seq != head.first_seq:
            removed = [seq for seq in run.ids if seq < newer.first_seq or seq in newer.redactions or is_off]
        else:
            removed = sorted(newer.redactions.keys() & run.ids.keys())
        for seq in reversed(removed):
            self._remove(run.ids.pop(seq))
        for event in newer.log:
            if event.seq > head.version and not is_off and event.seq in searchable:
                message = message_of(*run_id, event)
                if message is not None:
                    document = message_document(message)
                    run.ids[event.seq] = document.id
                    self._texts.put(document, TextName("", *run_id, event.seq), message)

    def _remove(self, document: str) -> None:
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
        with self._lock:
            return None if self._version < 0 else self._texts.search(call, now, embedded)
