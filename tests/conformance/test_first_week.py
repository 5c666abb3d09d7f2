"""The expressions of first_week.txt do here what first_week.json.xz says that PyTorch does."""

import first_week
import pytest

RECORDED = first_week.recorded()
# What is not here, as docs/torch_names.md says; everything else must run and agree.
NOT_HERE = (
    "torch.complex", ".resize_(", "torch.linalg", "torch.inverse", "torch.fft", "x.set_(", "torch.func.", "torch.vmap",
    "torch.jit", "optim.SparseAdam",
)  # fmt: skip


def is_here(expression):
    return not any(name in expression for name in NOT_HERE)


@pytest.mark.parametrize("expression", [e for e in RECORDED if is_here(e)])
def test_does_what_torch_does(expression):
    _, random, want = RECORDED[expression]
    why = first_week.difference(expression, random, want)
    assert why is None, why


def test_what_is_not_here_is_little_and_says_so():
    missing = [e for e in RECORDED if not is_here(e)]
    assert len(RECORDED) > 800 and 0 < len(missing) < 0.03 * len(RECORDED)
    for expression in missing:
        assert "AttributeError" in first_week.difference(expression, False, None), expression


def test_differences_are_found():
    tensor = {"tensor": ["float32", 2], "values": [1.0, 2.0]}
    assert first_week.agree(tensor, {"tensor": ["float32", 2], "values": [1, 2.00001]})
    for other in ({"tensor": ["float64", 2], "values": [1.0, 2.0]}, {"tensor": ["float32", 2], "values": [1.0, 2.1]},
                  {"tensor": ["float32", 1, 2], "values": [1.0, 2.0]}, [1.0, 2.0], None):  # fmt: skip
        assert not first_week.agree(tensor, other)
    assert not first_week.agree(1, True) and not first_week.agree([1], [1, 2]) and first_week.agree("a", "a")
    assert "instead of" in first_week.difference("x + 1", False, tensor)
    assert "no attribute 'nothing'" in first_week.difference("x.nothing", False, tensor)
