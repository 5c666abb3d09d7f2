"""What programs written for PyTorch do besides computing: compile, defaults, the kinds of errors, save."""

import pickle
import warnings

import numpy as np
import pytest

import scaffolding as sf
from scaffolding import nn


@pytest.fixture(autouse=True)
def no_notes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# ---- compile


def gate(x, a, b=2.0):
    return sf.nn.functional.silu(x * a + b)


def normalise(x):
    return (x - x.mean()) / x.std()


SCALE = 3.0


def scaled(x):
    return x * SCALE


def test_compile_gives_the_module_itself():
    net = nn.Linear(2, 2)
    assert sf.compile(net, mode="max-autotune", fullgraph=True, dynamic=False) is net
    net.compile(backend="inductor")
    assert list(net.state_dict()) == ["weight", "bias"]


def test_compile_fuses_functions_that_only_compute():
    compiled = sf.compile(gate)
    assert compiled is not gate and compiled.__name__ == "gate"
    x, a = sf.randn(50), sf.randn(50)
    for b in (2.0, -1.0):
        assert sf.equal(compiled(x, a, b=b), gate(x, a, b))
    assert sf.equal(sf.compile()(gate)(x, a), gate(x, a))
    x.requires_grad_()
    compiled(x, a).sum().backward()
    want = sf.autograd.grad(gate(x, a).sum(), x)[0]
    assert sf.allclose(x.grad, want)


def test_compile_calls_what_it_cannot_fuse():
    x = sf.randn(50)
    assert sf.equal(sf.compile(normalise)(x), normalise(x))
    assert sf.compile(scaled) is scaled  # SCALE may change
    seen = []
    assert sf.compile(lambda x: seen.append(1) or x)(x) is x and seen == [1]
    assert sf.compile(gate, disable=True) is gate

    class Options:
        scale = 2.0

    def of_object(x, options):
        return x * options.scale

    compiled, options = sf.compile(of_object), Options()
    for options.scale in (2.0, 5.0):
        assert sf.equal(compiled(x, options), x * options.scale)
    with pytest.raises(ValueError, match="gate|add|mul|broadcast"):
        sf.compile(gate)(x, sf.randn(3))
    with pytest.raises(TypeError, match="takes a module or a function, got int"):
        sf.compile(3)


def test_compile_notes_once(monkeypatch):
    from scaffolding import _compile

    monkeypatch.setattr(_compile, "_noted", False)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        sf.compile(gate), sf.compile(gate)
    assert len(notes) == 1 and "compiled already" in str(notes[0].message)
    assert notes[0].filename == __file__


# ---- settings


def test_deterministic():
    def setting():
        return sf._core._cudnn_get("deterministic")

    before = setting()
    try:
        sf.use_deterministic_algorithms(True)
        assert sf.are_deterministic_algorithms_enabled() and setting() and sf.get_deterministic_debug_mode() == 2
        sf.use_deterministic_algorithms(True, warn_only=True)
        assert sf.is_deterministic_algorithms_warn_only_enabled()
        sf.set_deterministic_debug_mode("default")
        assert not sf.are_deterministic_algorithms_enabled() and setting() == before
        with pytest.raises(ValueError, match="must be 0, 1, 2"):
            sf.set_deterministic_debug_mode("loud")
    finally:
        sf.use_deterministic_algorithms(False)
    assert setting() == before


def test_default_device():
    assert sf.get_default_device() == sf.device("cpu")
    try:
        sf.set_default_device("meta")
        assert sf.get_default_device().type == "meta"
        made = [sf.zeros(2), sf.randn(2), sf.arange(3), sf.tensor([1.0, 2.0]), nn.Linear(2, 2).weight, sf.eye(2)]
        made += [sf.as_tensor(np.ones(2)), sf.tensor(1.0), sf.full((2,), 1)]
        assert {t.device.type for t in made} == {"meta"}
        assert sf.zeros(2, device="cpu").device.type == "cpu" and sf.from_numpy(np.ones(2)).device.type == "cpu"
        with sf.device("cpu"):
            assert sf.zeros(2).device.type == "cpu"
            with pytest.raises(RuntimeError, match="a `with device` block is open"):
                sf.set_default_device("cpu")
        assert sf.zeros(2).device.type == "meta"
        with pytest.raises(TypeError, match="device must be a device, got float"):
            sf.set_default_device(1.5)
    finally:
        sf.set_default_device(None)
    assert sf.tensor([1.0]).device == sf.get_default_device() == sf.device("cpu")


def test_default_dtype():
    assert sf.get_default_dtype() is sf.float32
    try:
        sf.set_default_dtype(sf.float64)
        assert sf.zeros(2).dtype is sf.tensor([1.0]).dtype is nn.Linear(1, 1).weight.dtype is sf.float64
    finally:
        sf.set_default_dtype(sf.float32)


