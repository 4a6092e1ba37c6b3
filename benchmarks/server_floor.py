"""The floor of the server: a bare Starlette endpoint that inserts each event as a row.

``python -m benchmarks.server_floor FILE`` serves on a free port, which it prints. The loop, the parser of HTTP and the
durability are those of ``amlog serve``.
"""

from __future__ import annotations

import itertools
import socket
import sys
from pathlib import Path

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks import floor


def main() -> None:
    """Serve until the process is killed."""
    connection = floor.connect(Path(sys.argv[1]))
    seqs = itertools.count(1)

    async def append(request: Request) -> Response:
        body = msgspec.json.decode(await request.body())
        (event,) = body["events"]
        seq = next(seqs)
        data = msgspec.json.encode(event["data"]).decode()
        floor.append_each(connection, [(seq, event["event_id"], event["type"], event["timestamp"], data)])
        return Response(msgspec.json.encode({"version": seq}), media_type="application/json")

    app = Starlette(routes=[Route("/v1/runs/append_events", append, methods=["POST"])])
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(app, http="httptools", loop="uvloop", lifespan="off", log_config=None, access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
