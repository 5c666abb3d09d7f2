"""Hooks of modules, copying and pickling."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import weakref

import pytest

import scaffolding as sf
from scaffolding import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("c", sf.ones(1), persistent=False)
        self.settings = {"depth": [1, 2]}

    def forward(self, x, scale=1):
        return self.norm(self.b(self.a(x))) * scale


def test_forward_hooks_see_and_change():
    lin, seen = nn.Linear(2, 2), []
    first = lin.register_forward_hook(lambda m, args, y: seen.append((m is lin, len(args), y.shape)))
    second = lin.register_forward_hook(lambda m, args, y: y * 0)
    assert lin(sf.ones(1, 2)).tolist() == [[0, 0]] and seen == [(True, 1, (1, 2))]
    second.remove()
    second.remove()
    assert lin(sf.ones(1, 2)).tolist() != [[0, 0]] and len(seen) == 2
    first.remove()
    assert lin._hooks is None
    with lin.register_forward_pre_hook(lambda m, args: args[0] * 0):
        assert lin(sf.ones(1, 2)).tolist() == [lin.bias.tolist()]
    assert lin(sf.ones(1, 2)).tolist() != [lin.bias.tolist()]
    with pytest.raises(TypeError, match="callable"):
        lin.register_forward_hook(3)


def test_hooks_with_kwargs_prepended_and_always_called():
    net, order = Net().eval(), []
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": kwargs["scale"] + 1}), with_kwargs=True)
    net.register_forward_hook(lambda m, a, y: order.append("second"))
    net.register_forward_hook(lambda m, a, k, y: order.append(k["scale"]), with_kwargs=True, prepend=True)
    x = sf.randn(2, 3)
    assert sf.allclose(net(x, scale=1), 2 * net.norm(net.b(net.a(x)))) and order == [2, "second"]
    called = []
    lin = nn.Linear(2, 2)
    lin.register_forward_hook(lambda *a: called.append("always"), always_call=True)
    lin.register_forward_hook(lambda *a: called.append("never"))
    with pytest.raises(ValueError):
        lin(sf.ones(1, 5))
    assert called == ["always"]


def test_hooks_run_when_cpp_calls_the_layer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
    x, shapes = sf.randn(64, 16, 8), []  # large enough for the call to run without the GIL
    before = layer(x)
    handle = layer.linear1.register_forward_hook(lambda m, args, y: shapes.append((type(m), args[0].shape, y.shape)))
    layer(x)
    assert shapes == [(nn.Linear, (64, 16, 8), (64, 16, 16))]
    handle.remove()
    zero = layer.linear2.register_forward_hook(lambda m, args, y: y * 0)
    assert not sf.allclose(layer(x), before)
    zero.remove()
    assert sf.allclose(layer(x), before)


def test_forward_of_a_python_subclass_and_of_an_object_reach_cpp():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=True)
    x = sf.randn(4, 2, 8)
    layer.linear2.forward = lambda h: sf.zeros(4, 2, 8)
    layer.self_attn.out_proj.forward = lambda h: sf.zeros(*h.shape)
    assert sf.equal(layer(x), x)


def test_an_error_in_a_hook_passes_through_cpp():
    layer = nn.TransformerEncoderLayer(8, 2, 16)

    def fail(*args):
        raise KeyError("mine")

    layer.linear1.register_forward_hook(fail)
    with pytest.raises(KeyError, match="mine"):
        layer(sf.randn(4, 2, 8))


def test_full_backward_hook():
    lin, seen = nn.Linear(3, 2), []
    lin.register_full_backward_hook(lambda m, gi, go: seen.append((m is lin, gi[0].shape, go[0].tolist())))
    x = sf.randn(4, 3, requires_grad=True)
    lin(x).sum().backward()
    assert seen == [(True, (4, 3), [[1, 1]] * 4)]
    plain = x.grad.clone()
    lin.register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))
    x.grad = None
    lin(x).sum().backward()
    assert sf.allclose(x.grad, 3 * plain)


def test_backward_hook_without_input_gradients_and_pre_hook():
    lin, seen = nn.Linear(3, 2), []
    lin.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].tolist())))
    lin.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    lin(sf.ones(1, 3)).sum().backward()
    assert seen == [((None,), [[2, 2]])] and lin.bias.grad.tolist() == [2, 2]


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"]
)
def test_copies_are_equal_and_apart(duplicate):
    net = Net()
    net(sf.randn(4, 3)).sum().backward()
    net.eval()
    twin = duplicate(net)
    x = sf.randn(2, 3)
    assert type(twin) is Net and sf.equal(twin(x), net(x)) and not twin.training and not twin.norm.training
    assert twin.settings == net.settings and twin.settings["depth"] is not net.settings["depth"]
    assert list(twin.state_dict()) == list(net.state_dict()) and "c" not in twin.state_dict() and twin.c.item() == 1
    if duplicate is copy.deepcopy:
        assert twin.b.weight is twin.a.weight
    twin.a.weight.data.zero_()
    assert net.a.weight.abs().sum().item() > 0


@pytest.mark.parametrize(
    "layer",
    [
        "nn.Conv2d(3, 4, (3, 1), padding='same', bias=False)",
        "nn.BatchNorm2d(3, momentum=None)",
        "nn.TransformerEncoderLayer(8, 2, 16)",
        "nn.Upsample(scale_factor=2.0)",
        "nn.CrossEntropyLoss(sf.ones(3))",
        "nn.Embedding(4, 2, padding_idx=1)",
        "nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))",
        "nn.ModuleList([nn.Identity(3)])",
    ],
)
def test_every_kind_of_layer_copies_without_drawing(layer):
    module = eval(layer)
    sf.manual_seed(1)
    twins = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    after = sf.rand(1)
    sf.manual_seed(1)
    assert sf.equal(sf.rand(1), after)  # initial values were not drawn
    for twin in twins:
        assert repr(twin) == repr(module)
        for (name, a), (_, b) in zip(module.state_dict().items(), twin.state_dict().items()):
            assert sf.equal(a, b) and (a.numel() == 0 or a.data_ptr() != b.data_ptr()), name


def test_changed_fields_and_extra_members_are_copied():
    conv = nn.Conv2d(3, 4, 3)
    conv.stride = (2, 2)
    conv.note = [1]
    conv.extra = nn.Parameter(sf.ones(2))
    twin = copy.deepcopy(conv)
    assert (
        twin.stride == (2, 2)
        and twin.note == [1]
        and twin.note is not conv.note
        and list(twin.state_dict()) == ["weight", "bias", "extra"]
    )


def test_a_part_is_not_copied_alone():
    with pytest.raises(TypeError, match="part of a C\\+\\+ module"):
        copy.deepcopy(nn.TransformerEncoderLayer(8, 2, 16).linear1)


def test_parts_with_hooks_outlive_no_model_that_a_cycle_kept():
    """The collector clears objects in any order; a part's object must find its C++ module alive until it lets go of it.
    Freed memory is overwritten.
    """
    program = """
