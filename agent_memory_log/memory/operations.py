"""The table of operations: every call on a principal's memory as a frozen struct, from which the surfaces are made.

``python -m tools.memory_calls`` writes the methods of ``Memory`` from it, and ``amlog memory`` takes its arguments
from it. A new operation is a struct here and a line in ``execution.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

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

KINDS = ("preference", "fact", "episode", "message")
"""What is searched unless said."""

SWEEP_LIMIT = 100
"""How many events a sweep may redact unless said."""

_Scope = Annotated[str | None, Meta(description="The scope; the principal's home unless said.")]
_Scopes = Annotated[tuple[str, ...] | None, Meta(description="The scopes; all that execution allows unless said.")]
_Kinds = Annotated[tuple[str, ...] | None, Meta(description="Only these kinds; all unless said.")]
_Kind = Annotated[str | None, Meta(description="Which is meant, where several kinds have the key.")]
_Id = Annotated[str, Meta(description="The id of a record.")]
_Evidence = Annotated[tuple[Evidence, ...], Meta(description="The events it rests on, the statement itself first.")]
_WithEvidence = Annotated[
    bool,
    Meta(description="Redact also the events it came from, in the runs that are linked to the scope."),
]


class Remember(Operation[Outcome], frozen=True):
    """Remember ``data``, or a preference or fact of ``key`` and ``value``.

    What redaction or execution has something against comes back ``blocked``; ``MemoryStopped`` is raised where policy
    has, with its reason.
    """

    writes = True
    right = "write"
    positional = 1

    data: Annotated[RecordData | None, Meta(description="What to remember, whole.")] = None
    kind: Annotated[str, Meta(description="``preference`` or ``fact``, for ``key`` and ``value``.")] = Preference.kind
    key: str | None = None
    value: str | None = None
    text: Annotated[str, Meta(description="In words; the kind's own words unless said.")] = ""
    scope: _Scope = None
    confidence: Annotated[float, Meta(description="0 to 1; what is beyond is cut.")] = DEFAULT_CONFIDENCE
    importance: Annotated[float, Meta(description="0 to 1; what is beyond is cut.")] = DEFAULT_IMPORTANCE
    ttl_days: Annotated[float | None, Meta(description="Days it is valid; as its kind says unless said.")] = None
    memory_type: Annotated[str, Meta(description="``semantic``, ``episodic`` or ``procedural``; else its kind's.")] = ""
    source: Annotated[Source | None, Meta(description="Who says so; the user unless said.")] = None
    evidence: _Evidence = ()
    entities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()


class Write(Operation[WriteReport], frozen=True):
    """Write several candidates, each scope's at once; what policy stops is in the report."""

    writes = True
    right = "write"
    positional = 1

    candidates: tuple[Candidate, ...]
    origin: Annotated[Origin, Meta(description="Which kind of call they come from.")] = "remember"
    phase: Annotated[str, Meta(description="Noted with what is stopped or blocked.")] = "capture"


class NoteStop(Operation[None], frozen=True):
    """Note that something was stopped before it could be written, and why; never the value."""

    writes = True
    right = "write"
    positional = 1

    reason: Annotated[str, Meta(description="Stable text without the value.")]
    phase: str
    key: str = ""
    scope: _Scope = None
    evidence: _Evidence = ()


class Get(Operation[Record | None], frozen=True):
    """Return the active record with this ``id`` or ``key``, or None if there is no such record or it has expired.

    Without a ``kind``, it is the latest updated record that has the key.
    """

    id: Annotated[str | None, Meta(description="The id of a record, in any scope unless said.")] = None
    key: str | None = None
    kind: _Kind = None
    scope: _Scope = None


class ListRecords(Operation[tuple[Record, ...]], frozen=True):
    """The records of a status, home's first, then as they came."""

    kinds: _Kinds = None
    scopes: _Scopes = None
    status: Annotated[Status, Meta(description="active, superseded, archived or expired.")] = "active"


