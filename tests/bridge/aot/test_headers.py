"""What headers check and say: the version, the hash, addresses of arrays, and weights outside of the object."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
import tfbridge
from test_object_options import link_test, needs, network
from test_targets import OPTIONS, PROGRAMS
from tfbridge.runtime.run_context import ABI_VERSION, FIELDS


@pytest.fixture(scope="module")
def model() -> keras.Model:
    return network()


def test_weights_in_c_source(model: keras.Model, tmp_path: Path) -> None:
    extras = ["test", "benchmark", "cmake"]
    files = tfbridge.aot.compile(model, out_dir=tmp_path, large_constants="source", extras=extras)
    assert files.constants_file is not None and files.constants_file.name == "net_weights.c"
    assert files.constants_file.stat().st_size > 2 * files.constants_bytes > 20_000
    section = '-DNET_WEIGHTS_SECTION=".weights"'
    subprocess.run([link_test(tmp_path, section, files.constants_file)], check=True)
    # The array has the number of the compilation in its name: other weights do not link.
    other = tfbridge.aot.compile(
        network(), out_dir=tmp_path / "other", large_constants="source", extras=["test"]
    )
    command = [
        "cc",
        tmp_path / "net_test.c",
        tmp_path / "net.o",
        other.constants_file,
        "-lm",
        "-o",
        tmp_path / "p",
    ]
    stale = subprocess.run(command, capture_output=True, text=True, check=False)
    assert stale.returncode and re.search("undefined reference to `net_weights_[0-9a-f]{16}'", stale.stderr)
    for options, message in (
        ({"format": "shared"}, "linked without the C source"),
        ({"extras": ["rust"]}, "'rust' does not compile the C source"),
    ):
        with pytest.raises(ValueError, match=message):
            tfbridge.aot.compile(model, out_dir=tmp_path, large_constants="source", **options)


def test_abi_version_follows_the_run_context() -> None:
    """Whoever changes what headers and objects agree about gives it a new number, and changes this."""
    fields = [(name, offset, type_.__name__) for name, offset, type_ in FIELDS]
    assert ABI_VERSION == 1 and len(fields) == 14 and fields[-1] == ("sizes", 88, "c_void_p")


def test_headers_of_other_versions(model: keras.Model, tmp_path: Path) -> None:
    needs("cc")
    files = tfbridge.aot.compile(model, out_dir=tmp_path)
    header = files.header.read_text()
    description = json.loads(files.description.read_text())
    assert f'#define NET_HASH "{description["hash"]}"' in header and description["abi"] == ABI_VERSION
    older = header.replace(f"TFBRIDGE_RUNTIME {ABI_VERSION}", "TFBRIDGE_RUNTIME 0").replace("NET_H", "OLD_H")
    (tmp_path / "old.h").write_text(older)
    (tmp_path / "main.c").write_text('#include "old.h"\n#include "net.h"\n')
    command = ["cc", "-fsyntax-only", tmp_path / "main.c"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (
        process.returncode
        and "net.h and a header before it are from incompatible versions of tfbridge" in process.stderr
    )


MISPLACED = """
#include <stdio.h>
#include "net.h"

int main(void) {
    static double room[64];
    net_model *model = net_new();
    float *result = net_result0(model);
    model->args[0] = (const char *)model->args[0] + 2;
    if (!net_run(model)) return 1;
    puts(net_error_message(model));
    model->args[0] = NULL;
    if (!net_run(model)) return 1;
    puts(net_error_message(model));
    model->args[0] = net_arg0(model) ? NULL : room;
    model->results[0] = (char *)result + 1;
    if (!net_run(model)) return 1;
    puts(net_error_message(model));
    model->results[0] = result;
    model->temp = (char *)model->temp + 8;
    if (!net_run(model)) return 1;
    puts(net_error_message(model));
    return 0;
}
"""


def test_addresses_of_arrays_are_checked(tmp_path: Path) -> None:
    needs("cc")
    files = tfbridge.aot.compile(tf.tanh, tf.TensorSpec((8,)), name="net", out_dir=tmp_path)
    (tmp_path / "main.c").write_text(MISPLACED)
    subprocess.run(["cc", tmp_path / "main.c", files.object_file, "-lm", "-o", tmp_path / "p"], check=True)
    output = subprocess.run([tmp_path / "p"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert output == [
        "arg0 is NULL or not aligned to 4 bytes",
        "arg0 is NULL or not aligned to 4 bytes",
        "result0 is NULL or not aligned to 4 bytes",
        "the model has no memory, or temp is not aligned to 64 bytes",
    ]


FLAGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wcast-qual", "-Wundef", "-Werror")


@pytest.mark.parametrize(
    "name, place",
    [
        ("streaming", "source"),
        ("classifier", "file"),
        ("network", "object"),
        ("varying", "file"),
        ("elements", "object"),
    ],
)
def test_headers_have_no_warnings(name: str, place: str, tmp_path: Path) -> None:
    """In C99 and C++11, by gcc and clang, hosted and not; with sizes without bounds and weights outside, too."""
    needs("gcc")
    function, specs = PROGRAMS[name]
    options: dict[str, Any] = {"large_constants": place, "threads": 2} | OPTIONS.get(name, {})
    if name == "varying":
        options["feeds"] = {"arg0": "?x8x8x2", "arg1": "?n"}
    tfbridge.aot.compile(function, *specs, name="net", out_dir=tmp_path, **options)
    source = tmp_path / "main.c"
    source.write_text('#include "net.h"\nint main(void) { return 0; }\n')
    for compiler in filter(shutil.which, ("gcc", "clang")):
        for hosted in ((), ("-ffreestanding",)):
            subprocess.run([compiler, "-std=c99", *FLAGS, *hosted, "-fsyntax-only", source], check=True)
            command = [compiler, "-x", "c++", "-std=c++11", *FLAGS, "-Wold-style-cast"]
            subprocess.run([*command, *hosted, "-fsyntax-only", source], check=True)
