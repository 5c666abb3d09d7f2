"""Ops as functions and methods: argument forms, signatures, messages, torch's joined overloads."""

import copy
import inspect
import pickle
import threading

import numpy as np
import pytest

import scaffolding as sf
import scaffolding.nn.functional as F
from scaffolding import _core

OPS = _core._op_names()


def needs(*names):
    missing = [n for n in names if n not in OPS]
    return pytest.mark.skipif(bool(missing), reason=f"this build has no {missing}")


def test_every_op_is_exported_with_name_doc_and_signature():
    assert len(OPS) > 90
    for name in OPS:
        op = getattr(sf, name)
        assert callable(op)
        if isinstance(op, _core.add.__class__):
            assert op.__name__ == name and name in op.__doc__ and op.__module__ == "scaffolding"
            assert inspect.signature(op).parameters


def test_signatures_are_true():
    assert str(inspect.signature(sf.add)) == "(input, other, alpha=1)"
    assert str(inspect.signature(sf.gelu)) == "(input, approximate='none')"
    assert repr(sf.exp) == "<op exp(input)>" and repr(sf.silu) == "<op silu(input, inplace=False)>"
    assert pickle.loads(pickle.dumps(sf.silu)) is sf.silu and copy.deepcopy(sf.silu) is sf.silu


def test_functions_methods_and_in_place_twins():
    x = sf.tensor([-1.0, 2.0])
    assert sf.relu(x).tolist() == x.relu().tolist() == [0, 2]
    assert sf.relu(input=x).tolist() == [0, 2] and x.tolist() == [-1, 2]
    assert x.relu_() is x and x.tolist() == [0, 2]
    assert sf.exp_(sf.zeros(1)).tolist() == [1] and x.clamp_(max=1).tolist() == [0, 1]
    assert sf.Tensor.relu(x).tolist() == [0, 1] and list(map(sf.Tensor.neg, [x]))[0].tolist() == [0, -1]
    bound = x.add
    assert bound(1).tolist() == [1, 2]
    assert not hasattr(sf.Tensor, "where_")


def test_sizes_may_be_spread():
    x = sf.arange(6)
    assert (
        x.reshape(2, 3).shape
        == x.reshape((2, 3)).shape
        == x.reshape([2, -1]).shape
        == x.reshape(shape=(2, 3)).shape
        == (2, 3)
    )
    y = x.view(1, 2, 3)
    assert y.permute(2, 0, 1).shape == y.permute((2, 0, 1)).shape == (3, 1, 2)
    assert y.expand(4, -1, -1).shape == y.expand((4, 2, 3)).shape == (4, 2, 3)
    assert x.reshape(sf.tensor(2), 3).shape == (2, 3) and x.view(np.int64(3), 2).shape == (3, 2)
    assert y.squeeze(0).shape == (2, 3) and x.reshape(-1).shape == (6,) and x.reshape(x.shape).shape == (6,)


@needs("repeat", "flip", "tile")
def test_more_sizes_may_be_spread():
    x = sf.arange(6).reshape(2, 3)
    assert x.repeat(2, 1).shape == (4, 3) and x.flip(0, 1).tolist() == x.flip([0, 1]).tolist() == [[5, 4, 3], [2, 1, 0]]


