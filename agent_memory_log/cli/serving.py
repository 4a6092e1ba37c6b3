"""Runs the server for ``amlog serve``: its callers, its address, its log and its stop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import ssl
import sys
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agent_memory_log.cli import stopping
from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.memory.derive import extractor_of
from agent_memory_log.cli.memory.options import owner_text
from agent_memory_log.cli.options import open_or_create
from agent_memory_log.cli.output import Output
from agent_memory_log.memory import Extractor, MemoryClient, Principal
from agent_memory_log.service.access.audit import Audit
from agent_memory_log.service.access.bearer import BearerCallers
from agent_memory_log.service.access.token_callers import CallersUntilToken, TokenCallers
from agent_memory_log.service.callers import Callers, OneCaller
from agent_memory_log.service.limits import Limits
from agent_memory_log.service.server import create_app, loop_factory
from agent_memory_log.service.server import serve as serve_app
from agent_memory_log.service.server.logs import LineHandler
from agent_memory_log.store import Store

if TYPE_CHECKING:
    from agent_memory_log.service.access.oidc import OidcCallers  # needs the extra oidc


class Settings(msgspec.Struct, frozen=True):
    """The settings of ``amlog serve``. Its options have the same names and describe them."""

    url: str | None
    host: str
    port: int
    grpc: int | None
    principal: Principal | None
    issuer: OidcCallers | None
    limits: Limits
    tls: tuple[Path, Path] | None
    audit: Path | None
    with_model: bool


def run(settings: Settings) -> None:
    """Serve until a signal stops the server."""
    if settings.tls is not None:
        _check_tls(*settings.tls)
    _log_lines()
    with ExitStack() as resources:
        with_model = settings.with_model
        extractor = resources.enter_context(extractor_of(with_model=with_model))
        runner = resources.enter_context(asyncio.Runner(loop_factory=loop_factory()))
        runner.run(_serve(settings, extractor))
    stopping.forget_signal()


async def _callers(store: Store, host: str, principal: Principal | None, issuer: Callers | None) -> Callers:
    """Return the callers with tokens, or those of a store that has no token yet.

    A store whose tokens have all ended still has tokens, so that the end of the last one does not open it to everybody.
    """
    tokens = TokenCallers(store)
    if issuer is None and not await tokens.has_tokens():
        if not _is_local(host):
            raise UsageProblem(
                f"--host {host}: a server without tokens accepts only requests of this machine. Create a token first "
                "with amlog tokens create, or give --oidc-issuer"
            )
        return CallersUntilToken(tokens, OneCaller(principal))
    if principal is not None:
        raise UsageProblem("--tenant is for a server without tokens: this one has tokens, which name the tenant")
    return tokens if issuer is None else BearerCallers(tokens, issuer)


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, port, family)  # create_server hides which error is one of the name
        return socket.create_server((host, port), family=family, backlog=1024)
    except socket.gaierror as error:
        raise CommandFailed(f"--host {host}: {error.strerror}") from error
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        option = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
        raise CommandFailed(f"cannot listen on {host} port {port}: {reason}; choose another {option}") from error


def _check_tls(certificate: Path, key: Path) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as error:
        reason = error.strerror or error
        raise CommandFailed(f"--cert {certificate} and --key {key} cannot be used: {reason}") from error


def _log_lines() -> None:
    handler = LineHandler(sys.stderr.buffer)
    # No line shows the thread, the process or the place in the code, which logging looks for at each line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the guide to logging names it
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "mcp"):
        logging.getLogger(name).setLevel(logging.WARNING)


async def _serve(settings: Settings, extractor: Extractor) -> None:
    loop = asyncio.get_running_loop()
    principal, tls = settings.principal, settings.tls
    async with AsyncExitStack() as resources:
        opened = await resources.enter_async_context(open_or_create(settings.url))
        callers = await _callers(opened, settings.host, principal, settings.issuer)
        problem = "" if settings.issuer is None else await settings.issuer.contact()
        listener = resources.enter_context(_listen(settings.host, settings.port))
        host, port = listener.getsockname()[:2]
        shown_host = f"[{host}]" if ":" in host else host
        addresses = [f"{'https' if tls else 'http'}://{shown_host}:{port}"]
        has_tokens = not isinstance(callers, CallersUntilToken)

        def say() -> None:
            output = Output()
            for address in addresses:
                output.line(address)
            if has_tokens:
                is_open = tls is None and not _is_local(host)
                warning = ", and without --cert tokens cross the network unencrypted" if is_open else ""
                output.line(f"each request needs a token{warning}")
            else:
                who = "no memory" if principal is None else f"the memory of {owner_text(principal)}"
                output.line(f"every program of this machine can reach the store and {who}, until it has a token")
            if problem:
                output.line(f"the keys of the issuer cannot be read, so its tokens are refused for now: {problem}")
            output.flush()

        server = create_app(
            opened,
            callers,
            memory=MemoryClient(opened, extractor=extractor),
            limits=settings.limits,
            audit=Audit(settings.audit),
            local_port=None if has_tokens else port,
        )
        if settings.grpc is not None:
            from agent_memory_log.service.grpc.server import serving_grpc  # noqa: PLC0415  # needs the extra grpc

            serving = serving_grpc(server, host, settings.grpc, tls=tls)
            addresses.append(f"grpc://{shown_host}:{await resources.enter_async_context(serving)}")
        with stopping.Graceful(lambda: loop.call_soon_threadsafe(server.stopping.set)):
            await serve_app(server, listener, limits=settings.limits, tls=tls, on_ready=say)
