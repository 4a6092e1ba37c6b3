"""Store URLs: what a backend's opener is given, with its options read by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.store import Store, SyncStore

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+")  # one letter alone is a Windows drive
_DROPPED = re.compile(r"[\x00-\x1f\x7f#]")
_MAX_DIGITS = 18


class StoreUrl:
    """A store URL taken apart; options that a backend does not take are refused by ``finish``."""

    def __init__(self, text: str, scheme: str, location: str, options: Mapping[str, str]) -> None:
        self.text = text
        self.scheme = scheme
        self.location = location
        self._options = dict(options)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split ``scheme:location?options``. Raises ``InvalidArgument`` when there is no scheme.

        ``location`` is what stands between ``scheme:`` and ``?``, less the ``//`` of an empty host, percent-decoded:
        ``sqlite:///runs.db`` gives ``runs.db``, ``sqlite:////var/runs.db`` gives ``/var/runs.db``, ``memory:`` gives
        ``""``.
        """
        scheme = text.partition(":")[0] if isinstance(text, str) else ""
        if not _SCHEME.fullmatch(scheme) or ":" not in text:
            raise InvalidArgument(
                f"{text!r} is not a store URL, which begins with a scheme: sqlite:///{text}, or memory:"
            )
        # urlsplit drops these without a word, and another file than the one named would be opened.
        if _DROPPED.search(text):
            raise InvalidArgument(f"{text!r} holds # or a control character: percent-encode it, as in %23")
        try:
            parts = urlsplit(text)
        except ValueError as error:
            raise InvalidArgument(f"{text!r} is not a store URL: {error}") from error
        location = parts.netloc + parts.path
        if text[len(parts.scheme) + 1 :].startswith("///"):
            location = parts.path[1:]
        options: dict[str, str] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name in options:
                raise InvalidArgument(f"the option {name!r} is given twice in {text!r}")
            options[name] = value
        return cls(text, parts.scheme, unquote(location), options)

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Take the option ``name``, one of ``allowed``, the first by default. Raises ``InvalidArgument``."""
        value = self._options.pop(name, allowed[0])
        if value not in allowed:
            raise InvalidArgument(
                f"the option {name!r} of {self.text!r} must be {' or '.join(allowed)}, found {value!r}"
            )
        return value

    def number(self, name: str, default: int, minimum: int = 1) -> int:
        """Take the integer option ``name``. Raises ``InvalidArgument``."""
        value = self._options.pop(name, str(default))
        if not value.isdecimal() or len(value) > _MAX_DIGITS or int(value) < minimum:
            raise InvalidArgument(
                f"the option {name!r} of {self.text!r} must be an integer from {minimum}, found {value!r}"
            )
        return int(value)

    def finish(self) -> None:
        """Refuse the options nobody took. Raises ``InvalidArgument``."""
        if self._options:
            raise InvalidArgument(
                f"{self.scheme}: has no option {', '.join(map(repr, self._options))}, in {self.text!r}"
            )


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
