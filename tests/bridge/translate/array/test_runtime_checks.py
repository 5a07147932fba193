"""Checks inside compiled code end a run with TensorFlow's error, when they are reached and do not hold."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

GOOD = np.array([0.25, 1.0, 3.0], np.float32)


def numerics(x: tf.Tensor, v: tf.Variable) -> Any:
    return tf.debugging.check_numerics(tf.math.log(x) * 2.0, "the logarithm") + 1.0


def signed_numerics(x: tf.Tensor, v: tf.Variable) -> Any:
    y = tf.raw_ops.CheckNumericsV2(tensor=tf.cast(tf.math.log(x), tf.bfloat16), message="the logarithm")
    return tf.cast(y, tf.float32) * 2.0


def positive(x: tf.Tensor, v: tf.Variable) -> Any:
    tf.debugging.assert_positive(x, "x is no length")
    return tf.sqrt(x) * 2.0


def constants_in_message(x: tf.Tensor, v: tf.Variable) -> Any:
    tf.debugging.Assert(tf.reduce_all(x > 0), ["limits", [0, 1, 2, 3], [0.5, 1e9], [True]], summarize=3)
    return tf.sqrt(x) * 2.0


def in_a_loop(x: tf.Tensor, v: tf.Variable) -> Any:
    for _ in tf.range(5):
        tf.debugging.assert_greater(x, -20.0, message="too small")
        x = x * 2.0
    return x


def in_a_branch(x: tf.Tensor, v: tf.Variable) -> Any:
    if tf.reduce_sum(x) < 0:
        tf.debugging.assert_greater(x, 0.0, message="in the branch")
        x = x + 1.0
    return x * 3.0


def before_an_update(x: tf.Tensor, v: tf.Variable) -> Any:
    with tf.control_dependencies([tf.debugging.assert_positive(x, "no update")]):
        v.assign_add(x)
    return v * 2.0


def of_the_new_value(x: tf.Tensor, v: tf.Variable) -> Any:
    v.assign(tf.debugging.check_numerics(v + tf.math.log(x), "the new value"))
    return v * 2.0


PROGRAMS: tuple[Callable[..., Any], ...] = (
    numerics,
    signed_numerics,
    positive,
    constants_in_message,
    in_a_loop,
    in_a_branch,
    before_an_update,
    of_the_new_value,
)
BAD: dict[str, list[Any]] = {
    "numerics": [[0, 1, 2], [-1, 1, 2], [0, -1, 2]],
    "signed_numerics": [[0, 1, 2], [np.inf, 1, 2], [0, -1, 2], [0, -1, np.inf], [-1, 1, 1]],
}


def with_variable(program: Callable[..., Any], v: tf.Variable) -> Callable[[tf.Tensor], Any]:
    def function(x: tf.Tensor) -> Any:
        return program(x, v)

    return function


def outcome(function: Any, v: tf.Variable, values: Any) -> Any:
    """(results or the message's beginning, the variable's content after the call)."""
    v.assign([1.0, 2.0, 3.0])
    try:
        found = function(tf.constant(values, tf.float32)).numpy().tolist()
    except tf.errors.InvalidArgumentError as error:
        found = re.search(r"(assertion failed: .*|the \w+ ?\w* : Tensor had.*values)", str(error))[1]  # type: ignore
        found = re.sub(r"\[(f32\[3\]|-?[\d.]+ -?[\d.]+ -?[\d.]+)\]", "[numbers]", found).removesuffix(
            " [Op:TfbridgeLaunch]"
        )
    return found, v.numpy().tolist()


@pytest.mark.parametrize("way", ["jit", "strict", "flag"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_error_is_tensorflows(program: Callable[..., Any], way: str, request: pytest.FixtureRequest) -> None:
    v = tf.Variable([1.0, 2.0, 3.0])
    calls = [GOOD, *BAD.get(program.__name__, [[-1.0, -2.0, -3.0]]), GOOD]
    plain = tf.function(with_variable(program, v))
    expected = [outcome(plain, v, values) for values in calls]
    assert any(isinstance(found, str) for found, _ in expected)
    if way == "flag":
        request.getfixturevalue("clustering")
        compiled: Any = tf.function(with_variable(program, v))
    else:
        compiled = tfbridge.jit(with_variable(program, v), strict=way == "strict")
    tfbridge.reset_stats()
    for values, (result, content) in zip(calls, expected, strict=True):
        given, after = outcome(compiled, v, values)
        if isinstance(result, str):
            assert given == result
        else:
            np.testing.assert_allclose(given, result, 1e-5)
        np.testing.assert_allclose(after, content, 1e-5)
    counters = tfbridge.stats()
    assert counters["fallbacks"] == 0
    assert counters["clusters_compiled"] > 0


def test_exported_code_reports_a_check(tmp_path: Path) -> None:
    """The object stands alone, and its run gives the message."""
    function = tf.function(lambda x: numerics(x, None), input_signature=[tf.TensorSpec([3], tf.float32)])
    tfbridge.aot.compile(function, name="model", out_dir=tmp_path)
    (tmp_path / "main.c").write_text("""
#include <stdio.h>
#include "model.h"
int main(void) {
    model_model *model = model_new();
    for (int k = 0; k < 2; ++k) {
        for (int i = 0; i < 3; ++i) model_arg0(model)[i] = k ? (float)i : 1.0f;
        int status = model_run(model);
        printf("%d %s\\n", status, status ? model_error_message(model) : "done");
    }
    model_free(model);
    return 0;
}
""")
    program = tmp_path / "program"
    subprocess.run(["gcc", "-o", program, tmp_path / "main.c", tmp_path / "model.o", "-lm"], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed == ["0 done", "3 the logarithm : Tensor had Inf values"]
