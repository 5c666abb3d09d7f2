"""Functions whose Python face is more than the op: several forms under one name, named results, methods and their
in-place twins. Values are checked op by op in C++."""

import math
import pickle

import pytest

import scaffolding as sf
import scaffolding.nn.functional as F


def test_median_and_its_kin_have_two_forms_and_named_results():
    x = sf.tensor([[3.0, 1.0, 2.0], [6.0, 9.0, 7.0]])
    assert sf.median(x).item() == 3 and x.nanmedian().item() == 3
    values, indices = x.median(1)
    assert values.tolist() == [2, 7] and indices.tolist() == [2, 2]
    found = sf.median(x, dim=0, keepdim=True)
    assert type(found).__name__ == "median" and found.values.shape == (1, 3)
    assert x.nanmedian(-1).indices.tolist() == [2, 2]
    assert repr(sf.kthvalue(x, 1)).startswith("scaffolding.return_types.kthvalue(\nvalues=")
    assert sf.mode(sf.tensor([2, 5, 5, 1])).values.item() == 5
    assert x.cummax(1).values.tolist() == [[3, 3, 3], [6, 9, 9]] and sf.cummin(x, 1).indices.tolist() == [
        [0, 1, 1],
        [0, 0, 0],
    ]
    assert pickle.loads(pickle.dumps(x.median(1))).values.tolist() == [2, 7]


def test_aminmax():
    low, high = sf.aminmax(sf.tensor([3, -1, 2]))
    assert (low.item(), high.item()) == (-1, 3)
    found = sf.tensor([[3, -1], [0, 7]]).aminmax(dim=1)
    assert found.min.tolist() == [-1, 0] and found.max.tolist() == [3, 7]
    with pytest.raises(TypeError):
        sf.aminmax(sf.tensor([3]), 0)


def test_unique_returns_as_many_tensors_as_are_asked_for():
    x = sf.tensor([3, 1, 3, 2])
    assert sf.unique(x).tolist() == [1, 2, 3]
    values, counts = x.unique(return_counts=True)
    assert values.tolist() == [1, 2, 3] and counts.tolist() == [1, 1, 2]
    values, inverse, counts = sf.unique(x, return_inverse=True, return_counts=True)
    assert values[inverse].tolist() == x.tolist()
    assert sf.tensor([[1, 2], [0, 5], [1, 2]]).unique(dim=0).tolist() == [[0, 5], [1, 2]]
    assert sf.unique_consecutive(sf.tensor([1, 1, 2, 1])).tolist() == [1, 2, 1]
    with pytest.raises(RuntimeError, match="depends on the values"):
        sf.unique(sf.empty(3, device="meta"))


def test_quantile_takes_numbers_and_tensors():
    x = sf.tensor([0.0, 1.0, 2.0, 3.0])
    assert sf.quantile(x, 0.5).item() == 1.5
    assert x.quantile(sf.tensor([0.25, 1.0]), interpolation="lower").tolist() == [0, 3]
    assert sf.nanquantile(sf.tensor([math.nan, 2.0, 4.0]), 0.5).item() == 3
    with pytest.raises(ValueError, match="q must be between 0 and 1"):
        x.quantile(2.0)


def test_search():
    edges = sf.tensor([1.0, 3.0, 5.0])
    assert sf.searchsorted(edges, sf.tensor([3.0, 9.0])).tolist() == [1, 3]
    assert sf.searchsorted(edges, 3.0, side="right").item() == 2
    assert sf.bucketize(sf.tensor([[0.0, 4.0]]), edges, out_int32=True).dtype is sf.int32
    assert sf.isin(sf.tensor([1, 2, 3]), sf.tensor([2])).tolist() == [False, True, False]
    assert sf.isin(2, sf.tensor([2, 4])).item() is True
    assert sf.bincount(sf.tensor([1, 1, 4])).tolist() == [0, 2, 0, 0, 1]
    assert sf.tensor([1.0, 2.0, 2.0]).histc(2, min=0, max=4).tolist() == [1, 2]


def test_diff_joins_what_comes_before_and_after():
    x = sf.tensor([1, 4, 9])
    assert sf.diff(x, prepend=sf.tensor([0]), append=sf.tensor([16])).tolist() == [1, 3, 5, 7]
    assert x.diff(2).tolist() == [2]


def test_trapezoid_goes_by_two_names():
    y = sf.tensor([1.0, 2.0, 4.0])
    assert sf.trapezoid(y).item() == sf.trapz(y).item() == 4.5
    assert sf.trapezoid(y, sf.tensor([0.0, 2.0, 3.0])).item() == 6
    assert sf.cumulative_trapezoid(y, dx=2).tolist() == [3, 9]


