"""The arrows of the source map: models -> bridge -> compiler -> runtime, the folders of the compiler and of the bridge,
and who may know which library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_python import run_python

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("runtime", "compiler", "bridge", "models")  # each imports itself and what stands to its left
FILES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))

# Which files may import a library. A name ending in a slash is a folder.
LIBRARY_HOMES = {
    "tensorflow": ("bridge/", "models/"),
    "keras": ("bridge/", "models/"),
    "llvmlite": (
        "compiler/cpu/",
        "runtime/llvm/target.py",
        "runtime/code/linker.py",
        "runtime/symbols/gdb.py",
    ),
    "jax": (),
    "sklearn": ("models/",),
    "rich": ("bridge/", "models/"),
}
PRIVATE_HOME = "bridge/tf_internals/symbols.py"
PRIVATE_WORDS = ("pywrap_tfe", "pywrap_tensorflow")
DYNAMIC_IMPORTS = ("importlib.import_module", "import_module", "__import__")


BELOW_CPU = ("compiler/ir/", "compiler/ops/", "compiler/analysis/", "compiler/passes/")
BELOW_KERNELS = (*BELOW_CPU, "compiler/cpu/codegen/", "compiler/cpu/loops/")

# Which folders and files of its layer a folder or file may import; the longest name counts. All may import themselves,
# the files beside the folders (errors, limits, options, ...) and the layers below; without a row, anything.
MAY_IMPORT = {
    "compiler/ir/": (),
    "compiler/ir/module_attributes.py": ("compiler/ir/", "compiler/hlo_text/scanner.py"),
    "compiler/ir/verifier.py": ("compiler/ir/", "compiler/ops/", "compiler/analysis/", "compiler/hlo_text/"),
    "compiler/ops/": ("compiler/ir/",),
    "compiler/ops/docs_table.py": ("compiler/ir/", "compiler/ops/", "compiler/builder/"),
    "compiler/analysis/": ("compiler/ir/", "compiler/ops/"),
    "compiler/evaluator/": ("compiler/ir/", "compiler/ops/"),
    "compiler/evaluator/evaluate.py": ("compiler/ir/", "compiler/evaluator/", "compiler/passes/"),
    "compiler/passes/": ("compiler/ir/", "compiler/ops/", "compiler/analysis/"),
    "compiler/passes/fold_constants.py": ("compiler/ir/", "compiler/ops/", "compiler/evaluator/evaluator.py"),
    "compiler/builder/": ("compiler/ir/", "compiler/ops/", "compiler/analysis/", "compiler/evaluator/"),
    "compiler/hlo_text/": ("compiler/ir/", "compiler/ops/", "compiler/analysis/", "compiler/builder/"),
    "compiler/stablehlo_text/": (
        "compiler/ir/",
        "compiler/ops/",
        "compiler/builder/",
        "compiler/hlo_text/computation_order.py",
        "compiler/hlo_text/groups.py",
        "compiler/hlo_text/scanner.py",
        "compiler/hlo_text/xla_custom_calls.py",
    ),
    "compiler/client/": ("compiler/ir/", "compiler/ops/", "compiler/evaluator/", "compiler/passes/"),
    "compiler/quantization/": (*BELOW_CPU, "compiler/evaluator/evaluator.py", "compiler/client/platforms.py"),
    "compiler/cpu/": BELOW_CPU,
    "compiler/cpu/platform.py": (*BELOW_CPU, "compiler/cpu/", "compiler/client/platforms.py"),
    "compiler/cpu/codegen/": BELOW_CPU,
    "compiler/cpu/loops/": (*BELOW_CPU, "compiler/cpu/codegen/"),
    "compiler/cpu/loops/reducer.py": (
        *BELOW_CPU,
        "compiler/cpu/codegen/",
        "compiler/cpu/loops/",
        "compiler/evaluator/evaluator.py",  # reducers are tried on a few elements
    ),
    "compiler/cpu/gemm/": BELOW_KERNELS,
    "compiler/cpu/convolution/": (*BELOW_KERNELS, "compiler/cpu/gemm/"),
    "compiler/cpu/linalg/": (*BELOW_KERNELS, "compiler/cpu/gemm/"),
    "compiler/cpu/fft/": BELOW_KERNELS,
    "compiler/cpu/kernels/": BELOW_KERNELS,
    "compiler/cpu/entry/": (*BELOW_CPU, "compiler/cpu/codegen/", "compiler/cpu/schedule/"),
    "compiler/cpu/objects/": (*BELOW_CPU, "compiler/cpu/gemm/", "compiler/cpu/convolution/"),
    "bridge/tf_internals/": (),
    "bridge/options/": (),
    "bridge/options/marks.py": ("bridge/options/", "bridge/tf_internals/types.py"),
    "bridge/graph/": ("bridge/tf_internals/",),
    "bridge/functionalize/": ("bridge/tf_internals/", "bridge/graph/"),
    "bridge/launch/": ("bridge/tf_internals/", "bridge/graph/"),
    "bridge/analysis/": ("bridge/tf_internals/", "bridge/graph/", "bridge/translate/registry.py"),
    "bridge/translate/": ("bridge/tf_internals/", "bridge/graph/", "bridge/analysis/"),
    "bridge/cluster/": (
        "bridge/tf_internals/",
        "bridge/options/",
        "bridge/graph/",
        "bridge/analysis/",
        "bridge/translate/",
        "bridge/launch/",
    ),
    "bridge/clustering/": (
        "bridge/tf_internals/",
        "bridge/options/",
        "bridge/graph/",
        "bridge/functionalize/",
        "bridge/analysis/",
        "bridge/translate/",
        "bridge/launch/",
        "bridge/cluster/",
    ),
    "bridge/dispatch/": (
        "bridge/tf_internals/",
        "bridge/options/",
        "bridge/graph/",
        "bridge/analysis/",
        "bridge/cluster/",
        "bridge/clustering/",
        "bridge/launch/",
    ),
    "bridge/report_page/": (),
    "bridge/api/": (
        "bridge/report_page/",
        "bridge/tf_internals/",
        "bridge/options/",
        "bridge/graph/",
        "bridge/translate/",
        "bridge/cluster/",
        "bridge/clustering/",
        "bridge/launch/",
        "bridge/dispatch/",
    ),
    "bridge/aot/": (
        "bridge/tf_internals/",
        "bridge/graph/",
        "bridge/cluster/",
        "bridge/clustering/",
        "bridge/dispatch/",
        "bridge/api/",
        "bridge/report_page/",
    ),
    "bridge/aot/writers/": ("bridge/report_page/",),
    "bridge/public/": ("bridge/options/", "bridge/api/", "bridge/aot/"),
}
# Nobody else imports code generation for CPUs: compiler/client/platforms.py names its platform, which is loaded late.
CPU = "compiler/cpu/"

# Imports inside functions, with their reasons; all others stand at the top of their file.
TENSORFLOW_LATE = "TensorFlow takes seconds to import, and may be missing or broken"
OPTIONAL = "the package is optional"
THREADS_FIRST = "TensorFlow makes its threads for the CPUs that the process may use by then"
LATE_IMPORTS = {
    ("bridge/aot/__main__.py", ".build"): TENSORFLOW_LATE,
    ("bridge/api/import_hook.py", ".auto_clustering"): TENSORFLOW_LATE,
    ("bridge/api/import_hook.py", ".report_files"): TENSORFLOW_LATE,
    ("bridge/api/numerics_table.py", "scipy.special"): OPTIONAL,
    ("bridge/cluster/compile_progress.py", "rich.console"): "few compilations take long",
    ("bridge/cluster/compile_progress.py", "rich.progress"): "few compilations take long",
    ("bridge/public/doctor.py", "tensorflow"): TENSORFLOW_LATE,
    ("bridge/public/doctor.py", "..api"): TENSORFLOW_LATE,
    ("bridge/public/doctor.py", "..api.jit"): TENSORFLOW_LATE,
    ("bridge/report_page/page.py", "jinja2"): "most programs draw no page",
    ("bridge/tf_internals/symbols.py", "tensorflow.compiler.tf2xla.ops"): "few models need it",
    ("bridge/tf_internals/symbols.py", "tensorflow.compiler.xla"): "few ops need it",
    ("bridge/tf_internals/symbols.py", "tensorflow.compiler.xla.service"): "few ops need it",
    ("bridge/tf_internals/symbols.py", "tensorflow.core.util.quantization"): "few ops need it",
    ("bridge/tf_internals/symbols.py", "tensorflow.lite.python"): "few models need it",
    ("models/bench/inference_engines.py", "ai_edge_litert.interpreter"): OPTIONAL,
    ("models/bench/inference_engines.py", "onnxruntime"): OPTIONAL,
    ("models/bench/inference_engines.py", "openvino"): OPTIONAL,
    ("models/bench/inference_engines.py", "tf2onnx"): OPTIONAL,
    ("models/bench/plot.py", "matplotlib"): OPTIONAL,
    ("models/bench/session.py", "...bridge.api.profile"): "it begins to compile kernel libraries",
    ("models/bench/shapes/worker.py", "..engines"): THREADS_FIRST,
    ("models/bench/shapes/worker.py", ".case"): THREADS_FIRST,
    ("models/bench/shapes/worker.py", ".cases"): THREADS_FIRST,
    ("models/bench/worker.py", ".session"): THREADS_FIRST,
    ("runtime/code/private_folder.py", "grp"): "Unix alone has it",
    ("runtime/code/private_folder.py", "pwd"): "Unix alone has it",
    ("runtime/devices/mpi.py", "mpi4py"): OPTIONAL,
}

# Edges that break the two rules above. The list only gets shorter.
TO_CUT = frozenset(
    {
        ("models/bench/kernel_suite.py", "compiler/cpu/compile.py"),
        ("models/bench/kernel_suite.py", "compiler/cpu/machine_peak.py"),
    }
)


def imported_modules(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Every absolute module name that the file imports, relative imports resolved, with its line."""
    package = ("tfbridge", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                start = package[: len(package) - node.level + 1]
                module = ".".join((*start, node.module) if node.module else start)
            else:
                module = node.module or ""
            for name in node.names:
                yield node.lineno, f"{module}.{name.name}"
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in DYNAMIC_IMPORTS
            and node.args
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node.lineno, str(node.args[0].value)


def within(relative: str, homes: tuple[str, ...]) -> bool:
    return any(relative.startswith(home) if home.endswith("/") else relative == home for home in homes)


def source_file(module: str) -> str:
    """The file of this repository that an imported name is in; "" for none."""
    parts = module.split(".")
    for count in (len(parts), len(parts) - 1):
        relative = "/".join(parts[1:count])
        for name in (f"{relative}.py", f"{relative}/__init__.py"):
            if parts[0] == "tfbridge" and relative and (ROOT / name).is_file():
                return name
    return ""


def broken_edges(path: Path, text: str) -> set[tuple[str, str]]:
    """The edges from a file that MAY_IMPORT does not allow, and those into the code generation for CPUs."""
    relative = path.relative_to(ROOT).as_posix()
    layer = relative.partition("/")[0] + "/"
    rules = [name for name in MAY_IMPORT if relative.startswith(name)]
    row = max(rules, key=len, default="")
    allowed = (row, *MAY_IMPORT.get(row, (layer,)))
    edges = set()
    for _, module in imported_modules(path, text):
        imported = source_file(module)
        in_folder = imported.startswith(layer) and imported.count("/") > 1
        is_forbidden = in_folder and not imported.startswith(allowed)
        if is_forbidden or (imported.startswith(CPU) and not relative.startswith(CPU)):
            edges.add((relative, imported))
    return edges


def violations(path: Path, text: str) -> list[str]:
    """Each line of the file that breaks an arrow, as `file:line: reason`."""
    relative = path.relative_to(ROOT).as_posix()
    layer = relative.split("/")[0]
    above = LAYERS[LAYERS.index(layer) + 1 :]
    found = []
    for line, module in imported_modules(path, text):
        parts = module.split(".")
        if parts[0] == "tfbridge" and len(parts) > 1 and parts[1] in above:
            found.append(f"{relative}:{line}: {layer}/ imports {module}, which lies above it")
        if parts[0] in LIBRARY_HOMES and not within(relative, LIBRARY_HOMES[parts[0]]):
            found.append(f"{relative}:{line}: {parts[0]} is known only in {LIBRARY_HOMES[parts[0]]}")
        if parts[:2] == ["tensorflow", "python"] and relative != PRIVATE_HOME:
            found.append(f"{relative}:{line}: {module} is private; only {PRIVATE_HOME} may use it")
    if relative != PRIVATE_HOME:
        found += [f"{relative}: mentions the private name {name}" for name in PRIVATE_WORDS if name in text]
    found += [f"{relative}: reaches outside the repository"] if "../shared" in text else []
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_file_respects_the_layers(path: Path) -> None:
    assert violations(path, path.read_text()) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("runtime/cache.py", "from ..compiler import ir"),
        ("runtime/cache.py", "from .. import compiler"),
        ("compiler/cpu/gemm/emit.py", "from ....bridge.options.flags import FLAGS"),
        ("compiler/client/client.py", "import tfbridge.bridge"),
        ("compiler/ir/module.py", "import tensorflow as tf"),
        ("compiler/ir/module.py", "import importlib\nimportlib.import_module('tensorflow')"),
        ("compiler/passes/fuse.py", "import llvmlite.binding"),
        ("bridge/api/jit.py", "from tensorflow.python.eager import context"),
        ("bridge/api/jit.py", "x = tf.pywrap_tfe"),
        ("bridge/api/jit.py", "from ...models import mlp"),
        ("models/zoo/mlp.py", "DATA = '../shared'"),
    ],
)
def test_a_broken_arrow_is_found(file: str, text: str) -> None:
    assert len(violations(ROOT / file, text)) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("compiler/client/client.py", "from ...runtime.code.artifact import Artifact"),
        ("compiler/cpu/gemm/emit.py", "import llvmlite.binding"),
        ("runtime/code/linker.py", "import llvmlite.binding"),
        ("bridge/tf_internals/symbols.py", "from tensorflow.python import pywrap_tfe"),
        ("models/zoo/mlp.py", "import tfbridge\nimport tensorflow as tf"),
    ],
)
def test_a_right_arrow_passes(file: str, text: str) -> None:
    assert violations(ROOT / file, text) == []


