"""The snippets that the project's documents promise, word for word, and the names in their tables."""

import os
import pathlib
import re

import pytest

import scaffolding as sf
import scaffolding.nn as nn
import scaffolding.nn.functional as F
import scaffolding.optim as optim

QUICK_START = """
import scaffolding as sf
import scaffolding.nn as nn
import scaffolding.nn.functional as F
import scaffolding.optim as optim

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

MODEL = """
class MLP(nn.Module):
    def __init__(self, d_in, d_hidden, d_out):
        super().__init__()
        self.fc1 = nn.Linear(d_in, d_hidden)
        self.fc2 = nn.Linear(d_hidden, d_out)

    def forward(self, x):
        x = F.silu(self.fc1(x))
        return self.fc2(x)

model = MLP(256, 512, 10)
optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)

# Training step
x = sf.randn(32, 256)
target = sf.randint(0, 10, (32,))

logits = model(x)
loss = F.cross_entropy(logits, target)
loss.backward()
optimizer.step()
optimizer.zero_grad()
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

    # Move model weights to GPU (streams one parameter at a time)
    model = MLP(256, 512, 10)
    model.to("cuda")  # parameters & buffers uploaded to VRAM

    # After forward pass, drop CPU weight shadows to save host RAM
    output = model(x)
    model._release_cpu_shadows()
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

INIT = """
from scaffolding.nn.init import xavier_uniform_, kaiming_normal_, normal_, zeros_

xavier_uniform_(layer.weight)
zeros_(layer.bias)
"""

ADAMW = """
optimizer = optim.AdamW(
    model.parameters(),
    lr=1e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.01,
)

optimizer.step()
optimizer.zero_grad()
"""

SCHEDULE = """
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)

for epoch in range(100):
    train(...)
    scheduler.step()
"""

CHECKPOINT = """
from scaffolding.utils.checkpoint import checkpoint

class DeepModel(nn.Module):
    def forward(self, x):
        x = checkpoint(self.block1, x)
        x = checkpoint(self.block2, x)
        return x
"""

SHADOWS = """
model.to("cuda")
output = model(x)
model._release_cpu_shadows()  # free CPU copies of all GPU-resident parameters
"""

CONVOLUTIONS = """
import scaffolding as sf
import scaffolding.nn as nn
import scaffolding.nn.functional as F

# 2D Convolution
conv = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1)
x = sf.randn(4, 3, 32, 32)  # (batch, channels, height, width)
out = conv(x)               # (4, 64, 32, 32)

# 3D Convolution (video / volumetric)
conv3d = nn.Conv3d(3, 64, kernel_size=3, padding=1)
vid = sf.randn(1, 3, 16, 32, 32)  # (batch, channels, depth, height, width)
out3d = conv3d(vid)                # (1, 64, 16, 32, 32)

# Functional API
weight = sf.randn(64, 3, 3, 3)
out = F.conv2d(x, weight, padding=1)

# Transposed convolution (upsampling)
up = nn.ConvTranspose2d(64, 32, kernel_size=2, stride=2)
out_up = up(out)  # spatial dimensions doubled
"""

# Sections of the documents whose programs belong to other parts: pipelines, and text to video.
ELSEWHERE = {"Diffusion Models & Pipelines", "Text-to-Video Generation"}

GENERATOR = """
generator=sf.Generator(device="cpu").manual_seed(42)
"""


def run(snippet, **names):
    scope = {"sf": sf, "nn": nn, "F": F, "optim": optim, **names}
    exec(snippet, scope)
    return scope


