"""nn.Module from Python: attributes, walking, state dicts, moving, and Python and C++ modules in one tree."""

import copy
import gc
import weakref

import pytest

import scaffolding as sf
from scaffolding import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(8, 2))
        self.scale = nn.Parameter(sf.ones(2))
        self.register_buffer("seen", sf.zeros(1))
        self.register_buffer("cache", sf.zeros(3), persistent=False)
        self.width = 8

    def forward(self, x):
        return self.body(self.fc1(x)) * self.scale


# ---- attributes


def test_attributes_register():
    net = Net()
    assert list(dict(net.named_parameters())) == ["scale", "fc1.weight", "fc1.bias", "body.1.weight", "body.1.bias"]
    assert [k for k, _ in net.named_buffers()] == ["seen", "cache"]
    assert list(net.state_dict()) == ["scale", "seen", "fc1.weight", "fc1.bias", "body.1.weight", "body.1.bias"]
    assert [k for k, _ in net.named_children()] == ["fc1", "body"]
    assert [k for k, _ in net.named_modules()] == ["", "fc1", "body", "body.0", "body.1"]
    assert (
        list(net._modules) == ["fc1", "body"]
        and list(net._parameters) == ["scale"]
        and list(net._buffers) == ["seen", "cache"]
    )
    assert vars(net) == {"width": 8}
    assert {"fc1", "scale", "seen", "width", "forward"} <= set(dir(net))


def test_assigning_before_init_is_an_error():
    class Early(nn.Module):
        def __init__(self, value):
            self.x = value

    with pytest.raises(AttributeError, match="cannot assign module before Module.__init__"):
        Early(nn.Linear(1, 1))
    with pytest.raises(AttributeError, match="cannot assign parameters before Module.__init__"):
        Early(nn.Parameter(sf.ones(1)))
    with pytest.raises(AttributeError, match="cannot assign buffers before Module.__init__"):
        Early(nn.Buffer(sf.ones(1)))
    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) first"):
        Early(3)(sf.ones(1))


def test_members_are_replaced_by_their_kind_only():
    net = Net()
    with pytest.raises(TypeError, match=r"cannot assign .* as parameter 'scale' \(nn.Parameter or None expected\)"):
        net.scale = sf.ones(2)
    with pytest.raises(TypeError, match="as child module 'fc1'"):
        net.fc1 = 3
    with pytest.raises(TypeError, match="as buffer 'seen'"):
        net.seen = "x"
    net.scale = None
    assert net.scale is None and "scale" not in net.state_dict()
    net.seen = sf.ones(5)
    assert net._buffers["seen"].shape == (5,)
    net.fc1 = nn.Identity()
    net.width = nn.Parameter(sf.ones(1))  # a plain attribute becomes a parameter
    assert "width" in net._parameters and "width" not in vars(net)
    del net.width
    assert not hasattr(net, "width")
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'width'"):
        net.width


@pytest.mark.parametrize(
    "name, value, error, text",
    [
        (3, None, TypeError, "parameter name should be a string"),
        ("a.b", None, KeyError, "contain"),
        ("", None, KeyError, "be empty"),
        ("fc1", None, KeyError, "attribute 'fc1' already exists"),
        ("forward", None, KeyError, "already exists"),
        ("p", sf.ones(1), TypeError, "nn.Parameter or None required"),
    ],
)
def test_register_parameter_refuses(name, value, error, text):
    with pytest.raises(error, match=text):
        Net().register_parameter(name, value)


def test_register_parameter_of_none_keeps_the_name():
    net = nn.Module()
    net.register_parameter("bias", None)
    net.register_buffer("mask", None)
    assert net.bias is None and net.mask is None and list(net.state_dict()) == []
    net.bias = nn.Parameter(sf.ones(2))
    net.mask = sf.ones(2)
    assert list(net.state_dict()) == ["bias", "mask"]


def test_buffer_objects_register():
    net = nn.Module()
    net.a = nn.Buffer(sf.ones(2))
    net.b = nn.Buffer(sf.ones(2), persistent=False)
    assert list(net.state_dict()) == ["a"] and [k for k, _ in net.named_buffers()] == ["a", "b"]


