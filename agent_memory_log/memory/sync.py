"""Made from ``calls.py`` and ``client.py`` by ``python -m tools.sync_twin``, without ``await``.

Any number of threads may use it.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from agent_memory_log.capabilities import KeepsIndexes
from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument, StoreClosed
from agent_memory_log.events.fields import describe
from agent_memory_log.memory import operations as table
from agent_memory_log.memory.configuration import ClientSettings, read_settings
from agent_memory_log.memory.execution import execute
from agent_memory_log.memory.learning.writing import store_uses
from agent_memory_log.memory.operations import KINDS, SWEEP_LIMIT
from agent_memory_log.memory.policy.rules import check_limit
from agent_memory_log.memory.policy.secrets import stop_secrets
from agent_memory_log.memory.records.arguments import Operation, Result, several
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Preference, RecordData
from agent_memory_log.memory.records.messages import ConversationTurn
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
    Reranker,
    ServesMemory,
    utc_now,
)
from agent_memory_log.memory.records.quotas import NO_QUOTAS, LimitUse, Quotas
from agent_memory_log.memory.records.record import (
    DEFAULT_CONFIDENCE,
    DEFAULT_IMPORTANCE,
    Evidence,
    Link,
    Record,
    Source,
    Status,
)
from agent_memory_log.memory.records.reports.conflicts import ConflictPair
from agent_memory_log.memory.records.reports.graphs import MemoryGraph, MemoryPaths, MemoryTrace
from agent_memory_log.memory.records.reports.outcomes import (
    DeriveReport,
    Explanation,
    ForgetReport,
    Hits,
    LinkReport,
    MemoryContext,
    Outcome,
    PurgeReport,
    RebuildReport,
    Stats,
    Version,
    WriteReport,
)
from agent_memory_log.memory.records.reports.upkeep import AuditEvent, Evolution, Health, MaintainReport
from agent_memory_log.memory.records.vectors import QueryVectors, TextToEmbed, TextVectors, VectorsReport
from agent_memory_log.memory.stream.context import INDEX_BYTES, Context, Hooks, Served, WarmIndexes, WarmSubjects
from agent_memory_log.memory.stream.subjects import list_subjects
from agent_memory_log.models.tokens import CountTokens
from agent_memory_log.steps import require_sync_store, run_sync
from agent_memory_log.store import SyncStore


class SyncMemoryCalls(ABC):
    """The methods that ``SyncMemory`` and ``SyncMemoryClient`` share, one for each operation.

    Without a ``scope``, ``remember`` and the calls with a key use the principal's home scope. Without ``scopes``, the
    other calls use every scope that execution allows.

    Every call raises the errors of the store, and ``InvalidArgument`` with the name of an invalid argument. A call that
    reads raises ``MemoryStopped`` with the reason ``scope_denied:<scope>`` if the scope is denied or not the
    principal's.
    """

    @abstractmethod
    def execute(self, operation: Operation[Result]) -> Result:
        """Carry out an operation, as the method with its name does."""

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
        valid_from: datetime | None = None,
        valid_until: datetime | None = None,
        memory_type: str = "",
        source: Source | None = None,
        evidence: Iterable[Evidence] = (),
        entities: Iterable[str] = (),
        tags: Iterable[str] = (),
        links: Iterable[Link] = (),
    ) -> Outcome:
        """Remember ``data``, or a preference or fact with a ``key`` and a ``value``.

        If the redactor or execution refuses the memory, the outcome's action is ``blocked``.

        Args:
            data: The data to remember, instead of key and value.
            kind: ``preference`` or ``fact``, for key and value.
            key: The key of a preference or fact.
            value: The value to store under the key.
            text: The memory in words. Default: the text that its kind makes.
            scope: The scope. Default: the principal's home scope.
            confidence: 0 to 1. Numbers outside are clamped.
            importance: 0 to 1. Numbers outside are clamped.
            ttl_days: 1 to 36,500 days until it expires. Default: its kind's.
            valid_from: The time from which it is true. Default: now.
            valid_until: The time until which it is true.
            memory_type: ``semantic``, ``episodic`` or ``procedural``; else its kind's.
            source: The source of the memory. Default: the user.
            evidence: The events that support the memory; the statement itself comes first.
            entities: Names of people and things. Search looks at them.
            tags: Tags. Search looks at them.
            links: Links to other records.

        Raises:
            MemoryStopped: The policy refuses the memory. The error has the reason.
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
                valid_from=valid_from,
                valid_until=valid_until,
                memory_type=memory_type,
                source=source,
                evidence=several(evidence, "evidence"),
                entities=several(entities, "entities"),
                tags=several(tags, "tags"),
                links=several(links, "links"),
            )
        )

    def add(
        self,
        content: str,
        source_id: str = "",
        *,
        memory_type: str = "semantic",
        trust_score: float | None = None,
        importance: float = DEFAULT_IMPORTANCE,
        entity_refs: Iterable[str] = (),
        tags: Iterable[str] = (),
        causal_parent_id: str | None = None,
        supersedes_id: str | None = None,
        valid_from: datetime | None = None,
        valid_until: datetime | None = None,
        scope: str | None = None,
    ) -> Outcome:
        """Remember a statement as a note, a record without a key.

        If an equal note exists, it is refreshed. ``remember`` stores what has a key, so that a later value replaces
        it.

        Args:
            content: The statement, as a sentence that can be read alone.
            source_id: The id of the source, such as a conversation or a person.
            memory_type: ``semantic``, ``episodic`` or ``procedural``.
            trust_score: The reliability of the source, 0 to 1. Default: 1.
            importance: 0 to 1. Numbers outside are clamped.
            entity_refs: The names in the statement. Default: those that are found in it.
            tags: Tags. Search looks at them.
            causal_parent_id: The id of the record that the statement was concluded from.
            supersedes_id: The id of the record that the statement replaces.
            valid_from: The time from which it is true. Default: now.
            valid_until: The time at which it expires.
            scope: The scope. Default: the principal's home scope.

        Raises:
            InvalidArgument: The parent does not exist, or the record to supersede is not active.
            MemoryStopped: The policy refuses the memory. The error has the reason.
        """
        return self.execute(
            table.Add(
                content,
                source_id,
                memory_type=memory_type,
                trust_score=trust_score,
                importance=importance,
                entity_refs=several(entity_refs, "entity_refs"),
                tags=several(tags, "tags"),
                causal_parent_id=causal_parent_id,
                supersedes_id=supersedes_id,
                valid_from=valid_from,
                valid_until=valid_until,
                scope=scope,
            )
        )

    def add_from_draft(self, draft: Candidate) -> Outcome:
        """Remember one proposed memory, such as an extractor returns it. ``write`` takes several at once.

        Args:
            draft: The proposed memory.

        Raises:
            MemoryStopped: The policy refuses the memory. The error has the reason.
        """
        return self.execute(table.AddFromDraft(draft))

    def write(
        self, candidates: Iterable[Candidate], *, origin: Origin = "remember", phase: str = "capture"
    ) -> WriteReport:
        """Write several candidates, one append for each scope. If the policy refuses one, none is written.

        A refusal by the policy raises no error. The report then has the status ``stopped`` and the reason.

        Args:
            candidates: The proposed memories.
            origin: The kind of call that proposes them.
            phase: Stored with every note of a refused memory.
        """
        return self.execute(table.Write(several(candidates, "candidates"), origin=origin, phase=phase))

    def note_stop(
        self, reason: str, *, phase: str, key: str = "", scope: str | None = None, evidence: Iterable[Evidence] = ()
    ) -> None:
        """SyncStore a note that the application stopped before it wrote a memory. Never put the value into the note.

        Args:
            reason: A stable reason that does not contain the value.
            phase: The phase of the application that stopped.
            key: The key of the memory, if it has one.
            scope: The scope. Default: the principal's home scope.
            evidence: The events that support the memory; the statement itself comes first.
        """
        self.execute(table.NoteStop(reason, phase=phase, key=key, scope=scope, evidence=several(evidence, "evidence")))

    def get(
        self, *, id: str | None = None, key: str | None = None, kind: str | None = None, scope: str | None = None
    ) -> Record | None:
        """Return the active record with this ``id`` or ``key``, or None if there is no such record or it has expired.

        If records of several kinds have the key and no ``kind`` is given, return the one that was updated last.

        Args:
            id: The id of a record, in any scope unless ``scope`` is given.
            key: The key of a preference or fact.
            kind: The kind, if records of several kinds have the key.
            scope: The scope. Default: the principal's home scope.
        """
        return self.execute(table.Get(id=id, key=key, kind=kind, scope=scope))

    def list(
        self, *, kinds: Iterable[str] | None = None, scopes: Iterable[str] | None = None, status: Status = "active"
    ) -> tuple[Record, ...]:
        """List the records with a status. The home scope comes first. Within a scope, the oldest record comes first.

        Args:
            kinds: Only these kinds. Default: all kinds.
            scopes: The scopes. Default: all that execution allows.
            status: active, superseded, archived or expired.
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
        """Change fields of an active record. A new ``value`` creates a new record that supersedes the old one.

        Fields that are not given stay unchanged.

        Args:
            id: The id of the record.
            value: The new value.
            text: The new text.
            confidence: The new confidence, 0 to 1.
            importance: The new importance, 0 to 1.
            ttl_days: Days from now until it expires, 1 to 36,500.
            entities: The new entities; they replace the old.
            tags: The new tags; they replace the old ones.
            links: The new links; they replace the old ones.

        Raises:
            InvalidArgument: There is no active record with this id.
            MemoryStopped: The policy refuses the change. The error has the reason.
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

    def delete(self, id: str) -> Outcome:
        """Archive an active record, so that no search and no context has it. ``restore`` brings it back.

        The record stays in the store. To erase it for good, use ``forget``. A later statement creates a new record.

        Args:
            id: The id of the record.

        Raises:
            InvalidArgument: There is no record with this id.
        """
        return self.execute(table.Delete(id))

    def restore(self, id: str) -> Outcome:
        """Write an archived record again. The new record has an id of its own, and a link ``restores`` to the old one.

        The new record passes the same checks as every memory. If its key has a newer value, that value stays, and
        the outcome's action is ``outdated``.

        Args:
            id: The id of the archived record.

        Raises:
            InvalidArgument: There is no record with this id, or it was superseded or has expired.
            MemoryStopped: The policy refuses the memory. The error has the reason.
        """
        return self.execute(table.Restore(id))

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
        """Erase every value of a ``key``, or the record with this ``id`` and the records that say the same.

        ``evidence`` also redacts events in linked runs: the events that the memory came from, the events of the
        same exchange that repeat the value, and every ``injected_context`` that names the record. ``sweep`` does
        this too.

        Memory does not learn again from the old statements. A later statement creates a new memory. Erasure has the
        same effect and limits as ``Store.redact_events``. Values match as whole words. Case, accents, width and
        white space make no difference. The report names the events of linked runs and the other records that still
        hold the value.

        Args:
            id: The id of a record, in any scope unless ``scope`` is given.
            key: The key of a preference or fact.
            kind: The kind, if records of several kinds have the key.
            scope: The scope. Default: the principal's home scope.
            evidence: Also redact the events that the memory came from, in runs linked to the scope.
            sweep: Redact every event of a linked run that holds the value.
            sweep_limit: Refuse a sweep of more events than this.
            dry_run: Only report what would be erased.

        Raises:
            MemoryStopped: The sweep would redact more than ``sweep_limit`` events. The message gives the number.
                Nothing is erased.
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
        """Erase all memories of the scopes. Memory does not learn again from earlier events of their runs.

        Args:
            scopes: The scopes. Default: all that execution allows.
            runs: Other runs to ignore up to now, as (agent, run); for example, open conversations.
            evidence: Also redact the events that the memory came from, in runs linked to the scope.
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
        top_k: int | None = None,
        kinds: Iterable[str] | None = KINDS,
        scopes: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_importance: float = 0,
        boost_preferences: Iterable[str] = (),
        vectors: QueryVectors | None = None,
    ) -> Hits:
        """Search the active records and the messages of linked runs. Return the best matches first.

        The question decides how it is answered, and ``plan`` of the hits says how. "Latest" and "first" order
        relevant hits by time. "List all" and "how many" bring up to 50 hits, the best of each run first, if
        ``top_k`` is not given. For a question about what holds now, a text that changes an earlier one comes before
        it.

        A message is not found if a memory that came from it was forgotten. Do not compare the scores of two
        queries. Without the extra ``recall``, search finds only records that share words with the query, and no
        messages. Then ``matched_by`` has ``shared_words``, and ``note`` gives the reason.

        Args:
            query: The question or words to search for. The first 20,000 characters are read.
            top_k: The most hits. Default: 4, or 50 if every instance is asked for.
            kinds: Record kinds and ``message``. None: all.
            scopes: The scopes. Default: all that execution allows.
            since: Only from this time on, such as 2026-11-21T09:30:00Z.
            until: Only from before this time.
            min_importance: The least importance, in stars. Messages have no stars.
            boost_preferences: Keys of preferences to rank higher.
            vectors: The query's vectors, if the caller embedded it.
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
                vectors=vectors,
            )
        )

    def context(
        self,
        query: str,
        *,
        max_tokens: int = 1000,
        scopes: Iterable[str] | None = None,
        vectors: QueryVectors | None = None,
    ) -> MemoryContext:
        """Return background from memory for a model that will answer ``query``, in at most ``max_tokens`` tokens.

        The text has three parts. First come facts and preferences, the most important first. Next come up to five
        episodes, notes and relations with two or more stars, and five messages, if they match the query. Last come
        the three latest episodes. More matching messages fill the remaining tokens, and then the latest messages
        that may change earlier ones. Each message that may change an earlier one is marked. A long message is
        shortened to the sentences that match. Text that does not fit is left out. If nothing is left, the text is
        ``""``.

        The same memory and query give the same text, so prompt caches work. Stored text is quoted and cannot close
        its quotation. ``recorder.inject`` logs the result.

        Args:
            query: The question that the model will answer. The first 20,000 characters are read.
            max_tokens: The most tokens that the text may have.
            scopes: The scopes. Default: all that execution allows.
            vectors: The query's vectors, if the caller embedded it.
        """
        return self.execute(
            table.BuildContext(
                query,
                max_tokens=max_tokens,
                scopes=None if scopes is None else several(scopes, "scopes"),
                vectors=vectors,
            )
        )

    def link_run(self, agent: str, run: str, *, scope: str | None = None) -> LinkReport:
        """Link a run to a scope, so that searches of this scope find its messages.

        Everyone who can reach the scope can then find them, including messages that are appended later. ``derive``
        links a run to the home scope. The report names a run without events, because its name may be a mistake.
        Linking does not bring back forgotten messages.

        Args:
            agent: The agent of the run.
            run: The id of the run.
            scope: The scope. Default: the principal's home scope.
        """
        return self.execute(table.LinkRun(agent, run, scope=scope))

    def link_runs(self, runs: Iterable[tuple[str, str]], *, scope: str | None = None) -> LinkReport:
        """Link many runs as ``link_run`` does, in few appends. Linking a run again changes nothing.

        Args:
            runs: The runs, as (agent, run).
            scope: The scope. Default: the principal's home scope.
        """
        return self.execute(table.LinkRuns(several(runs, "runs"), scope=scope))

    def history(self, key: str, *, kind: str | None = None, scope: str | None = None) -> tuple[Version, ...]:
        """Return every value that a key has had, oldest first, without forgotten values.

        Args:
            key: The key of a preference or fact.
            kind: The kind, if records of several kinds have the key.
            scope: The scope. Default: the principal's home scope.
        """
        return self.execute(table.History(key, kind=kind, scope=scope))

    def as_of(
        self, time: datetime, *, kinds: Iterable[str] | None = None, scopes: Iterable[str] | None = None
    ) -> tuple[Record, ...]:
        """Return the records that were active at a time, without those that were forgotten since.

        Args:
            time: List the records that were active at this time.
            kinds: Only these kinds. Default: all kinds.
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(
            table.AsOf(
                time,
                kinds=None if kinds is None else several(kinds, "kinds"),
                scopes=None if scopes is None else several(scopes, "scopes"),
            )
        )

    def explain(self, id: str) -> Explanation | None:
        """Return the source, the evidence and the history of a record, active or not. Return None for an unknown id.

        Evidence may name any event of the store. The text of an event is shown only if its run is linked to a scope
        of the principal and the event was not forgotten there. Otherwise ``reason`` says why the text is missing.

        Args:
            id: The id of the record.
        """
        return self.execute(table.Explain(id))

    def trace(
        self,
        id: str,
        depth: int = 5,
        *,
        limit: int = 100,
        valid_at: datetime | None = None,
        as_of: datetime | None = None,
        scopes: Iterable[str] | None = None,
    ) -> MemoryTrace:
        """Return a record and the records that it came from, nearest first.

        Follows the links of each record, such as ``derived_from``, ``supersedes`` and ``contradicts``. The records
        have any status, unless ``valid_at`` is given. Returns no steps if there is no such record. Erased records,
        and those that may not be read, are left out.

        Args:
            id: The id of the record.
            depth: The most edges from the start.
            limit: Return at most this many nodes.
            valid_at: Only records that held at this time. Default: all.
            as_of: As memory was at this time. Default: now.
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(
            table.Trace(
                id,
                depth,
                limit=limit,
                valid_at=valid_at,
                as_of=as_of,
                scopes=None if scopes is None else several(scopes, "scopes"),
            )
        )

    def trace_graph(
        self,
        id: str,
        depth: int = 5,
        *,
        limit: int = 100,
        valid_at: datetime | None = None,
        as_of: datetime | None = None,
        scopes: Iterable[str] | None = None,
    ) -> MemoryGraph:
        """Return the records that are linked to a record in either direction, and their links, as a graph.

        See ``trace``, which follows the links in one direction.

        Args:
            id: The id of the record.
            depth: The most edges from the start.
            limit: Return at most this many nodes.
            valid_at: Only records that held at this time. Default: all.
            as_of: As memory was at this time. Default: now.
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(
            table.TraceGraph(
                id,
                depth,
                limit=limit,
                valid_at=valid_at,
                as_of=as_of,
                scopes=None if scopes is None else several(scopes, "scopes"),
            )
        )

    def neighbours(
        self,
        node: str,
        depth: int = 1,
        *,
        limit: int = 100,
        valid_at: datetime | None = None,
        as_of: datetime | None = None,
        scopes: Iterable[str] | None = None,
    ) -> MemoryGraph:
        """Return the entities and records around an entity or a record: relations, links and the records that name it.

        Only active records count, unless ``valid_at`` is given: then those that held at that time. A value that was
        replaced held until its successor did. Names that are aliases mean the same entity.

        Args:
            node: The name of an entity, such as ``Ana Ruiz``, or the id of a record.
            depth: The most edges from the start.
            limit: Return at most this many nodes.
            valid_at: Only records that held at this time. Default: active ones.
            as_of: As memory was at this time. Default: now.
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(
            table.Neighbours(
                node,
                depth,
                limit=limit,
                valid_at=valid_at,
                as_of=as_of,
                scopes=None if scopes is None else several(scopes, "scopes"),
            )
        )

    def paths(
        self,
        source: str,
        target: str,
        depth: int = 4,
        *,
        limit: int = 10,
        valid_at: datetime | None = None,
        as_of: datetime | None = None,
        scopes: Iterable[str] | None = None,
    ) -> MemoryPaths:
        """Return the paths between two entities or records, the shortest first. No path passes a node twice.

        ``valid_at`` and ``as_of`` have the meaning that they have for ``neighbours``.

        Args:
            source: The name of an entity, such as ``Ana Ruiz``, or the id of a record.
            target: The name of an entity, such as ``Ana Ruiz``, or the id of a record.
            depth: The most edges from the start.
            limit: Return at most this many paths.
            valid_at: Only records that held at this time. Default: active ones.
            as_of: As memory was at this time. Default: now.
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(
            table.Paths(
                source,
                target,
                depth,
                limit=limit,
                valid_at=valid_at,
                as_of=as_of,
                scopes=None if scopes is None else several(scopes, "scopes"),
            )
        )

    def export_graph(
        self,
        format: Literal["graphml", "ntriples"] = "graphml",
        *,
        valid_at: datetime | None = None,
        as_of: datetime | None = None,
        scopes: Iterable[str] | None = None,
    ) -> bytes:
        """Return the whole graph as GraphML, or as the N-Triples of RDF: the bytes of a file in UTF-8.

        ``valid_at`` and ``as_of`` have the meaning that they have for ``neighbours``.

        Args:
            format: ``graphml`` or ``ntriples``.
            valid_at: Only records that held at this time. Default: active ones.
            as_of: As memory was at this time. Default: now.
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(
            table.ExportGraph(
                format, valid_at=valid_at, as_of=as_of, scopes=None if scopes is None else several(scopes, "scopes")
            )
        )

    def ingest(self, turns: Iterable[ConversationTurn], source_id: str, *, first_turn: int = 0) -> DeriveReport:
        """Store the turns of a conversation as a run, and learn from them.

        The run belongs to the principal, and ``source_id`` names it. A turn that is stored already is not stored
        again, so the same call can be repeated, and a later call can pass the whole conversation with new turns at
        its end.

        A short conversation is read too, although ``derive`` waits for four messages.

        Args:
            turns: The turns, in the order in which they were said.
            source_id: The name of the conversation, the same in each call about it.
            first_turn: The place of the first of these turns in the conversation, from 0.

        Raises:
            InvalidArgument: A turn differs from the turn that is stored at its place, or there is no extractor.
        """
        return self.execute(table.Ingest(several(turns, "turns"), source_id, first_turn=first_turn))

    def derive(self, agent: str, run: str, *, extractor: Extractor | None = None) -> DeriveReport:
        """Learn from the events of a run that no earlier call has read. Repeated calls store no memory twice.

        Args:
            agent: The agent of the run.
            run: The id of the run.
        """
        return self.execute(table.Derive(agent, run, extractor=extractor))

    def rederive(
        self, extractor: Extractor | None = None, *, runs: Iterable[tuple[str, str]] | None = None
    ) -> tuple[DeriveReport, ...]:
        """Learn again from the first event of each run: ``runs``, or by default every run that ``derive`` has read.

        Args:
            runs: As (agent, run). Default: all.
        """
        return self.execute(table.Rederive(extractor, runs=None if runs is None else several(runs, "runs")))

    def rebuild(self) -> RebuildReport:
        """Rebuild the state of each scope from the first event of its stream, without snapshots and without a model."""
        return self.execute(table.Rebuild())

    def maintain(
        self,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        weak_below: float = 0.1,
        unused_days: float = 60,
        episode_days: float = 30,
        profile_tokens: int = 2000,
    ) -> MaintainReport:
        """Keep the memory in order, in four steps: erase, age, find conflicts, consolidate. The report says why.

        First, memories that have lost their evidence are erased, as ``purge`` does. Then expired records are
        closed, and weak records are archived: those with a low retrievability that were not used for a long time.
        Then conflicts between records are found and linked. At the end, near-duplicates, old episodes about one
        topic, and keys of a large profile are replaced by one record each. ``separate`` undoes this, and
        ``restore`` brings an archived record back. Only lost evidence erases.

        The work is stored in small slices, with the position that was reached. So after a crash the next call
        continues there, and two processes share the work. Run it once a day, for example.

        Args:
            dry_run: Only report what would be changed.
            limit: Look at about this many records; a later call continues. Default: all.
            weak_below: Archive records with a lower retrievability.
            unused_days: Archive only records that are unused for these days.
            episode_days: Consolidate only episodes that are unused for these days.
            profile_tokens: Consolidate keys that begin alike if the profile has more tokens.
        """
        return self.execute(
            table.Maintain(
                dry_run=dry_run,
                limit=limit,
                weak_below=weak_below,
                unused_days=unused_days,
                episode_days=episode_days,
                profile_tokens=profile_tokens,
            )
        )

    def separate(self, id: str) -> WriteReport:
        """Undo a consolidation: archive the record, and write the records again that it was made from.

        The records get new ids, and links ``restores`` to their archived forms. They are not consolidated again.

        Args:
            id: The id of the consolidated record.

        Raises:
            InvalidArgument: There is no active record with this id that was consolidated.
            MemoryStopped: The policy refuses the memories. The error has the reason.
        """
        return self.execute(table.Separate(id))

    def conflicts(
        self, *, status: Literal["open", "resolved"] = "open", scopes: Iterable[str] | None = None
    ) -> tuple[ConflictPair, ...]:
        """Return the pairs of records that cannot both be true now, with the reason, the evidence and the trust in
        each.

        A write finds the conflicts of its record and stores them as links ``contradicts``. Both records stay
        active.

        Args:
            status: ``open`` or ``resolved``.
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(
            table.ListConflicts(status=status, scopes=None if scopes is None else several(scopes, "scopes"))
        )

    def resolve(
        self, id: str, other: str, *, keep: Literal["first", "second", "both", "merged"], text: str = ""
    ) -> ConflictPair:
        """End a conflict: keep one record and archive the other, keep both, or replace both by one record.

        ``unresolve`` takes this back. Resolving a resolved conflict again changes nothing.

        Args:
            id: The id of the first record.
            other: The id of the second record.
            keep: ``first``, ``second``, ``both`` or ``merged``.
            text: For ``merged``: the statement that replaces both. Default: the merger's answer.

        Raises:
            InvalidArgument: The two records have no conflict, or there is no text for ``merged`` and no merger has one.
            MemoryStopped: The policy refuses the merged text. The error has the reason.
        """
        return self.execute(table.Resolve(id, other, keep=keep, text=text))

    def unresolve(self, id: str, other: str) -> ConflictPair:
        """Open a resolved conflict again. A record that was archived is written again and gets a new id.

        Args:
            id: The id of the first record.
            other: The id of the second record.

        Raises:
            InvalidArgument: The two records have no resolved conflict.
        """
        return self.execute(table.Unresolve(id, other))

    def purge(self) -> PurgeReport:
        """Erase the memories that have lost their evidence, because every event they cite was redacted or deleted.

        No call returns such a memory from the moment of the erasure on. Every write erases it from the store too,
        with its vectors, snapshots and the injected contexts that quote it. ``purge`` does so without a write.
        """
        return self.execute(table.Purge())

    def stats(self) -> Stats:
        """Count the records, events and runs of all scopes that may be read."""
        return self.execute(table.CountRecords())

    def ask_consent(self, kind: str, key: str = "", *, scope: str | None = None) -> Outcome:
        """Note that the user was asked for consent. No such memory is stored until it is given. Stored ones stay.

        A consent that was given stays. A consent for a key decides for this key; one for a kind decides for its
        other keys.

        Args:
            kind: The kind of memory, such as ``fact``.
            key: A key of this kind. Default: all records of the kind.
            scope: The scope. Default: the principal's home scope.

        Raises:
            InvalidArgument: There can be no consent about this kind.
            MemoryStopped: The redactor or execution refuses the key. The error has the reason.
        """
        return self.execute(table.AskConsent(kind, key, scope=scope))

    def give_consent(self, kind: str, key: str = "", *, scope: str | None = None) -> Outcome:
        """Note that the user gave consent. From now on, such memories are stored.

        Memory does not learn again from statements that a withdrawal forgot.

        Args:
            kind: The kind of memory, such as ``fact``.
            key: A key of this kind. Default: all records of the kind.
            scope: The scope. Default: the principal's home scope.

        Raises:
            InvalidArgument: There can be no consent about this kind.
            MemoryStopped: The redactor or execution refuses the key. The error has the reason.
        """
        return self.execute(table.GiveConsent(kind, key, scope=scope))

    def withdraw_consent(
        self, kind: str, key: str = "", *, scope: str | None = None, evidence: bool = False
    ) -> ForgetReport:
        """Note that the user withdrew consent, and forget such memories in the same append, as ``forget`` does.

        No such memory is stored until consent is given again, not even after ``forget_all``.

        Args:
            kind: The kind of memory, such as ``fact``.
            key: A key of this kind. Default: all records of the kind.
            scope: The scope. Default: the principal's home scope.
            evidence: Also redact the events that the memories came from, in runs linked to the scope.

        Raises:
            InvalidArgument: There can be no consent about this kind.
            MemoryStopped: The redactor or execution refuses the key. The error has the reason.
        """
        return self.execute(table.WithdrawConsent(kind, key, scope=scope, evidence=evidence))

    def quotas(self, *, scopes: Iterable[str] | None = None) -> tuple[LimitUse, ...]:
        """Return the use of each limit of the memory, for each scope.

        Args:
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(table.ReadQuotas(scopes=None if scopes is None else several(scopes, "scopes")))

    def texts_to_embed(
        self, model: str, dimension: int, *, limit: int = 128, scopes: Iterable[str] | None = None
    ) -> tuple[TextToEmbed, ...]:
        """Return texts of records and of messages in linked runs that have no vectors of a model yet.

        A result has at most about a million characters, or one text. Store the vectors and call again for more
        texts.

        Args:
            model: The name of the embedding model.
            dimension: The number of components of a vector.
            limit: The most texts of the result.
            scopes: The scopes. Default: all that execution allows.

        Raises:
            InvalidArgument: The memory has vectors of another model, or vectors need an extra that is not installed.
        """
        return self.execute(
            table.ListTextsToEmbed(
                model, dimension, limit=limit, scopes=None if scopes is None else several(scopes, "scopes")
            )
        )

    def store_vectors(self, model: str, dimension: int, vectors: Iterable[TextVectors]) -> VectorsReport:
        """Store the vectors of texts, so that search compares them with the vectors of a query.

        A text that is unknown, was forgotten or changed, or has vectors already, is left out.

        Args:
            model: The name of the embedding model.
            dimension: The number of components of a vector.
            vectors: The vectors of at most 128 texts.

        Raises:
            InvalidArgument: The memory has vectors of another model, or vectors have another form. Nothing is stored.
        """
        return self.execute(table.StoreVectors(model, dimension, several(vectors, "vectors")))

    def drop_vectors(self, *, scopes: Iterable[str] | None = None) -> int:
        """Erase the vectors of all texts, so that another model can embed them. Return how many vectors were erased.

        The texts stay. Until they are embedded again, search compares words only.

        Args:
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(table.DropVectors(scopes=None if scopes is None else several(scopes, "scopes")))

    def health(self) -> Health:
        """Return counts that show the state of the memory, such as open conflicts and events that were not learnt
        from.
        """
        return self.execute(table.CheckHealth())

    def audit_events(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        scopes: Iterable[str] | None = None,
    ) -> tuple[AuditEvent, ...]:
        """Return the changes of the memory: the records, the time, the reason and the source of each change.

        The newest change comes first. Changes of forgotten records are not returned.

        Args:
            since: Only changes from this time on.
            until: Only changes from before this time.
            limit: Return at most this many changes.
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(
            table.AuditEvents(
                since=since, until=until, limit=limit, scopes=None if scopes is None else several(scopes, "scopes")
            )
        )

    def evolution_events(self, id: str) -> Evolution | None:
        """Return the story of a record: its changes, and those of the records that it was made from.

        Return None for an unknown id.

        Args:
            id: The id of the record, active or not.
        """
        return self.execute(table.EvolutionEvents(id))

    def export_jsonl(self, *, scopes: Iterable[str] | None = None) -> bytes:
        """Return the active records as JSONL: a header line, then one line for each record.

        Args:
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(table.ExportJsonl(scopes=None if scopes is None else several(scopes, "scopes")))

    def import_jsonl(self, data: bytes) -> WriteReport:
        """Write the records of an export. Importing the same export again stores nothing twice.

        Args:
            data: The JSONL of an export.

        Raises:
            DecodeError: A line is not valid. The message names the line.
        """
        return self.execute(table.ImportJsonl(data))


