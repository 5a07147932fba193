"""Functions whose loops and branches are all Python's, made ready for tracing without AutoGraph.

AutoGraph takes every function that is traced through a dozen passes over its source, so that loops and branches on
tensors become TensorFlow's. Where none of them can be on a tensor, all that remains of its work are the calls, by which
it gets at the functions that this one calls. Calls alone are rewritten here. A function is left to AutoGraph unless its
source is found, compiles to the very code that it has, and shows that what its loops and branches look at is no tensor.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dataclasses
import functools
import inspect
import linecache
import re
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ..tf_internals import symbols as tfp

_CALL, _ARTIFACT = "_tfbridge_call", "_tfbridge_artifact"
_FACTORY = "_tfbridge_factory"
_MAX_EXTRA_LINES = 3  # of a function's text, behind the last one that code was made of
_FLAGS = functools.reduce(
    lambda flags, name: flags | getattr(__future__, name).compiler_flag, __future__.all_feature_names, 0
)

# What AutoGraph does not take for a tensor, a data set or anything else of TensorFlow's, and treats as Python does.
_PYTHON = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    list,
    tuple,
    dict,
    set,
    frozenset,
    range,
    np.ndarray,
    np.generic,
    tf.TensorShape,
    tf.DType,
    type,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
)
_ALWAYS_PYTHON = frozenset(
    {
        bool,
        bytes,
        callable,
        dict,
        frozenset,
        builtins.id,
        hasattr,
        isinstance,
        issubclass,
        list,
        repr,
        reversed,
        set,
        str,
        tuple,
        type,
    }
)  # whatever they are given
_PYTHON_OF_PYTHON = frozenset({abs, enumerate, float, int, len, range, round, sorted})
_VIEWS = frozenset({"items", "keys", "values"})
_ALWAYS_BOOL = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_DISPLAYS = (
    ast.Constant,
    ast.JoinedStr,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.Lambda,
)
_LEFT_NODES = (
    ast.ClassDef,
    ast.AsyncFunctionDef,
    ast.AsyncFor,
    ast.AsyncWith,
    ast.Await,
    ast.Yield,
    ast.YieldFrom,
    ast.Global,
    ast.Nonlocal,
    ast.Match,
)
_DECORATED = frozenset({"__wrapped__", "__signature__", "_tf_decorator"})
_LEFT_NAMES = frozenset(
    {"super", "eval", "exec", "locals", "globals", "vars", "dir", "__class__", _CALL, _ARTIFACT}
)


class _LeftToAutoGraph(Exception):
    pass


@dataclasses.dataclass(eq=False)
class _Scope:
    """A function's own names, each with all that it is bound to: expressions, `_PARAMETER`, or None where unknown."""

    parent: _Scope | None = None
    bindings: dict[str, list[ast.expr | str | None]] = dataclasses.field(default_factory=dict)

    def bind(self, name: str, value: ast.expr | str | None) -> None:
        self.bindings.setdefault(name, []).append(value)


_PARAMETER = "parameter"


@dataclasses.dataclass
class _Flow:
    """A function's code with calls rewritten; (scope, expression) of what its loops and branches look at; the names of
    attributes that it changes."""

    code: types.CodeType
    looked_at: list[tuple[_Scope, ast.expr]]
    changed: frozenset[str]


_flows: weakref.WeakKeyDictionary[types.CodeType, _Flow | None] = weakref.WeakKeyDictionary()


