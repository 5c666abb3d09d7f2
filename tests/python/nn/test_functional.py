"""nn.functional has torch's names and arguments (tests/golden/functional.json.xz);
values and gradients are checked op by op in C++.
"""

import inspect

import folders
import pytest
from packed import read_json

import scaffolding as sf
import scaffolding.nn.functional as F

TORCH = read_json(folders.GOLDEN / "functional.json.xz")

# What we have not, on purpose: rare, or for hardware and number formats of other projects.
ABSENT = set("grouped_mm scaled_addmm scaled_addmm_ scaled_grouped_mm scaled_mm".split())
# Arguments that ours lack: a place to write into, and one without a meaning.
WITHOUT = {
    "normalize": {"out"},
    "fractional_max_pool2d_with_indices": {"return_indices"},
    "fractional_max_pool3d_with_indices": {"return_indices"},
    "max_pool1d_with_indices": {"return_indices"},
    "max_pool2d_with_indices": {"return_indices"},
    "max_pool3d_with_indices": {"return_indices"},
    "adaptive_max_pool1d_with_indices": {"return_indices"},
    "adaptive_max_pool2d_with_indices": {"return_indices"},
    "adaptive_max_pool3d_with_indices": {"return_indices"},
}
# Functions of ours that torch has not: fused ones and those of diffusion models.
OWN = set(
    """add_layer_norm add_rms_norm apply_rotary_emb cat_group_norm_silu feature_dropout geglu group_norm_silu
    layer_norm_modulate mlp quick_gelu rms_norm_modulate swiglu""".split()
)
# Arguments of ours after torch's.
EXTRA = {"generator", "activation", "gate_first"}


def test_names_are_torchs():
    theirs = set(TORCH) - {"torch"}
    assert theirs - set(F.__all__) == ABSENT
    assert set(F.__all__) - theirs == OWN
    assert len(F.__all__) == len(set(F.__all__)) and all(callable(getattr(F, name)) for name in F.__all__)


@pytest.mark.parametrize("name", sorted(set(TORCH) - {"torch"} - ABSENT))
def test_arguments_are_torchs(name):
    ours = inspect.signature(getattr(F, name)).parameters
    want = [p for p in TORCH[name] if p[0] not in WITHOUT.get(name, ())]
    assert [p for p in ours if p not in EXTRA] == [p[0] for p in want]
    for parameter, *default in want:
        got = ours[parameter].default
        assert (got is inspect.Parameter.empty) == (not default), parameter
        if default:
            assert got == default[0], parameter


def test_inplace():
    for name, *arguments in (
        ("relu",),
        ("elu", 0.5),
        ("hardtanh", 0.0, 1.0),
        ("leaky_relu", 0.1),
        ("threshold", 0.0, 9.0),
        ("celu", 2.0),
        ("relu6",),
    ):
        x = sf.tensor([-1.0, 0.5, 8.0])
        want = getattr(F, name)(x, *arguments)
        assert x.tolist() == [-1, 0.5, 8]
        assert getattr(F, name)(x, *arguments, inplace=False).tolist() == want.tolist()
        assert getattr(F, name)(x, *arguments, True) is x and x.tolist() == want.tolist(), name
    x = sf.ones(100)
    assert F.dropout(x, 0.5, True, True) is x and 0 < x.count_nonzero().item() < 100
    assert F.dropout(x, 0.5, False, inplace=True) is x
    assert F.relu_(sf.tensor([-1.0])).tolist() == [0]
    with pytest.raises(TypeError, match=r"relu: has no argument 'inplase'; it takes \(input, inplace=False\)"):
        F.relu(x, inplase=True)