def test_keywords():
    x = sf.ones(2, 3)
    assert x.sum(dim=0).shape == x.sum(0).shape == x.sum(axis=0).shape == (3,) and x.sum((0, 1)).shape == ()
    assert x.sum(1, True).shape == x.sum(dim=1, keepdim=True).shape == x.sum(axis=1, keepdims=True).shape == (2, 1)
    assert x.sum(dtype=sf.float64).dtype is sf.float64 and x.mean(dim=(0, -1)).item() == 1
    assert sf.add(x, x, alpha=2)[0, 0].item() == 3 and sf.add(input=x, other=1).sum().item() == 12
    assert sf.pow(x, exponent=2).shape == (2, 3)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda x: sf.silu(), "silu: missing argument 'input'"),
        (lambda x: sf.silu(x, x), "silu: inplace must be a bool, got Tensor"),
        (lambda x: sf.silu("a"), "silu: input must be a tensor, got str"),
        (lambda x: sf.silu([1.0]), "silu: input must be a tensor, got list"),
        (lambda x: sf.silu(None), "silu: input must be a tensor, got None"),
        (lambda x: sf.add(x, x, beta=1), "add: has no argument 'beta'"),
        (lambda x: sf.add(x, x, other=1), "add: argument 'other' is given twice"),
        (lambda x: x.sum("a"), "sum: dim must be integers, got str"),
        (lambda x: x.sum(0, keepdim=1), "sum: keepdim must be a bool, got int"),
        (lambda x: x.sum(dtype="f"), "sum: dtype must be a dtype, got str"),
        (lambda x: x.transpose(0, 1.5), "transpose: dim1 must be an integer, got float"),
        (lambda x: sf.gelu(x, approximate=3), "gelu: approximate must be a string, got int"),
        (lambda x: x.view("a"), "view"),
        (lambda x: sf.add(np.ones(2), x), "add: input must be a tensor, got numpy.ndarray"),
    ],
)
def test_wrong_arguments_name_op_and_argument(call, words):
    with pytest.raises(TypeError, match=words.replace("(", r"\(")):
        call(sf.ones(2, 3))


def test_errors_of_ops_have_python_s_types():
    x = sf.ones(2, 3)
    with pytest.raises(ValueError, match=r"add: shapes \[2, 3\] and \[2\]"):
        x + sf.ones(2)
    with pytest.raises(IndexError, match="dim"):
        x.sum(5)
    with pytest.raises(TypeError):
        sf.ones(2, dtype=sf.float8_e5m2) + 1
    with pytest.raises(OverflowError):
        x * 2**70


@needs("cat", "stack")
def test_lists_of_tensors():
    x = sf.ones(2, 3)
    assert sf.cat([x, x]).shape == sf.cat((x, x), dim=0).shape == sf.concat([x, x], axis=0).shape == (4, 3)
    assert sf.stack([x, x], 1).shape == (2, 2, 3) and sf.cat(tensors=[x, x], dim=-1).shape == (2, 6)
    with pytest.raises(TypeError, match="cat: tensors must be a list of tensors"):
        sf.cat([x, 1])


def test_several_results_are_tuples():
    pieces = sf.arange(5).chunk(2)
    assert isinstance(pieces, tuple) and [p.tolist() for p in pieces] == [[0, 1, 2], [3, 4]]
    assert [p.numel() for p in sf.arange(5).split(2)] == [2, 2, 1] and [
        p.numel() for p in sf.split(sf.arange(5), [1, 4])
    ] == [1, 4]
    assert [t.item() for t in sf.arange(2).unbind()] == [0, 1]


@needs("amax", "amin", "max_dim", "min_dim")
def test_max_and_min_join_three_forms():
    x = sf.tensor([[1.0, 5.0], [3.0, 2.0]])
    assert x.max().item() == 5 and sf.min(x).item() == 1
    r = x.max(dim=1)
    assert r.values.tolist() == [5, 3] and r.indices.tolist() == [1, 0] and r[0] is r.values
    values, indices = sf.min(x, 0, keepdim=True)
    assert values.tolist() == [[1, 2]] and indices.shape == (1, 2)
    assert sf.max(x, sf.tensor(2.5)).tolist() == [[2.5, 5], [3, 2.5]] and x.max(other=x).tolist() == x.tolist()
    assert repr(r).startswith("scaffolding.return_types.max(\nvalues=tensor([5., 3.])")
    assert pickle.loads(pickle.dumps(copy.copy(r))).indices.tolist() == [1, 0]


@needs("var", "std")
def test_variance_forms():
    x = sf.tensor([[1.0, 2.0], [3.0, 6.0]])
    assert (
        x.var().item() == pytest.approx(4.6666667)
        and x.var(unbiased=False).item() == pytest.approx(3.5) == x.var(False).item()
    )
    assert (
        x.var(0).tolist() == [2, 8]
        and x.std(1, keepdim=True).shape == (2, 1)
        and x.var(dim=0, correction=0).tolist() == [1, 4]
    )
    assert x.var(0, False).tolist() == [1, 4]


