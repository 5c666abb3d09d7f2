"""profiler.profile: what kernels ran on what, and what they have to do at least."""

import ctypes

import pytest

import scaffolding as sf
from scaffolding import nn
from scaffolding.profiler import profile


def test_products_convolutions_and_attention_count_their_operations():
    x, w = sf.randn(4, 8), sf.randn(8, 2)
    image, kernel = sf.randn(2, 3, 6, 6), sf.randn(5, 3, 3, 3)
    q, k = sf.randn(1, 2, 7, 8), sf.randn(1, 2, 9, 8)
    with profile() as prof:
        x @ w
        sf.nn.functional.conv2d(image, kernel, padding=1)
        sf.nn.functional.scaled_dot_product_attention(q, k, k)
    flops = {e.key: e.flops for e in prof.events() if e.flops}
    assert flops["gemm"] == 2 * 4 * 8 * 2
    assert flops["conv_forward"] == 2 * (2 * 5 * 6 * 6) * (3 * 9)
    assert flops["attention"] == 4 * 2 * 7 * 9 * 8


def test_products_with_weights_in_few_bits_count_theirs():
    net = nn.Sequential(nn.Linear(64, 32))
    conv = nn.Sequential(nn.Conv2d(8, 4, 3, padding=1))
    x, picture = sf.randn(20, 64), sf.randn(2, 8, 6, 5)
    flops = {}
    for kind, how in (("nf4", {}), ("q8_0", {}), ("int8", {"dynamic": True}), ("q4_0", {"dynamic": True})):
        few = nn.Sequential(nn.Linear(64, 32))
        few.load_state_dict(net.state_dict())
        nn.quantize_(few, kind, **how)
        with profile() as prof, sf.no_grad():
            few(x)
        flops |= {e.key: e.flops for e in prof.events() if e.flops}
    nn.quantize_(conv, "int8", dynamic=True)
    with profile() as prof, sf.no_grad():
        conv(picture)
    flops |= {e.key: e.flops for e in prof.events() if e.flops}
    linear = 2 * 20 * 64 * 32
    for name in ("coded_product", "gguf_product", "int8_linear", "gguf_int8_product"):
        assert flops[name] == linear, name
    assert flops["int8_conv"] == 2 * (2 * 4 * 6 * 5) * (8 * 9)


def test_bytes_are_each_operand_once_and_broadcast_ones_as_stored():
    with profile() as prof:
        sf.layer_norm(sf.zeros(6, 4), [4], sf.ones(4))
    (norm,) = [e for e in prof.events() if e.key == "layer_norm"]
    assert norm.bytes == 4 * (24 + 4 + 24) and norm.input_shapes.startswith("float32 [6, 4], float32 [4]")


def test_averages_sum_over_calls_and_counters_over_the_time_between():
    asked = []

    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int)
    def counter(which):
        asked.append(which)
        return len(asked) * which

    with profile(counter=counter, which=(1, 10)) as prof:
        for _ in range(3):
            sf.ones(2, 2) @ sf.ones(2, 2)
    (gemm,) = [r for r in prof.key_averages() if r.key == "gemm"]
    assert gemm.count == 3 and gemm.flops == 48
    assert gemm.counted == (6, 60) and len(asked) == 2 * (1 + len(prof.events()))
    assert "gemm" in prof.key_averages().table(sort_by="flops").splitlines()[1]


def test_kernels_that_run_on_several_threads_do_not_wait_for_the_interpreter():
    before = sf.get_num_threads()
    sf.set_num_threads(4)
    try:
        images, kernel = sf.randn(8, 32, 24, 24), sf.randn(32, 32, 3, 3)
        with profile() as prof:
            for _ in range(20):
                sf.nn.functional.conv2d(images, kernel, padding=1)
                sf.randn(64, 512) @ sf.randn(512, 512)
    finally:
        sf.set_num_threads(before)
    assert sum(e.key == "conv_forward" for e in prof.events()) == 20


def test_one_at_a_time_and_nothing_is_recorded_afterwards():
    with profile() as prof:
        with pytest.raises(RuntimeError, match="there is one already"):
            profile().__enter__()
    sf.ones(2) + 1
    assert prof.events() == []
    with profile() as again:  # what failed left nothing behind
        sf.ones(2) + 1
    assert [e.key for e in again.events() if e.key == "add"] == ["add"]