class Update(Operation[Outcome], frozen=True):
    """Change what is given of an active record. Another ``value`` is a new record, which supersedes it.

    Raises ``InvalidArgument`` where there is no such record, ``MemoryStopped`` as ``remember`` does.
    """

    writes = True
    right = "write"
    positional = 1

    id: _Id
    value: str | None = None
    text: str | None = None
    confidence: float | None = None
    importance: float | None = None
    ttl_days: float | None = None
    entities: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    links: tuple[Link, ...] | None = None


class Forget(Operation[ForgetReport], frozen=True):
    """Erase all that a ``key`` has ever held; or the record with this ``id``, and what else says the same as it.

    ``evidence`` redacts in linked runs: the events it came from, what repeats the value in the same exchange, and every
    ``injected_context`` that names it. ``sweep`` does so too.

    What it came from is not learnt from again; a later statement makes a new memory. What is gone, and when, is as
    for ``Store.redact_events``. Values are compared as whole words, without case, accents, width and white space. The
    report says which events of linked runs and which other records hold the value and stay. Raises ``MemoryStopped``
    where a sweep would redact more than ``sweep_limit`` events, with their number, and nothing is erased.
    """

    writes = True
    right = "erase"

    id: Annotated[str | None, Meta(description="The id of a record, in any scope unless said.")] = None
    key: str | None = None
    kind: _Kind = None
    scope: _Scope = None
    evidence: _WithEvidence = False
    sweep: Annotated[bool, Meta(description="Redact every event of a linked run that holds the value.")] = False
    sweep_limit: Annotated[int, Meta(ge=1, description="Refuse a sweep of more events than this.")] = SWEEP_LIMIT
    dry_run: Annotated[bool, Meta(description="Only report what would go.")] = False


class ForgetAll(Operation[ForgetReport], frozen=True):
    """Erase everything; nothing that was said so far in a run that was derived from is learnt again."""

    writes = True
    right = "erase"

    scopes: _Scopes = None
    runs: Annotated[
        tuple[tuple[str, str], ...],
        Meta(description="More runs to learn nothing from, as (agent, run): conversations that are going on."),
    ] = ()
    evidence: _WithEvidence = False


class Search(Operation[Hits], frozen=True):
    """The records, and the messages of linked runs, that answer ``query`` best, the best first.

    What is not active any longer is never found, nor is a message that something forgotten came from. Scores of two
    questions are not comparable. Without the extra ``recall``, records are found that share words with the question
    (``shared_words`` in ``matched_by``), and no messages; ``note`` says so.
    """

    positional = 1

    query: str
    top_k: Annotated[int, Meta(ge=1, le=10_000, description="At most so many.")] = 4
    kinds: Annotated[
        tuple[str, ...] | None, Meta(description="Registered kinds and ``message``; None: all there are.")
    ] = KINDS
    scopes: _Scopes = None
    since: Annotated[
        datetime | None, Meta(description="Only what was said then or later, such as 2026-11-21T09:30:00Z.")
    ] = None
    until: Annotated[datetime | None, Meta(description="Only what was said before then.")] = None
    min_importance: Annotated[float, Meta(description="In stars, which no message has.")] = 0
    boost_preferences: Annotated[
        tuple[str, ...], Meta(description="Keys of preferences that gain, and need not share a word.")
    ] = ()


class BuildContext(Operation[MemoryContext], frozen=True):
    """What to put in front of a model that is asked ``query``: background, in at most ``max_tokens``.

    Facts and preferences, the most important first; up to five episodes of two stars or more and five messages that
    have to do with the query; then the latest three episodes. What does not fit is left out. The text is the same
    for the same memory and query, so that prompt caches hold; what was stored stands in it in quotes, and cannot
    end it. It is ``""`` where there is nothing. Log it as an ``injected_context``, with the ids in the answer.
    """

    positional = 1

    query: str
    max_tokens: Annotated[int, Meta(ge=1, description="At most so many.")] = 1_000
    scopes: _Scopes = None


