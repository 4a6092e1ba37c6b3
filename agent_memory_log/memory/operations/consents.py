"""The operations on the consents of users, and on the use of quotas."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from agent_memory_log.memory.operations.fields import Scope, Scopes
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.memory.records.quotas import LimitUse
from agent_memory_log.memory.records.reports.outcomes import ForgetReport, Outcome

_AboutKind = Annotated[str, Meta(description="The kind of memory, such as ``fact``.")]
_AboutKey = Annotated[str, Meta(description="A key of this kind. Default: all records of the kind.")]


class AskConsent(Operation[Outcome], frozen=True):
    """Note that the user was asked for consent. No such memory is stored until it is given. Stored ones stay.

    A consent that was given stays. A consent for a key decides for this key; one for a kind decides for its other keys.

    Raises:
        InvalidArgument: There can be no consent about this kind.
        MemoryStopped: The redactor or execution refuses the key. The error has the reason.
    """

    writes = True
    right = "write"
    positional = 2

    kind: _AboutKind
    key: _AboutKey = ""
    scope: Scope = None


class GiveConsent(Operation[Outcome], frozen=True):
    """Note that the user gave consent. From now on, such memories are stored.

    Memory does not learn again from statements that a withdrawal forgot.

    Raises:
        InvalidArgument: There can be no consent about this kind.
        MemoryStopped: The redactor or execution refuses the key. The error has the reason.
    """

    writes = True
    right = "write"
    positional = 2

    kind: _AboutKind
    key: _AboutKey = ""
    scope: Scope = None


class WithdrawConsent(Operation[ForgetReport], frozen=True):
    """Note that the user withdrew consent, and forget such memories in the same append, as ``forget`` does.

    No such memory is stored until consent is given again, not even after ``forget_all``.

    Raises:
        InvalidArgument: There can be no consent about this kind.
        MemoryStopped: The redactor or execution refuses the key. The error has the reason.
    """

    writes = True
    right = "erase"
    positional = 2

    kind: _AboutKind
    key: _AboutKey = ""
    scope: Scope = None
    evidence: Annotated[
        bool, Meta(description="Also redact the events that the memories came from, in runs linked to the scope.")
    ] = False


class ReadQuotas(Operation[tuple[LimitUse, ...]], frozen=True):
    """Return the use of each limit of the memory, for each scope."""

    scopes: Scopes = None
