"""The flags and the options: what is read, what is refused, and that each changes what it says."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from run_python import run_python
from tfbridge.bridge.cluster.cluster_compiler import compile_cluster
from tfbridge.bridge.cluster.code_key import code_key
from tfbridge.bridge.clustering.reports import recent_reports
from tfbridge.bridge.launch import cluster_registry
from tfbridge.bridge.options import flags
from tfbridge.bridge.options.jit_options import DEFAULT_OPTIONS, current, from_text, merged, to_text
from tfbridge.compiler import UnsupportedError, array, budget
from tfbridge.compiler.client.platforms import native
from tfbridge.runtime.code import disk_cache

ROOT = Path(__file__).resolve().parents[3]


# -- reading


def test_unset_flags_have_their_defaults() -> None:
    assert flags.read({}) == {flag.name: flag.default for flag in flags.FLAGS}
    assert flags.read({"TFBRIDGE_LOG": "", "PATH": "x"})["LOG"] == frozenset()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("AUTO_JIT", "1", True),
        ("MIN_CLUSTER_SIZE", "7", 7),
        ("DENY_OPS", "MatMul, Relu", {"MatMul", "Relu"}),
        ("THREADS", "3", 3),
        ("NUMERICS", "fast", "fast"),
        ("DISK_CACHE", "0", False),
        ("CACHE_DIR", "/x", "/x"),
        ("MAX_CACHE_BYTES", "3M", 3 << 20),
        ("COMPILE_SECONDS", "0", 0),
        ("COMPILE_INSTRUCTIONS", "500", 500),
        ("COMPILE_MEGABYTES", "64", 64),
        ("COMPILE_WORKERS", "1", True),
        ("DUMP", "/y", "/y"),
        ("REPORT", "/z", "/z"),
        ("LOG", "fusion,compiles", {"fusion", "compiles"}),
    ],
)
def test_flag_is_read(name: str, text: str, value: object) -> None:
    assert flags.read({flags.PREFIX + name: text})[name] == value


@pytest.mark.parametrize(("auto_jit", "mode"), [("", 1), ("0", 0), ("2", 2)])
def test_a_report_switches_auto_clustering_on_unless_that_is_set(auto_jit: str, mode: int) -> None:
    assert flags.read({"TFBRIDGE_REPORT": "/z", "TFBRIDGE_AUTO_JIT": auto_jit})["AUTO_JIT"] == mode


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("AUTO_JIT", "yes"),
        ("MIN_CLUSTER_SIZE", "0"),
        ("THREADS", "-1"),
        ("THREADS", "two"),
        ("NUMERICS", "quick"),
        ("MAX_CACHE_BYTES", "M"),
        ("LOG", "everything"),
    ],
)
def test_malformed_value_is_named_with_what_is_allowed(name: str, text: str) -> None:
    flag = next(flag for flag in flags.FLAGS if flag.name == name)
    with pytest.raises(flags.FlagError) as error:
        flags.read({flag.variable: text})
    assert str(error.value) == f"{flag.variable}={text!r}: allowed are {flag.allowed}"


def test_unknown_flag_suggests_the_nearest() -> None:
    with pytest.raises(flags.FlagError, match="TFBRIDGE_AUTO_JTI: .* did you mean TFBRIDGE_AUTO_JIT?"):
        flags.read({"TFBRIDGE_AUTO_JTI": "1"})
    with pytest.raises(flags.FlagError, match="there are .*TFBRIDGE_THREADS"):
        flags.read({"TFBRIDGE_XQZ": "1"})


def test_readme_has_the_table() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.partition("<!-- flags -->\n")[2].partition("\n<!-- /flags -->")[0] == flags.markdown()


def test_command_prints_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert flags.main() == 0
    printed = capsys.readouterr().out
    assert all(flag.variable in printed and flag.allowed in printed for flag in flags.FLAGS)


def test_flags_reach_compiler_and_cache() -> None:
    program = """
from tfbridge.compiler.options import DEFAULT_OPTIONS as o
from tfbridge.runtime.code import disk_cache
c = disk_cache.default()
print(o.threads, o.numerics, o.dump_dir, c.directory, c.limit_bytes, c.enabled, o.compile_seconds,
      o.compile_instructions, o.compile_megabytes)
