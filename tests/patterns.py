"""Collects the compiled patterns of the library, and generates texts that cause much backtracking."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property, partial
from itertools import islice
from types import ModuleType
from typing import Any, cast

import agent_memory_log

Pattern = re.Pattern[str]
Prepare = Callable[[str], str]
Read = Callable[[str], object]

_FLOOR = 0.002
"""Seconds of processor time. A pattern that reads 8 KB in this time is fast."""

_PLENTY = 0.02
"""Seconds of processor time for 2 KB. If a pattern takes longer, shorter texts are enough to measure its growth."""

_TOO_LONG = 0.03
"""Seconds of processor time for at most 256 characters. A pattern that takes longer is slow."""

_MOST = 8.0
"""The largest allowed ratio of times if the text is four times as long, with a margin for a busy machine."""

_TRIES = 5
_DEEPEST = 4

_MATCHES = frozenset({"match", "fullmatch"})
_SEARCHES = frozenset({"search", "findall", "finditer", "split", "sub", "subn"})

_BETWEEN = (" ", "\xa0", ".", ",", "-", "_", "\n", "/", "!", '"', "'", "(", "@", "*", "?", "=", " \n", ". ", ".\xa0")
_MIXED = ("a", "0", "é", "a ", "A ", "a.", "a.0", "a-", "-_", "0.", "aA", "1,", "a\n", "a\xa0", "A.", "ab'", "> ", "``")
_TAILS = ("\x01", "x")


@cache
def library_patterns() -> list[tuple[str, Pattern]]:
    """Return all patterns of the library with their names. Modules whose extra is not installed are left out."""
    patterns: dict[tuple[str, int], tuple[str, Pattern]] = {}
    for info in pkgutil.walk_packages(agent_memory_log.__path__, "agent_memory_log."):
        if info.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(info.name)
        except ImportError:
            continue
        for name, pattern in patterns_of(module):
            patterns.setdefault((pattern.pattern, pattern.flags), (name, pattern))
    return list(patterns.values())


def patterns_of(module: ModuleType) -> Iterator[tuple[str, Pattern]]:
    """Yield the patterns of a module with their names. Tables, structs and cached functions are searched too."""
    for name, value in vars(module).items():
        for pattern in _inside(value, 0):
            yield f"{module.__name__}.{name}", pattern


def _inside(value: object, depth: int) -> Iterator[Pattern]:
    owner = getattr(value, "__self__", None)  # for bound methods such as re.compile(...).findall
    if isinstance(value, re.Pattern) or isinstance(owner, re.Pattern):
        pattern = cast("re.Pattern[Any]", value if isinstance(value, re.Pattern) else owner)
        if isinstance(pattern.pattern, str):
            yield pattern
    elif depth <= _DEEPEST and not isinstance(value, (type, ModuleType, str, bytes)):
        for item in _parts_of(value):
            yield from _inside(item, depth + 1)


def _parts_of(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value).values()
    if isinstance(value, (tuple, list, set, frozenset)):
        return cast("tuple[object, ...]", value)
    if hasattr(value, "cache_info"):
        cached = cast("Any", value)  # a cached function that may compile a pattern
        return () if cached.__wrapped__.__code__.co_argcount else (cached(),)
    slots = getattr(type(value), "__slots__", ())
    fields = [slots] if isinstance(slots, str) else [*slots]
    for part in type(value).__mro__:  # cached properties may compile patterns too
        fields += [name for name, attribute in vars(part).items() if isinstance(attribute, cached_property)]
    return [getattr(value, field, None) for field in fields]


def is_only_matched(name: str, *modules: ModuleType) -> bool:
    """Return whether these modules use the pattern ``name`` with ``match`` only, and so at one position of a text."""
    methods = {method for module in modules for called, method in _calls_in(module) if called == name}
    return bool(methods & _MATCHES) and not methods & _SEARCHES


@cache
def _calls_in(module: ModuleType) -> frozenset[tuple[str, str]]:
    """Return the methods that a module calls, each with the name of the variable, attribute or function before it."""
    calls: set[tuple[str, str]] = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        match node:
            case ast.Call(ast.Attribute(ast.Name(name) | ast.Attribute(attr=name) | ast.Call(ast.Name(name)), method)):
                calls.add((name, method))
            case _:
                pass
    return frozenset(calls)


def slow_text(
    pattern: Pattern, prepare: Prepare = str, *, anchored: bool = False, first: int = 0, step: int = 1
) -> str | None:
    """Return the beginning of a text that takes more than linear time, or None if no such text was generated.

    Args:
        pattern: The pattern.
        prepare: The change that the pattern's callers make to a text.
        anchored: Whether the pattern is tried only at the beginning of a text.
        first: The number of the first of the generated texts that is tried.
        step: The distance to the next text that is tried.
    """
    read = pattern.match if anchored else partial(_read, pattern)
    for head, unit, tail in islice(_nasty(pattern), first, None, step):
        if is_slow(read, head, unit, tail, prepare):
            return f"{head}{unit * 4}… {tail!r}"
    return None


def _nasty(pattern: Pattern) -> Iterator[tuple[str, str, str]]:
    """Yield the beginning, the repeated part and the end of texts that are made from the pattern's own words."""
    source = re.sub(r"\(\?(?:P<\w+>|[:=!>]|<[=!])|\\[bBAZzswdSWD]|[\\^$|?*+()\[\]{}]", " ", pattern.pattern)
    literals = sorted(set(re.findall(r"[^\W\d_]{2,20}", source)))
    chosen = literals[:: max(1, len(literals) // 4)][:4]
    # A repeated character may match in several ways.
    classes = re.findall(r"(\\?[^\w\s])[+*{]", pattern.pattern)
    units = [*_BETWEEN, *_MIXED, *(mark[-1] for mark in classes)]
    units += [literal + mark for literal in chosen for mark in ("", " ", "\xa0", ".")]
    for number, unit in enumerate(dict.fromkeys(units)):
        yield "", unit, _TAILS[number % len(_TAILS)]
    for head in chosen:
        for unit in (" ", "\xa0", "a", head[0]):
            yield head + "\xa0" * unit.isspace(), unit, "\x01"


def is_slow(read: Read, head: str, unit: str, tail: str = "", prepare: Prepare = str) -> bool:
    """Return whether the time to read ``head``, many times ``unit`` and ``tail`` grows faster than their length."""

    def text(size: int) -> str:
        return prepare(head + unit * (size // len(unit)) + tail)

    for size in (20, 24, 256):  # short texts are enough to detect exponential time
        if _cost(read, text(size)) > _TOO_LONG and _best(read, text(size)) > _TOO_LONG:
            return True
    # If 2 KB take a twentieth of the limit, 8 KB take little time too, even in cubic time.
    quarter = _cost(read, text(2048))
    if quarter <= _FLOOR / 20 or (quarter <= _FLOOR and _cost(read, text(8192)) <= _FLOOR):
        return False
    size = 512 if quarter > _PLENTY else 1024
    return _ratio(read, text(size), text(4 * size)) > _MOST


def _ratio(read: Read, small: str, large: str) -> float:
    ratio, best_small, best_large = 0.0, float("inf"), float("inf")
    for _ in range(_TRIES):
        best_small = min(best_small, _cost(read, small))
        best_large = min(best_large, _cost(read, large))
        if best_large <= _FLOOR / 4:
            return 0.0
        ratio = best_large / max(best_small, _FLOOR / 16)
        if ratio <= _MOST:
            break
    return ratio


def _best(read: Read, text: str) -> float:
    return min(_cost(read, text) for _ in range(_TRIES))


def _read(pattern: Pattern, text: str) -> None:
    for _ in pattern.finditer(text):
        pass


def _cost(read: Read, text: str) -> float:
    begin = time.process_time()
    read(text)
    return time.process_time() - begin
