"""Finds the call that a function response answers: by its id, or by its name and its position.

The API leaves out the ids of calls in many answers. It pairs responses without an id with calls by name, in order.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class _Open(Generic[_Value]):
    __slots__ = ("is_answered", "value")

    def __init__(self, value: _Value) -> None:
        self.value = value
        self.is_answered = False


class OpenCalls(Generic[_Value]):
    """The calls that wait for a result. Each has a value of the caller's choice. All methods take constant time."""

    __slots__ = ("_by_id", "_by_name", "_turn")

    def __init__(self) -> None:
        self._turn = 0
        self._by_id: dict[str, list[_Open[_Value]]] = {}
        # The calls with this name, and whether all of them have no id: a queue for each turn, newest turn last.
        self._by_name: dict[tuple[str, bool], list[tuple[int, deque[_Open[_Value]]]]] = {}

    def begin_turn(self) -> None:
        """Begin a turn of the model. A result without an id answers a call of the newest turn that has one for it."""
        self._turn += 1

    def add(self, call_id: str, name: str, value: _Value) -> None:
        """Add a call. ``call_id`` is ``""`` for a call without an id."""
        call = _Open(value)
        if call_id:
            self._by_id.setdefault(call_id, []).append(call)
        for is_without_id in (False,) if call_id else (False, True):
            queues = self._by_name.setdefault((name, is_without_id), [])
            if not queues or queues[-1][0] != self._turn:
                queues.append((self._turn, deque()))
            queues[-1][1].append(call)

    def answer(self, call_id: str, name: str) -> _Value | None:
        """Close the call that a result answers, and return its value; None if the result answers no open call.

        It is the latest call with the result's id. Without such a call, it is the first call in the newest turn with
        the result's name. A result that has an id answers in this way only calls without an id.
        """
        calls = self._by_id.get(call_id) if call_id else None
        while calls:
            call = calls.pop()
            if not call.is_answered:
                call.is_answered = True
                return call.value
        queues = self._by_name.get((name, bool(call_id)))
        while queues:
            queue = queues[-1][1]
            while queue:
                call = queue.popleft()
                if not call.is_answered:
                    call.is_answered = True
                    return call.value
            queues.pop()
        return None
