"""The context of an operation: the principal, the hooks, and the caches of subjects and search indexes."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from agent_memory_log.capabilities import IndexFolder
from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.records.principals import Principal, SubjectId
from agent_memory_log.memory.records.protocols import Clock, Execution, Extractor, Merger, Policy, Redactor, Reranker
from agent_memory_log.memory.records.quotas import NO_QUOTAS, Quotas
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.models.tokens import CountTokens

if TYPE_CHECKING:
    from agent_memory_log.recall import Embedder  # needs the extra ``recall``

WARM_SUBJECTS = 256
"""The number of subjects in a client's cache. The least recently used subject is dropped first."""

INDEX_BYTES = 512 * 1024 * 1024
"""The default limit of the indexes of all subjects, in bytes.

It is enough for about 350,000 short messages, or for 20,000 messages of 25 tokens with a vector of 384 dimensions each.
"""


_METHODS = {
    "policy": "violation",
    "execution": "denial",
    "embedder": "embed",
    "merger": "merge",
    "reranker": "rerank",
    "redactor": "__call__",
    "clock": "__call__",
    "count_tokens": "__call__",
}
"""A method of each hook. ``derive`` checks its extractor, which can also be an argument."""


class Hooks(msgspec.Struct, frozen=True):
    """The plug-ins and limits that the application gives to ``MemoryClient``."""

    policy: Policy
    execution: Execution
    redactor: Redactor
    extractor: Extractor | None
    max_keyed: int | None
    clock: Clock
    embedder: Embedder | None = None
    count_tokens: CountTokens | None = None
    merger: Merger | None = None
    index_bytes: int = INDEX_BYTES
    quotas: Quotas = NO_QUOTAS
    reranker: Reranker | None = None

    def __post_init__(self) -> None:
        """Raise ``InvalidArgument`` with the name of a hook without its method."""
        for name, method in _METHODS.items():
            hook = getattr(self, name)
            if hook is not None and (isinstance(hook, type) or not callable(getattr(hook, method, None))):
                raise InvalidArgument(f"{name} must be an object with the method {method}, got {describe(hook)}")

    def check_unchanged(self, defaults: Hooks) -> None:
        """Raise ``InvalidArgument`` with the name of a hook that is not the default, because a server has its own.

        A client of a server may have an embedder. See ``memory.embedding.sending``.
        """
        for name in Hooks.__struct_fields__:
            if name != "embedder" and getattr(self, name) != getattr(defaults, name):
                raise InvalidArgument(
                    f"{name} has no effect on a server, which carries out the operations: configure it there"
                )

    def now(self) -> datetime:
        """Return the clock's time in UTC. Raises ``InvalidArgument`` if the time has no zone or no value in UTC."""
        time = self.clock()
        if not isinstance(time, datetime) or time.utcoffset() is None:
            raise InvalidArgument(f"the clock must return a timezone-aware datetime, got {describe(time)}")
        try:
            return time.astimezone(UTC)
        except OverflowError as error:
            raise InvalidArgument(
                f"the clock returned {time.isoformat()}, which is outside the years 1 to 9999 in UTC"
            ) from error


class WarmSubjects:
    """A cache of the subjects that a client used most recently."""

    def __init__(self) -> None:
        self._subjects: OrderedDict[SubjectId, Subject] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, subject: SubjectId) -> Subject:
        """Return the subject from the cache, or add it."""
        with self._lock:
            cached = self._subjects.pop(subject, None) or Subject(subject)
            self._subjects[subject] = cached
            while len(self._subjects) > WARM_SUBJECTS:
                self._subjects.popitem(last=False)
            return cached

    def with_uses(self) -> list[SubjectId]:
        """Return the subjects with a use of a record that is not stored yet."""
        with self._lock:
            return [subject.id for subject in self._subjects.values() if subject.has_uses]


class Index(Protocol):
    """A search index of one subject."""

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        ...


_Index = TypeVar("_Index", bound=Index)


