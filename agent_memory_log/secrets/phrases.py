"""Secrets that a phrase, a command or a header gives away: one-time codes, ``curl -u``, ``Authorization: Basic``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from agent_memory_log.secrets.commands import COMMANDS
from agent_memory_log.secrets.prose import PROSE
from agent_memory_log.secrets.reading import Reading
from agent_memory_log.secrets.values import ANY, LIST, MADE_UP, MIXED, RANDOM, strength

_LEAD = 32
_LONG_LEAD = 90
_REPEATS_LONG = re.compile(",[4-9][0-9]}")
_QUOTES = frozenset("'\"")


class Phrase(NamedTuple):
    """A phrase with a secret in it: where ``hint`` stands in the lower-case text, ``pattern`` is tried.

    ``before`` is what must end there, if anything. The last group of the two is the secret; ``needed`` is how much it
    must look like one. ``lead`` is how many characters ``before`` may match.
    """

    kind: str
    hint: str
    before: re.Pattern[str] | None
    pattern: re.Pattern[str]
    needed: int
    lead: int


# Codes that open nothing, and what is counted or measured.
_HARMLESS = re.compile(
    r"(?<![a-z])(?:err(?:or|no)?|zip|post\w{0,9}|fiscale?|fout|area|country|status|exit|return|response|http|promo\w*|discount"
    r"|coupon|voucher|gift|referral|invite|order|booking|reservation|product|item|model|part|bar|qr|dress|colou?r|tax|sort"
    r"|swift|bic|flight|airport|source|fehler|erreur|descuento|desconto|sconto|rabatt|kortings?|korting|tracking|unicode|ascii"
    r"|lines?|fault|event|reason|sku|naics|icd|cpt|dial(?:ing)?|route|course|class|build|version|language|currency|hex|locale"
    r"|signal|exit\w*|clos\w+|crash\w*|airline|city|location|store|branch|dep(?:artmen)?t|job|charge|billing|procedure|diagnos\w+"
    r"|occupation|industry|cost|project|lot|batch|vendor|supplier|unit|agency|station|channel|ticket|invoice|case|port|year|pages?|vorwahl|gutschein\w*|cp|cap|plz)(?:-|_|code|s)?(?![^\W\d_])"
    r"|(?:post|zip|bar|error|fehler|uni|status|country|gutschein|rabatt)-?codes?"
)

_RULES = tuple(
    Phrase(
        kind,
        hint,
        re.compile(rf"(?:{before})\Z") if before else None,
        re.compile(pattern),
        needed,
        _LONG_LEAD if _REPEATS_LONG.search(before) else _LEAD,
    )
    for kind, hint, before, pattern, needed in (*PROSE, *COMMANDS)
)

_ITEM = re.compile(
    r"(?:[\s,;*•\"'-]|\b(?:and|und|y|et)\b|[0-9]{1,2}[.)] ){0,6}"
    r"([0-9]{4} [0-9]{4}\b|(?=[A-Za-z-]{0,9}[0-9])[A-Za-z0-9]{3,10}(?:-[A-Za-z0-9]{3,10}){0,7}"
    r"|[A-Z]{4,8}(?:-[A-Z]{4,8}){1,3}|[a-z]{5}-[a-z]{5}(?:-[a-z]{5})?)(?![A-Za-z0-9])"
)
_MAX_ITEMS = 24
_MIN_MIXED = 6
# Versions, dates, times, ids and addresses of mail have digits too.
_NO_PASSWORD = re.compile(
    r"\A(?:v?[0-9]+[.:/-][0-9]|[0-9]{1,4}(?:st|nd|rd|th|h|ms|kb|mb|gb|k|m|pm|am|px|days?|min)\b|[^\s@]{1,64}@[\w-]{1,64}\.[a-z]|#|.{0,64}[\[\]{}=|\\]"
    r"|[A-Z]{1,6}-[0-9]+$|[0-9a-f]{7,64}$|(?i:utf|sha|iso|rfc|tls|ssl|https?|chrome|firefox|safari|edge|windows|python|node|java|ubuntu|debian|ios|android"
    r"|server|host|web|db|prod|staging|bastion|vm|page|step|part|team|user|build|test|version|v|vpn)-?[0-9]|[0-9a-fA-F]{8}-)"
)
_COOKIES = re.compile(r"cookie\\{0,3}[\"']?[ ]{0,2}[:=,][ ]{0,2}\\{0,3}[\"']?([^\n\"']{1,4096})")
_COOKIE = re.compile(
    r"(?<![^;\s\"'])[\w.-]{0,40}(?:sess|sid|auth|token|jwt|login|remember)[\w.-]{0,40}=([^;\s]{1,2048})"
)
_MANIFEST_DATA = re.compile(r"kind:[ ]?[\"']?secret\b(?:[^\n]{0,200}\n){1,12}?(?:string)?data:[ ]?\n")
_MANIFEST_LINE = re.compile(
    r"[ ]{1,12}[\w.-]{1,80}:[ ]?[|>]?-?(?:\n[ ]{1,12})?[\"']?([^\s\"'|>]{4,8000})[\"']?[ ]*(?:\n|$)"
)
_URL_STAND_INS = frozenset({"password", "passwd", "pass", "pw", "secret", "token", "pwd", "***", "x"})


def phrased_secrets(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """Kind, start and end of each secret that a phrase, a command or a header gives away."""
    lower, plain = reading.lower, reading.plain
    for rule in _RULES:
        place = lower.find(rule.hint)
        done = 0
        while place >= 0:
            match = rule.pattern.match(lower, place)
            before = rule.before and match and rule.before.search(lower, max(done, place - rule.lead), place)
            if match is not None and (before or not rule.before):
                done = match.end()
                yield from _judged(rule, before if before and before.lastindex else match, plain)
            place = lower.find(rule.hint, max(done, place + len(rule.hint)))
    yield from _cookies(reading)
    yield from _manifests(reading)


def _judged(rule: Phrase, match: re.Match[str], plain: str) -> Iterator[tuple[str, int, int]]:
    if rule.needed == LIST:
        yield from _listed(rule.kind, match.end(), plain)
        return
    start, end = match.span(match.lastindex or 0)
    while end > start and plain[end - 1] in ").,;:? ":
        end -= 1
    value = plain[start:end]
    if rule.kind == "url_password":
        if _is_url_stand_in(value):
            return
        if rule.needed == ANY:
            yield rule.kind, start, end
            return
    if rule.kind == "access_code" and _HARMLESS.search(plain[max(0, match.start() - 30) : end + 20].lower()):
        return
    is_quoted = plain[start - 1 : start] in _QUOTES
    if rule.needed == MIXED:
        is_secret = _is_mixed(value)
    else:
        is_secret = rule.needed == ANY or strength(value, quoted=is_quoted) >= rule.needed
    if is_secret:
        yield rule.kind, start, end


def _listed(kind: str, place: int, plain: str) -> Iterator[tuple[str, int, int]]:
    for _ in range(_MAX_ITEMS):
        item = _ITEM.match(plain, place)
        if item is None:
            return
        yield kind, *item.span(1)
        place = item.end()


def _is_url_stand_in(value: str) -> bool:
    is_code = "{" in value or value.startswith(("$", "<", "[", "%s"))
    return is_code or value.lower() in _URL_STAND_INS or "****" in value


def _is_mixed(value: str) -> bool:
    """Whether ``value`` has letters and digits, and is no version, date or id."""
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and len(value) >= _MIN_MIXED
    return has_both and not _NO_PASSWORD.match(value) and strength(value, quoted=False) >= MADE_UP


def _cookies(reading: Reading) -> Iterator[tuple[str, int, int]]:
    place = reading.lower.find("cookie")
    while place >= 0:
        header = _COOKIES.match(reading.lower, place)
        if header is not None:
            for cookie in _COOKIE.finditer(reading.lower, *header.span(1)):
                if strength(reading.plain[slice(*cookie.span(1))], quoted=True) == RANDOM:
                    yield "session", *cookie.span(1)
        place = reading.lower.find("cookie", place + 6 if header is None else header.end())


def _manifests(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """The values of Kubernetes' manifests of secrets, which are in base64."""
    for place in (match.start() for match in re.finditer("kind: ?[\"']?secret", reading.lower)):
        data = _MANIFEST_DATA.match(reading.lower, place)
        line = data and _MANIFEST_LINE.match(reading.lower, data.end())
        while line:
            if "user" not in line.group()[:80] and not reading.plain.startswith(("$", "<", "{"), line.start(1)):
                yield "secret", *line.span(1)
            line = _MANIFEST_LINE.match(reading.lower, line.end())
