"""The snippets that the project's documents promise, word for word, and the names in their tables."""

import pytest

import scaffolding as sf

TENSORS = """
import scaffolding as sf
import scaffolding.nn as nn
import scaffolding.nn.functional as F

# Create tensors
x = sf.randn(4, 3, requires_grad=True)
w = sf.randn(3, 2, requires_grad=True)

# Forward pass
y = sf.matmul(x, w)
loss = y.sum()

# Backward pass
loss.backward()
print(x.grad.shape)  # (4, 3)
"""

AUTOGRAD = """
x = sf.tensor([2.0, 3.0], requires_grad=True)
y = x * x + x
y.sum().backward()
print(x.grad)  # [5.0, 7.0]  (dy/dx = 2x + 1)
"""

MODES = """
with sf.no_grad():
    # Disables gradient tracking
    z = model(x)

with sf.inference_mode():
    # Like no_grad, for inference
    z = model(x)
"""

CUDA = """
import scaffolding as sf
import scaffolding.backends.cuda as cuda

if cuda.is_available():
    print(f"GPUs: {cuda.device_count()}")
    props = cuda.get_device_properties(0)
    print(f"  {props['name']}: {props['total_memory'] / 1e9:.1f} GB VRAM")

    x = sf.randn(64, 64).cuda()  # uploaded to GPU
    y = sf.randn(64, 64).cuda()

    # Matmul dispatches to CUDA kernels
    z = sf.matmul(x, y)

    # Elementwise ops use fused float4-vectorised CUDA kernels
    a = sf.sigmoid(x)
    b = sf.exp(x)
"""

MPS = """
import scaffolding.backends.mps as mps

if mps.is_available():
    x = sf.randn(64, 64).mps()
    y = sf.randn(64, 64).mps()

    # Matmul dispatches to Accelerate cblas_sgemm
    z = sf.matmul(x, y)

    # Elementwise ops dispatch to vecLib / vDSP
    a = sf.sigmoid(x)
    b = sf.exp(x)
    c = sf.softmax(x, dim=-1)
"""

GENERATOR = """
generator=sf.Generator(device="cpu").manual_seed(42)
"""

CHECKPOINT = """
from scaffolding.utils.checkpoint import checkpoint

class DeepModel:
    def forward(self, x):
        x = checkpoint(self.block1, x)
        x = checkpoint(self.block2, x)
        return x
"""


def run(snippet, capsys, **names):
    scope = {"sf": sf, **names}
    exec(snippet, scope)
    return scope, capsys.readouterr().out


def test_first_steps(capsys):
    scope, out = run(TENSORS, capsys)
    assert out == "(4, 3)\n" and scope["x"].grad.shape == (4, 3) and scope["w"].grad.shape == (3, 2)


def test_autograd_example(capsys):
    scope, _ = run(AUTOGRAD, capsys)
    assert scope["x"].grad.tolist() == [5.0, 7.0]


def test_context_managers(capsys):
    x = sf.ones(2, requires_grad=True)
    scope, _ = run(MODES, capsys, model=lambda t: t * 2, x=x)
    assert not scope["z"].requires_grad


def test_device_snippets(capsys):
    for snippet in (CUDA, MPS):
        run(snippet, capsys)


def test_generator(capsys):
    scope, _ = run(GENERATOR, capsys)
    assert scope["generator"].initial_seed() == 42


def test_checkpoint(capsys):
    scope, _ = run(CHECKPOINT, capsys)
    model = scope["DeepModel"]()
    model.block1, model.block2 = (lambda t: t.exp()), (lambda t: t * t)
    x = sf.tensor([0.5], requires_grad=True)
    model.forward(x).sum().backward()
    assert x.grad.item() == pytest.approx(2 * 2.718281828**1.0, rel=1e-5)


def test_factory_table():
    assert sf.tensor([1, 2]).shape == (2,)
    assert sf.zeros(2, 3).shape == sf.ones(2, 3).shape == sf.randn(2, 3).shape == sf.rand(2, 3).shape == sf.empty(2, 3).shape == (2, 3)
    assert sf.randint(0, 5, (2,)).shape == (2,) and sf.arange(0, 6, 2).tolist() == [0, 2, 4]
    assert sf.linspace(0, 1, 3).tolist() == [0, 0.5, 1] and sf.full((2,), 3.0).tolist() == [3, 3]
    for name in ("zeros", "ones", "randn", "rand", "empty"):
        x = getattr(sf, name)(2, dtype=sf.float64, device="cpu", requires_grad=True)
        assert x.dtype is sf.float64 and x.requires_grad


def test_operations_table():
    x, y = sf.rand(2, 2) + 0.5, sf.rand(2, 2) + 0.5
    for result in (x + y, x - y, x * y, x / y, x**y, x @ y, sf.matmul(x, y), sf.exp(x), sf.log(x), sf.sigmoid(x), sf.softmax(x, dim=-1), sf.softmax(x, -1)):
        assert result.shape == (2, 2)
    assert sf.cat([x, y], 0).shape == sf.cat([x, y], dim=0).shape == (4, 2) and sf.stack([x, y], dim=0).shape == (2, 2, 2)
    assert x.sum().shape == x.mean().shape == () and x.reshape((4,)).shape == (4,) and x.transpose(0, 1).is_contiguous() is False
    assert x.transpose(0, 1).contiguous().is_contiguous()


def test_dtypes_and_devices():
    for name in ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"):
        assert sf.ones(2).to(getattr(sf, name)).dtype is getattr(sf, name)
    x = sf.ones(2)
    assert x.cpu() is x and x.to("cpu") is x and callable(x.cuda) and callable(x.mps)
