"""The settings of a memory client that opens its own store: from its argument ``config``, else from the environment.

Reading them touches no file. ``ClientSettings.store_url`` prepares the file of an embedded store.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Meta

from agent_memory_log.errors import InvalidArgument, StoreUnavailable
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.records.arguments import check_arguments
from agent_memory_log.memory.records.principals import HOME_SCOPE, Principal

PREFIX = "AMLOG_"
"""The prefix of environment variables: ``AMLOG_DATABASE_PATH`` sets ``database_path``."""

_ONE_WAY = "it has no meaning here, because search compares every record and message: pass top_k to search"

_REFUSED: Mapping[str, str] = {
    "default_search_limit": "pass top_k to search",
    "semantic_limit": _ONE_WAY,
    "lexical_limit": _ONE_WAY,
    "entity_limit": _ONE_WAY,
    "rrf_k": "hits are ranked by the sum of their scores, not by ranks; matched_by has each part of the sum",
    "enable_sqlite_vec": "vectors need no extension of SQLite: pass an embedder to the client",
    "token": "a token is a secret: set the environment variable AMLOG_TOKEN",
}
"""Keys that users of other memory clients may expect, with what to do instead."""

_TRUTHS: Mapping[str, object] = {"true": True, "1": True, "false": False, "0": False}


class ClientSettings(msgspec.Struct, frozen=True):
    """The settings of a client that opens its own store. ``read_settings`` checks them."""

    mode: Annotated[Literal["embedded", "remote"], Meta(description="A file of this machine, or a server.")] = (
        "embedded"
    )
    database_path: Annotated[
        str | None,
        Meta(description="The SQLite file of the mode embedded. Default: memory.db in the user's data folder."),
    ] = None
    base_url: Annotated[str | None, Meta(description="The URL of the server, for the mode remote.")] = None
    tenant: Annotated[str | None, Meta(description="The tenant of the client's principal.")] = None
    user: Annotated[str | None, Meta(description="The user of the client's principal.")] = None
    prefer_grpc: Annotated[
        bool, Meta(description="Use gRPC if ``grpc_target`` is set and the extra grpc is installed, else HTTP.")
    ] = False
    grpc_target: Annotated[str | None, Meta(description="The address of the server for gRPC, as HOST:PORT.")] = None

    @property
    def principal(self) -> Principal | None:
        """The client's principal. Without tenant and user, a server uses the principal of the token, given as None."""
        if self.mode == "remote" and self.tenant is None and self.user is None:
            return None
        return Principal(self.tenant or "default", {HOME_SCOPE: self.user or "default"})

    def store_url(self) -> str:
        """Return the URL of the store.

        A missing file is created first, so that only its owner can read it. So is the folder of the default file.

        Raises:
            StoreUnavailable: The file or the folder cannot be created, or the folder belongs to another user.
        """
        if self.base_url is not None and self.mode == "remote":
            if not self.prefer_grpc or self.grpc_target is None:
                return self.base_url
            separator = "&" if "?" in self.base_url else "?"
            return f"{self.base_url}{separator}grpc={quote(self.grpc_target, safe='[]:')}"
        path = _default_path() if self.database_path is None else Path(self.database_path)
        try:
            if self.database_path is None:
                _make_private(path.parent)
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise StoreUnavailable(f"database_path {path}: {error.strerror}; name another file") from error
        return f"sqlite:///{quote(path.as_posix())}"


def read_settings(config: Mapping[str, object] | None) -> ClientSettings:
    """Return the settings from ``config`` and, for the other keys, from environment variables.

    An empty variable counts as missing, and so does None. If a mode is given, the keys of the other mode are not used.

    Args:
        config: The keys of ``ClientSettings`` with their values. A path may be a ``Path``, and a mode has any case.

    Raises:
        InvalidArgument: A key is unknown, or a value is invalid or missing. The message names the key or variable.
    """
    keys = ClientSettings.__struct_fields__
    config = {} if config is None else config
    if not isinstance(config, Mapping):
        raise InvalidArgument(f"config must be a map, got {describe(config)}")
    for key in config:
        if key in _REFUSED:
            raise InvalidArgument(f"config has {key}: {_REFUSED[key]}")
        if key not in keys:
            raise InvalidArgument(f"config has no key {key!r}, only {', '.join(keys)}")
    variables = {key: os.environ.get(f"{PREFIX}{key.upper()}", "").strip() for key in keys}
    values = {key: _value(key, text, f"{PREFIX}{key.upper()}") for key, text in variables.items() if text}
    values.update({key: _value(key, value, key) for key, value in config.items() if value is not None})
    if "base_url" in values and "mode" not in values:
        raise InvalidArgument("base_url needs a mode: set mode or AMLOG_MODE to remote, or to embedded to ignore it")
    settings = ClientSettings(**values)
    if settings.mode == "remote" and settings.base_url is None:
        raise InvalidArgument("base_url is missing: the mode remote needs it, or the variable AMLOG_BASE_URL")
    try:
        _ = settings.principal
    except InvalidArgument as error:
        raise InvalidArgument(f"tenant or user: {error}") from error
    return settings


def _value(key: str, value: object, label: str) -> Any:  # noqa: ANN401  # a value of any setting
    """Return the checked value of a key. Errors begin with ``label``."""
    if key == "mode" and isinstance(value, str):
        value = value.lower()
    elif key == "prefer_grpc" and label != key and isinstance(value, str):
        value = _TRUTHS.get(value.lower(), value)
    elif key == "database_path" and isinstance(value, Path):
        value = str(value)
    try:
        check_arguments(ClientSettings(**{key: cast("Any", value)}))
    except InvalidArgument as error:
        raise InvalidArgument(f"{label}{str(error).removeprefix(key)}") from error
    if isinstance(value, str) and not value.strip():
        raise InvalidArgument(f"{label} must not be empty")
    if key == "database_path" and isinstance(value, str):
        value = _absolute(value, label)
    elif key == "base_url" and isinstance(value, str) and not _is_base_url(value):
        # The message does not repeat the URL, which may contain a password.
        raise InvalidArgument(
            f"{label} must be the URL of a server, such as https://memory.example.com, without user and password; the "
            "token belongs in the environment variable AMLOG_TOKEN"
        )
    return value


def _absolute(text: str, label: str) -> str:
    """Return an absolute path, because the working directory may change before the first call."""
    if "\0" in text or text == ":memory:":
        raise InvalidArgument(
            f"{label} must name a file, got {text!r}; for a store in memory, pass a store to the client"
        )
    try:
        return str(Path(text).expanduser().absolute())
    except (RuntimeError, OSError) as error:  # the home or working directory is unknown
        raise InvalidArgument(f"{label} must be an absolute path: {error}") from error


def _is_base_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and "@" not in text
    except ValueError:
        return False


def _default_path() -> Path:
    """Return the file in the data folder of the user, which the platform defines."""
    try:
        if sys.platform == "win32":
            folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            folder = Path.home() / "Library" / "Application Support"
        else:
            folder = Path(os.environ.get("XDG_DATA_HOME", ""))  # the XDG specification ignores a relative path
            folder = folder if folder.is_absolute() else Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise InvalidArgument("database_path is missing, and the home folder of the user is unknown") from error
    return folder / "agent-memory-log" / "memory.db"


def _make_private(folder: Path) -> None:
    """Create a folder that only its owner can open. Raises ``StoreUnavailable`` if it belongs to another user."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        raise StoreUnavailable(f"{folder} belongs to another user: set database_path to a file of your own")
