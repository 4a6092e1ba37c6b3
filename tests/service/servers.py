"""Servers for tests: processes that a test reaches over sockets."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from tests.mongo.ports import HOST
from tests.processes import PATIENCE, ROOT


class ManyStores:
    """A process that serves many stores. See ``tests.service.many_stores``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.many_stores"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            # A terminal's Ctrl-C must reach only the tests, which then stop their servers.
            start_new_session=True,
        )
        self._numbers = itertools.count()
        self.port = int(self._answer())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.stdout.close()

    @contextmanager
    def serving(self, url: str, *, grpc: bool = False) -> Generator[str]:
        """Serve the store at ``url`` for a ``with`` block, whose value is the path and the options of its address."""
        key = f"s{next(self._numbers)}"
        answer = self._tell(f"{key} {url}{' grpc' * grpc}")
        try:
            yield f"/{key}?grpc={HOST}:{int(answer)}" if grpc else f"/{key}"
        finally:
            self._tell(key)

    def url(self, path: str, port: int | None = None) -> str:
        """Return the URL of a store on this server, or on a proxy at ``port``."""
        return f"http://{HOST}:{port or self.port}{path}"

    def _tell(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        answer = self._answer()
        assert answer == "ok" or answer.isdecimal(), answer
        return answer

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")