def test_members_of_a_layer_are_attributes():
    lin = nn.Linear(4, 3)
    assert isinstance(lin, nn.Module) and type(lin.weight) is nn.Parameter and lin.weight is lin.weight
    lin.weight.note = "kept"
    gc.collect()
    assert next(lin.parameters()).note == "kept"
    assert lin._parameters["bias"] is lin.bias and list(lin._parameters) == ["weight", "bias"]
    lin.weight = nn.Parameter(sf.ones(3, 4))
    assert lin(sf.ones(1, 4)).sub(lin.bias).tolist() == [[4, 4, 4]]
    lin.bias = None
    assert lin(sf.ones(1, 4)).tolist() == [[4, 4, 4]] and "bias=False" in repr(lin)
    with pytest.raises(TypeError, match="as parameter 'weight'"):
        lin.weight = sf.ones(3, 4)
    with pytest.raises(TypeError, match="cannot be deleted"):
        del lin.weight
    lin.extra = nn.Parameter(sf.ones(1))
    assert list(lin.state_dict()) == ["weight", "extra"]


def test_layer_fields_can_be_read_and_set():
    conv = nn.Conv2d(3, 4, 3, padding=1)
    assert (conv.in_channels, conv.kernel_size, conv.padding, conv.padding_mode) == (3, (3, 3), (1, 1), "zeros")
    assert type(conv.kernel_size) is tuple
    conv.stride = (2, 2)
    assert conv(sf.zeros(1, 3, 8, 8)).shape == (1, 4, 4, 4)
    with pytest.raises(TypeError):
        conv.stride = "wide"
    assert nn.BatchNorm1d(3, momentum=None).momentum is None
    assert nn.MaxPool2d(2).stride == 2 and nn.MaxPool2d((2, 3)).stride == (2, 3)


def test_children_of_a_composite_layer():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    assert [k for k, _ in layer.named_children()] == [
        "self_attn",
        "linear1",
        "dropout",
        "linear2",
        "norm1",
        "norm2",
        "dropout1",
        "dropout2",
    ]
    assert (
        layer.linear1 is layer.linear1 and type(layer.self_attn.out_proj).__name__ == "NonDynamicallyQuantizableLinear"
    )
    linear = layer.linear1
    linear.note = 1
    ref = weakref.ref(linear)
    del linear
    gc.collect()
    assert layer.linear1.note == 1  # attributes of a part stay with the whole
    del layer
    gc.collect()
    assert ref() is None