def converted(
    function: object, args: tuple[object, ...], kwargs: dict[str, object], is_requested: bool = False
) -> Callable[..., Any] | None:
    """What AutoGraph would make of a function for these arguments; None where that is AutoGraph's to make, or where it
    leaves the function as it is. `is_requested`: it is not called by another function."""
    own, instance = _parts(function)
    if (
        type(own) is not types.FunctionType
        or own.__dict__.keys() & _DECORATED
        or not tfp.converts(function, is_requested)
    ):
        return None
    arguments = args if instance is None else (instance, *args)
    try:
        flow = _flows[own.__code__]
    except KeyError:
        flow = _flows[own.__code__] = _flow_of(own)
    if (
        flow is None
        or flow.looked_at
        and not _Look(own, flow, _arguments(own, arguments, kwargs)).sees_python()
    ):
        return None
    cells = dict(zip(own.__code__.co_freevars, own.__closure__ or ()))
    cells |= {_CALL: types.CellType(_call), _ARTIFACT: types.CellType(tfp.autograph_artifact)}
    result = types.FunctionType(
        flow.code,
        own.__globals__,
        own.__name__,
        own.__defaults__,
        tuple(cells[name] for name in flow.code.co_freevars),
    )
    result.__kwdefaults__, result.__qualname__ = own.__kwdefaults__, own.__qualname__
    return result if instance is None else types.MethodType(result, instance)


def _parts(function: object) -> tuple[object, object]:
    """What runs when something is called, and the instance that it is given first, if any."""
    if type(function) is types.FunctionType:
        return function, None
    if type(function) is types.MethodType:
        return function.__func__, function.__self__
    # An object that pretends to be of another class is called in its own way.
    is_itself = function.__class__ is type(function)
    return inspect.getattr_static(type(function), "__call__", None) if is_itself else None, function


def _call(function: object, /, *args: object, **kwargs: object) -> object:
    """A call as AutoGraph makes it."""
    replacement = converted(function, args, kwargs)
    return tfp.converted_call(function, args, kwargs) if replacement is None else replacement(*args, **kwargs)


def _arguments(
    function: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]
) -> dict[str, object]:
    """The values of a function's parameters in a call; none where it cannot be called so."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    return bound.arguments


# Source.


def _flow_of(function: types.FunctionType) -> _Flow | None:
    code, imported = function.__code__, _imported(function)
    try:
        for node in _candidates(code, linecache.getlines(code.co_filename, function.__globals__)):
            compiled = _compiled(node, code, code.co_freevars, imported)
            if compiled is not None and _is_same(compiled, code):
                rewriter = _Rewriter()
                node = rewriter.rewritten(node)
                rewritten = _compiled(node, code, (*code.co_freevars, _CALL, _ARTIFACT), imported)
                return rewritten and _Flow(rewritten, rewriter.looked_at, frozenset(rewriter.changed))
    except (_LeftToAutoGraph, SyntaxError, ValueError, RecursionError):
        pass
    return None


def _candidates(code: types.CodeType, lines: list[str]) -> Iterator[ast.FunctionDef | ast.Lambda]:
    """What may be the definition of a function, of its file's lines, parsed with the lines and columns there."""
    places = [
        (line, column, end_line, end_column)
        for line, end_line, column, end_column in _positions(code)
        if line
        and end_line
        and column is not None
        and end_column is not None
        and (line, column) != (end_line, end_column)
    ]
    if not places or len(lines) < max(end for _, _, end, _ in places):
        return
    first = code.co_firstlineno
    if code.co_name == "<lambda>":
        yield from _lambdas(lines, first, min(p[:2] for p in places), max(p[2:] for p in places))
        return
    last = max(end for _, _, end, _ in places)
    indented = lines[first - 1][:1].isspace()
    for extra in range(_MAX_EXTRA_LINES):
        text = "".join(lines[first - 1 : last + extra])
        try:
            node: Any = ast.parse(f"if 1:\n{text}" if indented else text).body[0]
        except SyntaxError:
            continue
        node = ast.increment_lineno(node.body[0] if indented else node, first - 1 - indented)
        if isinstance(node, ast.FunctionDef):
            node.decorator_list, node.returns = [], None
            for argument in _parameters(node.args):
                argument.annotation = None
            yield node


