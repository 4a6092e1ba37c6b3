"""``amlog backends``: lists the installed backends."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import msgspec

from agent_memory_log.cli.options import AsJson
from agent_memory_log.cli.output import BAD, DIM, GOOD, NAME, Column, Output
from agent_memory_log.opening import install_hint, installed_backends

_COLUMNS = (Column("scheme", NAME), Column("state"), Column("package", DIM), Column("--store, or fix", unbroken=True))
_EXAMPLES = {
    "memory": "memory:",
    "sqlite": "sqlite:///runs.db",
    "mongodb": "mongodb://host/agents",
    "mongodb+srv": "mongodb+srv://host/agents",
    "https": "https://host",
    "http": "http://localhost:8300",
}


class _Backend(msgspec.Struct):
    """One row of the list. The field names are also the JSON keys."""

    scheme: str
    usable: bool
    package: str
    version: str
    target: str
    error: str
    hint: str


def backends(*, as_json: AsJson = False) -> None:
    """List the installed backends.

    Shows whether each backend can be used, and which package to install if it cannot.

    With --json: a list of objects with scheme, usable, package, version, target, error and hint.
    """
    installed = [_inspect(entry) for _, entry in sorted(installed_backends().items())]
    output = Output()
    if as_json:
        output.json(installed)
        return
    output.table(
        _COLUMNS,
        [
            (
                f"{backend.scheme}:",
                (f"{output.tick} ready", GOOD) if backend.usable else (f"{output.cross} {backend.error}", BAD),
                f"{backend.package} {backend.version}",
                backend.hint.removeprefix("--store "),
            )
            for backend in installed
        ],
    )


def _inspect(entry: EntryPoint) -> _Backend:
    package = entry.dist.name if entry.dist is not None else "?"
    version = entry.dist.version if entry.dist is not None else "?"
    problem, hint = "", f"--store {_EXAMPLES.get(entry.name, f'{entry.name}:…')}"
    try:
        entry.load()
    except Exception as error:  # noqa: BLE001  # a third party's package may raise anything, and the list must continue
        problem, hint = f"{type(error).__name__}: {error}", install_hint(entry.name, "install its dependencies")
    return _Backend(entry.name, not problem, package, version, entry.value, problem, hint)
