"""The protocols that an application can implement for memory, and the defaults, which allow everything."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, overload, runtime_checkable

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory.records.arguments import Operation, Result
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.principals import Principal
from agent_memory_log.memory.records.record import Record
from agent_memory_log.memory.records.reports.outcomes import Outcome
from agent_memory_log.store import Store, SyncStore

Origin = Literal["remember", "derive", "import"]
"""The kind of call that proposes a candidate."""

Clock = Callable[[], datetime]
"""A function that returns the current time, timezone-aware."""


class Refusal(msgspec.Struct, frozen=True):
    """The answer of a redactor that blocks a candidate.

    The stream records the refusal: the reason, the evidence, the kind if it is registered, and the scope if it is the
    principal's. It also records the key, if the redactor accepts the key alone.

    Attributes:
        reason: Stable text that does not contain the value.
    """

    reason: str


class Violation(msgspec.Struct, frozen=True):
    """The answer of a policy that refuses candidates.

    Attributes:
        reason: Stable text.
        key: The key that broke the rule, or ``""``.
        scope: The scope that broke the rule, or ``""``.
    """

    reason: str
    key: str = ""
    scope: str = ""


class Redactor(Protocol):
    """Checks every candidate first, before policy and execution."""

    def __call__(self, candidate: Candidate, /) -> Candidate | Refusal:
        """Return the candidate, with or without changes, or a refusal that blocks it."""
        ...


class Policy(Protocol):
    """Decides which memories an application may propose. ``OpenPolicy`` allows everything; a subclass can refuse."""

    @property
    def allowed_keys(self) -> frozenset[str] | None:
        """The keys that a model may propose, in lower case. None: any key."""
        ...

    @property
    def allowed_scopes(self) -> frozenset[str] | None:
        """The scopes that a model may propose. None: all scopes of the principal."""
        ...

    @property
    def preference_ttl_days(self) -> int | None:
        """The lifetime of a preference that names none, in days. None: for ever."""
        ...

    def violation(self, candidates: Sequence[Candidate], *, origin: Origin) -> Violation | None:
        """Return the violation, or None if all candidates are allowed.

        A violation stops a call of ``remember`` or ``write`` and an import. With the origin ``derive``, each candidate
        is passed alone, and a violation blocks only this candidate.
        """
        ...


class Execution(Protocol):
    """Decides which memories and scopes are allowed now."""

    def denial(self, candidate: Candidate, /) -> str | None:
        """Return the reason to block this candidate, or None. The other candidates are still written."""
        ...

    def retrieval_scopes(self, scopes: frozenset[str], /) -> frozenset[str]:
        """Return the scopes of a principal that may be read now."""
        ...


class RunSlice(msgspec.Struct, frozen=True):
    """The new part of a run.

    Attributes:
        agent: The agent of the run.
        run: The run.
        meta: The metadata of the run.
        after: The seq before the first new event.
        events: The new events in seq order.
        scopes: The scopes that a candidate may name.
        keys: The keys that a candidate may have, in lower case. None: any key.
    """

    agent: str
    run: str
    meta: Mapping[str, JsonValue]
    after: int
    events: Sequence[Event]
    scopes: tuple[str, ...]
    keys: tuple[str, ...] | None = None


class Extraction(msgspec.Struct, frozen=True):
    """The result of an extractor for one slice.

    Attributes:
        candidates: The proposed memories.
        position: The seq up to which the extractor has read. None: all events. The next call reads the later events
            again, so this call drops candidates that cite later events.
        refused: The items that the extractor found but could not accept, as outcomes with the action ``blocked``.
        stop_reason: The reason why the extractor could not work, or ``""``. With a reason, nothing is written, and the
            next call reads all events again.
        error: The message of an error of the extractor, or ``""``.
        model_calls: The number of model calls.
        usage: The usage that the model reported, such as tokens.
    """

    candidates: tuple[Candidate, ...] = ()
    position: int | None = None
    refused: tuple[Outcome, ...] = ()
    stop_reason: str = ""
    error: str = ""
    model_calls: int = 0
    usage: Mapping[str, JsonValue] = msgspec.field(default_factory=dict[str, JsonValue])


class Extractor(Protocol):
    """Finds candidates in a run. An asynchronous client calls it in a thread."""

    @property
    def name(self) -> str:
        """The name of the extractor, without a ``/``. The ``item`` of each evidence begins with this name."""
        ...

    def extract(self, new: RunSlice, /) -> Extraction:
        """Return the candidates in ``new``. If it raises, the report has the error, and the next call tries again."""
        ...


class Merger(Protocol):
    """Merges two values of a preference or fact. An asynchronous client calls it in a thread."""

    def merge(self, record: Record, candidate: Candidate, /) -> str | None:
        """Return the value that holds now, or None if the merger cannot decide.

        If it raises, the candidate is stored, and the outcome has the error; ``resolve`` raises ``InvalidArgument``.

        Args:
            record: The active record.
            candidate: The candidate that would replace the record.
        """
        ...


class Reranker(Protocol):
    """Compares texts with a question more exactly than a search does, and more slowly. An example is a cross-encoder.

    A search passes the texts of its best hits, at most 50 or ``top_k``. An asynchronous client calls it in a thread.
    """

    def rerank(self, query: str, texts: Sequence[str], /) -> Sequence[float]:
        """Return the score of each text, higher for a better answer. If it raises, the hits stay as they are."""
        ...


@runtime_checkable
class Summarizer(Protocol):
    """A merger that also writes summaries. ``maintain`` uses it to consolidate old episodes."""

    def summarize(self, texts: Sequence[str], /) -> str | None:
        """Return one text that says the same as several texts, or None if they do not belong together.

        If it returns None or raises, the records stay as they are. An asynchronous client calls it in a thread.
        """
        ...


@runtime_checkable
class ServesMemory(Protocol):
    """A ``Store`` or a ``SyncStore`` that carries out memory operations itself, such as the store of a server.

    Test for it with ``isinstance``. ``execute_memory`` does what ``Memory.execute`` does on any other store: the same
    result, and the same errors. For the principal None, it uses the principal of the caller's token. It raises
    ``AccessDenied`` if the principal reaches more than the token allows.
    """

    @overload
    def execute_memory(
        self: Store, operation: Operation[Result], principal: Principal | None, /
    ) -> Coroutine[Any, Any, Result]: ...

    @overload
    def execute_memory(self: SyncStore, operation: Operation[Result], principal: Principal | None, /) -> Result: ...


class OpenPolicy:
    """The policy that allows everything."""

    allowed_keys: frozenset[str] | None = None
    allowed_scopes: frozenset[str] | None = None
    preference_ttl_days: int | None = None

    def violation(self, candidates: Sequence[Candidate], *, origin: Origin) -> Violation | None:  # noqa: ARG002  # the protocol's
        """Return None."""
        return None


class OpenExecution:
    """The execution that permits everything."""

    def denial(self, candidate: Candidate, /) -> str | None:  # noqa: ARG002  # the protocol's
        """Return None."""
        return None

    def retrieval_scopes(self, scopes: frozenset[str], /) -> frozenset[str]:
        """Return all scopes."""
        return scopes


def utc_now() -> datetime:
    """Return the time of the system's clock, in UTC."""
    return datetime.now(UTC)
