"""Small changes of a program, of the kinds that people make by mistake: a place, and what stands
there then."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
}
SAYS = {
    "require",
    "getLogger",
    "warning",
    "info",
    "error",
    "debug",
    "BadOption",
    "ValueError",
    "Field",
    "Option",
}
"""Calls whose text arguments are for people."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one file: the characters `start` to `end` are replaced by `text`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    before: str
    text: str

    def apply(self, source: str) -> str:
        """Give the changed source."""
        return source[: self.start] + self.text + source[self.end :]

    def compiles(self, source: str) -> bool:
        """Tell whether the changed source is a program at all."""
        try:
            compile(self.apply(source), self.path, "exec")
        except (SyntaxError, ValueError):
            return False
        return True


def changes_of(root: Path, path: Path) -> list[Change]:
    """All changes of a file, in the order of its lines."""
    source = path.read_text(encoding="utf-8")
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:
        text = source[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(text.encode()[:column].decode())

    found = []
    for kind, node, text in _each(ast.parse(source)):
        start = place(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = place(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        change = Change(
            path=path.relative_to(root).as_posix(),
            line=node.lineno,  # type: ignore[attr-defined]
            kind=kind,
            start=start,
            end=end,
            before=source[start:end],
            text=text,
        )
        found.append(change)
    return found


def _each(tree: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Walk what runs: no annotations, no docstrings, nothing that only a type checker reads, no
    text for people."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        children = value if isinstance(value, list) else [value]
        for child in (node for node in children if isinstance(node, ast.AST)):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
                continue
            if isinstance(child, ast.Call) and _called(child) in SAYS:
                yield from _each(child.args[0]) if child.args else ()
                continue
            yield from _here(child)
            yield from _each(child)


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _here(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """Give the changes of one node itself."""
    if isinstance(node, ast.Constant):
        yield from _constant(node)
    elif isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            if other := COMPARISONS.get(type(operator)):
                ops = [*node.ops[:i], other(), *node.ops[i + 1 :]]
                yield "comparison", node, _text(ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.BinOp):
        if (swapped := ARITHMETIC.get(type(node.op))) and not _is_text(node.left):
            yield "arithmetic", node, _text(ast.BinOp(node.left, swapped(), node.right))
    elif isinstance(node, ast.Attribute | ast.Name):
        yield from _least_most(node)
    elif isinstance(node, ast.Expr | ast.AugAssign):
        yield "dropped statement", node, "pass"
    else:
        yield from _branch(node)


def _branch(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and or", node, _text(ast.BoolOp(other, node.values))
    elif isinstance(node, ast.IfExp):
        yield "swapped arms", node, _text(ast.IfExp(node.test, node.orelse, node.body))
    elif isinstance(node, ast.If | ast.While):
        yield "negated", node.test, f"(not ({ast.unparse(node.test)}))"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield "sign", node, f"({ast.unparse(node.operand)})"


def _constant(node: ast.Constant) -> Iterator[tuple[str, ast.AST, str]]:
    value = node.value
    if isinstance(value, bool):
        yield "constant", node, repr(not value)
    elif isinstance(value, int):
        yield "constant", node, repr(value + 1)
    elif isinstance(value, float) and math.isfinite(value):
        yield "constant", node, repr(value * 1.1 if value else 0.1)


def _least_most(node: ast.Attribute | ast.Name) -> Iterator[tuple[str, ast.AST, str]]:
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield "least most", node, _text(ast.Attribute(node.value, NAMES[node.attr], node.ctx))
    elif isinstance(node, ast.Name) and node.id in NAMES and isinstance(node.ctx, ast.Load):
        yield "least most", node, NAMES[node.id]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"
