"""linear, ReLU or GELU by tanh, linear on a GPU: the activation's gradient is part of a product there, in layers and
models too, and wherever somebody wants to see the parts it is not."""

import ctypes
import os
import pathlib

import pytest

import scaffolding as sf
from scaffolding import cuda, nn
from scaffolding.models import CLIPTextModel, DiTModel, DiTTransformer2DModel
from scaffolding.profiler import profile

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
F = nn.functional


def keys(f):
    with profile() as prof:
        f()
    return [e.key for e in prof.events()]


def joined(f):
    """How often a product applied an activation's gradient."""
    return keys(f).count("mlp_hidden_gradient")


def encoder_layer(activation="relu", dropout=0.0):
    return nn.TransformerEncoderLayer(16, 2, 40, dropout=dropout, activation=activation), lambda: [sf.randn(5, 2, 16)]


def two_layers():
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 5)), lambda: [sf.randn(7, 12)]


def four_layers():
    layers = [
        nn.LayerNorm(12),
        nn.Linear(12, 24),
        nn.GELU("tanh"),
        nn.Linear(24, 6, bias=False),
        nn.ReLU(),
        nn.Linear(6, 8),
        nn.ReLU(),
        nn.Linear(8, 3),
    ]
    return nn.Sequential(*layers), lambda: [sf.randn(2, 7, 12)]


def dit():
    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        num_layers=2,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=10,
    )
    return model, lambda: [sf.randn(2, 4, 8, 8), sf.tensor([3, 4]), sf.tensor([1, 2])]


def dit_with_text():
    model = DiTModel(patch_size=2, in_channels=4, hidden_size=32, depth=2, num_heads=4, context_dim=12)
    return model, lambda: [sf.randn(2, 4, 8, 8), sf.tensor([3, 4]), sf.randn(2, 5, 12)]


def text_encoder():
    sizes = dict(
        vocab_size=30,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=8,
    )
    return CLIPTextModel(**sizes, hidden_act="gelu_pytorch_tanh"), lambda: [sf.ones(2, 6, dtype=sf.int64)]


def first_tensor(output):
    return output if isinstance(output, sf.Tensor) else output[0]


def gradients(make, device, prepare=lambda model: None, autocast=None):
    """What a training step gives, and how often a product applied an activation's gradient in it."""
    sf.manual_seed(0)
    model, inputs = make()
    inputs = [x.to(device) for x in inputs()]
    for p in model.parameters():  # models that begin as the identity have no gradients to compare
        p.data.add_(sf.randn(p.shape) * 0.1)
    model = model.to(device)
    prepare(model)

    def step():
        with sf.autocast(device, dtype=sf.bfloat16, enabled=autocast is not None):
            first_tensor(model(*inputs)).float().square().mean().backward()

    count = joined(step)
    return {k: p.grad.cpu() if p.grad is not None else None for k, p in model.named_parameters()}, count


def equal(got, want, tolerance=1e-4, least=1e-6):
    assert got.keys() == want.keys()
    for name, w in want.items():
        assert (got[name] is None) == (w is None), name
        if w is not None:
            assert (got[name] - w).abs().max() <= tolerance * w.abs().max() + least, name


LAYERS = [(encoder_layer, 1), (two_layers, 1), (four_layers, 2), (dit, 2), (dit_with_text, 3), (text_encoder, 3)]


@pytest.mark.parametrize(("make", "expected"), LAYERS)
def test_layers_and_models_take_it_and_give_the_cpus_gradients(make, expected):
    want, none = gradients(make, "cpu")
    got, count = gradients(make, "cuda")
    # GELU of float32 is a pass of its own: cuBLASLt's may be the GPU's approximate one.
    assert none == 0 and count == {encoder_layer: 1, two_layers: 1, four_layers: 1}.get(make, 0)
    equal(got, want)


