"""Rates how much a value looks like a secret, to exclude placeholders, words and code."""

from __future__ import annotations

import re

from agent_memory_log.secrets.parts import words

NOT_SECRET = 0
"""The strength of placeholders, of ordinary words, and of code that reads the secret from another source."""
WORD = 1
"""The strength of other words. In a clear context, such a word may be a weak password."""
MADE_UP = 2
"""The strength of letters with digits, signs or inner capitals, which are rarely words."""
RANDOM = 3
"""The strength of at least 16 characters that no person would write as text."""

NEVER = 4
"""A required strength that no value reaches."""
STRENGTHS = {"word": WORD, "made_up": MADE_UP, "random": RANDOM, "never": NEVER}
"""The strengths by their names in the data tables."""

MIN_LENGTH = 4
_RANDOM_LENGTH = 16
_MANY_WORDS = 6
_KEY_LENGTH = 40
_FEW_HYPHENS = 2  # "up-to-date" has two; a passphrase has more, or a capital

_STAND_IN = re.compile(
    r"""<[^<>]{0,80}>?$ | \[.*\]?$ | \{.* | \$[A-Za-z_][\w/.]*$ | :\w+:.* | \$[({].* | \$\$?$ | %\(?[a-z_]{0,40}\)?[sd]$
      | %[A-Z_]{1,40}%$ | .*(?:\.\.\.|\u2026)$ | (?:your|insert|enter|put|add)[_ -].* | .*[_ -]here$
      | .*(?:placeholder|example|x{5,}|\*{4,}|redacted|change[_-]?me|replace[_-]?me|\{\{|\$\{).*
      | (?:env|file|vault|ref|secret):.* | convertto-securestring | !(?:ref|sub|getatt|vault|secret)\b.*""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_CALL = re.compile(r"[A-Za-z_&*][\w.>:-]{0,80}[(\[]")
_CODE = re.compile(r"[A-Za-z_]\w{0,60}(?:(?:\.|->|::)[A-Za-z_]\w{0,60}){1,6}[;,]?$|[=(\[{|&]")
_IDENTIFIER = re.compile(r"_{0,2}[A-Za-z]{1,20}[0-9]{0,3}(?:[_.-][A-Za-z]{2,20}[0-9]{0,3}){1,8}$")
_DIGIT = re.compile(r"[0-9]")
_PLACE = re.compile(
    r"[a-zA-Z][a-zA-Z0-9+.-]{1,20}://|[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9A-Za-z])|[A-Za-z]:\\"
    r"|[A-Za-z0-9-]{1,60}(?:\.[a-z0-9-]{2,60}){0,4}\.(?:com|org|net|io|local|internal)$"
)
_SIGN_INSIDE = re.compile(r"[^\W_](?:[^\w\s.,'\u2019-]|_[^\W_]*[A-Z])|[a-zß-ÿ][A-Z]|[@#$%^&*+=][^\W_]")
_NAMES_A_SECRET = re.compile(
    r"pass(?:word|wd|phrase)|placeholder|example|secret|token|api[_-]?key|credential", re.IGNORECASE
)
_RANDOM_FORM = re.compile(r"[A-Za-z0-9+/=_.~%!:-]+$")


def strength(value: str, *, quoted: bool) -> int:
    """Return how much ``value`` looks like a secret, from ``NOT_SECRET`` to ``RANDOM``.

    ``quoted`` means that the value is a literal; an unquoted value may be code.
    """
    if len(value) < MIN_LENGTH or len(set(value)) == 1:
        return NOT_SECRET
    if value.isalpha() and value.islower():  # the common case of ordinary words
        return NOT_SECRET if value in words()["ordinary"] or _NAMES_A_SECRET.search(value) else WORD
    has_digit = _DIGIT.search(value) is not None
    if _is_placeholder(value, has_digit=has_digit) or (not quoted and _is_code(value, has_digit=has_digit)):
        return NOT_SECRET
    if has_digit and len(value) >= _RANDOM_LENGTH and _RANDOM_FORM.match(value) and not _IDENTIFIER.match(value):
        return RANDOM if any(map(str.isalpha, value)) else MADE_UP
    hyphens = value.count("-")
    is_phrase = hyphens > _FEW_HYPHENS or (hyphens == _FEW_HYPHENS and value[0].isupper())
    return MADE_UP if has_digit or is_phrase or _SIGN_INSIDE.search(value) else WORD


def _is_placeholder(value: str, *, has_digit: bool) -> bool:
    """Return whether ``value`` is a placeholder, ordinary words, or the location of a secret."""
    ordinary_words = words()["ordinary"]
    ordinary = [word.strip(".,!?:;()") in ordinary_words for word in value.lower().split()]
    if ordinary[:1] == [True] or len(ordinary) > _MANY_WORDS or sum(ordinary) > 1 or _STAND_IN.match(value):
        return True
    if not has_digit and _NAMES_A_SECRET.search(value):
        return True
    is_path = value.startswith(("/", "./", "../", "~/")) and (len(value) < _KEY_LENGTH or not has_digit)
    return is_path or _PLACE.match(value) is not None


def _is_code(value: str, *, has_digit: bool) -> bool:
    if _CALL.match(value):
        return True
    return not has_digit and (_CODE.match(value) is not None or (value.isupper() and value.isidentifier()))