def test_inplace_in_training():
    w = sf.tensor([-3.0, -0.5, 0.25, 4.0, 7.0]).reshape(5, 1)
    calls = [
        (name,)
        for name in (
            "celu",
            "elu",
            "hardsigmoid",
            "hardswish",
            "hardtanh",
            "leaky_relu",
            "mish",
            "relu",
            "relu6",
            "selu",
            "silu",
        )
    ]
    for name, *arguments in (*calls, ("threshold", 0.1, 9.0)):
        grads = []
        for inplace in (False, True):
            x = w.clone().requires_grad_()
            h = x @ sf.ones(1, 3)
            y = getattr(F, name)(h, *arguments, inplace=inplace)
            assert (y is h) == inplace
            (y * y).sum().backward()
            grads.append(x.grad.tolist())
        assert grads[0] == grads[1], name
    x, m = w.clone().requires_grad_(), sf.ones(5, 1).requires_grad_()
    h = x * 1
    h *= m
    h **= 2
    h.sin_().mul_(h).sum().backward()
    assert x.grad.flatten().tolist() == pytest.approx((sf.sin(2 * w**2) * 2 * w).flatten().tolist(), rel=1e-4)


@pytest.mark.parametrize("dtype", [sf.float32, sf.bfloat16, sf.float64])
def test_pools_of_equal_numbers_and_nan_agree_in_both_layouts(dtype):
    values = sf.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), -float("nan")], dtype=dtype)
    x = values[sf.randint(0, 8, (2, 3, 13, 17), generator=sf.Generator().manual_seed(1))]
    for kernel, stride, padding, dilation in ((3, 2, 1, 1), ((2, 5), 1, (0, 2), (3, 2)), (4, 4, 0, 1)):
        y, at = F.max_pool2d(x, kernel, stride, padding, dilation, return_indices=True)
        z, to = F.max_pool2d(
            x.contiguous(memory_format=sf.channels_last), kernel, stride, padding, dilation, return_indices=True
        )
        assert at.tolist() == to.tolist() and repr(y.tolist()) == repr(z.tolist())


def test_indices_of_pools():
    x = sf.tensor([[[1.0, 3.0, 2.0, 5.0]]])
    y, indices = F.max_pool1d(x, 2, return_indices=True)
    assert y.tolist() == [[[3, 5]]] and indices.tolist() == [[[1, 3]]]
    assert (
        F.max_pool1d(x, 2, 2, 0, 1, False, True)[1].tolist()
        == indices.tolist()
        == F.adaptive_max_pool1d(x, 2, True)[1].tolist()
    )
    assert F.max_pool1d(x, kernel_size=2, return_indices=False).tolist() == y.tolist()


def test_old_forms_warn():
    x, t = sf.tensor([[1.0, 2.0]]), sf.tensor([1])
    with pytest.warns(UserWarning, match="dimension is chosen"):
        assert F.softmax(x).tolist() == F.softmax(x, 1).tolist()
    assert F.softmax(x, 1, 3, sf.float64).dtype is sf.float64
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert F.cross_entropy(sf.cat([x, x]), sf.cat([t, t]), size_average=False).item() == pytest.approx(
            2 * F.cross_entropy(x, t).item()
        )
    with pytest.warns(UserWarning, match="reduction='none'"):
        assert F.mse_loss(x, x, None, False).shape == (1, 2)
    assert F.cross_entropy(x, t, None, None, 1, None, "sum").item() == 0
    with pytest.warns(UserWarning, match="upsample"):
        assert F.upsample(sf.ones(1, 1, 2, 2), scale_factor=2).shape == (1, 1, 4, 4)


def test_glu_of_any_dimension():
    x = sf.randn(4, 6)
    assert F.glu(x, 0).allclose(x[:2] * x[2:].sigmoid()) and F.glu(x).allclose(x[:, :3] * x[:, 3:].sigmoid())


def test_embedding_with_a_largest_norm():
    weight = sf.nn.Parameter(sf.tensor([[3.0, 4.0], [0.3, 0.4]]))
    y = F.embedding(sf.tensor([0, 1]), weight, max_norm=1.0)
    assert y.norm(2, 1).allclose(sf.tensor([1.0, 0.5])) and weight[0].norm().item() == pytest.approx(1)
    with pytest.raises(NotImplementedError, match="sparse"):
        F.embedding(sf.tensor([0]), weight, sparse=True)