class Adapter(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.down, self.up = (
            nn.Linear(base.in_features, rank, bias=False),
            nn.Linear(rank, base.out_features, bias=False),
        )

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def test_parts_of_a_composite_layer_can_be_replaced():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x, base = sf.randn(2, 3, 8), layer.linear1
    before = layer(x)
    adapter = layer.linear1 = Adapter(base)
    assert (
        layer.linear1 is adapter
        and layer._modules["linear1"] is adapter
        and dict(layer.named_modules())["linear1.base"] is base
    )
    assert [k for k in layer.state_dict() if k.startswith("linear1")] == [
        "linear1.base.weight",
        "linear1.base.bias",
        "linear1.down.weight",
        "linear1.up.weight",
    ]
    after = layer(x)
    assert not sf.allclose(before, after) and "(linear1): Adapter(" in repr(layer)
    after.sum().backward()
    assert adapter.up.weight.grad.abs().sum() > 0 and base.weight.grad is not None
    assert layer.train().linear1.down.training and not layer.eval().linear1.base.training
    with sf.no_grad():
        adapter.up.weight.zero_()
    assert sf.equal(layer(x), before)
    wide = layer.linear1 = nn.Linear(8, 16)
    del adapter
    gc.collect()
    assert layer.linear1 is wide and not sf.allclose(layer(x), before)
    clone = copy.deepcopy(layer)
    assert sf.equal(clone(x), layer(x)) and clone.linear1 is not wide
    layer.linear1 = base
    assert sf.equal(layer(x), before) and layer.linear1 is base and "Adapter" not in repr(layer)
    with pytest.raises(TypeError, match="'linear1' is a member of a C.. module, which calls it, and cannot be None"):
        layer.linear1 = None


def test_numbers_are_shown_as_they_were_given():
    assert (
        repr(nn.LeakyReLU(1)) == "LeakyReLU(negative_slope=1)"
        and repr(nn.LeakyReLU()) == "LeakyReLU(negative_slope=0.01)"
    )
    assert (
        repr(nn.Softplus(1, threshold=20.0)) == "Softplus(beta=1, threshold=20.0)"
        and repr(nn.Hardtanh(0, 1)) == "Hardtanh(min_val=0, max_val=1)"
    )
    assert (
        repr(nn.BatchNorm1d(4, 1, 1)).startswith("BatchNorm1d(4, eps=1, momentum=1,")
        and nn.GroupNorm(2, 4, eps=1).eps == 1
    )
    assert (
        repr(nn.Embedding(4, 3, max_norm=1)) == "Embedding(4, 3, max_norm=1)"
        and repr(nn.ConstantPad1d(1, 0)) == "ConstantPad1d(padding=(1, 1), value=0)"
    )


def test_a_part_keeps_the_whole_alive():
    part = nn.TransformerEncoderLayer(8, 2, 16).self_attn.out_proj
    gc.collect()
    assert part(sf.ones(1, 8)).shape == (1, 8)


def test_a_second_init_takes_the_parts_away():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    part = layer.linear1
    layer.__init__(8, 2, 32)
    with pytest.raises(AttributeError, match="not ready"):
        part(sf.ones(1, 8))
    assert layer.linear1.out_features == 32


# ---- subclasses


class Doubled(nn.Linear):
    def __init__(self, n):
        super().__init__(n, n, bias=False)
        self.gain = nn.Parameter(sf.full((1,), 2.0))

    def forward(self, x):
        return super().forward(x) * self.gain


def test_a_layer_can_be_subclassed():
    layer = Doubled(3)
    assert isinstance(layer, nn.Linear) and list(layer.state_dict()) == ["weight", "gain"]
    x = sf.randn(2, 3)
    assert sf.allclose(layer(x), 2 * nn.functional.linear(x, layer.weight))
    assert repr(layer) == "Doubled(in_features=3, out_features=3, bias=False)"
    with pytest.raises(RuntimeError, match="not ready"):
        nn.Linear.__new__(Doubled).in_features


def test_forward_is_found_like_any_attribute():
    class Base(nn.Module):
        def forward(self, x, *, k=1):
            return x * k

    base = Base()
    assert base(sf.ones(1), k=3).item() == 3
    base.forward = lambda x: x + 10
    assert base(sf.ones(1)).item() == 11
    lin = nn.Linear(1, 1)
    lin.forward = lambda x: x + 10
    assert lin(sf.ones(1)).item() == 11
    with pytest.raises(NotImplementedError, match='missing the required "forward" function'):
        nn.Module()(1)
    assert nn.Linear.forward(nn.Linear(2, 3), sf.ones(1, 2)).shape == (1, 3)
    with pytest.raises(TypeError, match="Linear.forward"):
        nn.Linear.forward(nn.Conv1d(1, 1, 1), sf.ones(1, 2))


def test_getattr_of_a_subclass_is_asked_last():
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

    wrapped = Wrapper(nn.Linear(2, 3))
    assert wrapped.in_features == 2 and isinstance(wrapped.module, nn.Linear)
    with pytest.raises(AttributeError):
        wrapped.nothing


def test_overridden_train_is_called_below():
    class Frozen(nn.BatchNorm2d):
        def train(self, mode=True):
            return super().train(False)

    net = nn.Sequential(Frozen(3), nn.Dropout())
    net.train()
    assert not net[0].training and net[1].training
    assert not nn.Sequential(net).eval()[0][1].training


def test_multiple_inheritance_and_slots_of_others():
    class Mixin:
        def hello(self):
            return self.width

    class Both(Mixin, Net):
        pass

    assert Both().hello() == 8


# ---- state dicts


def test_load_state_dict_copies_and_reports():
    a, b = Net(), Net()
    assert str(b.load_state_dict(a.state_dict())) == "<All keys matched successfully>"
    assert b.fc1.weight.equal(a.fc1.weight) and b.fc1.weight.data_ptr() != a.fc1.weight.data_ptr()
    state = a.state_dict()
    state["fc1.wieght"] = state.pop("fc1.weight")
    state["scale"] = sf.ones(3)
    with pytest.raises(RuntimeError) as error:
        b.load_state_dict(state)
    text = str(error.value)
    assert text.startswith("Error(s) in loading state_dict for Net:")
    assert "Missing key(s) in state_dict: \"fc1.weight\" (closest: 'fc1.wieght')" in text
    assert "Unexpected key(s) in state_dict: \"fc1.wieght\" (closest: 'fc1.weight')" in text
    assert (
        "size mismatch for scale: copying a param with shape [3] from checkpoint, the shape in current model is [2]"
        in text
    )
    del state["scale"]
    missing, unexpected = b.load_state_dict(state, strict=False)
    assert missing == ["scale", "fc1.weight"] and unexpected == ["fc1.wieght"]
    with pytest.raises(TypeError, match="dict-like"):
        b.load_state_dict([1])
    with pytest.raises(TypeError, match="'x' must be a tensor"):
        b.load_state_dict({"x": 1}, strict=False)


def test_state_dict_arguments():
    net = Net()
    assert list(net.state_dict(prefix="model."))[0] == "model.scale"
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert not net.state_dict()["scale"].requires_grad
    assert net.state_dict()["scale"].data_ptr() == net.scale.data_ptr()
    mine = {}
    assert net.state_dict(destination=mine) is mine and mine


def test_assign_and_the_meta_device():
    with pytest.raises(RuntimeError, match="meta device"):
        nn.Linear(2, 2, device="meta").load_state_dict(nn.Linear(2, 2).state_dict())
    lin = nn.Linear(2, 2, device="meta")
    given = nn.Linear(2, 2).bfloat16().state_dict()
    lin.load_state_dict(given, assign=True)
    assert (
        lin.weight.dtype == sf.bfloat16
        and lin.weight.data_ptr() == given["weight"].data_ptr()
        and lin.weight.requires_grad
    )
    assert nn.Linear(2, 2, device="meta").to_empty(device="cpu")(sf.ones(1, 2)).shape == (1, 2)
    with pytest.raises(NotImplementedError, match="to_empty"):
        nn.Linear(2, 2, device="meta").to("cpu")


# ---- moving


def test_to_keeps_parameters_and_their_sharing():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    weight = net[0].weight
    assert len(list(net.parameters())) == 3 and len(net.state_dict()) == 4
    net.double()
    assert net[0].weight is weight and net[1].weight is weight and weight.dtype == sf.float64
    assert net.to(sf.float32) is net and weight.dtype == sf.float32
    net.half()
    assert net[0].bias.dtype == sf.float16
    assert net.bfloat16()[0].bias.dtype == sf.bfloat16 and net.float()[0].bias.dtype == sf.float32
    with pytest.raises(TypeError, match="only accepts floating"):
        net.to(sf.int64)
    with pytest.raises(TypeError, match="unexpected argument 'dtpye'"):
        net.to(dtpye=sf.float32)


def test_to_leaves_integer_buffers_and_moves_gradients():
    bn = nn.BatchNorm2d(3)
    bn(sf.randn(2, 3, 4, 4)).sum().backward()
    bn.to("cpu", sf.bfloat16)
    assert (
        bn.num_batches_tracked.dtype == sf.int64
        and bn.running_mean.dtype == sf.bfloat16
        and bn.weight.grad.dtype == sf.bfloat16
    )


def test_channels_last():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=sf.channels_last)
    assert net[0].weight.is_contiguous(memory_format=sf.channels_last) and net[1].weight.is_contiguous()