@pytest.mark.parametrize(("make", "expected"), LAYERS)
def test_under_autocast_too(make, expected):
    want, _ = gradients(make, "cpu")
    got, count = gradients(make, "cuda", autocast=sf.bfloat16)
    assert count == expected and all(g is None or g.dtype is sf.float32 for g in got.values())
    equal(got, want, tolerance=0.15, least=1e-4)  # keys' biases have no gradient but for rounding


def test_no_pass_of_its_own_is_left_for_the_activation():
    net, inputs = two_layers()
    net, x = net.cuda(), inputs()[0].cuda()
    seen = keys(lambda: net(x).sum().backward())
    assert not [k for k in seen if "relu" in k] and seen.count("mlp_hidden") == 1
    # forward: both products; backward: those of both weights, the one through the activation.
    # Nobody asked for the input's.
    assert sum(k in ("gemm", "linear_gradient", "mlp_hidden", "mlp_hidden_gradient") for k in seen) == 5


@pytest.mark.parametrize("make", [encoder_layer, two_layers])
def test_without_a_gradient_the_activation_is_part_of_the_first_product(make):
    model, inputs = make()
    (x,) = inputs()
    model = model.eval()
    with sf.no_grad():
        want = model(x)
        model, x = model.cuda(), x.cuda()
        assert (model(x).cpu() - want).abs().max() <= 1e-5 * want.abs().max()
        assert "relu" not in keys(lambda: model(x))


class Subclass(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("how", ["hook", "pre-hook", "gradient hook", "own forward", "class's forward"])
def test_who_looks_at_a_part_of_a_sequential_sees_its_calls(part, how, monkeypatch):
    net, inputs = two_layers()
    net, x, seen = net.cuda(), inputs()[0].cuda(), []
    module = net[part]
    if how == "hook":
        module.register_forward_hook(lambda module, args, result: seen.append(1))
    elif how == "pre-hook":
        module.register_forward_pre_hook(lambda module, args: seen.append(1))
    elif how == "gradient hook":
        module.register_full_backward_hook(lambda module, into, out: seen.append(1))
    elif how == "own forward":
        module.forward = lambda x, forward=module.forward: seen.append(1) or forward(x)
    else:
        original = type(module).forward
        monkeypatch.setattr(type(module), "forward", lambda self, x: seen.append(1) or original(self, x))
    assert joined(lambda: net(x).sum().backward()) == 0
    assert len(seen) == (2 if how == "class's forward" and part != 1 else 1)


def test_a_sequential_of_other_things_is_called_part_by_part():
    def count(*layers):
        net = nn.Sequential(*layers).cuda()
        return joined(lambda: net(sf.randn(3, 4, device="cuda")).sum().backward())

    assert count(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)) == 1
    assert count(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2)) == 1
    assert count(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)) == 0  # exact
    assert count(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 2)) == 0
    assert count(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)) == 0
    assert count(nn.Linear(4, 8), nn.ReLU()) == 0
    assert count(Subclass(4, 8), nn.ReLU(), nn.Linear(8, 2)) == 0
    assert count(nn.Sequential(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 2)) == 0
    quantized = nn.quantize_(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda(), "nf4")
    assert joined(lambda: quantized(sf.randn(3, 64, device="cuda", requires_grad=True)).sum().backward()) == 0


def test_dropout_between_the_layers_keeps_them_apart_while_it_drops():
    assert gradients(lambda: encoder_layer(dropout=0.1), "cuda")[1] == 0
    assert gradients(lambda: encoder_layer(dropout=0.1), "cuda", prepare=lambda model: model.eval())[1] == 1
    assert gradients(lambda: encoder_layer("gelu"), "cuda")[1] == 0  # exact
    hooked = gradients(
        encoder_layer, "cuda", prepare=lambda model: model.linear1.register_forward_hook(lambda *_: None)
    )
    assert hooked[1] == 0
    equal(hooked[0], gradients(encoder_layer, "cpu")[0])


