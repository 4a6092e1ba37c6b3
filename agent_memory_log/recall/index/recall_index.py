"""The recall index, which holds documents in a file or in memory and returns the documents that match a question."""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import numpy as np

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.recall.analysis import analyse
from agent_memory_log.recall.documents import Document, DocumentHit
from agent_memory_log.recall.embedding import Embeddings
from agent_memory_log.recall.index.arguments import check_document, check_search
from agent_memory_log.recall.index.columns import Columns
from agent_memory_log.recall.index.conversations import Conversations, Place, properties_of
from agent_memory_log.recall.index.database import Database, IndexLost
from agent_memory_log.recall.index.database_format import IndexFile
from agent_memory_log.recall.index.documents import Documents
from agent_memory_log.recall.index.lexical import MOST_DOCUMENTS, LexicalIndex
from agent_memory_log.recall.index.marks import Marks
from agent_memory_log.recall.index.names import Names
from agent_memory_log.recall.index.vectors import VectorIndex
from agent_memory_log.recall.ranking.ranking import Filter, Ranking

_MOST_WAITING: Final = 8_192
"""The most added documents whose postings wait in memory."""


class RecallIndex:
    """An index of the documents of one subject. Not safe for concurrent use by several threads, except under ``lock``.

    The cost of adding or removing a document depends only on that document's length. Removing a document erases all
    of it, and its number goes to a later document.

    With a file, any number of processes may use the same index. ``changing`` and ``reading`` begin a transaction of
    several calls; a call outside of them is a transaction of its own. The properties of the documents, about 80
    bytes each, are in memory; texts, terms and token vectors are read when they are needed.
    """

    def __init__(self, file: IndexFile | None = None) -> None:
        """Open the index in ``file``, or make an empty index in memory."""
        self._database = Database(file)
        self.lock = self._database.lock
        self._generation = -1
        self._depth = 0
        self._writes = False
        self._reset()

    def _reset(self) -> None:
        """Forget everything that is in memory."""
        self._columns = Columns()
        self._speakers = Names(self._database, self._columns, "speaker", 1)
        self._kinds = Names(self._database, self._columns, "kind", 2)
        self._languages = Names(self._database, self._columns, "language", 3)
        self._sessions = Names(self._database, self._columns, "session", 4)
        self._lexical = LexicalIndex(self._database, self._columns)
        self._documents = Documents(self._database)
        self._conversations = Conversations(self._database, self._columns, self._documents, self._speakers)
        self._vectors = VectorIndex(self._database, self._columns)
        self._ranking = Ranking(
            self._columns,
            self._documents,
            self._lexical,
            self._conversations,
            self._vectors,
            self._kinds,
            self._languages,
        )
        self.marks = Marks(self._database)
        self._free: list[int] | None = None
        self._generation = -1

    def __len__(self) -> int:
        return int(np.count_nonzero(self._columns["alive"]))

    @property
    def size(self) -> int:
        """The approximate bytes of memory that the index takes."""
        return self._database.size + self._columns.size + self._vectors.size

    @property
    def file(self) -> IndexFile | None:
        """The index's file, or None if the index is in memory."""
        return self._database.file

    @property
    def model(self) -> tuple[str, int]:
        """The model of the vectors, and its dimension. They are ``""`` and 0 without a model."""
        return self._database.facts.model, self._database.facts.dimension

    @property
    def generation(self) -> int:
        """A number that changes with each change of any process. Ask for it in ``reading`` or ``changing``."""
        return self._database.facts.generation

    @contextmanager
    def reading(self) -> Generator[None]:
        """Make several calls in one view of the index.

        Raises:
            IndexLost: The file was damaged or removed, or cannot be used. The index is empty now.
        """
        with self._transaction(writes=False):
            yield

    @contextmanager
    def changing(self) -> Generator[None]:
        """Make several calls in one transaction. If the block raises an error, a file does not change.

        Raises:
            IndexLost: As ``reading``.
        """
        with self._transaction(writes=True):
            yield

    @contextmanager
    def _transaction(self, *, writes: bool) -> Generator[None]:
        if self._depth:
            if writes and not self._writes:
                raise AssertionError("call changing before reading, or after it")
            yield
            return
        self._depth, self._writes = 1, writes
        try:
            with self._database.changing() if writes else self._database.reading():
                self._catch_up()
                yield
                if writes and self._database.file is not None:
                    self._write()
            self._generation = self._database.facts.generation
        except IndexLost:
            self._reset()
            raise
        except BaseException:
            if writes and self._database.file is not None:
                self._reset()
            raise
        finally:
            self._depth = 0

    def _catch_up(self) -> None:
        """Read the changes of other processes."""
        if self._database.file is None or self._generation == self._database.generation_on_disk:
            return
        self._database.load_facts()
        facts = self._database.facts
        if facts.documents < self._columns.count:
            self._reset()
        sql = "SELECT id FROM blocks WHERE generation > ? ORDER BY id"
        for (number,) in self._database.execute(sql, (self._generation,)).fetchall():
            try:
                self._columns.put_block(number, self._database.read("blocks", number))
            except ValueError as error:
                raise self._database.damaged(str(error)) from error
            self._vectors.outdate(number)
        if self._columns.count != facts.documents or (
            self._generation < 0
            and self._database.execute("SELECT count(*) FROM blocks").fetchone() != (self._columns.blocks,)
        ):
            raise self._database.damaged("blocks are missing")
        names_read = sum(names.load() for names in (self._speakers, self._kinds, self._languages, self._sessions))
        if names_read != facts.names:
            raise self._database.damaged("names are missing")
        self._lexical.forget()
        self._conversations.forget()
        self.marks.forget()
        self._free = None
        self._generation = facts.generation

    def _write(self) -> None:
        self._lexical.write()
        self._database.facts.documents = self._columns.count
        for number in sorted(self._columns.changed):
            self._database.write_block(number, self._columns.block(number))
        self._columns.changed.clear()

    @property
    def may_hold_erased(self) -> bool:
        """True if ``scrub`` has something to erase."""
        return self._database.file is not None and self._database.facts.may_hold_erased

    def scrub(self) -> None:
        """Erase removed documents from the file and its log, unless a reader in another process prevents it.

        Raises:
            IndexLost: As ``reading``.
        """
        try:
            self._database.scrub()
        except IndexLost:
            self._reset()
            raise

    def clear(self) -> None:
        """Remove all documents and marks."""
        with self.changing():
            self._database.clear()
            self._reset()
            self._generation = self._database.facts.generation

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(self, document: Document, *, keep_vectors: bool = False) -> None:
        """Add a document. It replaces the document with the same id.

        Args:
            document: The document.
            keep_vectors: Whether the document has the same words as the one that it replaces, so that its vectors stay.

        Raises:
            InvalidArgument: A field is invalid, or the index is full. The index is unchanged.
        """
        check_document(document)
        with self.changing():
            old = self._documents.number_of(document.id)
            vectors = self._vectors.data_of(old) if keep_vectors and old is not None else None
            if old is not None:
                self._remove(old, document.id)
            if self._free is None:
                self._free = np.flatnonzero(~self._columns["alive"])[::-1].tolist()
            number = self._free.pop() if self._free else self._columns.count
            if number >= MOST_DOCUMENTS:
                raise InvalidArgument(
                    f"the index has {MOST_DOCUMENTS:,} documents, which is the limit; search fewer runs at a time"
                )
            self._add(number, document)
            if vectors is not None:
                self._vectors.put_data(number, *vectors)

    def _add(self, number: int, document: Document) -> None:
        analysis = analyse(document.text, document.time)
        terms, length = self._lexical.append(number, analysis.terms)
        session = self._sessions.take(document.session)
        self._columns.add(
            number,
            alive=True,
            kind=self._kinds.take(document.kind),
            language=self._languages.take(analysis.language),
            speaker=self._speakers.take(document.speaker),
            session=session,
            length=length,
            stars=document.importance,
            score_stars=0 if document.lasting else document.importance,
            confidence=document.confidence,
            expires=math.inf if document.expires is None else document.expires.timestamp(),
            **properties_of(document, analysis),
        )
        self._conversations.append(number, session, Place(document.position, document.id))
        self._documents.write(number, document, session, terms)
        if self._lexical.waiting >= _MOST_WAITING:
            self._lexical.write()

    def __contains__(self, document_id: str) -> bool:
        return self._documents.number_of(document_id) is not None

    def note_of(self, document_id: str) -> bytes | None:
        """Return the note of a document, or None if the index does not hold the document."""
        number = self._documents.number_of(document_id)
        return None if number is None else self._documents.read(number).note

    def ids_of(self, session: str, up_to: int = 2**63 - 1) -> list[str]:
        """Return the ids of the documents of a session with a position of at most ``up_to``, in their order."""
        number = self._sessions.find(session)
        return self._documents.ids_of(number, up_to) if number else []

    def remove(self, document_id: str) -> None:
        """Remove a document and its vectors. An unknown id is ignored."""
        with self.changing():
            number = self._documents.number_of(document_id)
            if number is not None:
                self._remove(number, document_id)
                self._database.facts.may_hold_erased = True

    def _remove(self, number: int, document_id: str) -> None:
        columns = self._columns
        stored = self._documents.read(number)
        if stored.id != document_id or number >= columns.count or not columns["alive"][number]:
            raise self._database.damaged(f"document {number} is another document")
        if self._free is not None:
            self._free.append(number)
        self._lexical.remove(number, stored.terms)
        self._vectors.remove(number)
        session, place = int(columns["session"][number]), Place(int(columns["position"][number]), document_id)
        for names, column in (
            (self._kinds, "kind"),
            (self._languages, "language"),
            (self._speakers, "speaker"),
            (self._sessions, "session"),
        ):
            names.release(int(columns[column][number]))
        columns.clear(number)
        self._documents.delete(number)
        self._conversations.remove(session, place)

    def use_model(self, model: str, dimension: int) -> bool:
        """Set the model of the vectors. Vectors of another model are removed, because they cannot be compared.

        Returns whether the model changed.
        """
        with self.changing():
            facts = self._database.facts
            if (model, dimension) == (facts.model, facts.dimension):
                return False
            self._vectors.use_model(model, dimension)
            return True

    def put_vectors(self, ids: Iterable[str], embeddings: Embeddings) -> None:
        """Set the vectors of documents. Unknown ids are ignored.

        Args:
            ids: The ids of the documents, in the order of the rows of ``embeddings``.
            embeddings: The vectors, made by the model that was passed to ``use_model``.

        Raises:
            InvalidArgument: ``use_model`` was not called, or the vectors have another dimension.
        """
        with self.changing():
            self._check_vectors(embeddings)
            for row, document_id in enumerate(ids):
                number = self._documents.number_of(document_id)
                if number is not None:
                    tokens = None if embeddings.tokens is None else embeddings.tokens[row]
                    self._vectors.put(number, embeddings.pooled[row], tokens)

    def without_vectors(self, limit: int) -> list[tuple[str, bytes]]:
        """Return the ids and notes of the first documents without vectors, at most ``limit``."""
        lacking = np.flatnonzero(self._columns["alive"] & (self._columns["vectors"] == 0))[:limit]
        return [(stored.id, stored.note) for stored in map(self._documents.read, lacking.tolist())]

    def _check_vectors(self, embeddings: Embeddings) -> None:
        if not self._vectors.dimension:
            raise InvalidArgument(
                "the index has no model; call use_model before put_vectors and before a search with vectors"
            )
        if embeddings.pooled.ndim != 2 or embeddings.pooled.shape[1] != self._vectors.dimension:  # noqa: PLR2004  # rows
            raise InvalidArgument(
                f"expected rows of {self._vectors.dimension} numbers for the model {self._database.facts.model}, "
                f"got vectors of shape {embeddings.pooled.shape}"
            )

    def search(
        self,
        query: str,
        *,
        now: datetime,
        top_k: int = 10,
        kinds: Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_importance: float = 0,
        boost_preferences: Collection[str] = (),
        embedded: Embeddings | None = None,
        changes: bool = False,
    ) -> list[DocumentHit]:
        """Return the documents that match ``query``, the best first.

        Documents with equal scores are ordered by the score of their own words and vectors. Then newer documents come
        first, then documents later in their session, then documents with a smaller id. If the query has no word and
        no vectors, only documents with a key of ``boost_preferences`` are returned.

        Args:
            query: The question, in any language.
            now: The time of the question. Relative dates such as "yesterday" count from it. Documents that expired
                by this time are not returned.
            top_k: The largest number of hits.
            kinds: Only documents of these kinds are returned. None allows every kind.
            since: Only documents from this time on are returned. A document without a time is not returned.
            until: Only documents before this time are returned. A document without a time is not returned.
            min_importance: Only documents with at least this many stars are returned.
            boost_preferences: The keys whose documents gain ``PREFERENCE``.
            embedded: The vectors of the query, made by the model that was passed to ``use_model``.
            changes: Whether the documents that match are followed by the latest ones that may change what they say.

        Raises:
            InvalidArgument: ``top_k`` is below 1, a time has no time zone, or the vectors do not fit the index.
        """
        check_search(top_k, {"now": now, "since": since, "until": until})
        with self.reading():
            if embedded is not None:
                self._check_vectors(embedded)
            if self._database.file is None:
                self._lexical.write()
            return self._ranking.search(
                query, now, top_k, embedded, Filter(kinds, since, until, min_importance, boost_preferences, changes)
            )
