"""A client that the compiler of Protocol Buffers generates, as for other languages, has every operation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from agent_memory_log.service.grpc.messages import rpc_name
from agent_memory_log.service.limits import MIB
from agent_memory_log.service.table import OPERATIONS
from tests.processes import PATIENCE
from tests.service.serving import message, serving

DOCS = Path(__file__).parents[2] / "docs"
LARGE = [("grpc.max_receive_message_length", 64 * MIB)]
"""The option that docs/grpc.md names. By default, a client refuses messages above 4 MiB."""


class Generated:
    """Calls a server with the generated modules."""

    def __init__(self, target: str) -> None:
        self.channel = grpc.insecure_channel(target, LARGE)
        self.stub: Any = import_module("agent_memory_log_pb2_grpc").AgentMemoryLogStub(self.channel)
        self._message: Any = import_module("agent_memory_log_pb2").Json

    def request(self, arguments: object) -> Any:
        return self._message(json=msgspec.json.encode(arguments))

    def call(self, name: str, arguments: object) -> Any:
        answer = getattr(self.stub, rpc_name(name))(self.request(arguments), timeout=PATIENCE)
        return msgspec.json.decode(answer.json)

    def items(self, name: str, arguments: object) -> Iterator[Any]:
        for item in getattr(self.stub, rpc_name(name))(self.request(arguments)):
            yield msgspec.json.decode(item.json)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Generated]:
    """Compile the published file, and open a client of a server."""
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{DOCS}", *outputs, str(DOCS / "agent_memory_log.proto")]
    subprocess.run(command, check=True, timeout=PATIENCE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with serving(grpc=True) as server:
        generated = Generated(server.grpc_target)
        with generated.channel:
            yield generated
    for name in ("agent_memory_log_pb2", "agent_memory_log_pb2_grpc"):
        sys.modules.pop(name)


def append(client: Generated, event_id: str, text: str = "hello", **arguments: object) -> Any:
    events = [message(event_id, text).to_map()]
    return client.call("runs/append_events", {"agent": "a", "run": "r", "events": events, **arguments})


def test_it_has_results_errors_streams_and_large_answers(client: Generated) -> None:
    assert append(client, "e1", "\U0001f600" * (MIB + 1))["version"] == 1
    (event,) = client.call("runs/load_run", {"agent": "a", "run": "r"})["log"]
    assert event["data"]["message"] == "\U0001f600" * (MIB + 1)
    outcome = client.call("memory/remember", {"key": "language", "value": "english"})
    assert outcome["record"]["data"]["data"]["value"] == "english"
    with pytest.raises(grpc.RpcError) as caught:
        append(client, "e2", expected_version=7)
    status: Any = caught.value
    assert status.code() is grpc.StatusCode.ABORTED
    problem = msgspec.json.decode(dict(status.trailing_metadata())["amlog-problem"])
    assert (problem["code"], problem["actual"]) == ("version_conflict", 1)
    heads = client.items("runs/follow", {"agent": "a", "run": "r"})
    assert next(heads)["version"] == 1
    append(client, "e2")
    assert next(heads)["version"] == 2


def test_it_has_every_operation(client: Generated) -> None:
    """A wrong argument is refused by the operation that the method names, and not by the transport."""
    for name, operation in OPERATIONS.items():
        with pytest.raises(grpc.RpcError) as caught:
            list(client.items(name, {"no": 1})) if operation.stream else client.call(name, {"no": 1})
        status: Any = caught.value
        assert (status.code(), "has no field 'no'" in status.details()) == (grpc.StatusCode.INVALID_ARGUMENT, True)
