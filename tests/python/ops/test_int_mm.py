"""torch._int_mm from Python."""

import pytest

import scaffolding as sf


def test_sums_in_int32():
    a = sf.tensor([[1, -128], [127, 3]], dtype=sf.int8)
    c = sf._int_mm(a, a.t())
    assert c.dtype == sf.int32 and c.tolist() == [[16385, -257], [-257, 16138]]
    long = sf.full([2, 1000], -128, dtype=sf.int8)
    assert sf._int_mm(long, long.t()).tolist() == [[16384000] * 2] * 2


def test_what_is_refused():
    a = sf.zeros([2, 3], dtype=sf.int8)
    with pytest.raises(TypeError, match="_int_mm: needs two int8 matrices, got int8 and float32"):
        sf._int_mm(a, sf.zeros([3, 2]))
    with pytest.raises(ValueError, match="needs equal inner sizes, got 3 and 2"):
        sf._int_mm(a, a)
    with pytest.raises(TypeError, match="requires_grad"):
        sf._int_mm(a, a.t()).requires_grad_()