def test_in_place_forms_write_and_are_differentiated():
    def moved(f, x):
        leaf = sf.tensor(x).requires_grad_()
        y = leaf * 1
        assert f(y) is y
        y.sum().backward()
        return y.tolist(), leaf.grad.tolist()

    assert moved(lambda y: y.nan_to_num_(nan=4.0), [1.0, math.nan]) == ([1, 4], [1, 0])
    assert moved(lambda y: y.clamp_min_(0), [-1.0, 2.0]) == ([0, 2], [0, 1])
    assert moved(lambda y: y.clamp_max_(0), [-1.0, 2.0]) == ([-1, 0], [1, 0])
    assert moved(lambda y: y.frac_(), [-1.5, 2.25]) == ([-0.5, 0.25], [1, 1])
    assert moved(lambda y: y.fmod_(2.0), [-3.0, 5.0]) == ([-1, 1], [1, 1])
    assert moved(lambda y: y.hypot_(sf.tensor([4.0])), [3.0]) == ([5], [pytest.approx(0.6)])
    assert moved(lambda y: y.copysign_(-1.0), [3.0]) == ([-3], [-1])
    assert moved(lambda y: y.xlogy_(sf.tensor([1.0])), [3.0]) == ([0], [0])
    assert moved(lambda y: y.addmm_(sf.ones(1, 2), sf.ones(2, 1)), [[1.0]]) == ([[3]], [[1]])
    assert moved(lambda y: y.baddbmm_(sf.ones(1, 1, 2), sf.ones(1, 2, 1)), [[[1.0]]]) == ([[[3]]], [[[1]]])
    index, source = sf.tensor([0, 0]), sf.tensor([2.0, 5.0])
    assert moved(lambda y: y.scatter_reduce_(0, index, source, "amax"), [3.0, 1.0]) == ([5, 1], [0, 1])
    assert moved(lambda y: y.index_reduce_(0, index, source, "prod"), [3.0, 1.0]) == ([30, 1], [10, 1])
    x = sf.tensor([0.0, 2.0])
    assert x.logical_not_() is x and x.tolist() == [1, 0]
    assert sf.tensor([-1.0, 0.0]).heaviside_(sf.tensor([0.5])).tolist() == [0, 0.5]


def test_scatter_adds_and_multiplies():
    x, index = sf.ones(3), sf.tensor([0, 0, 2])
    assert x.scatter(0, index, sf.tensor([2.0, 3.0, 4.0]), reduce="add").tolist() == [6, 1, 5]
    assert sf.scatter(x, 0, index, sf.tensor([2.0, 3.0, 4.0]), reduce="multiply").tolist() == [6, 1, 4]
    assert x.scatter(0, index, value=2, reduce="multiply").tolist() == [4, 1, 2]
    with pytest.raises(ValueError, match="'add' or 'multiply'"):
        x.scatter(0, index, x, reduce="max")


def test_index_reduce():
    x = sf.tensor([[1.0, 2.0], [3.0, 4.0]])
    source = sf.tensor([[5.0, 0.0], [7.0, 9.0]])
    assert x.index_reduce(0, sf.tensor([1, 1]), source, "amax").tolist() == [[1, 2], [7, 9]]
    assert sf.index_reduce(x, 0, sf.tensor([1, 1]), source, "mean", include_self=False).tolist() == [[1, 2], [6, 4.5]]
    with pytest.raises(ValueError, match="reduce must be"):
        x.index_reduce(0, sf.tensor([1, 1]), source, "sum")
    with pytest.raises(ValueError, match="each of the 2 slices"):
        x.index_reduce(0, sf.tensor([1]), source, "amax")


def test_embedding_bag_scales_rows_down():
    weight = sf.tensor([[3.0, 4.0], [0.3, 0.4]])
    y = F.embedding_bag(sf.tensor([[0, 1]]), weight, max_norm=1.0, mode="sum")
    assert y.tolist() == [pytest.approx([0.9, 1.2], abs=1e-5)]
    assert weight[0].tolist() == pytest.approx([0.6, 0.8], abs=1e-5)
    with pytest.raises(NotImplementedError, match="sparse"):
        F.embedding_bag(sf.tensor([[0, 1]]), weight, sparse=True)


def test_embedding_bag_from_given_values():
    values = sf.tensor([[1.0, 2.0], [3.0, 6.0]])
    bag = sf.nn.EmbeddingBag.from_pretrained(values)
    assert bag(sf.tensor([[0, 1]])).tolist() == [[2, 4]] and not bag.weight.requires_grad
    bag = sf.nn.EmbeddingBag.from_pretrained(values, freeze=False, mode="sum", include_last_offset=True)
    assert bag(sf.tensor([0, 1, 1]), sf.tensor([0, 1, 3])).tolist() == [[1, 2], [6, 12]] and bag.weight.requires_grad
    assert "mode='sum'" in repr(bag)
    with pytest.raises(ValueError, match="2-dimensional"):
        sf.nn.EmbeddingBag.from_pretrained(sf.ones(3))


def test_ctc_loss_takes_lengths_as_tuples():
    log_probs = sf.zeros(4, 2, 3).log_softmax(2)
    targets = sf.tensor([[1, 2], [2, 1]])
    lengths = sf.tensor([4, 4]), sf.tensor([2, 1])
    want = F.ctc_loss(log_probs, targets, *lengths)
    assert F.ctc_loss(log_probs, targets, (4, 4), [2, 1]).item() == want.item()
    assert sf.nn.CTCLoss()(log_probs, targets, (4, 4), (2, 1)).item() == want.item()


def test_grid_sample_reads_the_grid_of_affine_grid():
    x = sf.arange(12.0).reshape(1, 1, 3, 4)
    mirror = sf.tensor([[[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    y = F.grid_sample(x, F.affine_grid(mirror, (1, 1, 3, 4), align_corners=False), align_corners=False)
    assert y.allclose(x.flip(3), atol=1e-5)
