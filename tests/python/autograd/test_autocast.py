"""autocast: torch's dtypes and values for every op of the table on the CPU (tests/golden/make_golden_autocast.py)."""

import threading
import warnings

import folders
import numpy as np
import pytest
from packed import read_json

import scaffolding as sf
import scaffolding.nn.functional as F

GOLDEN = read_json(folders.GOLDEN / "autocast.json.xz")["calls"]
KINDS = {
    "float32": ("float32",) * 3,
    "bfloat16": ("bfloat16",) * 3,
    "mixed": ("bfloat16", "float32", "float32"),
    "float64": ("float64",) * 3,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_dtypes_and_values_are_torchs(name, kind):
    call = GOLDEN[name]
    want = call["runs"][kind]
    if "error" in want:
        pytest.skip(f"torch refuses these inputs: {want['error']}")
    leaves = [
        sf.tensor(v, dtype=sf.float64).reshape(shape).to(getattr(sf, t)).requires_grad_()
        for v, shape, t in zip(call["inputs"], call["shapes"], KINDS[kind])
    ]
    with sf.autocast("cpu", dtype=sf.bfloat16):
        out = eval(call["expression"], {"torch": sf, "F": F, **dict(zip("abc", leaves))})
    assert str(out.dtype).endswith("." + want["dtype"])
    limit = 0.03 if "bfloat16" in (want["dtype"], kind) or kind == "mixed" else 1e-5
    got = out.detach().double().numpy().ravel()[:12]
    assert np.abs(got - want["values"]).max() <= limit * max(1.0, np.abs(want["values"]).max())
    out.float().sum().backward()
    assert [str(x.grad.dtype).split(".")[-1] for x in leaves] == want["grad_dtypes"]


def test_every_op_of_the_table_is_compared_on_the_cpu():
    table = sf.amp.autocast_table()
    names = set(sf._core._op_names())
    assert set(table) <= names
    fused = {"linear_act", "linear_geglu", "linear_swiglu", "mlp"}
    text = " ".join(call["expression"] for call in GOLDEN.values())
    for op, (cpu, _) in table.items():
        if cpu != "own" and op not in fused and not op.endswith("_with_indices"):
            assert f".{op}(" in text, op


def test_fused_products_run_in_the_lower_type():
    x, w, b = sf.randn(3, 4), sf.randn(8, 4), sf.randn(8)
    with sf.autocast("cpu"):
        for out in (
            sf.linear_act(x, w, b, "gelu"),
            sf.linear_geglu(x, w, b),
            sf.linear_swiglu(x, w, b),
            sf.mlp(x, w, b, w.t(), x[0]),
        ):
            assert out.dtype is sf.bfloat16


def test_float16():
    x, w = sf.randn(3, 4), sf.randn(5, 4)
    with sf.autocast("cpu", dtype=sf.float16):
        assert F.linear(x, w).dtype is sf.float16
        assert sf.get_autocast_dtype("cpu") is sf.float16
    assert F.linear(x, w).dtype is sf.float32
    assert sf.get_autocast_dtype("cpu") is sf.bfloat16


def test_blocks_nest_and_restore():
    x, w = sf.randn(3, 4), sf.randn(5, 4)
    assert not sf.is_autocast_enabled("cpu")
    with sf.autocast("cpu"):
        assert sf.is_autocast_enabled("cpu") and not sf.is_autocast_enabled("cuda")
        with sf.autocast("cpu", enabled=False):
            assert not sf.is_autocast_enabled("cpu")
            assert F.linear(x, w).dtype is sf.float32
        assert F.linear(x, w).dtype is sf.bfloat16
        with pytest.raises(ZeroDivisionError):
            with sf.autocast("cpu", dtype=sf.float16):
                1 / 0
        assert F.linear(x, w).dtype is sf.bfloat16
    assert not sf.is_autocast_enabled("cpu")
    with sf.autocast("cuda", enabled=False):
        assert F.linear(x, w).dtype is sf.float32


def test_in_place_ops_keep_their_type():
    x = sf.ones(3, dtype=sf.bfloat16)
    with sf.autocast("cpu"):
        x.exp_().mul_(2).pow_(2)
    assert x.dtype is sf.bfloat16


def test_decorator():
    @sf.autocast("cpu")
    def product(x, w):
        """Multiplies."""
        return F.linear(x, w)

    assert product.__doc__ == "Multiplies."
    assert product(sf.randn(3, 4), sf.randn(5, 4)).dtype is sf.bfloat16
    assert not sf.is_autocast_enabled("cpu")


def test_other_threads_are_not_concerned():
    seen = []
    with sf.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append(sf.is_autocast_enabled("cpu")))
        thread.start()
        thread.join()
    assert seen == [False]


def test_gradients_come_in_the_parameters_type_and_close_to_float32():
    layers = [sf.nn.Parameter(sf.randn(16, 8) / 3), sf.nn.Parameter(sf.randn(4, 16) / 4)]
    x, y = sf.randn(32, 8), sf.randn(32, 4)

    def loss_of():
        return F.mse_loss(F.linear(F.silu(F.linear(x, layers[0])), layers[1]), y)

    loss_of().backward()
    exact = [p.grad.clone() for p in layers]
    for p in layers:
        p.grad = None
    with sf.autocast("cpu"):
        loss = loss_of()
    assert loss.dtype is sf.float32
    loss.backward()
    for p, g in zip(layers, exact):
        assert p.grad.dtype is sf.float32
        assert (p.grad - g).norm().item() < 0.02 * g.norm().item()


