"""Building images: compilers, errors, determinism."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from verifier.drivers import _nvrtc
from verifier.drivers._cxx import _find, find_compiler
from verifier.drivers.build import KernelUsage, build_image, compiler_id, host_target, kernel_usage
from verifier.errors import BuildError, DeviceUnavailableError

TARGETS = [host_target(), "sm_90"]


@pytest.fixture(params=TARGETS)
def target(request) -> str:
    try:
        compiler_id(request.param)
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    return request.param


@pytest.fixture(autouse=True)
def compilers_are_looked_for_anew(monkeypatch):
    monkeypatch.delenv("CXXFLAGS", raising=False)
    _find.cache_clear()
    yield
    _find.cache_clear()


def counting_compiler(folder: Path) -> tuple[str, Path]:
    """A command that runs the machine's compiler and writes a line for every run; and where the lines are."""
    real, count = find_compiler(), folder / "count"
    script = folder / ("zig" if real.family == "zig" else "c++")  # which is told by its name alone
    script.write_text(f'#!/bin/sh\necho "$@" >> {count}\nexec {" ".join(real.command)} "$@"\n')
    script.chmod(0o755)
    return str(script), count


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_build_is_what_its_digest_says(parity_files, image_cache, target):
    image = build_image(parity_files, "parity.cu", target, {}, cache=image_cache)
    assert image.target == target
    assert image.digest == hashlib.sha256(image.data).hexdigest()
    assert image.data.startswith(b"\x7fELF")


def test_the_same_input_gives_the_same_bytes(parity_files, tmp_path, target):
    images = [build_image(parity_files, "parity.cu", target, {"GROUP": 2}, cache=tmp_path / str(i)) for i in range(2)]
    assert images[0] == images[1]


@pytest.mark.parametrize(
    "command", ["g++", "clang++", f"{sys.executable} -m ziglang c++"], ids=["g++", "clang", "zig"]
)
def test_every_compiler_gives_the_same_bytes(parity_files, tmp_path, monkeypatch, command):
    if shutil.which(command.split()[0]) is None or ("ziglang" in command and not importlib.util.find_spec("ziglang")):
        pytest.skip(f"{command} is not installed")
    monkeypatch.setenv("CXX", command)
    builds = [build_image(parity_files, "parity.cu", host_target(), {}, cache=tmp_path / str(i)) for i in range(3)]
    assert builds[0] == builds[1] == builds[2]


def test_a_warm_start_compiles_nothing(parity_files, tmp_path, monkeypatch):
    command, count = counting_compiler(tmp_path)
    monkeypatch.setenv("CXX", command)
    runs = []
    for _ in range(3):
        build_image(parity_files, "parity.cu", host_target(), {}, cache=tmp_path / "images")
        compiles = [line for line in count.read_text().splitlines() if "parity.cu" in line]
        runs.append(len(compiles))
    assert runs == [1, 1, 1]


def test_a_broken_source_gives_the_compilers_log(parity_files, image_cache, target):
    broken = parity_files | {
        "sums.cuh": parity_files["sums.cuh"].replace(b"u64 sum = 0;", b"u64 sum = nothing_here;")
    }
    with pytest.raises(BuildError, match=r"(?s)parity\.cu does not compile.*sums\.cuh.*nothing_here"):
        build_image(broken, "parity.cu", target, {}, cache=image_cache)


def test_a_missing_include_is_named(parity_files, image_cache, target):
    files = {name: data for name, data in parity_files.items() if name != "sums.cuh"}
    with pytest.raises(BuildError, match=r"sums\.cuh"):
        build_image(files, "parity.cu", target, {}, cache=image_cache)


def test_includes_do_not_come_from_the_working_folder(parity_files, image_cache, target, tmp_path, monkeypatch):
    (tmp_path / "sums.cuh").write_bytes(parity_files["sums.cuh"])
    (tmp_path / "parity.cu").write_bytes(parity_files["parity.cu"])
    monkeypatch.chdir(tmp_path)
    files = {name: data for name, data in parity_files.items() if name != "sums.cuh"}
    with pytest.raises(BuildError, match=r"sums\.cuh"):
        build_image(files, "parity.cu", target, {}, cache=image_cache)


