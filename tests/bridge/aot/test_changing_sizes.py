"""Ahead-of-time code for sizes that change, called from C, against TensorFlow."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.compiler.errors import ShapeError, UnsupportedError

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
SIZES = (0, 1, 2, 3, 5, 8, 17, 33)
RANDOM = np.random.default_rng(7)
EXACT = 1e-4  # sums in another order

# Runs a model in memory for exactly the sizes told, and copies arrays by the header's byte counts.
LIBRARY = """
#include "model.h"
int run(const int64_t *sizes, const void *const *args, void *const *results, int64_t *dims, char *message);
int run(const int64_t *sizes, const void *const *args, void *const *results, int64_t *dims, char *message) {{
    int status, k = 0;
    model_model *model = model_new({most});
    if (!model) return -2;
#ifdef MODEL_SIZES
    for (k = 0; k < MODEL_SIZES; k++) model->sizes[k] = sizes[k];
#endif
    (void)k, (void)sizes;
{read}
    status = model_run(model);
    memcpy(message, model->error, sizeof model->error);
    if (status == 0) {{
{write}
    }}
    model_free(model);
    return status;
}}
"""


def weights(*dims: int) -> tf.Tensor:
    return tf.constant(RANDOM.normal(size=dims).astype("f4") * 0.3)


@dataclasses.dataclass
class Linked:
    """A model in a shared library. ranks: of its results."""

    function: Any
    names: list[str]
    dtypes: list[str]
    ranks: list[int]

    def __call__(self, sizes: Mapping[str, int], *args: np.ndarray) -> list[np.ndarray] | str:
        """The results, or the message of a run that fails."""
        room = 1 << 22
        outs = [np.full(room, 0xAB, np.uint8) for _ in self.ranks]
        dims, message = np.zeros(64, np.int64), ctypes.create_string_buffer(256)
        status = self.function(
            (ctypes.c_int64 * max(1, len(self.names)))(*(sizes[n] for n in self.names)),
            (ctypes.c_void_p * max(1, len(args)))(*(a.ctypes.data for a in args)),
            (ctypes.c_void_p * len(outs))(*(o.ctypes.data for o in outs)),
            dims.ctypes.data_as(ctypes.c_void_p),
            message,
        )
        if status:
            assert all((o == 0xAB).all() for o in outs)
            return message.value.decode()
        results, at = [], 0
        for out, dtype, rank in zip(outs, self.dtypes, self.ranks):
            shape = dims[at : at + rank].tolist()
            at += rank
            count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            results.append(out[:count].view(dtype).reshape(shape))
        return results


def linked(folder: Path, function: Any, *specs: Any, feeds: Mapping[str, Any], **options: Any) -> Linked:
    """Compiles a function and links it."""
    tfbridge.aot.compile(function, *specs, feeds=feeds, name="model", out_dir=folder, **options)
    described = json.loads((folder / "model.json").read_text())
    arguments, results = described["arguments"], described["results"]
    read = [
        f"    memcpy(model_arg{k}(model), args[{k}], {_bytes('arg', k, a)});" for k, a in enumerate(arguments)
    ]
    write, at = [], 0
    for k, result in enumerate(results):
        write.append(f"        memcpy(results[{k}], model_result{k}(model), {_bytes('result', k, result)});")
        for axis, dim in enumerate(result["dims"]):
            value = f"model_result{k}_dim(sizes, {axis})" if _changes(result) else str(dim)
            write.append(f"        dims[{at}] = {value};")
            at += 1
    is_open = any(size["most"] is None for size in described.get("sizes", []))
    text = LIBRARY.format(most="sizes" if is_open else "", read="\n".join(read), write="\n".join(write))
    (folder / "library.c").write_text(text)
    library = folder / "library.so"
    subprocess.run(
        ["gcc", "-std=c99", *STRICT, "-shared", "-fPIC", folder / "library.c", folder / "model.o"]
        + ["-lm", "-o", library],
        check=True,
    )
    return Linked(
        ctypes.CDLL(str(library)).run,
        [size["name"] for size in described.get("sizes", [])],
        [result["dtype"] for result in results],
        [len(result["dims"]) for result in results],
    )


def _changes(array: Mapping[str, Any]) -> bool:
    return any(isinstance(dim, str) for dim in array["dims"])


def _bytes(word: str, number: int, array: Mapping[str, Any]) -> str:
    return f"model_{word}{number}_bytes(sizes)" if _changes(array) else f"MODEL_{word.upper()}{number}_BYTES"


def check(
    model: Linked, function: Callable[..., Any], sizes: Mapping[str, int], *dims: Sequence[int]
) -> None:
    """Compares with TensorFlow for arguments of these dims."""
    args = [RANDOM.normal(size=d).astype("f4") for d in dims]
    results = model(sizes, *args)
    assert not isinstance(results, str), (sizes, results)
    wanted = tf.nest.flatten(function(*map(tf.constant, args)))
    for result, expected in zip(results, wanted, strict=True):
        assert result.shape == tuple(expected.shape), sizes
        np.testing.assert_allclose(result, expected.numpy(), rtol=EXACT, atol=EXACT, err_msg=str(sizes))


def test_a_dense_layer_of_any_batch(tmp_path: Path) -> None:
    w = weights(20, 5)

    def dense(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(x @ w)

    model = linked(tmp_path, dense, tf.TensorSpec((None, 20), name="x"), feeds={"x": "?nx20"})
    for n in (*SIZES, 100, 1000):
        check(model, dense, {"n": n}, (n, 20))


def images(x: tf.Tensor) -> tf.Tensor:
    h = tf.nn.relu(tf.nn.conv2d(x, KERNEL, 2, "SAME"))
    return tf.nn.max_pool2d(tf.nn.conv2d(h, KERNEL2, 1, "VALID"), 2, 2, "SAME")


def classify(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax(tf.reduce_mean(images(x), [1, 2]) @ HEAD)


def attention(x: tf.Tensor) -> tf.Tensor:
    batch, length = tf.shape(x)[0], tf.shape(x)[1]
    heads = tf.transpose(tf.reshape(x @ W, [batch, length, 2, 3]), [0, 2, 1, 3])
    mixing = tf.nn.softmax(tf.matmul(heads, heads, transpose_b=True))
    mixed = tf.reshape(tf.transpose(tf.matmul(mixing, heads), [0, 2, 1, 3]), [batch, length, 6])
    return tf.nn.gelu(x + mixed) @ W / tf.cast(length, tf.float32)


def sums(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"sum": tf.reduce_sum(x, 0), "count": tf.cast(tf.shape(x)[0], tf.float32), "scan": tf.cumsum(x, 0)}


def windows(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv1d(x, WINDOW, 1, "VALID")


def pairs(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.concat([x, y], 0) @ tf.transpose(y)


def halves(x: tf.Tensor) -> tf.Tensor:
    small = tf.nn.avg_pool2d(x, 2, 2, "SAME")
    return x + tf.repeat(tf.repeat(small, 2, 1), 2, 2)


def order(x: tf.Tensor) -> tf.Tensor:
    return tf.sort(x, 0)


def systems(x: tf.Tensor) -> tf.Tensor:
    factor = tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True) + 9.0 * tf.eye(tf.shape(x)[1]))
    return tf.linalg.triangular_solve(factor, x)


def signals(x: tf.Tensor) -> tf.Tensor:
    return tf.abs(tf.signal.rfft(x))


KERNEL, KERNEL2, HEAD = weights(3, 3, 3, 8), weights(3, 3, 8, 4), weights(4, 5)
W, WINDOW = weights(6, 6), weights(5, 3, 4)

Case = tuple[Callable[..., Any], Sequence[str], Iterable[Mapping[str, int]]]
BOTH = [{"b": b, "n": n} for b in (0, 1, 2, 5) for n in (1, 2, 3, 8, 17, 40)]
CASES: dict[str, Case] = {
    "batch of images": (classify, ["?nx16x16x3"], [{"n": n} for n in SIZES[1:]]),
    # TensorFlow itself fails for no images.
    "bounded batch of images": (classify, ["?n<=5x16x16x3"], [{"n": n} for n in range(1, 6)]),
    "images of any size": (
        images,
        ["1x?hx?wx3"],
        [{"h": h, "w": w} for h in (6, 7, 16, 33) for w in (8, 21)],
    ),
    "attention": (attention, ["?bx?nx6"], BOTH),
    "bounded attention": (attention, ["?b<=5x?n<=40x6"], BOTH),
    "sums": (sums, ["?nx4"], [{"n": n} for n in SIZES]),
    "windows": (windows, ["2x?nx3"], [{"n": n} for n in (5, 6, 8, 30)]),
    "two sizes": (pairs, ["?nx4", "?mx4"], [{"n": n, "m": m} for n in (0, 1, 3, 16) for m in (0, 1, 2, 9)]),
    "even sizes": (halves, ["?n<=3x?hx?hx2"], [{"n": n, "h": h} for n in (0, 1, 2, 3) for h in (2, 4, 18)]),
    "batch of systems": (systems, ["?nx4x6"], [{"n": n} for n in SIZES]),
    "batch of signals": (signals, ["?nx48"], [{"n": n} for n in SIZES]),
    "sort": (order, ["?nx3"], [{"n": n} for n in SIZES]),
}


@pytest.mark.parametrize("name", CASES)
def test_results_of_all_sizes(name: str, tmp_path: Path) -> None:
    function, feeds, runs = CASES[name]
    dims = [[int(d) if d.isdigit() else d for d in feed.split("x")] for feed in feeds]
    specs = [tf.TensorSpec([d if isinstance(d, int) else None for d in each]) for each in dims]
    fed = {f"arg{k}": feed for k, feed in enumerate(feeds)}
    model = linked(tmp_path, tf.function(function), *specs, feeds=fed)
    for sizes in runs:
        named = [[d if isinstance(d, int) else sizes[d[1:].split("<")[0]] for d in each] for each in dims]
        check(model, function, sizes, *named)


def test_a_recurrent_layer_over_any_time(tmp_path: Path) -> None:
    layer = keras.Sequential([keras.Input((None, 4)), keras.layers.LSTM(8), keras.layers.Dense(3)])
    name = layer.inputs[0].name
    model = linked(tmp_path, layer, feeds={name: ("?b", "?t<=20", 4)})
    for batch in (1, 2, 7):
        for time in (1, 2, 5, 20):
            check(model, layer, {"b": batch, "t": time}, (batch, time, 4))


PROGRAMS = {
    "unbounded": (attention, "?bx?nx6"),
    "bounded": (attention, "?b<=4x?n<=9x6"),
    "even": (halves, "2x?hx?hx2"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_written_programs_run_several_sizes(name: str, tmp_path: Path) -> None:
    function, feed = PROGRAMS[name]
    spec = tf.TensorSpec([int(d) if d.isdigit() else None for d in feed.split("x")])
    extras = ("test", "benchmark")
    made = tfbridge.aot.compile(
        tf.function(function), spec, feeds={"arg0": feed}, name="model", out_dir=tmp_path, extras=extras
    )
    benchmark, test = sorted(made.extra_files)
    for program, arguments in ((test, []), (benchmark, ["0.01"])):
        subprocess.run(
            ["gcc", "-std=c99", *STRICT, program, made.object_file, "-lm", "-o", tmp_path / "program"],
            check=True,
        )
        shown = subprocess.run(
            [tmp_path / "program", *arguments], capture_output=True, text=True, check=False
        )
        assert shown.returncode == 0, shown.stdout
    text = test.read_text()
    assert text.count("model_run(&model)") >= 2
    changed, count = re.subn(r"(wanted_model_result0_0 = \{\{\s+)\w+", r"\g<1>0x7f800000u", text)
    assert count == 1
    (tmp_path / "wrong.c").write_text(changed)
    subprocess.run(
        [
            "gcc",
            "-std=c99",
            *STRICT,
            tmp_path / "wrong.c",
            made.object_file,
            "-lm",
            "-o",
            tmp_path / "program",
        ],
        check=True,
    )
    assert subprocess.run([tmp_path / "program"], capture_output=True, check=False).returncode == 1


def test_sizes_that_are_refused_write_nothing(tmp_path: Path) -> None:
    model = linked(tmp_path, windows, tf.TensorSpec((2, None, 3)), feeds={"arg0": (2, "?n<=12", 3)})
    x = np.zeros((2, 13, 3), np.float32)
    assert model({"n": 13}, x) == model({"n": -1}, x) == "n is not between 0 and 12"
    for n in (0, 1, 4):  # a window has 5 elements
        assert (
            model({"n": n}, x)
            == "the program takes no such sizes; it takes n >= 2 and n >= 4 and 4 < n and n != 4"
        )
    check(model, windows, {"n": 12}, (2, 12, 3))


CPP_PROGRAM = """
#include <cstdio>
#include "model.h"

