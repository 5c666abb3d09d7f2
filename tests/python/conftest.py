import pathlib
import random
import sys

import pytest

import scaffolding as sf

# what tests of other folders are made with
sys.path[:0] = [str(folder) for folder in pathlib.Path(__file__).parent.rglob("[a-z]*") if folder.is_dir()]


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random numbers and leaves no mode switched."""
    sf.manual_seed(0)
    random.seed(0)
    sf.backends.cudnn.allow_tf32 = False  # tolerances are those of float32
    yield
    assert sf.is_grad_enabled()
    assert sf.get_default_dtype() is sf.float32
