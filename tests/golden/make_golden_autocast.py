"""Writes tests/golden/autocast.json.xz: what torch's CPU autocast to bfloat16 does to each op.

    python tests/golden/make_golden_autocast.py      # a Python that has torch

For every call and three kinds of inputs (all float32, all bfloat16, the first bfloat16 and the rest float32): the
dtypes of the outputs and of the gradients, and the first values; or that torch refuses.
tests/python/autograd/test_autocast.py reads the file.
"""

import json
import pathlib
import warnings

import torch
import torch.nn.functional as F
from packed import write_json

warnings.simplefilter("ignore")

# name: (expression, shapes of a, b, c). The same expressions run with scaffolding as torch.
CALLS = {
    "matmul": ("torch.matmul(a, b)", [3, 4], [4, 5]),
    "mm": ("torch.mm(a, b)", [3, 4], [4, 5]),
    "bmm": ("torch.bmm(a, b)", [2, 3, 4], [2, 4, 5]),
    "mv": ("torch.mv(a, b)", [3, 4], [4]),
    "addmm": ("torch.addmm(a, b, c)", [3, 5], [3, 4], [4, 5]),
    "baddbmm": ("torch.baddbmm(a, b, c)", [2, 3, 5], [2, 3, 4], [2, 4, 5]),
    "linear": ("F.linear(a, b, c)", [3, 4], [5, 4], [5]),
    "einsum": ("torch.einsum('ij,jk->ik', a, b)", [3, 4], [4, 5]),
    "operator": ("a @ b", [3, 4], [4, 5]),
    "conv1d": ("F.conv1d(a, b, c)", [1, 2, 6], [3, 2, 3], [3]),
    "conv2d": ("F.conv2d(a, b, c)", [1, 2, 5, 5], [3, 2, 3, 3], [3]),
    "conv3d": ("F.conv3d(a, b, c)", [1, 2, 4, 4, 4], [3, 2, 3, 3, 3], [3]),
    "conv_transpose1d": ("F.conv_transpose1d(a, b)", [1, 2, 6], [2, 3, 3]),
    "conv_transpose2d": ("F.conv_transpose2d(a, b)", [1, 2, 4, 4], [2, 3, 3, 3]),
    "conv_transpose3d": ("F.conv_transpose3d(a, b)", [1, 2, 3, 3, 3], [2, 3, 2, 2, 2]),
    "scaled_dot_product_attention": (
        "F.scaled_dot_product_attention(a, b, c)",
        [1, 2, 3, 8],
        [1, 2, 4, 8],
        [1, 2, 4, 8],
    ),
    "cat": ("torch.cat([a, b])", [2, 3], [1, 3]),
    "stack": ("torch.stack([a, b])", [2, 3], [2, 3]),
    "mse_loss": ("F.mse_loss(a, b)", [3, 4], [3, 4]),
    "l1_loss": ("F.l1_loss(a, b)", [3, 4], [3, 4]),
    "smooth_l1_loss": ("F.smooth_l1_loss(a, b)", [3, 4], [3, 4]),
    "huber_loss": ("F.huber_loss(a, b)", [3, 4], [3, 4]),
    "kl_div": ("F.kl_div(a, b.abs(), reduction='batchmean')", [3, 4], [3, 4]),
    "cross_entropy": ("F.cross_entropy(a, torch.tensor([1, 0, 3]))", [3, 4]),
    "nll_loss": ("F.nll_loss(a, torch.tensor([1, 0, 3]))", [3, 4]),
    "binary_cross_entropy_with_logits": ("F.binary_cross_entropy_with_logits(a, b.abs().clamp(max=1))", [3, 4], [3, 4]),
    "binary_cross_entropy": ("F.binary_cross_entropy(torch.sigmoid(a), torch.sigmoid(b.to(a.dtype)))", [3, 4], [3, 4]),
    "soft_margin_loss": ("F.soft_margin_loss(a, torch.tensor([1.0, -1.0, 1.0, -1.0]).expand(3, 4))", [3, 4]),
    "hinge_embedding_loss": ("F.hinge_embedding_loss(a, torch.tensor([1.0, -1.0, 1.0, -1.0]))", [3, 4]),
    "margin_ranking_loss": ("F.margin_ranking_loss(a, b, torch.tensor([1.0, -1.0, 1.0]))", [3], [3]),
    "cosine_embedding_loss": ("F.cosine_embedding_loss(a, b, torch.tensor([1.0, -1.0, 1.0]))", [3, 4], [3, 4]),
    "triplet_margin_loss": ("F.triplet_margin_loss(a, b, c)", [3, 4], [3, 4], [3, 4]),
    "poisson_nll_loss": ("F.poisson_nll_loss(a, b.abs())", [3, 4], [3, 4]),
    "cosine_similarity": ("F.cosine_similarity(a, b)", [3, 4], [3, 4]),
    "interpolate_nearest": ("F.interpolate(a, scale_factor=2)", [1, 2, 3, 3]),
    "interpolate_bilinear": ("F.interpolate(a, size=(5, 4), mode='bilinear')", [1, 2, 3, 3]),
    "interpolate_bicubic": ("F.interpolate(a, size=(5, 4), mode='bicubic')", [1, 2, 3, 3]),
    "prod": ("torch.prod(a)", [6]),
    "prod_dim": ("torch.prod(a, 0)", [3, 4]),
    "avg_pool2d": ("F.avg_pool2d(a, 2)", [1, 2, 4, 4]),
    "avg_pool3d": ("F.avg_pool3d(a, 2)", [1, 2, 4, 4, 4]),
    "adaptive_avg_pool2d": ("F.adaptive_avg_pool2d(a, 2)", [1, 2, 4, 4]),
    "adaptive_avg_pool3d": ("F.adaptive_avg_pool3d(a, 2)", [1, 2, 4, 4, 4]),
    "max_pool2d": ("F.max_pool2d(a, 2)", [1, 2, 4, 4]),
    "max_pool3d": ("F.max_pool3d(a, 2)", [1, 2, 4, 4, 4]),
    "adaptive_max_pool3d": ("F.adaptive_max_pool3d(a, 2)", [1, 2, 4, 4, 4]),
    "softmax": ("torch.softmax(a, -1)", [3, 4]),
    "log_softmax": ("F.log_softmax(a, -1)", [3, 4]),
    "layer_norm": ("F.layer_norm(a, (4,), b, c)", [3, 4], [4], [4]),
    "group_norm": ("F.group_norm(a, 2, b, c)", [2, 4, 3], [4], [4]),
    "rms_norm": ("F.rms_norm(a, (4,), b)", [3, 4], [4]),
    "exp": ("torch.exp(a)", [5]),
    "log": ("torch.log(a.abs())", [5]),
    "pow": ("torch.pow(a, 2)", [5]),
    "sum": ("torch.sum(a)", [3, 4]),
    "mean": ("torch.mean(a)", [3, 4]),
    "cumsum": ("torch.cumsum(a, 0)", [5]),
    "norm": ("torch.norm(a)", [5]),
    "logsumexp": ("torch.logsumexp(a, 0)", [5]),
    "softplus": ("F.softplus(a)", [5]),
    "gelu": ("F.gelu(a)", [5]),
    "silu": ("F.silu(a)", [5]),
    "add": ("a + b", [5], [5]),
    "mul": ("a * b", [5], [5]),
    "index_copy": ("torch.index_copy(a, 0, torch.tensor([1, 0]), b)", [3, 4], [2, 4]),
    "scatter_add": ("torch.scatter_add(a, 0, torch.tensor([1, 0]), b)", [3], [2]),
    "dot": ("torch.dot(a, b)", [5], [5]),
    "atan2": ("torch.atan2(a, b)", [5], [5]),
    "mixed_layers": ("F.softmax(F.linear(F.silu(F.linear(a, b)), b), -1).sum()", [3, 4], [4, 4]),
}
KINDS = {
    "float32": (torch.float32,) * 3,
    "bfloat16": (torch.bfloat16,) * 3,
    "mixed": (torch.bfloat16, torch.float32, torch.float32),
    "float64": (torch.float64,) * 3,
}


