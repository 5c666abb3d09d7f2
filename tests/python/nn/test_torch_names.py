"""Names of torch.nn that stand for others here, or for a few lines."""

import numpy as np
import pytest

import scaffolding as sf
from scaffolding import nn
from scaffolding.nn import functional as F


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_convolutions(dims):
    x = sf.randn(2, 4, *[7] * dims, requires_grad=True)
    w = sf.randn(6, 2, *[3] * dims, requires_grad=True)
    options = {"stride": 2, "padding": 1, "groups": 2}
    y = getattr(F, f"conv{dims}d")(x, w, **options)
    out = sf.randn(*y.shape)
    y.backward(out)
    of_input, of_weight = (getattr(nn.grad, f"conv{dims}d_{what}") for what in ("input", "weight"))
    for got, want in (
        (of_input(x.shape, w, out, **options), x.grad),
        (of_weight(x, w.shape, out, **options), w.grad),
    ):
        assert not got.requires_grad
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="grad_output must have the convolution's shape"):
        of_input(x.shape, w, out[:1], **options)


def test_choosing_a_kernel_of_attention():
    q, k, v = (sf.randn(1, 2, 8, 16) for _ in range(3))
    plain = F.scaled_dot_product_attention(q, k, v)
    backend = nn.attention.SDPBackend
    for chosen in (backend.MATH, [backend.FLASH_ATTENTION, backend.EFFICIENT_ATTENTION]):
        with nn.attention.sdpa_kernel(chosen):
            assert F.scaled_dot_product_attention(q, k, v).equal(plain)
    with pytest.raises(TypeError, match="needs SDPBackend or a list of them, got 'flash'"):
        with nn.attention.sdpa_kernel(["flash"]):
            pass


def test_old_names():
    log_probs, target = sf.randn(2, 3, 4, 4).log_softmax(1), sf.randint(0, 3, (2, 4, 4))
    assert nn.NLLLoss2d()(log_probs, target).item() == nn.NLLLoss()(log_probs, target).item()
    container = nn.Container(a=nn.Linear(2, 3), b=nn.ReLU())
    assert [name for name, _ in container.named_children()] == ["a", "b"] and len(container.state_dict()) == 2


def test_sync_batch_norm_in_one_process():
    x = sf.randn(4, 3, 5)
    for options in ({}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}, {"bias": False}):
        layer = nn.SyncBatchNorm(3, **options)
        plain = nn.BatchNorm1d(3, **{k: v for k, v in options.items() if k != "bias"})
        for module in (layer, plain):
            for _ in range(2):
                module(x)
        assert layer(x).equal(plain(x)) and layer.eval()(x).equal(plain.eval()(x))
        assert set(layer.state_dict()) == set(plain.state_dict()) - ({"bias"} if "bias" in options else set())
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(plain)
    assert converted.running_mean.equal(plain.running_mean) and not converted.training
    with pytest.raises(
        ValueError, match=r"SyncBatchNorm: needs \[N, 3, ...\] of two dimensions or more, got shape \[3\]"
    ):
        layer(sf.ones(3))


def test_products_of_groups():
    ends, three = sf.tensor([2, 2, 5]), sf.randn(3, 4, 6)
    a = sf.randn(7, 4)
    got = F.grouped_mm(a, three, offs=ends)
    want = sf.cat([a[:2] @ three[0], a[2:5] @ three[2], sf.zeros(2, 6)])
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    left, b = sf.randn(3, 5, 4), sf.randn(4, 6)
    got = F.grouped_mm(left, b, offs=ends, out_dtype=sf.float64)
    want = sf.cat([left[0] @ b[:, :2], left[2] @ b[:, 2:5], sf.zeros(5, 1)], 1)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    got = F.grouped_mm(sf.ones(2, 6), sf.ones(6, 3), offs=ends)
    assert got.shape == (3, 2, 3) and got[:, 0, 0].tolist() == [2, 0, 3]
    assert F.grouped_mm(left, three).equal(sf.bmm(left, three)) and F.Tensor is sf.Tensor
    for wrong in (None, sf.tensor([2, 5]), sf.tensor([3, 2, 5]), sf.tensor([1, 2, 8])):
        with pytest.raises(ValueError, match="grouped_mm: offs must be 3 ends of groups, rising to at most 7"):
            F.grouped_mm(a, three, offs=wrong)
    with pytest.raises(ValueError, match=r"needs \[M, K\] and \[K, N\], either with groups, got \[7, 4\] and \[7, 4\]"):
        F.grouped_mm(a, a)


