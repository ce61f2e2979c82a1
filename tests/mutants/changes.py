"""The one-node changes of a syntax tree that can be planted, each with the line and the words it is known by."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitOr,
}
CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}


Path = tuple[tuple[str, int | None], ...]
"""Field names and positions that lead from the module to a node."""


@dataclass(frozen=True)
class Change:
    """``line`` is the text of the changed line, by which a change stays known when the file moves; ``number`` where it is now."""

    file: str
    number: int
    line: str
    what: str
    tree: ast.AST
    path: Path
    replacement: ast.AST

    @property
    def source(self) -> str:
        """The whole changed file."""
        changed = copy.deepcopy(self.tree)
        _replace(changed, self.path, self.replacement)
        return ast.unparse(ast.fix_missing_locations(changed))


def changes(file: str, source: str) -> list[Change]:
    """All changes of one file, in order. Annotations, docstrings and prose are left alone: they don't decide anything."""
    tree = ast.parse(source)
    lines = source.splitlines()
    found = []
    for path, what, replacement in _planted(tree):
        number = _line_of(tree, path)
        line = lines[number - 1].strip()
        found.append(Change(file, number, line, what, tree, path, replacement))
    return found


def _planted(tree: ast.AST) -> Iterator[tuple[Path, str, ast.AST]]:
    for path, node in _walk(tree, ()):
        for what, replacement in _variants(node):
            yield path, what, replacement


def _walk(node: ast.AST, path: Path) -> Iterator[tuple[Path, ast.AST]]:
    yield path, node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment", "decorator_list", "type_params"):
            continue
        if isinstance(value, ast.AST) and not _left_alone(node, name, value):
            yield from _walk(value, (*path, (name, None)))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, ast.AST) and not _left_alone(node, name, item):
                    yield from _walk(item, (*path, (name, index)))


def _left_alone(parent: ast.AST, name: str, node: ast.AST) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # docstrings, and the dots of a protocol
    if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    if isinstance(node, ast.Assign) and _assigns_types_or_names(node):
        return True
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    return (
        isinstance(parent, ast.Subscript)
        and name == "slice"
        and isinstance(parent.value, ast.Name)
        and (
            parent.value.id
            in ("dict", "list", "tuple", "set", "frozenset", "Mapping", "Sequence", "Callable", "Counter")
        )
    )


def _assigns_types_or_names(node: ast.Assign) -> bool:
    names = [target.id for target in node.targets if isinstance(target, ast.Name)]
    if names == ["__all__"] or names == ["logger"]:
        return True
    if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == "TypeVar":
        return True
    is_alias = all(name.lstrip("_")[:1].isupper() and not name.isupper() for name in names) and bool(names)
    return is_alias and isinstance(node.value, ast.Subscript | ast.BinOp | ast.Name)


def _variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in COMPARISONS[type(node.ops[0])]:
            yield f"{_word(node.ops[0])} -> {_word(other())}", _with(node, ops=[other()])
    elif isinstance(node, ast.BoolOp):
        swapped = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{_word(node.op)} -> {_word(swapped)}", _with(node, op=swapped)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not removed", node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        other_op = ARITHMETIC[type(node.op)]()
        yield f"{_word(node.op)} -> {_word(other_op)}", _with(node, op=other_op)
    elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        other_op = ARITHMETIC[type(node.op)]()
        yield f"{_word(node.op)}= -> {_word(other_op)}=", _with(node, op=other_op)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "returns None", _with(node, value=ast.Constant(None))
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            yield "condition negated", _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.comprehension):
        for index, condition in enumerate(node.ifs):
            kept = [*node.ifs[:index], *node.ifs[index + 1 :]]
            yield f"filter {ast.unparse(condition)} dropped", _with(node, ifs=kept)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        other_call = CALLS[node.func.id]
        yield f"{node.func.id} -> {other_call}", _with(node, func=ast.Name(other_call, ast.Load()))
    elif isinstance(node, ast.Continue):
        yield "continue -> break", ast.Break()
    elif isinstance(node, ast.Break):
        yield "break -> continue", ast.Continue()


def _constants(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    value = node.value
    if isinstance(value, bool):
        yield f"{value} -> {not value}", ast.Constant(not value)
    elif isinstance(value, int):
        yield f"{value} -> {value + 1}", ast.Constant(value + 1)
    elif isinstance(value, str) and not any(blank in value for blank in " \n"):
        yield f"{value!r} -> {value + 'x'!r}", ast.Constant(value + "x")


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _replace(tree: ast.AST, path: Path, node: ast.AST) -> None:
    target = tree
    for name, index in path[:-1]:
        value = getattr(target, name)
        target = value if index is None else value[index]
    name, index = path[-1]
    if index is None:
        setattr(target, name, node)
    else:
        getattr(target, name)[index] = node


def _line_of(tree: ast.AST, path: Path) -> int:
    line, target = 1, tree
    for name, index in path:
        value = getattr(target, name)
        target = value if index is None else value[index]
        line = getattr(target, "lineno", line)
    return line


def _word(node: ast.AST) -> str:
    return type(node).__name__
