"""Made from ``client.py`` and ``calls.py`` by ``python -m tools.sync_twin``: without ``await``, on a ``SyncStore``.

Any number of threads may use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory import operations as table
from agent_memory_log.memory.execution import execute
from agent_memory_log.memory.operations import KINDS, SWEEP_LIMIT
from agent_memory_log.memory.policy.rules import check_limit
from agent_memory_log.memory.policy.secrets import stop_secrets
from agent_memory_log.memory.records.arguments import Operation, several
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Preference, RecordData
from agent_memory_log.memory.records.principals import Principal, SubjectId
from agent_memory_log.memory.records.protocols import (
    Clock,
    Execution,
    Extractor,
    Merger,
    OpenExecution,
    OpenPolicy,
    Origin,
    Policy,
    Redactor,
    utc_now,
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
from agent_memory_log.memory.stream.context import INDEX_BYTES, Context, Hooks, WarmIndexes, WarmSubjects
from agent_memory_log.memory.stream.subjects import list_subjects
from agent_memory_log.models.tokens import CountTokens
from agent_memory_log.steps import run_sync
from agent_memory_log.store import SyncStore

if TYPE_CHECKING:
    from agent_memory_log.recall import Embedder  # needs the extra ``recall``


class SyncMemoryClient:
    """Memory in a store. Keeps the subjects that are used warm; any number of clients may work on one store.

    - ``policy``: what may be asked for; ``execution``: what is permitted now; ``redactor``: sees every value first;
      unless said, one that refuses keys, tokens and card numbers.
    - ``extractor``: what ``derive`` asks where it is not given one.
    - ``max_keyed``: how many preferences and facts a subject holds (None: any number).
    - ``clock``: what time it is; records expire by it.
    - ``embedder``: finds what shares no word with a question. It is asked for each text once, when it is searched for
      the first time; its vectors are stored beside the memories. Where it fails, words alone are compared.
    - ``count_tokens``: how many tokens a text has, for ``context``; unless said ``tiktoken``'s count where that is
      installed, else the bytes of the text, which no tokenizer goes beyond.
    - ``index_bytes``: how much memory the indexes of all subjects that were searched lately may take, about.
    - ``merger``: asked what holds where a preference or fact is to take the place of another value; without one, the
      new value does. Not asked about an ``update``. Where it cannot say, or fails, the new value is kept with the tag
      ``uncertain``, and the outcome has the reason.

        memory = SyncMemoryClient(store)
        me = memory.of(Principal(tenant="acme", scopes={"user": "42"}))
        me.remember(key="language", value="english")
    """

    def __init__(
        self,
        store: SyncStore,
        *,
        policy: Policy | None = None,
        execution: Execution | None = None,
        redactor: Redactor = stop_secrets,
        extractor: Extractor | None = None,
        max_keyed: int | None = 100,
        clock: Clock = utc_now,
        embedder: Embedder | None = None,
        count_tokens: CountTokens | None = None,
        index_bytes: int = INDEX_BYTES,
        merger: Merger | None = None,
    ) -> None:
        """Does nothing to the store. Raises ``InvalidArgument`` for a ``max_keyed`` or ``index_bytes`` below 1."""
        if max_keyed is not None and (type(max_keyed) is not int or max_keyed < 1):
            raise InvalidArgument(f"max_keyed must be an integer from 1, or None, found {describe(max_keyed)}")
        check_limit(index_bytes, "index_bytes")
        self._store = store
        self._hooks = Hooks(
            policy or OpenPolicy(),
            execution or OpenExecution(),
            redactor,
            extractor,
            max_keyed,
            clock,
            embedder,
            count_tokens,
            merger,
        )
        self._warm = WarmSubjects()
        self._indexes = WarmIndexes(index_bytes)

    def of(self, principal: Principal) -> SyncMemory:
        """The memory that a principal may reach."""
        if not isinstance(principal, Principal):
            raise InvalidArgument(f"memory belongs to a Principal, found {describe(principal)}")
        return SyncMemory(self._store, Context(principal, self._hooks, self._warm, self._indexes))

    def subjects(self, tenant: str | None = None) -> tuple[SubjectId, ...]:
        """The subjects that the store holds memory of, sorted; of one tenant, or of all: for operators."""
        return run_sync(list_subjects(tenant), self._store)


_Result = TypeVar("_Result")


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

    def execute(self, operation: Operation[_Result]) -> _Result:
        """Carry out an operation of the table, as the method of its name does."""
        return run_sync(execute(operation, self._context), self._store)

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
        memory_type: str = "",
        source: Source | None = None,
        evidence: Iterable[Evidence] = (),
        entities: Iterable[str] = (),
        tags: Iterable[str] = (),
        links: Iterable[Link] = (),
    ) -> Outcome:
        """Remember ``data``, or a preference or fact of ``key`` and ``value``.

        What redaction or execution has something against comes back ``blocked``; ``MemoryStopped`` is raised where
        policy has, with its reason.

        - ``data``: What to remember, whole.
        - ``kind``: ``preference`` or ``fact``, for ``key`` and ``value``.
        - ``text``: In words; the kind's own words unless said.
        - ``scope``: The scope; the principal's home unless said.
        - ``confidence``: 0 to 1; what is beyond is cut.
        - ``importance``: 0 to 1; what is beyond is cut.
        - ``ttl_days``: Days it is valid; as its kind says unless said.
        - ``memory_type``: ``semantic``, ``episodic`` or ``procedural``; else its kind's.
        - ``source``: Who says so; the user unless said.
        - ``evidence``: The events it rests on, the statement itself first.
        """
        return self.execute(
            table.Remember(
                data,
                kind=kind,
                key=key,
                value=value,
                text=text,
                scope=scope,
                confidence=confidence,
                importance=importance,
                ttl_days=ttl_days,
                memory_type=memory_type,
                source=source,
                evidence=several(evidence, "evidence"),
                entities=several(entities, "entities"),
                tags=several(tags, "tags"),
                links=several(links, "links"),
            )
        )

    def write(
        self, candidates: Iterable[Candidate], *, origin: Origin = "remember", phase: str = "capture"
    ) -> WriteReport:
        """Write several candidates, each scope's at once; what policy stops is in the report.

        - ``origin``: Which kind of call they come from.
        - ``phase``: Noted with what is stopped or blocked.
        """
        return self.execute(table.Write(several(candidates, "candidates"), origin=origin, phase=phase))

    def note_stop(
        self, reason: str, *, phase: str, key: str = "", scope: str | None = None, evidence: Iterable[Evidence] = ()
    ) -> None:
        """Note that something was stopped before it could be written, and why; never the value.

        - ``reason``: Stable text without the value.
        - ``scope``: The scope; the principal's home unless said.
        - ``evidence``: The events it rests on, the statement itself first.
        """
        self.execute(table.NoteStop(reason, phase=phase, key=key, scope=scope, evidence=several(evidence, "evidence")))

    def get(
        self, *, id: str | None = None, key: str | None = None, kind: str | None = None, scope: str | None = None
    ) -> Record | None:
        """Return the active record with this ``id`` or ``key``, or None if there is no such record or it has expired.

        Without a ``kind``, it is the latest updated record that has the key.

        - ``id``: The id of a record, in any scope unless said.
        - ``kind``: Which is meant, where several kinds have the key.
        - ``scope``: The scope; the principal's home unless said.
        """
        return self.execute(table.Get(id=id, key=key, kind=kind, scope=scope))

    def list(
        self, *, kinds: Iterable[str] | None = None, scopes: Iterable[str] | None = None, status: Status = "active"
    ) -> tuple[Record, ...]:
        """The records of a status, home's first, then as they came.

        - ``kinds``: Only these kinds; all unless said.
        - ``scopes``: The scopes; all that execution allows unless said.
        - ``status``: active, superseded, archived or expired.
        """
        return self.execute(
            table.ListRecords(
                kinds=None if kinds is None else several(kinds, "kinds"),
                scopes=None if scopes is None else several(scopes, "scopes"),
                status=status,
            )
        )

    def update(
        self,
        id: str,
        *,
        value: str | None = None,
        text: str | None = None,
        confidence: float | None = None,
        importance: float | None = None,
        ttl_days: float | None = None,
        entities: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        links: Iterable[Link] | None = None,
    ) -> Outcome:
        """Change what is given of an active record. Another ``value`` is a new record, which supersedes it.

        Raises ``InvalidArgument`` where there is no such record, ``MemoryStopped`` as ``remember`` does.

        - ``id``: The id of a record.
        """
        return self.execute(
            table.Update(
                id,
                value=value,
                text=text,
                confidence=confidence,
                importance=importance,
                ttl_days=ttl_days,
                entities=None if entities is None else several(entities, "entities"),
                tags=None if tags is None else several(tags, "tags"),
                links=None if links is None else several(links, "links"),
            )
        )

    def forget(
        self,
        *,
        id: str | None = None,
        key: str | None = None,
        kind: str | None = None,
        scope: str | None = None,
        evidence: bool = False,
        sweep: bool = False,
        sweep_limit: int = SWEEP_LIMIT,
        dry_run: bool = False,
    ) -> ForgetReport:
        """Erase all that a ``key`` has ever held; or the record with this ``id``, and what else says the same as it.

        ``evidence`` redacts in linked runs: the events it came from, what repeats the value in the same exchange,
        and every ``injected_context`` that names it. ``sweep`` does so too.

        What it came from is not learnt from again; a later statement makes a new memory. What is gone, and when, is
        as for ``Store.redact_events``. Values are compared as whole words, without case, accents, width and white
        space. The report says which events of linked runs and which other records hold the value and stay. Raises
        ``MemoryStopped`` where a sweep would redact more than ``sweep_limit`` events, with their number, and
        nothing is erased.

        - ``id``: The id of a record, in any scope unless said.
        - ``kind``: Which is meant, where several kinds have the key.
        - ``scope``: The scope; the principal's home unless said.
        - ``evidence``: Redact also the events it came from, in the runs that are linked to the scope.
        - ``sweep``: Redact every event of a linked run that holds the value.
        - ``sweep_limit``: Refuse a sweep of more events than this.
        - ``dry_run``: Only report what would go.
        """
        return self.execute(
            table.Forget(
                id=id,
                key=key,
                kind=kind,
                scope=scope,
                evidence=evidence,
                sweep=sweep,
                sweep_limit=sweep_limit,
                dry_run=dry_run,
            )
        )

    def forget_all(
        self, *, scopes: Iterable[str] | None = None, runs: Iterable[tuple[str, str]] = (), evidence: bool = False
    ) -> ForgetReport:
        """Erase everything; nothing that was said so far in a run that was derived from is learnt again.

        - ``scopes``: The scopes; all that execution allows unless said.
        - ``runs``: More runs to learn nothing from, as (agent, run): conversations that are going on.
        - ``evidence``: Redact also the events it came from, in the runs that are linked to the scope.
        """
        return self.execute(
            table.ForgetAll(
                scopes=None if scopes is None else several(scopes, "scopes"),
                runs=several(runs, "runs"),
                evidence=evidence,
            )
        )

    def search(
        self,
        query: str,
        *,
        top_k: int = 4,
        kinds: Iterable[str] | None = KINDS,
        scopes: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_importance: float = 0,
        boost_preferences: Iterable[str] = (),
    ) -> Hits:
        """The records, and the messages of linked runs, that answer ``query`` best, the best first.

        What is not active any longer is never found, nor is a message that something forgotten came from. Scores of
        two questions are not comparable. Without the extra ``recall``, records are found that share words with the
        question (``shared_words`` in ``matched_by``), and no messages; ``note`` says so.

        - ``top_k``: At most so many.
        - ``kinds``: Registered kinds and ``message``; None: all there are.
        - ``scopes``: The scopes; all that execution allows unless said.
        - ``since``: Only what was said then or later, such as 2026-11-21T09:30:00Z.
        - ``until``: Only what was said before then.
        - ``min_importance``: In stars, which no message has.
        - ``boost_preferences``: Keys of preferences that gain, and need not share a word.
        """
        return self.execute(
            table.Search(
                query,
                top_k=top_k,
                kinds=None if kinds is None else several(kinds, "kinds"),
                scopes=None if scopes is None else several(scopes, "scopes"),
                since=since,
                until=until,
                min_importance=min_importance,
                boost_preferences=several(boost_preferences, "boost_preferences"),
            )
        )

    def context(self, query: str, *, max_tokens: int = 1000, scopes: Iterable[str] | None = None) -> MemoryContext:
        """What to put in front of a model that is asked ``query``: background, in at most ``max_tokens``.

        Facts and preferences, the most important first; up to five episodes of two stars or more and five messages
        that have to do with the query; then the latest three episodes. What does not fit is left out. The text is
        the same for the same memory and query, so that prompt caches hold; what was stored stands in it in quotes,
        and cannot end it. It is ``""`` where there is nothing. Log it as an ``injected_context``, with the ids in
        the answer.

        - ``max_tokens``: At most so many.
        - ``scopes``: The scopes; all that execution allows unless said.
        """
        return self.execute(
            table.BuildContext(
                query, max_tokens=max_tokens, scopes=None if scopes is None else several(scopes, "scopes")
            )
        )

    def link_run(self, agent: str, run: str, *, scope: str | None = None) -> LinkReport:
        """Let the messages of a run be found, by all who reach the scope; ``derive`` does so at home.

        Those that it will have are found too, and it need not have any yet: the report then names it, as it may be
        a mistake. What was forgotten is not found again.

        - ``scope``: The scope; the principal's home unless said.
        """
        return self.execute(table.LinkRun(agent, run, scope=scope))

    def link_runs(self, runs: Iterable[tuple[str, str]], *, scope: str | None = None) -> LinkReport:
        """Link many runs, as ``link_run`` does one, in few appends. Again, and nothing changes.

        - ``runs``: As (agent, run).
        - ``scope``: The scope; the principal's home unless said.
        """
        return self.execute(table.LinkRuns(several(runs, "runs"), scope=scope))

    def history(self, key: str, *, kind: str | None = None, scope: str | None = None) -> tuple[Version, ...]:
        """Every value that a key has had, the oldest first, less what was forgotten.

        - ``kind``: Which is meant, where several kinds have the key.
        - ``scope``: The scope; the principal's home unless said.
        """
        return self.execute(table.History(key, kind=kind, scope=scope))

    def as_of(
        self, time: datetime, *, kinds: Iterable[str] | None = None, scopes: Iterable[str] | None = None
    ) -> tuple[Record, ...]:
        """What was active at a time, less what was forgotten since.

        - ``time``: What was active then, less what was forgotten since.
        - ``kinds``: Only these kinds; all unless said.
        - ``scopes``: The scopes; all that execution allows unless said.
        """
        return self.execute(
            table.AsOf(
                time,
                kinds=None if kinds is None else several(kinds, "kinds"),
                scopes=None if scopes is None else several(scopes, "scopes"),
            )
        )

    def explain(self, id: str) -> Explanation | None:
        """Say why the record with this id, active or not, is or was believed. Returns None for an unknown id.

        Evidence may name any event of the store. The text of an event is shown only if its run is linked to a scope
        of the principal and the event was not forgotten there; for any other, ``reason`` says why it is not shown.

        - ``id``: The id of a record.
        """
        return self.execute(table.Explain(id))

    def derive(self, agent: str, run: str, *, extractor: Extractor | None = None) -> DeriveReport:
        """Learn from what is new in a run since it was last derived from. Deriving again writes nothing twice."""
        return self.execute(table.Derive(agent, run, extractor=extractor))

    def rederive(
        self, extractor: Extractor | None = None, *, runs: Iterable[tuple[str, str]] | None = None
    ) -> tuple[DeriveReport, ...]:
        """Ask an extractor anew about every run that was derived from, or those named, from their first events.

        - ``runs``: As (agent, run); all unless said.
        """
        return self.execute(table.Rederive(extractor, runs=None if runs is None else several(runs, "runs")))

    def rebuild(self) -> RebuildReport:
        """Fold everything again from the first event, without snapshots and without a model."""
        return self.execute(table.Rebuild())

    def cleanup(self, *, older_than_days: float = 90, below_stars: float = 3) -> CleanupReport:
        """Archive episodes that are older and have fewer stars, and note what has expired.

        - ``older_than_days``: Only episodes older than that, in days.
        - ``below_stars``: Only episodes with fewer stars.
        """
        return self.execute(table.Cleanup(older_than_days=older_than_days, below_stars=below_stars))

    def stats(self) -> Stats:
        """Counts of what is there."""
        return self.execute(table.CountRecords())

    def export_jsonl(self, *, scopes: Iterable[str] | None = None) -> bytes:
        """The active records as JSONL: a header, then a record a line.

        - ``scopes``: The scopes; all that execution allows unless said.
        """
        return self.execute(table.ExportJsonl(scopes=None if scopes is None else several(scopes, "scopes")))

    def import_jsonl(self, data: bytes) -> WriteReport:
        """Write the records of an export; again, and nothing is there twice. Raises ``DecodeError`` naming the line."""
        return self.execute(table.ImportJsonl(data))
