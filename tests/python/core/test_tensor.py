"""Making tensors, their attributes, operators and life in Python."""

import copy
import gc
import pickle
import weakref

import pytest

import scaffolding as sf


def test_dtypes_are_inferred_as_in_torch():
    assert sf.tensor([1, 2]).dtype is sf.int64
    assert sf.tensor([1, 2.5]).dtype is sf.float32
    assert sf.tensor([True, False]).dtype is sf.bool
    assert sf.tensor([True, 2]).dtype is sf.int64
    assert sf.tensor(3.0).shape == ()
    assert sf.tensor([]).dtype is sf.float32
    assert sf.tensor([[], []]).shape == (2, 0)
    assert sf.tensor([sf.tensor(1.0, dtype=sf.float64), 2]).dtype is sf.float64
    assert sf.tensor(range(3)).tolist() == [0, 1, 2]


def test_nested_tensors_and_lists_mix():
    x = sf.tensor([sf.tensor([1, 2]), [3, 4]])
    assert x.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "data, error",
    [
        ([[1, 2], [3]], ValueError),
        ([1, [2]], ValueError),
        ([[1], 2], ValueError),
        ("abc", TypeError),
        ([None], TypeError),
        ([2**63], OverflowError),
        ({1: 2}, TypeError),
    ],
)
def test_wrong_data_is_refused(data, error):
    with pytest.raises(error):
        sf.tensor(data)


def test_values_must_fit_the_dtype():
    assert sf.tensor([-1], dtype=sf.uint8).tolist() == [255]
    assert sf.tensor([1.7], dtype=sf.int64).tolist() == [1]
    for value, dtype in ((300, sf.uint8), (40000, sf.int16), (float("nan"), sf.int64), (1e30, sf.int32)):
        with pytest.raises(ValueError, match="does not fit"):
            sf.tensor([value], dtype=dtype)


@pytest.mark.parametrize(
    "dtype", [sf.float16, sf.bfloat16, sf.float32, sf.float64, sf.int8, sf.int16, sf.int32, sf.int64, sf.uint8, sf.bool]
)
def test_every_dtype_holds_values(dtype):
    x = sf.tensor([[1, 0], [1, 1]], dtype=dtype)
    assert x.dtype is dtype and x.element_size() == dtype.itemsize
    assert x.tolist() == [[1, 0], [1, 1]]
    assert repr(dtype) == f"scaffolding.{dtype.name}"


def test_tensor_copies_its_data():
    x = sf.tensor([1.0, 2.0])
    y = sf.tensor(x)
    y[0] = 9
    assert x.tolist() == [1, 2]
    assert sf.as_tensor(x) is x


def test_legacy_constructor():
    assert sf.Tensor(2, 3).shape == (2, 3)
    assert sf.Tensor([1, 2]).dtype is sf.float32
    assert sf.Tensor().shape == (0,)


def test_identity_is_kept():
    p = sf.tensor([1.0], requires_grad=True)
    (p * 2).sum().backward()
    assert p.grad is p.grad
    p.note = "kept"
    holder = [p]
    assert holder[0].note == "kept"
    table = {p: 1}
    assert table[p] == 1


def test_weak_references_and_cycles():
    x = sf.zeros(3)
    ref = weakref.ref(x)
    x.me = x
    del x
    gc.collect()
    assert ref() is None


def test_subclass():
    class Mine(sf.Tensor):
        def double(self):
            return self * 2

    m = Mine([1.0, 2.0])
    assert isinstance(m, sf.Tensor) and m.double().tolist() == [2, 4]
    assert isinstance(sf.ones(2).as_subclass(Mine), Mine)
    assert type(m).__name__ in repr(m)


def test_size_is_a_tuple():
    s = sf.zeros(2, 3).shape
    assert isinstance(s, tuple) and s == (2, 3) and s.numel() == 6
    assert repr(s) == "scaffolding.Size([2, 3])" and str(s) == "(2, 3)"
    assert type(s[:1]) is sf.Size and type(s + (4,)) is sf.Size and s + (4,) == (2, 3, 4)
    assert pickle.loads(pickle.dumps(s)) == s
    a, b = s
    assert (a, b) == (2, 3)


def test_attributes():
    x = sf.zeros(2, 3, dtype=sf.float16)
    assert (x.ndim, x.dim(), x.numel(), x.nbytes, x.itemsize) == (2, 2, 6, 12, 2)
    assert x.size() == (2, 3) and x.size(-1) == 3 and x.stride() == (3, 1) and x.stride(0) == 3
    assert x.device == sf.device("cpu") and str(x.device) == "cpu"
    assert x.T.shape == (3, 2) and x.mT.shape == (3, 2)
    assert x.is_contiguous() and not x.T.is_contiguous()
    assert not x.is_cuda and x.is_leaf and not x.requires_grad and x.grad_fn is None
    assert x.is_floating_point() and len(x) == 2


