"""The connection to NATS: streams, buckets, and durable consumers that survive their server and their stream."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, KeyValueConfig

from agent_memory_log.processor.transport.metrics import Metrics
from agent_memory_log.processor.transport.publishing import MessageTooLarge, PublishFailed

_LOG = logging.getLogger("agent_memory_log.processor")

WIRE_ERRORS = (nats.errors.Error, TimeoutError, OSError)
"""The errors of a server that is down, slow or full, or whose stream is missing."""

_RECONNECT_SECONDS = 0.25
_PAUSE_SECONDS = 2.0
_ANSWER_SECONDS = 5.0
_NOTE_HEADER = "Amlog-Note"
_MOST_NOTE = 200
_TOO_LARGE = 10054
"""The server's number of the error for a message above the ``max_msg_size`` of its stream."""

_ACKNOWLEDGEMENT = b"$JS.ACK."
"""The first bytes of the subject on which a message of a stream is acknowledged."""


class _AnyMessageClient(Client):
    """A client that no message of a publisher can disturb.

    ``Client`` ends its connection at a subject that is not UTF-8. It takes a message whose header has a ``Status``,
    which any publisher can write, for an answer of the server. The processor needs no headers.
    """

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        try:
            subject.decode()
        except UnicodeDecodeError:
            subject = subject.decode(errors="backslashreplace").encode() + b" "  # no loop id ends in a space
        stored = reply.startswith(_ACKNOWLEDGEMENT)
        message: Msg = super()._build_message(sid, subject, reply, data, None if stored else headers)
        return message


class NatsWire:
    """A connection that reconnects.

    Args:
        servers: The URLs of the servers.
        credentials: The file with the credentials, or None.
        ack_seconds: The time after which NATS delivers a message again if it hears nothing of it.
        bucket_seconds: The time after which a new bucket drops its values.
        metrics: Counts failures of the connection.

    Attributes:
        problem: The latest error of the connection, or ``""`` while there is a connection.
    """

    def __init__(
        self,
        servers: tuple[str, ...],
        credentials: Path | None,
        *,
        ack_seconds: float,
        bucket_seconds: float,
        metrics: Metrics,
    ) -> None:
        self._servers = servers
        self._credentials = credentials
        self._ack_seconds = ack_seconds
        self._bucket_seconds = bucket_seconds
        self._metrics = metrics
        self._client = _AnyMessageClient()
        self._has_begun = False
        self.problem = ""

    @property
    def is_connected(self) -> bool:
        """True if the server can be reached now."""
        return self._client.is_connected

    async def connect(self) -> None:
        """Connect, and wait for the server, and for credentials that it accepts, as long as it takes."""
        self._has_begun = True
        while True:
            try:
                await self._client.connect(
                    list(self._servers),
                    name="agent-memory-log",
                    error_cb=self._note_error,
                    reconnected_cb=self._note_connection,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=_RECONNECT_SECONDS,  # type: ignore[arg-type]  # it takes seconds of any number
                    connect_timeout=2,
                    user_credentials=None if self._credentials is None else str(self._credentials),
                )
            except Exception as error:  # noqa: BLE001  # such as credentials that cannot be read
                await self._note_error(error)
                await self._client.close()
                self._client = _AnyMessageClient()
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                return await self._note_connection()

    async def _note_error(self, error: Exception) -> None:
        self._metrics.failed("connection")
        # A server that is down causes an error several times a second.
        _LOG.log(logging.DEBUG if self.problem else logging.WARNING, "NATS: %r", error)
        self.problem = repr(error)

    async def _note_connection(self) -> None:
        self.problem = ""
        _LOG.info("NATS: connected")

    @property
    def _stream(self) -> JetStreamContext:
        return JetStreamContext(self._client, timeout=_ANSWER_SECONDS)

    async def publish(self, subject: str, data: bytes, *, message_id: str, note: str) -> None:
        """See ``Wire``."""
        headers = {"Nats-Msg-Id": message_id}
        if note:
            headers[_NOTE_HEADER] = " ".join(note.split())[:_MOST_NOTE]
        try:
            await self._stream.publish(subject, data, headers=headers)
        except WIRE_ERRORS as error:
            if isinstance(error, nats.errors.MaxPayloadError) or getattr(error, "err_code", 0) == _TOO_LARGE:
                raise MessageTooLarge(subject, len(data)) from error
            raise PublishFailed(f"{subject}: {error!r}") from error

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        """See ``Wire``."""
        subject = f"$KV.{bucket}.{key}"
        try:
            try:
                await self._stream.publish(subject, value, stream=f"KV_{bucket}")
            except nats.js.errors.NoStreamResponseError:
                config = KeyValueConfig(bucket=bucket, ttl=self._bucket_seconds)
                await self._stream.create_key_value(config)  # pyright: ignore[reportUnknownMemberType]  # nats-py types it partly
                await self._stream.publish(subject, value, stream=f"KV_{bucket}")
        except WIRE_ERRORS as error:
            raise PublishFailed(f"bucket {bucket}: {error!r}") from error

    async def pull(
        self, stream: str, consumer: str, subject: str, *, newest_only: bool
    ) -> JetStreamContext.PullSubscription:
        """Return the subscription to a durable consumer. It is made, or gets the settings of this processor.

        Args:
            stream: The stream.
            consumer: The name of the consumer.
            subject: The subject of the messages.
            newest_only: Whether a new consumer begins with the newest message of each subject, not with the oldest.
        """
        config = ConsumerConfig(
            name=consumer,
            durable_name=consumer,
            filter_subject=subject,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._ack_seconds,
            max_deliver=-1,
            deliver_policy=DeliverPolicy.LAST_PER_SUBJECT if newest_only else DeliverPolicy.ALL,
        )
        # pull_subscribe would keep the subject and the times of a consumer from an earlier configuration.
        await self._stream.add_consumer(stream, config=config)  # pyright: ignore[reportUnknownMemberType]  # nats-py types it partly
        return await self._stream.pull_subscribe_bind(durable=consumer, stream=stream)

    async def next_sequence(self, stream: str, subject: str, after: int) -> int | None:
        """Return the sequence of the first message of a subject after a sequence, or None if no message follows.

        Raises one of ``WIRE_ERRORS``.
        """
        try:
            return (await self._stream.get_msg(stream, seq=after + 1, subject=subject, next=True)).seq
        except nats.js.errors.NotFoundError:
            return None

    async def settled(self, stream: str, consumer: str) -> int:
        """Return the sequence up to which each message of a consumer is settled. Raises one of ``WIRE_ERRORS``."""
        reached = (await self._stream.consumer_info(stream, consumer)).ack_floor
        return 0 if reached is None else reached.stream_seq

    async def flush(self) -> None:
        """Wait until the server has everything that was sent. Raises one of ``WIRE_ERRORS``."""
        if self.is_connected:
            await self._client.flush()

    async def close(self) -> None:
        """Close the connection."""
        if self._has_begun:
            await self._client.close()
