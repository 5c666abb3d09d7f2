"""Golden files of layers: for each case what PyTorch has as initial parameters from a seed, state-dict keys, repr,
output and gradients.

Usage: /path/to/python-with-torch tests/golden/make_golden_nn.py
Writes nn.json.gz (cases, reprs, keys) and nn.safetensors.gz (numbers, thinned to 40 values a tensor) beside this file.
tests/python/nn/test_nn_golden.py evaluates the same expressions with Scaffolding; the random numbers are the same, so
that inputs need no storing.
"""

import gzip
import json
import math
import pathlib

import torch
from packed import LONG_SUFFIX, write_packed
from safetensors.torch import save
from torch import nn

HERE = pathlib.Path(__file__).parent
KEPT = 40

# (layer, inputs, keyword inputs). "eval:" in front of a layer: in eval mode.
CASES = [
    ("nn.Linear(7, 5)", "randn(3, 7)"),
    ("nn.Linear(6, 4, bias=False)", "randn(2, 3, 6)"),
    ("nn.Linear(1, 3)", "randn(4, 1)"),
    ("nn.Linear(7, 5, device='cpu', dtype=torch.float64)", "randn(3, 7, dtype=torch.float64)"),
    ("nn.Conv2d(2, 3, 3, dtype=torch.float64)", "randn(1, 2, 5, 5, dtype=torch.float64)"),
    ("nn.Bilinear(3, 4, 5)", "randn(6, 3), randn(6, 4)"),
    ("nn.Bilinear(2, 2, 1, bias=False)", "randn(3, 2), randn(3, 2)"),
    ("nn.Embedding(11, 6)", "randint(0, 11, (3, 4))"),
    ("nn.Embedding(9, 4, padding_idx=2)", "randint(0, 9, (5,))"),
    ("nn.Embedding(9, 4, padding_idx=-1)", "randint(0, 9, (2, 5))"),
    ("nn.Embedding(9, 4, max_norm=1.0)", "randint(0, 9, (6,))"),
    ("nn.Identity()", "randn(2, 3)"),
    ("nn.Conv1d(4, 6, 3)", "randn(2, 4, 9)"),
    ("nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2)", "randn(2, 4, 12)"),
    ("nn.Conv1d(3, 2, 4, padding='same')", "randn(2, 3, 8)"),
    ("nn.Conv1d(3, 2, 3, padding=2, padding_mode='circular')", "randn(2, 3, 8)"),
    ("nn.Conv2d(3, 5, 3, padding=1)", "randn(2, 3, 8, 7)"),
    ("nn.Conv2d(4, 4, (3, 2), stride=(2, 1), bias=False, groups=4)", "randn(2, 4, 8, 8)"),
    ("nn.Conv2d(3, 4, 3, padding='same', dilation=2)", "randn(1, 3, 6, 7)"),
    ("nn.Conv2d(3, 4, 3, padding=1, padding_mode='reflect')", "randn(1, 3, 6, 7)"),
    ("nn.Conv2d(3, 4, 3, padding=(1, 2), padding_mode='replicate')", "randn(1, 3, 6, 7)"),
    ("nn.Conv2d(3, 4, 4, padding='same', padding_mode='circular')", "randn(1, 3, 6, 7)"),
    ("nn.Conv2d(3, 4, 1)", "randn(3, 5, 5)"),
    ("nn.Conv3d(2, 3, 3, padding=1)", "randn(1, 2, 4, 5, 6)"),
    ("nn.Conv3d(2, 4, (1, 2, 3), stride=2, groups=2)", "randn(2, 2, 4, 5, 6)"),
    ("nn.ConvTranspose1d(4, 3, 3, stride=2, padding=1)", "randn(2, 4, 5)"),
    ("nn.ConvTranspose1d(4, 3, 3, stride=3)", "randn(2, 4, 5)", "output_size=[16]"),
    ("nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)", "randn(2, 4, 5, 4)"),
    ("nn.ConvTranspose2d(3, 2, 4, stride=2, bias=False, dilation=2)", "randn(1, 3, 4, 4)"),
    ("nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1)", "randn(1, 3, 4, 4)", "output_size=(1, 2, 8, 8)"),
    ("nn.ConvTranspose3d(2, 3, 2, stride=2)", "randn(1, 2, 3, 3, 3)"),
    ("nn.BatchNorm1d(5)", "randn(6, 5)"),
    ("nn.BatchNorm1d(5, momentum=None, eps=1e-3)", "randn(3, 5, 4)"),
    ("nn.BatchNorm2d(4)", "randn(2, 4, 3, 5)"),
    ("eval:nn.BatchNorm2d(4)", "randn(2, 4, 3, 5)"),
    ("nn.BatchNorm2d(4, affine=False, track_running_stats=False)", "randn(2, 4, 3, 5)"),
    ("eval:nn.BatchNorm2d(4, affine=False, track_running_stats=False)", "randn(2, 4, 3, 5)"),
    ("nn.BatchNorm2d(4, bias=False)", "randn(2, 4, 3, 5)"),
    ("nn.BatchNorm3d(3, momentum=0.3)", "randn(2, 3, 2, 3, 2)"),
    ("nn.InstanceNorm1d(3, affine=True)", "randn(2, 3, 5)"),
    ("nn.InstanceNorm2d(3)", "randn(2, 3, 4, 5)"),
    ("nn.InstanceNorm2d(3, affine=True, track_running_stats=True)", "randn(2, 3, 4, 5)"),
    ("eval:nn.InstanceNorm2d(3, affine=True, track_running_stats=True)", "randn(2, 3, 4, 5)"),
    ("nn.InstanceNorm2d(3)", "randn(3, 4, 5)"),
    ("nn.InstanceNorm3d(2, affine=True)", "randn(2, 2, 3, 3, 2)"),
    ("nn.LayerNorm(6)", "randn(2, 3, 6)"),
    ("nn.LayerNorm((3, 4), eps=1e-3, bias=False)", "randn(2, 3, 4)"),
    ("nn.LayerNorm([4], elementwise_affine=False)", "randn(2, 3, 4)"),
    ("nn.RMSNorm(6)", "randn(2, 3, 6)"),
    ("nn.RMSNorm((3, 4), eps=1e-3, elementwise_affine=False)", "randn(2, 3, 4)"),
    ("nn.GroupNorm(2, 6)", "randn(2, 6, 3, 4)"),
    ("nn.GroupNorm(3, 6, affine=False)", "randn(2, 6, 5)"),
    ("nn.AvgPool1d(3)", "randn(2, 3, 9)"),
    ("nn.AvgPool1d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False)", "randn(2, 3, 10)"),
    ("nn.AvgPool2d(2)", "randn(2, 3, 6, 7)"),
    ("nn.AvgPool2d((3, 2), stride=(2, 1), padding=1, divisor_override=5)", "randn(2, 3, 6, 7)"),
    ("nn.AvgPool3d(2)", "randn(1, 2, 4, 4, 5)"),
    ("nn.MaxPool1d(2)", "randn(2, 3, 8)"),
    ("nn.MaxPool2d(3, stride=2, padding=1)", "randn(2, 3, 7, 8)"),
    ("nn.MaxPool2d((2, 3), dilation=2, ceil_mode=True)", "randn(2, 3, 9, 9)"),
    ("nn.MaxPool2d(2, return_indices=True)", "randn(1, 2, 4, 4)"),
    ("nn.MaxPool3d(2)", "randn(1, 2, 4, 4, 4)"),
    ("nn.AdaptiveAvgPool1d(3)", "randn(2, 3, 8)"),
    ("nn.AdaptiveAvgPool2d(1)", "randn(2, 3, 5, 6)"),
    ("nn.AdaptiveAvgPool2d((None, 3))", "randn(2, 3, 5, 6)"),
    ("nn.AdaptiveAvgPool3d((1, 2, 2))", "randn(2, 3, 3, 4, 5)"),
    ("nn.AdaptiveMaxPool1d(2)", "randn(2, 3, 8)"),
    ("nn.AdaptiveMaxPool2d((3, 2))", "randn(2, 3, 5, 6)"),
    ("nn.AdaptiveMaxPool2d(2, return_indices=True)", "randn(2, 3, 5, 6)"),
    ("nn.AdaptiveMaxPool3d(2)", "randn(1, 2, 4, 4, 5)"),
    ("nn.Upsample(scale_factor=2)", "randn(1, 2, 3, 4)"),
    ("nn.Upsample(size=(5, 6), mode='bilinear')", "randn(1, 2, 3, 4)"),
    ("nn.Upsample(scale_factor=(2, 1.5), mode='bilinear', align_corners=True)", "randn(1, 2, 3, 4)"),
    ("nn.Upsample(scale_factor=2, mode='trilinear')", "randn(1, 2, 2, 3, 2)"),
    ("nn.Upsample(size=7, mode='linear')", "randn(1, 2, 4)"),
    ("nn.Upsample(scale_factor=2, mode='bicubic')", "randn(1, 2, 4, 4)"),
    ("nn.UpsamplingNearest2d(scale_factor=2)", "randn(1, 2, 3, 3)"),
    ("nn.UpsamplingBilinear2d(size=(4, 5))", "randn(1, 2, 3, 3)"),
    ("nn.PixelShuffle(2)", "randn(1, 8, 2, 3)"),
    ("nn.PixelUnshuffle(2)", "randn(1, 2, 4, 6)"),
    ("nn.ChannelShuffle(2)", "randn(1, 6, 2, 2)"),
    ("nn.Unfold(2, stride=2)", "randn(1, 2, 4, 4)"),
    ("nn.Fold((4, 4), 2, stride=2)", "randn(1, 8, 4)"),
    ("nn.Dropout(0.3)", "randn(6, 7)"),
    ("eval:nn.Dropout(0.3)", "randn(6, 7)"),
    ("nn.Dropout1d(0.4)", "randn(3, 6, 2)"),
    ("nn.Dropout2d(0.4)", "randn(3, 6, 2, 2)"),
    ("nn.Dropout3d(0.4)", "randn(3, 6, 2, 2, 2)"),
    ("nn.ReLU()", "randn(3, 5)"),
    ("nn.ReLU(inplace=True)", "randn(3, 5)"),
    ("nn.ReLU6()", "randn(3, 5) * 5"),
    ("nn.SiLU()", "randn(3, 5)"),
    ("nn.SiLU(inplace=True)", "randn(3, 5)"),
    ("nn.Mish()", "randn(3, 5)"),
    ("nn.Hardswish()", "randn(3, 5) * 3"),
    ("nn.Hardsigmoid()", "randn(3, 5) * 3"),
    ("nn.Hardtanh(-0.5, 0.7)", "randn(3, 5)"),
    ("nn.SELU()", "randn(3, 5)"),
    ("nn.CELU(0.7)", "randn(3, 5)"),
    ("nn.ELU(0.7, inplace=True)", "randn(3, 5)"),
    ("nn.LeakyReLU(0.2)", "randn(3, 5)"),
    ("nn.PReLU(5)", "randn(3, 5)"),
    ("nn.GELU()", "randn(3, 5)"),
    ("nn.GELU('tanh')", "randn(3, 5)"),
    ("nn.Tanh()", "randn(3, 5)"),
    ("nn.Sigmoid()", "randn(3, 5)"),
    ("nn.LogSigmoid()", "randn(3, 5)"),
    ("nn.Softsign()", "randn(3, 5)"),
    ("nn.Tanhshrink()", "randn(3, 5)"),
    ("nn.Softplus(beta=2.0, threshold=3.0)", "randn(3, 5)"),
    ("nn.GLU()", "randn(3, 6)"),
    ("nn.GLU(dim=1)", "randn(2, 4, 3)"),
    ("nn.Softmax(dim=-1)", "randn(3, 5)"),
    ("nn.Softmin(dim=0)", "randn(3, 5)"),
    ("nn.LogSoftmax(dim=1)", "randn(3, 5, 2)"),
    ("nn.Softmax2d()", "randn(2, 3, 2, 2)"),
    ("nn.Flatten()", "randn(2, 3, 4)"),
    ("nn.Flatten(0, 1)", "randn(2, 3, 4)"),
    ("nn.Unflatten(1, (2, 3))", "randn(2, 6, 4)"),
    ("nn.ZeroPad1d(2)", "randn(2, 3, 4)"),
    ("nn.ZeroPad2d((1, 0, 2, 3))", "randn(1, 2, 3, 4)"),
    ("nn.ConstantPad2d(1, 2.5)", "randn(1, 2, 3, 4)"),
    ("nn.ReflectionPad2d((1, 2, 1, 0))", "randn(1, 2, 3, 4)"),
    ("nn.ReplicationPad3d(1)", "randn(1, 2, 2, 3, 4)"),
    ("nn.CircularPad1d(2)", "randn(1, 2, 4)"),
    ("nn.MultiheadAttention(8, 2)", "randn(4, 3, 8), randn(5, 3, 8), randn(5, 3, 8)"),
    (
        "nn.MultiheadAttention(8, 4, bias=False, batch_first=True)",
        "randn(3, 4, 8), randn(3, 5, 8), randn(3, 5, 8)",
        "need_weights=False",
    ),
    (
        "nn.MultiheadAttention(8, 2, kdim=6, vdim=5)",
        "randn(4, 3, 8), randn(5, 3, 6), randn(5, 3, 5)",
        "average_attn_weights=False",
    ),
    (
        "nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)",
        "randn(4, 3, 8), randn(5, 3, 8), randn(5, 3, 8)",
    ),
    (
        "nn.MultiheadAttention(8, 2, batch_first=True)",
        "randn(2, 4, 8), randn(2, 4, 8), randn(2, 4, 8)",
        (
            "attn_mask=torch.ones(4, 4).triu(1) > 0, key_padding_mask=torch.tensor([[False, False, False, True], "
            "[False, False, False, False]])"
        ),
    ),
    (
        "nn.MultiheadAttention(8, 2, batch_first=True)",
        "randn(2, 4, 8), randn(2, 4, 8), randn(2, 4, 8)",
        "attn_mask=torch.ones(4, 4).triu(1) > 0, is_causal=True, need_weights=False",
    ),
    (
        "nn.MultiheadAttention(8, 2)",
        "randn(4, 8), randn(5, 8), randn(5, 8)",
        "attn_mask=torch.arange(40.0).reshape(2, 4, 5) / 9",
    ),
    ("nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0)", "randn(4, 3, 8)"),
    (
        "nn.TransformerEncoderLayer(8, 2, 12, 0.0, 'gelu', batch_first=True, norm_first=True, bias=False)",
        "randn(3, 4, 8)",
    ),
    ("eval:nn.TransformerEncoderLayer(8, 2, 12)", "randn(4, 3, 8)", "src_key_padding_mask=torch.zeros(3, 4) > 0"),
    ("nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0), 2, nn.LayerNorm(8))", "randn(4, 3, 8)"),
    ("nn.MSELoss()", "randn(3, 4), randn(3, 4)"),
    ("nn.MSELoss(reduction='none')", "randn(3, 4), randn(3, 4)"),
    ("nn.L1Loss(reduction='sum')", "randn(3, 4), randn(3, 4)"),
    ("nn.SmoothL1Loss(beta=0.5)", "randn(3, 4), randn(3, 4)"),
    ("nn.HuberLoss(delta=0.7)", "randn(3, 4), randn(3, 4)"),
    ("nn.CrossEntropyLoss()", "randn(4, 5), randint(0, 5, (4,))"),
    (
        "nn.CrossEntropyLoss(torch.arange(1.0, 6.0), ignore_index=2, label_smoothing=0.1)",
        "randn(4, 5, 3), randint(0, 5, (4, 3))",
    ),
    ("nn.NLLLoss()", "randn(4, 5), randint(0, 5, (4,))"),
    ("nn.BCELoss()", "randn(3, 4).sigmoid(), randn(3, 4).sigmoid()"),
    ("nn.BCEWithLogitsLoss(pos_weight=torch.arange(1.0, 5.0))", "randn(3, 4), randn(3, 4).sigmoid()"),
    ("nn.KLDivLoss(reduction='batchmean')", "randn(3, 4).log_softmax(1), randn(3, 4).softmax(1)"),
    ("nn.HingeEmbeddingLoss()", "randn(3, 4), torch.tensor([[1.0, -1, 1, -1]]).repeat(3, 1)"),
    ("nn.MarginRankingLoss(0.3)", "randn(4), randn(4), torch.tensor([1.0, -1, 1, -1])"),
    ("nn.CosineEmbeddingLoss(0.1)", "randn(4, 3), randn(4, 3), torch.tensor([1.0, -1, 1, -1])"),
    ("nn.TripletMarginLoss()", "randn(4, 3), randn(4, 3), randn(4, 3)"),
    ("nn.SoftMarginLoss()", "randn(4), torch.tensor([1.0, -1, 1, -1])"),
    ("nn.CosineSimilarity()", "randn(4, 3), randn(4, 3)"),
    ("nn.CosineSimilarity(dim=0, eps=1e-4)", "randn(4, 3), randn(4, 3)"),
    ("nn.PairwiseDistance(p=1.0)", "randn(4, 3), randn(4, 3)"),
    (
        "nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), "
        "nn.Flatten(), nn.Linear(16, 3))",
        "randn(2, 3, 6, 6)",
    ),
    ("nn.PoissonNLLLoss()", "randn(3, 4), randint(0, 5, (3, 4)).float()"),
    (
        "nn.PoissonNLLLoss(log_input=False, full=True, reduction='sum')",
        "randn(3, 4).exp(), randint(1, 6, (3, 4)).float()",
    ),
    ("nn.GaussianNLLLoss()", "randn(3, 4), randn(3, 4), randn(3, 4).exp()"),
    ("nn.GaussianNLLLoss(full=True, eps=0.5, reduction='none')", "randn(3, 4), randn(3, 4), randn(3, 4).exp()"),
    ("nn.MultiLabelSoftMarginLoss()", "randn(3, 4), randint(0, 2, (3, 4))"),
    ("nn.MultiLabelSoftMarginLoss(torch.arange(1.0, 5.0), reduction='sum')", "randn(3, 4), randint(0, 2, (3, 4))"),
    ("nn.EmbeddingBag(9, 4)", "randint(0, 9, (2, 5))"),
    (
        "nn.EmbeddingBag(9, 4, mode='sum', padding_idx=-2, include_last_offset=True)",
        "randint(0, 9, (7,)), torch.tensor([0, 3, 3, 7]), randn(7)",
    ),
    ("nn.EmbeddingBag(9, 4, max_norm=1.0, norm_type=1.0, mode='max')", "randint(0, 9, (6,)), torch.tensor([0, 2])"),
    (
        "nn.CTCLoss()",
        "randn(7, 2, 4).log_softmax(2), randint(1, 4, (2, 3)), torch.tensor([7, 6]), torch.tensor([3, 2])",
    ),
    (
        "nn.CTCLoss(1, 'sum', zero_infinity=True)",
        "randn(4, 2, 3).log_softmax(2), torch.tensor([0, 2, 2, 2, 2]), torch.tensor([4, 4]), torch.tensor([2, 3])",
    ),
]


