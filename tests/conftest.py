import fcntl
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

import pytest


def pytest_addoption(parser):
    parser.addoption("--build-dir", default="build", help="the CMake build folder under test")


LONG_FILES = (  # the longest first
    "test_program_page.py",
    "test_documents.py",
    "test_memory_plans.py",
    "test_build.py",
    "test_every_model.py",
    "test_every_pipeline.py",
    "test_program_server_shared.py",
    "test_site.py",
    "test_program_server_robust.py",
    "test_distributed_checkpoint.py",
    "test_program_train_video.py",
    "test_program_server_batches.py",
    "test_program_quantize.py",
    "test_packages.py",
    "test_notebooks.py",
    "test_program_train_composed.py",
    "test_calls.py",
)


def pytest_collection_modifyitems(items):
    """Long files come first: of several processes one would else be left with the last of them."""
    places = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Programs that tests start beside those of other processes have a share of the cores: threads that wait for each
    other there cost half as much again. Tests of one process, of the library and of the build have all of them."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    where = item.path.relative_to(pathlib.Path(__file__).parent).parts[0]
    library = sys.modules.get("scaffolding")
    if workers == 1 or not library or where in ("python", "conformance", "test_build.py"):
        yield
        return
    cores = library.get_num_threads()  # settled here, for the tests that follow in this process
    with pytest.MonkeyPatch.context() as patch:
        if "SF_NUM_THREADS" not in os.environ:
            patch.setenv("SF_NUM_THREADS", str(max(1, cores // workers)))
        yield


@pytest.fixture(scope="session")
def build_dir(request):
    folder = pathlib.Path(request.config.getoption("--build-dir")).resolve()
    if not (folder / "CMakeCache.txt").exists():
        pytest.skip(f"{folder} is no build folder")
    return folder


FLAGS_OF_ISAS = {"avx2": "avx2", "avx512": "avx512vl", "avx512bf16": "avx512_bf16"}  # the others need none


@pytest.fixture
def needs_isa(build_dir):
    """Skips a test where this processor does not run the instruction set, or the build was told to leave it out, as
    `make demo` and `make test` tell a new one. Where it must be there and is not, the test fails. "": the best one."""

    def check(isa):
        listed = [build_dir / "scaffolding", "ops", "matmul", "--where"]
        done = subprocess.run(listed, capture_output=True, text=True, env=os.environ | {"SF_ISA": isa})
        if done.returncode == 0 and re.search(rf"native-{isa}\b" if isa else "native-", done.stdout):
            return
        wanted = re.search(r"^SF_ISAS:STRING=(.*)$", (build_dir / "CMakeCache.txt").read_text(), re.MULTILINE)[1]
        is_built = ("avx512bf16" if isa == "amx_emulated" else isa) in wanted.split(";")
        if platform.machine() == "x86_64" and is_built:
            processor = pathlib.Path("/proc/cpuinfo").read_text().split()
            assert isa in FLAGS_OF_ISAS and FLAGS_OF_ISAS[isa] not in processor, done.stdout + done.stderr
        pytest.skip(f"this processor does not run {isa}, or this build has none of it (`make build` has all)")

    return check


@pytest.fixture
def build_lock(build_dir):
    """No test of another process runs CMake in the build folder meanwhile: it writes logs and manifests there."""
    with open(build_dir / "CMakeCache.txt") as cache:
        fcntl.flock(cache, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def program(build_dir):
    def run(*args, **options):
        return subprocess.run(
            [str(build_dir / "scaffolding"), *map(str, args)], capture_output=True, text=True, timeout=300, **options
        )

    return run


@pytest.fixture(scope="session")
def recipe(tmp_path_factory):
    from drawn_icons import RECIPE, draw_icons

    folder = tmp_path_factory.mktemp("recipe")
    draw_icons(folder)
    (folder / "train.json").write_text(json.dumps(RECIPE))
    return folder / "train.json"


@pytest.fixture(scope="session")
def run_folder(program, recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "squares"
    done = program("train", "--config", recipe, "--output", folder, "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(folder / "pipeline")
    return folder


@pytest.fixture(scope="session")
def model(run_folder):
    return run_folder / "pipeline"
