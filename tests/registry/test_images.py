"""Builds beside the service: apart, bounded, and never orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from _waiting import until

from verifier.drivers.build import host_target
from verifier.errors import BuildError
from verifier.registry import PluginSource, common_folder
from verifier.registry import _images as images_module
from verifier.registry._images import Build, build_apart, images_for


@pytest.fixture
def source(make):
    return PluginSource.read(make("p"), common_folder())


def processes(what: str) -> list[int]:
    """Processes whose command line has `what` in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if what in path.read_text(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_a_warm_start_starts_nothing(source, image_cache, monkeypatch):
    built = images_for(source, [Build(host_target()), Build("sm_90")], cache=image_cache, timeout_s=300)
    assert {build.target for build in built} == {host_target(), "sm_90"}

    def none(*_args, **_kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr(images_module, "build_apart", none)
    again = images_for(source, [Build(host_target()), Build("sm_90")], cache=image_cache, timeout_s=300)
    assert {name: image.digest for name, image in again.items()} == {n: image.digest for n, image in built.items()}


def test_known_answers_need_no_new_build(make, image_cache, monkeypatch):
    images_for(
        PluginSource.read(make("a"), common_folder()), [Build(host_target())], cache=image_cache, timeout_s=300
    )
    monkeypatch.setattr(images_module, "build_apart", None)
    other = PluginSource.read(make("b", answers=lambda data: data.update(source="other")), common_folder())
    images_for(other, [Build(host_target())], cache=image_cache, timeout_s=300)


def test_an_error_comes_through(make, tmp_path):
    source = PluginSource.read(make("p", source=lambda text: text + "oops"), common_folder())
    with pytest.raises(BuildError, match="does not compile") as error:
        build_apart(source, Build(host_target()), cache=tmp_path, timeout_s=300)
    assert "oops" in str(error.value)


def test_a_child_that_dies_is_an_error(source, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(BuildError, match="the build ended with status 1"):
        build_apart(source, Build(host_target()), cache=tmp_path, timeout_s=300)


def test_a_build_that_takes_too_long_leaves_no_compiler(make, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(sleeping_compiler(tmp_path)))
    source = PluginSource.read(make("p", source=lambda text: text + "// never built\n"), common_folder())
    with ThreadPoolExecutor(1) as pool:
        build = pool.submit(build_apart, source, Build(host_target()), cache=tmp_path / "cache", timeout_s=10)
        until(lambda: processes(compiler_name(tmp_path)), "the compiler runs")
        with pytest.raises(BuildError, match="the build took more than 10 s"):
            build.result()
    until(lambda: not processes(compiler_name(tmp_path)), "the compiler is gone")


def test_a_build_ends_with_its_daemon(make, tmp_path, monkeypatch):
    folder = make("p", source=lambda text: text + "// never built either\n")
    monkeypatch.setenv("CXX", str(sleeping_compiler(tmp_path)))
    program = (
        "import sys; from pathlib import Path; from verifier.registry import PluginSource, common_folder\n"
        "from verifier.registry._images import Build, build_apart; from verifier.drivers.build import host_target\n"
        "source = PluginSource.read(Path(sys.argv[1]), common_folder())\n"
        "build_apart(source, Build(host_target()), cache=Path(sys.argv[2]), timeout_s=600)\n"
    )
    daemon = subprocess.Popen([sys.executable, "-c", program, str(folder), str(tmp_path / "cache")])
    until(lambda: processes(compiler_name(tmp_path)), "the compiler runs")
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    until(lambda: not processes(compiler_name(tmp_path)), "the compiler is gone")


def compiler_name(folder: Path) -> str:
    return f"compiler-of-{folder.parent.name}-{folder.name}"


def sleeping_compiler(folder: Path) -> Path:
    """Tells its version, and compiles for ever."""
    path = folder / "slow-c++"
    path.write_text(
        "#!/bin/bash\n"
        'if [ "$1" = --version ]; then echo "slow-c++ 1.0"; exit 0; fi\n'
        f"exec -a {compiler_name(folder)} sleep 1000\n"
    )
    path.chmod(0o700)
    return path