def test_operators():
    a, b = sf.tensor([7.0, -3.0]), sf.tensor([2.0, 2.0])
    assert (a + b).tolist() == [9, -1] and (1 + a).tolist() == [8, -2]
    assert (a - 1).tolist() == [6, -4] and (1 - a).tolist() == [-6, 4]
    assert (a * b).tolist() == [14, -6] and (a / b).tolist() == [3.5, -1.5] and (14 / a)[0] == 2
    assert (a // b).tolist() == [3, -2] and (a % b).tolist() == [1, 1]
    assert (a**2).tolist() == [49, 9] and (2 ** sf.tensor([3.0])).tolist() == [8]
    assert (-a).tolist() == [-7, 3] and abs(a).tolist() == [7, 3] and (+a) is a
    assert (a > b).tolist() == [True, False] and (a == a).tolist() == [True, True] and (a != b).tolist() == [True, True]
    assert (a <= 7).tolist() == [True, True] and (8 > a).tolist() == [True, True]
    assert (sf.tensor([[1.0, 2.0]]) @ sf.tensor([[3.0], [4.0]])).tolist() == [[11]]
    assert 7.0 in a and 5 not in a


def test_integer_operators():
    i = sf.tensor([6, 3])
    assert (i << 1).tolist() == [12, 6] and (i >> 1).tolist() == [3, 1]
    assert (i / 2).dtype is sf.float32 and (i // 2).tolist() == [3, 1]
    assert list(range(10))[sf.tensor(3)] == 3


def test_in_place_operators_keep_the_object():
    x = y = sf.tensor([1.0, 2.0])
    x += 1
    x *= 3
    x -= sf.tensor([1.0, 1.0])
    x /= 5
    assert x is y and y.tolist() == pytest.approx([1, 1.6])
    x **= 2
    assert x is y and y[0] == 1


def test_numbers_do_not_widen():
    assert (sf.ones(2, dtype=sf.float16) * 2.5).dtype is sf.float16
    assert (sf.ones(2, dtype=sf.int32) * 2).dtype is sf.int32
    assert (sf.ones(2, dtype=sf.int32) * 2.5).dtype is sf.float32
    assert (sf.ones(2, dtype=sf.bool) + 1).dtype is sf.int64
    assert (sf.ones(2, dtype=sf.float16) + sf.ones(2)).dtype is sf.float32


def test_comparison_with_strangers():
    x = sf.ones(2)
    assert (x == None) is False  # noqa: E711
    assert (x == "a") is False
    with pytest.raises(TypeError):
        x + [1]
    with pytest.raises(TypeError):
        x < "a"


def test_conversion_to_numbers():
    assert float(sf.tensor([2.5])) == 2.5 and int(sf.tensor(2.9)) == 2 and bool(sf.tensor(1)) and not sf.tensor([0.0])
    assert sf.tensor(True).item() is True and sf.tensor(3).item() == 3 and isinstance(sf.tensor(3).item(), int)
    assert sf.tensor(2**62 + 1).item() == 2**62 + 1
    assert f"{sf.tensor(1.23456):.2f}" == "1.23"
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(sf.ones(2))
    with pytest.raises(ValueError):
        sf.ones(2).item()
    with pytest.raises(TypeError):
        range(3)[sf.tensor(1.0)]
    with pytest.raises(TypeError):
        len(sf.tensor(1.0))
    with pytest.raises(TypeError):
        iter(sf.tensor(1.0))


def test_iteration_unbinds():
    rows = list(sf.arange(6).reshape(3, 2))
    assert [r.tolist() for r in rows] == [[0, 1], [2, 3], [4, 5]]
    a, b = sf.tensor([1, 2])
    assert (a.item(), b.item()) == (1, 2)


def test_to_and_casts():
    x = sf.tensor([1.5, 2.5])
    assert x.to(sf.float32) is x and x.to("cpu") is x and x.to(sf.float64).dtype is sf.float64
    assert x.to("cpu", sf.float16).dtype is sf.float16 and x.to(sf.ones(1, dtype=sf.int32)).dtype is sf.int32
    assert x.to(dtype=sf.float64, device="cpu", non_blocking=True).dtype is sf.float64
    assert x.to(sf.float32, copy=True) is not x
    for name, dtype in (
        ("float", sf.float32),
        ("double", sf.float64),
        ("half", sf.float16),
        ("bfloat16", sf.bfloat16),
        ("long", sf.int64),
        ("int", sf.int32),
        ("short", sf.int16),
        ("char", sf.int8),
        ("byte", sf.uint8),
        ("bool", sf.bool),
    ):
        assert getattr(x, name)().dtype is dtype
    assert x.type(sf.int32).dtype is sf.int32
    with pytest.raises(TypeError, match="to"):
        x.to(3.5)
    with pytest.raises(TypeError, match="no argument"):
        x.to(sf.float32, colour="red")


def test_absent_devices_explain_themselves():
    x = sf.ones(2)
    if not sf.cuda.is_available():
        with pytest.raises(RuntimeError, match="cuda"):
            x.cuda()
        with pytest.raises(RuntimeError, match="cuda"):
            x.to("cuda:0")
    if not sf.backends.mps.is_available():
        with pytest.raises(RuntimeError, match="Accelerate"):
            x.mps()
    with pytest.raises(ValueError, match="device"):
        x.to("tpu")


def test_meta_tensors_have_shapes_only():
    x = sf.zeros(2, 3, device="meta")
    assert (x + 1).shape == (2, 3) and x.is_meta
    with pytest.raises(RuntimeError):
        x.tolist()


def test_device_objects():
    d = sf.device("cuda:1")
    assert (d.type, d.index, str(d)) == ("cuda", 1, "cuda:1") and repr(d) == "device(type='cuda', index=1)"
    assert sf.device("cpu") == sf.device("cpu") != d and len({sf.device("cpu"), sf.device("cpu")}) == 1
    assert pickle.loads(pickle.dumps(d)) == d and sf.device("cuda", 1) == d


def test_copy_and_deepcopy():
    x = sf.randn(2, 3, requires_grad=True)
    x.note = [1]
    y = copy.deepcopy(x)
    assert (
        y.requires_grad
        and y.note == [1]
        and y.note is not x.note
        and y.tolist() == x.tolist()
        and y.data_ptr() != x.data_ptr()
    )
    z = copy.copy(x)
    assert z.data_ptr() == x.data_ptr() and z.requires_grad
    both = copy.deepcopy([x, x])
    assert both[0] is both[1]
    with pytest.raises(RuntimeError, match="leaves"):
        copy.deepcopy(x * 2)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_keeps_layout(protocol):
    for x in (
        sf.randn(2, 3),
        sf.randn(2, 3).T,
        sf.randn(2, 3, 4, 5).contiguous(memory_format=sf.channels_last),
        sf.zeros(0, 3),
        sf.tensor(True),
        sf.randn(4, dtype=sf.bfloat16),
        sf.randn(6, requires_grad=True),
        sf.randn(4, 6)[:, ::2],
    ):
        y = pickle.loads(pickle.dumps(x, protocol))
        assert y.tolist() == x.tolist() and y.dtype is x.dtype and y.requires_grad == x.requires_grad
        if x.storage_offset() == 0 and x.stride() != (6, 2):
            assert y.stride() == x.stride()
    assert pickle.loads(pickle.dumps(sf.float32, protocol)) is sf.float32


def test_parameters():
    p = sf.nn.Parameter(sf.ones(2))
    assert p.requires_grad and isinstance(p, sf.Tensor) and type(p * 1) is sf.Tensor
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    q = copy.deepcopy(p)
    assert type(q) is sf.nn.Parameter and q.requires_grad
    assert type(pickle.loads(pickle.dumps(p))) is sf.nn.Parameter
    assert not sf.nn.Parameter(sf.ones(2), requires_grad=False).requires_grad


def test_data_replaces_the_memory():
    p = sf.nn.Parameter(sf.ones(2))
    p.data = sf.zeros(3)
    assert p.shape == (3,) and p.requires_grad
    p.data.add_(1)
    assert p.tolist() == [1, 1, 1]


def test_channels_last():
    x = sf.randn(2, 3, 4, 5)
    y = x.contiguous(memory_format=sf.channels_last)
    assert y.is_contiguous(memory_format=sf.channels_last) and not y.is_contiguous() and y.tolist() == x.tolist()
    assert y.stride() == (60, 1, 15, 3)
    assert x.to(memory_format=sf.channels_last).stride() == y.stride()
    assert sf.zeros_like(y).stride() == y.stride()


def test_view_as_another_dtype():
    x = sf.tensor([1.0, 2.0])
    assert x.view(sf.int32).tolist() == [0x3F800000, 0x40000000]
    assert x.view(sf.uint8).shape == (8,) and x.view(sf.int64).shape == (1,)
    with pytest.raises(ValueError):
        sf.zeros(3).view(sf.float64)


def test_new_tensors_follow():
    x = sf.ones(2, dtype=sf.float64)
    assert x.new_zeros(3).dtype is sf.float64 and x.new_full((2,), 7).tolist() == [7, 7]
    assert x.new_tensor([1, 2]).dtype is sf.float64 and x.new_empty((2, 2)).shape == (2, 2)


def test_threads_setting():
    n = sf.get_num_threads()
    sf.set_num_threads(1)
    assert sf.get_num_threads() == 1
    sf.set_num_threads(n)
    with pytest.raises(ValueError):
        sf.set_num_threads(0)
