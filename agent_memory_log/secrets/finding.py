"""Finds secrets in a text and masks them."""

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
    """A secret in a text.

    Attributes:
        kind: The kind of secret, for example ``aws_access_key`` or ``password``.
        start: The index of the secret's first character.
        end: The index after the secret's last character.
    """

    kind: str
    start: int
    end: int


def find_secrets(text: str) -> tuple[Finding, ...]:
    """Return the secrets in ``text``, in order and without overlaps. The time is linear in the text's length."""
    reading = Reading(_MASK.sub(_starred, text) if MASK_BEGINS in text else text)
    spans = [*token_secrets(reading), *checked_numbers(reading), *phrased_secrets(reading), *named_secrets(reading)]
    if not spans:
        return ()
    findings: list[Finding] = []
    # More exact rules are searched first and the sort is stable, so the most exact of spans with equal starts is first.
    for kind, begin, stop in sorted(spans, key=lambda span: span[1]):
        start, end = reading.span(begin, stop)
        last = findings[-1] if findings else None
        if last is not None and start < last.end:
            findings[-1] = Finding(last.kind, last.start, max(last.end, end))
        else:
            findings.append(Finding(kind, start, end))
    return tuple(findings)


def redact_text(text: str) -> str:
    """Return ``text`` with each secret replaced by its kind, for example ``[secret: password]``.

    A text without secrets is returned as the same object.
    """
    findings = find_secrets(text)
    return masked(text, findings) if findings else text


def masked(text: str, findings: Iterable[Finding]) -> str:
    """Return ``text`` with each of ``findings`` replaced by its kind. The findings must be in order."""
    parts: list[str] = []
    done = 0
    for finding in findings:
        parts += (text[done : finding.start], mask(finding.kind))
        done = finding.end
    return "".join((*parts, text[done:]))


def mask(kind: str) -> str:
    """Return the replacement for a secret of ``kind``."""
    return f"{MASK_BEGINS}{kind}]"


def _starred(match: re.Match[str]) -> str:
    """Return asterisks as long as an existing mask. No rule matches asterisks."""
    return "*" * len(match.group())
