"""What a search looks for, its arguments checked."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.records.arguments import names_of, text_of
from agent_memory_log.memory.records.kinds import fold_key

MOST_HITS = 10_000
"""The largest ``top_k``."""


class SearchQuery(msgspec.Struct, frozen=True):
    """What is looked for; see ``Memory.search``. ``boosted`` are folded keys."""

    text: str
    top_k: int
    kinds: frozenset[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_importance: float = 0
    boosted: frozenset[str] = frozenset()


def checked_query(
    query: str,
    *,
    top_k: int,
    kinds: Iterable[str] | None,
    since: datetime | None,
    until: datetime | None,
    min_importance: float,
    boost_preferences: Iterable[str],
) -> SearchQuery:
    """A search. Raises ``InvalidArgument`` naming the argument."""
    query = text_of(query, "query")
    if type(top_k) is not int or not 1 <= top_k <= MOST_HITS:
        raise InvalidArgument(f"top_k must be an integer from 1 to {MOST_HITS:,}, found {describe(top_k)}")
    for name, time in (("since", since), ("until", until)):
        if time is not None and (not isinstance(time, datetime) or time.utcoffset() is None):
            raise InvalidArgument(f"{name} must be a timezone-aware datetime, or None, found {describe(time)}")
    if type(min_importance) not in (int, float) or not -math.inf < min_importance < math.inf:
        raise InvalidArgument(f"min_importance must be a number of stars, found {describe(min_importance)}")
    boosted = names_of(boost_preferences, "boost_preferences") or frozenset()
    return SearchQuery(
        query,
        top_k,
        names_of(kinds, "kinds"),
        since,
        until,
        min_importance,
        frozenset(key for one in boosted if (key := fold_key(one))),
    )
