import pathlib
import random
import sys

import pytest

import scaffolding as sf

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "golden"))  # what the makers of golden files share with the tests


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random numbers and leaves no mode switched."""
    sf.manual_seed(0)
    random.seed(0)
    sf.backends.cudnn.allow_tf32 = False  # tolerances are those of float32
    yield
    assert sf.is_grad_enabled()
    assert sf.get_default_dtype() is sf.float32
