"""How each kind of attribute is spelled in HLO text: one row per kind, print beside parse.

Fields of an op that share a text name form one attribute (slice's start, limit and strides).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...runtime.sizes import AnySize, Assumptions
from ..ir.module import Computation
from ..ir.shape import Shape
from ..ops import ConvolutionDims, RngBitGenerator, Window
from ..ops.op import Op, per_class
from .groups import read_groups, show_groups
from .scanner import Malformed, inner, integer, parse_shape
from .sizes import size_text, sizes_text, split_outside_parentheses


@dataclasses.dataclass(frozen=True, slots=True)
class Attribute:
    """One `name=value` of an op's text: its fields, its default (MISSING: it is required), and whether it is printed
    even then."""

    name: str
    kind: str
    fields: tuple[str, ...]
    default: object
    always_shown: bool


class Scope(Protocol):
    """The names that stand in attributes."""

    assumptions: Assumptions

    def find(self, name: str) -> Computation:
        """The computation of this name. Raises: Malformed."""

    def size(self, text: str, what: str = "") -> int:
        """A number, or a size of symbols. Raises: Malformed."""


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """`show` turns the fields' value (a tuple where there are several; names of computations) into text;
    `read` parses the text, with the names of the module, and raises Malformed."""

    show: Callable[[Any], str]
    read: Callable[[str, Scope], Any]


IMPLIED = {"opcode", "number", "literal", "result_dims", "result_shape", "result_type", "implied"}
"""Kinds that have no `name=value`: they follow from the opcode, the operand list or the result's shape."""


PREDICATE_BRANCHES = ("true_computation", "false_computation")
"""How a conditional on a predicate spells its branch_computations."""


@per_class
def attributes(cls: type[Op]) -> tuple[Attribute, ...]:
    """The attributes of an op class that are spelled `name=value`, in the order of its fields."""
    by_name: dict[str, Attribute] = {}
    for field in dataclasses.fields(cls):
        kind, name = field.metadata["kind"], field.metadata["name"]
        if kind in IMPLIED:
            continue
        earlier = by_name[name].fields if name in by_name else ()
        needed = field.default is dataclasses.MISSING
        default = () if kind in ("dims", "sizes") and needed else field.default
        by_name[name] = Attribute(name, kind, (*earlier, field.name), default, always_shown=needed)
    return tuple(by_name.values())


@per_class
def implied(cls: type[Op]) -> Mapping[str, str]:
    """Kind by name of the fields that are not spelled `name=value`."""
    return {f.name: f.metadata["kind"] for f in dataclasses.fields(cls) if f.metadata["kind"] in IMPLIED}


def show_attributes(op: Op, name_of: Callable[[Computation], str]) -> str:
    """`, name=value` for every attribute that has not its default, as printed after the operands."""
    parts = []
    for attribute in attributes(type(op)):
        values = tuple(getattr(op, f) for f in attribute.fields)
        value: Any = values if len(values) > 1 else values[0]
        if value == attribute.default and not attribute.always_shown:
            continue
        if attribute.kind == "computation":
            value = name_of(value)
        elif attribute.kind == "computations":
            value = tuple(map(name_of, value))
            if not getattr(op, "by_index", True):
                parts += [f", {name}={branch}" for name, branch in zip(PREDICATE_BRANCHES, value)]
                continue
        parts.append(f", {attribute.name}={KINDS[attribute.kind].show(value)}")
    return "".join(parts)


def _numbers(text: str, what: str) -> tuple[int, ...]:
    return tuple(integer(part, what) for part in text.split(",")) if text.strip() else ()


def _braced(text: str) -> str:
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        raise Malformed(f"expected a list in braces, got {text!r}")
    return text[1:-1]


def _read_dims(text: str, _: object) -> tuple[int, ...]:
    return _numbers(_braced(text), "axis numbers in braces")


def _read_dim(text: str, _: object) -> int:
    numbers = _read_dims(text, _)
    if len(numbers) != 1:
        raise Malformed(f"expected one axis number in braces, got {text!r}")
    return numbers[0]


def _read_int(text: str, _: object) -> int:
    return integer(text)


def _read_size(text: str, scope: Scope) -> AnySize:
    return scope.size(text)


