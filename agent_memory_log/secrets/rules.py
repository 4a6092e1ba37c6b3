"""Builds rules and names of secrets from the rows of the data tables.

A pattern is compiled when its hint first occurs in a text, because most hints never occur.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import msgspec

from agent_memory_log.secrets.parts import compiled
from agent_memory_log.secrets.values import STRENGTHS
from agent_memory_log.tables import read_table

_TOKEN_ENDS = "(?![A-Za-z0-9])"  # noqa: S105 (a pattern)
_NAME_ENDS = "(?:_?[0-9]{1,2}|_base)?(?![a-z0-9_-])"
_NEEDED = {"assigned": "word", "stated": "made_up", "beside": "made_up"}


class Rule(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """A rule for one kind of secret.

    Attributes:
        kind: The kind of secret.
        hint: A fixed text at which the rule is tried; ``""`` means every index.
        after: A pattern that must match after the hint.
        not_after: Characters that must not be directly before the hint.
        before: A pattern that must match directly before the hint.
        value: The test that the value must pass.
    """

    kind: str
    hint: str
    after: str = ""
    not_after: str = ""
    before: str = ""
    value: Literal["any", "word", "made_up", "random", "mixed", "url", "list", "cookies", "manifest", "seed"] = "any"

    reach: ClassVar[int] = 90
    """The number of characters that ``before`` may match."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern of the hint and ``after``."""
        start = f"(?<![{self.not_after}])" if self.not_after else ""
        return compiled(start + re.escape(self.hint) + self.after)

    @cached_property
    def lead(self) -> re.Pattern[str] | None:
        """The pattern that must end where the hint begins, or None."""
        return compiled(rf"(?:{self.before})\Z") if self.before else None

    def matches(self, text: str) -> Iterator[tuple[re.Match[str] | None, re.Match[str]]]:
        """Yield each match of the rule in ``text``: the match of ``before``, or None, and the match of ``pattern``."""
        if not self.hint:
            yield from ((None, match) for match in self.pattern.finditer(text))
            return
        done = 0
        place = text.find(self.hint)
        while place >= 0:
            match = self.pattern.match(text, place)
            before = None
            if match is not None and self.lead is not None:
                before = self.lead.search(text, max(done, place - self.reach), place)
                match = match if before is not None else None
            if match is not None:
                done = match.end()
                yield before, match
            place = text.find(self.hint, max(done, place + len(self.hint)))


class Name(Rule, frozen=True, dict=True, kw_only=True):
    """A name of a secret.

    Attributes:
        assigned: The strength that a value after "=" must have.
        stated: The strength that a value after "is" must have.
        beside: The strength that a value after only a space must have.
    """

    assigned: int
    stated: int
    beside: int

    reach: ClassVar[int] = 20

    def end_in(self, text: str, place: int) -> int | None:
        """Return the end of the name that begins at ``place``; None if the name does not match there."""
        match = self.pattern.match(text, place)
        if match is None or (self.lead and not self.lead.search(text, max(0, place - self.reach), place)):
            return None
        return match.end()


@cache
def token_rules() -> tuple[Rule, ...]:
    """Return the rules for tokens, which are matched exactly."""
    table = read_table(__name__, "tokens")
    prefixes = [
        {**row, "not_after": "A-Za-z0-9", "after": row["after"] + _TOKEN_ENDS} for row in _each_hint(table["prefix"])
    ]
    return tuple(msgspec.convert([*_each_hint(table["form"]), *prefixes], list[Rule]))


@cache
def phrase_rules() -> tuple[Rule, ...]:
    """Return the rules for phrases, commands, headers and calls with a secret. They match lower-case text."""
    rows = (
        row for name in ("codes", "passwords", "commands") for row in _each_hint(read_table(__name__, name)["rule"])
    )
    return tuple(msgspec.convert(list(rows), list[Rule]))


@cache
def names() -> dict[str, list[Name]]:
    """Return the names of secrets by hint, in lower case. The first name that matches is used."""
    by_hint: dict[str, list[Name]] = {}
    for row in _each_hint(read_table(__name__, "names")["name"]):
        needed = {place: STRENGTHS[row.get(place, usual)] for place, usual in _NEEDED.items()}
        after = f"(?:{row.get('after', '')}){_NAME_ENDS}"
        by_hint.setdefault(row["hint"], []).append(msgspec.convert({**row, **needed, "after": after}, Name))
    return by_hint


def _each_hint(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        for hint in row.pop("hints"):
            yield {**row, "hint": hint}
