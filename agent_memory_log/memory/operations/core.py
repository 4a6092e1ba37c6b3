"""The operations that store, read, search, derive, forget and move memories."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from agent_memory_log.memory.operations.fields import RecordId, Scope, Scopes, Share, Tags, ValidFrom
from agent_memory_log.memory.records.arguments import Local, Operation
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Preference, RecordData
from agent_memory_log.memory.records.protocols import Extractor, Origin
from agent_memory_log.memory.records.record import (
    DEFAULT_CONFIDENCE,
    DEFAULT_IMPORTANCE,
    Evidence,
    Link,
    Record,
    Source,
    Status,
)
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
from agent_memory_log.memory.records.vectors import QueryVectors

KINDS = ("preference", "fact", "episode", "note", "relation", "message")
"""The kinds that a search covers by default."""

MOST_QUERY = 20_000
"""The characters of a question that are read: its first ones. To read a question takes a second for 100,000 words."""

SWEEP_LIMIT = 100
"""The number of events that one sweep may redact by default."""

_Kinds = Annotated[tuple[str, ...] | None, Meta(description="Only these kinds. Default: all kinds.")]
_Kind = Annotated[str | None, Meta(description="The kind, if records of several kinds have the key.")]
_AnyId = Annotated[str | None, Meta(description="The id of a record, in any scope unless ``scope`` is given.")]
_Key = Annotated[str, Meta(description="The key of a preference or fact.")]
_OptionalKey = Annotated[str | None, Meta(description="The key of a preference or fact.")]
_Evidence = Annotated[
    tuple[Evidence, ...], Meta(description="The events that support the memory; the statement itself comes first.")
]
_WithEvidence = Annotated[
    bool, Meta(description="Also redact the events that the memory came from, in runs linked to the scope.")
]
_Vectors = Annotated[QueryVectors | None, Meta(description="The query's vectors, if the caller embedded it.")]
_Agent = Annotated[str, Meta(description="The agent of the run.")]
_Run = Annotated[str, Meta(description="The id of the run.")]


class Remember(Operation[Outcome], frozen=True):
    """Remember ``data``, or a preference or fact with a ``key`` and a ``value``.

    If the redactor or execution refuses the memory, the outcome's action is ``blocked``.

    Raises:
        MemoryStopped: The policy refuses the memory. The error has the reason.
    """

    writes = True
    right = "write"
    positional = 1

    data: Annotated[RecordData | None, Meta(description="The data to remember, instead of key and value.")] = None
    kind: Annotated[str, Meta(description="``preference`` or ``fact``, for key and value.")] = Preference.kind
    key: _OptionalKey = None
    value: Annotated[str | None, Meta(description="The value to store under the key.")] = None
    text: Annotated[str, Meta(description="The memory in words. Default: the text that its kind makes.")] = ""
    scope: Scope = None
    confidence: Share = DEFAULT_CONFIDENCE
    importance: Share = DEFAULT_IMPORTANCE
    ttl_days: Annotated[float | None, Meta(description="1 to 36,500 days until it expires. Default: its kind's.")] = (
        None
    )
    valid_from: ValidFrom = None
    valid_until: Annotated[datetime | None, Meta(description="The time until which it is true.")] = None
    memory_type: Annotated[str, Meta(description="``semantic``, ``episodic`` or ``procedural``; else its kind's.")] = ""
    source: Annotated[Source | None, Meta(description="The source of the memory. Default: the user.")] = None
    evidence: _Evidence = ()
    entities: Annotated[tuple[str, ...], Meta(description="Names of people and things. Search looks at them.")] = ()
    tags: Tags = ()
    links: Annotated[tuple[Link, ...], Meta(description="Links to other records.")] = ()


class Write(Operation[WriteReport], frozen=True):
    """Write several candidates, one append for each scope. If the policy refuses one, none is written.

    A refusal by the policy raises no error. The report then has the status ``stopped`` and the reason.
    """

    writes = True
    right = "write"
    positional = 1

    candidates: Annotated[tuple[Candidate, ...], Meta(description="The proposed memories.")]
    origin: Annotated[Origin, Meta(description="The kind of call that proposes them.")] = "remember"
    phase: Annotated[str, Meta(description="Stored with every note of a refused memory.")] = "capture"


class NoteStop(Operation[None], frozen=True):
    """Store a note that the application stopped before it wrote a memory. Never put the value into the note."""

    writes = True
    right = "write"
    positional = 1

    reason: Annotated[str, Meta(description="A stable reason that does not contain the value.")]
    phase: Annotated[str, Meta(description="The phase of the application that stopped.")]
    key: Annotated[str, Meta(description="The key of the memory, if it has one.")] = ""
    scope: Scope = None
    evidence: _Evidence = ()


class Get(Operation[Record | None], frozen=True):
    """Return the active record with this ``id`` or ``key``, or None if there is no such record or it has expired.

    If records of several kinds have the key and no ``kind`` is given, return the one that was updated last.
    """

    id: _AnyId = None
    key: _OptionalKey = None
    kind: _Kind = None
    scope: Scope = None


class ListRecords(Operation[tuple[Record, ...]], frozen=True):
    """List the records with a status. The home scope comes first. Within a scope, the oldest record comes first."""

    kinds: _Kinds = None
    scopes: Scopes = None
    status: Annotated[Status, Meta(description="active, superseded, archived or expired.")] = "active"


class Update(Operation[Outcome], frozen=True):
    """Change fields of an active record. A new ``value`` creates a new record that supersedes the old one.

    Fields that are not given stay unchanged.

    Raises:
        InvalidArgument: There is no active record with this id.
        MemoryStopped: The policy refuses the change. The error has the reason.
    """

    writes = True
    right = "write"
    positional = 1

    id: RecordId
    value: Annotated[str | None, Meta(description="The new value.")] = None
    text: Annotated[str | None, Meta(description="The new text.")] = None
    confidence: Annotated[float | None, Meta(description="The new confidence, 0 to 1.")] = None
    importance: Annotated[float | None, Meta(description="The new importance, 0 to 1.")] = None
    ttl_days: Annotated[float | None, Meta(description="Days from now until it expires, 1 to 36,500.")] = None
    entities: Annotated[tuple[str, ...] | None, Meta(description="The new entities; they replace the old.")] = None
    tags: Annotated[tuple[str, ...] | None, Meta(description="The new tags; they replace the old ones.")] = None
    links: Annotated[tuple[Link, ...] | None, Meta(description="The new links; they replace the old ones.")] = None


class Forget(Operation[ForgetReport], frozen=True):
    """Erase every value of a ``key``, or the record with this ``id`` and the records that say the same.

    ``evidence`` also redacts events in linked runs: the events that the memory came from, the events of the same
    exchange that repeat the value, and every ``injected_context`` that names the record. ``sweep`` does this too.

    Memory does not learn again from the old statements. A later statement creates a new memory. Erasure has the same
    effect and limits as ``Store.redact_events``. Values match as whole words. Case, accents, width and white space
    make no difference. The report names the events of linked runs and the other records that still hold the value.

    Raises:
        MemoryStopped: The sweep would redact more than ``sweep_limit`` events. The message gives the number.
            Nothing is erased.
    """

    writes = True
    right = "erase"

    id: _AnyId = None
    key: _OptionalKey = None
    kind: _Kind = None
    scope: Scope = None
    evidence: _WithEvidence = False
    sweep: Annotated[bool, Meta(description="Redact every event of a linked run that holds the value.")] = False
    sweep_limit: Annotated[int, Meta(ge=1, description="Refuse a sweep of more events than this.")] = SWEEP_LIMIT
    dry_run: Annotated[bool, Meta(description="Only report what would be erased.")] = False


class ForgetAll(Operation[ForgetReport], frozen=True):
    """Erase all memories of the scopes. Memory does not learn again from earlier events of their runs."""

    writes = True
    right = "erase"

    scopes: Scopes = None
    runs: Annotated[
        tuple[tuple[str, str], ...],
        Meta(description="Other runs to ignore up to now, as (agent, run); for example, open conversations."),
    ] = ()
    evidence: _WithEvidence = False


class Search(Operation[Hits], frozen=True):
    """Search the active records and the messages of linked runs. Return the best matches first.

    The question decides how it is answered, and ``plan`` of the hits says how. "Latest" and "first" order relevant hits
    by time. "List all" and "how many" bring up to 50 hits, the best of each run first, if ``top_k`` is not given. For a
    question about what holds now, a text that changes an earlier one comes before it.

    A message is not found if a memory that came from it was forgotten. Do not compare the scores of two queries.
    Without the extra ``recall``, search finds only records that share words with the query, and no messages.
    Then ``matched_by`` has ``shared_words``, and ``note`` gives the reason.
    """

    positional = 1

    query: Annotated[
        str, Meta(description="The question or words to search for. The first 20,000 characters are read.")
    ]
    top_k: Annotated[
        int | None,
        Meta(ge=1, le=10_000, description="The most hits. Default: 4, or 50 if every instance is asked for."),
    ] = None
    kinds: Annotated[tuple[str, ...] | None, Meta(description="Record kinds and ``message``. None: all.")] = KINDS
    scopes: Scopes = None
    since: Annotated[datetime | None, Meta(description="Only from this time on, such as 2026-11-21T09:30:00Z.")] = None
    until: Annotated[datetime | None, Meta(description="Only from before this time.")] = None
    min_importance: Annotated[float, Meta(description="The least importance, in stars. Messages have no stars.")] = 0
    boost_preferences: Annotated[tuple[str, ...], Meta(description="Keys of preferences to rank higher.")] = ()
    vectors: _Vectors = None


class BuildContext(Operation[MemoryContext], frozen=True):
    """Return background from memory for a model that will answer ``query``, in at most ``max_tokens`` tokens.

    The text has three parts. First come facts and preferences, the most important first. Next come up to five
    episodes, notes and relations with two or more stars, and five messages, if they match the query. Last come the
    three latest episodes. More matching messages fill the remaining tokens, and then the latest messages that may
    change earlier ones. Each message that may change an earlier one is marked. A long message is shortened to the
    sentences that match.
    Text that does not fit is left out. If nothing is left, the text is ``""``.

    The same memory and query give the same text, so prompt caches work. Stored text is quoted and cannot close its
    quotation. ``recorder.inject`` logs the result.
    """

    positional = 1

    query: Annotated[
        str, Meta(description="The question that the model will answer. The first 20,000 characters are read.")
    ]
    max_tokens: Annotated[int, Meta(ge=1, description="The most tokens that the text may have.")] = 1_000
    scopes: Scopes = None
    vectors: _Vectors = None


class LinkRun(Operation[LinkReport], frozen=True):
    """Link a run to a scope, so that searches of this scope find its messages.

    Everyone who can reach the scope can then find them, including messages that are appended later. ``derive`` links
    a run to the home scope. The report names a run without events, because its name may be a mistake. Linking does
    not bring back forgotten messages.
    """

    writes = True
    right = "write"
    positional = 2

    agent: _Agent
    run: _Run
    scope: Scope = None


class LinkRuns(Operation[LinkReport], frozen=True):
    """Link many runs as ``link_run`` does, in few appends. Linking a run again changes nothing."""

    writes = True
    right = "write"
    positional = 1

    runs: Annotated[tuple[tuple[str, str], ...], Meta(description="The runs, as (agent, run).")]
    scope: Scope = None


class History(Operation[tuple[Version, ...]], frozen=True):
    """Return every value that a key has had, oldest first, without forgotten values."""

    positional = 1

    key: _Key
    kind: _Kind = None
    scope: Scope = None


class AsOf(Operation[tuple[Record, ...]], frozen=True):
    """Return the records that were active at a time, without those that were forgotten since."""

    positional = 1

    time: Annotated[datetime, Meta(description="List the records that were active at this time.")]
    kinds: _Kinds = None
    scopes: Scopes = None


class Explain(Operation[Explanation | None], frozen=True):
    """Return the source, the evidence and the history of a record, active or not. Return None for an unknown id.

    Evidence may name any event of the store. The text of an event is shown only if its run is linked to a scope of
    the principal and the event was not forgotten there. Otherwise ``reason`` says why the text is missing.
    """

    positional = 1

    id: RecordId


class Derive(Operation[DeriveReport], frozen=True):
    """Learn from the events of a run that no earlier call has read. Repeated calls store no memory twice."""

    writes = True
    right = "write"
    positional = 2

    agent: _Agent
    run: _Run
    extractor: Annotated[Extractor | None, Local] = None


class Rederive(Operation[tuple[DeriveReport, ...]], frozen=True):
    """Learn again from the first event of each run: ``runs``, or by default every run that ``derive`` has read."""

    writes = True
    right = "write"
    positional = 1

    extractor: Annotated[Extractor | None, Local] = None
    runs: Annotated[tuple[tuple[str, str], ...] | None, Meta(description="As (agent, run). Default: all.")] = None


class Rebuild(Operation[RebuildReport], frozen=True):
    """Rebuild the state of each scope from the first event of its stream, without snapshots and without a model."""

    writes = True
    right = "write"


class Purge(Operation[PurgeReport], frozen=True):
    """Erase the memories that have lost their evidence, because every event they cite was redacted or deleted.

    No call returns such a memory from the moment of the erasure on. Every write erases it from the store too, with its
    vectors, snapshots and the injected contexts that quote it. ``purge`` does so without a write.
    """

    writes = True
    right = "erase"


class CountRecords(Operation[Stats], frozen=True):
    """Count the records, events and runs of all scopes that may be read."""


class ExportJsonl(Operation[bytes], frozen=True):
    """Return the active records as JSONL: a header line, then one line for each record."""

    scopes: Scopes = None


class ImportJsonl(Operation[WriteReport], frozen=True):
    """Write the records of an export. Importing the same export again stores nothing twice.

    Raises:
        DecodeError: A line is not valid. The message names the line.
    """

    writes = True
    right = "write"
    positional = 1

    data: Annotated[bytes, Meta(description="The JSONL of an export.")]