@needs("norm")
def test_norm_forms():
    x = sf.tensor([3.0, 4.0])
    assert (
        x.norm().item() == 5
        and sf.norm(x, p="fro").item() == 5
        and x.norm(1).item() == 7
        and x.norm(float("inf")).item() == 4
    )
    assert sf.ones(2, 4).norm(dim=1).tolist() == [2, 2] and sf.ones(2, 4).norm(2, -1, True).shape == (2, 1)


@needs("sort", "topk")
def test_sort_and_topk_name_their_results():
    x = sf.tensor([3.0, 1.0, 2.0])
    assert (
        x.sort().values.tolist() == [1, 2, 3]
        and x.sort(descending=True).indices.tolist() == [0, 2, 1]
        and x.topk(2).values.tolist() == [3, 2]
    )


def test_where_forms():
    x = sf.tensor([1.0, -2.0])
    assert sf.where(x > 0, x, 0.0).tolist() == [1, 0] and sf.where(x > 0, 1, -1).tolist() == [1, -1]
    assert x.where(x > 0, sf.zeros(2)).tolist() == [1, 0]


@needs("nonzero")
def test_where_and_nonzero_give_positions():
    x = sf.tensor([[1, 0], [0, 2]])
    assert x.nonzero().tolist() == [[0, 0], [1, 1]]
    assert [t.tolist() for t in sf.where(x)] == [t.tolist() for t in x.nonzero(as_tuple=True)] == [[0, 1], [0, 1]]


def test_clamp_takes_numbers_and_tensors():
    x = sf.tensor([1.0, 5.0, 9.0])
    assert x.clamp(2, 6).tolist() == sf.clip(x, min=2, max=6).tolist() == [2, 5, 6]
    assert x.clamp(min=sf.tensor([2.0, 6.0, 0.0])).tolist() == [2, 6, 9] and x.clamp_min(3).tolist() == [3, 5, 9]


@needs("meshgrid")
def test_meshgrid():
    a, b = sf.meshgrid(sf.arange(2), sf.arange(3), indexing="ij")
    assert a.shape == b.shape == (2, 3) and sf.meshgrid([sf.arange(2), sf.arange(3)], indexing="xy")[0].shape == (3, 2)


@needs("einsum")
def test_einsum_takes_tensors_one_by_one():
    a, b = sf.ones(2, 3), sf.ones(3, 4)
    assert sf.einsum("ij,jk->ik", a, b).tolist() == sf.einsum("ij,jk->ik", [a, b]).tolist()


@needs("bitwise_and")
def test_comparing_whole_tensors():
    x = sf.tensor([1.0, float("inf"), float("nan")])
    assert sf.equal(sf.arange(3), sf.arange(3)) and not sf.equal(sf.arange(3), sf.arange(4)) and not x.equal(x)
    assert sf.allclose(x[:2], x[:2] + 1e-9) and not sf.allclose(x, x) and sf.allclose(x, x, equal_nan=True)
    assert sf.isclose(sf.tensor([1.0, 1.1]), sf.tensor([1.0, 1.0])).tolist() == [True, False]


def test_torch_s_second_names():
    x = sf.ones(2, 3)
    assert (
        sf.multiply(x, 2).sum().item() == 12
        and x.subtract(1).sum().item() == 0
        and sf.swapaxes(x, 0, 1).shape == (3, 2)
    )
    assert (
        sf.true_divide(x, 2)[0, 0].item() == 0.5 and x.absolute().shape == (2, 3) and sf.greater(x, 0).shape == (2, 3)
    )
    assert (
        x.t().shape == (3, 2)
        and x.view_as(sf.ones(3, 2)).shape == (3, 2)
        and x.type_as(sf.ones(1).double()).dtype is sf.float64
    )
    assert sf.broadcast_shapes((2, 1), (3,)) == (2, 3) and sf.broadcast_tensors(x, sf.ones(3))[1].shape == (2, 3)
    assert sf.addcmul(x, x, x, value=2)[0, 0].item() == 3 and sf.rsub(x, 3)[0, 0].item() == 2
    assert sf.is_tensor(x) and not sf.is_tensor([1]) and sf.numel(x) == x.numel() == 6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_large_products_are_added_in_one_pass_with_the_same_bits(dtype):
    x, a, b = (sf.randn(301, 302).to(getattr(sf, dtype)) for _ in range(3))
    for value in (1, 0.3, -2):
        assert (sf.addcmul(x, a, b, value=value) == sf.add(x, a * b, alpha=value)).all()
        assert (sf.addcdiv(x, a, b, value=value) == sf.add(x, a / b, alpha=value)).all()
    wide = sf.addcmul(x.t(), a.t(), b.t(), value=0.5)
    assert (wide == sf.addcmul(x, a, b, value=0.5).t()).all()
    w = x.detach().clone().requires_grad_()
    sf.addcmul(w, a, b, value=2).sum().backward()
    assert (w.grad == 1).all()


