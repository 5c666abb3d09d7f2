import pytest

import scaffolding as sf


@pytest.fixture(autouse=True)
def seeded():
    sf.manual_seed(0)
    yield
    assert sf.is_grad_enabled()
