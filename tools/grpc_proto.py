"""Writes ``docs/agent_memory_log.proto``, from which other languages make a client, out of the table of operations.

``python -m tools.grpc_proto`` writes the file; ``--check`` only compares.
"""

from __future__ import annotations

import inspect
import sys
import textwrap

from agent_memory_log.service.grpc.messages import PACKAGE, SERVICE, rpc_name
from agent_memory_log.service.table import OPERATIONS
from tools.generated import ROOT, write_or_check

FILE = ROOT / "docs" / "agent_memory_log.proto"

_HEAD = f"""\
// Written by tools/grpc_proto.py: run `make generate`.
//
// The operations of a server of agent-memory-log. See docs/grpc.md.

syntax = "proto3";

package {PACKAGE};

// A JSON value, in UTF-8.
message Json {{
  bytes json = 1;
}}

// The server describes the arguments and the result of each operation at /openapi.json, below /v1/ and its name.
service {SERVICE} {{
"""


def _method(name: str) -> str:
    operation = OPERATIONS[name]
    text = (inspect.getdoc(operation) or "").replace("``", "")
    lines = [line for part in (f"{name}. {text}").splitlines() for line in textwrap.wrap(part, 112) or [""]]
    comment = "".join(f"  // {line}".rstrip() + "\n" for line in lines)
    return f"{comment}  rpc {rpc_name(name)}(Json) returns ({'stream ' * operation.stream}Json);\n"


if __name__ == "__main__":
    sys.exit(write_or_check({FILE: _HEAD + "\n".join(map(_method, OPERATIONS)) + "}\n"}))