if TYPE_CHECKING:
    from agent_memory_log.recall import Embedder  # needs the extra ``recall``


_DEFAULT_HOOKS = Hooks(OpenPolicy(), OpenExecution(), stop_secrets, None, 1_000, utc_now)


class SyncLazyStore:
    """The store of a client: an open one that was passed in, or one that is opened at the first call."""

    def __init__(self, source: SyncStore | ClientSettings, indexes: WarmIndexes) -> None:
        self._source = source
        self._indexes = indexes
        self._opened: SyncStore | None = None
        self._is_closed = False
        self._locks: dict[int, threading.Lock] = {}
        if not isinstance(source, ClientSettings):
            self._use_indexes(source)

    def _use_indexes(self, store: SyncStore) -> None:
        self._indexes.folder = store.index_folder if isinstance(store, KeepsIndexes) else None

    def _lock(self) -> threading.Lock:
        # A fork may copy a lock that another thread holds, so each process has its own.
        return self._locks.setdefault(os.getpid(), threading.Lock())

    def get(self) -> SyncStore:
        """Return the open store. Raises the errors of ``open_sync_store``, and ``StoreClosed`` after ``close``."""
        if not isinstance(self._source, ClientSettings):
            return self._source
        if self._opened is None:
            from agent_memory_log.opening import open_sync_store  # noqa: PLC0415  # only this client needs it

            with self._lock():
                if self._is_closed:
                    raise StoreClosed("this memory client is closed: make a new one")
                if self._opened is None:
                    store = open_sync_store(self._source.store_url())
                    self._use_indexes(store)
                    self._opened = store
        return self._opened

    def close(self) -> None:
        """Close the store if it was opened here. A client whose store was never opened cannot open it any more."""
        with self._lock():
            self._is_closed = True
            if self._opened is not None:
                self._opened.close()