def test_every_program_of_the_documents_is_here_word_for_word():
    documents = (
        pathlib.Path(
            os.environ.get("SF_SHARED_DATA", pathlib.Path(__file__).resolve().parents[3] / "shared" / "data")
        ).parent
        / "seeds"
    )
    if not documents.exists():
        pytest.skip(f"no documents in {documents}")
    here = {value.strip() for name, value in globals().items() if name.isupper() and isinstance(value, str)}
    found = 0
    for path in [*documents.glob("000_*"), *documents.glob("001_*")]:
        for section in re.split(r"^## ", path.read_text(), flags=re.MULTILINE)[1:]:
            for program in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
                if section.split("\n")[0] not in ELSEWHERE:
                    found += 1
                    assert program.strip() in here, f"{path.name}, {section[:40]!r}: {program}"
    assert found == 21


def test_quick_start(capsys):
    scope = run(QUICK_START)
    assert capsys.readouterr().out == "(4, 3)\n" and scope["x"].grad.shape == (4, 3) and scope["w"].grad.shape == (3, 2)


def test_a_model_and_a_training_step():
    scope = run(MODEL)
    model, loss = scope["model"], scope["loss"]
    assert scope["logits"].shape == (32, 10) and loss.shape == ()
    assert list(model.state_dict()) == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert all(p.grad is None for p in model.parameters())
    assert F.cross_entropy(model(scope["x"]), scope["target"]).item() < loss.item()


def test_devices():
    mlp = run(MODEL)["MLP"]
    run(CUDA, MLP=mlp)
    run(MPS)


def test_autograd():
    assert run(AUTOGRAD)["x"].grad.tolist() == [5.0, 7.0]


def test_context_managers():
    model = nn.Linear(3, 2)
    assert not run(MODES, model=model, x=sf.ones(2, 3, requires_grad=True))["z"].requires_grad


def test_initialisation():
    layer = nn.Linear(30, 20)
    run(INIT, layer=layer)
    assert layer.bias.abs().max().item() == 0 and 0 < layer.weight.abs().max().item() <= (6 / 50) ** 0.5


def test_optimizer_and_schedule():
    model, calls = nn.Linear(3, 2), []
    model(sf.ones(1, 3)).sum().backward()
    before = model.weight.tolist()
    optimizer = run(ADAMW, model=model)["optimizer"]
    assert model.weight.tolist() != before and model.weight.grad is None
    scheduler = run(SCHEDULE, optimizer=optimizer, train=calls.append)["scheduler"]
    assert len(calls) == 100 and scheduler.get_last_lr()[0] == pytest.approx(0, abs=1e-12)


def test_gradient_checkpointing():
    model = run(CHECKPOINT)["DeepModel"]()
    model.block1, model.block2 = (lambda t: t.exp()), (lambda t: t * t)
    x = sf.tensor([0.5], requires_grad=True)
    model(x).sum().backward()
    assert x.grad.item() == pytest.approx(2 * 2.718281828**1.0, rel=1e-5)


def test_cpu_shadows():
    if not sf.cuda.is_available():
        pytest.skip("no CUDA device")
    model = nn.Linear(3, 2)
    scope = run(SHADOWS, model=model, x=sf.ones(2, 3).cuda())
    assert scope["output"].shape == (2, 2)


def test_convolutions():
    scope = run(CONVOLUTIONS)
    assert (
        scope["out"].shape == (4, 64, 32, 32)
        and scope["out3d"].shape == (1, 64, 16, 32, 32)
        and scope["out_up"].shape == (4, 32, 64, 64)
    )


def test_generator():
    assert run(GENERATOR)["generator"].initial_seed() == 42


