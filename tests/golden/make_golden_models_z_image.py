"""Golden files of Z-Image's transformer, from diffusers: tiny configs, and the keys of the published one.

python tests/golden/make_golden_models_z_image.py      # a Python that has torch, diffusers and transformers
"""

from diffusers import ZImageTransformer2DModel
from model_fixture import ModelFixture, floats

TINY = {"in_channels": 4, "dim": 16, "n_layers": 1, "n_refiner_layers": 1, "n_heads": 2, "n_kv_heads": 2,
        "cap_feat_dim": 10, "axes_dims": [4, 2, 2], "axes_lens": [96, 8, 16]}  # fmt: skip
SIZES = {**TINY, "all_patch_size": [2, 1], "all_f_patch_size": [1, 2]}
OTHER = {**TINY, "n_layers": 2, "qk_norm": False, "norm_eps": 1e-3, "rope_theta": 10.0, "t_scale": 500.0}


def samples(*shapes):
    return {"list": [floats(*shape) for shape in shapes]}


PICTURE = (4, 1, 4, 4)

fixture = ModelFixture("z_image")
ours = "of a batch that is one tensor: 1 for a caption's tokens, 0 behind them"
fixture.model(
    ZImageTransformer2DModel,
    full_size={"z_image_transformer": {}},
    differences={"forward": {"cap_mask": ours}, "config": {}},
)
# Captions of one and of two multiples of 32 tokens, and patches of less than one.
fixture.case(
    "two_captions",
    ZImageTransformer2DModel,
    TINY,
    {"x": samples(PICTURE, PICTURE), "t": [0.25, 0.875], "cap_feats": samples((3, 10), (35, 10))},
    tolerance=1e-4,  # the last bit of a frequency, 875 times
)
fixture.case(
    "one_length",
    ZImageTransformer2DModel,
    OTHER,
    {"x": samples(PICTURE, PICTURE), "t": [0.5], "cap_feats": samples((7, 10), (7, 10))},
    gradients=False,
)
fixture.case(
    "two_sizes",
    ZImageTransformer2DModel,
    TINY,
    {"x": samples((4, 1, 4, 6), PICTURE), "t": [0.015625, 0.03125], "cap_feats": samples((3, 10), (9, 10))},
    gradients=False,
)
# Exactly as many patches and tokens as there are places.
fixture.case(
    "frames",
    ZImageTransformer2DModel,
    SIZES,
    {"x": samples((4, 2, 4, 8)), "t": [0.03125], "cap_feats": samples((32, 10)), "patch_size": 1, "f_patch_size": 2},
    gradients=False,
)
fixture.write()
