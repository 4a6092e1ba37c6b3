"""The form of gRPC calls: the names of the methods, the one message, and errors as status codes with their problem.

The message is ``Json { bytes json = 1; }``, for every request and result. Its bytes are written and read here, because
a message of one field needs no compiler and no package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import grpc

from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.problems import problem_of, status_of
from agent_memory_log.service.table import NAMES, OPERATIONS

PACKAGE = "agent_memory_log.v1"
SERVICE = "AgentMemoryLog"

AUTHORIZATION = "authorization"
PRINCIPAL = "amlog-principal"
"""The metadata of a request, with the values of the HTTP headers of the same names."""

PROBLEM = "amlog-problem"
"""The trailing metadata of an error: its problem document, as ASCII JSON."""

REQUEST_ID = "x-request-id"

Metadata = tuple[tuple[str, str | bytes], ...]

_MOST_BYTES = 5_000
_MOST_TEXT = 400
"""The largest problem document, and the most characters of its texts if it were larger."""

_MOST_MESSAGE = 200
"""The most characters of an error's text beside its code, where a character needs up to 12 bytes.

A client of gRPC refuses errors with more than 8 KiB of metadata.
"""

_CODES: Mapping[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    408: grpc.StatusCode.UNAVAILABLE,
    409: grpc.StatusCode.ABORTED,
    410: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    416: grpc.StatusCode.OUT_OF_RANGE,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
}
"""The code of gRPC for the HTTP status of an error. See ``problems.status_of``."""


def rpc_name(name: str) -> str:
    """Return the name of an operation's method: ``RunsAppendEvents`` for ``runs/append_events``."""
    return "".join(word.capitalize() for word in name.replace("/", "_").split("_"))


def path_of(operation: type[Operation[Any]]) -> str:
    """Return the path of an operation's method."""
    return f"/{PACKAGE}.{SERVICE}/{rpc_name(NAMES[operation])}"


PATHS: Mapping[str, type[Operation[Any]]] = {path_of(operation): operation for operation in OPERATIONS.values()}
"""The operations by the paths of their methods."""

_TAG = 0x0A
"""Field 1, with a length."""


def pack(value: bytes) -> bytes:
    """Return the message with a JSON text."""
    length = len(value)
    head = bytearray((_TAG,))
    while length > 0x7F:  # noqa: PLR2004  # the bits of a byte of a varint
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + value


def unpack(message: bytes) -> bytes:
    """Return the JSON text of a message. Raises ``InvalidArgument`` for another message."""
    length = 0
    for index, byte in enumerate(message[1:11]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:  # noqa: PLR2004  # the last byte of a varint
            if message[0] == _TAG and length == len(message) - index - 2:
                return message[index + 2 :]
            break
    raise InvalidArgument(f"the message must be {PACKAGE}.Json with its field json")


def failure_of(error: AgentMemoryLogError) -> tuple[grpc.StatusCode, str, tuple[str, str]]:
    """Return the code, the text and the trailing metadata of an error. Long texts are cut."""
    problem = problem_of(error)
    document = json.dumps(problem)
    if len(document) > _MOST_BYTES:
        document = json.dumps({name: _cut(value) for name, value in problem.items()})
    code = _CODES.get(status_of(error), grpc.StatusCode.INTERNAL)
    return code, str(error)[:_MOST_MESSAGE], (PROBLEM, document)


def _cut(value: object) -> object:
    return f"{value[:_MOST_TEXT]} …" if isinstance(value, str) and len(value) > _MOST_TEXT else value


def metadata_of(*headers: Mapping[str, str]) -> Metadata:
    """Return headers as the metadata of a call."""
    return tuple((name.lower(), value) for some in headers for name, value in some.items())
