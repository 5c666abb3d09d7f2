import pathlib

import pytest


def pytest_addoption(parser):
    parser.addoption("--build-dir", default="build", help="the CMake build folder under test")


@pytest.fixture(scope="session")
def build_dir(request):
    folder = pathlib.Path(request.config.getoption("--build-dir")).resolve()
    if not (folder / "CMakeCache.txt").exists():
        pytest.skip(f"{folder} is no build folder")
    return folder
