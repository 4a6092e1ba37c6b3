"""Finds secrets by their format or by the words around them: tokens, codes, ``curl -u``, ``Authorization: Basic``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

from agent_memory_log.secrets.parts import compiled, words
from agent_memory_log.secrets.reading import Reading
from agent_memory_log.secrets.rules import Rule, phrase_rules, token_rules
from agent_memory_log.secrets.values import MADE_UP, RANDOM, STRENGTHS, strength

_Spans = Iterator[tuple[int, int]]

_QUOTES = frozenset("'\"")
_STAND_IN = re.compile(r"EXAMPLE|[xX]{4}|(?i:your[_-])")
_URL_STAND_INS = frozenset({"password", "passwd", "pass", "pw", "secret", "token", "pwd", "***", "x"})

_ITEM = re.compile(
    r"(?:[\s,;*•\"'-]|\b(?:and|und|y|et)\b|[0-9]{1,2}[.)] ){0,6}"
    r"([0-9]{4} [0-9]{4}\b|(?=[A-Za-z-]{0,9}[0-9])[A-Za-z0-9]{3,10}(?:-[A-Za-z0-9]{3,10}){0,7}"
    r"|[A-Z]{4,8}(?:-[A-Z]{4,8}){1,3}|[a-z]{5}-[a-z]{5}(?:-[a-z]{5})?)(?![A-Za-z0-9])"
)
_MAX_ITEMS = 24
_MIN_MIXED = 6
_COOKIE = re.compile(
    r"(?<![^;\s\"'])[\w.-]{0,40}(?:sess|sid|auth|token|jwt|login|remember)[\w.-]{0,40}=([^;\s]{1,2048})"
)
_MANIFEST_LINE = re.compile(
    r"[ ]{1,12}[\w.-]{1,80}:[ ]?[|>]?-?(?:\n[ ]{1,12})?[\"']?([^\s\"'|>]{4,8000})[\"']?[ ]*(?:\n|$)"
)
_SEED_WORD = re.compile(r"(?:[0-9]{1,2}[.):] ?)?([a-z]+)")
_SEED_SIZE = 12
_MIN_DIFFERENT = 8
_MAX_COMMON = 3


def token_secrets(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """Yield kind, start and end of each secret with a known format."""
    for rule in token_rules():
        if rule.hint in reading.plain:
            for before, match in rule.matches(reading.plain):
                if not _STAND_IN.search(match.group()):
                    start, end = match.span(match.lastindex or 0)
                    yield rule.kind, start if before is None else before.start(), end


def phrased_secrets(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """Yield kind, start and end of each secret in a known phrase, command or header."""
    lower = reading.lower
    for rule in phrase_rules():
        if rule.hint in lower:
            read_all = _SERIES.get(rule.value)
            for before, match in rule.matches(lower):
                if read_all is not None:
                    yield from ((rule.kind, *span) for span in read_all(reading, match))
                    continue
                source = before if before and before.lastindex else match
                start, end = _span(source, reading.plain)
                if _is_secret(rule, reading.plain, source.start(), start, end):
                    yield rule.kind, start, end


def _span(match: re.Match[str], plain: str) -> tuple[int, int]:
    """Return the span of the last group of ``match`` without punctuation at its end."""
    start, end = match.span(match.lastindex or 0)
    while end > start and plain[end - 1] in ").,;:? ":
        end -= 1
    return start, end


def _is_secret(rule: Rule, plain: str, begin: int, start: int, end: int) -> bool:
    """Return whether ``plain[start:end]`` passes the rule's test. The phrase begins at ``begin``."""
    value = plain[start:end]
    if rule.kind == "access_code" and _harmless().search(plain[max(0, begin - 30) : end + 20].lower()):
        return False
    if rule.value == "url":
        return not _is_url_stand_in(value)
    if rule.value == "mixed":
        return _is_mixed(value)
    quoted = plain[start - 1 : start] in _QUOTES
    return rule.value == "any" or strength(value, quoted=quoted) >= STRENGTHS[rule.value]


@cache
def _harmless() -> re.Pattern[str]:
    return compiled("{harmless_code}")


@cache
def _no_password() -> re.Pattern[str]:
    """Return the pattern of versions, dates, ids and mail addresses. They may mix letters and digits too."""
    return compiled(
        r"\A(?:v?[0-9]+[.:/-][0-9]|[0-9]{1,4}{measure}\b|[^\s@]{1,64}@[\w-]{1,64}\.[a-z]|#|.{0,64}[\[\]{}=|\\]"
        r"|[A-Z]{1,6}-[0-9]+$|[0-9a-f]{7,64}$|(?i:{numbered})-?[0-9]|[0-9a-fA-F]{8}-)"
    )


def _is_url_stand_in(value: str) -> bool:
    is_code = "{" in value or value.startswith(("$", "<", "[", "%s"))
    return is_code or value.lower() in _URL_STAND_INS or "****" in value


def _is_mixed(value: str) -> bool:
    """Return whether ``value`` has letters and digits, and is not a version, date or id."""
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and len(value) >= _MIN_MIXED
    return has_both and not _no_password().match(value) and strength(value, quoted=False) >= MADE_UP


def _listed(reading: Reading, match: re.Match[str]) -> _Spans:
    """Yield the codes of a list."""
    place = match.end()
    for _ in range(_MAX_ITEMS):
        item = _ITEM.match(reading.plain, place)
        if item is None:
            return
        yield item.span(1)
        place = item.end()


def _cookies(reading: Reading, match: re.Match[str]) -> _Spans:
    """Yield the values of session cookies in a header."""
    for cookie in _COOKIE.finditer(reading.lower, *match.span(1)):
        if strength(reading.plain[slice(*cookie.span(1))], quoted=True) == RANDOM:
            yield cookie.span(1)


def _manifest(reading: Reading, match: re.Match[str]) -> _Spans:
    """Yield the base64 values of a Kubernetes secret manifest."""
    line = _MANIFEST_LINE.match(reading.lower, match.end())
    while line is not None:
        if "user" not in line.group()[:80] and not reading.plain.startswith(("$", "<", "{"), line.start(1)):
            yield line.span(1)
        line = _MANIFEST_LINE.match(reading.lower, line.end())


def _seed(_reading: Reading, match: re.Match[str]) -> _Spans:
    """Yield the seed phrase of a wallet: groups of twelve words, each with at least eight different ones.

    At most three words of a group may be common in sentences. Groups overlap, so text after the phrase cannot hide it.
    """
    seed_words = list(_SEED_WORD.finditer(match.group(1)))
    sentence_words = words()["sentence"]
    while any(word.group(1) in sentence_words for word in seed_words[:_MIN_DIFFERENT]):
        seed_words.pop(0)
    size = next((at for at, word in enumerate(seed_words) if word.group(1) in sentence_words), len(seed_words))
    texts = [word.group(1) for word in seed_words[:size]]
    starts = [at for at in range(size - _SEED_SIZE + 1) if _is_seed(texts[at : at + _SEED_SIZE])]
    if starts:
        last = seed_words[starts[-1] + _SEED_SIZE - 1]
        yield match.start(1) + seed_words[starts[0]].start(), match.start(1) + last.end()


def _is_seed(group: list[str]) -> bool:
    common = sum(text in words()["sentence_or_seed"] for text in group)
    return common <= _MAX_COMMON and len(set(group)) >= _MIN_DIFFERENT


_SERIES: dict[str, Callable[[Reading, re.Match[str]], _Spans]] = {
    "cookies": _cookies,
    "list": _listed,
    "manifest": _manifest,
    "seed": _seed,
}
