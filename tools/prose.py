"""Plain English as a check: refuses the words and patterns of ``prose.toml`` in code, messages and documents.

``python -m tools.prose [path ...]`` reads comments, docstrings, messages, the names that code defines, the names of
tests, and Markdown without its code, headings and tables. It prints every hit as ``file:line: hit -> what to write``.
The exit status is 1 if there is a hit.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
DIRECTIVE = re.compile(r"^#\s*(noqa|type:|pyright:|pragma|fmt:|!|/)[^#]*|^#+\s?")
CODE = re.compile(r"``[^`]*``|`[^`]*`|\"[^\"\n]*\"|“[^”]*”|https?://\S+|\{[^{}]*\}")
EXAMPLE = re.compile(r"(?m)(?:^ {4,}\S.*\n?)+")
FENCED = re.compile(r"(?ms)^ *(```|~~~).*?^ *\1|^#.*?$|^\|.*?$|^ *<[^>]+>.*?$|^!!!.*?$")
SENTENCE_END = re.compile(r"(?<=[.:?!])\s+|\n\s*\n|\n(?=\s*(?:[-*>#]|\d+\.|[A-Z]\w+:$)\s)")
NOT_PROSE = re.compile(r"</?[a-z]+\b|\b(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|WHERE|VALUES|FROM|EXISTS)\b")
MESSAGE_WORDS = 5


class Prose(NamedTuple):
    """A text that people read, and the line where it begins."""

    line: int
    text: str
    docstring: bool = False


class Rules:
    """The rules of ``prose.toml``."""

    def __init__(self, source: dict[str, Any]) -> None:
        self.longest = int(source["longest_sentence"])
        self.semicolons = int(source["semicolons"])
        self.names = frozenset[str](source["names"]["words"])
        self.patterns = [self._compile(rule) for rule in source["pattern"]]
        self.summary = self._compile(source["summary"])
        self.opening = self._compile(source["opening"])

    @staticmethod
    def _compile(rule: dict[str, Any]) -> tuple[re.Pattern[str], str]:
        return re.compile("|".join(rule["find"]), re.IGNORECASE), str(rule["write"])

    def hits(self, prose: Prose) -> Iterator[tuple[int, str]]:
        """Yield the line and the description of every hit in a text."""
        text = CODE.sub(lambda code: "x" + "\n" * code[0].count("\n"), prose.text)
        if prose.docstring and (match := self.summary[0].match(text)):
            yield prose.line, f"{match[0]} -> {self.summary[1]}"
        for pattern, write in self.patterns:
            for match in pattern.finditer(text):
                yield prose.line + text.count("\n", 0, match.start()), f"{match[0]} -> {write}"
        start = 0
        for sentence in SENTENCE_END.split(text):
            start = text.index(sentence, start)
            line = prose.line + text.count("\n", 0, start)
            if match := self.opening[0].match(sentence.lstrip("-*># \n")):
                yield line, f"{match[0]} -> {self.opening[1]}"
            if (words := len(sentence.split())) > self.longest:
                yield line, f"a sentence of {words} words -> at most {self.longest}"
            if (count := sentence.count(";")) > self.semicolons:
                yield line, f"{count} semicolons in a sentence -> at most {self.semicolons}"


def in_markdown(source: str) -> Iterator[Prose]:
    """Yield the prose of a Markdown document."""
    yield Prose(1, FENCED.sub(lambda block: "\n" * block[0].count("\n"), source))


def in_python(source: str, *, is_test: bool) -> Iterator[Prose]:
    """Yield comments, docstrings, messages and the names of tests."""
    yield from comments(source)
    tree = ast.parse(source)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.add(id(node.value))
            yield Prose(node.lineno, EXAMPLE.sub(blank, node.value.value), docstring=True)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Prose(node.lineno, node.name.removeprefix("test_").replace("_", " "))
    if not is_test:
        yield from messages(tree, docstrings)


def blank(block: re.Match[str]) -> str:
    """Return as many empty lines as the block has."""
    return "\n" * block[0].count("\n")


def comments(source: str) -> Iterator[Prose]:
    """Yield the comments. Comments on consecutive lines are one text."""
    start, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if lines and (token.start[0] != start + len(lines) or token.line.lstrip()[0] != "#"):
            yield Prose(start, "\n".join(lines))
            lines = []
        start = start if lines else token.start[0]
        lines.append(DIRECTIVE.sub("", token.string))
    if lines:
        yield Prose(start, "\n".join(lines))


def messages(tree: ast.Module, docstrings: set[int]) -> Iterator[Prose]:
    """Yield the string literals that look like sentences. A value in an f-string counts as one word."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside | docstrings:
            text = node.value
        else:
            continue
        if len(re.findall(r"(?<!\S)[a-z']+(?!\S)", text)) >= MESSAGE_WORDS and not NOT_PROSE.search(text):
            yield Prose(node.lineno, text)


def defined_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield every name that code defines: variables, arguments, functions and classes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case _:
                pass


def check(path: Path, rules: Rules) -> Iterator[tuple[int, str]]:
    """Yield the line and the description of every hit in a file."""
    source = path.read_text()
    if path.suffix == ".md":
        texts = in_markdown(source)
    else:
        texts = in_python(source, is_test="tests" in path.relative_to(ROOT).parts)
        for line, name in defined_names(source):
            if name.strip("_") in rules.names:
                yield line, f"the name {name} -> name it after its value"
    for prose in texts:
        yield from rules.hits(prose)


def main(arguments: list[str]) -> int:
    """Print every hit in the files below the paths, by default in all files of git. Return the exit status."""
    rules = Rules(tomllib.loads((ROOT / "tools" / "prose.toml").read_text()))
    listed = subprocess.run(["git", "ls-files", *arguments], capture_output=True, text=True, check=True, cwd=ROOT)  # noqa: S607
    count = 0
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".py", ".md"} and path.is_file():
            for line, hit in sorted(set(check(path, rules))):
                sys.stdout.write(f"{name}:{line}: {' '.join(hit.split())}\n")
                count += 1
    sys.stdout.write(f"{count} hits\n")
    return min(count, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
