"""Opens a store from a URL: reads the options, and makes the client and the settings."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import PyMongoError
from pymongo.uri_parser import validate_options

from agent_memory_log.backend_kit import StoreUrl
from agent_memory_log.errors import InvalidArgument
from agent_memory_log_mongo.go_original import DEFAULT_COLLECTION, GoOriginalRun, read_runs
from agent_memory_log_mongo.settings import DEFAULT_MAX_EVENT_BYTES, DEFAULT_PREFIX, DEFAULT_TIMEOUT_SECONDS, Settings
from agent_memory_log_mongo.store import MongoStore
from agent_memory_log_mongo.sync import SyncMongoStore

_Client = TypeVar("_Client")

_DATABASE = re.compile(r"[^/\\. \"$*<>:|?\0]{1,63}")
_COLLECTION = re.compile(r"(?!system\.|\.)[^$\0]{1,200}(?<!\.)")
_APP_NAME = "agent-memory-log"


class _MongoBackend:
    async def open_store(self, url: StoreUrl) -> MongoStore:
        database, settings, text = _read_url(url, is_store=True)
        return await MongoStore.open(
            _make_client(AsyncMongoClient[Any], url, text), database, settings, owns_client=True
        )

    def open_sync_store(self, url: StoreUrl) -> SyncMongoStore:
        database, settings, text = _read_url(url, is_store=True)
        return SyncMongoStore.open(_make_client(MongoClient[Any], url, text), database, settings, owns_client=True)

    async def go_original_runs(self, url: StoreUrl) -> AsyncGenerator[GoOriginalRun]:
        """Yield the runs, as ``ReadsGoOriginal.go_original_runs`` describes.

        The URL's option ``collection`` names the collection; its default is ``agent_memory``.
        """
        collection = url.option("collection", DEFAULT_COLLECTION)
        if not _COLLECTION.fullmatch(collection):
            raise InvalidArgument(
                f"the option 'collection' of {url.masked!r} is not a valid collection name: {collection!r}"
            )
        database, settings, text = _read_url(url, is_store=False)
        client = _make_client(AsyncMongoClient[Any], url, text)
        try:
            async with aclosing(read_runs(client, database, collection, settings)) as runs:
                async for run in runs:
                    yield run
        finally:
            await client.close()


backend = _MongoBackend()
"""The entry point for ``mongodb:`` and ``mongodb+srv:`` URLs."""


def _read_url(url: StoreUrl, *, is_store: bool) -> tuple[str, Settings, str]:
    """Return the database name, the settings, and the URL for the driver.

    The URL of a store may also have this library's own options.
    """
    url.check_hosts()
    own: dict[str, Any] = {}
    if is_store:
        own["collection_prefix"] = url.option("collection_prefix", DEFAULT_PREFIX)
        own["max_event_bytes"] = url.number("max_event_bytes", DEFAULT_MAX_EVENT_BYTES)
        own["verify"] = url.choice("verify", ("off", "on")) == "on"
    text = url.rest()
    parts = urlsplit(text)
    database = unquote(parts.path[1:])
    if not _DATABASE.fullmatch(database):
        raise InvalidArgument(f"{url.masked!r} names no database; expected a URL like {url.scheme}://host/agents")
    driver = _driver_options(url, parts.query)
    preference = driver.get("readpreference", "primary")
    if preference != "primary":
        raise InvalidArgument(
            f"{url.masked!r} has readPreference {preference!r}; only 'primary' is supported, because a secondary may "
            "not have every acknowledged append yet"
        )
    concern = driver.get("w", "majority")
    timeout_ms = float(driver.get("timeoutms", "0"))
    settings = Settings(
        write_concern=int(concern) if concern.isdecimal() else concern,
        journal=driver.get("journal") != "false",
        read_concern=driver.get("readconcernlevel", "majority"),
        timeout_seconds=timeout_ms / 1000 or DEFAULT_TIMEOUT_SECONDS,
        **own,
    )
    if "appname" not in driver:
        text += f"{'&' if parts.query else '?'}appname={_APP_NAME}"
    return database, settings, text


def _driver_options(url: StoreUrl, query: str) -> dict[str, str]:
    """Return the driver's options with lower-case names.

    Raises ``InvalidArgument`` for an unknown option, for which the driver would only warn.
    """
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name.lower() in options:
            raise InvalidArgument(f"the option {name!r} appears twice in {url.masked!r}; remove one")
        options[name.lower()] = value
        if _problem(validate_options, {name: value}):
            raise InvalidArgument(
                f"the driver does not accept the option {name!r} in {url.masked!r}; check its name and its value, and "
                "that the file exists if the value is a path"
            )
    return options


def _make_client(make: Callable[..., _Client], url: StoreUrl, text: str) -> _Client:
    """Return a client that connects at its first use."""
    clients: list[_Client] = []
    problem = _problem(lambda: clients.append(make(text, connect=False)))
    if problem:
        raise InvalidArgument(
            f"the driver does not accept {url.masked!r} ({problem}); check its hosts and options, and percent-encode "
            "the user and the password"
        )
    return clients[0]


def _problem(call: Callable[..., object], *arguments: object) -> str:
    """Return the class name of the error that a call raises, or ``""`` if it succeeds.

    The message is dropped and the error is not chained: the driver may quote the password of a URL that it cannot read.
    """
    try:
        call(*arguments)
    except (PyMongoError, ValueError, TypeError, OSError) as error:
        return type(error).__name__
    return ""
