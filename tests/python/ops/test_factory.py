"""Factories: sizes in every form, the shared keywords, generators."""

import pytest

import scaffolding as sf


@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "rand", "randn"])
def test_sizes_in_every_form(name):
    make = getattr(sf, name)
    assert make(2, 3).shape == make((2, 3)).shape == make([2, 3]).shape == make(size=(2, 3)).shape == (2, 3)
    assert make(4).shape == (4,) and make(()).shape == () and make(0, 2).shape == (0, 2)
    assert make(sf.zeros(2, 5).shape).shape == (2, 5) and make(sf.tensor(3)).shape == (3,)
    x = make(2, dtype=sf.float64, device="cpu", requires_grad=True)
    assert x.dtype is sf.float64 and x.requires_grad and x.is_leaf
    assert make(2, dtype=float).dtype is sf.float64
    for bad in ((-1,), (2, -3), (2**62, 4)):
        with pytest.raises(ValueError):
            make(*bad)
    with pytest.raises(TypeError, match=name):
        make("a")
    with pytest.raises(TypeError, match="colour"):
        make(2, colour="red")
    with pytest.raises(TypeError, match="missing"):
        make()
    with pytest.raises(TypeError, match="dtype"):
        make(2, dtype="float32")


def test_values():
    assert sf.zeros(2).tolist() == [0, 0] and sf.ones(2, dtype=sf.int64).tolist() == [1, 1]
    assert (
        sf.full((2, 2), 7).dtype is sf.int64
        and sf.full((2,), 0.5).tolist() == [0.5, 0.5]
        and sf.full(size=(1,), fill_value=True).dtype is sf.bool
    )
    assert sf.full((2,), 3, dtype=sf.float32, requires_grad=True).requires_grad
    assert (
        sf.arange(4).tolist() == [0, 1, 2, 3]
        and sf.arange(1, 4).tolist() == [1, 2, 3]
        and sf.arange(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75]
    )
    assert (
        sf.arange(end=3).tolist() == [0, 1, 2]
        and sf.arange(5, 0, -2).tolist() == [5, 3, 1]
        and sf.arange(3.0).dtype is sf.float32
    )
    assert sf.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1] and sf.linspace(
        start=0, end=2, steps=2
    ).tolist() == [0, 2]
    assert sf.eye(2).tolist() == [[1, 0], [0, 1]] and sf.eye(1, 3, dtype=sf.int32).tolist() == [[1, 0, 0]]
    assert sf.scalar_tensor(2).dtype is sf.float32


def test_likes_keep_layout_dtype_and_device():
    x = sf.zeros(2, 3, 4, 5, dtype=sf.float64).contiguous(memory_format=sf.channels_last)
    for name in ("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like"):
        y = getattr(sf, name)(x)
        assert y.dtype is sf.float64 and y.stride() == x.stride() and y.shape == x.shape
        assert getattr(sf, name)(x, dtype=sf.float32, requires_grad=True).requires_grad
    assert (
        sf.full_like(x, 2.5).sum().item() == 300 and sf.ones_like(x, memory_format=sf.contiguous_format).is_contiguous()
    )
    assert max(sf.randint_like(x, 5).flatten().tolist()) < 5
    assert sf.zeros_like(x, device="meta").is_meta
    with pytest.raises(TypeError, match="input"):
        sf.zeros_like([1])


def test_random_integers():
    x = sf.randint(0, 10, (1000,))
    assert x.dtype is sf.int64 and 0 <= min(x.tolist()) and max(x.tolist()) == 9
    assert (
        sf.randint(3, (2, 2)).shape == (2, 2)
        and sf.randint(5, size=(3,)).shape == (3,)
        and sf.randint(low=1, high=2, size=(2,)).tolist() == [1, 1]
    )
    assert sf.randint(0, 10, (2,), dtype=sf.int32).dtype is sf.int32
    assert sorted(sf.randperm(10).tolist()) == list(range(10))
    with pytest.raises(ValueError):
        sf.randint(5, 5, (2,))