def test_folders_import_what_they_may() -> None:
    assert set().union(*(broken_edges(path, path.read_text()) for path in FILES)) == TO_CUT


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("compiler/ir/shape.py", "from ..ops import Dot"),
        ("compiler/ir/module_attributes.py", "from ..hlo_text.printer import print_module"),
        ("compiler/ir/verifier.py", "from ..passes.fuse import fuse"),
        ("compiler/ops/dot.py", "from ..analysis.trip_count import runs"),
        ("compiler/ops/docs_table.py", "from ..client.client import LocalClient"),
        ("compiler/analysis/trip_count.py", "from ..passes.fuse import fuse"),
        ("compiler/evaluator/evaluator.py", "from ..passes.fuse import fuse"),
        ("compiler/evaluator/evaluate.py", "from ..client.client import LocalClient"),
        ("compiler/passes/fuse.py", "from ..hlo_text.parser import parse_hlo"),
        ("compiler/passes/fuse.py", "from ..cpu.output_fusion import emit_output_fusion"),
        ("compiler/passes/rules/rule.py", "from ...builder.computation_builder import ComputationBuilder"),
        ("compiler/passes/fold_constants.py", "from ..evaluator.evaluate import evaluate"),
        ("compiler/builder/core.py", "from ..passes.simplify import simplify"),
        ("compiler/hlo_text/parser.py", "from ..passes.simplify import simplify"),
        ("compiler/client/client.py", "from ..cpu.compile import compile_module"),
        ("compiler/cpu/compile.py", "from ..hlo_text.parser import parse_hlo"),
        ("compiler/__main__.py", "from .cpu.compile import compile_module"),
        ("bridge/api/jit.py", "from ...compiler.cpu.compile import compile_module"),
        ("bridge/tf_internals/symbols.py", "from ..graph.graph import Graph"),
        ("bridge/options/flags.py", "from ..api import import_hook"),
        ("bridge/graph/graph.py", "from ..analysis.trip_count import bounds"),
        ("bridge/functionalize/functionalize.py", "from ..translate.registry import translations"),
        ("bridge/launch/fallback.py", "from ..cluster.cluster import Cluster"),
        ("bridge/analysis/trip_count.py", "from ..translate.node import Node"),
        ("bridge/translate/node.py", "from ..cluster.cluster import Cluster"),
        ("bridge/clustering/rewrite_graph.py", "from ..dispatch import tf_function_hook"),
        ("bridge/cluster/cluster_module.py", "from ..clustering import rewrite_graph"),
        ("bridge/dispatch/call_plan.py", "from ..api.jit import Jit"),
        ("bridge/api/jit.py", "from ..aot.build import compile"),
        ("bridge/aot/build.py", "from ..launch.op import OP"),
        ("bridge/aot/writers/extras.py", "from ..freeze import Frozen"),
        ("bridge/public/aot.py", "from tfbridge.bridge.launch.op import register"),
    ],
)
def test_a_forbidden_import_of_a_folder_is_found(file: str, text: str) -> None:
    assert len(broken_edges(ROOT / file, text)) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("compiler/passes/rules/rule.py", "from ...ir.module import make\nfrom ...errors import ShapeError"),
        ("compiler/passes/fold_constants.py", "from ..evaluator.evaluator import apply_computation"),
        ("compiler/cpu/gemm/emit.py", "from ..codegen.kernel_info import KernelInfo"),
        ("compiler/ir/verifier.py", "from .module import Module"),
        ("bridge/api/jit.py", "from ...compiler.client.platforms import platform"),
        ("bridge/clustering/rewrite_graph.py", "from ..functionalize.functionalize import functionalize"),
        ("bridge/analysis/trip_count.py", "from ..translate.registry import translations"),
    ],
)
def test_an_import_of_a_folder_below_passes(file: str, text: str) -> None:
    assert broken_edges(ROOT / file, text) == set()


