"""The protocols that an application can implement for memory, and the defaults, which allow everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, Protocol

import msgspec

from agent_memory_log.events.event import Event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.record import Record

Origin = Literal["remember", "derive", "import"]
"""The kind of call that proposes a candidate."""

Clock = Callable[[], datetime]
"""A function that returns the current time, timezone-aware."""


class Refusal(msgspec.Struct, frozen=True):
    """A redactor's word that a candidate is not to be stored, and why: stable text without the value.

    Of the candidate no more is noted than the events it rests on, its kind where that is registered, its scope where
    that is the principal's, and its key, which the redactor is shown again, alone, and must let pass.
    """

    reason: str


class Violation(msgspec.Struct, frozen=True):
    """A policy's word that a call must stop: the stable ``reason``, and the key and scope that broke it."""

    reason: str
    key: str = ""
    scope: str = ""


class Redactor(Protocol):
    """Sees every candidate before anything else does."""

    def __call__(self, candidate: Candidate, /) -> Candidate | Refusal:
        """Return the candidate, with or without changes, or a refusal that blocks it."""
        ...


class Policy(Protocol):
    """Decides which memories an application may propose."""

    def violation(self, candidates: Sequence[Candidate], *, origin: Origin) -> Violation | None:
        """Return the violation that stops the whole call, or None if all candidates are allowed."""
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
    """The new part of a run: its ``events`` after seq ``after``, in seq order.

    ``meta`` is the run's own map; ``scopes`` are those a candidate may name.
    """

    agent: str
    run: str
    meta: Mapping[str, JsonValue]
    after: int
    events: Sequence[Event]
    scopes: tuple[str, ...]


class Extraction(msgspec.Struct, frozen=True):
    """The result of an extractor for one slice.

    - ``candidates``: what it proposes.
    - ``position``: the seq up to which it is done (None: all). What is beyond is read again next time, and candidates
      with evidence beyond it are dropped.
    - ``stop_reason``: where it could not do its work: nothing is written then, and all is read again next time.
    - ``model_calls``, ``usage``: what it cost.
    """

    candidates: tuple[Candidate, ...] = ()
    position: int | None = None
    stop_reason: str = ""
    model_calls: int = 0
    usage: Mapping[str, JsonValue] = msgspec.field(default_factory=dict[str, JsonValue])


class Extractor(Protocol):
    """Finds what is worth remembering. Runs in a thread of its own where the caller is asynchronous."""

    @property
    def name(self) -> str:
        """Its name, which begins the ``item`` of its evidence; without a ``/``."""
        ...

    def extract(self, new: RunSlice, /) -> Extraction:
        """Return the candidates in ``new``. An exception is reported, and the events are read again next time."""
        ...


class Merger(Protocol):
    """Makes one value of two that a preference or fact has had. Runs in a thread of its own, as an extractor does."""

    def merge(self, known: Record, candidate: Candidate, /) -> str | None:
        """The value that holds now, given the active record and what is to take its place; None: undecidable.

        Whatever it raises is noted in the outcome, and the candidate is kept.
        """
        ...


class OpenPolicy:
    """The policy that allows everything."""

    def violation(self, candidates: Sequence[Candidate], *, origin: Origin) -> Violation | None:  # noqa: ARG002  # the protocol's
        """None."""
        return None


class OpenExecution:
    """The execution that permits everything."""

    def denial(self, candidate: Candidate, /) -> str | None:  # noqa: ARG002  # the protocol's
        """None."""
        return None

    def retrieval_scopes(self, scopes: frozenset[str], /) -> frozenset[str]:
        """All of them."""
        return scopes


def utc_now() -> datetime:
    """The machine's clock."""
    return datetime.now(UTC)