def test_macros_reach_the_source(parity_files, image_cache, target):
    files = {"m.cu": b'#if NUMBER != 7 || NAME != 3\n#error "macros are wrong"\n#endif\n'}
    build_image(files, "m.cu", target, {"NUMBER": 7, "NAME": "THREE", "THREE": 3}, cache=image_cache)
    with pytest.raises(BuildError, match="macros are wrong"):
        build_image(files, "m.cu", target, {"NUMBER": 8, "NAME": 3}, cache=image_cache)


@pytest.mark.parametrize(
    ("files", "source", "defines", "problem"),
    [
        ({}, "a.cu", {}, "source 'a.cu' is not among the files"),
        ({"a.cu": b"", "../b.cuh": b""}, "a.cu", {}, "file name '../b.cuh'"),
        ({"a.cu": b"", "d/b.cuh": b""}, "a.cu", {}, "file name 'd/b.cuh'"),
        ({"a.cu": b"", "-o": b""}, "a.cu", {}, "file name '-o'"),
        ({"a.cu": b""}, "a.cu", {"A B": 1}, "macro name 'A B'"),
        ({"a.cu": b""}, "a.cu", {"A": "1 -o /x"}, "macro A: value '1 -o /x'"),
    ],
)
def test_names_that_could_mean_something_else_are_refused(files, source, defines, problem, image_cache):
    with pytest.raises(BuildError, match=problem):
        build_image(files, source, host_target(), defines, cache=image_cache)


@pytest.mark.parametrize("name", ["sm_9", "sm_", "x86-64", "compute_9", "", "sm_90;x"])
def test_unknown_targets_are_refused(name, image_cache):
    with pytest.raises(BuildError, match="target"):
        build_image({"a.cu": b""}, "a.cu", name, {}, cache=image_cache)


def test_another_architecture_is_refused(image_cache):
    other = "x86-64-v2" if host_target() == "aarch64" else "aarch64"
    with pytest.raises(BuildError, match="cannot be built on"):
        build_image({"a.cu": b""}, "a.cu", other, {}, cache=image_cache)


def test_only_stages_are_exported_and_nothing_is_imported(parity_files, image_cache, tmp_path):
    if shutil.which("nm") is None:
        pytest.skip("nm (binutils) is not installed")
    library = tmp_path / "image.so"
    library.write_bytes(build_image(parity_files, "parity.cu", host_target(), {}, cache=image_cache).data)
    symbols = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout.split("\n")
    defined = {line.split()[-1] for line in symbols if len(line.split()) == 3}
    stages = {"parity_table", "parity_sum", "parity_decide", "parity_digest", "publish"}
    assert defined == stages | {"plugin_info", "parity_table_count"}
    imported = {line.split()[-1] for line in symbols if " U " in line}
    assert {name.partition("@")[0] for name in imported} <= {"memcpy", "memset", "memmove", "memcmp"}


def test_the_order_of_compilers(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    has_zig = []
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: (has_zig or None) if name == "ziglang" else find_spec(name)
    )
    script(tmp_path / "g++", "echo g++ 99.0 Free Software Foundation")
    assert find_compiler().family == "gcc"
    has_zig.append("ziglang")
    script(tmp_path / "python", "echo clang version 20.1")
    monkeypatch.setattr(sys, "executable", f"{tmp_path}/python")
    _find.cache_clear()
    assert find_compiler().command == (f"{tmp_path}/python", "-m", "ziglang", "c++")
    assert find_compiler().family == "zig"
    _find.cache_clear()
    script(tmp_path / "clang++", "echo some clang version 99.1")
    assert find_compiler().version == "some clang version 99.1"
    script(tmp_path / "mine", "echo mine 1.0")
    monkeypatch.setenv("CXX", f"{tmp_path}/mine --flag")
    assert find_compiler().command == (f"{tmp_path}/mine", "--flag")
    assert compiler_id(host_target()) == "mine 1.0"
    script(tmp_path / "zig", "echo clang version 20.1")
    monkeypatch.setenv("CXX", f"{tmp_path}/zig c++")
    assert find_compiler().family == "zig"


def test_the_operators_options_come_last_and_count(parity_files, image_cache, monkeypatch):
    plain = build_image(parity_files, "parity.cu", host_target(), {"GROUP": 1}, cache=image_cache)
    monkeypatch.setenv("CXXFLAGS", "-O1 -DVALID_PARITY=1")
    assert compiler_id(host_target()).endswith(" -O1 -DVALID_PARITY=1")
    assert build_image(parity_files, "parity.cu", host_target(), {"GROUP": 1}, cache=image_cache) != plain
    monkeypatch.setenv("CXXFLAGS", "--no-such-option")
    with pytest.raises(BuildError, match="no-such-option"):
        build_image(parity_files, "parity.cu", host_target(), {"GROUP": 1}, cache=image_cache)