def _read_sizes(text: str, scope: Scope) -> tuple[int, ...]:
    inner = _braced(text)
    parts = split_outside_parentheses(inner) if inner.strip() else []
    return tuple(scope.size(part, "sizes in braces") for part in parts)


def _read_bool(text: str, _: object) -> bool:
    if text not in ("true", "false"):
        raise Malformed(f"expected true or false, got {text!r}")
    return text == "true"


def _read_word(text: str, _: object) -> str:
    if not re.fullmatch(r"\w+", text, re.ASCII):
        raise Malformed(f"expected a word, got {text!r}")
    return text


def _show_string(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _read_string(text: str, _: object) -> str:
    if text[:1] not in ('"', "'"):
        raise Malformed(f"expected a string in quotes, got {text!r}")
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text[1:-1])


def _read_shape(text: str, scope: Scope) -> Shape:
    with inner("expected a shape"):
        return parse_shape(text, scope.assumptions)


def _show_slices(value: tuple[tuple[int, ...], ...]) -> str:
    return "{" + ", ".join(f"[{a}:{b}]" if s == 1 else f"[{a}:{b}:{s}]" for a, b, s in zip(*value)) + "}"


def _read_slices(text: str, scope: Scope) -> tuple[tuple[int, ...], ...]:
    inner = _braced(text).strip()
    axes = re.findall(r"\[([^\[\]:]+):([^\[\]:]+)(?::([^\[\]:]+))?\]", inner)
    if len(axes) != inner.count("["):
        raise Malformed(f"expected {{[start:limit:stride], ...}}, got {text!r}")
    start, limit, stride = ([scope.size(axis[k] or "1") for axis in axes] for k in range(3))
    return tuple(start), tuple(limit), tuple(stride)


def _show_padding(value: tuple[tuple[int, ...], ...]) -> str:
    return "x".join("_".join(map(size_text, axis if axis[2] != 0 else axis[:2])) for axis in zip(*value))


def _read_padding(text: str, scope: Scope) -> tuple[tuple[int, ...], ...]:
    axes = (
        [split_outside_parentheses(axis, "_") for axis in split_outside_parentheses(text, "x")]
        if text
        else []
    )
    if not all(2 <= len(axis) <= 3 for axis in axes):
        raise Malformed(f"expected low_high_interior for each axis, joined by x, got {text!r}")
    low, high, interior = ([scope.size([*axis, "0"][k]) for axis in axes] for k in range(3))
    return tuple(low), tuple(high), tuple(interior)


_WINDOW_FIELDS = {"stride": "stride", "lhs_dilate": "base_dilation", "rhs_dilate": "window_dilation"}


def _show_window(window: Window) -> str:
    if not window.rank:
        return "{}"
    parts = ["size=" + "x".join(map(size_text, window.size))]
    if any(s != 1 for s in window.stride):
        parts.append("stride=" + "x".join(map(size_text, window.stride)))
    if any(window.pad_low) or any(window.pad_high):
        pads = zip(map(size_text, window.pad_low), map(size_text, window.pad_high))
        parts.append("pad=" + "x".join(map("_".join, pads)))
    for name in ("lhs_dilate", "rhs_dilate"):
        values = getattr(window, _WINDOW_FIELDS[name])
        if any(v != 1 for v in values):
            parts.append(f"{name}=" + "x".join(map(size_text, values)))
    if any(window.reversal):
        parts.append("rhs_reversal=" + "x".join(str(int(r)) for r in window.reversal))
    return "{" + " ".join(parts) + "}"


def _read_window(text: str, scope: Scope) -> Window:
    fields: dict[str, Any] = {"size": ()}

    def number(entry: str) -> int:
        return scope.size(entry, "numbers joined by x in window")

    for part in filter(None, split_outside_parentheses(" ".join(_braced(text).split()), " ")):
        name, _, value = part.partition("=")
        entries = split_outside_parentheses(value, "x")
        try:
            if name == "pad":
                pairs = [
                    (number(low), number(high))
                    for low, high in (split_outside_parentheses(e, "_") for e in entries)
                ]
                fields["pad_low"], fields["pad_high"] = [p[0] for p in pairs], [p[1] for p in pairs]
            elif name == "rhs_reversal":
                fields["reversal"] = [bool(number(e)) for e in entries]
            elif name == "size" or name in _WINDOW_FIELDS:
                fields[_WINDOW_FIELDS.get(name, name)] = [number(e) for e in entries]
            else:
                raise Malformed(
                    f"expected size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal in window, "
                    f"got {name!r}"
                )
        except ValueError:
            raise Malformed(f"expected numbers joined by x in window's {name}, got {value[:60]!r}") from None
    if any(len(v) != len(fields["size"]) for v in fields.values()):
        raise Malformed(f"expected as many entries as in window's size everywhere, got {text!r}")
    return Window.of(**fields)


