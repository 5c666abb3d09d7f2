"""What torch's own kernels on a GPU draw, from tests/golden/make_golden_philox.py:
on the CPU by that generator's numbers, and on a GPU or its emulator.
"""

import folders
import pytest
from packed import read_json

import scaffolding as sf

GOLDEN = read_json(folders.GOLDEN / "philox.json.xz")
DEVICES = ["cpu", *(["cuda"] if sf.cuda.is_available() else [])]


def generator(device, seed, threads):
    return sf.Generator(device, algorithm="cuda", threads=threads).manual_seed(seed)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("number", range(len(GOLDEN["cases"])))
def test_draws_of_torchs_own_kernels(device, number):
    case = GOLDEN["cases"][number]
    g = generator(device, case["seed"], case["threads"])
    chances = sf.tensor(case["chances"], device=device)
    assert sf.bernoulli(chances, generator=g).cpu().tolist() == case["bernoulli"]
    rows = sf.tensor(case["rows"], dtype=sf.float32, device=device)
    assert sf.multinomial(rows, 150, replacement=True, generator=g).cpu().flatten().tolist() == case["multinomial"]
    for order in case["randperm"]:
        assert sf.randperm(len(order), generator=g, device=device).cpu().tolist() == order
    state = bytes(g.get_state().tolist())
    assert int.from_bytes(state[8:], "little") == case["offset"]


@pytest.mark.parametrize("device", DEVICES)
def test_equal_keys_of_a_permutation_are_shuffled(device):
    for seed, order in GOLDEN["islands"]:
        assert sf.randperm(len(order), generator=generator(device, seed, 512), device=device).cpu().tolist() == order