def test_a_compiler_that_does_not_run_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ziglang" else find_spec(name))
    script(tmp_path / "clang++", "exit 1")
    script(tmp_path / "g++", "echo g++ 99.2")
    assert find_compiler().version == "g++ 99.2"


def test_without_a_compiler_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ziglang" else find_spec(name))
    with pytest.raises(DeviceUnavailableError, match=r"apt install g\+\+.*pip install 'verifier\[compiler\]'"):
        find_compiler()


def test_a_wrong_cxx_is_an_error_not_a_fallback(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(tmp_path / "nothing"))
    with pytest.raises(DeviceUnavailableError, match="CXX names does not run"):
        compiler_id(host_target())


def test_without_nvrtc_it_says_what_to_install(monkeypatch):
    class Missing:
        def nvrtcVersion(self):  # noqa: N802 - as CUDA names it
            raise RuntimeError("no library")

    monkeypatch.setattr(_nvrtc, "_nvrtc", lambda: Missing())
    with pytest.raises(DeviceUnavailableError, match=r"pip install 'verifier\[cuda\]'"):
        compiler_id("sm_90")


SPILLING = b"""
__device__ __noinline__ int far(int* p, int n) {
    int a[64];
    for (int i = 0; i < 64; i++) a[i] = p[i * n];
    return a[n];
}
extern "C" __global__ void __launch_bounds__(1024, 2) tight(float* p, int n) {
    __shared__ int shared[256];
    float a[48];
#pragma unroll
    for (int i = 0; i < 48; i++) a[i] = p[i * n];
    for (int k = 0; k < n; k++)
#pragma unroll
        for (int i = 0; i < 48; i++) a[i] = a[i] * a[(i + 7) % 48] + a[(i + 11) % 48];
    shared[threadIdx.x % 256] = (int)a[3];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 48; i++) p[i * n] = a[i] + (float)shared[i];
}
extern "C" __global__ void calls(int* p, int n) { p[0] = far(p, n); }
extern "C" __global__ void easy(int* p) { p[0] = 1; }
"""


def test_usage_of_every_kernel(image_cache):
    try:
        image = build_image({"k.cu": SPILLING}, "k.cu", "sm_90", {}, cache=image_cache)
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    usage = {kernel.name: kernel for kernel in kernel_usage(image.log)}
    assert set(usage) == {"tight", "calls", "easy"}
    assert 0 < usage["tight"].registers <= 32
    assert usage["tight"].spill_stores > 0
    assert usage["tight"].spill_loads > 0
    assert usage["tight"].shared == 1024
    assert usage["calls"].stack >= 256  # of the function that it calls
    easy = usage["easy"]
    assert easy == KernelUsage("easy", easy.registers, 0, 0, 0, 0)
    assert kernel_usage("parity.cu:1: warning: unused") == []


@pytest.mark.parametrize(
    "text",
    [
        "#include <{}>",
        '#include "{}"',
        '%:include "{}"',
        ' # /* and */ include /* or */ "{}"',
        '#define OUTSIDE "{}"\n#include OUTSIDE',
        '#incl\\\nude "{}"',
        '/* \n */ #include "{}"',
        '#include_next "{}"',
    ],
)
def test_nothing_from_elsewhere_is_compiled(tmp_path, target, text):
    """Its bytes would be in no digest."""
    outside = tmp_path / "outside.h"
    outside.write_text("#define ANSWER 42\n")
    kernel = (
        'extern "C" __global__ void f(int* p) { *p = ANSWER; }' if target == "sm_90" else "int f() { return ANSWER; }"
    )
    files = {"a.cu": b'#include "b.cuh"\n', "b.cuh": f"{text.format(outside)}\n{kernel}\n".encode()}
    with pytest.raises(BuildError, match=r"b\.cuh: include of "):
        build_image(files, "a.cu", target, {}, cache=tmp_path / "images")


def test_what_nothing_includes_may_name_any_file(tmp_path, target):
    files = {"a.cu": b"#include <stdint.h>\n" if target != "sm_90" else b"\n", "notes.md": b"#include </etc/hosts>"}
    assert build_image(files, "a.cu", target, {}, cache=tmp_path / "images").data