def test_embedding_with_gradients_by_frequency():
    rows = sf.tensor([2, 0, 2])
    w = sf.zeros(3, 2).requires_grad_()
    F.embedding(rows, w, scale_grad_by_freq=True).sum().backward()
    assert w.grad.tolist() == [[1, 1], [0, 0], [1, 1]]
    layer = sf.nn.Embedding(3, 2, scale_grad_by_freq=True)
    layer(rows).sum().backward()
    assert layer.weight.grad.tolist() == w.grad.tolist() and repr(layer) == "Embedding(3, 2, scale_grad_by_freq=True)"


def test_attention_with_dropout_trains():
    q, k, v = (sf.randn(1, 2, 5, 4, requires_grad=True) for _ in range(3))
    sf.manual_seed(1)
    a = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    sf.manual_seed(1)
    b = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert a.tolist() == b.tolist() != F.scaled_dot_product_attention(q, k, v).tolist()
    a.sum().backward()
    assert (
        all(x.grad.isfinite().all() for x in (q, k, v))
        and F.scaled_dot_product_attention(q, k, v, dropout_p=1.0).abs().max().item() == 0
    )


def test_convolutions_take_words_for_padding():
    x, w = sf.randn(1, 2, 5, 6), sf.randn(3, 2, 3, 3)
    assert F.conv2d(x, w, padding="same").tolist() == F.conv2d(x, w, padding=1).tolist()
    assert F.conv2d(x, w, None, 1, "valid").tolist() == F.conv2d(x, w).tolist()
    assert F.conv1d(x[0], sf.randn(3, 5, 4), padding="same", dilation=2).shape == (2, 3, 6)
    with pytest.raises(ValueError, match="'same' or 'valid', got 'full'"):
        F.conv2d(x, w, padding="full")
    with pytest.raises(TypeError, match="integers"):
        F.avg_pool2d(x, 2, padding="same")


@pytest.mark.parametrize(
    "options, arguments",
    [
        ({}, {}),
        ({"kdim": 6, "vdim": 5}, {"average_attn_weights": False}),
        ({"add_bias_kv": True, "add_zero_attn": True}, {"attn_mask": sf.ones(4, 5).triu(2) > 0}),
        ({"bias": False}, {"need_weights": False, "key_padding_mask": sf.arange(15).reshape(3, 5) % 5 > 3}),
        ({}, {"attn_mask": sf.arange(120.0).reshape(6, 4, 5) / 50, "need_weights": False}),
    ],
)
@pytest.mark.parametrize("batched", [True, False])
def test_multi_head_attention_is_the_layers(options, arguments, batched):
    layer = sf.nn.MultiheadAttention(8, 2, **options)
    shapes = (4, 3, 8), (5, 3, layer.kdim), (5, 3, layer.vdim)
    inputs = [sf.randn(shape).requires_grad_() for shape in shapes]
    if not batched:
        arguments = {
            k: v[0] if k == "key_padding_mask" else v[:2] if sf.is_tensor(v) and v.dim() == 3 else v
            for k, v in arguments.items()
        }
        inputs = [x[:, 0].detach().requires_grad_() for x in inputs]
    separate = layer.in_proj_weight is None
    y, weights = F.multi_head_attention_forward(
        *inputs,
        8,
        2,
        layer.in_proj_weight,
        layer.in_proj_bias,
        layer.bias_k,
        layer.bias_v,
        layer.add_zero_attn,
        0.0,
        layer.out_proj.weight,
        layer.out_proj.bias,
        use_separate_proj_weight=separate,
        q_proj_weight=layer.q_proj_weight,
        k_proj_weight=layer.k_proj_weight,
        v_proj_weight=layer.v_proj_weight,
        **arguments,
    )
    want, want_weights = layer(*inputs, **arguments)
    assert y.shape == want.shape and y.allclose(want, atol=1e-6)
    assert (weights is None and want_weights is None) or weights.allclose(want_weights, atol=1e-6)
    names, tensors = zip(*layer.named_parameters())
    for name, a, b in zip(
        (*"qkv", *names),
        sf.autograd.grad(y.cos().sum(), [*inputs, *tensors]),
        sf.autograd.grad(want.cos().sum(), [*inputs, *tensors]),
    ):
        assert a.allclose(b, atol=1e-5), name
