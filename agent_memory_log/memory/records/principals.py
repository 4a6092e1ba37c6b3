"""Who is asking, and the streams that belong to them.

A subject's memory is a run of the store, under an agent id that stands for tenant, scope and id, and for no other
three: ``@memory/acme/user/42``.
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
"""The run that holds a subject's memory; what changes often, or is large, is in other runs of the same agent id."""

VECTORS_RUN = "vectors"
"""The run that holds the vectors of what can be found."""

HOME_SCOPE = "user"

_PREFIX = "@memory/"
_MAX_AGENT_ID = 512

# Categories of Unicode: controls and line separators; characters without a form of their own, such as U+200B.
_CONTROLS = frozenset({"Cc", "Zl", "Zp"})
_FORMAT = "Cf"
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
# Letters and symbols that look like white space: the fillers of Hangul, and Braille without dots.


class SubjectId(msgspec.Struct, frozen=True, order=True):
    """Whose memory a stream is: a ``scope`` (``user``, ``workspace``, …) and the ``id`` in it, of a ``tenant``."""

    tenant: str
    scope: str
    id: str


class Principal(msgspec.Struct, frozen=True):
    """Who is asking: a ``tenant``, and the id in each scope that they may reach.

    Nothing stands for "all": no call reaches an id that is not named here. Raises ``InvalidArgument`` for no scopes,
    for a tenant, scope or id that is empty, holds a control character, or begins or ends with white space or something
    invisible, and for ids that together are too long for a stream. So " 42" is no second "42".

        Principal(tenant="acme", scopes={"user": "42", "workspace": "ops"})
    """

    tenant: str
    scopes: Mapping[str, str]

    def __post_init__(self) -> None:
        if not isinstance(self.scopes, Mapping) or not self.scopes:
            raise InvalidArgument(f"a principal's scopes must be a map that names one at least, found {self.scopes!r}")
        msgspec.structs.force_setattr(self, "scopes", dict(self.scopes))
        for scope in self.scopes:
            stream_of(self.subject(scope))

    def subject(self, scope: str) -> SubjectId:
        """The subject of one of the scopes."""
        return SubjectId(self.tenant, scope, self.scopes[scope])

    @property
    def home(self) -> str:
        """The scope that is meant where none is said: ``user`` if there is one, else the first in sorted order."""
        return HOME_SCOPE if HOME_SCOPE in self.scopes else min(self.scopes)


def stream_of(subject: SubjectId) -> str:
    """The agent id of a subject's streams. Raises ``InvalidArgument``."""
    parts: list[str] = []
    for name in ("tenant", "scope", "id"):
        part = cast("object", getattr(subject, name))
        if not isinstance(part, str) or not part:
            raise InvalidArgument(f"a principal's {name} must be non-empty text, found {describe(part)}")
        part = text_of(part, f"a principal's {name}")
        _check_visible(part, name)
        parts.append(part.replace("%", "%25").replace("/", "%2F"))
    agent = _PREFIX + "/".join(parts)
    if len(agent) > _MAX_AGENT_ID:
        raise InvalidArgument(
            f"tenant, scope and id may have {_MAX_AGENT_ID - len(_PREFIX) - 2} characters together, with % and / "
            f"counted as three; found {len(agent) - len(_PREFIX) - 2}"
        )
    return agent


def _check_visible(part: str, name: str) -> None:
    if any(unicodedata.category(character) in _CONTROLS for character in part):
        raise InvalidArgument(f"a principal's {name} must not hold control characters, found {describe(part)}")
    for edge in (part[0], part[-1]):
        if edge.isspace() or edge in _BLANK or unicodedata.category(edge) == _FORMAT:
            raise InvalidArgument(
                f"a principal's {name} must not begin or end with white space or an invisible character, found "
                f"{describe(part)}: strip it"
            )


def subject_of(agent: str) -> SubjectId | None:
    """The subject whose streams have this agent id; None for any other agent id."""
    if not agent.startswith(_PREFIX):
        return None
    parts = [part.replace("%2F", "/").replace("%25", "%") for part in agent[len(_PREFIX) :].split("/")]
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004  # tenant, scope, id
        return None
    found = SubjectId(*parts)
    try:
        return found if stream_of(found) == agent else None
    except InvalidArgument:
        return None
