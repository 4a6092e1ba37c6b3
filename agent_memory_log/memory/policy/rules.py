"""The built-in policy and execution. The application gives the allowed and denied keys and scopes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.policy.reasons import (
    KEY_DENIED,
    MAX_CAPTURE_ITEMS,
    SCOPE_DENIED,
    invalid_candidates,
    key_not_allowed,
    scope_not_allowed,
)
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import fold_key
from agent_memory_log.memory.records.protocols import Origin, Violation

MAX_CAPTURE = 6
"""The default limit of the candidates of one call."""

MAX_VALUE = 120
"""The default limit of a value, in characters."""


class MemoryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that allows some keys and scopes.

        MemoryPolicy(allowed_keys={"language", "response_style"}, allowed_scopes={"user"})

    A violation stops a call of ``remember`` or ``write``, and no candidate of the call is written. In ``derive`` it
    blocks only its candidate, and ``max_capture_items`` does not count, because a long run may have many candidates.
    An import ignores both limits, so that every exported record can be imported again.

    Attributes:
        allowed_keys: The allowed keys, compared without surrounding white space and without case. None: any key. Kinds
            without keys are always allowed.
        allowed_scopes: The allowed scopes, compared exactly. None: any scope.
        max_capture_items: The largest number of candidates in one call of ``remember`` or ``write``. Default: 6.
        max_value_chars: The limit of a value with a key, in characters. Default: 120.
        preference_ttl_days: The lifetime of a preference that names none, in days. None: for ever.

    Raises:
        InvalidArgument: A limit is not an integer from 1, or a key or scope is blank or not text.
    """

    allowed_keys: frozenset[str] | None = None
    allowed_scopes: frozenset[str] | None = None
    max_capture_items: int = MAX_CAPTURE
    max_value_chars: int = MAX_VALUE
    preference_ttl_days: int | None = None

    def __post_init__(self) -> None:
        if self.allowed_keys is not None:
            _set(self, "allowed_keys", _folded(self.allowed_keys, "allowed_keys"))
        if self.allowed_scopes is not None:
            _set(self, "allowed_scopes", _names(self.allowed_scopes, "allowed_scopes"))
        check_limit(self.max_capture_items, "max_capture_items")
        check_limit(self.max_value_chars, "max_value_chars")
        if self.preference_ttl_days is not None:
            check_limit(self.preference_ttl_days, "preference_ttl_days")

    def violation(self, candidates: Sequence[Candidate], *, origin: Origin) -> Violation | None:
        """Return the first violation. It checks the number of candidates, then each key, scope and value."""
        if origin == "remember" and len(candidates) > self.max_capture_items:
            return Violation(MAX_CAPTURE_ITEMS)
        for candidate in candidates:
            reason = self._violation_of(candidate, origin)
            if reason:
                return Violation(reason, candidate.key, candidate.scope)
        return None

    def _violation_of(self, candidate: Candidate, origin: Origin) -> str:
        key, scope = candidate.key, candidate.scope
        if key and self.allowed_keys is not None and fold_key(key) not in self.allowed_keys:
            return key_not_allowed(key)
        if self.allowed_scopes is not None and scope not in self.allowed_scopes:
            return scope_not_allowed(scope)
        if origin != "import" and len(candidate.value) > self.max_value_chars:
            return invalid_candidates("value_too_long")
        return ""


class MemoryExecution(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that denies some keys and scopes.

    It blocks and reports the candidates with a denied key or scope. The other candidates are written.

        MemoryExecution(denied_keys={"declared_tier"})

    Attributes:
        denied_keys: The keys that may not be written, compared without surrounding white space and without case.
        denied_scopes: The scopes that may not be written to.
        denied_retrieval_scopes: The scopes that may not be read.

    Raises:
        InvalidArgument: A key or scope is blank or not text.
    """

    denied_keys: frozenset[str] = frozenset()
    denied_scopes: frozenset[str] = frozenset()
    denied_retrieval_scopes: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        _set(self, "denied_keys", _folded(self.denied_keys, "denied_keys"))
        for name in ("denied_scopes", "denied_retrieval_scopes"):
            _set(self, name, _names(getattr(self, name), name))

    def denial(self, candidate: Candidate, /) -> str | None:
        """Return ``key_denied_execution``, ``scope_denied_execution`` or None."""
        if candidate.key and fold_key(candidate.key) in self.denied_keys:
            return KEY_DENIED
        return SCOPE_DENIED if candidate.scope in self.denied_scopes else None

    def retrieval_scopes(self, scopes: frozenset[str], /) -> frozenset[str]:
        """Return the scopes that are not denied. A search in a denied scope stops with ``scope_denied:<scope>``."""
        return scopes - self.denied_retrieval_scopes


def check_limit(value: object, name: str) -> None:
    """Raise ``InvalidArgument`` if the value is not an integer from 1."""
    if type(value) is not int or value < 1:
        raise InvalidArgument(f"{name} must be an integer from 1, got {describe(value)}")


def _set(struct: msgspec.Struct, name: str, value: object) -> None:
    msgspec.structs.force_setattr(struct, name, value)


def _folded(values: object, name: str) -> frozenset[str]:
    return frozenset(fold_key(value) for value in _names(values, name))


def _names(values: object, name: str) -> frozenset[str]:
    # A text is iterable too. Without this check, "user" would become four scopes.
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidArgument(f"{name} must be a set of texts, got {describe(values)}")
    names = list(cast("Iterable[object]", values))
    for value in names:
        if not isinstance(value, str) or not value.strip():
            raise InvalidArgument(f"each of {name} must have a character other than white space, got {describe(value)}")
    return frozenset(cast("list[str]", names))