import gc, weakref
from scaffolding.models import AutoencoderKL
kinds = {"down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2}
model = AutoencoderKL(block_out_channels=[8, 8], norm_num_groups=4, **kinds)
for part in model.modules():
    part.register_forward_hook(lambda *a: None)
alive = weakref.ref(model)
model.cycle = [model]
del part, model
gc.collect()
assert alive() is None
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"MALLOC_PERTURB_": "165"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr or f"ended by signal {-done.returncode}"


# ---- hooks of state dicts


def test_state_dict_hooks_run_in_torchs_order():
    net, order = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2))), []
    net.register_state_dict_pre_hook(lambda m, prefix, keep_vars: order.append(("before", prefix, keep_vars)))
    net.register_state_dict_post_hook(lambda m, state, prefix, metadata: order.append(("after", prefix, len(state))))
    net[1].register_state_dict_pre_hook(lambda m, prefix, keep_vars: order.append(("before", prefix, keep_vars)))

    def renamed(m, state, prefix, metadata):
        state[prefix + "alpha"] = state.pop(prefix + "weight")

    handle = net[1][0].register_state_dict_post_hook(renamed)
    state = net.state_dict(prefix="net.", keep_vars=True)
    assert list(state) == [
        "net.0.weight",
        "net.0.bias",
        *(f"net.1.0.{n}" for n in ("bias", "running_mean", "running_var", "num_batches_tracked", "alpha")),
    ]
    assert state["net.1.0.alpha"] is net[1][0].weight
    assert order == [("before", "net.", True), ("before", "net.1.", True), ("after", "net.", 7)]
    handle.remove()
    assert list(net.state_dict()) == list(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2))).state_dict())
    net._register_state_dict_hook(lambda m, state, prefix, metadata: {"all": len(state)})
    assert net.state_dict() == {"all": 7}
    net.register_state_dict_post_hook(lambda *args: {})
    with pytest.raises(RuntimeError, match="must return None"):
        net.state_dict()


