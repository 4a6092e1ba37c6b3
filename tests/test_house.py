"""Tests of the code's structure: the size of modules and folders, and the direction of imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "agent_memory_log"

FLOORS = (
    ("errors", "wording", "tables"),
    ("events",),
    ("snapshot", "media"),
    ("pairing", "store"),
    ("capabilities",),
    ("reader", "steps"),
    ("secrets", "transfer"),
    ("backend_kit",),
    ("opening", "conformance"),
    ("front",),
    ("transcript",),
    ("recording", "interchange"),
    ("replay", "models", "recall"),
    ("memory", "pytest_plugin", "samples"),
    ("service", "processor"),
    ("cli", "integrations"),
)
"""The floors of the package, the lowest first, each with its parts.

A module may import only from its own part and from parts of lower floors.
"""

MEMORY = (
    ("records", "entities"),
    ("operations",),
    ("stream",),
    ("policy",),
    ("extraction",),
    ("relations",),
    ("conflicts",),
    ("search",),
    ("embedding",),
    ("learning",),
    ("upkeep",),
    ("governance",),
    ("configuration", "execution"),
    ("calls",),
    ("client", "sync"),
)
"""The floors of ``agent_memory_log.memory``, with the same rule."""

MOST_LINES = 400
MOST_MODULES = 12
MAY_BE_LARGE = {"conformance", "cli"}


def modules() -> Iterator[Path]:
    yield from (path for folder in (PACKAGE, ROOT / "backends") for path in folder.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path): path for path in PACKAGE.rglob("*.py")}


def imports_of(path: Path) -> set[str]:
    """Return the modules of the package that a module imports, at the top or inside a function."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            imported |= {name if name in NAMES else node.module for name in full}
        elif isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    return {name for name in imported if name in NAMES}


def arrows(floors: tuple[tuple[str, ...], ...], package: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield every import between two parts of a package: the importer, the imported module, and their floors."""
    floor = {room: number for number, rooms in enumerate(floors) for room in rooms}
    for name, path in NAMES.items():
        if not name.startswith(f"{package}."):
            continue
        room = name.removeprefix(f"{package}.").split(".")[0]
        assert room in floor, f"{room} has no floor yet: add it to the list"
        for target in imports_of(path):
            if target.startswith(f"{package}."):
                other = target.removeprefix(f"{package}.").split(".")[0]
                if other != room:
                    yield name, target, floor[room], floor[other]


@pytest.mark.parametrize(("floors", "package"), [(FLOORS, "agent_memory_log"), (MEMORY, "agent_memory_log.memory")])
def test_imports_go_to_lower_floors(floors: tuple[tuple[str, ...], ...], package: str) -> None:
    up = [f"{name} imports {target}" for name, target, own, other in arrows(floors, package) if other >= own]
    assert not up


def test_imports_have_no_cycle() -> None:
    graph = {name: imports_of(path) - {name} for name, path in NAMES.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join([*above[above.index(name) :], name])
        if name not in done:
            for target in graph[name]:
                visit(target, (*above, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_no_module_is_too_long() -> None:
    texts = {name_of(path): path.read_text() for path in modules()}
    lines = {name: len(text.splitlines()) for name, text in texts.items() if not text.startswith('"""Made from ')}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_no_folder_has_too_many_modules() -> None:
    folders = [folder for path in modules() if (folder := path.parent).name not in MAY_BE_LARGE]
    counts = {name_of(folder / "__init__.py"): len(list(folder.glob("[!_]*.py"))) for folder in folders}
    assert {name: count for name, count in counts.items() if count > MOST_MODULES and ".cli" not in name} == {}


def test_library_names_no_backend() -> None:
    backends = {folder.name for folder in (ROOT / "backends").iterdir() if folder.is_dir()}
    naming = [name for name, path in NAMES.items() for backend in backends if backend in path.read_text()]
    assert not naming