class SyncMemory(SyncMemoryCalls):
    """The memory that one principal may reach.

    Without a ``scope``, ``remember`` and the calls with a key use the principal's home scope. Without ``scopes``, the
    other calls use every scope that execution allows.

    Every call raises the errors of the store, and ``InvalidArgument`` with the name of an invalid argument. A call that
    reads raises ``MemoryStopped`` with the reason ``scope_denied:<scope>`` if the scope is denied or not the
    principal's.
    """

    def __init__(self, store: SyncLazyStore, principal: Principal, context: Context | Served) -> None:
        """Use ``SyncMemoryClient.of`` instead of this constructor."""
        self._store = store
        self._principal = principal
        self._context = context

    @property
    def principal(self) -> Principal:
        """The principal that this memory belongs to."""
        return self._principal

    def execute(self, operation: Operation[Result]) -> Result:
        """Carry out an operation, as the method with its name does."""
        return run_sync(execute(operation, self._context), self._store.get())


class SyncMemoryClient(SyncMemoryCalls):
    """Opens memory in a store. Any number of clients may use the same store.

    Without a store, the client opens one at its first call: a file in the user's data folder, or the file or server
    that ``config`` or environment variables name. It also has the methods of ``SyncMemory``, for the tenant and user of
    its configuration. ``close`` closes the store.

        with SyncMemoryClient() as me:
            me.remember(key="language", value="english")

    With a store, the client has no principal, so that a server cannot mix up its users. The caller closes the store.

        memory = SyncMemoryClient(store)
        me = memory.of(Principal(tenant="acme", scopes={"user": "42"}))
        me.remember(key="language", value="english")

    A client caches the state of the subjects that it used recently. If the store is on a server, which carries out the
    operations, the arguments after ``config`` are configured there, except ``embedder``.

    Args:
        store: The store that holds the runs and the memory. Default: the store of ``config``.
        config: Keys and values of ``ClientSettings``, such as ``{"mode": "remote", "base_url": "https://…"}``. Missing
            keys come from environment variables, such as ``AMLOG_MODE`` and ``AMLOG_BASE_URL``.
        policy: Decides which memories an application may write. Default: all.
        execution: Decides which memories and scopes are allowed now. Default: all.
        redactor: Checks every candidate first. Default: refuse keys, tokens, card numbers and other secrets.
        extractor: The extractor for ``derive`` calls without an extractor.
        max_keyed: The largest number of preferences and facts of one subject. None: no limit. Default: 1000.
        clock: Returns the current time, timezone-aware. Records expire by it. Default: the machine's clock.
        embedder: Lets search find texts that share no word with a query. It embeds each text once, at the first search
            that needs it. The vectors are stored next to the memories. If it fails, search compares words only.
        count_tokens: Counts the tokens of a text for ``context``. Default: ``tiktoken`` if it is installed, otherwise
            an estimate that is rather too high.
        index_bytes: The approximate memory for the search indexes of all subjects, in bytes. Default: 512 MiB.
        merger: Chooses a value when a new preference or fact would replace another value. Without a merger, the new
            value replaces the old one. ``update`` does not use it. If the merger returns None or fails, the new value
            is stored with the tag ``uncertain`` and the outcome has the reason.
        quotas: More limits of one subject: records, bytes and tokens of the profile. Default: no limits.
        reranker: Orders the best hits of a search again. Default: hits keep the order of the index.
    """

    def __init__(
        self,
        store: SyncStore | None = None,
        *,
        config: Mapping[str, object] | None = None,
        policy: Policy | None = None,
        execution: Execution | None = None,
        redactor: Redactor = stop_secrets,
        extractor: Extractor | None = None,
        max_keyed: int | None = 1_000,
        clock: Clock = utc_now,
        embedder: Embedder | None = None,
        count_tokens: CountTokens | None = None,
        index_bytes: int = INDEX_BYTES,
        merger: Merger | None = None,
        quotas: Quotas = NO_QUOTAS,
        reranker: Reranker | None = None,
    ) -> None:
        """Create a client without reading the store or a file.

        Raises:
            InvalidArgument: A limit is below 1, a hook lacks its method, the configuration is invalid, or an argument
                has to be configured on the server. The message names the argument, key or environment variable.
        """
        if max_keyed is not None and (type(max_keyed) is not int or max_keyed < 1):
            raise InvalidArgument(f"max_keyed must be an integer from 1, or None, got {describe(max_keyed)}")
        check_limit(index_bytes, "index_bytes")
        if not isinstance(quotas, Quotas):
            raise InvalidArgument(f"quotas must be a Quotas, got {describe(quotas)}")
        if store is not None and config is not None:
            raise InvalidArgument("config is only for a client without a store, which opens the store itself")
        self._hooks = Hooks(
            _DEFAULT_HOOKS.policy if policy is None else policy,
            _DEFAULT_HOOKS.execution if execution is None else execution,
            redactor,
            extractor,
            max_keyed,
            clock,
            embedder,
            count_tokens,
            merger,
            index_bytes,
            quotas,
            reranker,
        )
        self._warm = WarmSubjects()
        self._indexes = WarmIndexes(index_bytes)
        self._own_context: Context | Served | None = None
        if store is None:
            settings = read_settings(config)
            self._is_served = settings.mode == "remote"
            self._own_context = self._context_of(settings.principal)
            self._store = SyncLazyStore(settings, self._indexes)
        else:
            require_sync_store(store)
            self._is_served = isinstance(store, ServesMemory)
            self._store = SyncLazyStore(store, self._indexes)
        if self._is_served:
            self._hooks.check_unchanged(_DEFAULT_HOOKS)

    def _context_of(self, principal: Principal | None) -> Context | Served:
        if self._is_served or principal is None:
            return Served(principal, self._hooks.embedder)
        return Context(principal, self._hooks, self._warm, self._indexes)

    def of(self, principal: Principal) -> SyncMemory:
        """Return the memory that a principal may reach. Raises ``InvalidArgument`` if it is not a ``Principal``.

        On a server, the calls of this memory raise ``AccessDenied`` if the token does not reach the principal.
        """
        if not isinstance(principal, Principal):
            raise InvalidArgument(f"expected a Principal, got {describe(principal)}")
        return SyncMemory(self._store, principal, self._context_of(principal))

    @property
    def extractor(self) -> Extractor | None:
        """The extractor that finds memories in the events of runs, or None."""
        return self._hooks.extractor

    def execute(self, operation: Operation[Result]) -> Result:
        """Carry out an operation for the client's principal, as the method with its name does.

        Raises ``InvalidArgument`` if a store was passed to the client, because it has no principal of its own then.
        """
        if self._own_context is None:
            raise InvalidArgument("a client with a passed store has no principal: call .of(principal) first")
        return run_sync(execute(operation, self._own_context), self._store.get())

    def subjects(self, tenant: str | None = None) -> tuple[SubjectId, ...]:
        """Return the subjects that have memory in the store, sorted. This call is for operators.

        ``tenant`` limits the result to one tenant. Default: all tenants.
        """
        return run_sync(list_subjects(tenant), self._store.get())

    def close(self) -> None:
        """SyncStore which records were used, and close the store that this client opened. A passed store stays open.

        A use that cannot be stored is lost, because it only delays the ageing of its record.
        """
        with suppress(AgentMemoryLogError):
            for subject in self._warm.with_uses():
                principal = Principal(subject.tenant, {subject.scope: subject.id})
                context = Context(principal, self._hooks, self._warm, self._indexes)
                run_sync(store_uses(context), self._store.get())
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()
