"""Work: what a row times. Makers in operators.py and networks.py write it once for both libraries:
`lib` is scaffolding or torch.
"""

import dataclasses


@dataclasses.dataclass
class Work:
    calls: list  # one after the other; several where one call's data would stay in the cache
    flop: float = 0  # of one call: multiplications and additions
    moved: float = 0  # bytes of one call, each input read and each output written once
    in_turn: bool = False  # flop and moved are phases that follow each other: the floor is their sum
    tensor_rate: float = 1  # how many times as fast as in bfloat16 the matrix units are
    images: int = 0  # of one call
    grad: bool = False  # whether a tape is recorded


L2 = 60e6


def rotated(prepare, size):
    """Calls on fresh inputs that together fill four times the last cache, size bytes each; at most 64."""
    return [prepare() for _ in range(max(1, min(64, int(4 * L2 // size) + 1)))]


def device(lib):
    return "cuda" if lib.cuda.is_available() else "cpu"


def ours(lib):
    return lib.__name__ == "scaffolding"


def bf16(lib, *shape, grad=False):
    return lib.randn(*shape, device=device(lib), dtype=lib.bfloat16).requires_grad_(grad)