def _lambdas(
    lines: list[str], first: int, start: tuple[int, int], end: tuple[int, int]
) -> Iterator[ast.Lambda]:
    """Lambdas that begin on the line `first` and whose body has these ends, but for parentheses around it."""
    encoded = [line.encode() for line in lines[first - 1 : end[0] + _MAX_EXTRA_LINES]]
    head = encoded[0][: start[1]] if start[0] == first else encoded[0]
    body = b"".join(encoded[: end[0] - first]) + encoded[end[0] - first][: end[1]]
    rest = b"".join(encoded)[len(body) :]
    ends = [0, *(m.end() for m in re.finditer(rb"[)\]}]", rest))][: _MAX_EXTRA_LINES + 1]
    for begin in [m.start() for m in re.finditer(rb"\blambda\b", head)][::-1]:
        for more in ends:
            text = b"(" + b" " * (begin - 1) + (body + rest[:more])[begin:] + b")"
            try:
                node = ast.parse(text.decode(), mode="eval").body
            except (SyntaxError, UnicodeDecodeError):
                continue
            if isinstance(node, ast.Lambda):
                yield ast.increment_lineno(node, first - 1)


def _positions(code: types.CodeType) -> Iterator[tuple[int | None, int | None, int | None, int | None]]:
    yield from code.co_positions()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _positions(constant)


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    return [
        a
        for a in (
            *arguments.posonlyargs,
            *arguments.args,
            arguments.vararg,
            *arguments.kwonlyargs,
            arguments.kwarg,
        )
        if a is not None
    ]


def _imported(function: types.FunctionType) -> list[str]:
    """Names that a function uses and that its module seems to import: the compiler makes other code for them."""

    def is_foreign(value: object) -> bool:
        return isinstance(value, types.ModuleType) or getattr(value, "__module__", home) != home

    space = function.__globals__
    home = space.get("__name__")
    return sorted(name for name in _names(function.__code__) if name in space and is_foreign(space[name]))


