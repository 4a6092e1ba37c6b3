"""One subject's recall index, kept warm: what is new in its records, and in the runs linked to it, goes in.

Needs the extra ``recall``. What the index finds is what a new one would find, read from nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from datetime import datetime

import msgspec

from agent_memory_log.errors import AgentMemoryLogError, CursorOutOfRange, RunExpired, VersionConflict
from agent_memory_log.events import new_event
from agent_memory_log.memory.asked import Asked
from agent_memory_log.memory.indexed_texts import IndexedTexts, message_document, record_document
from agent_memory_log.memory.messages import MESSAGE_TYPES, Message, message_of
from agent_memory_log.memory.packing import pack
from agent_memory_log.memory.payloads import MemoryRemembered, MemoryVectors
from agent_memory_log.memory.principals import VECTORS_RUN
from agent_memory_log.memory.recall import Embedder, Embeddings, embed
from agent_memory_log.memory.recall import Hit as Found
from agent_memory_log.memory.state import Live, Place, State
from agent_memory_log.memory.steps import Append, Load, Peek, Steps, append, each, load, peek, work
from agent_memory_log.memory.subjects import Subject
from agent_memory_log.memory.vectors import VECTOR_TYPES, TextName, drop_vectors, is_alive, name_of, record_name
from agent_memory_log.snapshot import Snapshot
from agent_memory_log.store import RunHead

TEXTS_AT_ONCE = 128
"""How many texts an embedder is given, and how many vectors are stored, at a time."""

_BATCH_BYTES = 2 * 1024 * 1024
_ATTEMPTS = 100


_UNREAD = RunHead(0, 0)
"""Where a run stands of which nothing was read: nowhere that a store would say."""


class _Run(msgspec.Struct):
    """A linked run: where it stood when it was read, None where it had expired; messages that can be found, by seq."""

    head: RunHead | None
    ids: dict[int, str]


class _Seen(msgspec.Struct, frozen=True):
    """What a state says: the records that are gone or new, and the messages that were forgotten or may be found."""

    version: int
    gone: list[str]
    lives: list[Live]
    forgotten: list[tuple[Place, int]]
    found: list[frozenset[int]]


class News(msgspec.Struct, frozen=True):
    """What was read of a linked run: ``snapshot`` is None where it expired; ``anew``: from its first event."""

    place: Place
    snapshot: Snapshot | None
    anew: bool = False


class WarmIndex:
    """A subject's texts. Any number of tasks and threads may use one: it takes turns."""

    def __init__(self, subject: Subject) -> None:
        """Reads nothing yet."""
        self.subject = subject
        self._lock = threading.RLock()
        self._embedding = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._texts = IndexedTexts()
        self._state: State | None = None
        self._version = -1
        self._judged: object = None
        self._told: dict[str, MemoryRemembered] = {}
        self._runs: dict[Place, _Run] = {}
        self._forget_vectors()

    def _forget_vectors(self) -> None:
        self._vectors_read = 0
        self._stored: dict[TextName, dict[int, str]] = {}
        self._removed: list[TextName] = []

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
        while True:
            # Vectors first: whoever stored one had read what it is of, so whatever is read later knows that, or that
            # it is gone.
            vectors = None if embedder is None else (yield from self._read_vectors(embedder))
            yield from self.subject.refresh()
            places = self._places()
            news = yield from _read_new(places)
            if (
                not (vectors is not None and self._has_vector_news(vectors))
                and not any(map(self._is_news, news))
                and self._is_current()
            ):
                return
            taken = yield from work(lambda: self._take(places, news, vectors, embedder))  # noqa: B023  # done at once
            if taken is not None:
                yield from drop_vectors(self.subject, taken)
                return

    def _places(self) -> list[tuple[Place, RunHead | None]]:
        """The linked runs, and where each stood when read; of another state than before, everything is read anew."""
        state, linked = self.subject.ask(lambda state: (state, tuple(state.linked)))
        with self._lock:
            if state is not self._state:
                self._clear()
                self._state = state
            return [(place, self._head(place)) for place in linked]

    def _head(self, place: Place) -> RunHead | None:
        run = self._runs.get(place)
        return _UNREAD if run is None else run.head

    def _is_news(self, news: News) -> bool:
        with self._lock:
            head = self._head(news.place)
        newer = news.snapshot
        if head is None or newer is None or news.anew:
            return head is not None or newer is not None
        return newer.last_seq > head.version or newer.first_seq != head.first_seq

    def _is_current(self) -> bool:
        state, version = self.subject.ask(lambda state: (state, state.version))
        with self._lock:
            return state is self._state and version == self._version

    def _take(
        self,
        places: Sequence[tuple[Place, RunHead | None]],
        news: Sequence[News],
        vectors: Snapshot | None,
        embedder: Embedder | None,
    ) -> tuple[int, ...] | None:
        """Take in what was read; the seqs of vectors of what is gone. None: another was faster, so read again."""
        with self._lock:
            if not all(self._holds(place, known) for place, known in places):
                return None
            seen = self.subject.ask(lambda state: self._look(state, news))
            if seen is None:
                return None
            for record in seen.gone:
                del self._told[record]
                self._remove(record)
            for live in seen.lives:
                self._told[live.id] = live.told
                self._note_removed(self._texts.put(record_document(live), record_name(live)))
            for place, seq in seen.forgotten:
                self._remove(self._runs[place].ids.pop(seq))
            self._version = seen.version
            for one, seqs in zip(news, seen.found, strict=True):
                self._take_run(one, seqs)
            return self._take_vectors(vectors, embedder)

    def _look(self, state: State, news: Sequence[News]) -> _Seen | None:
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
            [record for record in self._told if record not in state.records],
            [copy(live) for record, live in state.records.items() if self._told.get(record) is not live.told],
            self._newly_forgotten(state),
            found,
        )

    def _holds(self, place: Place, known: RunHead | None) -> bool:
        """Whether what was ``known`` of a run before it was looked at is still there, and it has not ended since."""
        head = self._head(place)
        return known is None or (head is not None and known.version <= head.version)

    def _newly_forgotten(self, state: State) -> list[tuple[Place, int]]:
        judged = (len(state.forgotten), dict(state.until))
        if judged == self._judged:
            return []
        self._judged = judged
        return [(place, seq) for place, run in self._runs.items() for seq in run.ids if not state.may_find(*place, seq)]

    def _drop_run(self, place: Place) -> None:
        run = self._runs.pop(place, None)
        if run is not None:
            for document in run.ids.values():
                self._remove(document)

    def _take_run(self, news: News, found: frozenset[int]) -> None:
        newer, place = news.snapshot, news.place
        if newer is None or news.anew:
            self._drop_run(place)
        if newer is None:
            self._runs[place] = _Run(None, {})
            return
        head = self._head(place) or _UNREAD
        if newer.first_seq < head.first_seq:
            return  # read before the run was deleted, and late
        run = self._runs.setdefault(place, _Run(None, {}))
        run.head = RunHead(max(head.version, newer.last_seq), newer.first_seq)
        is_off = newer.meta.get("memory") is False
        for seq in [seq for seq in run.ids if seq < newer.first_seq or seq in newer.redactions or is_off]:
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
        if name is not None and name in self._stored:
            self._removed.append(name)

    def _read_vectors(self, embedder: Embedder) -> Steps[Snapshot]:
        with self._lock:
            self._use(embedder)
            after = self._vectors_read
        try:
            newer = yield from load(Load(self.subject.agent, VECTORS_RUN, after, VECTOR_TYPES))
        except CursorOutOfRange:  # the store has forgotten everything
            with self._lock:
                self._forget_vectors()
            newer = yield from load(Load(self.subject.agent, VECTORS_RUN, 0, VECTOR_TYPES))
        return newer

    def _has_vector_news(self, vectors: Snapshot) -> bool:
        with self._lock:
            return vectors.last_seq > self._vectors_read or vectors.after > self._vectors_read

    def _take_vectors(self, vectors: Snapshot | None, embedder: Embedder | None) -> tuple[int, ...] | None:
        if vectors is None or embedder is None:
            return ()
        self._use(embedder)
        if vectors.after > self._vectors_read:
            return None
        if vectors.redactions:
            for seqs in self._stored.values():
                for seq in vectors.redactions.keys() & seqs.keys():
                    del seqs[seq]
        fresh = [(event.seq, event.data) for event in vectors.log if event.seq > self._vectors_read]
        orphans = [seq for seq, data in fresh if isinstance(data, MemoryVectors) and not self._take_stored(seq, data)]
        self._vectors_read = max(self._vectors_read, vectors.last_seq)
        for name in self._removed:
            if self._texts.named(name) is None:
                orphans.extend(self._stored.pop(name, {}))
        self._removed.clear()
        return tuple(sorted(orphans))

    def _take_stored(self, seq: int, data: MemoryVectors) -> bool:
        """Take in the vectors of a text; False if there is no such text any longer."""
        name = name_of(data)
        if self._texts.named(name) is None:
            return False
        self._stored.setdefault(name, {})[seq] = data.model
        self._texts.put_vectors(name, data.model, data.dimension, data.vectors)
        return True

    def embed_lacking(self, embedder: Embedder) -> Steps[str]:
        """Give every text its vectors, and store them; what went wrong, ``""`` where nothing did."""
        while True:
            made = yield from work(lambda: self._embed_some(embedder))
            if isinstance(made, str):
                return made
            if not made:
                return ""
            yield from self._store(made, embedder)

    def _embed_some(self, embedder: Embedder) -> list[MemoryVectors] | str:
        # One at a time, so that no text goes to the embedder twice.
        with self._embedding:
            with self._lock:
                self._use(embedder)
                batch = self._texts.lacking(TEXTS_AT_ONCE)
            answer = embed(embedder, [text for _, text in batch], "document")
            found = answer.embeddings
            if found is None:
                return answer.note
            made: list[MemoryVectors] = []
            with self._lock:
                for row, (name, _) in enumerate(batch):
                    packed = pack(found.pooled[row], None if found.tokens is None else found.tokens[row])
                    one = MemoryVectors(
                        embedder.model, embedder.dimension, packed, name.seq, name.record, name.agent, name.run
                    )
                    made.append(one)
                    self._texts.put_vectors(name, one.model, one.dimension, packed)
            return made

    def _store(self, made: Sequence[MemoryVectors], embedder: Embedder) -> Steps[None]:
        """Store vectors, so that no other process asks for them. It is no loss if that fails: they are at hand here."""
        left = list(made)
        with suppress(AgentMemoryLogError):
            for _ in range(_ATTEMPTS):
                batch = _first(left)
                if not batch:
                    break
                with self._lock:
                    version = self._vectors_read
                events = tuple(new_event(one) for one in batch)
                try:
                    result = yield from append(Append(self.subject.agent, VECTORS_RUN, events, version))
                except VersionConflict:
                    yield from self.refresh(embedder)
                    with self._lock:
                        left = [one for one in left if one.model not in self._stored.get(name_of(one), {}).values()]
                    continue
                left = left[len(batch) :]
                with self._lock:
                    for event, data in zip(result.events, batch, strict=True):
                        self._stored.setdefault(name_of(data), {})[event.seq] = data.model
                    if self._vectors_read == version:
                        self._vectors_read = result.version
                # What was forgotten since it was read: whoever forgot it may not have seen these vectors.
                yield from self.subject.refresh()
                dead = self.subject.ask(
                    lambda state: [one for one in batch if not is_alive(state, name_of(one))]  # noqa: B023  # asked at once
                )
                if dead:
                    with self._lock:
                        seqs = [seq for one in dead for seq in self._stored.pop(name_of(one), {})]
                    yield from drop_vectors(self.subject, tuple(sorted(seqs)))

    def search(
        self, asked: Asked, now: datetime, embedded: Embeddings | None
    ) -> list[tuple[Found, Message | None]] | None:
        """The best texts, with the message of those that are one. None: all has to be read anew, so refresh first."""
        with self._lock:
            return None if self._version < 0 else self._texts.search(asked, now, embedded)


