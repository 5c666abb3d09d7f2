import concurrent.futures

import kernels
import pytest


@pytest.fixture(scope="session")
def ptx(tmp_path_factory):
    if not kernels.nvcc():
        pytest.skip("nvcc is not here: install the CUDA toolkit")
    folder = tmp_path_factory.mktemp("ptx")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return dict(zip(kernels.UNITS, pool.map(lambda u: kernels.compile_unit(u, folder), kernels.UNITS), strict=True))