# torch.manual_seed(0) and the same calls, torch 2.x
def test_numbers_are_torch_s():
    sf.manual_seed(0)
    assert sf.rand(3).tolist() == pytest.approx([0.4962565899, 0.7682217956, 0.0884774327], abs=1e-9)
    sf.manual_seed(0)
    assert sf.randn(3).tolist() == pytest.approx([1.5409960747, -0.2934289277, -2.1787893772], abs=1e-6)
    sf.manual_seed(0)
    assert sf.randperm(6).tolist() == PERMUTATION
    sf.manual_seed(0)
    assert sf.randint(0, 100, (5,)).tolist() == INTEGERS


PERMUTATION = [2, 5, 3, 0, 1, 4]
INTEGERS = [44, 39, 33, 60, 63]


def test_generators():
    g = sf.Generator("cpu").manual_seed(42)
    assert isinstance(g, sf.Generator) and g.initial_seed() == 42 and g.device == sf.device("cpu")
    a = sf.randn(5, generator=g)
    state = g.get_state()
    b = sf.randn(5, generator=g)
    g.set_state(state)
    assert sf.randn(5, generator=g).tolist() == b.tolist()
    g.manual_seed(42)
    assert sf.randn(5, generator=g).tolist() == a.tolist()
    assert state.dtype is sf.uint8
    with pytest.raises(TypeError, match="generator"):
        sf.randn(2, generator=3)


def test_philox_on_the_cpu():
    g = sf.Generator("cpu", algorithm="cuda", threads=1024).manual_seed(7)
    assert g.algorithm == "philox"
    assert sf.randn(4, generator=g).shape == (4,)


def test_default_generator():
    assert sf.manual_seed(3) is sf.default_generator
    assert sf.initial_seed() == 3
    state = sf.get_rng_state()
    a = sf.rand(3).tolist()
    sf.set_rng_state(state)
    assert sf.rand(3).tolist() == a
    sf.manual_seed(-1)  # as torch: taken modulo 2**64


def test_in_place_random_methods():
    x = sf.zeros(100)
    assert x.uniform_(2, 3) is x and 2 <= min(x.tolist()) and max(x.tolist()) < 3
    assert x.normal_(mean=5.0, std=0.1) is x and abs(x.mean().item() - 5) < 0.1
    assert x.bernoulli_(0.5).sum().item() not in (0, 100)
    with pytest.raises(RuntimeError, match="leaf"):
        sf.zeros(2, requires_grad=True).normal_()


def test_default_dtype():
    try:
        sf.set_default_dtype(sf.float64)
        assert (
            sf.tensor([1.0]).dtype is sf.float64
            and sf.zeros(1).dtype is sf.float64
            and sf.get_default_dtype() is sf.float64
        )
    finally:
        sf.set_default_dtype(sf.float32)
    with pytest.raises(TypeError):
        sf.set_default_dtype(sf.int32)


def test_dtype_questions():
    assert sf.promote_types(sf.float16, sf.bfloat16) is sf.float32 and sf.promote_types(sf.uint8, sf.int8) is sf.int16
    assert (
        sf.result_type(sf.ones(1, dtype=sf.int8), 2.0) is sf.float32
        and sf.result_type(sf.ones(2, dtype=sf.float16), sf.tensor(1.0)) is sf.float16
    )
    assert sf.can_cast(sf.int32, sf.float32) and not sf.can_cast(sf.float32, sf.int32)
    f = sf.finfo(sf.float32)
    assert (f.eps, f.max, f.bits) == (2**-23, 3.4028234663852886e38, 32) and f.tiny == 2**-126
    assert (
        sf.finfo(sf.bfloat16).eps == 2**-7 and sf.finfo(sf.float16).max == 65504 and sf.finfo(sf.float64).eps == 2**-52
    )
    assert sf.iinfo(sf.int8).min == -128 and sf.iinfo(sf.uint8).max == 255 and sf.iinfo(sf.int64).max == 2**63 - 1
    assert sf.float32.is_floating_point and not sf.int8.is_floating_point and sf.float16.itemsize == 2
    assert sf.float is sf.float32 and sf.long is sf.int64 and sf.half is sf.float16
    with pytest.raises(TypeError):
        sf.finfo(sf.int32)


def test_a_device_is_the_default_one_within_its_block():
    with sf.device("meta"):
        assert sf.zeros(2).is_meta and sf.nn.Linear(2, 2).weight.is_meta and not sf.zeros(2, device="cpu").is_meta
        with sf.device("cpu"):
            assert not sf.zeros(2).is_meta
        assert sf.randn(2).is_meta
    assert not sf.zeros(2).is_meta
