"""Numbers that a check digit proves: cards, IBANs, national ids; and phrases of words that open a wallet."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent_memory_log.secrets.reading import Reading

# A card's first digit comes first, so that it is looked for as fast as a character can be.
_DIGITS = re.compile(r"[0-9](?<![0-9][0-9])(?:[ .-]?[0-9]){12,}")
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
_CARD_CODE = re.compile(
    r"[ ,;|/]{1,3}(?:[Ee]xp(?:iry|ires)?[:. ]{0,2})?[0-9]{2} ?[/|] ?[0-9]{2,4}"
    r"[ ,;|/]{1,3}(?:code |cvv |cvc )?([0-9]{3,4})(?![0-9]|[.,/-][0-9])"
)
_MAX_CARD_DIGITS = 19
_MIN_GROUP = 3
_MAX_GROUP = 7
_DOUBLED = str.maketrans("0123456789", "0246813579")  # twice the digit, and the sum of what that has of digits

_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]){11,30}")
# How long the IBANs of a country are (ISO 13616 registry).
_IBANS = """
    AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 DO28 EE20 EG29 ES24
    FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32
    LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22
    SA24 SC31 SE24 SI19 SK24 SM27 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20
"""
_IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBANS.split()}
_SSN = re.compile(r"(?<![\w.-])(?!000|666|9)[0-9]{3}([- ])(?!00)[0-9]{2}\1(?!0000)[0-9]{4}(?![\w-]|\.[0-9])")
_NAMED_SSN = re.compile(
    r"(?<![a-z])(?:ssn|social(?: security)?(?: number| no\.?)?)[\"']?(?: is|:|=| =){0,2}[ \"']{0,3}"
    r"((?!000|666|9)[0-9]{3}[ -]?[0-9]{2}[ -]?[0-9]{4})(?![0-9])"
)
_CPF = re.compile(r"(?<![\w.-])[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}(?![\w-])")

_SEED_HINTS = ("seed", "mnemonic", "wallet", "phrase", " words", "metamask", "ledger", "trezor", "semilla", "frase")
_SEED = re.compile(
    r"[a-z]{0,8}[^\n]{0,40}?[ :=\"'\n>-]{1,6}"
    r"(?<![a-z])((?:(?:[0-9]{1,2}[.):] ?)?[a-z]{3,8}[ ,\n]{1,2}){11,27}(?:[0-9]{1,2}[.):] ?)?[a-z]{3,8})(?![a-z])"
)
_SEED_SIZE = 12
_MIN_DIFFERENT = 8
# Of the words that hold sentences together, none is in the list that wallets choose from (BIP 39).
_NO_SEED_TEXT = """
    words word phrase seed
    the and for are but not you with was his her they this that from have had has were can its our your their
    will would should which what when where who how why these those been being than then them into never always
    please because
"""
_NO_SEED_WORDS = frozenset(_NO_SEED_TEXT.split())


def checked_numbers(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """Kind, start and end of each number in ``reading`` that its check digits prove, and of each wallet's phrase."""
    plain, lower = reading.plain, reading.lower
    for run in _DIGITS.finditer(plain):
        yield from _cards(plain, run)
    for match in _IBAN.finditer(plain):
        yield from _ibans(match)
    for match in _SSN.finditer(plain):
        yield "ssn", *match.span()
    for hint in ("ssn", "social"):
        for place in _places(lower, hint):
            named = _NAMED_SSN.match(lower, place)
            if named is not None:
                yield "ssn", *named.span(1)
    for match in _CPF.finditer(plain):
        if _is_cpf(match.group()):
            yield "national_id", *match.span()
    for hint in _SEED_HINTS:
        yield from _seeds(lower, hint)


def _places(lower: str, hint: str) -> Iterator[int]:
    place = lower.find(hint)
    while place >= 0:
        yield place
        place = lower.find(hint, place + len(hint))


def _cards(plain: str, run: re.Match[str]) -> Iterator[tuple[str, int, int]]:
    """The neighbouring groups of digits that are a card number: a date or a code may stand before or behind it."""
    groups = [(match.start(), match.end()) for match in _GROUP.finditer(plain, *run.span())]
    done = 0
    for index, (start, stop) in enumerate(groups):
        # A group behind a point is a fraction or a part of an address, unless a card's groups are parted by points.
        if start < done or stop - start < _MIN_GROUP or plain[max(0, start - 1) : start] == ".":
            continue
        digits = ""
        for number, (begin, end) in enumerate(groups[index : index + _MAX_CARD_DIGITS]):
            digits += plain[begin:end]
            if len(digits) > _MAX_CARD_DIGITS or (number and end - begin > _MAX_GROUP):
                break
            if _CARD.fullmatch(digits) and _luhn(digits) and not re.match(r"\.[0-9]", plain[end : end + 2]):
                yield "card_number", start, end
                behind = _CARD_CODE.match(plain, end)
                if behind is not None:
                    yield "card_code", *behind.span(1)
                done = end
                break


def _luhn(digits: str) -> bool:
    total = sum(map(int, digits[::-2])) + sum(map(int, digits[-2::-2].translate(_DOUBLED)))
    return total % 10 == 0 and len(set(digits)) > 1


def _ibans(match: re.Match[str]) -> Iterator[tuple[str, int, int]]:
    text = match.group()
    length = _IBAN_LENGTHS.get(text[:2], 0)
    compact = ""
    for place, char in enumerate(text):
        compact += char if char.isalnum() else ""
        if length and len(compact) == length:
            rearranged = "".join(str(int(char, 36)) for char in compact[4:] + compact[:4])
            if int(rearranged) % 97 == 1:
                yield "iban", match.start(), match.start() + place + 1
            return


def _is_cpf(text: str) -> bool:
    digits = [int(char) for char in text if char.isdigit()]
    for length in (9, 10):
        total = sum(digit * (length + 1 - place) for place, digit in enumerate(digits[:length]))
        if digits[length] != total * 10 % 11 % 10:
            return False
    return len(set(digits)) > 1


def _seeds(lower: str, hint: str) -> Iterator[tuple[str, int, int]]:
    done = 0
    for place in _places(lower, hint):
        match = _SEED.match(lower, place) if place >= done else None
        if match is None:
            continue
        done = match.end()
        words = list(re.finditer(r"(?:[0-9]{1,2}[.):] ?)?([a-z]+)", match.group(1)))
        while any(word.group(1) in _NO_SEED_WORDS for word in words[:_MIN_DIFFERENT]):
            words.pop(0)
        size = next((at for at, word in enumerate(words) if word.group(1) in _NO_SEED_WORDS), len(words))
        if size >= _SEED_SIZE and len({word.group(1) for word in words[:size]}) >= _MIN_DIFFERENT:
            yield "seed_phrase", match.start(1) + words[0].start(), match.start(1) + words[size - 1].end()