def test_tf32_has_a_word():
    matmul = sf.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        for word in ("tf32", "ieee"):
            matmul.fp32_precision = word
            assert matmul.fp32_precision == word and matmul.allow_tf32 == (word == "tf32")
        with pytest.raises(ValueError, match="'ieee' or 'tf32'"):
            matmul.fp32_precision = "fast"
    finally:
        matmul.fp32_precision = before


# ---- errors


@pytest.mark.parametrize(
    "call",
    [
        lambda: sf.zeros(2, 3) @ sf.zeros(2, 3),
        lambda: sf.zeros(2) + sf.zeros(3),
        lambda: sf.zeros(2, 3).view(4),
        lambda: sf.cat([sf.zeros(2, 2), sf.zeros(3, 3)]),
        lambda: nn.Linear(2, 2)(sf.zeros(1, 3)),
        lambda: sf.zeros(2, 3).copy_(sf.zeros(4)),
        lambda: sf.zeros(-1),
    ],
)
def test_shape_errors_are_runtime_errors_and_value_errors(call):
    with pytest.raises(RuntimeError):
        call()
    with pytest.raises(ValueError) as caught:
        call()
    assert type(caught.value) is sf.ArgumentError
    assert type(pickle.loads(pickle.dumps(caught.value))) is sf.ArgumentError


class OfAnother:
    """A tensor of another library, as far as ours looks at it."""

    __module__ = "torch"

    def __dlpack__(self, **_):
        raise AssertionError("nobody asked for it")


OfAnother.__name__ = OfAnother.__qualname__ = "Tensor"


@pytest.mark.parametrize("call", [sf.relu, nn.ReLU(), lambda x: sf.matmul(sf.zeros(2, 2), x), nn.Linear(2, 2)])
def test_another_librarys_tensor_is_told_of_from_dlpack(call):
    with pytest.raises(TypeError, match=r"got .*Tensor; scaffolding.from_dlpack takes it over without a copy"):
        call(OfAnother())
    with pytest.raises(TypeError, match=r"got numpy.ndarray; scaffolding.from_numpy takes it over"):
        call(np.ones((2, 2)))


# ---- types, conversion, files


def test_type_is_a_name():
    x = sf.zeros(2)
    assert x.type() == "scaffolding.FloatTensor" and sf.zeros(2, device="meta").type() == "scaffolding.meta.FloatTensor"
    assert x.type("torch.LongTensor").dtype is sf.int64 and x.type(sf.float16).type() == "scaffolding.HalfTensor"
    assert x.type(x.double().type()).dtype is sf.float64
    assert x.to(sf.float8_e4m3fn).type() == "scaffolding.float8_e4m3fn"
    with pytest.raises(ValueError, match="'Float' is no type; they are FloatTensor"):
        x.type("Float")


def test_asarray():
    array = np.arange(3.0)
    assert sf.asarray(array).data_ptr() == sf.asarray(array, copy=False).data_ptr() == array.ctypes.data
    assert sf.asarray(array, copy=True).data_ptr() != array.ctypes.data
    assert sf.asarray([1, 2]).dtype is sf.int64 and sf.asarray(2.0, dtype=sf.float16).dtype is sf.float16
    x = sf.ones(2, requires_grad=True)
    assert sf.asarray(x) is x and not sf.asarray(x, copy=True).requires_grad
    assert sf.asarray([1.0], requires_grad=True).requires_grad
    for call in (lambda: sf.asarray([1, 2], copy=False), lambda: sf.asarray(array, dtype=sf.float32, copy=False)):
        with pytest.raises(ValueError, match="copy=False"):
            call()


def test_a_whole_module_is_not_saved(tmp_path):
    net = nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"a Linear is code and weights.*save\(x.state_dict\(\), f\)"):
        sf.save(net, tmp_path / "net.pt")
    with pytest.raises(TypeError, match=r"a SGD is code and weights"):
        sf.save(sf.optim.SGD(net.parameters()), tmp_path / "net.pt")
    with pytest.raises(TypeError, match=r"obj\['net'\].*its state_dict\(\)"):
        sf.save({"net": net}, tmp_path / "net.pt")
    assert not list(tmp_path.iterdir())
    sf.save(net.state_dict(), tmp_path / "net.pt")
    other = nn.Linear(2, 2)
    other.load_state_dict(sf.load(tmp_path / "net.pt"))
    assert sf.equal(net.weight, other.weight)


def test_models_with_shared_tensors_in_safetensors(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
            self.decode.weight = self.encode.weight

    net, path = Tied(), tmp_path / "tied.safetensors"
    sf.safetensors.save_model(net, path, {"by": "test"})
    with sf.safetensors.safe_open(path) as f:
        assert f.keys() == ["decode.weight"]
        assert f.metadata() == {"by": "test", "encode.weight": "decode.weight"}
    other = Tied()
    assert sf.safetensors.load_model(other, path) == ([], [])
    assert sf.equal(other.decode.weight, net.encode.weight) and other.encode.weight is other.decode.weight
