"""What every operation of one principal needs: who is asking, the hooks, and the subjects kept warm."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.records.principals import Principal, SubjectId
from agent_memory_log.memory.records.protocols import Clock, Execution, Extractor, Merger, Policy, Redactor
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.models.tokens import CountTokens

if TYPE_CHECKING:
    from agent_memory_log.recall import Embedder  # needs the extra ``recall``

WARM_SUBJECTS = 256
"""How many subjects a client keeps warm; the one that was used the longest ago goes first."""


INDEX_BYTES = 512 * 1024 * 1024
"""How much memory the indexes of all subjects may take unless said: some 350,000 short messages, or 20,000 with a
vector of 384 dimensions for each of 25 tokens."""


class Hooks(msgspec.Struct, frozen=True):
    """What the application plugged in; see ``MemoryClient``."""

    policy: Policy
    execution: Execution
    redactor: Redactor
    extractor: Extractor | None
    max_keyed: int | None
    clock: Clock
    embedder: Embedder | None = None
    count_tokens: CountTokens | None = None
    merger: Merger | None = None

    def now(self) -> datetime:
        """The clock's time in UTC. Raises ``InvalidArgument`` for one without a time zone or a place in UTC."""
        time = self.clock()
        if not isinstance(time, datetime) or time.utcoffset() is None:
            raise InvalidArgument(f"the clock must give a timezone-aware datetime, found {describe(time)}")
        try:
            return time.astimezone(UTC)
        except OverflowError as error:
            raise InvalidArgument(
                f"the clock gives {time.isoformat()}, which is outside the years 1 to 9999 in UTC"
            ) from error


class WarmSubjects:
    """The subjects that a client has used lately."""

    def __init__(self) -> None:
        self._subjects: OrderedDict[SubjectId, Subject] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, subject: SubjectId) -> Subject:
        """The subject, warm if it was used lately."""
        with self._lock:
            found = self._subjects.pop(subject, None) or Subject(subject)
            self._subjects[subject] = found
            while len(self._subjects) > WARM_SUBJECTS:
                self._subjects.popitem(last=False)
            return found


class Index(Protocol):
    """An index of what can be found of a subject."""

    @property
    def size(self) -> int:
        """The bytes of memory that it takes, about."""
        ...


_Index = TypeVar("_Index", bound=Index)


class WarmIndexes:
    """The recall indexes of the subjects that were searched lately, as long as all fit into ``max_bytes``, about.

    The one that was used the longest ago goes first. One that a search uses, or has just used, never goes: however
    large the scopes of a principal are together, its next search finds them warm.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._indexes: OrderedDict[SubjectId, Any] = OrderedDict()
        self._searches: Counter[SubjectId] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def of(self, subjects: Sequence[Subject], make: Callable[[Subject], _Index]) -> Generator[list[_Index]]:
        """The indexes of subjects, warm if they were searched lately, for one search."""
        ids = [subject.id for subject in subjects]
        with self._lock:
            self._searches.update(ids)
            for subject in subjects:
                if subject.id not in self._indexes:
                    self._indexes[subject.id] = make(subject)
                self._indexes.move_to_end(subject.id)
            indexes = [self._indexes[one] for one in ids]
        try:
            yield indexes
        finally:
            with self._lock:
                self._make_room()
                self._searches.subtract(ids)
                self._searches += Counter()  # without those that no search uses

    def _make_room(self) -> None:
        taken = sum(index.size for index in self._indexes.values())
        for subject in list(self._indexes):
            if taken <= self._max_bytes:
                return
            if not self._searches[subject]:
                taken -= self._indexes.pop(subject).size

    def __len__(self) -> int:
        return len(self._indexes)


class Context:
    """One principal's."""

    def __init__(self, principal: Principal, hooks: Hooks, warm: WarmSubjects, indexes: WarmIndexes) -> None:
        """Reads nothing."""
        self.principal = principal
        self.hooks = hooks
        self._own = frozenset(principal.scopes)
        self._scopes = tuple(sorted(principal.scopes, key=lambda scope: (scope != principal.home, scope)))
        self.indexes = indexes
        self._warm = warm

    def subject(self, scope: str) -> Subject:
        """The subject of one of the principal's scopes."""
        return self._warm.of(self.principal.subject(scope))

    def all_scopes(self) -> tuple[str, ...]:
        """All scopes of the principal, home first, the others sorted."""
        return self._scopes

    def readable(self, scopes: Iterable[str] | None) -> tuple[str, ...]:
        """The scopes to read: those named, or all that execution allows; home first.

        Raises ``MemoryStopped`` with ``scope_denied:<scope>`` for one that is named and not the principal's, or denied:
        the first, sorted.
        """
        allowed = self._allowed()
        if scopes is None:
            return tuple(scope for scope in self._scopes if scope in allowed)
        wanted = set(scopes)
        for scope in sorted(wanted - allowed):
            raise _denied(scope)
        return tuple(scope for scope in self._scopes if scope in wanted)

    def one(self, scope: str | None) -> str:
        """The scope to read or erase in, where one is meant: the one named, or home. Raises as ``readable`` does."""
        name = self.principal.home if scope is None else scope
        if name not in self._allowed():
            raise _denied(name)
        return name

    def _allowed(self) -> frozenset[str]:
        return self.hooks.execution.retrieval_scopes(self._own) & self._own


def _denied(scope: str) -> MemoryStopped:
    return MemoryStopped(f"the scope {scope!r} may not be read", reason=f"scope_denied:{scope}")
