"""Replies that stay bytes, decoded document by document, so that one that cannot be read hides no other."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import cast

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from agent_memory_log_mongo.documents import Document
from agent_memory_log_mongo.run import AsyncDatabase, SyncDatabase

BYTES: CodecOptions[RawBSONDocument] = CodecOptions(
    RawBSONDocument,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="surrogateescape",  # so that an id that is not UTF-8 can be refused as an id
)
"""How replies are to be decoded: not further than to the documents in them."""


class AsyncBytes:
    """A database whose replies stay bytes."""

    def __init__(self, database: AsyncDatabase) -> None:
        self._database = database

    def command(self, command: Document, /, *, codec_options: CodecOptions[Document]) -> Awaitable[Document]:
        """Run a command on the primary, whatever its reply is to be decoded to."""
        del codec_options
        return self._database.command(command, codec_options=cast("CodecOptions[Document]", BYTES))


class SyncBytes:
    """A database whose replies stay bytes."""

    def __init__(self, database: SyncDatabase) -> None:
        self._database = database

    def command(self, command: Document, /, *, codec_options: CodecOptions[Document]) -> Document:
        """Run a command on the primary, whatever its reply is to be decoded to."""
        del codec_options
        return self._database.command(command, codec_options=cast("CodecOptions[Document]", BYTES))
