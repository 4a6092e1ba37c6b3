"""Serves MCP over standard input and output, to the program that started this process."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from agent_memory_log.service.executing import Caller
from agent_memory_log.service.mcp.server import make_server


async def serve(caller: Caller) -> None:
    """Answer requests from standard input until it is closed. Every request has the same caller."""
    server = make_server(lambda _: caller)
    async with stdio_server() as (requests, answers):
        await server.run(requests, answers, server.create_initialization_options())