def thinned(t, kept):
    flat = t.detach().reshape(-1)
    if flat.numel() <= kept:
        return flat.clone()
    return flat[[i * (flat.numel() - 1) // (kept - 1) for i in range(kept)]].clone()


def listed(outputs):
    """Tensors of nested tuples, absent ones left out."""
    if isinstance(outputs, tuple):
        return [t for o in outputs for t in listed(o)]
    return [] if outputs is None else [outputs]


def run(number, kept, layer, inputs, kwargs=""):
    scope = {"nn": nn, "torch": torch, "randn": torch.randn, "randint": torch.randint}
    evaluate, expression = layer.startswith("eval:"), layer.removeprefix("eval:")
    torch.manual_seed(number)
    module = eval(expression, scope)
    numbers = {f"initial.{k}": thinned(v, kept) for k, v in module.state_dict().items()}
    text = repr(module)
    keys = {k: list(v.shape) for k, v in module.state_dict().items()}
    module.train(not evaluate)
    arguments = list(eval(f"({inputs},)", scope))
    # labels of -1 and 1 are constants
    trained = [a.is_floating_point() and not bool((a.abs() == 1).all()) for a in arguments]
    leaves = [a.detach().requires_grad_() if t else a for a, t in zip(arguments, trained)]
    # in-place layers must not write a leaf; `* 1` is the same for all
    outputs = listed(module(*[a * 1 if a.requires_grad else a for a in leaves], **eval(f"dict({kwargs})", scope)))
    total = 0
    for i, y in enumerate(outputs):
        numbers[f"output.{i}"] = thinned(y, kept)
        if y.requires_grad:
            total = total + (y * torch.cos(torch.arange(y.numel(), dtype=y.dtype) + i).reshape(y.shape)).sum()
    if torch.is_tensor(total):
        total.backward()
    for i, a in enumerate(leaves):
        if a.requires_grad and a.grad is not None:
            numbers[f"input.{i}"] = thinned(a.grad, kept)
    for name, p in module.named_parameters():
        if p.grad is not None:
            numbers[f"gradient.{name}"] = thinned(p.grad, kept)
    for name, b in module.named_buffers():
        numbers[f"buffer.{name}"] = thinned(b, kept)
    case = {"layer": layer, "inputs": inputs, "kwargs": kwargs, "repr": text, "keys": keys, "numbers": sorted(numbers)}
    return case, {f"{number}.{k}": v for k, v in numbers.items()}


def joined(entry, numbers):
    """All numbers of a case as one tensor, in the order of their names; the case gets their sizes."""
    parts = [numbers[f"{entry['number']}.{k}"].double() for k in entry["numbers"]]
    entry["sizes"] = [len(t) for t in parts]
    whole = torch.cat(parts)
    return whole if (whole.float().double() != whole).any() else whole.float()


def write(name, described, kept=KEPT, join=False):
    """Writes <name>.json.gz and <name>.safetensors.gz of a list of cases, numbers thinned to `kept` values a tensor;
    join: those of a case in one tensor, which takes less room."""
    torch.set_num_threads(1)
    cases, tensors = [], {}
    for number, case in enumerate(described):
        entry, numbers = run(number, kept, *case)
        cases.append(entry)
        assert all(math.isfinite(v) for t in numbers.values() for v in t.double().tolist()), case
        if join:
            entry["number"] = number
            tensors[str(number)] = joined(entry, numbers)
        else:
            tensors.update(numbers)
    text = json.dumps({"torch": torch.__version__, "kept": kept, "cases": cases}, indent=1) + "\n"
    (HERE / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    write_packed(HERE / f"{name}{LONG_SUFFIX}", save(tensors, metadata={"torch": torch.__version__}))


if __name__ == "__main__":
    write("nn", CASES)
