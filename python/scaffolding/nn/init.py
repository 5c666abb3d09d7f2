"""Initial values of parameters: torch.nn.init.

Each function fills the tensor in place without recording a gradient, and returns it. With a CPU generator (`generator`,
or the default one) the numbers are torch's for the same seed, dtype and shape. A shape or argument that a function has
no meaning for is a ValueError, and nothing is drawn or written then. fan_in and fan_out are those of tensor[out, in,
receptive field...].
"""

import warnings

from .._core import _init

__all__ = """calculate_gain uniform_ normal_ trunc_normal_ constant_ ones_ zeros_ eye_ dirac_ xavier_uniform_
xavier_normal_ kaiming_uniform_ kaiming_normal_ orthogonal_ sparse_ uniform normal constant eye dirac xavier_uniform
xavier_normal kaiming_uniform kaiming_normal orthogonal sparse""".split()


def calculate_gain(nonlinearity, param=None):
    """The gain that keeps the deviation of activations through `nonlinearity` (a name in nn.functional);
    param is leaky_relu's slope, 0.01 unless given.

    >>> nn.init.calculate_gain("relu"), nn.init.calculate_gain("leaky_relu", 0.2)
    (1.4142135623730951, 1.3867504905630728)
    """
    return _init.calculate_gain(nonlinearity, param)


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """tensor becomes numbers of [a, b), all equally likely, drawn from generator.

    >>> nn.init.uniform_(sf.empty(2, 2), -1.0, 1.0)
    tensor([[-0.0075,  0.5364],
            [-0.8230, -0.7359]])
    """
    return _init.uniform_(tensor, a, b, generator)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """tensor becomes normal numbers of this mean and deviation std, drawn from generator.

    >>> nn.init.normal_(sf.empty(2, 2), std=0.02)
    tensor([[ 0.0308, -0.0059],
            [-0.0436,  0.0114]])
    """
    return _init.normal_(tensor, mean, std, generator)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """tensor becomes normal numbers of deviation std cut to [a, b], drawn from generator; best when a <= mean <= b.

    >>> nn.init.trunc_normal_(sf.empty(1000), a=-1.0, b=1.0).abs().max() <= 1
    tensor(True)
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "trunc_normal_: mean is more than 2 std from [a, b], so that few of the numbers are as likely as they "
            "should be",
            stacklevel=2,
        )
    return _init.trunc_normal_(tensor, mean, std, a, b, generator)


def constant_(tensor, val):
    """val everywhere in tensor.

    >>> nn.init.constant_(sf.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    return _init.constant_(tensor, val)


def ones_(tensor):
    """1 everywhere in tensor.

    >>> nn.init.ones_(sf.empty(2))
    tensor([1., 1.])
    """
    return _init.constant_(tensor, 1)


def zeros_(tensor):
    """0 everywhere in tensor.

    >>> layer = nn.Linear(4, 2)
    >>> nn.init.zeros_(layer.bias)
    Parameter containing:
    tensor([0., 0.], requires_grad=True)
    """
    return _init.constant_(tensor, 0)


def eye_(tensor):
    """The identity, as far as tensor[rows, columns] reaches.

    >>> nn.init.eye_(sf.empty(2, 3))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    return _init.eye_(tensor)


def dirac_(tensor, groups=1):
    """tensor[O, I, kernel...] with 1 to 3 kernel dimensions:
    a convolution that hands the first channels of each of so many groups on unchanged.

    >>> conv = nn.Conv1d(2, 2, 3, padding=1, bias=False)
    >>> weight = nn.init.dirac_(conv.weight)
    >>> conv(sf.tensor([[[1., 2.], [3., 4.]]]))
    tensor([[[1., 2.],
             [3., 4.]]], grad_fn=<ConvBackward0>)
    """
    return _init.dirac_(tensor, groups)


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """tensor becomes uniform numbers of deviation gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010), drawn
    from generator.

    >>> nn.init.xavier_uniform_(sf.empty(2, 4)).abs().max() <= 1  # sqrt(6 / (4 + 2))
    tensor(True)
    """
    return _init.xavier_uniform_(tensor, gain, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """tensor becomes normal numbers of deviation gain * sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio 2010), drawn
    from generator.

    >>> nn.init.xavier_normal_(sf.empty(300, 100)).std()  # about sqrt(2 / 400)
    tensor(0.0708)
    """
    return _init.xavier_normal_(tensor, gain, generator)


def _warn_if_empty(name, tensor):
    if 0 in tensor.shape:
        warnings.warn(f"{name}: initializing a tensor without elements does nothing", stacklevel=3)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """tensor becomes uniform numbers of deviation gain / sqrt(fan) (He et al. 2015), drawn from generator: the gain of
    `nonlinearity` (a: leaky_relu's slope), the fan that mode names.

    >>> layer = nn.Linear(600, 10)
    >>> nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu").abs().max() <= 0.1  # sqrt(6 / 600)
    tensor(True)
    """
    _warn_if_empty("kaiming_uniform_", tensor)
    return _init.kaiming_uniform_(tensor, a, mode, nonlinearity, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """tensor becomes normal numbers of deviation gain / sqrt(fan) (He et al. 2015), drawn from generator: the gain of
    `nonlinearity` (a: leaky_relu's slope), the fan that mode names.

    >>> nn.init.kaiming_normal_(sf.empty(100, 200), nonlinearity="relu").std()  # about sqrt(2 / 200)
    tensor(0.1005)
    """
    _warn_if_empty("kaiming_normal_", tensor)
    return _init.kaiming_normal_(tensor, a, mode, nonlinearity, generator)


def orthogonal_(tensor, gain=1, generator=None):
    """tensor becomes orthonormal rows (or columns, where these are fewer) times gain (Saxe et al. 2013), drawn from
    generator;
    dimensions after the first count as one.

    >>> rows = nn.init.orthogonal_(sf.empty(2, 5))
    >>> sf.allclose(rows @ rows.T, sf.eye(2), atol=1e-6)
    True
    """
    return _init.orthogonal_(tensor, gain, generator)


def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Normal numbers of deviation std, with ceil(sparsity * rows) zeros in each column of tensor[rows, columns];
    which ones comes from the default generator, as in torch.

    >>> (nn.init.sparse_(sf.empty(10, 4), sparsity=0.3) == 0).sum(0)
    tensor([3, 3, 3, 3])
    """
    return _init.sparse_(tensor, sparsity, std, generator)


def _calculate_fan_in_and_fan_out(tensor):
    return _init.calculate_fan_in_and_fan_out(tensor)


def _calculate_correct_fan(tensor, mode):
    fans = dict(zip(("fan_in", "fan_out"), _calculate_fan_in_and_fan_out(tensor)))
    if mode.lower() not in fans:
        raise ValueError(f"mode '{mode}' is not supported, use 'fan_in' or 'fan_out'")
    return fans[mode.lower()]


def _deprecated(function):
    def old(*args, **kwargs):
        warnings.warn(
            f"nn.init.{old.__name__} is deprecated in favor of nn.init.{function.__name__}", FutureWarning, stacklevel=2
        )
        return function(*args, **kwargs)

    old.__name__ = old.__qualname__ = function.__name__[:-1]
    old.__doc__ = f"The old name of {function.__name__}."
    return old


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)