def test_functional():
    x = sf.tensor([-1.0, 2.0])
    assert F.relu(x).tolist() == [0, 2] and F.gelu(x).shape == (2,) and F.leaky_relu(x, 0.1).tolist()[1] == 2
    assert F.silu(x, inplace=True) is x
    assert F.softmax(sf.zeros(2), dim=0).tolist() == [0.5, 0.5] and F.log_softmax(sf.zeros(1, 2), dim=-1).shape == (
        1,
        2,
    )
    assert F.linear(sf.ones(1, 2), sf.ones(3, 2), sf.ones(3)).tolist() == [[3, 3, 3]]


def test_many_threads_compute_the_same():
    x = sf.randn(300, 300)
    want = (x @ x).relu().sum().item()
    wrong = []

    def work():
        for _ in range(10):
            if (x @ x).relu().sum().item() != pytest.approx(want, rel=1e-5):
                wrong.append(1)
            y = sf.ones(3, requires_grad=True)
            (y * y).sum().backward()
            if y.grad.tolist() != [2, 2, 2]:
                wrong.append(2)

    threads = [threading.Thread(target=work) for _ in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_grad_mode_belongs_to_the_thread():
    seen = []
    with sf.no_grad():
        t = threading.Thread(target=lambda: seen.append(sf.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


def test_compositions():
    x = sf.arange(6.0).reshape(2, 3)
    assert [p.shape[1] for p in x.tensor_split(2, 1)] == [2, 1] and [
        p.shape[1] for p in sf.tensor_split(x, [1, 1], 1)
    ] == [1, 0, 2]
    assert (
        sf.hstack([x, x]).shape == (2, 6) and sf.vstack([x[0], x[1]]).tolist() == x.tolist() and x.ravel().shape == (6,)
    )
    assert (
        sf.diag(sf.ones(2)).tolist() == [[1, 0], [0, 1]]
        and sf.diag(x).tolist() == [0, 4]
        and x[:, :2].trace().item() == 4
    )
    assert (
        x.diff().tolist() == [[1, 1], [1, 1]]
        and x.count_nonzero().item() == 5
        and sf.tensor([1.5]).frac().item() == 0.5
    )
    assert F.relu6(x * 2).max().item() == 6 and F.normalize(sf.tensor([[3.0, 4.0]])).tolist()[0] == pytest.approx(
        [0.6, 0.8]
    )
    assert F.cosine_similarity(x, x * 2)[1].item() == pytest.approx(1) and F.logsigmoid(
        sf.zeros(1)
    ).item() == pytest.approx(-0.6931472)


@needs("max_pool2d", "max_pool2d_with_indices", "unfold_dim")
def test_pooling_with_indices_and_unfold():
    x = sf.arange(16.0).reshape(1, 1, 4, 4)
    y, where = F.max_pool2d(x, 2, return_indices=True)
    assert y.flatten().tolist() == [5, 7, 13, 15] == where.flatten().tolist() and F.max_pool2d(
        x, kernel_size=2, stride=2
    ).shape == (1, 1, 2, 2)
    assert F.adaptive_max_pool2d(x, 1, return_indices=True)[1].item() == 15
    assert sf.arange(5).unfold(0, 2, 1).tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]] and F.unfold(x, 2).shape == (
        1,
        4,
        9,
    )
    with pytest.raises(TypeError, match="kernel"):
        F.max_pool2d(x, kernel=2)


@needs("dropout")
def test_dropout():
    x = sf.ones(1000)
    y = F.dropout(x, 0.5)
    assert set(y.tolist()) == {0.0, 2.0} and F.dropout(x, p=0.5, training=False).tolist() == x.tolist()
    assert F.dropout(x, 0.5, True, inplace=True) is x and set(x.tolist()) == {0.0, 2.0}
