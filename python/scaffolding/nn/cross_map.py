"""Local response normalisation of Lua's Torch."""

from .. import _core
from .module import Module


class CrossMapLRN2d(Module):
    """input[N, C, H, W] / (k + alpha / size * the squares of channels around)^beta. Around channel c lie size of them,
    as LocalResponseNorm has it, and channel 0 always does: PyTorch never takes it out of its running sum. Gradients are
    of this formula; PyTorch's are not, as its gradcheck finds.

    >>> nn.CrossMapLRN2d(2)(sf.ones(1, 4, 8, 8)).shape
    scaffolding.Size([1, 4, 8, 8])
    """

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        """input[N, C, H, W], normalised."""
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: input must be [N, C, H, W], got shape {list(input.shape)}")
        channels, reach = input.shape[1], (self.size - 1) // 2 + 1
        sums = _core.cumsum(input * input, 1)
        at = _core.arange(channels, device=input.device)
        upper = sums.index_select(1, _core.clamp(at + (reach - 1), max=channels - 1))
        lower = sums.index_select(1, _core.clamp(at - reach, min=0)) - sums[:, :1]
        return input * _core.pow(self.k + self.alpha / self.size * (upper - lower), -self.beta)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