def both(options, reduction="mean", **more):
    """Losses and gradients of whole logits, and of chunks."""
    results = []
    for given in (None, options):
        sf.manual_seed(4)
        x, w = sf.randn(11, 5, requires_grad=True), sf.randn(7, 5, requires_grad=True)
        b = sf.randn(7, requires_grad=True)
        target = sf.randint(0, 7, (11,))
        target[3] = 2
        loss = F.linear_cross_entropy(x, w, target, linear_bias=b, reduction=reduction, options=given, **more)
        (loss * sf.arange(1.0, loss.numel() + 1).reshape(loss.shape)).sum().backward()
        results.append([t.detach().numpy() for t in (loss, x.grad, w.grad, b.grad)])
    return results


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("more", [{}, {"ignore_index": 2}, {"label_smoothing": 0.2}, {"weight": sf.rand(7) + 0.1}])
@pytest.mark.parametrize("chunk", [1, 4, 11, 20])
def test_logits_in_chunks(chunk, more, reduction):
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=chunk, chunking_method=None)
    for whole, chunked in zip(*both(options, reduction, **more), strict=True):
        np.testing.assert_allclose(chunked, whole, rtol=1e-5, atol=1e-6)


def test_sizes_of_chunks():
    rows = nn.LinearCrossEntropyOptions().rows
    assert [rows(4096, 1024, classes) for classes in (512, 1024, 4096, 50000)] == [4096, 4096, 1024, 128]
    assert nn.LinearCrossEntropyOptions(chunking_method="aspect_ratio:4").rows(4096, 1024, 4096) == 256
    assert nn.LinearCrossEntropyOptions(chunking_method=None).rows(100, 8, 9) == 100
    for wrong in (
        {"acc_policy": "best"},
        {"batch_chunk_size": 0},
        {"batch_chunk_size": 2, "chunking_method": "aspect_ratio"},
        {"chunking_method": "x:2"},
    ):
        with pytest.raises(ValueError, match="acc_policy|batch_chunk_size|chunking_method"):
            nn.LinearCrossEntropyOptions(**wrong)


def test_linear_cross_entropy_loss():
    module = nn.LinearCrossEntropyLoss(5, 10, out_features=(4, 3), bias=True, weight=sf.rand(10), label_smoothing=0.1)
    assert {k: tuple(v.shape) for k, v in module.state_dict().items()} == {
        "weight": (10,), "linear.weight": (120, 5), "linear.bias": (120,)
    }  # fmt: skip
    x, target = sf.randn(2, 5), sf.randint(0, 10, (2, 4, 3))
    logits = module.linear(x).reshape(2, 10, 4, 3)
    want = F.cross_entropy(logits, target, module.weight, label_smoothing=0.1)
    assert module(x, target).item() == pytest.approx(want.item(), rel=1e-6)
    chunked = nn.LinearCrossEntropyLoss(5, 10, options=nn.LinearCrossEntropyOptions())
    want = F.cross_entropy(chunked.linear(x), target[:, 0, 0])
    assert chunked(x, target[:, 0, 0]).item() == pytest.approx(want.item(), rel=1e-6)
    with pytest.warns(UserWarning, match="the logits are made whole"):
        chunked(x, sf.rand(2, 10).softmax(1))
    with pytest.raises(RuntimeError, match=r"expected weight shape to be \(10,\), got \(9,\)"):
        nn.LinearCrossEntropyLoss(5, 10, weight=sf.ones(9))


def running_sums(x, size, alpha, beta, k):
    """PyTorch's loop over channels: what enters the window is added, what leaves it taken out, but for channel 0."""
    reach, squares = (size - 1) // 2 + 1, x * x
    scales = [sum(squares[:, c] for c in range(min(reach, x.shape[1])))]
    for c in range(1, x.shape[1]):
        scale = scales[-1]
        if c < x.shape[1] - reach + 1:
            scale = scale + squares[:, c + reach - 1]
        if c > reach:
            scale = scale - squares[:, c - reach]
        scales.append(scale)
    return x * (k + alpha / size * sf.stack(scales, 1)) ** -beta


@pytest.mark.parametrize("channels, size", [(7, 3), (7, 5), (3, 5), (8, 4), (1, 3)])
def test_cross_map_normalisation(channels, size):
    x = sf.randn(2, channels, 3, 2, dtype=sf.float64)
    layer = nn.CrossMapLRN2d(size, alpha=0.5, beta=0.75, k=1.5)
    assert sf.allclose(layer(x), running_sums(x, size, 0.5, 0.75, 1.5), rtol=1e-12)
    assert repr(layer) == f"CrossMapLRN2d({size}, alpha=0.5, beta=0.75, k=1.5)"
    assert sf.autograd.gradcheck(layer, [x[:1].requires_grad_()])
    with pytest.raises(ValueError, match=r"CrossMapLRN2d: input must be \[N, C, H, W\]"):
        layer(x[0])
