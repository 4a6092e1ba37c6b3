"""Principals, subjects, and the names of the memory streams that belong to them.

A subject's memory is a run of the store. Its agent id encodes tenant, scope and id: ``@memory/acme/user/42``.
Different subjects always have different agent ids.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import cast

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.records.arguments import text_of

STREAM_RUN = "records"
"""The run that holds a subject's memory. Large or frequently changed data is in other runs of the agent."""

VECTORS_RUN = "vectors"
"""The run that holds the vectors of the subject's texts."""

HOME_SCOPE = "user"

CONVERSATIONS = "conversations/"
"""The first characters of the agents whose runs hold ingested conversations. See ``conversations_of``."""

_PREFIX = "@memory/"
_MAX_AGENT_ID = 512

# Unicode categories of control characters and line separators, and of format characters such as U+200B.
_CONTROLS = frozenset({"Cc", "Zl", "Zp"})
_FORMAT = "Cf"
# Letters and symbols that look like white space: the Hangul fillers and the empty Braille pattern.
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")


class SubjectId(msgspec.Struct, frozen=True, order=True):
    """The owner of a memory stream.

    Attributes:
        tenant: The tenant.
        scope: The scope, such as ``user`` or ``workspace``.
        id: The id within the scope.
    """

    tenant: str
    scope: str
    id: str


class Principal(msgspec.Struct, frozen=True):
    """The caller of memory: a tenant, and one id in each scope that the caller may reach.

        Principal(tenant="acme", scopes={"user": "42", "workspace": "ops"})

    A call never reaches an id that is not in ``scopes``. There is no value that means "all".

    Attributes:
        tenant: The tenant.
        scopes: The id in each scope, by scope name.

    Raises:
        InvalidArgument: There are no scopes, or a tenant, scope or id is empty, too long, contains a control character,
            or begins or ends with white space or an invisible character. So " 42" cannot be confused with "42".
    """

    tenant: str
    scopes: Mapping[str, str]

    def __post_init__(self) -> None:
        if not isinstance(self.scopes, Mapping) or not self.scopes:
            raise InvalidArgument(f"a principal's scopes must be a map with at least one scope, got {self.scopes!r}")
        msgspec.structs.force_setattr(self, "scopes", dict(self.scopes))
        for scope in self.scopes:
            stream_of(self.subject(scope))

    def subject(self, scope: str) -> SubjectId:
        """Return the subject of one of the scopes."""
        return SubjectId(self.tenant, scope, self.scopes[scope])

    @property
    def home(self) -> str:
        """The default scope: ``user`` if the principal has it, otherwise the first scope in sorted order."""
        return HOME_SCOPE if HOME_SCOPE in self.scopes else min(self.scopes)


def stream_of(subject: SubjectId) -> str:
    """Return the agent id of a subject's streams. Raises ``InvalidArgument`` for an invalid subject."""
    parts: list[str] = []
    for name in ("tenant", "scope", "id"):
        part = cast("object", getattr(subject, name))
        if not isinstance(part, str) or not part:
            raise InvalidArgument(f"a principal's {name} must be non-empty text, got {describe(part)}")
        part = text_of(part, f"a principal's {name}")
        _check_visible(part, name)
        parts.append(part.replace("%", "%25").replace("/", "%2F"))
    agent = _PREFIX + "/".join(parts)
    if len(agent) > _MAX_AGENT_ID:
        raise InvalidArgument(
            f"tenant, scope and id may have {_MAX_AGENT_ID - len(_PREFIX) - 2} characters together, and each % or / "
            f"counts as three; got {len(agent) - len(_PREFIX) - 2}"
        )
    return agent


def conversations_of(subject: SubjectId) -> str:
    """Return the agent id of the runs that hold a subject's ingested conversations: ``conversations/acme/user/42``."""
    return CONVERSATIONS + stream_of(subject).removeprefix(_PREFIX)


def _check_visible(part: str, name: str) -> None:
    if any(unicodedata.category(character) in _CONTROLS for character in part):
        raise InvalidArgument(f"a principal's {name} must not contain control characters, got {describe(part)}")
    for edge in (part[0], part[-1]):
        if edge.isspace() or edge in _BLANK or unicodedata.category(edge) == _FORMAT:
            raise InvalidArgument(
                f"a principal's {name} must not begin or end with white space or an invisible character, got "
                f"{describe(part)}: strip it"
            )


def subject_of(agent: str) -> SubjectId | None:
    """Return the subject whose streams have this agent id, or None if no subject has it."""
    if not agent.startswith(_PREFIX):
        return None
    parts = [part.replace("%2F", "/").replace("%25", "%") for part in agent[len(_PREFIX) :].split("/")]
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004  # tenant, scope, id
        return None
    subject = SubjectId(*parts)
    try:
        return subject if stream_of(subject) == agent else None
    except InvalidArgument:
        return None
