"""The default redactor: what looks like a credential or a card number is not stored.

Few rules, each for a form that hardly anything else has: a memory that is refused by mistake is lost. To add one: a
row in ``_RULES``, what it must have in ``_HINTS``, and its cases in ``tests/test_memory_policy_secrets.py``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import cast

from agent_memory_log.memory.candidates import Candidate
from agent_memory_log.memory.hooks import Refusal
from agent_memory_log.memory.kinds import Fact, Preference

_REASON = "secret"

_RULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("private_key", re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")),
    (
        "api_key",
        re.compile(
            r"""(?<![A-Za-z0-9])(?:
                (?:AKIA|ASIA)[A-Z2-7]{16}                            # Amazon Web Services
              | sk-[A-Za-z0-9_-]{20,}                                # OpenAI, Anthropic and others
              | [sr]k_(?:live|test)_[A-Za-z0-9]{16,}                 # Stripe
              | whsec_[A-Za-z0-9+/]{24,}
              | AIza[A-Za-z0-9_-]{35}                                # Google
              | GOCSPX-[A-Za-z0-9_-]{20,}
              | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}           # SendGrid
            )(?![A-Za-z0-9])""",
            re.VERBOSE,
        ),
    ),
    (
        "token",
        re.compile(
            r"""(?<![A-Za-z0-9])(?:
                gh[opsur]_[A-Za-z0-9]{36,}                           # GitHub
              | github_pat_[A-Za-z0-9_]{22,}
              | glpat-[A-Za-z0-9_-]{20,}                             # GitLab
              | xox[abeoprs]-[A-Za-z0-9-]{10,}                       # Slack
              | npm_[A-Za-z0-9]{36}
              | pypi-AgE[A-Za-z0-9_-]{40,}
              | hf_[A-Za-z0-9]{30,}                                  # Hugging Face
              | do[opr]_v1_[0-9a-f]{64}                              # DigitalOcean
              | ya29\.[A-Za-z0-9_-]{20,}                             # Google
              | [0-9]{8,10}:AA[A-Za-z0-9_-]{33}                      # Telegram
              | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}  # a JSON web token
            )(?![A-Za-z0-9])
              | \b[Bb]earer\s+(?=[^\s]*[0-9])[A-Za-z0-9._~+/-]{20,}""",
            re.VERBOSE,
        ),
    ),
    ("password", re.compile(r"(?<![A-Za-z0-9])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/:@?#]{0,256}:[^\s/@]{1,256}@")),
    (
        "password",
        re.compile(
            r"""(?<![a-z0-9])(?:password|passwort|passwd|pass[ ]?phrase|pwd|secret[ _-]?key|client[ _-]?secret
              |api[ _-]?key|(?:access|auth|refresh)[ _-]?token)["']?\s{0,3}(?:=|:|\bis\b|\bist\b)\s{0,3}["']?
              (?!not\b|never\b)[^\s"']{4,}""",
            re.VERBOSE | re.IGNORECASE,
        ),
    ),
)

# What a text must have, or none of the rules can match: a word as long as a key or token is, or one of these.
# It is compared in lower case: of a text in NFKC, nothing but ASCII's letters can stand for a letter of these.
_LONG_WORD = 20
_HINTS = ("-----begin", "xox", "://", "pass", "pwd", "secret", "key", "token")

# Its first digit comes first, so that it is looked for as fast as a character can be.
_DIGITS = re.compile(r"[0-9](?<![0-9][0-9])(?:[ -]?[0-9]){12,}(?![0-9])")
_GROUP = re.compile(r"[0-9]+")
# Issuers' first digits, and how long their numbers are: with them a tenth of a percent of random digits look like one.
_CARD = re.compile(
    r"""4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})
      | (?:5[1-5][0-9]{2}|222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)[0-9]{12}
      | 3[47][0-9]{13}
      | 3(?:0[0-5]|[68][0-9])[0-9]{11}
      | (?:6011|65[0-9]{2}|64[4-9][0-9]|35(?:2[89]|[3-8][0-9]))[0-9]{12}
      | 62[0-9]{14,17}""",
    re.VERBOSE,
)
_MAX_CARD_DIGITS = 19
_MIN_GROUP = 3
_DOUBLED = str.maketrans("0123456789", "0246813579")  # twice the digit, and the sum of what that has of digits


def stop_secrets(candidate: Candidate, /) -> Candidate | Refusal:
    """Refuse a candidate that holds a secret, wherever in it; any other is left as it is.

    The reason is ``secret:`` and what was found: ``private_key``, ``api_key`` or ``token`` of a well-known form,
    ``password``, in a URL or named so, ``card_number``, by issuer and check digit. It never holds the secret.
    """
    for text in _texts(candidate):
        found = find_secret(text)
        if found:
            return Refusal(f"{_REASON}:{found}")
    return candidate


def find_secret(text: str) -> str:
    """What kind of secret stands in ``text``; ``""`` when there is none."""
    # Full-width digits and letters are read as what they look like.
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    if _may_hold(plain):
        for name, rule in _RULES:
            if rule.search(plain):
                return name
    return "card_number" if any(_has_card(run.group()) for run in _DIGITS.finditer(plain)) else ""


def _may_hold(plain: str) -> bool:
    """Whether one of the rules could match: cheap, as most texts hold no secret."""
    lower = plain.lower()
    for hint in _HINTS:  # twice as fast as any(), and each text of a candidate passes here
        if hint in lower:
            return True
    return len(plain) >= _LONG_WORD and max(map(len, plain.split()), default=0) >= _LONG_WORD


def _texts(candidate: Candidate) -> Iterator[str]:
    data = candidate.data
    if isinstance(data, (Preference, Fact)):
        yield f"{data.key}: {data.value}"
        yield data.value
    else:
        yield from _inside(data.to_map())
    yield candidate.text
    yield from candidate.entities
    yield from candidate.tags


def _inside(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, object]", value).items():
            yield f"{key}: {item}" if isinstance(item, str) else key
            yield from _inside(item)
    elif isinstance(value, (list, tuple)):
        for item in cast("list[object]", value):
            yield from _inside(item)
    elif isinstance(value, int):
        yield str(value)


def _has_card(run: str) -> bool:
    """Whether neighbouring groups of digits are a card number: a date or a code may stand before or behind it."""
    groups = _GROUP.findall(run)
    for start, first in enumerate(groups):
        if len(first) < _MIN_GROUP:
            continue
        digits = ""
        for group in groups[start : start + _MAX_CARD_DIGITS]:
            digits += group
            if len(digits) > _MAX_CARD_DIGITS:
                break
            if _CARD.fullmatch(digits) and _luhn(digits):
                return True
    return False


def _luhn(digits: str) -> bool:
    total = sum(map(int, digits[::-2])) + sum(map(int, digits[-2::-2].translate(_DOUBLED)))
    return total % 10 == 0 and len(set(digits)) > 1
