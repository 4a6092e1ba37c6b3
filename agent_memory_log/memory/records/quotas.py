"""The limits of a subject's memory, and the report of their use."""

from __future__ import annotations

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe


class Limit(msgspec.Struct, frozen=True):
    """A limit of a subject's memory. Each part is an integer from 1, or None for no limit.

    Attributes:
        soft: Above it, a write archives what has expired and records with fewer than 3 stars, until the limit holds.
        hard: Above it, a write archives other records as well. A record that alone is larger is blocked.

    Raises:
        InvalidArgument: A part is no such integer, or ``soft`` is larger than ``hard``.
    """

    soft: int | None = None
    hard: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("soft", self.soft), ("hard", self.hard)):
            if value is not None and (type(value) is not int or value < 1):
                raise InvalidArgument(f"{name} must be an integer from 1, or None, got {describe(value)}")
        if self.soft is not None and self.hard is not None and self.soft > self.hard:
            raise InvalidArgument(f"soft must be at most hard, got {self.soft:,} and {self.hard:,}")


class Quotas(msgspec.Struct, frozen=True):
    """The limits of each subject's memory, besides ``max_keyed``. By default, nothing is limited. Consents never count.

    Attributes:
        records: The number of active records.
        content_bytes: The bytes of their keys, texts, data, entities and tags, as JSON.
        profile_tokens: The tokens of preferences, facts and other records with a key, by the estimate of ``context``
            without a tokenizer.

    Raises:
        InvalidArgument: A field is not a ``Limit``.
    """

    records: Limit = Limit()
    content_bytes: Limit = Limit()
    profile_tokens: Limit = Limit()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            if not isinstance(value, Limit):
                raise InvalidArgument(f"{name} must be a Limit, such as Limit(hard=1_000), got {describe(value)}")


NO_QUOTAS = Quotas()


class LimitUse(msgspec.Struct, frozen=True):
    """The use of one limit in one scope.

    Attributes:
        scope: The scope.
        limit: ``keyed``, for the client's ``max_keyed``, or the name of a field of ``Quotas``.
        used: The current number of records, bytes or tokens.
        soft: The soft limit, or None.
        hard: The hard limit, or None.
    """

    scope: str
    limit: str
    used: int
    soft: int | None
    hard: int | None