def _show_dim_labels(dims: ConvolutionDims) -> str:
    def letters(first: tuple[int, str], second: tuple[int, str], spatial: tuple[int, ...]) -> str:
        by_axis = dict([first, second, *((axis, str(i)) for i, axis in enumerate(spatial))])
        return "".join(by_axis[a] for a in sorted(by_axis))

    return (
        letters((dims.input_batch, "b"), (dims.input_feature, "f"), dims.input_spatial)
        + "_"
        + letters((dims.kernel_input_feature, "i"), (dims.kernel_output_feature, "o"), dims.kernel_spatial)
        + "->"
        + letters((dims.output_batch, "b"), (dims.output_feature, "f"), dims.output_spatial)
    )


def _read_dim_labels(text: str, _: object) -> ConvolutionDims:
    parts = re.fullmatch(r"([bf\d]+)_([io\d]+)->([bf\d]+)", text)
    positions: list[tuple[int, int, tuple[int, ...]]] = []
    for labels, first, second in zip(parts.groups() if parts else (), "bib", "fof"):
        axes = [str(i) for i in range(len(labels) - 2)]
        if sorted(labels) != sorted([first, second, *axes]):
            break
        positions.append((labels.index(first), labels.index(second), tuple(map(labels.index, axes))))
    if len(positions) != 3:
        raise Malformed(f"expected labels like b01f_01io->b01f, got {text!r}")
    inputs, kernel, output = positions
    return ConvolutionDims(*inputs, *kernel, *output)


def _read_computation(text: str, scope: Scope) -> Computation:
    return scope.find(text)


def _read_computations(text: str, scope: Scope) -> tuple[Computation, ...]:
    names = _braced(text).split(",") if _braced(text).strip() else ()
    return tuple(scope.find(name.strip()) for name in names)


KINDS: dict[str, Kind] = {
    "int": Kind(str, _read_int),
    "size": Kind(str, _read_size),
    "bool": Kind(lambda value: "true" if value else "false", _read_bool),
    "word": Kind(str, _read_word),
    "string": Kind(_show_string, _read_string),
    "raw": Kind(str, lambda text, _: text),
    "shape": Kind(str, _read_shape),
    "groups": Kind(show_groups, lambda text, _: read_groups(text)),
    "sizes": Kind(sizes_text, _read_sizes),
    "dims": Kind(lambda value: "{" + ",".join(map(str, value)) + "}", _read_dims),
    "dim": Kind(lambda value: f"{{{value}}}", _read_dim),
    "slices": Kind(_show_slices, _read_slices),
    "padding": Kind(_show_padding, _read_padding),
    "window": Kind(_show_window, _read_window),
    "dim_labels": Kind(_show_dim_labels, _read_dim_labels),
    "computation": Kind(lambda name: name, _read_computation),
    "computations": Kind(lambda names: "{" + ", ".join(names) + "}", _read_computations),
}


def require_array(shape: Shape) -> Shape:
    """The shape of a result that can only be an array. Raises: Malformed  it is another one."""
    if not shape.is_array:
        raise Malformed(f"expected an array as the result, got {shape}")
    return shape


def result_field(kind: str, cls: type[Op], shape: Shape, operands: list[Shape]) -> object:
    """The value of a field that follows from the result's shape. A type that all operands have is None where None
    stands for that. Raises: Malformed  a type, of a result that is no array."""
    if kind == "result_dims":
        return shape.dims
    if kind == "result_shape":
        return shape.tuple_shapes[1] if cls is RngBitGenerator and len(shape.tuple_shapes) == 2 else shape
    own = require_array(shape).element_type
    return None if cls.is_contraction and all(o.element_type is own for o in operands) else own
