"""Adafactor."""

from .optimizer import RuleOptimizer


class Adafactor(RuleOptimizer):
    """Adafactor (Shazeer and Stern 2018) with torch.optim.Adafactor's options: second moments of matrices are kept as a
    row and a column, and steps are relative to the size of the weights.

    lr is the largest relative step; eps[0] None stands for the dtype's epsilon. Statistics are float32 for 16-bit
    parameters. state: step, row_var and col_var, or variance for vectors. ValueError for options out of range.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.Adafactor([w], lr=0.1)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> w.data
    tensor([0.9000, 0.9000])
    """

    _rule = "Adafactor"

    def __init__(
        self,
        params,
        lr=1e-2,
        beta2_decay=-0.8,
        eps=(None, 1e-3),
        d=1.0,
        weight_decay=0.0,
        *,
        foreach=None,
        maximize=False,
    ):
        self._begin(locals())
