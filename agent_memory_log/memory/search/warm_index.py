"""One subject's recall index, kept warm: what is new in its records, and in the runs linked to it, goes in.

Needs the extra ``recall``. What the index finds is what a new one would find, read from nothing.

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
"""How many texts an embedder is given, and how many vectors are stored, at a time."""

_ATTEMPTS = 100

_T = TypeVar("_T")


class _Seen(msgspec.Struct, frozen=True):
    """What a state says: the records that are gone or new, and the messages that were forgotten or may be found."""

    version: int
    gone: list[str]
    lives: list[Live]
    forgotten: list[tuple[RunId, int]]
    found: list[frozenset[int]]


class _Made(msgspec.Struct, frozen=True):
    """How many texts got vectors, and what went wrong; None: what is stored has to be read before."""

    texts: int | None
    note: str = ""


class WarmIndex:
    """A subject's texts. Any number of tasks and threads may use one: it takes turns."""

    def __init__(self, subject: Subject) -> None:
        """Reads nothing yet."""
        self.subject = subject
        self._lock = threading.RLock()
        self._embedding = threading.Lock()
        self._clear()

    @contextmanager
    def _changing(self) -> Generator[None]:
        """Change what is indexed: all of it, or, where that is broken off, nothing is kept and all is read anew."""
        with self._lock:
            try:
                yield
            except BaseException:
                self._clear()
                raise

    def _look(self, do: Callable[[], _T]) -> Steps[_T]:
        """Do something short under the lock. Whoever holds that for long, as to index much, keeps no loop waiting."""
        if not self._lock.acquire(blocking=False):
            return (yield from work(lambda: self._do(do)))
        try:
            return do()
        finally:
            self._lock.release()

    def _do(self, do: Callable[[], _T]) -> _T:
        with self._lock:
            return do()

    def _clear(self) -> None:
        self._texts = IndexedTexts()
        self._state: State | None = None
        self._version = -1
        self._judged: object = None
        self._memories: dict[str, MemoryRemembered] = {}
        self._runs: dict[RunId, LinkedRun] = {}
        self._known: KnownRuns | None = None
        self._forget_vectors()

    def _forget_vectors(self) -> None:
        self._vectors = StoredVectors()

    def _is_there(self, name: TextName) -> bool:
        return self._texts.named(name) is not None

    def _use(self, embedder: Embedder) -> None:
        """Hold this embedder's vectors, and none of another's."""
        if self._texts.use_model(embedder.model, embedder.dimension):
            self._forget_vectors()

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        return self._texts.size

    def refresh(self, embedder: Embedder | None) -> Steps[None]:
        """Read what is new. Raises what ``Store.load_run`` raises."""
        is_done = False
        while not is_done:
            # Vectors first: whoever stored one had read what it is of, so whatever is read later knows that, or that
            # it is gone.
            vectors = None if embedder is None else (yield from self._read_vectors(embedder))
            yield from self.subject.refresh()
            runs = yield from self._look(self._linked)
            news = yield from read_new(runs)
            is_done = yield from self._look(lambda: self._is_current(news, vectors))  # noqa: B023  # done at once
            if not is_done:
                is_done = yield from work(lambda: self._take(runs, news, vectors, embedder))  # noqa: B023  # as above
        if embedder is not None:
            yield from self._drop_orphans()

    def _linked(self) -> KnownRuns:
        """The linked runs, and where each stood when read; of another state than before, everything is read anew."""
        state, linked = self.subject.ask(lambda state: (state, tuple(state.linked)))
        if state is not self._state:
            self._clear()
            self._state = state
        if self._known is None or self._known.places != linked:
            self._known = KnownRuns(linked, tuple(map(self._head, linked)))
        return self._known

    def _head(self, place: RunId) -> RunHead | None:
        run = self._runs.get(place)
        return UNREAD if run is None else run.head

    def _is_current(self, news: Sequence[News], vectors: Snapshot | None) -> bool:
        """Whether nothing of what was read has to be taken in."""
        state, version = self.subject.ask(lambda state: (state, state.version))
        if (
            state is not self._state
            or version != self._version
            or any(one.is_news(self._head(one.place)) for one in news)
        ):
            return False
        return vectors is None or not self._vectors.is_news(vectors)

    def _take(
        self,
        runs: KnownRuns,
        news: Sequence[News],
        vectors: Snapshot | None,
        embedder: Embedder | None,
    ) -> bool:
        """Take in what was read; False: another was faster, so read again."""
        with self._changing():
            if not all(self._holds(place, known) for place, known in runs):
                return False
            seen = self.subject.ask(lambda state: self._compare(state, news))
            if seen is None:
                return False
            for record in seen.gone:
                del self._memories[record]
                self._remove(record)
            for live in seen.lives:
                self._memories[live.id] = live.memory
                self._note_removed(self._texts.put(record_document(live), record_name(live)))
            for place, seq in reversed(seen.forgotten):
                self._remove(self._runs[place].ids.pop(seq))
            self._version = seen.version
            if news:
                self._known = None
            for one, seqs in zip(news, seen.found, strict=True):
                self._take_run(one, seqs)
            return self._take_vectors(vectors, embedder)

    def _compare(self, state: State, news: Sequence[News]) -> _Seen | None:
        """What the state says of it all; indexing is done later, as nobody can ask the subject meanwhile."""
        if state is not self._state:
            return None
        found = [
            frozenset(event.seq for event in one.snapshot.log if state.may_find(*one.place, event.seq))
            if one.snapshot is not None
            else frozenset[int]()
            for one in news
        ]
        if state.version == self._version:
            return _Seen(state.version, [], [], [], found)
        return _Seen(
            state.version,
            [record for record in self._memories if record not in state.records],
            [copy(live) for record, live in state.records.items() if self._memories.get(record) is not live.memory],
            self._newly_forgotten(state),
            found,
        )

    def _holds(self, place: RunId, known: RunHead | None) -> bool:
        """Whether what was ``known`` of a run before it was looked at is still there, and it has not ended since."""
        head = self._head(place)
        return known is None or (head is not None and known.version <= head.version)

    def _newly_forgotten(self, state: State) -> list[tuple[RunId, int]]:
        judged = (len(state.forgotten), dict(state.until), tuple(state.in_runs))
        if judged == self._judged:
            return []
        self._judged = judged
        return [(place, seq) for place, run in self._runs.items() for seq in run.ids if not state.may_find(*place, seq)]

    def _drop_run(self, place: RunId) -> None:
        run = self._runs.pop(place, None)
        if run is not None:
            # The last one first: to take out the first one of many moves all the others.
            for document in reversed(run.ids.values()):
                self._remove(document)

    def _take_run(self, news: News, found: frozenset[int]) -> None:
        newer, place = news.snapshot, news.place
        if newer is None or news.anew:
            self._drop_run(place)
        if newer is None:
            self._runs[place] = LinkedRun(None, {})
            return
        head = self._head(place) or UNREAD
        if newer.first_seq < head.first_seq:
            return  # read before the run was deleted, and late
        run = self._runs.setdefault(place, LinkedRun(None, {}))
        run.head = RunHead(max(head.version, newer.last_seq), newer.first_seq)
        is_off = newer.meta.get("memory") is False
        if is_off or newer.first_seq != head.first_seq:
            gone = [seq for seq in run.ids if seq < newer.first_seq or seq in newer.redactions or is_off]
        else:
            gone = sorted(newer.redactions.keys() & run.ids.keys())
        for seq in reversed(gone):
            self._remove(run.ids.pop(seq))
        for event in newer.log:
            if event.seq > head.version and not is_off and event.seq in found:
                message = message_of(*place, event)
                if message is not None:
                    document = message_document(message)
                    run.ids[event.seq] = document.id
                    self._texts.put(document, TextName("", *place, event.seq), message)

    def _remove(self, document: str) -> None:
        self._note_removed(self._texts.remove(document))

    def _note_removed(self, name: TextName | None) -> None:
        if name is not None:
            self._vectors.remove(name)

    def _read_vectors(self, embedder: Embedder) -> Steps[Snapshot]:
        after = yield from self._look(lambda: self._vectors_from(embedder))
        try:
            newer = yield from load(self.subject.agent, VECTORS_RUN, after, VECTOR_TYPES)
        except CursorOutOfRange:  # the store has forgotten everything
            yield from self._look(self._forget_vectors)
            newer = yield from load(self.subject.agent, VECTORS_RUN, 0, VECTOR_TYPES)
        return newer

    def _vectors_from(self, embedder: Embedder) -> int:
        self._use(embedder)
        return self._vectors.read_to

    def _take_vectors(self, vectors: Snapshot | None, embedder: Embedder | None) -> bool:
        if vectors is None or embedder is None:
            return True
        self._use(embedder)
        fresh = self._vectors.take(vectors, self._is_there)
        if fresh is None:
            return False
        for data in fresh:
            self._texts.put_vectors(name_of(data), data.model, data.dimension, data.vectors)
        return True

    def _drop_orphans(self) -> Steps[None]:
        """Redact the vectors of what is gone. Where that fails, whoever searches next tries again."""
        orphans = yield from self._look(lambda: self._vectors.orphans)
        if orphans:
            with suppress(AgentMemoryLogError):
                yield from redact(self.subject.agent, VECTORS_RUN, orphans, FORGOTTEN)
                yield from self._look(lambda: self._vectors.dropped(orphans))

    def embed_lacking(self, embedder: Embedder) -> Steps[str]:
        """Give every text its vectors, and store them; what went wrong, ``""`` where nothing did."""
        for _ in range(_ATTEMPTS):
            while True:
                made = yield from work(lambda: self._embed_some(embedder))
                # Also where it made none: a search that was cancelled may have made some, and not come to store them.
                yield from self._store_made(embedder)
                if not made.texts:
                    break
            if made.texts is not None:
                return made.note
            yield from self.refresh(embedder)
        return f"the embedder {embedder.model} has changed its model all the time, words alone were compared"

    def _embed_some(self, embedder: Embedder) -> _Made:
        # One at a time, so that no text goes to the embedder twice.
        with self._embedding:
            with self._lock:
                self._use(embedder)
                if not self._vectors.is_known:
                    return _Made(None)
                batch = self._texts.lacking(TEXTS_AT_ONCE)
            if not batch:
                return _Made(0)
            answer = embed(embedder, [text for _, text in batch], "document")
            found = answer.embeddings
            if found is None:
                return _Made(0, answer.note)
            with self._changing():
                for row, (name, _) in enumerate(batch):
                    packed = pack(found.pooled[row], None if found.tokens is None else found.tokens[row])
                    one = MemoryVectors(*answer.model, packed, name.seq, name.record, name.agent, name.run)
                    if self._texts.put_vectors(name, one.model, one.dimension, packed):
                        self._vectors.make(one)
            return _Made(len(batch))

    def _store_made(self, embedder: Embedder) -> Steps[None]:
        """Store vectors, so that no other process asks for them. It is no loss if that fails: the next search tries."""
        with suppress(AgentMemoryLogError):
            for _ in range(_ATTEMPTS):
                batch, version = yield from self._look(lambda: self._vectors.to_store())  # noqa: PLW0108  # it may be another by then
                if not batch:
                    break
                events = tuple(new_event(one) for one in batch)
                try:
                    result = yield from append(
                        self.subject.agent, VECTORS_RUN, events, expected_version=version, reserved=True
                    )
                except VersionConflict:
                    yield from self.refresh(embedder)
                    continue
                except StoreUnavailable:
                    raise
                except AgentMemoryLogError:  # what is refused once is refused again
                    yield from self._look(lambda: self._vectors.refuse(batch))  # noqa: B023  # done at once
                    raise
                yield from self._look(lambda: self._vectors.store(batch, result, version, self._is_there))  # noqa: B023  # done at once
                # What was forgotten since it was read: whoever forgot it may not have seen these vectors.
                yield from self.subject.refresh()
                yield from self._look(lambda: self._note_dead(batch))  # noqa: B023  # done at once
                yield from self._drop_orphans()

    def _note_dead(self, batch: Sequence[MemoryVectors]) -> None:
        names = list(map(name_of, batch))
        self._vectors.drop(self.subject.ask(lambda state: [one for one in names if not is_alive(state, one)]))

    def search(
        self, call: Search, now: datetime, embedded: Embedded | None
    ) -> list[tuple[DocumentHit, RunMessage | None]] | None:
        """The best texts, with the message of those that are one. None: all has to be read anew, so refresh first."""
        with self._lock:
            return None if self._version < 0 else self._texts.search(call, now, embedded)
