"""Parses store URLs and their options, and defines the protocols that backends implement."""

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
    """A parsed store URL.

    A backend takes the options that it knows with ``choice``, ``number`` or ``option``. Then it calls ``finish``, which
    refuses the remaining options.

    Attributes:
        scheme: The scheme, such as ``sqlite``.
        location: The decoded part between the scheme and the options. See ``parse``.
        masked: The URL without credentials, for messages.
    """

    def __init__(self, text: str, scheme: str, location: str, options: Sequence[tuple[str, str]]) -> None:
        self.scheme = scheme
        self.location = location
        self.masked = without_credentials(text)
        self._text = text
        self._options = list(options)

    def __repr__(self) -> str:
        return f"StoreUrl({self.masked!r})"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``scheme:location?options``.

        The location is percent-decoded and does not include the ``//`` of an empty host: ``sqlite:///runs.db`` has the
        location ``runs.db``, ``sqlite:////var/runs.db`` has ``/var/runs.db``, and ``memory:`` has ``""``.

        Raises:
            InvalidArgument: The text has no scheme, holds ``#`` or a control character, or has an invalid host.
        """
        scheme = text.partition(":")[0] if isinstance(text, str) else ""
        masked = without_credentials(text) if isinstance(text, str) else text
        if not _SCHEME.fullmatch(scheme) or ":" not in text:
            raise InvalidArgument(
                f"{masked!r} is not a store URL: begin it with a scheme, as in sqlite:///{masked} or memory:"
            )
        # urlsplit silently drops these characters, and the backend would open a different file.
        if _DROPPED.search(text):
            raise InvalidArgument(f"{masked!r} contains # or a control character: percent-encode it, as in %23")
        parts = _split(text)
        if parts is None:
            raise InvalidArgument(f"{masked!r} is not a store URL: the part between // and / is not a valid host")
        location = parts.netloc + parts.path
        if text[len(parts.scheme) + 1 :].startswith("///"):
            location = parts.path[1:]
        return cls(text, parts.scheme, unquote(location), parse_qsl(parts.query, keep_blank_values=True))

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Take the option ``name`` and return its value, by default the first of ``allowed``.

        Raises:
            InvalidArgument: The value is not in ``allowed``, or the option appears twice.
        """
        value = self.option(name, allowed[0])
        if value not in allowed:
            raise InvalidArgument(
                f"the option {name!r} of {self.masked!r} must be {' or '.join(allowed)}, got {self._quoted(value)}"
            )
        return value

    def number(self, name: str, default: int, minimum: int = 1) -> int:
        """Take the option ``name`` and return its value as an integer.

        Raises:
            InvalidArgument: The value is not an integer of at least ``minimum``, or the option appears twice.
        """
        value = self.option(name, str(default))
        if not value.isdecimal() or len(value) > _MAX_DIGITS or int(value) < minimum:
            raise InvalidArgument(
                f"the option {name!r} of {self.masked!r} must be an integer from {minimum}, got {self._quoted(value)}"
            )
        return int(value)

    def option(self, name: str, default: str) -> str:
        """Take the option ``name`` and return its value. Raises ``InvalidArgument`` if the option appears twice."""
        values = [value for key, value in self._options if key == name]
        if len(values) > 1:
            raise InvalidArgument(f"the option {name!r} appears twice in {self.masked!r}")
        self._options = [(key, value) for key, value in self._options if key != name]
        return values[0] if values else default

    def check_hosts(self) -> None:
        """Refuse an ``@`` after the hosts and a ``;`` in the options. Call it before any option is taken.

        Such an ``@`` is probably part of a password that was not percent-encoded. A driver would read a part of that
        password as a host or an option, and show it in messages. A ``;`` separates options in some drivers, but not in
        this library. Raises ``InvalidArgument``.
        """
        base, _, query = self._text.partition("//")[2].partition("?")
        if "@" in base.partition("/")[2] + query or ";" in query:
            raise InvalidArgument(
                f"{self.masked!r} has an @ or a ; after its hosts: percent-encode it, as in %40. In user and password, "
                "percent-encode @ : / ? and %"
            )

    def rest(self) -> str:
        """Return the URL with its credentials and all remaining options, for a driver that parses them itself.

        This takes the remaining options.
        """
        remaining = {name for name, _ in self._options}
        self._options = []
        base, _, query = self._text.partition("?")
        # The options stay as written, because some drivers need unencoded separators inside a value.
        options = [option for option in query.split("&") if unquote_plus(option.partition("=")[0]) in remaining]
        return f"{base}?{'&'.join(options)}" if options else base

    def finish(self) -> None:
        """Refuse the options that were not taken. Raises ``InvalidArgument``."""
        if self._options:
            names = ", ".join(self._quoted(name) for name, _ in self._options)
            raise InvalidArgument(f"{self.scheme}: has no option {names}, in {self.masked!r}")

    def _quoted(self, part: str) -> str:
        """Return a part of the URL for a message, or ``***`` if it may be a piece of a password."""
        return repr(part) if part in self.masked else "***"


def _split(text: str) -> SplitResult | None:
    try:
        return urlsplit(text)
    except ValueError:
        return None  # its message may contain a part of a password


def without_credentials(url: str) -> str:
    """Return the URL with ``***`` instead of user, password and the values of secret options."""
    # Everything up to the last @ is replaced, because a password may contain an unencoded / or ?. If the host is
    # missing, the password is in the position of the port, so a port that is not a number is replaced too.
    return _PARAMETER.sub(_without_secret, _NO_PORT.sub(r"\1***", _CREDENTIALS.sub(r"\1\2***@", url)))


class Backend(Protocol):
    """The object that an entry point in the group ``agent_memory_log.backends`` names.

    The name of the entry point is the URL scheme.
    """

    async def open_store(self, url: StoreUrl) -> Store:
        """Open an asynchronous handle.

        Raises:
            StoreUnavailable: The store cannot be reached or opened.
            SchemaTooNew: A newer release wrote the store.
            InvalidArgument: The URL is wrong.
        """
        ...

    def open_sync_store(self, url: StoreUrl) -> SyncStore:
        """Open a synchronous handle. Raises the same errors as ``open_store``."""
        ...


@runtime_checkable
class KeepsFiles(Protocol):
    """A ``Backend`` whose stores are files on this machine. Check for it with ``isinstance``."""

    def files(self, url: StoreUrl) -> tuple[Path, ...]:
        """Return every file that the store at ``url`` has or can create, the main file first, with symlinks resolved.

        The store is not opened and does not have to exist. Raises ``InvalidArgument`` if the URL is wrong.
        """
        ...


@runtime_checkable
class ReadsGoOriginal(Protocol):
    """A ``Backend`` that can read the database of the Go original. Check for it with ``isinstance``."""

    def go_original_runs(self, url: StoreUrl) -> AsyncGenerator[SourceRun]:
        """Yield every run of the Go original in the database at ``url``, the oldest first. The database is not changed.

        Raises:
            InvalidArgument: The URL is wrong.
            StoreUnavailable: The database cannot be reached.
            SchemaTooNew: A newer release of the original wrote the database.
            DecodeError: Some documents do not name their run. It is raised after all runs were yielded.
        """
        ...


def _without_secret(match: re.Match[str]) -> str:
    """Return an option of a URL, with ``***`` instead of its value if its name is secret.

    The match of the first option also holds the text before it, which stays.
    """
    part = match[0]
    begin = 0 if match.start() else part.find("?")
    name = _SECRET_NAME.search(part, begin) if begin >= 0 else None
    value = part.find("=", name.end()) + 1 if name else 0
    return f"{part[:value]}***" if value else part
