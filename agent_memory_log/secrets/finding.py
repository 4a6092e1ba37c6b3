"""Finding secrets in a text, and masking them."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from agent_memory_log.secrets.names import named_secrets
from agent_memory_log.secrets.numbers import checked_numbers
from agent_memory_log.secrets.phrases import phrased_secrets, token_secrets
from agent_memory_log.secrets.reading import Reading

MASK_BEGINS = "[secret: "
_MASK = re.compile(r"\[secret: [a-z_]{1,40}\]")


class Finding(msgspec.Struct, frozen=True):
    """A secret in a text: ``text[start:end]``, and its ``kind``, as ``aws_access_key`` or ``password``."""

    kind: str
    start: int
    end: int


def find_secrets(text: str) -> tuple[Finding, ...]:
    """The secrets in ``text``, in order; none overlaps another. Takes time in proportion to the text's length."""
    reading = Reading(_MASK.sub(_starred, text) if MASK_BEGINS in text else text)
    spans = [*token_secrets(reading), *checked_numbers(reading), *phrased_secrets(reading), *named_secrets(reading)]
    if not spans:
        return ()
    findings: list[Finding] = []
    # Of spans that overlap, the first has the most exact kind: the tables come in this order, and the sort is stable.
    for kind, begin, stop in sorted(spans, key=lambda span: span[1]):
        start, end = reading.span(begin, stop)
        last = findings[-1] if findings else None
        if last is not None and start < last.end:
            findings[-1] = Finding(last.kind, last.start, max(last.end, end))
        else:
            findings.append(Finding(kind, start, end))
    return tuple(findings)


def redact_text(text: str) -> str:
    """``text`` with each secret replaced by its kind, as in ``[secret: password]``; the same object if it has none."""
    findings = find_secrets(text)
    return masked(text, findings) if findings else text


def masked(text: str, findings: Iterable[Finding]) -> str:
    """``text`` with each of ``findings``, which come in order, replaced by its kind."""
    parts: list[str] = []
    done = 0
    for finding in findings:
        parts += (text[done : finding.start], mask(finding.kind))
        done = finding.end
    return "".join((*parts, text[done:]))


def mask(kind: str) -> str:
    """What stands in place of a secret."""
    return f"{MASK_BEGINS}{kind}]"


def _starred(match: re.Match[str]) -> str:
    """What is masked is read as asterisks, which no rule takes for a secret."""
    return "*" * len(match.group())
