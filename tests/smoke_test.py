"""An end-to-end check of every major part: PYTHONPATH=. python tests/smoke_test.py, or pytest. Some seconds;
prints a line per part.
"""

import math
import sys
import time

import scaffolding as sf
import scaffolding.nn as nn
import scaffolding.nn.functional as F
import scaffolding.optim as optim
from scaffolding.utils.checkpoint import checkpoint


def test_tensors():
    x = sf.arange(6.0).reshape(2, 3)
    assert (x @ x.T).tolist() == [[5, 14], [14, 50]] and x[:, 1].tolist() == [1, 4] and x.sum().item() == 15
    x[0, 0] = 7
    assert x.max().item() == 7 and sf.cat([x, x]).shape == (4, 3) and sf.stack([x, x]).shape == (2, 2, 3)
    for name in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"):
        assert x.to(getattr(sf, name)).dtype is getattr(sf, name)


def test_random_numbers_repeat():
    sf.manual_seed(3)
    a = sf.randn(5).tolist()
    sf.manual_seed(3)
    assert sf.randn(5).tolist() == a != sf.randn(5).tolist()


def test_autograd():
    x = sf.tensor([2.0, 3.0], requires_grad=True)
    (x * x + x).sum().backward()
    assert x.grad.tolist() == [5, 7]
    (g,) = sf.autograd.grad((x**3).sum(), x, create_graph=True)
    g.sum().backward()
    assert x.grad.tolist() == [17, 25]
    with sf.no_grad():
        assert not (x * 2).requires_grad
    assert sf.autograd.gradcheck(lambda t: sf.tanh(t) * t, (sf.randn(3, dtype=sf.float64, requires_grad=True),))
    y = sf.randn(4, requires_grad=True)
    checkpoint(lambda t: t.exp() * t, y, use_reentrant=False).sum().backward()
    assert y.grad.allclose(((1 + y) * y.exp()).detach())


def test_functional():
    x = sf.randn(4, 10)
    assert F.softmax(x, dim=-1).sum(-1).allclose(sf.ones(4)) and F.log_softmax(x, -1).allclose(
        F.softmax(x, -1).log(), atol=1e-5
    )
    assert F.cross_entropy(sf.zeros(3, 10), sf.tensor([1, 2, 3])).item() - math.log(10) < 1e-6
    assert F.layer_norm(x, (10,)).mean(-1).abs().max().item() < 1e-5
    q = sf.randn(1, 2, 5, 8)
    assert F.scaled_dot_product_attention(q, q, q, is_causal=True)[0, :, 0].allclose(q[0, :, 0], atol=1e-5)
    for name in ("relu", "silu", "gelu", "mish", "sigmoid", "tanh", "softplus", "leaky_relu", "elu"):
        assert getattr(F, name)(x).shape == x.shape


def test_modules():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.fc = nn.Linear(8, 5)

        def forward(self, x):
            return self.fc(F.relu(self.norm(self.conv(x))).mean((2, 3)))

    net, x = Net(), sf.randn(2, 3, 8, 8)
    assert net(x).shape == (2, 5) and net.norm.num_batches_tracked.item() == 1
    state = net.state_dict()
    assert {"conv.weight", "norm.running_mean", "fc.bias"} <= set(state) and len(list(net.parameters())) == 6
    other = Net()
    other.load_state_dict(state)
    assert net.eval()(x).tolist() == other.eval()(x).tolist() and not net.conv.training and "Conv2d(3, 8" in repr(net)
    assert net.to(sf.float64)(x.double()).dtype is sf.float64


def test_training():
    sf.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = optim.AdamW(net.parameters(), lr=0.05, weight_decay=0.01)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60)
    x = sf.rand(128, 2) * 2 - 1
    target = (x[:, 0] * x[:, 1] > 0).long()
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), target)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    right = (net(x).argmax(1) == target).float().mean().item()
    assert right > 0.9 and loss.item() < 0.3, (right, loss.item())
    resumed = optim.AdamW(net.parameters(), lr=0.05)
    resumed.load_state_dict(optimizer.state_dict())
    assert resumed.param_groups[0]["weight_decay"] == 0.01


def test_convolutions():
    assert nn.Conv1d(2, 3, 3)(sf.randn(1, 2, 9)).shape == (1, 3, 7) and nn.Conv3d(2, 3, 3)(
        sf.randn(1, 2, 4, 4, 4)
    ).shape == (1, 3, 2, 2, 2)
    assert nn.ConvTranspose2d(4, 2, 2, stride=2)(sf.randn(1, 4, 3, 3)).shape == (1, 2, 6, 6)
    x = sf.randn(1, 2, 5, 5)
    assert F.conv2d(x, sf.ones(1, 2, 5, 5)).item() - x.sum().item() < 1e-4


def test_devices():
    import scaffolding.backends.cuda as cuda
    import scaffolding.backends.mps as mps

    print(
        f"    cuda: {'yes' if cuda.is_available() else 'no'}, mps: {'yes' if mps.is_available() else 'no'}, "
        f"{sf.get_num_threads()} threads"
    )
    x = sf.randn(16, 16)
    for device in ["cpu"] + ["cuda"] * cuda.is_available() + ["mps"] * mps.is_available():
        y = x.to(device)
        assert (y + y).cpu().allclose(x + x) and (y @ y).cpu().allclose(x @ x, atol=1e-4)
        assert y.device.type == device


def main():
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            start = time.perf_counter()
            try:
                test()
                print(f"ok      {name[5:]:24s} {1e3 * (time.perf_counter() - start):7.1f} ms")
            except Exception as error:
                failed += 1
                print(f"FAILED  {name[5:]:24s} {type(error).__name__}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