@pytest.mark.parametrize("trained", [("0.bias",), ("0.weight",), ("2.weight", "2.bias"), ()])
def test_frozen_weights(trained):
    def freeze(net):
        for name, p in net.named_parameters():
            p.requires_grad_(name in trained)

    def adapted():
        net, inputs = two_layers()
        return nn.Sequential(nn.Linear(12, 12), *net), inputs

    def prepare(net):
        freeze(nn.Sequential(*list(net)[1:]))

    want, _ = gradients(adapted, "cpu", prepare)
    got, count = gradients(adapted, "cuda", prepare)
    assert count == 1
    equal(got, want)


def test_a_second_derivative_comes_by_the_ops():
    def penalty(device):
        sf.manual_seed(3)
        x, w1, b1, w2 = (sf.randn(*s).to(device).requires_grad_() for s in ((4, 6), (8, 6), (8,), (3, 8)))
        (g,) = sf.autograd.grad(F.mlp(x, w1, b1, w2).square().sum(), x, create_graph=True)
        g.square().sum().backward()
        return {k: t.grad.cpu() for k, t in dict(x=x, w1=w1, b1=b1, w2=w2).items()}

    equal(penalty("cuda"), penalty("cpu"))


def test_a_checkpointed_layer_is_joined_when_it_runs_again():
    net, inputs = two_layers()
    net, x = net.cuda(), inputs()[0].cuda().requires_grad_()
    assert joined(lambda: sf.utils.checkpoint.checkpoint(net, x, use_reentrant=False).sum().backward()) == 1


def test_steps_in_a_captured_graph_are_those_outside():
    sf.manual_seed(4)
    net, inputs = two_layers()
    net, x = net.cuda(), inputs()[0].cuda()

    def step():
        net.zero_grad(set_to_none=False)
        net(x).square().sum().backward()

    step()
    g = cuda.CUDAGraph()
    with cuda.graph(g):
        step()
    for _ in range(2):
        x.copy_(sf.randn(7, 12))
        g.replay()
        replayed = [p.grad.cpu() for p in net.parameters()]
        step()
        assert all((a == p.grad.cpu()).all() for a, p in zip(replayed, net.parameters()))


def saved_bytes(f):
    total = []
    with sf.autograd.graph.saved_tensors_hooks(
        lambda t: total.append((t.data_ptr(), t.numel() * t.element_size())) or t, lambda t: t
    ):
        f()
    return sum(dict(total).values())


@pytest.mark.parametrize(("activation", "mask"), [("gelu_tanh", 0), ("relu", 1)])
def test_what_is_kept_for_the_backward_pass(activation, mask):
    rows, width, hidden = 16, 24, 128
    like = dict(device="cuda", dtype=sf.float32 if mask else sf.bfloat16)
    x, w1, b1, w2 = (
        sf.randn(rows, width, **like),
        *(sf.randn(*s, **like, requires_grad=True) for s in ((hidden, width), (hidden,), (8, hidden))),
    )
    act = F.relu if activation == "relu" else lambda h: F.gelu(h, approximate="tanh")
    apart = saved_bytes(lambda: F.linear(act(F.linear(x, w1, b1)), w2))
    together = saved_bytes(lambda: F.mlp(x, w1, b1, w2, activation=activation))
    assert together == apart + mask * rows * hidden // 8  # ReLU's product reads a bit for each element
    frozen = w2.detach()
    assert saved_bytes(lambda: F.mlp(x, w1, b1, frozen, activation=activation)) < saved_bytes(
        lambda: F.linear(act(F.linear(x, w1, b1)), frozen)
    )


def test_cublaslt_is_asked_once_for_a_shape():
    path = pathlib.Path(os.environ.get("SF_CUDA_LIBRARY", "")).parent / "libcublasLt.so.13"
    if not path.exists():
        pytest.skip("unproven here: needs the emulator's stand-in for cuBLASLt")
    questions = ctypes.CDLL(str(path)).sf_cublaslt_emulator_questions
    questions.restype = ctypes.c_int64
    net, inputs = two_layers()
    net, x = net.cuda(), inputs()[0].cuda()
    net(x).sum().backward()
    before = questions()
    for _ in range(3):
        net(x).sum().backward()
    assert questions() == before
