"""Runs the test suites of agent frameworks with our classes in the place of theirs, each in a pytest of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrations.suites import HERE, ROOT, Suite, suites


@pytest.mark.skipif("AMLOG_INTEGRATIONS" not in os.environ, reason="needs downloads: make integrations")
@pytest.mark.parametrize(
    ("suite", "store"),
    [pytest.param(suite, store, id=f"{suite.name}, {store}") for suite in suites() for store in suite.stores],
)
def test_suite(suite: Suite, store: str, tmp_path: Path) -> None:
    if not suite.path.is_dir():
        pytest.skip(f"{suite.path} is not there")
    for file in suite.files:
        folder = Path(file).parts[0]
        if folder == file:
            shutil.copy(suite.path / file, tmp_path)
        else:
            shutil.copytree(suite.path / folder, tmp_path / folder, dirs_exist_ok=True)
    for file in suite.own:
        shutil.copy(HERE / "swaps" / file, tmp_path)
    ini = ["[pytest]", "asyncio_mode = auto", "asyncio_default_fixture_loop_scope = function"]
    ini += [f"{name} = {value}" for name, value in suite.options.items()]
    (tmp_path / "pytest.ini").write_text("\n".join(ini))
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pytest.ini", "-p", "no:cacheprovider", "--tb=short"]
    command += ["-W", "ignore", "--no-header"]
    command += ["-p", suite.swap] if suite.swap else []
    command += ["-k", suite.select] if suite.select else []
    command += [argument for test in suite.deselected for argument in ("--deselect", test)]
    path = [str(HERE / "swaps"), *([str(suite.path)] if suite.importable else [])]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "AMLOG_")) and name != "PYTHONPATH"
    }
    environment |= {"PYTHONPATH": os.pathsep.join(path), "SWAP": store, "TMPDIR": str(tmp_path), **suite.environment}
    files = [*suite.files, *(Path(file).name for file in suite.own)]
    ran = subprocess.run([*command, *files], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-5_000:]
    summary = ran.stdout.splitlines()[-1]
    assert re.search(rf"\b{suite.passes} passed", summary), summary


def test_the_page_lists_every_deselected_test() -> None:
    pages = {path.stem: path.read_text() for path in (ROOT / "docs" / "integrations").glob("*.md")}
    for table in (HERE / "suites").glob("*.toml"):
        for suite in suites(table):
            for test, reason in suite.deselected.items():
                row = f"| `{suite.package or suite.folder}`: `{test.removeprefix('tests/')}` | {reason} |"
                assert row in pages[table.stem], row


def test_every_deselected_test_has_a_reason() -> None:
    for suite in suites():
        for test, reason in suite.deselected.items():
            assert reason.strip(), f"{suite.name}: {test}"
            assert test.split("::")[0] in suite.files, f"{suite.name}: {test}"
