"""Golden files of losses with margins, of pooling other than by maxima and means and of the activations beside them, as
make_golden_nn.py writes them.

Usage: /path/to/python-with-torch tests/golden/make_golden_nn_margins.py
"""

from make_golden_nn import write

CASES = [
    ("nn.MultiMarginLoss()", "randn(4, 5), randint(0, 5, (4,))"),
    (
        "nn.MultiMarginLoss(p=2, margin=0.5, weight=torch.arange(1.0, 6.0), reduction='sum')",
        "randn(4, 5), randint(0, 5, (4,))",
    ),
    ("nn.MultiLabelMarginLoss()", "randn(3, 4), torch.arange(12).reshape(3, 4) % 5 - 1"),
    ("nn.MultiLabelMarginLoss(reduction='none')", "randn(4), torch.tensor([1, 3, -1, 0])"),
    ("nn.TripletMarginWithDistanceLoss()", "randn(4, 5), randn(4, 5), randn(4, 5)"),
    (
        "nn.TripletMarginWithDistanceLoss(distance_function=nn.CosineSimilarity(), margin=2.0, swap=True, "
        "reduction='none')",
        "randn(4, 5), randn(4, 5), randn(4, 5)",
    ),
    ("nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7])", "randn(6, 8), torch.arange(6) * 2"),
    ("nn.AdaptiveLogSoftmaxWithLoss(8, 12, [4], div_value=2.0, head_bias=True)", "randn(8), torch.arange(12)[9]"),
    ("nn.LPPool1d(2, 3, stride=2)", "randn(2, 3, 9)"),
    ("nn.LPPool2d(1.5, (3, 2), ceil_mode=True)", "randn(2, 3, 7, 5).abs()"),
    ("nn.LPPool3d(2, 2)", "randn(1, 2, 4, 4, 4)"),
    ("nn.MaxUnpool1d(2)", "randn(1, 2, 3), torch.arange(6).reshape(1, 2, 3) * 5 % 6"),
    ("nn.MaxUnpool2d(2, stride=2)", "randn(1, 1, 2, 2), torch.tensor([[[[0, 3], [9, 12]]]])", "output_size=(5, 5)"),
    ("nn.MaxUnpool3d((2, 2, 1))", "randn(1, 1, 1, 2, 2), torch.tensor([[[[[0, 3], [5, 14]]]]])"),
    (
        "nn.FractionalMaxPool2d(2, output_size=(3, 4), _random_samples=torch.arange(1.0, 9.0).reshape(2, 2, 2) / 10)",
        "randn(2, 2, 7, 8)",
    ),
    (
        "nn.FractionalMaxPool3d(2, output_ratio=0.5, return_indices=True, _random_samples=torch.full((1, 2, 3), 0.3))",
        "randn(1, 2, 5, 6, 7)",
    ),
    ("nn.LocalResponseNorm(3, alpha=0.5)", "randn(2, 5, 3)"),
    ("nn.Hardshrink()", "randn(4, 5)"),
    ("nn.Hardshrink(1)", "randn(4, 5)"),
    ("nn.Softshrink(0.3)", "randn(4, 5)"),
    ("nn.Threshold(0.1, 20)", "randn(4, 5)"),
    ("nn.Threshold(0.1, 20.0, inplace=True)", "randn(4, 5)"),
    ("eval:nn.RReLU()", "randn(4, 5)"),
    ("eval:nn.RReLU(0.1, 0.3, inplace=True)", "randn(4, 5)"),
    ("eval:nn.FeatureAlphaDropout(0.3)", "randn(3, 4, 5)"),
]

if __name__ == "__main__":
    write("nn_margins", CASES, kept=5, join=True)