template <class Any> static int use(Any &model, float scale) {
    int64_t n;
    for (n = 0; n <= 3; n++) {
        model.set_size_n(n);
        if (model.arg0_elements() != size_t(4 * n) || model.result0_elements() != 4) return 1;
        const float row[12] = {scale, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
        model.set_arg0(row);
        if (n) model.arg_x(n - 1, 3) = 40;
        if (!model.run()) return 2;
        std::printf("%g %g %d;", double(model.result_sum(0)), double(model.result_sum(3)), int(model.result1_dim(0)));
    }
    model.sizes()[0] = 4;
    return model.run() || !model.error_message()[0];
}

int main() {
    MODEL
    return use(model, 1);
}
"""


@pytest.mark.parametrize(
    "feed, model",
    [
        ("?n<=3x4", "static char memory[Model::memory_bytes()]; Model model(memory);"),
        (
            "?nx4",
            "const int64_t most[] = {3}; Model model(most); if (Model::temp_bytes(most) > 4096) return 3;",
        ),
    ],
)
def test_the_class(feed: str, model: str, tmp_path: Path) -> None:
    def function(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"sum": tf.reduce_sum(x, 0), "twice": x * 2.0}

    spec = tf.TensorSpec((None, 4), name="x")
    tfbridge.aot.compile(function, spec, feeds={"x": feed}, name="model", out_dir=tmp_path)
    text = CPP_PROGRAM.replace("MODEL", model)
    (tmp_path / "main.cpp").write_text(text)
    command = ["g++", "-std=c++11", *STRICT, tmp_path / "main.cpp", tmp_path / "model.o", "-lm"]
    subprocess.run([*command, "-o", tmp_path / "program"], check=True)
    shown = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, (shown.returncode, shown.stdout)
    assert shown.stdout == "0 0 0;1 40 1;6 44 2;15 52 3;"


class Counting(tf.Module):
    """Functions that share weights, a state, and a size."""

    def __init__(self) -> None:
        self.weights = tf.Variable(weights(6, 6), name="weights")
        self.total = tf.Variable(tf.zeros(6), name="total")

    def add(self, rows: tf.Tensor) -> tf.Tensor:
        self.total.assign_add(tf.reduce_sum(rows @ self.weights, 0))
        return self.total * 2.0

    def compare(self, rows: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
        return rows @ tf.transpose(others @ self.weights) + tf.reduce_sum(self.total)

    def fixed(self, row: tf.Tensor) -> tf.Tensor:
        return row + self.total


def test_functions_share_sizes_weights_and_a_state(tmp_path: Path) -> None:
    model = Counting()
    rows = tf.TensorSpec((None, 6), name="rows")
    functions = {
        "add": (model.add, rows),
        "compare": (model.compare, rows, tf.TensorSpec((None, 6), name="others")),
        "fixed": (model.fixed, tf.TensorSpec((6,))),
    }
    feeds = {"rows": "?nx6", "compare/others": "?m<=5x6"}
    for threads, constants in ((1, "object"), (3, "file")):
        made = tfbridge.aot.compile(
            functions,
            feeds=feeds,
            name="model",
            out_dir=tmp_path,
            extras=["test"],
            threads=threads,
            large_constants=constants,
        )
        described = json.loads(made.description.read_text())
        assert [(s["name"], s["most"]) for s in described["sizes"]] == [("n", None), ("m", 5)]
        assert described["functions"]["compare"]["results"][0]["dims"] == ["n", "m"]
        command = ["gcc", "-std=c99", *STRICT, tmp_path / "model_test.c", made.object_file, "-lm"]
        subprocess.run([*command, "-o", tmp_path / "program"], check=True)
        shown = subprocess.run(
            [tmp_path / "program"], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert shown.returncode == 0, shown.stdout
        assert shown.stdout.count("add_result0") > 1


def kept(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"rows": tf.boolean_mask(x, x[:, 0] > 0), "where": tf.where(x > 0.5)}


def boxes(corners: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    ordered = tf.concat([corners, corners + 0.3], 1)
    return tf.image.non_max_suppression(ordered, scores, 5, 0.3)


@pytest.mark.parametrize(
    "function, feeds, runs",
    [
        (kept, ["12x2"], [{}]),
        (kept, ["?nx2"], [{"n": n} for n in (1, 2, 7, 40)]),
        (boxes, ["?n<=30x2", "?n"], [{"n": n} for n in (1, 3, 5, 17, 30)]),
    ],
)
def test_results_of_which_values_decide_the_rows(
    function: Callable[..., Any], feeds: list[str], runs: list[dict[str, int]], tmp_path: Path
) -> None:
    dims = [feed.split("x") for feed in feeds]
    specs = [tf.TensorSpec([int(d) if d.isdigit() else None for d in each]) for each in dims]
    fed = {f"arg{k}": feed for k, feed in enumerate(feeds) if "?" in feed}
    model = linked(tmp_path, tf.function(function), *specs, feeds=fed)
    for sizes in runs:
        args = [
            RANDOM.normal(size=[int(d) if d.isdigit() else sizes["n"] for d in each]).astype("f4")
            for each in dims
        ]
        results = model(sizes, *args)
        assert not isinstance(results, str), results
        wanted = tf.nest.flatten(function(*map(tf.constant, args)))
        counts = results[len(wanted) :]
        assert [int(count) for count in counts] == [len(each) for each in wanted]
        for result, expected in zip(results, wanted):
            np.testing.assert_array_equal(result[: len(expected)], expected.numpy())


class Growing(tf.Module):
    def __init__(self) -> None:
        self.rows = tf.Variable(tf.zeros(3), shape=tf.TensorShape(None), name="rows")

    def append(self, row: tf.Tensor) -> tf.Tensor:
        self.rows.assign(row)
        return row * 2.0


GROWING = Growing()
ERRORS: dict[
    str, tuple[Any, Sequence[Any], Mapping[str, Any], type[Exception] | tuple[type[Exception], ...], str]
] = {
    "no feed": (sums, [tf.TensorSpec((None, 4), name="rows")], {}, ShapeError, "--feed 'rows:[?]x4'"),
    "known axis": (sums, [tf.TensorSpec((3, 4))], {"arg0": "?x4"}, ShapeError, "axis 0 is [?], .* 3 there"),
    "other rank": (sums, [tf.TensorSpec((None, 4))], {"arg0": "?x?x4"}, ShapeError, "does not fit"),
    "no dim": (sums, [tf.TensorSpec((None, 4))], {"arg0": ("?<8", 4)}, ValueError, "'[?]<8' is no dim"),
    "keyword": (sums, [tf.TensorSpec((None, 4))], {"arg0": "?intx4"}, ValueError, "'int': the header"),
    "two bounds": (
        pairs,
        [tf.TensorSpec((None, 4))] * 2,
        {"arg0": "?n<=3x4", "arg1": "?n<=4x4"},
        ShapeError,
        "size n has the bounds 3 and 4",
    ),
    "names that differ in case": (
        pairs,
        [tf.TensorSpec((None, 4))] * 2,
        {"arg0": "?nx4", "arg1": "?Nx4"},
        ShapeError,
        "differ in case alone",
    ),
    "sizes that must be equal": (
        lambda x, y: x + y,
        [tf.TensorSpec((None,), name="x"), tf.TensorSpec((None,), name="y")],
        {"x": "?", "y": "?"},
        ShapeError,
        "If two of the sizes are always the same.*axis 0 of x, axis 0 of y",
    ),
    "a size that the program fixes": (
        lambda x: x + tf.constant([1.0, 2.0, 3.0]),
        [tf.TensorSpec((None,))],
        {"arg0": "?n"},
        (ShapeError, UnsupportedError),
        "no code for changing sizes n",
    ),
    "a transform of any length": (
        signals,
        [tf.TensorSpec((2, None))],
        {"arg0": "2x?n"},
        UnsupportedError,
        "an op's code is for n == 37 .* alone",
    ),
    "a state that grows": (
        GROWING.append,
        [tf.TensorSpec((None,))],
        {"arg0": "?n"},
        UnsupportedError,
        "the variable rows changes",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str, tmp_path: Path) -> None:
    function, specs, feeds, error, message = ERRORS[case]
    with pytest.raises(error, match=message):
        tfbridge.aot.compile(function, *specs, feeds=feeds, name="model", out_dir=tmp_path)
