import fcntl
import json
import pathlib
import subprocess

import pytest


def pytest_addoption(parser):
    parser.addoption("--build-dir", default="build", help="the CMake build folder under test")


LONG_FILES = (
    "test_documents.py",
    "test_build.py",
    "test_program_server_shared.py",
    "test_site.py",
)  # a minute or more each


def pytest_collection_modifyitems(items):
    """Long files come first: of several processes one would else be left with the last of them."""
    items.sort(key=lambda item: item.path.name not in LONG_FILES)


@pytest.fixture(scope="session")
def build_dir(request):
    folder = pathlib.Path(request.config.getoption("--build-dir")).resolve()
    if not (folder / "CMakeCache.txt").exists():
        pytest.skip(f"{folder} is no build folder")
    return folder


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
