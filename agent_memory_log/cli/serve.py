"""``amlog serve``: serves a store and its memory over HTTP. ``serving.py`` does it, with the extra ``server``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.memory.options import Scopes, User, principal_of
from agent_memory_log.cli.options import StoreUrl, is_of_server, store_url
from agent_memory_log.cli.outfile import check_output
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.service.limits import MIB, Limits

if TYPE_CHECKING:
    from agent_memory_log.service.access.oidc import OidcCallers  # needs an extra

PORT = 8300


def serve(
    *,
    store: StoreUrl = None,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, metavar="PORT", help="The port to listen on. 0 chooses a free port."),
    ] = PORT,
    grpc: Annotated[
        int | None,
        typer.Option(
            "--grpc",
            min=0,
            max=65535,
            metavar="PORT",
            help="Also serve gRPC on this port. 0 chooses a free port.",
            show_default=False,
        ),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="The tenant of the memory.", show_default=False)
    ] = None,
    user: User = None,
    scopes: Scopes = None,
    cert: Annotated[
        Path | None, typer.Option("--cert", metavar="FILE", help="The certificate for TLS.", show_default=False)
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Its private key.", show_default=False)
    ] = None,
    oidc_issuer: Annotated[
        str | None,
        typer.Option("--oidc-issuer", metavar="URL", help="Also accept tokens of this issuer.", show_default=False),
    ] = None,
    oidc_audience: Annotated[
        str | None,
        typer.Option("--oidc-audience", metavar="NAME", help="The audience of its tokens.", show_default=False),
    ] = None,
    oidc_claims: Annotated[
        list[str] | None,
        typer.Option(
            "--oidc-claim",
            metavar="NAME=CLAIM",
            help="The claim with the tenant, user, rights or agents. Repeatable. Default: tenant=tenant, user=sub, "
            "rights=scope, agents=amlog_agents.",
            show_default=False,
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            "--audit", metavar="FILE", help="Append a line for each change. Default: in the log.", show_default=False
        ),
    ] = None,
    model: Annotated[
        bool, typer.Option("--model", help="Derive with the model in OPENAI_MODEL. Needs OPENAI_API_KEY.")
    ] = False,
    rate: Annotated[
        float, typer.Option("--rate", min=0.1, metavar="NUMBER", help="The most requests a second of one caller.")
    ] = Limits().rate,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1, metavar="MIB", help="The largest request, in MiB.")
    ] = Limits().body_bytes // MIB,
) -> None:
    """Serve a store and its memory over HTTP until Ctrl-C or SIGTERM.

    The store is created if it does not exist.

    If the store has tokens, or with --oidc-issuer, each request needs a token, which names the memory and the runs that
    it reaches. See amlog tokens create.

    Without tokens, the server accepts only requests of this machine. Every program of this machine can read and change
    the store, and the memory of the user that --tenant and --user name. Without them, the server has no memory.

    The first line of standard output is the address, and with --grpc the second is that for gRPC. The log is on
    standard error, one line of JSON for each request. If the keys of the issuer cannot be read, a line says so.

    A signal lets the server answer the requests that it has accepted, and ends the streams. A second signal ends it at
    once. /openapi.json describes the operations; /healthz, /readyz and /metrics are for monitors.
    """
    issuer = _issuer(oidc_issuer, oidc_audience, oidc_claims or ())
    if (cert is None) != (key is None):
        raise UsageProblem("--cert and --key belong together")
    principal = None if tenant is None else principal_of(tenant, user, scopes)
    if principal is None and (user is not None or scopes):
        raise UsageProblem("--user and --scope need --tenant")
    if is_of_server(store_url(store)):
        raise UsageProblem("--store is the URL of another server: give the store that this server has")
    if audit is not None:
        check_output(audit, store_url(store))
    tls = None if cert is None or key is None else (cert, key)
    limits = Limits(body_bytes=max_body * MIB, rate=rate, burst=max(1, int(2 * rate)))
    try:
        from agent_memory_log.cli import serving  # noqa: PLC0415  # needs the extra server
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("agent_memory_log"):
            raise
        raise CommandFailed("amlog serve needs the extra server: pip install 'agent-memory-log[server]'") from error
    if grpc is not None and find_spec("grpc") is None:
        raise CommandFailed("--grpc needs the extra grpc: pip install 'agent-memory-log[grpc]'")
    settings = serving.Settings(store, host, port, grpc, principal, issuer, limits, tls, audit, with_model=model)
    serving.run(settings)


def _issuer(url: str | None, audience: str | None, claims: Sequence[str]) -> OidcCallers | None:
    """Return the callers with a token of an issuer, or None without an issuer."""
    if url is None or audience is None:
        if url or audience or claims:
            raise UsageProblem("--oidc-issuer and --oidc-audience belong together, and --oidc-claim needs both")
        return None
    try:
        from agent_memory_log.service.access.oidc import Claims, OidcCallers  # noqa: PLC0415  # needs an extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("agent_memory_log"):
            raise
        raise CommandFailed("--oidc-issuer needs the extra oidc: pip install 'agent-memory-log[oidc]'") from error
    names = {name: claim for name, _, claim in (text.partition("=") for text in claims)}
    if not names.keys() <= set(Claims.__struct_fields__) or not all(names.values()):
        fields = ", ".join(Claims.__struct_fields__)
        raise UsageProblem(f"--oidc-claim must be NAME=CLAIM, with one of the names {fields}")
    try:
        return OidcCallers(url, audience, Claims(**names))
    except InvalidArgument as error:
        raise UsageProblem(str(error)) from error
