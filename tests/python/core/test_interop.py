"""NumPy, the buffer protocol and DLPack, both ways without a copy."""

import array
import gc
import warnings

import numpy as np
import pytest

import scaffolding as sf

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
NOT_IN_NUMPY = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_round_trip_shares_memory(name):
    a = np.array([[1, 0, 1], [0, 1, 1]], dtype=name)
    x = sf.from_numpy(a)
    assert x.dtype is getattr(sf, name) and x.shape == a.shape and x.tolist() == a.tolist()
    x[0, 1] = 1
    assert a[0, 1] == 1
    b = x.numpy()
    assert b.dtype == a.dtype and np.shares_memory(a, b)
    b[1, 0] = 1
    assert x[1, 0].item() == 1


@pytest.mark.parametrize("name", DTYPES)
def test_tensor_takes_arrays_and_scalars(name):
    a = np.array([1, 0], dtype=name)
    x = sf.tensor(a)
    a[0] = 0
    assert x.tolist() == [1, 0] and x.dtype is getattr(sf, name)
    assert sf.tensor(a[0]).dtype is getattr(sf, name) and sf.tensor(a[0]).shape == ()
    assert sf.tensor([np.array([1, 2], dtype=name), [3, 4]]).shape == (2, 2)
    assert sf.as_tensor(a).data_ptr() == a.ctypes.data


def test_views_and_strides():
    a = np.arange(24.0).reshape(4, 6)
    assert sf.from_numpy(a.T).tolist() == a.T.tolist() and sf.from_numpy(a[::2, 1::2]).tolist() == a[::2, 1::2].tolist()
    x = sf.arange(24.0).reshape(4, 6)
    b = x.T[1:4:2].numpy()
    assert b.tolist() == x.T[1:4:2].tolist() and b.strides == (8, 24)
    assert sf.zeros(0, 3).numpy().shape == (0, 3) and sf.from_numpy(np.zeros((0, 3))).shape == (0, 3)
    assert sf.tensor(5.0).numpy().shape == () and sf.from_numpy(np.array(2.0)).item() == 2


def test_either_side_keeps_the_memory_alive():
    a = sf.arange(1000).numpy()
    x = sf.from_numpy(np.arange(1000))
    gc.collect()
    assert a.sum() == x.sum().item() == 499500


def test_refused_arrays():
    for a in (
        np.zeros(2, dtype=complex),
        np.zeros(2, dtype=object),
        np.zeros(2, dtype="M8[s]"),
        np.zeros(2, dtype=np.uint16),
        np.zeros(2, "U3"),
    ):
        with pytest.raises(TypeError, match="supported are"):
            sf.from_numpy(a)
    with pytest.raises(ValueError, match="negative stride"):
        sf.from_numpy(np.arange(4)[::-1])
    with pytest.raises(ValueError, match="byte order"):
        sf.from_numpy(np.zeros(2, dtype=">i4"))
    with pytest.raises(TypeError):
        sf.from_numpy([1, 2])


def test_read_only_arrays_warn():
    a = np.zeros(2)
    a.flags.writeable = False
    with pytest.warns(UserWarning, match="read-only"):
        sf.from_numpy(a)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sf.tensor(a)


def test_numpy_refuses_what_it_cannot_show():
    with pytest.raises(RuntimeError, match="detach"):
        sf.ones(2, requires_grad=True).numpy()
    assert sf.ones(2, requires_grad=True).numpy(force=True).tolist() == [1, 1]
    for name in NOT_IN_NUMPY:
        with pytest.raises(TypeError, match="float"):
            sf.ones(2).to(getattr(sf, name)).numpy()


def test_numpy_functions_take_tensors():
    x = sf.tensor([1.0, 4.0])
    assert np.asarray(x).tolist() == [1, 4] and np.sum(np.array(x)) == 5
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.shares_memory(np.asarray(x), x.numpy()) and not np.shares_memory(np.array(x, copy=True), x.numpy())


def test_arrays_as_operands():
    x, a = sf.tensor([1.0, 2.0]), np.array([3.0, 4.0], dtype=np.float32)
    assert (x + a).tolist() == [4, 6] and isinstance(x * a, sf.Tensor)
    assert isinstance(a + x, sf.Tensor) and (a - x).tolist() == [2, 2]
    assert (x * np.float32(2)).tolist() == [2, 4] and (np.float64(2) * x).dtype is sf.float32
    assert (x == a).tolist() == [False, False]


def test_other_buffers():
    x = sf.tensor(array.array("d", [1.5, 2.5]))
    assert x.tolist() == [1.5, 2.5]
    assert sf.tensor(memoryview(b"ab")).tolist() == [97, 98]


# ---- DLPack


@pytest.mark.parametrize("name", DTYPES + NOT_IN_NUMPY)
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_dlpack_to_ourselves(name, version):
    x = sf.tensor([[1, 0], [1, 1]]).to(getattr(sf, name))
    y = sf.from_dlpack(x.__dlpack__(max_version=version))
    assert y.dtype is x.dtype and y.data_ptr() == x.data_ptr() and y.float().tolist() == x.float().tolist()
    del x
    gc.collect()
    assert y.float().tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize("name", [n for n in DTYPES])
def test_dlpack_with_numpy(name):
    x = sf.tensor([[1, 0, 1], [0, 1, 1]], dtype=getattr(sf, name))
    a = np.from_dlpack(x.T)
    assert a.tolist() == x.T.tolist() and a.ctypes.data == x.data_ptr()
    y = sf.from_dlpack(a)
    assert y.data_ptr() == x.data_ptr() and y.stride() == x.T.stride()
    del x, a
    gc.collect()
    assert y.tolist() == [[1, 0], [0, 1], [1, 1]]


def test_dlpack_device_and_copy():
    x = sf.ones(2)
    assert x.__dlpack_device__() == (1, 0)
    assert sf.from_dlpack(x.__dlpack__(copy=True)).data_ptr() != x.data_ptr()
    with pytest.raises(ValueError):
        x.__dlpack__(dl_device=(2, 0))


def test_data_may_come_by_dlpack():
    class Other:
        def __init__(self, x):
            self.x = x

        def __dlpack__(self, **kwargs):
            return self.x.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.x.__dlpack_device__()

    x = sf.ones(2)
    assert sf.as_tensor(Other(x)).data_ptr() == x.data_ptr() and sf.tensor(Other(x), dtype=sf.int32).tolist() == [1, 1]


def test_dlpack_refusals():
    x = sf.ones(2)
    capsule = x.__dlpack__()
    sf.from_dlpack(capsule)
    with pytest.raises(ValueError, match="consumed"):
        sf.from_dlpack(capsule)
    with pytest.raises(TypeError):
        sf.from_dlpack([1, 2])
    with pytest.raises(RuntimeError, match="detach"):
        sf.ones(2, requires_grad=True).__dlpack__()
    x.__dlpack__()  # a capsule that nobody takes frees its tensor
    with pytest.raises(TypeError):
        sf.from_dlpack(np.zeros(2, dtype=complex))


def test_versions_count_writes_through_views():
    x = sf.ones(2)
    before = x._version
    x.add_(1)
    x[0] = 3
    assert x._version == before + 2
