"""Ahead-of-time code for sizes that change, called from C, against TensorFlow."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

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
    int status, k;
    model_model *model = model_new({most});
    if (!model) return -2;
    for (k = 0; k < MODEL_SIZES; k++) model->sizes[k] = sizes[k];
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
    is_open = any(size["most"] is None for size in described["sizes"])
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
        [size["name"] for size in described["sizes"]],
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
