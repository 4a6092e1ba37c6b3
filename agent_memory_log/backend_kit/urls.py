"""Store URLs: what a backend's opener is given, with its options read by name."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Protocol, Self, runtime_checkable
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_plus, urlsplit

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.store import Store, SyncStore
from agent_memory_log.transfer.importing import SourceRun

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+")  # one letter alone is a Windows drive
_DROPPED = re.compile(r"[\x00-\x1f\x7f#]")
_MAX_DIGITS = 18
_CREDENTIALS = re.compile(r"\A([^:/@]*:)?(//)?.*@", re.DOTALL)
_NO_PORT = re.compile(r"\A([^:/?]*://[^/?@\[]*?:)(?!\d+(?:[,/?]|\Z))[^/?]+")
_PARAMETER = re.compile(r"[^&;]+")
_SECRET_NAME = re.compile("password|token|secret|properties", re.IGNORECASE)


class StoreUrl:
    """A store URL taken apart; options that a backend does not take are refused by ``finish``.

    ``shown``, which is also its text in messages, is the URL without credentials.
    """

    def __init__(self, text: str, scheme: str, location: str, options: Sequence[tuple[str, str]]) -> None:
        self.scheme = scheme
        self.location = location
        self.shown = without_credentials(text)
        self._text = text
        self._options = list(options)

    def __repr__(self) -> str:
        return f"StoreUrl({self.shown!r})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split ``scheme:location?options``. Raises ``InvalidArgument`` when there is no scheme.

        ``location`` is what stands between ``scheme:`` and ``?``, less the ``//`` of an empty host, percent-decoded:
        ``sqlite:///runs.db`` gives ``runs.db``, ``sqlite:////var/runs.db`` gives ``/var/runs.db``, ``memory:`` gives
        ``""``.
        """
        scheme = text.partition(":")[0] if isinstance(text, str) else ""
        shown = without_credentials(text) if isinstance(text, str) else text
        if not _SCHEME.fullmatch(scheme) or ":" not in text:
            raise InvalidArgument(
                f"{shown!r} is not a store URL, which begins with a scheme: sqlite:///{shown}, or memory:"
            )
        # urlsplit drops these without a word, and another file than the one named would be opened.
        if _DROPPED.search(text):
            raise InvalidArgument(f"{shown!r} holds # or a control character: percent-encode it, as in %23")
        parts = _split(text)
        if parts is None:
            raise InvalidArgument(f"{shown!r} is not a store URL: what stands between // and / is no host")
        location = parts.netloc + parts.path
        if text[len(parts.scheme) + 1 :].startswith("///"):
            location = parts.path[1:]
        return cls(text, parts.scheme, unquote(location), parse_qsl(parts.query, keep_blank_values=True))

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Take the option ``name``, one of ``allowed``, the first by default. Raises ``InvalidArgument``."""
        value = self.option(name, allowed[0])
        if value not in allowed:
            raise InvalidArgument(
                f"the option {name!r} of {self.shown!r} must be {' or '.join(allowed)}, found {self._quoted(value)}"
            )
        return value

    def number(self, name: str, default: int, minimum: int = 1) -> int:
        """Take the integer option ``name``. Raises ``InvalidArgument``."""
        value = self.option(name, str(default))
        if not value.isdecimal() or len(value) > _MAX_DIGITS or int(value) < minimum:
            raise InvalidArgument(
                f"the option {name!r} of {self.shown!r} must be an integer from {minimum}, found {self._quoted(value)}"
            )
        return int(value)

    def option(self, name: str, default: str) -> str:
        """Take the option ``name``. Raises ``InvalidArgument`` when it is given twice."""
        values = [value for given, value in self._options if given == name]
        if len(values) > 1:
            raise InvalidArgument(f"the option {name!r} is given twice in {self.shown!r}")
        self._options = [(given, value) for given, value in self._options if given != name]
        return values[0] if values else default

    def check_hosts(self) -> None:
        """Refuse an ``@`` or ``;`` behind the hosts, before options are taken. Raises ``InvalidArgument``.

        The first is most likely a password's that was not percent-encoded, of which a driver would take a part for a
        host, or an option, and show it; the second separates options for some drivers, and here does not.
        """
        behind = self._text.partition("//")[2].partition("?")
        if "@" in behind[0].partition("/")[2] + behind[2] or ";" in behind[2]:
            raise InvalidArgument(
                f"{self.shown!r} has an @ or a ; behind its hosts: percent-encode it there, as in %40, and @ : / ? and "
                "% in user and password"
            )

    def rest(self) -> str:
        """The URL with its credentials and the options nobody took, for a driver that reads its own; takes them."""
        left = {name for name, _ in self._options}
        self._options = []
        base, _, query = self._text.partition("?")
        # As they were written: in some options, what separates the parts of a value must not be percent-encoded.
        options = [option for option in query.split("&") if unquote_plus(option.partition("=")[0]) in left]
        return f"{base}?{'&'.join(options)}" if options else base

    def finish(self) -> None:
        """Refuse the options nobody took. Raises ``InvalidArgument``."""
        if self._options:
            names = ", ".join(self._quoted(name) for name, _ in self._options)
            raise InvalidArgument(f"{self.scheme}: has no option {names}, in {self.shown!r}")

    def _quoted(self, part: str) -> str:
        """A part of the URL as messages show it: what looked like an option may be a piece of a password."""
        return repr(part) if part in self.shown else "***"


def _split(text: str) -> SplitResult | None:
    try:
        return urlsplit(text)
    except ValueError:
        return None  # what it says may quote a part of a password


def without_credentials(url: str) -> str:
    """The URL as it may be shown: ``***`` for user and password, and for options that hold a secret."""
    # Up to the last @: a password with / or ? in it, which should have been percent-encoded, is no less a password. Nor
    # is one whose host was forgotten, and which so stands where the port does.
    return _PARAMETER.sub(_without_secret, _NO_PORT.sub(r"\1***", _CREDENTIALS.sub(r"\1\2***@", url)))


class Backend(Protocol):
    """What an entry point in the group ``agent_memory_log.backends`` names.

    The entry point's name is the URL scheme.
    """

    async def open_store(self, url: StoreUrl) -> Store:
        """Open an asynchronous handle. Raises ``StoreUnavailable``, ``SchemaTooNew``, ``InvalidArgument``."""
        ...

    def open_sync_store(self, url: StoreUrl) -> SyncStore:
        """Open a synchronous handle. Raises as ``open_store`` does."""
        ...


@runtime_checkable
class KeepsFiles(Protocol):
    """A ``Backend`` whose stores are files of this machine. Found with ``isinstance``."""

    def files(self, url: StoreUrl) -> tuple[Path, ...]:
        """Every file that the store at ``url`` has or may come to have, its main one first, with symlinks resolved.

        The store need not exist, and is not opened. Raises ``InvalidArgument`` for a URL that cannot be opened.
        """
        ...


@runtime_checkable
class ReadsGoOriginal(Protocol):
    """A ``Backend`` that reads what the Go original keeps in its database. Found with ``isinstance``."""

    def go_original_runs(self, url: StoreUrl) -> AsyncGenerator[SourceRun]:
        """Every run of the Go original in the database at ``url``, the oldest first; nothing is changed there.

        Raises ``InvalidArgument``, ``StoreUnavailable``, ``SchemaTooNew`` for what a later release of the original
        wrote, and ``DecodeError`` for documents that name no run, after all others were given.
        """
        ...


def _without_secret(match: re.Match[str]) -> str:
    """A parameter, or what stands before the first one, with ``***`` for what is set under a name of a secret."""
    part = match[0]
    begin = 0 if match.start() else part.find("?")
    name = _SECRET_NAME.search(part, begin) if begin >= 0 else None
    value = part.find("=", name.end()) + 1 if name else 0
    return f"{part[:value]}***" if value else part