def _first(vectors: Sequence[MemoryVectors]) -> list[MemoryVectors]:
    """As many as one append takes."""
    size = 0
    for count, one in enumerate(vectors):
        size += len(one.vectors)
        if count and size > _BATCH_BYTES:
            return list(vectors[:count])
    return list(vectors)


def _read_new(places: Sequence[tuple[Place, RunHead | None]]) -> Steps[list[News]]:
    """What is new in linked runs. Those that stand where they did are left out, if the store can tell by one look."""
    known = [one for one in places if one[1] is not _UNREAD]
    heads = (yield from peek(Peek(tuple([place for place, _ in known])))) if known else None
    if heads is not None:
        unread = [one for one in places if one[1] is _UNREAD]
        places = [one for one, head in zip(known, heads, strict=True) if one[1] != head] + unread
    if not places:
        return []
    return (yield from each(_read(place, 0 if head is None else head.version) for place, head in places))


def _read(place: Place, after: int) -> Steps[News]:
    """What is new in a linked run."""
    try:
        newer = yield from load(Load(*place, after, MESSAGE_TYPES))
    except RunExpired:
        return News(place, None)
    except CursorOutOfRange:  # the store has forgotten it
        newer = yield from load(Load(*place, 0, MESSAGE_TYPES))
        return News(place, newer, anew=True)
    return News(place, newer)
