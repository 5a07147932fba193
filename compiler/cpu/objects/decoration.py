"""What the functions of an object bear besides their code: attributes, sections, names of layers and debug lines.

Kernels are written without them. Here the text of a whole object gets what its options ask for, before LLVM reads it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, ModuleText
from ...object_options import LAYER_MARK, ObjectOptions

_HEAD = re.compile(
    r"^define (?P<linkage>[^@\n]*)@(?P<name>[-\w.$]+)\((?P<parameters>(?:[^()\n]|\([^()\n]*\))*)\)"
    r"(?P<attributes>[^{\n]*?)(?P<prologue>prologue [^{\n]*)?\{\n(?P<body>.*?)^\}",
    re.MULTILINE | re.DOTALL,
)
_REFERENCE = re.compile(r"@([-\w.$]+)")
_CONSTANT = re.compile(r"^(@[-\w.$]+ = [^\n]*?\bconstant [^\n]*)$", re.MULTILINE)
_FIRST_NODE = 10  # of metadata; the lower ones are those of all modules
_SMALL = "minsize optsize"
# LLVM's outliner takes predicated instructions of Arm's M profile out of their blocks, and LLVM then ends.
_WHOLE = '"nooutline"'
_MASK = re.compile(r"<\d+ x i1>")
# On x86 kernels lose no time: loops are written unrolled. But sums across lanes would take slower instructions, and a
# product of int8 in columns a quarter more time.
_SMALLER, _ACROSS_LANES = "optsize", "vector.reduce"
_LIBRARY = "tfb_"


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer: its name, and its line in the file of layers."""

    name: str
    text: str


def references(text: ModuleText) -> dict[str, list[str]]:
    """The functions that functions call or have the addresses of, directly and through constants."""
    of_globals = {
        name: [function for function in _REFERENCE.findall(value) if function in text.functions]
        for name, value in text.globals.items()
    }
    callees = {}
    for name, body in text.functions.items():
        names: dict[str, None] = {}
        for reference in _REFERENCE.findall(body):
            is_function = reference in text.functions
            names |= dict.fromkeys(of_globals.get(reference, [reference] if is_function else []))
        names.pop(name, None)
        callees[name] = list(names)
    return callees


