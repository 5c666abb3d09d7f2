"""Scaffolding: tensors with gradients on CPU and CUDA, with PyTorch's vocabulary.

>>> import scaffolding as sf
>>> x = sf.tensor([2.0, 3.0], requires_grad=True)
>>> (x * x + x).sum().backward()
>>> x.grad
tensor([5., 7.])
"""

from . import _waiting  # first: it loads _core
from ._core import *  # noqa: F403
from . import _core
from ._core import _int_mm  # noqa: F401  (the star leaves it out)
from ._overloads import *  # noqa: F403
from ._compositions import *  # noqa: F403
from ._elementwise import *  # noqa: F403
from ._products import *  # noqa: F403
from ._joining import *  # noqa: F403
from ._shaping import *  # noqa: F403
from ._fuse import fuse
from ._compile import compile
from ._deterministic import *  # noqa: F403
from ._printing import get_printoptions, printoptions, set_printoptions
from . import _tensor  # noqa: F401  (completes the Tensor class)
from .autograd.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from ._random import default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from .amp import autocast
from .serialization import load, save
from . import _missing, amp, autograd, backends, cuda, nn, optim, utils
from ._documents import add_to as _add_document
from ._later import later

__version__ = "0.1.0"

inf = _core.inf
nan = _core.nan
pi = _core.pi
e = _core.e
newaxis = None
strided = "strided"

for _cls in (_core.Tensor, _core.Generator, _core.Size, _core.device, autograd.GradientMap):
    _add_document(_cls, "classes")

# Imported when they are asked for: half of what `import scaffolding` took.
_LATER = dict.fromkeys(
    "data diffusion distributed hub io models profiler random safetensors special testing tokenizers train".split()
)
_LATER |= {f"{name}_window": "_windows" for name in "bartlett blackman hamming hann kaiser".split()}
_LATER |= {
    f"{name}Tensor": "_typed_tensors" for name in "BFloat16 Bool Byte Char Double Float Half Int Long Short".split()
}
_LATER |= {"histogram": "_histogram"}
__getattr__, __dir__ = later(__name__, _LATER)
_missing.help_modules()
