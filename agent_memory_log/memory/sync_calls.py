"""Made from ``calls.py`` by ``python -m tools.sync_twin``: the same without ``await``.

It works on a ``SyncStore``, and any number of threads may use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from agent_memory_log.memory.context import Context
from agent_memory_log.memory.index.query import checked_query
from agent_memory_log.memory.learning import deriving, links, remembering, writing
from agent_memory_log.memory.records.candidates import Candidate, several
from agent_memory_log.memory.records.kinds import Preference, RecordData
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.memory.records.protocols import (
    Extractor,
    Origin,
    Violation,
)
from agent_memory_log.memory.records.record import (
    DEFAULT_CONFIDENCE,
    DEFAULT_IMPORTANCE,
    Evidence,
    Link,
    Record,
    Source,
    Status,
)
from agent_memory_log.memory.records.reports import (
    CleanupReport,
    DeriveReport,
    Explanation,
    ForgetReport,
    Hits,
    LinkReport,
    MemoryContext,
    Outcome,
    RebuildReport,
    Stats,
    Version,
    WriteReport,
)
from agent_memory_log.memory.search import injecting, reading, searching
from agent_memory_log.memory.upkeep import exchange, forgetting
from agent_memory_log.memory.upkeep import maintaining as upkeep
from agent_memory_log.memory.upkeep.erasing import SWEEP_LIMIT, Reach
from agent_memory_log.steps import Steps, run_sync
from agent_memory_log.store import SyncStore

_T = TypeVar("_T")


class SyncMemory:
    """The memory that one principal may reach.

    Calls that name a key, and ``remember``, mean the principal's home scope unless said; others mean every scope that
    execution allows. All raise what the store raises; ``InvalidArgument`` naming an argument that cannot be; and those
    that read ``MemoryStopped`` for a scope that is not the principal's or is denied (``scope_denied:<scope>``).
    """

    def __init__(self, store: SyncStore, context: Context) -> None:
        """Made by ``SyncMemoryClient.of``."""
        self._store = store
        self._context = context

    @property
    def principal(self) -> Principal:
        """Whose memory this is."""
        return self._context.principal

    def _run(self, steps: Steps[_T]) -> _T:
        return run_sync(steps, self._store)

    def remember(
        self,
        data: RecordData | None = None,
        *,
        kind: str = Preference.kind,
        key: str | None = None,
        value: str | None = None,
        text: str = "",
        scope: str | None = None,
        confidence: float = DEFAULT_CONFIDENCE,
        importance: float = DEFAULT_IMPORTANCE,
        ttl_days: float | None = None,
        source: Source | None = None,
        evidence: Sequence[Evidence] = (),
        entities: Sequence[str] = (),
        tags: Sequence[str] = (),
        links: Sequence[Link] = (),
    ) -> Outcome:
        """Remember ``data``, or a preference or fact of ``key`` and ``value``; see ``Candidate`` for the rest.

        ``source`` is the user unless said. What redaction or execution has something against comes back ``blocked``;
        ``MemoryStopped`` is raised where policy has, with its reason.
        """
        return self._run(
            remembering.remember(
                self._context,
                Candidate(
                    data=remembering.data_of(data, kind, key, value),
                    scope=scope or "",
                    text=text,
                    confidence=confidence,
                    importance=importance,
                    ttl_days=ttl_days,
                    source=source or Source("user"),
                    evidence=several(evidence, "evidence"),
                    entities=several(entities, "entities"),
                    tags=several(tags, "tags"),
                    links=several(links, "links"),
                ),
            )
        )

    def write(
        self, candidates: Sequence[Candidate], *, origin: Origin = "remember", phase: str = "capture"
    ) -> WriteReport:
        """Write several candidates, each scope's at once; what policy stops is in the report. ``phase`` is noted."""
        return self._run(writing.write(self._context, candidates, origin=origin, phase=phase))

    def note_stop(
        self,
        reason: str,
        *,
        phase: str,
        key: str = "",
        scope: str | None = None,
        evidence: Sequence[Evidence] = (),
    ) -> None:
        """Note that something was stopped before it could be written, and why; never the value."""
        violation = Violation(reason, key, scope or "")
        self._run(writing.note_stop(self._context, violation, phase=phase, evidence=several(evidence, "evidence")))

    def get(
        self,
        *,
        id: str | None = None,  # noqa: A002  # as the record's field is named
        key: str | None = None,
        kind: str | None = None,
        scope: str | None = None,
    ) -> Record | None:
        """The active record with this ``id`` or ``key``; None where there is none, or it has expired.

        Without a ``kind``, the latest updated of those that have the key.
        """
        return self._run(reading.get(self._context, record=id, key=key, kind=kind, scope=scope))

    def list(
        self,
        *,
        kinds: Iterable[str] | None = None,
        scopes: Iterable[str] | None = None,
        status: Status = "active",
    ) -> tuple[Record, ...]:
        """The records of a status, of all kinds or those named, home's first, then as they came."""
        return self._run(reading.list_records(self._context, kinds=kinds, scopes=scopes, status=status))

    def update(
        self,
        id: str,  # noqa: A002  # as the record's field is named
        *,
        value: str | None = None,
        text: str | None = None,
        confidence: float | None = None,
        importance: float | None = None,
        ttl_days: float | None = None,
        entities: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        links: Sequence[Link] | None = None,
    ) -> Outcome:
        """Change what is given of an active record. Another ``value`` is a new record, which supersedes it.

        Raises ``InvalidArgument`` where there is no such record, ``MemoryStopped`` as ``remember`` does.
        """
        return self._run(
            remembering.update(
                self._context,
                id,
                value=value,
                text=text,
                confidence=confidence,
                importance=importance,
                ttl_days=ttl_days,
                entities=entities,
                tags=tags,
                links=links,
            )
        )

    def forget(
        self,
        *,
        id: str | None = None,  # noqa: A002  # as the record's field is named
        key: str | None = None,
        kind: str | None = None,
        scope: str | None = None,
        evidence: bool = False,
        sweep: bool = False,
        sweep_limit: int = SWEEP_LIMIT,
        dry_run: bool = False,
    ) -> ForgetReport:
        """Erase all that a ``key`` has ever held; or the record with this ``id``, and what else says the same as it.

        What it came from is not learnt from again; a later statement makes a new memory. What is gone, and when, is as
        for ``Store.redact_events``. A ``dry_run`` reports what would go, and changes nothing.

        ``evidence`` redacts more, in the runs that are linked to the scope: the events it came from; whatever repeats
        the value in the same exchange, that is from what the user said to what they said next; and every
        ``injected_context`` that names it. ``sweep`` does so too, and redacts every event of these runs that holds the
        value. Values are compared as whole words, without case, accents, width and white space. The report says which
        events of linked runs and which other records hold the value and stay. Raises ``MemoryStopped`` where a sweep
        would redact more than ``sweep_limit`` events, with their number, and nothing is erased.
        """
        reach = Reach(evidence, sweep, sweep_limit, dry_run)
        return self._run(forgetting.forget(self._context, record=id, key=key, kind=kind, scope=scope, reach=reach))

    def forget_all(
        self,
        *,
        scopes: Iterable[str] | None = None,
        runs: Sequence[tuple[str, str]] = (),
        evidence: bool = False,
    ) -> ForgetReport:
        """Erase everything; nothing that was said so far in a run that was derived from is learnt again.

        ``runs`` are more of those, as (agent, run): conversations that are going on. ``evidence`` is as in ``forget``.
        """
        return self._run(forgetting.forget_all(self._context, scopes=scopes, runs=runs, evidence=evidence))

    def search(
        self,
        query: str,
        *,
        top_k: int = 4,
        kinds: Iterable[str] | None = searching.KINDS,
        scopes: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_importance: float = 0,
        boost_preferences: Iterable[str] = (),
    ) -> Hits:
        """The records, and the messages of linked runs, that answer ``query`` best, the best first.

        ``kinds`` are any registered kinds and ``message`` (None: all there are). ``since`` (inclusive) and ``until``
        (exclusive) choose by when it was said; ``min_importance`` is in stars, which no message has. Preferences whose
        keys are in ``boost_preferences`` gain, and need not share a word. What is not active any longer is never
        found, nor is a message that something forgotten came from. Scores of two questions are not comparable. Without
        the extra ``recall``, records are found that share words with the question (``shared_words`` in ``matched_by``),
        and no messages; ``note`` says so.
        """
        wanted = checked_query(
            query,
            top_k=top_k,
            kinds=kinds,
            since=since,
            until=until,
            min_importance=min_importance,
            boost_preferences=boost_preferences,
        )
        return self._run(searching.search(self._context, wanted, self._context.readable(scopes)))

    def context(
        self,
        query: str,
        *,
        max_tokens: int = 1_000,
        scopes: Iterable[str] | None = None,
    ) -> MemoryContext:
        """What to put in front of a model that is asked ``query``: background, in at most ``max_tokens``.

        Facts and preferences, the most important first; up to five episodes of two stars or more and five messages that
        have to do with the query; then the latest three episodes. What does not fit is left out. The text is the same
        for the same memory and query, so that prompt caches hold; what was stored stands in it in quotes, and cannot
        end it. It is ``""`` where there is nothing. Log it as an ``injected_context``, with the ids in the answer.
        """
        wanted = checked_query(
            query,
            top_k=1,
            kinds=None,
            since=None,
            until=None,
            min_importance=0,
            boost_preferences=(),
        )
        readable = self._context.readable(scopes)
        return self._run(injecting.memory_context(self._context, wanted, readable, max_tokens))

    def link_run(self, agent: str, run: str, *, scope: str | None = None) -> LinkReport:
        """Let the messages of a run be found, by all who reach the scope; ``derive`` does so at home.

        Those that it will have are found too, and it need not have any yet: the report then names it, as it may be a
        mistake. What was forgotten is not found again.
        """
        return self.link_runs([(agent, run)], scope=scope)

    def link_runs(self, runs: Iterable[tuple[str, str]], *, scope: str | None = None) -> LinkReport:
        """Link many runs, as (agent, run), as ``link_run`` does one; in few appends. Again, and nothing changes."""
        return self._run(links.link_runs(self._context, runs, scope=scope))

    def history(self, key: str, *, kind: str | None = None, scope: str | None = None) -> tuple[Version, ...]:
        """Every value that a key has had, the oldest first, less what was forgotten."""
        return self._run(reading.history(self._context, key, kind=kind, scope=scope))

    def as_of(
        self, time: datetime, *, kinds: Iterable[str] | None = None, scopes: Iterable[str] | None = None
    ) -> tuple[Record, ...]:
        """What was active at a time, less what was forgotten since."""
        return self._run(reading.as_of(self._context, time, kinds=kinds, scopes=scopes))

    def explain(self, id: str) -> Explanation | None:  # noqa: A002  # as the record's field is named
        """Why the record with this id, active or not, is or was believed; None where there is none.

        Evidence may name any event of the store. The text of an event is shown only if its run is linked to a scope of
        the principal and the event was not forgotten there; for any other, ``reason`` says why it is not shown.
        """
        return self._run(reading.explain(self._context, id))

    def derive(self, agent: str, run: str, *, extractor: Extractor | None = None) -> DeriveReport:
        """Learn from what is new in a run since it was last derived from. Deriving again writes nothing twice."""
        return self._run(deriving.derive(self._context, agent, run, extractor))

    def rederive(
        self, extractor: Extractor | None = None, *, runs: Sequence[tuple[str, str]] | None = None
    ) -> tuple[DeriveReport, ...]:
        """Ask an extractor anew about every run that was derived from, or those named, from their first events."""
        return self._run(deriving.rederive(self._context, extractor, runs))

    def rebuild(self) -> RebuildReport:
        """Fold everything again from the first event, without snapshots and without a model."""
        return self._run(upkeep.rebuild(self._context))

    def cleanup(self, *, older_than_days: float = 90, below_stars: float = 3) -> CleanupReport:
        """Archive episodes that are older and have fewer stars, and note what has expired."""
        return self._run(upkeep.cleanup(self._context, older_than_days=older_than_days, below_stars=below_stars))

    def stats(self) -> Stats:
        """Counts of what is there."""
        return self._run(reading.stats(self._context))

    def export_jsonl(self, *, scopes: Iterable[str] | None = None) -> bytes:
        """The active records as JSONL: a header, then a record a line."""
        return self._run(exchange.export_jsonl(self._context, scopes=scopes))

    def import_jsonl(self, data: bytes) -> WriteReport:
        """Write the records of an export; again, and nothing is there twice. Raises ``DecodeError`` naming the line."""
        return self._run(exchange.import_jsonl(self._context, data))