def late_imports(path: Path) -> Iterator[tuple[str, str]]:
    """(file, imported module as it is written) of every import inside a function."""
    relative = path.relative_to(ROOT).as_posix()
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                yield from ((relative, name.name) for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield relative, "." * node.level + (node.module or "")


def test_imports_stand_at_the_top() -> None:
    assert {late for path in FILES for late in late_imports(path)} == LATE_IMPORTS.keys()


def test_the_root_holds_the_face_and_the_command() -> None:
    assert sorted(path.name for path in ROOT.glob("*.py")) == ["__init__.py", "__main__.py"]


def test_the_root_holds_no_other_folder() -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in ROOT.glob("[a-z]*/**/*.py")}
    assert folders - {"build", "out"} == {*LAYERS, "tests", "docs", "packaging"}


def test_names_of_test_files_are_unique() -> None:
    """pytest imports them without packages, by their names alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_every_package_is_listed() -> None:
    tomllib = pytest.importorskip("tomllib")

    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    present = {".".join(("tfbridge", *path.relative_to(ROOT).parent.parts)) for path in FILES}
    assert set(listed) == present | {"tfbridge"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("tfbridge", "tensorflow"),
        ("tfbridge", "llvmlite"),
        ("tfbridge.runtime", "tensorflow"),
        ("tfbridge.compiler", "tensorflow"),
    ],
)
def test_import_stays_light(module: str, absent: str) -> None:
    program = f"import sys, {module}; sys.exit({absent!r} in sys.modules)"
    assert run_python(program).returncode == 0
