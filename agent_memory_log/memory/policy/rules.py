"""What policy allows to be asked for, and what execution permits now: two lists that an application fills in."""

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
"""How many memories may be asked for at once, where nothing else is said."""

MAX_VALUE = 120
"""How many characters a value may have, where nothing else is said."""


class MemoryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What may be asked for; a violation stops the call, and nothing of it is written.

    - ``allowed_keys``: the keys of keyed kinds (None: any), compared trimmed and case-folded. Kinds without keys pass.
    - ``allowed_scopes``: the scopes (None: any), compared exactly.
    - ``max_capture_items``: how many candidates one call of ``remember`` or ``write`` may have; 6.
    - ``max_value_chars``: how long a keyed value may be, in characters; 120.

    Neither number holds for an import, nor the first for ``derive``: what was stored once may come back, and what a
    long run holds is the run's affair. Raises ``InvalidArgument``.

        MemoryPolicy(allowed_keys={"language", "response_style"}, allowed_scopes={"user"})
    """

    allowed_keys: frozenset[str] | None = None
    allowed_scopes: frozenset[str] | None = None
    max_capture_items: int = MAX_CAPTURE
    max_value_chars: int = MAX_VALUE

    def __post_init__(self) -> None:
        if self.allowed_keys is not None:
            _set(self, "allowed_keys", _folded(self.allowed_keys, "allowed_keys"))
        if self.allowed_scopes is not None:
            _set(self, "allowed_scopes", _names(self.allowed_scopes, "allowed_scopes"))
        check_limit(self.max_capture_items, "max_capture_items")
        check_limit(self.max_value_chars, "max_value_chars")

    def violation(self, candidates: Sequence[Candidate], *, origin: Origin) -> Violation | None:
        """The first rule that is broken: the number of candidates, then each one's key, scope and value."""
        if origin == "remember" and len(candidates) > self.max_capture_items:
            return Violation(MAX_CAPTURE_ITEMS)
        for one in candidates:
            reason = self._broken(one, origin)
            if reason:
                return Violation(reason, one.key, one.scope)
        return None

    def _broken(self, candidate: Candidate, origin: Origin) -> str:
        key, scope = candidate.key, candidate.scope
        if key and self.allowed_keys is not None and fold_key(key) not in self.allowed_keys:
            return key_not_allowed(key)
        if self.allowed_scopes is not None and scope not in self.allowed_scopes:
            return scope_not_allowed(scope)
        if origin != "import" and len(candidate.value) > self.max_value_chars:
            return invalid_candidates("value_too_long")
        return ""


class MemoryExecution(msgspec.Struct, frozen=True, kw_only=True):
    """What the runtime permits now; what it denies is blocked and reported, and the rest written.

    - ``denied_keys``: keys that are not written, compared trimmed and case-folded.
    - ``denied_scopes``: scopes that are not written to.
    - ``denied_retrieval_scopes``: scopes that are not read from.

    Raises ``InvalidArgument``.

        MemoryExecution(denied_keys={"declared_tier"})
    """

    denied_keys: frozenset[str] = frozenset()
    denied_scopes: frozenset[str] = frozenset()
    denied_retrieval_scopes: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        _set(self, "denied_keys", _folded(self.denied_keys, "denied_keys"))
        for name in ("denied_scopes", "denied_retrieval_scopes"):
            _set(self, name, _names(getattr(self, name), name))

    def denial(self, candidate: Candidate, /) -> str | None:
        """``key_denied_execution``, ``scope_denied_execution`` or None."""
        if candidate.key and fold_key(candidate.key) in self.denied_keys:
            return KEY_DENIED
        return SCOPE_DENIED if candidate.scope in self.denied_scopes else None

    def retrieval_scopes(self, scopes: frozenset[str], /) -> frozenset[str]:
        """The scopes that are not denied; a search in another one stops with ``scope_denied:<scope>``."""
        return scopes - self.denied_retrieval_scopes


def check_limit(value: object, name: str) -> None:
    """Refuse what is not an integer from 1. Raises ``InvalidArgument``."""
    if type(value) is not int or value < 1:
        raise InvalidArgument(f"{name} must be an integer from 1, found {describe(value)}")


def _set(struct: msgspec.Struct, name: str, value: object) -> None:
    msgspec.structs.force_setattr(struct, name, value)


def _folded(values: object, name: str) -> frozenset[str]:
    return frozenset(fold_key(value) for value in _names(values, name))


def _names(values: object, name: str) -> frozenset[str]:
    # A text is a collection of texts as well, and "user" would be read as four scopes.
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidArgument(f"{name} must be a set of texts, found {describe(values)}")
    found = list(cast("Iterable[object]", values))
    for value in found:
        if not isinstance(value, str) or not value.strip():
            raise InvalidArgument(f"{name} must hold texts that are not white space alone, found {describe(value)}")
    return frozenset(cast("list[str]", found))
