"""The plan of a search: how it answers a question, for people and planners who want to know why they see its hits."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

Strategy = Literal["words", "meaning", "entity", "trace", "profile"]


class Plan(msgspec.Struct, frozen=True):
    """How a search answers a question.

    The strategies are:

    - ``words``: texts that share words and dates with the question.
    - ``meaning``: texts with similar vectors.
    - ``entity``: texts of or about people and things that the question names.
    - ``trace``: records that the best records link to, because the question asks for a cause.
    - ``profile``: facts and preferences, because the question is about the user.

    Attributes:
        strategies: The strategies.
        order: ``best``, ``latest`` or ``first``: relevant texts are ordered by score, or by time.
        every: Whether the question asks for every instance, as "list all" and "how many" do.
        current: Whether the question is about what holds now. A text that changes an earlier one then comes before it.
        kinds: The kinds that the question names. Records of these kinds come first.
        times: The times that the question names, as begin and end. Texts of these times gain score.
        limit: The most hits.
    """

    strategies: tuple[Strategy, ...] = ("words",)
    order: Literal["best", "latest", "first"] = "best"
    every: bool = False
    current: bool = False
    kinds: tuple[str, ...] = ()
    times: tuple[tuple[datetime, datetime], ...] = ()
    limit: int = 0
