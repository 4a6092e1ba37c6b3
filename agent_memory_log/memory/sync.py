"""Made from ``calls.py`` and ``client.py`` by ``python -m tools.sync_twin``, without ``await``.

Any number of threads may use it.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from agent_memory_log.capabilities import KeepsIndexes
from agent_memory_log.errors import InvalidArgument, StoreClosed
from agent_memory_log.events.fields import describe
from agent_memory_log.memory import operations as table
from agent_memory_log.memory import tool_operations as tool_table
from agent_memory_log.memory.configuration import ClientSettings, read_settings
from agent_memory_log.memory.execution import execute
from agent_memory_log.memory.operations import KINDS, SWEEP_LIMIT
from agent_memory_log.memory.policy.rules import check_limit
from agent_memory_log.memory.policy.secrets import stop_secrets
from agent_memory_log.memory.records.arguments import Operation, Result, several
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Preference, RecordData
from agent_memory_log.memory.records.messages import Turn
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
    ServesMemory,
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
    PurgeReport,
    RebuildReport,
    Stats,
    Version,
    WriteReport,
)
from agent_memory_log.memory.stream.context import INDEX_BYTES, Context, Hooks, Served, WarmIndexes, WarmSubjects
from agent_memory_log.memory.stream.subjects import list_subjects
from agent_memory_log.models.tokens import CountTokens
from agent_memory_log.steps import run_sync
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
            ttl_days: Days until it expires. Default: its kind's lifetime.
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
            ttl_days: Days from now until the record expires.
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
        return self.execute(tool_table.Delete(id))

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
        return self.execute(tool_table.Restore(id))

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
        top_k: int = 4,
        kinds: Iterable[str] | None = KINDS,
        scopes: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_importance: float = 0,
        boost_preferences: Iterable[str] = (),
    ) -> Hits:
        """Search the active records and the messages of linked runs. Return the best matches first.

        A message is not found if a memory that came from it was forgotten. Do not compare the scores of two
        queries. Without the extra ``recall``, search finds only records that share words with the query, and no
        messages. Then ``matched_by`` has ``shared_words``, and ``note`` gives the reason.

        Args:
            query: The question or words to search for.
            top_k: Return at most this many hits.
            kinds: Record kinds and ``message``. None: all.
            scopes: The scopes. Default: all that execution allows.
            since: Only from this time on, such as 2026-11-21T09:30:00Z.
            until: Only from before this time.
            min_importance: The least importance, in stars. Messages have no stars.
            boost_preferences: Keys of preferences to rank higher.
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
        """Return background from memory for a model that will answer ``query``, in at most ``max_tokens`` tokens.

        The text has three parts. First come facts and preferences, the most important first. Next come up to five
        episodes with two or more stars, and five messages, if they match the query. Last come the three latest
        episodes. More matching messages fill the remaining tokens. A long message is shortened to the sentences
        that match. Text that does not fit is left out. If nothing is left, the text is ``""``.

        The same memory and query give the same text, so prompt caches work. Stored text is quoted and cannot close
        its quotation. ``recorder.inject`` logs the result.

        Args:
            query: The question that the model will answer.
            max_tokens: The most tokens that the text may have.
            scopes: The scopes. Default: all that execution allows.
        """
        return self.execute(
            table.BuildContext(
                query, max_tokens=max_tokens, scopes=None if scopes is None else several(scopes, "scopes")
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

    def ingest(self, turns: Iterable[Turn], source_id: str, *, first_turn: int = 0) -> DeriveReport:
        """SyncStore the turns of a conversation as a run, and learn from them.

        The run belongs to the principal, and ``source_id`` names it. A turn that is stored already is not stored
        again, so the same call can be repeated, and a later call can pass the whole conversation with new turns at
        its end.

        Args:
            turns: The turns, in the order in which they were said.
            source_id: The name of the conversation, the same in each call about it.
            first_turn: The place of the first of these turns in the conversation, from 0.

        Raises:
            InvalidArgument: A turn differs from the turn that is stored at its place, or there is no extractor.
        """
        return self.execute(tool_table.Ingest(several(turns, "turns"), source_id, first_turn=first_turn))

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

    def cleanup(self, *, older_than_days: float = 90, below_stars: float = 3) -> CleanupReport:
        """Archive old episodes with few stars, and close the records that have expired.

        Args:
            older_than_days: Only episodes older than this, in days.
            below_stars: Only episodes with fewer stars.
        """
        return self.execute(table.Cleanup(older_than_days=older_than_days, below_stars=below_stars))

    def purge(self) -> PurgeReport:
        """Erase the memories that have lost their evidence, because every event they cite was redacted or deleted.

        No call returns such a memory from the moment of the erasure on. Every write erases it from the store too,
        with its vectors, snapshots and the injected contexts that quote it. ``purge`` does so without a write.
        """
        return self.execute(table.Purge())

    def stats(self) -> Stats:
        """Count the records, events and runs of all scopes that may be read."""
        return self.execute(table.CountRecords())

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
    operations, the arguments after ``config`` are configured there.

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
    ) -> None:
        """Create a client without reading the store or a file.

        Raises:
            InvalidArgument: A limit is below 1, the configuration is invalid, or an argument has to be configured on
                the server. The message names the argument, key or environment variable.
        """
        if max_keyed is not None and (type(max_keyed) is not int or max_keyed < 1):
            raise InvalidArgument(f"max_keyed must be an integer from 1, or None, got {describe(max_keyed)}")
        check_limit(index_bytes, "index_bytes")
        if store is not None and config is not None:
            raise InvalidArgument("config is only for a client without a store, which opens the store itself")
        self._hooks = Hooks(
            policy or _DEFAULT_HOOKS.policy,
            execution or _DEFAULT_HOOKS.execution,
            redactor,
            extractor,
            max_keyed,
            clock,
            embedder,
            count_tokens,
            merger,
            index_bytes,
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
            self._is_served = isinstance(store, ServesMemory)
            self._store = SyncLazyStore(store, self._indexes)
        if self._is_served:
            self._hooks.check_unchanged(_DEFAULT_HOOKS)

    def _context_of(self, principal: Principal | None) -> Context | Served:
        if self._is_served or principal is None:
            return Served(principal)
        return Context(principal, self._hooks, self._warm, self._indexes)

    def of(self, principal: Principal) -> SyncMemory:
        """Return the memory that a principal may reach. Raises ``InvalidArgument`` if it is not a ``Principal``.

        On a server, the calls of this memory raise ``AccessDenied`` if the token does not reach the principal.
        """
        if not isinstance(principal, Principal):
            raise InvalidArgument(f"expected a Principal, got {describe(principal)}")
        return SyncMemory(self._store, principal, self._context_of(principal))

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
        """Close the store that this client opened. A store that was passed to it stays open."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()
