"""Finds numbers with a valid check digit or a strict format: cards, IBANs, national ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from agent_memory_log.secrets.parts import words
from agent_memory_log.secrets.reading import Reading

# The pattern begins with a digit, because the regex engine searches such patterns fastest.
_DIGITS = re.compile(r"[0-9](?<![0-9][0-9])(?:[ .-]?[0-9]){12,}")
_GROUP = re.compile(r"[0-9]+")
# The issuers' prefixes and lengths. With them, only 0.1 % of random numbers look like a card number.
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
_DOUBLED = str.maketrans("0123456789", "0246813579")  # each digit becomes the digit sum of its double

_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]){11,30}")
_SSN = re.compile(r"(?<![\w.-])(?!000|666|9)[0-9]{3}([- ])(?!00)[0-9]{2}\1(?!0000)[0-9]{4}(?![\w-]|\.[0-9])")
_CPF = re.compile(r"(?<![\w.-])[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}(?![\w-])")


def checked_numbers(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """Yield kind, start and end of each card number, IBAN, SSN and CPF."""
    plain = reading.plain
    for run in _DIGITS.finditer(plain):
        yield from _cards(plain, run)
    for match in _IBAN.finditer(plain):
        yield from _ibans(match)
    for match in _SSN.finditer(plain):
        yield "ssn", *match.span()
    for match in _CPF.finditer(plain):
        if _is_cpf(match.group()):
            yield "national_id", *match.span()


def _cards(plain: str, run: re.Match[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the card numbers in ``run``, and the codes of these cards. ``run`` may also contain other numbers."""
    groups = [(match.start(), match.end()) for match in _GROUP.finditer(plain, *run.span())]
    done = 0
    for index, (start, stop) in enumerate(groups):
        # A group after a point is part of a decimal fraction or of an IP address.
        if start < done or stop - start < _MIN_GROUP or plain[max(0, start - 1) : start] == ".":
            continue
        digits = ""
        for number, (begin, end) in enumerate(groups[index : index + _MAX_CARD_DIGITS]):
            digits += plain[begin:end]
            if len(digits) > _MAX_CARD_DIGITS or (number and end - begin > _MAX_GROUP):
                break
            if _CARD.fullmatch(digits) and _luhn(digits) and not re.match(r"\.[0-9]", plain[end : end + 2]):
                yield "card_number", start, end
                card_code = _CARD_CODE.match(plain, end)
                if card_code is not None:
                    yield "card_code", *card_code.span(1)
                done = end
                break


def _luhn(digits: str) -> bool:
    total = sum(map(int, digits[::-2])) + sum(map(int, digits[-2::-2].translate(_DOUBLED)))
    return total % 10 == 0 and len(set(digits)) > 1


@cache
def _iban_lengths() -> dict[str, int]:
    return {entry[:2]: int(entry[2:]) for entry in words()["iban"]}


def _ibans(match: re.Match[str]) -> Iterator[tuple[str, int, int]]:
    text = match.group()
    length = _iban_lengths().get(text[:2], 0)
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