def inputs(name, shapes, dtypes):
    generator = torch.Generator().manual_seed(len(name) + 31 * sum(map(ord, name)))
    return [
        (torch.randn(shape, generator=generator, dtype=torch.float64) * 1e4).round().div(1e4).to(t)
        for shape, t in zip(shapes, dtypes)
    ]


def short(dtype):
    return str(dtype)[6:]


def run(name, expression, shapes, dtypes):
    values = inputs(name, shapes, dtypes)
    leaves = [v.clone().requires_grad_() for v in values]
    scope = {"torch": torch, "F": F, **dict(zip("abc", leaves))}
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = eval(expression, scope)
        out.float().sum().backward()
    except Exception as error:  # what it says is torch's business
        return {"error": type(error).__name__}
    return {
        "dtype": short(out.dtype),
        "values": out.detach().double().flatten()[:12].tolist(),
        "grad_dtypes": [short(x.grad.dtype) for x in leaves],
    }


def main():
    out = {"torch": torch.__version__, "calls": {}}
    for name, (expression, *shapes) in CALLS.items():
        out["calls"][name] = {
            "expression": expression,
            "shapes": shapes,
            "inputs": [v.flatten().tolist() for v in inputs(name, shapes, (torch.float64,) * 3)],
            "runs": {kind: run(name, expression, shapes, dtypes) for kind, dtypes in KINDS.items()},
        }
    path = pathlib.Path(__file__).parent / "autocast.json.xz"
    text = json.dumps(out, separators=(",", ":")) + "\n"
    write_json(path, text)
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