class LinkRun(Operation[LinkReport], frozen=True):
    """Let the messages of a run be found, by all who reach the scope; ``derive`` does so at home.

    Those that it will have are found too, and it need not have any yet: the report then names it, as it may be a
    mistake. What was forgotten is not found again.
    """

    writes = True
    right = "write"
    positional = 2

    agent: str
    run: str
    scope: _Scope = None


class LinkRuns(Operation[LinkReport], frozen=True):
    """Link many runs, as ``link_run`` does one, in few appends. Again, and nothing changes."""

    writes = True
    right = "write"
    positional = 1

    runs: Annotated[tuple[tuple[str, str], ...], Meta(description="As (agent, run).")]
    scope: _Scope = None


class History(Operation[tuple[Version, ...]], frozen=True):
    """Every value that a key has had, the oldest first, less what was forgotten."""

    positional = 1

    key: str
    kind: _Kind = None
    scope: _Scope = None


class AsOf(Operation[tuple[Record, ...]], frozen=True):
    """What was active at a time, less what was forgotten since."""

    positional = 1

    time: Annotated[datetime, Meta(description="What was active then, less what was forgotten since.")]
    kinds: _Kinds = None
    scopes: _Scopes = None


class Explain(Operation[Explanation | None], frozen=True):
    """Say why the record with this id, active or not, is or was believed. Returns None for an unknown id.

    Evidence may name any event of the store. The text of an event is shown only if its run is linked to a scope of
    the principal and the event was not forgotten there; for any other, ``reason`` says why it is not shown.
    """

    positional = 1

    id: _Id


class Derive(Operation[DeriveReport], frozen=True):
    """Learn from what is new in a run since it was last derived from. Deriving again writes nothing twice."""

    writes = True
    right = "write"
    positional = 2

    agent: str
    run: str
    extractor: Annotated[Extractor | None, Local] = None


class Rederive(Operation[tuple[DeriveReport, ...]], frozen=True):
    """Ask an extractor anew about every run that was derived from, or those named, from their first events."""

    writes = True
    right = "write"
    positional = 1

    extractor: Annotated[Extractor | None, Local] = None
    runs: Annotated[tuple[tuple[str, str], ...] | None, Meta(description="As (agent, run); all unless said.")] = None


class Rebuild(Operation[RebuildReport], frozen=True):
    """Fold everything again from the first event, without snapshots and without a model."""

    writes = True
    right = "write"


class Cleanup(Operation[CleanupReport], frozen=True):
    """Archive episodes that are older and have fewer stars, and note what has expired."""

    writes = True
    right = "write"

    older_than_days: Annotated[float, Meta(ge=0, le=36_500, description="Only episodes older than that, in days.")] = 90
    below_stars: Annotated[float, Meta(ge=1, le=6, description="Only episodes with fewer stars.")] = 3


class CountRecords(Operation[Stats], frozen=True):
    """Counts of what is there."""


class ExportJsonl(Operation[bytes], frozen=True):
    """The active records as JSONL: a header, then a record a line."""

    scopes: _Scopes = None


class ImportJsonl(Operation[WriteReport], frozen=True):
    """Write the records of an export; again, and nothing is there twice. Raises ``DecodeError`` naming the line."""

    writes = True
    right = "write"
    positional = 1

    data: bytes


METHODS: Mapping[str, type[Operation[Any]]] = {
    "remember": Remember,
    "write": Write,
    "note_stop": NoteStop,
    "get": Get,
    "list": ListRecords,
    "update": Update,
    "forget": Forget,
    "forget_all": ForgetAll,
    "search": Search,
    "context": BuildContext,
    "link_run": LinkRun,
    "link_runs": LinkRuns,
    "history": History,
    "as_of": AsOf,
    "explain": Explain,
    "derive": Derive,
    "rederive": Rederive,
    "rebuild": Rebuild,
    "cleanup": Cleanup,
    "stats": CountRecords,
    "export_jsonl": ExportJsonl,
    "import_jsonl": ImportJsonl,
}
"""The operations by the names that every surface gives them, in the order of their use."""