def test_load_state_dict_pre_hooks_change_what_is_loaded():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))

    def old_names(m, state, prefix, metadata, strict, missing, unexpected, errors):
        assert m is net[1] and strict and all(name.startswith("1.") for name in state)
        state[prefix + "weight"] = state.pop(prefix + "w")

    net[1].register_load_state_dict_pre_hook(old_names)
    state = {f"0.{k}": v for k, v in nn.Linear(2, 2).state_dict().items()} | {
        "1.w": sf.ones(1, 2),
        "1.bias": sf.zeros(1),
    }
    given = dict(state)
    assert str(net.load_state_dict(state)) == "<All keys matched successfully>"
    assert net[1].weight.tolist() == [[1, 1]] and state == given
    before = net[1].weight.tolist()
    net._register_load_state_dict_pre_hook(
        lambda state, prefix, metadata, strict, missing, unexpected, errors: errors.append("not this file")
    )
    with pytest.raises(RuntimeError, match="Sequential:\n\tnot this file"):
        net.load_state_dict(state | {"1.w": sf.zeros(1, 2)})
    assert net[1].weight.tolist() == before


def test_load_state_dict_post_hooks_see_the_keys():
    net, order = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), []
    net[1].register_load_state_dict_post_hook(
        lambda m, keys: order.append("inner") or keys.missing_keys.remove("1.bias")
    )
    net.register_load_state_dict_post_hook(
        lambda m, keys: order.append((list(keys.missing_keys), list(keys.unexpected_keys)))
    )
    state = net.state_dict()
    del state["1.bias"]
    assert net.load_state_dict(state) == ([], []) and order == ["inner", ([], [])]
    state["0.wieght"] = state.pop("0.weight")
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(state)
    assert "Missing key(s) in state_dict: \"0.weight\" (closest: '0.wieght')" in str(
        error.value
    ) and "1.bias" not in str(error.value)
    assert net.load_state_dict(state, strict=False) == (["0.weight"], ["0.wieght"])
    copied = copy.deepcopy(net)
    with pytest.raises(RuntimeError, match="0.weight"):
        copied.load_state_dict(state)
    assert len(order) == 8  # the copy has the hooks too


def test_hooks_that_are_always_called_run_after_a_pre_hook_that_throws():
    seen = []
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda m, args, y: seen.append(y), always_call=True)

    def wrong(module, args):
        raise ValueError("on purpose")

    handle = layer.register_forward_pre_hook(wrong)
    with pytest.raises(ValueError, match="on purpose"):
        layer(sf.ones(1, 2))
    assert seen == [None]
    handle.remove()
    layer(sf.ones(1, 2))
    assert len(seen) == 2


def test_handles_do_not_keep_their_module():
    layer = nn.Linear(2, 2)
    handle = layer.register_forward_hook(lambda m, args, y: None)
    gone = weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None
    handle.remove()
