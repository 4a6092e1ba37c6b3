"""The test suites of agent frameworks, which judge the integrations: a table, and a program that fetches them.

The files in ``suites/`` have a row for each suite. A suite comes from the source distribution of a package, or from a
folder in ``AMLOG_SUITES``. ``python -m tests.integrations.suites`` downloads the distributions to ``.venv/suites``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FETCHED = ROOT / ".venv" / "suites"


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row: a suite, and how it is run.

    Attributes:
        name: The name of the row.
        passes: How many tests pass on each store. Another number fails, so that the suite cannot shrink unnoticed.
        package: The package whose source distribution holds the suite, or ``""``.
        version: The version of the package.
        folder: The folder in ``AMLOG_SUITES`` that holds the suite, if there is no package.
        files: The test files, as paths in the suite.
        own: Test files in ``swaps/`` that run the suite, if it has none that pytest could run.
        swap: The module in ``swaps/`` that puts the integration in the place of the framework's own class, or ``""``.
        stores: The values of ``SWAP`` with which the suite runs: see ``swaps/swapped_store.py``.
        importable: Whether the suite's folder must be importable.
        select: An expression of ``pytest -k``: the tests that use the swapped class.
        environment: Environment variables.
        options: More options of pytest's ini file.
        deselected: The tests that are not run, each with the reason.
    """

    name: str
    passes: int
    package: str = ""
    version: str = ""
    folder: str = ""
    files: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    swap: str = ""
    stores: tuple[str, ...] = ("memory", "sqlite")
    importable: bool = False
    select: str = ""
    environment: dict[str, str] = {}
    options: dict[str, str] = {}
    deselected: dict[str, str] = {}

    @property
    def path(self) -> Path:
        """The folder of the suite, which may not be there."""
        if self.package:
            return FETCHED / f"{self.package.replace('-', '_')}-{self.version}"
        return Path(os.environ.get("AMLOG_SUITES", ""), self.folder).resolve()


def suites(*tables: Path) -> list[Suite]:
    """Return the rows of tables, by default of all."""
    paths = tables or sorted((HERE / "suites").glob("*.toml"))
    contents = [tomllib.loads(path.read_text())["suite"] for path in paths]
    return msgspec.convert([row for content in contents for row in content], list[Suite])


def fetch() -> None:
    """Download and unpack the source distributions that the folder does not have yet. No package is built."""
    FETCHED.mkdir(parents=True, exist_ok=True)
    for suite in {suite.path: suite for suite in suites() if suite.package}.values():
        if not suite.path.is_dir():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
            options = ["--no-build-isolation", "--disable-pip-version-check", "--dest", str(FETCHED)]
            subprocess.run([*pip, *options, f"{suite.package}=={suite.version}"], check=True)
            with tarfile.open(next(FETCHED.glob(f"{suite.path.name}*.tar.gz"))) as archive:
                archive.extractall(FETCHED, filter="data")


if __name__ == "__main__":
    fetch()
