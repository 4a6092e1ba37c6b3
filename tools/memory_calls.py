"""Generates ``MemoryCalls`` from the table: ``python -m tools.memory_calls``. ``--check`` only compares it.

The program parses the table and does not import it, because the generated module may be out of date. It copies the
types and defaults of a struct's fields as source text, so that an editor shows them as they are in the table.
"""

from __future__ import annotations

import ast
import sys
import textwrap

from tools.generated import ROOT, formatted, write_or_check

_MEMORY = ROOT / "agent_memory_log/memory"
METHODS = _MEMORY / "operations/__init__.py"
TARGET = _MEMORY / "calls.py"

_HEAD = '''"""Made from ``operations`` by ``python -m tools.memory_calls``: the calls on memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

{imports}
from agent_memory_log.memory.records.arguments import Operation, Result, several


class MemoryCalls(ABC):
    """The methods that ``Memory`` and ``MemoryClient`` share, one for each operation.

    Without a ``scope``, ``remember`` and the calls with a key use the principal's home scope. Without ``scopes``, the
    other calls use every scope that execution allows.

    Every call raises the errors of the store, and ``InvalidArgument`` with the name of an invalid argument. A call that
    reads raises ``MemoryStopped`` with the reason ``scope_denied:<scope>`` if the scope is denied or not the
    principal's.
    """

    @abstractmethod
    async def execute(self, operation: Operation[Result]) -> Result:
        """Carry out an operation, as the method with its name does."""
'''


def generated_module() -> str:
    """Return the text of the generated module."""
    modules = [ast.parse(path.read_text()).body for path in sorted(METHODS.parent.glob("*.py")) if path != METHODS]
    statements = [statement for body in modules for statement in body]
    classes = {node.name: node for node in statements if isinstance(node, ast.ClassDef)}
    assigned = _assigned(statements)
    table = ast.parse(METHODS.read_text())
    methods = next(
        node.value for node in table.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "METHODS"
    )
    assert isinstance(methods, ast.Dict)
    body = "".join(
        _method(ast.literal_eval(name), classes[ast.unparse(cls)], assigned)
        for name, cls in zip(methods.keys, methods.values, strict=True)
        if name is not None
    )
    imports = "\n".join(
        ast.unparse(node)
        for node in statements
        if isinstance(node, ast.ImportFrom)
        and node.module not in ("__future__", "collections.abc", "msgspec")
        and not str(node.module).startswith("agent_memory_log.memory.operations")
    )
    constants = [name for name in ("KINDS", "SWEEP_LIMIT") if name in body]
    imports += "\nfrom agent_memory_log.memory import operations as table"
    imports += f"\nfrom agent_memory_log.memory.operations import {', '.join(constants)}"
    return formatted(_HEAD.format(imports=imports) + body, TARGET)


def _assigned(body: list[ast.stmt]) -> dict[str, ast.expr]:
    return {
        node.targets[0].id: node.value
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _method(name: str, node: ast.ClassDef, aliases: dict[str, ast.expr]) -> str:
    base = node.bases[0]
    assert isinstance(base, ast.Subscript)
    parameters = ["self"]
    arguments: list[str] = []
    notes: list[str] = []
    marks = _assigned(node.body)
    positional = ast.literal_eval(marks["positional"]) if "positional" in marks else 0
    fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
    for position, field in enumerate(fields):
        assert isinstance(field.target, ast.Name)
        argument = field.target.id
        hint, description = _hint(field.annotation, aliases)
        if position == positional:
            parameters.append("*")
        default = "" if field.value is None else f" = {ast.unparse(field.value)}"
        parameters.append(f"{argument}: {hint.replace('tuple[', 'Iterable[', 1).replace(', ...]', ']', 1)}{default}")
        if description:
            notes.append(textwrap.fill(f"{argument}: {description}", 104, subsequent_indent="    "))
        value = argument
        if hint.startswith("tuple["):
            value = f'several({argument}, "{argument}")'
            value = f"None if {argument} is None else {value}" if hint.endswith("| None") else value
        arguments.append(value if position < positional else f"{argument}={value}")
    parts = (ast.get_docstring(node) or "").split("\n\n")
    paragraphs = [textwrap.fill(part, 108) for part in parts if not part.startswith("Raises:")]
    if notes:
        paragraphs.append("Args:\n" + textwrap.indent("\n".join(notes), "    "))
    paragraphs.extend(part for part in parts if part.startswith("Raises:"))
    doc = "\n\n".join(paragraphs)
    doc = textwrap.indent(f'"""{doc}' + ('\n"""' if "\n" in doc else '"""'), " " * 8)
    call = f"table.{node.name}({', '.join(arguments)})"
    result = ast.unparse(base.slice)
    run = f"await self.execute({call})" if result == "None" else f"return await self.execute({call})"
    return f"\n    async def {name}({', '.join(parameters)}) -> {result}:\n{doc}\n        {run}\n"


def _hint(annotation: ast.expr, aliases: dict[str, ast.expr]) -> tuple[str, str]:
    """Return the type of a field as source text, and its description."""
    if isinstance(annotation, ast.Name) and annotation.id in aliases:
        annotation = aliases[annotation.id]
    if not (isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated"):
        return ast.unparse(annotation), ""
    assert isinstance(annotation.slice, ast.Tuple)
    hint, meta = annotation.slice.elts
    descriptions = [each.value for each in getattr(meta, "keywords", []) if each.arg == "description"]
    return ast.unparse(hint), str(ast.literal_eval(descriptions[0])) if descriptions else ""


if __name__ == "__main__":
    sys.exit(write_or_check({TARGET: generated_module()}))
