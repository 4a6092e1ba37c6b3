"""Keeps one subject's recall index up to date with its records and with the messages of its linked runs.

Needs the extra ``recall``. A warm index returns the same results as an index that is built from the whole store.

A refresh reads the vectors before the records and runs, so that a vector of an unknown text belongs to a removed text.
The lock of the index is always taken before the lock of the subject.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from agent_memory_log.errors import (
    AgentMemoryLogError,
    CursorOutOfRange,
    InvalidArgument,
    StoreUnavailable,
    VersionConflict,
)
from agent_memory_log.events.event import new_event
from agent_memory_log.events.fields import in_quotes
from agent_memory_log.memory.operations import Search
from agent_memory_log.memory.records.messages import RunMessage
from agent_memory_log.memory.records.principals import VECTORS_RUN
from agent_memory_log.memory.search.linked_runs import read_new, read_otherwise
from agent_memory_log.memory.search.packing import pack
from agent_memory_log.memory.search.subject_index import SubjectIndex
from agent_memory_log.memory.stream.payloads import MemoryVectors
from agent_memory_log.memory.stream.subjects import FORGOTTEN, Subject
from agent_memory_log.memory.stream.vectors import VECTOR_TYPES, TextName, is_alive, name_of
from agent_memory_log.recall import DocumentHit, Embedded, Embedder, IndexFile, IndexLost, embed
from agent_memory_log.recall.embedding import Model
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.steps import Steps, append, load, redact, work
from agent_memory_log.store import AppendResult

TEXTS_AT_ONCE = 128
"""The most texts in one call of an embedder. Their vectors are then stored before the next call."""

_ATTEMPTS = 100

_STREAM, _RUNS, _RECORDS = "stream", "runs", "records"
"""The spaces of the marks: the stream's mark, the head of each run that was read, and a digest of each record."""

_REPLACED = "other processes kept replacing the index or its model: try again"

