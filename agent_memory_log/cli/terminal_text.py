"""Escapes unsafe characters in text, and formats durations and sizes.

Models, users and tools write the text in a log. A control character in it could move the cursor. A bidirectional
override could make a line read differently. An invisible character could hide an instruction, or make two names look
the same. The functions here escape all of them.
"""

# ruff: noqa: PLR2004  # units of time and size, and the widths of escapes, are clearest as numbers

from __future__ import annotations

import re

INVISIBLE = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    r"\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Invisible characters (Unicode's Default_Ignorable_Code_Point) and Unicode line ends, for a regex character class.

U+FE00 to U+FE0F are left out, because they only select how an emoji looks.
"""

_UNSAFE = rf"\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{INVISIBLE}"
_unsafe = re.compile(f"[{_UNSAFE}]")
_unsafe_or_layout = re.compile(f"[{_UNSAFE}\t\n]")
_beyond_ascii = re.compile(r"[^\x00-\x7f]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def safe(text: str) -> str:
    """Return ``text`` with unsafe characters escaped. Line ends stay, and tabs become spaces."""
    text = text.replace("\r\n", "\n")
    return _unsafe.sub(_escape, text.expandtabs(4) if "\t" in text else text)


def one_line(text: str) -> str:
    """Return ``text`` on one line. Line ends, tabs and unsafe characters are escaped."""
    return _unsafe_or_layout.sub(_escape, text)


def safe_json(text: str, encoding: str) -> str:
    """Return JSON text with unsafe characters escaped as JSON, which does not change its values.

    If ``encoding`` lacks a character of the text, all characters outside ASCII are escaped.
    """
    text = _unsafe.sub(lambda match: _json_escape(match[0]), text)
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _beyond_ascii.sub(lambda match: _json_escape(match[0]), text)
    return text


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def duration(nanoseconds: int) -> str:
    """Return a duration as short text: ``850ns``, ``12ms``, ``3.4s``, ``2m 05s``, ``1h 20m``, ``3d 4h``."""
    sign = "-" if nanoseconds < 0 else ""
    return sign + _positive_duration(abs(nanoseconds))


def _positive_duration(nanoseconds: int) -> str:
    if nanoseconds < 1_000:
        return f"{nanoseconds}ns"
    if nanoseconds < 1_000_000:
        return f"{nanoseconds // 1_000}µs"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds // 1_000_000}ms"
    if nanoseconds < 59_950_000_000:
        return f"{nanoseconds / 1_000_000_000:.1f}s"
    seconds = round(nanoseconds / 1_000_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {seconds:02d}s"


def size(count: int) -> str:
    """Return a number of bytes as short text: ``812 B``, ``1.5 KB``, ``20.0 MB``. A KB has 1,000 bytes."""
    if count < 1_000:
        return f"{count} B"
    value = float(count)
    for unit in ("KB", "MB", "GB"):
        value /= 1_000
        if value < 999.95:  # larger values would be rounded to 1000.0
            return f"{value:.1f} {unit}"
    return f"{value / 1_000:.1f} TB"