def layers_of_functions(
    calls: Mapping[str, list[str]], kernels: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    """The layers that functions compute, other than those of libraries; `kernels`: those of kernels."""
    users: dict[str, set[int]] = {}
    for kernel, layers in kernels.items():
        stack, closure = [kernel], {kernel}
        while stack:
            name = stack.pop()
            users.setdefault(name, set()).update(layers)
            new = [f for f in calls.get(name, ()) if f not in closure and not f.startswith(_LIBRARY)]
            closure.update(new)
            stack += new
    return {name: sorted(layers) for name, layers in users.items()}


@dataclasses.dataclass(frozen=True)
class Titles:
    """What functions are called in an object that has the names of layers. lines: those in the file of layers.
    display_names: for debuggers. symbols: for linkers."""

    lines: Mapping[str, int]
    display_names: Mapping[str, str]
    symbols: Mapping[str, str]


def titles_of(text: ModuleText, layers: Mapping[int, Layer], kernels: Mapping[str, Sequence[int]]) -> Titles:
    """Functions that compute one layer have its name, those of several that of the first, with how many there are
    besides."""
    lines, display_names, symbols = {}, {}, {}
    for name, owners in layers_of_functions(references(text), kernels).items():
        others = f"+{len(owners) - 1}" if len(owners) > 1 else ""
        lines[name], display_names[name] = owners[0], layers[owners[0]].name + others
        symbols[name] = re.sub(r"[^\w/.$:+-]+", "_", f"{display_names[name]}.{name}", flags=re.ASCII)
    return Titles(lines, display_names, symbols)


def object_text(text: ModuleText, options: ObjectOptions, titles: Titles) -> str:
    """The text of an object."""
    is_small, is_x86 = (text.target.is_small, text.target.is_x86) if text.target else (False, False)
    nodes = _Nodes(options.layers_file)

    def function(match: re.Match[str]) -> str:
        name, attributes = match["name"], match["attributes"].strip()
        is_driver = DRIVER_ATTRIBUTES in attributes
        attributes = attributes.replace(DRIVER_ATTRIBUTES, "nounwind noinline")
        extra = [attributes, '"warn-stack-size"="0"']
        if is_small or is_driver:
            extra += [_SMALL, _WHOLE] if is_driver or _MASK.search(match["body"]) else [_SMALL]
        elif is_x86 and _ACROSS_LANES not in match["body"]:
            extra.append(_SMALLER)
        if options.debug:
            extra.append('"frame-pointer"="all"')
        if options.code_section:
            extra.append(f'section "{options.code_section}"')
        if match["prologue"]:
            extra.append(match["prologue"].strip())
        body = match["body"]
        if options.debug:
            line = titles.lines.get(name, 0)
            scope = nodes.function(titles.display_names.get(name, name), titles.symbols.get(name, name), line)
            extra.append(f"!dbg !{scope}")
            body = "\n".join(nodes.with_locations(body.split("\n"), scope, line))
        return f"define {match['linkage']}@{name}({match['parameters']}) {' '.join(extra)} {{\n{body}}}"

    result = _HEAD.sub(function, text.text())
    if options.constants_section:
        result = _CONSTANT.sub(rf'\1, section "{options.constants_section}"', result)
    if options.debug:
        result = _REFERENCE.sub(
            lambda m: f'@"{titles.symbols[m[1]]}"' if m[1] in titles.symbols else m[0], result
        )
        result += "\n".join(nodes.text()) + "\n"
    return result


class _Nodes:
    """Metadata of debug lines: the lines are those of the file of layers."""

    def __init__(self, file: str) -> None:
        first = _FIRST_NODE
        self._unit, self._file, self._type = first, first + 1, first + 2
        self._nodes = [
            f'distinct !DICompileUnit(language: DW_LANG_C99, file: !{self._file}, producer: "tfbridge", '
            "isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug)",
            f'!DIFile(filename: "{file}", directory: ".")',
            f"!DISubroutineType(types: !{first + 3})",
            "!{null}",
            '!{i32 2, !"Debug Info Version", i32 3}',
            '!{i32 7, !"Dwarf Version", i32 4}',
        ]
        self._locations: dict[tuple[int, int], int] = {}

    def _add(self, node: str) -> int:
        self._nodes.append(node)
        return _FIRST_NODE + len(self._nodes) - 1

    def function(self, name: str, symbol: str, line: int) -> int:
        """The node of a function."""
        return self._add(
            f"distinct !DISubprogram(name: {_quoted(name)}, linkageName: {_quoted(symbol)}, scope: !{self._file}, "
            f"file: !{self._file}, line: {line}, type: !{self._type}, scopeLine: {line}, "
            f"spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !{self._unit})"
        )

    def with_locations(self, lines: list[str], scope: int, line: int) -> Iterator[str]:
        """A function's lines with their places."""
        for each in lines:
            mark = each.strip()
            if mark.startswith(LAYER_MARK):
                line = int(mark.removeprefix(LAYER_MARK))
            elif each.startswith("  "):
                each = f"{each}, !dbg !{self._location(scope, line)}"
            yield each

    def _location(self, scope: int, line: int) -> int:
        if (scope, line) not in self._locations:
            self._locations[scope, line] = self._add(f"!DILocation(line: {line}, scope: !{scope})")
        return self._locations[scope, line]

    def text(self) -> Iterator[str]:
        """The nodes."""
        first = _FIRST_NODE
        yield f"!llvm.dbg.cu = !{{!{self._unit}}}"
        yield f"!llvm.module.flags = !{{!{first + 4}, !{first + 5}}}"
        for number, node in enumerate(self._nodes, first):
            yield f"!{number} = {node}"


def _quoted(text: str) -> str:
    return (
        '"'
        + re.sub(
            r'[^ -~]|["\\]',
            lambda m: "".join(f"\\{b:02X}" for b in m[0].encode("utf-8", "surrogatepass")),
            text,
        )
        + '"'
    )