"""
    done = run_python(
        program,
        TFBRIDGE_COMPILE_SECONDS="5",
        TFBRIDGE_COMPILE_INSTRUCTIONS="70",
        TFBRIDGE_COMPILE_MEGABYTES="9",
        TFBRIDGE_THREADS="3",
        TFBRIDGE_NUMERICS="fast",
        TFBRIDGE_DUMP="/d",
        TFBRIDGE_CACHE_DIR="/c",
        TFBRIDGE_MAX_CACHE_BYTES="5K",
        TFBRIDGE_DISK_CACHE="0",
    )
    assert done.stdout.split() == ["3", "fast", "/d", "/c", "5120", "False", "5", "70", "9"], done.stderr


def test_unknown_flag_is_an_error_at_import() -> None:
    done = run_python("import tfbridge", TFBRIDGE_THREAD="3")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("there is no such flag; did you mean TFBRIDGE_THREADS?")


# -- options


def test_inner_options_rule() -> None:
    with tfbridge.options(threads=1, numerics="fast"):
        with tfbridge.options(numerics="reproducible"):
            assert (current().threads, current().numerics) == (1, "reproducible")
            assert current({"threads": 4}).threads == 4
        assert current().numerics == "fast"
    assert current() == DEFAULT_OPTIONS


@pytest.mark.parametrize(
    ("chosen", "error", "message"),
    [
        ({"thread": 1}, TypeError, "did you mean 'threads'?"),
        ({"dump_dir": "x"}, TypeError, "there are threads, "),
        ({"threads": "2"}, TypeError, "threads: '2' is no whole number"),
        ({"threads": -1}, ValueError, "threads: -1 is negative"),
        ({"numerics": "exact"}, ValueError, "numerics: 'exact' is none of tf, fast, reproducible"),
        ({"deny_ops": "MatMul"}, TypeError, "deny_ops: 'MatMul' is no list"),
        ({"min_cluster_size": 0}, ValueError, "min_cluster_size: 0 is not positive"),
        ({"compile_seconds": -1}, ValueError, "compile_seconds: -1 is negative"),
        ({"compile_instructions": 1.5}, TypeError, "compile_instructions: 1.5 is no whole number"),
    ],
)
def test_wrong_option_is_refused(chosen: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as in_block, tfbridge.options(**chosen):
        pass
    with pytest.raises(error) as at_function:
        tfbridge.jit(tf.nn.relu, **chosen)
    assert message in str(in_block.value)
    assert message in str(at_function.value)


def test_options_survive_in_a_graph() -> None:
    chosen = {"deny_ops": frozenset({"Relu", "MatMul"}), "threads": 2}
    assert from_text(to_text(chosen)) == chosen
    assert to_text({}) == ""
    assert merged(
        [chosen, {"deny_ops": frozenset({"Exp"}), "threads": 4, "numerics": "tf"}, {"numerics": "fast"}]
    ) == {"deny_ops": {"Relu", "MatMul", "Exp"}, "threads": 2, "numerics": "tf"}
    assert merged([{"compile_seconds": 0}, {"compile_seconds": 9}, {"compile_seconds": 7}]) == {
        "compile_seconds": 7
    }


def cluster_of(function: tfbridge.jit, *args: tf.Tensor) -> object:
    return function.direct_cluster(function.get_concrete_function(*args))


def test_threads_and_numerics_reach_the_code() -> None:
    x = tf.ones((4, 5))
    function = tfbridge.jit(lambda x: tf.exp(x) * 2, threads=1, numerics="fast")
    function(x)
    cluster = cluster_of(function, x)
    (executable,) = cluster.code.executables.values()
    assert executable.artifact.threads == 1
    assert cluster.options.numerics == "fast"


def test_options_are_part_of_the_fingerprint_but_directories_are_not() -> None:
    assert current({"threads": 1}).fingerprint() != current({"threads": 2}).fingerprint()
    assert current({"numerics": "fast"}).fingerprint() != current().fingerprint()
    assert current({"cache_dir": "/x", "max_cache_bytes": 9}).fingerprint() == current().fingerprint()


def test_cache_dir_of_a_function(tmp_path: Path) -> None:
    function = tfbridge.jit(lambda x: tf.sin(x) * 2 + 1, cache_dir=tmp_path / "mine", max_cache_bytes=1 << 20)
    function(tf.ones(6))
    assert [path.suffix for path in (tmp_path / "mine").iterdir()] == [".artifact"]
    assert disk_cache.at(str(tmp_path / "mine"), 1 << 20).limit_bytes == 1 << 20
    assert disk_cache.at() is disk_cache.default()


def test_denied_op_runs_in_tensorflow_and_the_rest_is_compiled() -> None:
    x = tf.constant(np.linspace(-2, 2, 12).reshape(3, 4), tf.float32)

    def body(x: tf.Tensor) -> tf.Tensor:
        return tf.exp(tf.nn.softmax(tf.sin(x) * 2) + 1)

    before = recent_reports()
    function = tfbridge.jit(body, deny_ops=["Softmax"])
    np.testing.assert_allclose(function(x), body(x), rtol=1e-6)
    (report,) = recent_reports(before)
    assert report.unclustered == {"Softmax": ("Softmax", "the option deny_ops names it")}
    assert [cluster_registry.counters(c.key).runs for c in report.clusters] == [1, 1]


def test_min_cluster_size_of_a_block_and_of_auto_clustering() -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        return tf.exp(tf.sin(x) * 2)

    def clusters() -> int:
        before = recent_reports()
        tf.function(body)(tf.ones(3))
        return sum(len(report.clusters) for report in recent_reports(before))

    try:
        tfbridge.enable_auto_clustering()
        assert clusters() == 0  # three ops, and four are the least
        with tfbridge.options(min_cluster_size=3):
            assert clusters() == 1
        tfbridge.enable_auto_clustering(min_cluster_size=2)
        assert clusters() == 1
    finally:
        tfbridge.disable_auto_clustering()


# -- the budget of a compilation


def dear(x: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.exp(tf.sin(x) * 2) + tf.cos(x), axis=1)


def test_beyond_the_budget_tensorflow_runs_the_cluster(tmp_path: Path) -> None:
    tfbridge.reset_stats()
    function = tfbridge.jit(lambda x: dear(x), compile_instructions=3, cache_dir=tmp_path)
    for x in (tf.ones((2, 3)), tf.ones((4, 5)), tf.ones((2, 3))):
        np.testing.assert_allclose(function(x), dear(x), rtol=1e-6)
    assert any(
        "BudgetError: the module has more than compile_instructions=3" in why
        for why in tfbridge.stats()["ops_left_out"]
    )
    assert tfbridge.stats()["clusters_compiled"] == 0
    assert "compile_instructions=3" in str(tfbridge.explain(function, tf.ones((2, 3))))
    again = tfbridge.jit(lambda x: dear(x))  # the same ops, with the default budget
    np.testing.assert_allclose(again(x), dear(x), rtol=1e-6)
    assert tfbridge.stats()["clusters_compiled"] == 1


def test_beyond_the_memory_tensorflow_runs_the_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tfbridge.reset_stats()
    sizes = itertools.count(1 << 30, 1 << 20)
    monkeypatch.setattr(budget, "resident_bytes", lambda: next(sizes))
    monkeypatch.setattr(budget, "_SAMPLE_SECONDS", 0)
    function = tfbridge.jit(lambda x: dear(x) * 3, compile_megabytes=2, cache_dir=tmp_path)
    np.testing.assert_allclose(function(tf.ones((2, 3))), dear(tf.ones((2, 3))) * 3, rtol=1e-6)
    assert any(
        "BudgetError: memory grew by more than compile_megabytes=2 (in " in why
        for why in tfbridge.stats()["ops_left_out"]
    )
    assert "compile_megabytes=2" in str(tfbridge.explain(function, tf.ones((2, 3))))
    again = tfbridge.jit(lambda x: dear(x) * 3, compile_megabytes=0)
    np.testing.assert_allclose(again(tf.ones((2, 3))), dear(tf.ones((2, 3))) * 3, rtol=1e-6)
    assert tfbridge.stats()["clusters_compiled"] == 1


def test_beyond_the_budget_a_strict_function_raises() -> None:
    with tfbridge.options(compile_instructions=3):
        function = tfbridge.jit(lambda x: dear(x) + 1, strict=True)
        for x in (tf.ones((2, 3)), tf.ones((2, 3)), tf.ones((4, 5))):
            with pytest.raises(UnsupportedError, match="BudgetError: the module has more"):
                function(x)


def test_the_budget_of_a_cluster_is_spent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    function = tfbridge.jit(
        tf.function(lambda x: dear(x) - 1, input_signature=[tf.TensorSpec([None, 3])]), compile_instructions=3
    )
    cluster = cluster_of(function, tf.ones((2, 3)))
    assert compile_cluster(cluster, [array("f32", 2, 3)], {}) is None
    monkeypatch.setattr(native(), "load_artifact", None)
    assert compile_cluster(cluster, [array("f32", 5, 3)], {}) is None
    assert "BudgetError" in cluster.code.reason(code_key([array("f32", 5, 3)], {}))


# -- the log


def test_recompile_says_what_changed(caplog: pytest.LogCaptureFixture) -> None:
    function = tfbridge.jit(
        tf.function(
            lambda x, n: tf.fill([n], 2.0) * tf.reduce_sum(x),
            input_signature=[tf.TensorSpec([None, 2]), tf.TensorSpec([], tf.int32)],
        )
    )
    with caplog.at_level(logging.INFO, "tfbridge.recompiles"):
        function(tf.ones((3, 2)), tf.constant(4))
        assert caplog.messages == []
        function(tf.ones((5, 2)), tf.constant(4))
        function(tf.ones((5, 2)), tf.constant(7))
    shape, value = caplog.messages
    assert shape.endswith(": x was f32[3,2], is f32[5,2] (axis 0)")
    assert value.endswith(": the value of n changed, which decides shapes or axes")
