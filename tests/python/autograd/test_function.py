"""autograd.Function: ops with forward and backward in Python."""

import gc
import weakref

import pytest

import scaffolding as sf
from scaffolding.autograd import Function
from scaffolding.autograd.function import once_differentiable


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y


class ScaledMul(Function):
    @staticmethod
    def forward(ctx, a, b, scale=1.0):
        ctx.save_for_backward(a, b)
        ctx.scale = scale
        return a * b * scale

    @staticmethod
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        da = dy * b * ctx.scale if ctx.needs_input_grad[0] else None
        db = dy * a * ctx.scale if ctx.needs_input_grad[1] else None
        return da, db, None


def leaf(*values, dtype=sf.float32):
    return sf.tensor(list(values), requires_grad=True, dtype=dtype)


def test_gradient_and_name():
    x = leaf(0.0, 1.0)
    y = Exp.apply(x)
    assert y.grad_fn.name() == "ExpBackward" and not y.is_leaf and "grad_fn=<ExpBackward>" in repr(y)
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([1, 2.7182817])


def test_only_wanted_gradients_are_asked_for():
    a, b = leaf(2.0), sf.tensor([3.0])
    y = ScaledMul.apply(a, b, 2.0)
    y.sum().backward()
    assert a.grad.item() == 6 and b.grad is None
    assert not ScaledMul.apply(b, b).requires_grad
    with sf.no_grad():
        assert not Exp.apply(a).requires_grad


def test_second_derivatives():
    x = leaf(0.5, 1.5, dtype=sf.float64)
    assert sf.autograd.gradcheck(Exp.apply, (x,)) and sf.autograd.gradgradcheck(Exp.apply, (x,))
    assert sf.autograd.gradgradcheck(lambda a: ScaledMul.apply(a, a, 3.0), (x,))


def test_setup_context():
    class Square(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            (x,) = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            return 2 * x * dy

    x = leaf(3.0)
    Square.apply(x).sum().backward()
    assert x.grad.item() == 6


def test_several_outputs_and_absent_gradients():
    seen = []

    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            order = (x > 0).long()
            ctx.mark_non_differentiable(order)
            return x * 2, x * 3, order, "text"

        @staticmethod
        def backward(ctx, da, db, dorder):
            seen.append([None if g is None else g.tolist() for g in (da, db)])
            return da * 2 + db * 3 if db is not None else da * 2

    x = leaf(1.0, -1.0)
    a, b, order, text = Split.apply(x)
    assert text == "text" and not order.requires_grad and b.requires_grad
    a.sum().backward()
    assert seen == [[[1, 1], [0, 0]]] and x.grad.tolist() == [2, 2]

    class Bare(Split):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return Split.forward(ctx, x)

    Bare.apply(x)[0].sum().backward()
    assert seen[1] == [[1, 1], None]


def test_saved_tensors_are_checked_and_freed():
    x = leaf(1.0)
    y = Exp.apply(x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="retain_graph"):
        y.sum().backward()
    a = leaf(1.0) * 1
    z = ScaledMul.apply(a, a)
    a.add_(1)
    with pytest.raises(RuntimeError, match="in place"):
        z.sum().backward()
    y = Exp.apply(x)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="in place"):
        y.sum().backward()


def test_wrong_backwards():
    class Count(Exp):
        @staticmethod
        def backward(ctx, dy):
            return dy, dy

    class Shape(Exp):
        @staticmethod
        def backward(ctx, dy):
            return sf.ones(7)

    class Kind(Exp):
        @staticmethod
        def backward(ctx, dy):
            return 3

    class Raises(Exp):
        @staticmethod
        def backward(ctx, dy):
            raise KeyError("mine")

    for function, error, words in (
        (Count, RuntimeError, "2 gradients for 1"),
        (Shape, RuntimeError, "shape"),
        (Kind, TypeError, "tensors or None"),
        (Raises, KeyError, "mine"),
    ):
        with pytest.raises(error, match=words):
            function.apply(leaf(1.0, 2.0)).sum().backward()


def test_inputs_as_outputs():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * 5

    x = leaf(1.0)
    y = Same.apply(x)
    assert y is not x and x.is_leaf
    y.sum().backward()
    assert x.grad.item() == 5


def test_mark_dirty():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * 2

    x = leaf(3.0)
    y = x * 1
    z = Double.apply(y)
    assert z is y and z.item() == 6
    z.sum().backward()
    assert x.grad.item() == 2


def test_once_differentiable():
    class Once(Exp):
        backward = staticmethod(once_differentiable(Exp.backward))

    x = leaf(1.0)
    Once.apply(x).sum().backward()
    with pytest.raises(RuntimeError, match="differentiated again"):
        (g,) = sf.autograd.grad(Once.apply(x).sum() * x.sum(), x, create_graph=True)


def test_contexts_are_freed():
    refs = []

    class Keep(Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x, y)
            refs.append(weakref.ref(ctx))
            return y

        @staticmethod
        def backward(ctx, dy):
            return dy * 2

    y = Keep.apply(leaf(1.0))
    gc.collect()
    assert refs[0]() is not None
    del y
    gc.collect()
    assert refs[0]() is None