def test_layer_table():
    image, video = sf.randn(2, 8, 8, 8), sf.randn(1, 8, 4, 4, 4)
    assert nn.Linear(8, 3)(sf.ones(2, 8)).shape == (2, 3) and nn.Embedding(10, 4)(sf.tensor([1, 2])).shape == (2, 4)
    assert nn.Conv1d(8, 4, 3)(sf.randn(2, 8, 9)).shape == (2, 4, 7) and nn.Conv2d(8, 4, 3)(image).shape == (2, 4, 6, 6)
    assert nn.Conv3d(8, 4, 3)(video).shape == (1, 4, 2, 2, 2)
    assert nn.ConvTranspose2d(8, 4, 2)(image).shape == (2, 4, 9, 9) and nn.ConvTranspose3d(8, 4, 2)(video).shape == (
        1,
        4,
        5,
        5,
        5,
    )
    for layer in (
        nn.BatchNorm2d(8),
        nn.GroupNorm(4, 8),
        nn.Dropout(0.1),
        nn.SiLU(),
        nn.ReLU(),
        nn.GELU(),
        nn.Tanh(),
        nn.Sigmoid(),
    ):
        assert layer(image).shape == image.shape
    assert (
        nn.BatchNorm3d(8)(video).shape == video.shape
        and nn.LayerNorm(8)(image).shape == nn.RMSNorm(8)(image).shape == image.shape
    )
    assert (
        nn.AvgPool2d(2)(image).shape
        == nn.MaxPool2d(2)(image).shape
        == nn.AdaptiveAvgPool2d(4)(image).shape
        == (2, 8, 4, 4)
    )
    assert nn.Upsample(scale_factor=2)(image).shape == (2, 8, 16, 16) and nn.PixelShuffle(2)(image).shape == (
        2,
        2,
        16,
        16,
    )


def test_module_methods():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    assert len(list(model.parameters())) == 4 and [name for name, _ in model.named_parameters()][0] == "0.weight"
    other = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    other.load_state_dict(model.state_dict())
    assert model.eval()(sf.ones(1, 3)).tolist() == other.eval()(sf.ones(1, 3)).tolist()
    assert model.train().training and model.to("cpu") is model
    model._release_cpu_shadows()


def test_factory_table():
    assert sf.tensor([1, 2]).shape == (2,)
    assert (
        sf.zeros(2, 3).shape
        == sf.ones(2, 3).shape
        == sf.randn(2, 3).shape
        == sf.rand(2, 3).shape
        == sf.empty(2, 3).shape
        == (2, 3)
    )
    assert sf.randint(0, 5, (2,)).shape == (2,) and sf.arange(0, 6, 2).tolist() == [0, 2, 4]
    assert sf.linspace(0, 1, 3).tolist() == [0, 0.5, 1] and sf.full((2,), 3.0).tolist() == [3, 3]
    for name in ("zeros", "ones", "randn", "rand", "empty"):
        x = getattr(sf, name)(2, dtype=sf.float64, device="cpu", requires_grad=True)
        assert x.dtype is sf.float64 and x.requires_grad


def test_operations_table():
    x, y = sf.rand(2, 2) + 0.5, sf.rand(2, 2) + 0.5
    for result in (
        x + y,
        x - y,
        x * y,
        x / y,
        x**y,
        x @ y,
        sf.matmul(x, y),
        sf.exp(x),
        sf.log(x),
        sf.sigmoid(x),
        sf.softmax(x, dim=-1),
        sf.softmax(x, -1),
    ):
        assert result.shape == (2, 2)
    assert sf.cat([x, y], 0).shape == sf.cat([x, y], dim=0).shape == (4, 2) and sf.stack([x, y], dim=0).shape == (
        2,
        2,
        2,
    )
    assert (
        x.sum().shape == x.mean().shape == ()
        and x.reshape((4,)).shape == (4,)
        and x.transpose(0, 1).is_contiguous() is False
    )
    assert x.transpose(0, 1).contiguous().is_contiguous()


def test_dtypes_and_devices():
    for name in ("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"):
        assert sf.ones(2).to(getattr(sf, name)).dtype is getattr(sf, name)
    x = sf.ones(2)
    assert x.cpu() is x and x.to("cpu") is x and callable(x.cuda) and callable(x.mps)


def test_functional_names():
    for name in ("softmax", "cross_entropy", "silu", "gelu", "relu", "dropout", "embedding"):
        assert callable(getattr(F, name))
    for name in ("CosineAnnealingLR", "LambdaLR", "StepLR"):
        assert callable(getattr(optim.lr_scheduler, name))