def test_a_parameter_is_cast_once_in_a_block():
    w = sf.nn.Parameter(sf.randn(4, 4))
    x = sf.randn(2, 4)

    def nodes(out):
        """The cast of w that out was made from."""
        return [f for f, _ in out.grad_fn.next_functions if f is not None]

    with sf.autocast("cpu"):
        assert nodes(F.linear(x, w)) == nodes(F.linear(x, w))
    with sf.autocast("cpu", cache_enabled=False):
        assert nodes(F.linear(x, w)) != nodes(F.linear(x, w))


def test_the_kept_cast_follows_the_parameter():
    w = sf.nn.Parameter(sf.ones(2, 2))
    x = sf.ones(1, 2)
    with sf.autocast("cpu"):
        assert F.linear(x, w).tolist() == [[2, 2]]
        with sf.no_grad():
            w.mul_(3)
        assert F.linear(x, w).tolist() == [[6, 6]]
        with sf.no_grad():
            assert F.linear(x, w).grad_fn is None
        assert F.linear(x, w).requires_grad


def test_several_backward_passes_in_one_block():
    w = sf.nn.Parameter(sf.ones(2, 2))
    x = sf.ones(1, 2)
    with sf.autocast("cpu"):
        for i in range(3):
            F.linear(x, w).sum().backward()
            assert w.grad.tolist() == [[i + 1.0] * 2] * 2
        assert w.grad.dtype is sf.float32


def test_checkpoint_recomputes_with_autocast():
    w = sf.nn.Parameter(sf.randn(4, 4))
    x = sf.randn(2, 4, requires_grad=True)
    dtypes = []

    def block(x):
        h = F.linear(x, w)
        dtypes.append(h.dtype)
        return F.silu(h)

    with sf.autocast("cpu"):
        out = sf.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    out.float().sum().backward()
    assert dtypes == [sf.bfloat16, sf.bfloat16]
    assert x.grad.dtype is sf.float32 and w.grad.dtype is sf.float32


def test_custom_function():
    class Product(sf.autograd.Function):
        @staticmethod
        @sf.amp.custom_fwd(device_type="cpu", cast_inputs=sf.float32)
        def forward(ctx, a, b):
            assert a.dtype is sf.float32 and not sf.is_autocast_enabled("cpu")
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @sf.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            assert not sf.is_autocast_enabled("cpu")
            a, b = ctx.saved_tensors
            return g @ b.T, a.T @ g

    a, b = sf.randn(2, 3, dtype=sf.bfloat16, requires_grad=True), sf.randn(3, 2, requires_grad=True)
    with sf.autocast("cpu"):
        out = Product.apply(a, b)
    assert out.dtype is sf.float32
    out.sum().backward()
    assert b.grad.dtype is sf.float32


def test_aliases():
    assert sf.amp.autocast is sf.autocast
    from scaffolding.cuda.amp import GradScaler, autocast

    assert sf.cuda.amp.autocast is autocast
    with autocast(enabled=False):
        pass
    assert issubclass(autocast, sf.autocast) and issubclass(GradScaler, sf.amp.GradScaler)
    assert GradScaler(enabled=False).get_scale() == 1.0


def test_cuda_without_cuda_warns():
    if sf.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.warns(UserWarning, match="CUDA is not available. Disabling"):
        context = sf.autocast("cuda")
    with context:
        assert not sf.is_autocast_enabled("cuda")


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: sf.autocast("tpu"), RuntimeError, "unsupported autocast device_type 'tpu'"),
        (lambda: sf.autocast(0), ValueError, "Expected `device_type` of type `str`"),
        (lambda: sf.autocast("cpu", dtype=sf.int32), ValueError, "dtype must be bfloat16 or float16"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_emulated_bfloat16_is_said_once(monkeypatch):
    cpu = sf.backends.cpu
    monkeypatch.setattr(cpu, "has_bf16", lambda: False)
    monkeypatch.setattr(cpu, "_warned_of_bf16", False)
    with pytest.warns(UserWarning, match="bfloat16 on this CPU is emulated"):
        sf.autocast("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sf.autocast("cpu")
    monkeypatch.setattr(cpu, "_warned_of_bf16", False)
    with pytest.warns(UserWarning, match="emulated"):
        sf.optim.SGD([sf.nn.Parameter(sf.ones(2, dtype=sf.bfloat16))])
    assert isinstance(sf.backends.cpu.has_bf16(), bool)


def test_bfloat16_training_learns():
    sf.manual_seed(3)
    w = sf.nn.Parameter((sf.randn(8, 4) / 2).bfloat16())
    v = sf.nn.Parameter((sf.randn(1, 8) / 3).bfloat16())
    optimizer = sf.optim.AdamW([w, v], lr=0.02, master_weights=True, weight_decay=0)
    x = sf.randn(64, 4).bfloat16()
    y = (x[:, :1] - x[:, 1:2]).detach()
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.mse_loss(F.linear(F.silu(F.linear(x, w)), v), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
