"""Golden files of layers whose weights are computed from others, as make_golden_nn.py writes them.

Usage: /path/to/python-with-torch tests/golden/make_golden_nn_parametrized.py
"""

from make_golden_nn import write

P = "nn.utils.parametrizations."
CASES = [
    ("nn.utils.weight_norm(nn.Linear(4, 3))", "randn(2, 4)"),
    ("nn.utils.weight_norm(nn.Linear(4, 3, bias=False), dim=None)", "randn(2, 4)"),
    ("nn.utils.weight_norm(nn.Conv2d(2, 3, 3), dim=1)", "randn(1, 2, 5, 5)"),
    ("nn.utils.weight_norm(nn.LSTM(3, 4), 'weight_hh_l0')", "randn(5, 2, 3)"),
    ("nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)), nn.ReLU())", "randn(2, 4)"),
    ("nn.utils.spectral_norm(nn.Linear(4, 3))", "randn(2, 4)"),
    ("nn.utils.spectral_norm(nn.Conv2d(2, 3, 3), n_power_iterations=2)", "randn(1, 2, 5, 5)"),
    ("nn.utils.spectral_norm(nn.ConvTranspose2d(2, 3, 3))", "randn(1, 2, 4, 4)"),
    ("eval:nn.utils.spectral_norm(nn.Linear(4, 3))", "randn(2, 4)"),
    (f"{P}weight_norm(nn.Linear(4, 3))", "randn(2, 4)"),
    (f"{P}weight_norm(nn.Conv2d(2, 3, 3), dim=None)", "randn(1, 2, 5, 5)"),
    (f"{P}spectral_norm(nn.Linear(4, 3))", "randn(2, 4)"),
    (f"{P}spectral_norm(nn.Conv2d(2, 3, 3), n_power_iterations=3, eps=1e-6)", "randn(1, 2, 5, 5)"),
    (f"{P}spectral_norm(nn.ConvTranspose1d(2, 3, 3))", "randn(1, 2, 4)"),
    (f"eval:{P}spectral_norm(nn.Linear(4, 3), 'bias')", "randn(2, 4)"),
    (f"{P}orthogonal(nn.Linear(4, 4))", "randn(2, 4)"),
    (f"{P}orthogonal(nn.Linear(3, 5))", "randn(2, 3)"),
    (f"{P}orthogonal(nn.Linear(5, 3), orthogonal_map='cayley')", "randn(2, 5)"),
    (f"{P}orthogonal(nn.Linear(5, 3), orthogonal_map='matrix_exp')", "randn(2, 5)"),
    (f"{P}orthogonal(nn.Linear(5, 3), use_trivialization=False)", "randn(2, 5)"),
    (f"{P}orthogonal(nn.Linear(4, 4), orthogonal_map='cayley', use_trivialization=False)", "randn(2, 4)"),
    (f"{P}spectral_norm({P}weight_norm(nn.Linear(4, 3)))", "randn(2, 4)"),
    ("nn.utils.fuse_conv_bn_eval(nn.Conv2d(2, 3, 3).eval(), nn.BatchNorm2d(3).eval())", "randn(1, 2, 5, 5)"),
    (
        "nn.utils.fuse_conv_bn_eval(nn.ConvTranspose2d(2, 3, 3, bias=False).eval(), nn.BatchNorm2d(3).eval(), "
        "transpose=True)",
        "randn(1, 2, 5, 5)",
    ),
    ("nn.utils.fuse_linear_bn_eval(nn.Linear(4, 3).eval(), nn.BatchNorm1d(3).eval())", "randn(2, 4)"),
]

if __name__ == "__main__":
    write("nn_parametrized", CASES, kept=4, join=True)