def _names(code: types.CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(code.co_varnames, code.co_cellvars, code.co_freevars, *inner)


def _compiled(
    node: Any, like: types.CodeType, free: tuple[str, ...], imported: list[str]
) -> types.CodeType | None:
    """The code of a definition within a function that has the names `free`. Its defaults are not looked at: a function
    that is made of the code is given those of the first one."""
    arguments = node.args
    defaults = arguments.defaults, arguments.kw_defaults
    arguments.defaults = [ast.Constant(None) for _ in defaults[0]]
    arguments.kw_defaults = [d and ast.Constant(None) for d in defaults[1]]
    try:
        head = f"import {', '.join(imported)}\n" if imported else ""
        module = ast.parse(f"{head}def {_FACTORY}({', '.join(free)}): pass")
        factory: Any = module.body[-1]
        factory.body = [ast.Expr(node) if isinstance(node, ast.Lambda) else node]
        code = compile(
            ast.fix_missing_locations(module), like.co_filename, "exec", like.co_flags & _FLAGS, True
        )
    finally:
        arguments.defaults, arguments.kw_defaults = defaults
    inner = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    return next(
        (c for c in inner.co_consts if isinstance(c, types.CodeType) and c.co_name == like.co_name), None
    )


_COMPARED = (
    "co_code",
    "co_names",
    "co_varnames",
    "co_freevars",
    "co_cellvars",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_name",
    "co_exceptiontable",
)


def _is_same(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two codes do the same."""

    def flags(code: types.CodeType) -> int:
        return code.co_flags & ~inspect.CO_NESTED

    if flags(one) != flags(other) or any(getattr(one, name) != getattr(other, name) for name in _COMPARED):
        return False
    return len(one.co_consts) == len(other.co_consts) and all(
        _is_same(a, b)
        if isinstance(a, types.CodeType) and isinstance(b, types.CodeType)
        else type(a) is type(b) and repr(a) == repr(b)
        for a, b in zip(one.co_consts, other.co_consts)
    )


class _Rewriter(ast.NodeTransformer):
    """Rewrites calls, and notes what loops and branches look at and what names are bound to.

    Raises: _LeftToAutoGraph  there is something else that AutoGraph would change.
    """

    def __init__(self) -> None:
        self.scope = _Scope()
        self.looked_at: list[tuple[_Scope, ast.expr]] = []
        self.changed: set[str] = set()
        self._bound: set[ast.expr] = set()

    def rewritten(self, node: ast.FunctionDef | ast.Lambda) -> ast.FunctionDef | ast.Lambda:
        self._body(node)
        return node

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, _LEFT_NODES):
            raise _LeftToAutoGraph
        return super().visit(node)

    def _body(self, node: Any) -> None:
        for argument in _parameters(node.args):
            self.scope.bind(argument.arg, _PARAMETER if self.scope.parent is None else None)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = [self.visit(statement) for statement in node.body]

    def _inner(self, node: Any) -> None:
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        outer, self.scope = self.scope, _Scope(self.scope)
        self._body(node)
        self.scope = outer

    def visit_FunctionDef(self, node: ast.FunctionDef) -> object:
        self.scope.bind(node.name, None)
        self._inner(node)
        node.decorator_list.append(_named(_ARTIFACT, node))
        return node

    def visit_Lambda(self, node: ast.Lambda) -> object:
        self._inner(node)
        return ast.copy_location(ast.Call(_named(_ARTIFACT, node), [node], []), node)

    def visit_Call(self, node: ast.Call) -> object:
        self.generic_visit(node)
        node.args.insert(0, node.func)
        node.func = _named(_CALL, node)
        return node

    def _look(self, *expressions: ast.expr) -> None:
        self.looked_at += [(self.scope, e) for e in expressions]

    def visit_If(self, node: Any) -> object:
        self._look(node.test)
        return self.generic_visit(node)

    visit_While = visit_IfExp = visit_Assert = visit_If

    def visit_BoolOp(self, node: ast.BoolOp) -> object:
        self._look(*node.values[:-1])
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> object:
        if isinstance(node.op, ast.Not):
            self._look(node.operand)
        return self.generic_visit(node)

    def visit_For(self, node: ast.For) -> object:
        self._look(node.iter)
        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name):
            if node.iter.func.id == "range":
                self._bind(node.target, node.iter)
            elif node.iter.func.id == "enumerate" and isinstance(node.target, ast.Tuple):
                self._bind(node.target.elts[0], node.iter)
        return self.generic_visit(node)

    def _bind(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self.scope.bind(target.id, value)
            self._bound.add(target)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            parts = (*target.elts, *value.elts)
            if len(target.elts) == len(value.elts) and not any(isinstance(p, ast.Starred) for p in parts):
                for part, source in zip(target.elts, value.elts):
                    self._bind(part, source)

    def visit_Assign(self, node: ast.Assign) -> object:
        for target in node.targets:
            self._bind(target, node.value)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> object:
        if node.value is not None:
            self._bind(node.target, node.value)
            node.value = self.visit(node.value)
        node.target = self.visit(node.target)
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> object:
        self._bind(node.target, node.value)
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> object:
        if isinstance(node.target, ast.Name):
            self._bind(node.target, ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value))
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> object:
        if node.id in _LEFT_NAMES:
            raise _LeftToAutoGraph
        if isinstance(node.ctx, ast.Store) and node not in self._bound:
            self.scope.bind(node.id, None)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> object:
        if not isinstance(node.ctx, ast.Load):
            self.changed.add(node.attr)
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> object:
        if node.name:
            self.scope.bind(node.name, None)
        return self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> object:
        self.scope.bind((node.asname or node.name).partition(".")[0], None)
        return node


def _named(name: str, at: ast.AST) -> ast.Name:
    return ast.copy_location(ast.Name(name, ast.Load()), at)


class _Look:
    """Whether the values that a function tests in a call are Python's; false where that is unknown before."""

    def __init__(self, function: types.FunctionType, flow: _Flow, arguments: dict[str, object]) -> None:
        self._function, self._flow, self._arguments = function, flow, arguments
        self._under_way: set[tuple[_Scope, str]] = (
            set()
        )  # a name that is bound to itself has the value of its other binding

    def sees_python(self) -> bool:
        return all(self._is_python(node, scope) for scope, node in self._flow.looked_at)

    def _is_python(self, node: Any, scope: _Scope) -> bool:
        if isinstance(node, _DISPLAYS):
            return True
        if isinstance(node, ast.Name):
            return self._is_python_name(node.id, scope)
        if isinstance(node, ast.Call):
            return self._gives_python(node, scope)
        if isinstance(node, ast.Compare) and all(isinstance(op, _ALWAYS_BOOL) for op in node.ops):
            return True
        if isinstance(node, ast.Attribute):
            return any(isinstance(value, _PYTHON) for value in self._values(node, scope))
        parts: tuple[Any, ...] = {
            ast.BinOp: lambda: (node.left, node.right),
            ast.UnaryOp: lambda: (node.operand,),
            ast.BoolOp: lambda: node.values,
            ast.Compare: lambda: (node.left, *node.comparators),
            ast.IfExp: lambda: (node.body, node.orelse),
            ast.NamedExpr: lambda: (node.value,),
            ast.Subscript: lambda: (node.value,) if isinstance(node.slice, ast.Slice) else (),
        }.get(type(node), tuple)()
        return bool(parts) and all(self._is_python(part, scope) for part in parts)

    def _is_python_name(self, name: str, scope: _Scope) -> bool:
        home = _home(name, scope)
        if home is None:
            return any(isinstance(value, _PYTHON) for value in self._outer(name))
        if (home, name) in self._under_way:
            return True
        self._under_way.add((home, name))
        try:
            return all(
                isinstance(self._arguments.get(name, self), _PYTHON)
                if value is _PARAMETER
                else value is not None and self._is_python(value, home)
                for value in home.bindings[name]
            )
        finally:
            self._under_way.discard((home, name))

    def _gives_python(self, node: ast.Call, scope: _Scope) -> bool:
        called, *arguments = node.args  # it is rewritten
        if isinstance(called, ast.Attribute):
            return called.attr in _VIEWS and not arguments and self._is_python(called.value, scope)
        if not isinstance(called, ast.Name) or _home(called.id, scope) is not None:
            return False
        function = next(self._outer(called.id), None)
        if not isinstance(function, type | types.BuiltinFunctionType):
            return False
        if function in _ALWAYS_PYTHON:
            return True
        arguments += [keyword.value for keyword in node.keywords]
        if function is zip:
            return any(self._is_python(value, scope) for value in arguments)
        return function in _PYTHON_OF_PYTHON and all(self._is_python(value, scope) for value in arguments)

    def _outer(self, name: str) -> Iterator[object]:
        """The value of a name from outside of the function, if it has one."""
        code, spaces = self._function.__code__, (self._function.__globals__, vars(builtins))
        if name in code.co_freevars:
            cell = (self._function.__closure__ or ())[code.co_freevars.index(name)]
            try:
                yield cell.cell_contents
            except ValueError:  # it has none yet
                return
        else:
            yield from [space[name] for space in spaces if name in space][:1]

    def _values(self, node: ast.expr, scope: _Scope) -> Iterator[object]:
        """The value of a name or attribute, if it is constant and known without running anything."""
        if isinstance(node, ast.Name):
            home = _home(node.id, scope)
            if home is None:
                yield from self._outer(node.id)
            elif home.bindings[node.id] == [_PARAMETER] and node.id in self._arguments:
                yield self._arguments[node.id]
        elif isinstance(node, ast.Attribute) and node.attr not in self._flow.changed:
            for owner in self._values(node.value, scope):
                yield from _attribute(owner, node.attr)


def _home(name: str, scope: _Scope | None) -> _Scope | None:
    """The innermost scope that has a name; None: it is from outside of the function."""
    while scope is not None and name not in scope.bindings:
        scope = scope.parent
    return scope


def _attribute(owner: object, name: str) -> Iterator[object]:
    """An attribute that is neither computed nor of a class that computes any."""
    if type(owner).__getattribute__ not in (object.__getattribute__, types.ModuleType.__getattribute__):
        return
    of_class = [vars(c)[name] for c in type(owner).__mro__ if name in vars(c)][:1]
    if not any(hasattr(type(value), "__get__") for value in of_class):
        own = getattr(owner, "__dict__", {})
        yield from [own[name]] if name in own else of_class