class WarmIndexes:
    """A cache of the search indexes of subjects, limited to about ``max_bytes``. ``folder`` is for their files.

    When a search ends, the least recently used indexes are dropped until the limit is met. The indexes of this search
    and of running searches stay, even if they exceed the limit. So the principal's next search finds them.
    """

    def __init__(self, max_bytes: int, folder: IndexFolder | None = None) -> None:
        self._max_bytes = max_bytes
        self.folder = folder
        self._indexes: OrderedDict[SubjectId, Any] = OrderedDict()
        self._searches: Counter[SubjectId] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def of(self, subjects: Sequence[Subject], make: Callable[[Subject], _Index]) -> Generator[list[_Index]]:
        """Yield the indexes of the subjects for one search. Missing indexes are made and added."""
        ids = [subject.id for subject in subjects]
        with self._lock:
            self._searches.update(ids)
            for subject in subjects:
                if subject.id not in self._indexes:
                    self._indexes[subject.id] = make(subject)
                self._indexes.move_to_end(subject.id)
            indexes = [self._indexes[subject_id] for subject_id in ids]
        try:
            yield indexes
        finally:
            with self._lock:
                self._make_room()
                self._searches.subtract(ids)
                self._searches += Counter()  # removes the zero counts

    def _make_room(self) -> None:
        size = sum(index.size for index in self._indexes.values())
        for subject in list(self._indexes):
            if size <= self._max_bytes:
                return
            if not self._searches[subject]:
                size -= self._indexes.pop(subject).size

    def __len__(self) -> int:
        return len(self._indexes)


class Served(msgspec.Struct, frozen=True):
    """The context of operations that the store carries out itself. See ``ServesMemory``.

    Attributes:
        principal: The principal, or None for the principal of the caller's token.
        embedder: Embeds texts and queries on this machine. None: the store compares words, or has its own embedder.
    """

    principal: Principal | None
    embedder: Embedder | None = None


class Context:
    """The context of one principal's operations."""

    def __init__(self, principal: Principal, hooks: Hooks, warm: WarmSubjects, indexes: WarmIndexes) -> None:
        """Set up the context without reading the store."""
        self.principal = principal
        self.hooks = hooks
        self._own = frozenset(principal.scopes)
        self._scopes = tuple(sorted(principal.scopes, key=lambda scope: (scope != principal.home, scope)))
        self.indexes = indexes
        self._warm = warm

    def subject(self, scope: str) -> Subject:
        """Return the subject of one of the principal's scopes."""
        return self._warm.of(self.principal.subject(scope))

    def all_scopes(self) -> tuple[str, ...]:
        """Return all scopes of the principal: the home scope first, the others sorted."""
        return self._scopes

    def readable(self, scopes: Iterable[str] | None) -> tuple[str, ...]:
        """Return the scopes to read, home first: ``scopes``, or by default all that execution allows.

        Raises ``MemoryStopped`` with ``scope_denied:<scope>`` if a scope is not the principal's or is denied. With
        several such scopes, the reason has the first in sorted order.
        """
        allowed = self._allowed()
        if scopes is None:
            return tuple(scope for scope in self._scopes if scope in allowed)
        requested = set(scopes)
        for scope in sorted(requested - allowed):
            raise _denied(scope, allowed)
        return tuple(scope for scope in self._scopes if scope in requested)

    def readable_scope(self, scope: str | None) -> str:
        """Return ``scope``, or the home scope for None. Raises ``MemoryStopped`` if it may not be read."""
        name = self.principal.home if scope is None else scope
        allowed = self._allowed()
        if name not in allowed:
            raise _denied(name, allowed)
        return name

    def _allowed(self) -> frozenset[str]:
        return self.hooks.execution.retrieval_scopes(self._own) & self._own


def _denied(scope: str, allowed: frozenset[str]) -> MemoryStopped:
    names = ", ".join(sorted(allowed)) or "none"
    return MemoryStopped(f"the scope {scope!r} may not be read, only {names}", reason=f"scope_denied:{scope}")