def test_requires_grad_zero_grad_and_apply():
    net = Net()
    net(sf.randn(3, 4)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.fc1.weight.grad.abs().sum().item() == 0
    net.zero_grad()
    assert net.fc1.weight.grad is None
    assert net.requires_grad_(False) is net and not any(p.requires_grad for p in net.parameters())
    seen = []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_paths():
    net = Net()
    assert net.get_submodule("body.1") is net.body[1] and net.get_submodule("") is net
    assert net.get_parameter("fc1.bias") is net.fc1.bias and net.get_buffer("seen") is net.seen
    with pytest.raises(AttributeError, match="Net has no attribute `bdy`"):
        net.get_submodule("bdy.1")
    with pytest.raises(AttributeError, match="`width` is not an nn.Module"):
        net.get_submodule("width")
    with pytest.raises(AttributeError, match="`seen` is not an nn.Parameter"):
        net.get_parameter("seen")
    net.set_submodule("body.1", nn.Linear(8, 5))
    assert net.body[1].out_features == 5


def test_repr():
    assert repr(Net()) == (
        "Net(\n  (fc1): Linear(in_features=4, out_features=8, bias=True)\n"
        "  (body): Sequential(\n    (0): ReLU()\n    (1): Linear(in_features=8, out_features=2, bias=True)\n  )\n)"
    )

    class Shown(nn.Module):
        def extra_repr(self):
            return "a=1"

    assert repr(Shown()) == "Shown(a=1)"
    shown = Shown()
    shown.child = nn.ReLU()
    assert repr(shown) == "Shown(\n  a=1\n  (child): ReLU()\n)"


def test_modules_are_freed_with_their_cycles():
    net = Net()
    net.itself = [net]  # a cycle through a plain attribute
    net.body.hook = net.register_forward_hook(lambda m, a, o, net=net: None)
    refs = [weakref.ref(net), weakref.ref(net.fc1)]
    del net
    gc.collect()
    assert [r() for r in refs] == [None, None]


def test_a_module_that_contains_itself_is_refused():
    net = Net()
    net.itself = net
    for walk in (net.state_dict, net.train, lambda: net.apply(lambda m: None)):
        with pytest.raises(RuntimeError, match="contain itself|recursion"):
            walk()
    assert len(list(net.parameters())) == 5


def test_identity_takes_any_arguments():
    x = sf.ones(2)
    assert nn.Identity(3, unused=1)(x) is x


def test_constructor_arguments_are_checked():
    for make, text in [
        (lambda: nn.Linear(3), "missing argument 'out_features'"),
        (lambda: nn.Linear(3, 4, wide=1), "has no argument 'wide'"),
        (lambda: nn.Linear("3", 4), "in_features must be an integer"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "in_channels must be divisible by groups"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), "kernel_size must be one number or 2 numbers"),
        (lambda: nn.Conv2d(3, 4, 3, padding="some"), "'same' or 'valid'"),
        (lambda: nn.Conv2d(3, 4, 3, stride=2, padding="same"), "not supported for strided"),
        (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), "padding_mode must be one of"),
        (lambda: nn.GroupNorm(4, 6), "must be divisible by num_groups"),
        (lambda: nn.Dropout(1.5), "between 0 and 1"),
        (lambda: nn.MultiheadAttention(7, 2), "embed_dim must be divisible by num_heads"),
        (lambda: nn.Embedding(3, 2, padding_idx=3), "Padding_idx must be within num_embeddings"),
        (lambda: nn.Upsample(), "either size or scale_factor"),
        (lambda: nn.MSELoss(reduction="average"), "average"),
        (lambda: nn.Embedding(3, 2, sparse=True), "sparse gradients are not supported"),
        (lambda: nn.TransformerEncoderLayer(8, 2, activation="tanh"), "activation should be relu/gelu"),
        (lambda: nn.BatchNorm2d(3)(sf.ones(2, 3)), "expected 4D input"),
    ]:
        with pytest.raises((TypeError, ValueError, NotImplementedError), match=text):
            make()


def test_release_gives_memory_back_to_the_system():
    def resident():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))  # MiB

    net = nn.Sequential(*(nn.Linear(1500, 1500) for _ in range(6)))
    net(sf.randn(64, 1500))
    before = resident()
    net.to("meta")  # no value is needed on the host any more
    net._release_cpu_shadows()
    assert resident() < before - 40, (before, resident())  # 6 x 8.6 MiB of weights, and their packed copies