_T = TypeVar("_T")


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

    def __init__(self, subject: Subject, file: IndexFile | None) -> None:
        """Open the index in ``file``, or make one in memory for None. ``refresh`` reads the subject."""
        self.subject = subject
        self._contents = SubjectIndex(subject, file)
        self._lock = self._contents.index.lock
        self._embedding = threading.Lock()

    @contextmanager
    def _changing(self) -> Generator[None]:
        """Change the index under the lock. See ``SubjectIndex.changing``."""
        with self._lock, self._contents.changing():
            yield

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Read the index under the lock."""
        with self._lock, self._contents.index.reading():
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

    def _change(self, do: Callable[[], _T]) -> Steps[_T]:
        """Call a function that changes the index."""

        def change() -> _T:
            with self._changing():
                return do()

        return (yield from work(change))

    @property
    def size(self) -> int:
        """The approximate number of bytes of memory that the index takes."""
        return self._contents.index.size

    def version(self) -> int:
        """Return the version of the stream that the index has read, or 0 if it has read nothing."""
        try:
            with self._lock:
                mark = self._contents.mark()
        except IndexLost:
            return 0
        return 0 if mark is None else mark.version

    def close(self) -> Path | None:
        """Close the index. Return its file if it certainly holds nothing that was erased, otherwise None."""
        with self._lock:
            index = self._contents.index
            file = None if index.file is None or index.may_hold_erased else index.file.path
            index.close()
        return file

    def refresh(self, model: Model | None) -> Steps[None]:
        """Read new records, messages and the vectors of a model. Raises the errors of ``Store.load_run``."""
        is_done = False
        yield from self._locked(self._contents.begin_refresh)
        while not is_done:
            try:
                is_done = yield from self._refresh(model)
            except IndexLost:
                yield from self._locked(self._contents.forget)
        with suppress(IndexLost):  # the next search finds it
            if model is not None:
                yield from self._drop_orphans()
            if self._contents.index.may_hold_erased:
                yield from work(lambda: self._wait_for_lock(self._contents.index.scrub))

    def _refresh(self, model: Model | None) -> Steps[bool]:
        """Read something new. Returns whether there was nothing else."""
        # Vectors are read first. Their writer had read the text before, so the later reads see the text, or see
        # that it was removed.
        vectors = None if model is None else (yield from self._read_vectors(model))
        mark = yield from work(lambda: self._wait_for_lock(self._contents.mark))  # a file may have to be read
        yield from self.subject.refresh()
        runs = yield from self._locked(lambda: self._contents.linked(mark))
        if not self._contents.is_verified:
            replaced_runs = yield from read_otherwise(runs)
            if replaced_runs:
                yield from work(lambda: self._wait_for_lock(lambda: self._contents.drop_runs(replaced_runs)))
                return False
            self._contents.is_verified = True
        new = yield from read_new(runs)
        if (yield from self._locked(lambda: self._contents.is_current(new.news, vectors))):
            return new.is_complete

        def apply() -> bool:
            with self._lock:
                return self._contents.apply(runs, new.news, vectors, model)

        is_applied = yield from work(apply)
        return is_applied and new.is_complete

    def _read_vectors(self, model: Model) -> Steps[Snapshot]:
        after = yield from work(lambda: self._vectors_from(model))
        try:
            newer = yield from load(self.subject.agent, VECTORS_RUN, after, VECTOR_TYPES)
        except CursorOutOfRange:  # the run was deleted, or the store lost its last events
            yield from self._change(lambda: self._contents.vectors.clear())  # noqa: PLW0108  # may be replaced meanwhile
            newer = yield from load(self.subject.agent, VECTORS_RUN, 0, VECTOR_TYPES)
        return newer

    def _vectors_from(self, model: Model) -> int:
        with self._lock:
            self._contents.use_model(model)
            with self._reading():
                return self._contents.vectors.read_to

    def _drop_orphans(self) -> Steps[None]:
        """Redact the vectors of texts that are gone. If this fails, the next search tries again."""
        orphans = yield from self._locked(self._orphans)
        if orphans:
            with suppress(AgentMemoryLogError):
                yield from redact(self.subject.agent, VECTORS_RUN, orphans, FORGOTTEN)
                yield from self._change(lambda: self._contents.vectors.note_redacted(orphans))

    def _orphans(self) -> tuple[int, ...]:
        with self._reading():
            return self._contents.vectors.orphans

    def embed_lacking(self, embedder: Embedder) -> Steps[str]:
        """Embed all texts without vectors, and store the vectors. Returns a note about a failure, or ``""``."""
        model = (embedder.model, embedder.dimension)
        for _ in range(_ATTEMPTS):
            with suppress(IndexLost):
                while True:
                    batch = yield from work(lambda: self._embed_batch(embedder))
                    # Store even after an empty batch: a cancelled search may have left vectors that are not stored yet.
                    yield from self._store_vectors(model)
                    if not batch.texts:
                        break
                if batch.texts is not None:
                    return batch.note
            yield from self.refresh(model)
        return f"other searches kept replacing the embedding model {embedder.model}, words alone were compared"

    def _embed_batch(self, embedder: Embedder) -> _EmbeddedBatch:
        # Batches are embedded one after another, so that no text goes to the embedder twice.
        with self._embedding:
            with self._lock:
                self._contents.use_model((embedder.model, embedder.dimension))
                if not self._contents.vectors.is_read:
                    return _EmbeddedBatch(None)
                with self._reading():
                    batch = self._contents.texts.without_vectors(TEXTS_AT_ONCE)
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
                    if self._contents.texts.put_vectors(name, vectors.model, vectors.dimension, packed):
                        self._contents.vectors.add(vectors)
            return _EmbeddedBatch(len(batch))

    def _store_vectors(self, model: Model) -> Steps[None]:
        """Store vectors, so that no other process embeds the texts again. If this fails, the next search retries."""
        with suppress(AgentMemoryLogError):
            yield from self._append_vectors(model)

    def _append_vectors(self, model: Model) -> Steps[None]:
        for _ in range(_ATTEMPTS):
            batch, version = yield from self._locked(self._to_store)
            if not batch:
                break
            events = tuple(map(new_event, batch))
            try:
                result = yield from append(
                    self.subject.agent, VECTORS_RUN, events, expected_version=version, reserved=True
                )
            except VersionConflict:
                yield from self.refresh(model)
                continue
            except StoreUnavailable:
                raise
            except AgentMemoryLogError:  # the store would refuse these events again
                yield from self._locked(lambda: self._contents.vectors.give_up(batch))  # noqa: B023  # called at once
                raise
            yield from self._change(lambda: self._note_stored(batch, result, version))  # noqa: B023  # called at once
            # A text may have been forgotten since it was read, by a writer that could not see these vectors.
            yield from self.subject.refresh()
            yield from self._change(lambda: self._drop_forgotten(batch))  # noqa: B023  # called at once
            yield from self._drop_orphans()

    def check_model(self, model: Model) -> Steps[None]:
        """Check that the newest stored vectors are of a model. Raises ``InvalidArgument`` if they are of another."""
        newest = yield from load(self.subject.agent, VECTORS_RUN, types=VECTOR_TYPES, last=1)
        for event in newest.log:
            if isinstance(event.data, MemoryVectors) and (event.data.model, event.data.dimension) != model:
                raise InvalidArgument(
                    f"the memory has vectors of the model {in_quotes(event.data.model)} with the dimension "
                    f"{event.data.dimension}, and these are of {in_quotes(model[0])} with {model[1]}: use the same "
                    "embedder, or erase the old vectors with drop_vectors"
                )

    def lacking(self, model: Model, limit: int) -> Steps[list[tuple[TextName, str]]]:
        """Refresh, and return the first texts that have no vectors of a model, at most ``limit``.

        Raises ``InvalidArgument`` if the newest stored vectors are of another model.
        """
        yield from self.check_model(model)
        for _ in range(_ATTEMPTS):
            yield from self.refresh(model)
            with suppress(IndexLost):
                texts = yield from work(lambda: self._lacking(model, limit))
                if texts is not None:
                    return texts
        raise StoreUnavailable(_REPLACED)

    def _lacking(self, model: Model, limit: int) -> list[tuple[TextName, str]] | None:
        with self._reading():
            return self._contents.texts.without_vectors(limit) if self._contents.index.model == model else None

    def store(self, model: Model, vectors: Sequence[MemoryVectors]) -> Steps[int]:
        """Store vectors that a caller made. Returns the number of texts that got them.

        A text that the index does not hold, or that has vectors already, is left out.
        """
        for _ in range(_ATTEMPTS):
            yield from self.refresh(model)
            with suppress(IndexLost):
                stored = yield from self._change(lambda: self._put(model, vectors))
                if stored is not None:
                    yield from self._append_vectors(model)
                    return stored
        raise StoreUnavailable(_REPLACED)

    def _put(self, model: Model, vectors: Sequence[MemoryVectors]) -> int | None:
        if self._contents.index.model != model:
            return None
        stored = 0
        for data in vectors:
            name, contents = name_of(data), self._contents
            if not contents.vectors.has(name, model) and contents.texts.put_vectors(name, *model, data.vectors):
                contents.vectors.add(data)
                stored += 1
        return stored

    def _to_store(self) -> tuple[list[MemoryVectors], int]:
        with self._reading():
            return self._contents.vectors.to_store()

    def _note_stored(self, batch: Sequence[MemoryVectors], result: AppendResult, version: int) -> None:
        self._contents.vectors.note_stored(batch, result, version, self._contents.has_text)

    def _drop_forgotten(self, batch: Sequence[MemoryVectors]) -> None:
        names = list(map(name_of, batch))
        self._contents.vectors.drop(
            self.subject.ask(lambda state: [name for name in names if not is_alive(state, name)])
        )

    def search(
        self, call: Search, top_k: int, now: datetime, embedded: Embedded | None, *, changes: bool = False
    ) -> list[tuple[DocumentHit, RunMessage | None]] | None:
        """Return the best texts, each with its message if it is one.

        Returns None if the index was cleared. ``refresh`` it and search again.
        """
        try:
            with self._reading():
                return (
                    None
                    if self._contents.mark() is None
                    else self._contents.texts.search(call, top_k, now, embedded, changes=changes)
                )
        except IndexLost:
            with self._lock:
                self._contents.forget()
            return None
