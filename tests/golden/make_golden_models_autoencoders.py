"""Writes tests/golden/models/autoencoders.safetensors and .json, and tests/golden/keys/: what diffusers' autoencoders compute.

    python tests/golden/make_golden_models_autoencoders.py      # a Python that has torch and diffusers

Weights and inputs follow hashed_weights.py. Of a gradient the file holds the norm and the values at a few places.
tests/python/models/test_models_autoencoders.py repeats the calls.
"""

import json
import pathlib

import diffusers
import torch
from diffusers import AutoencoderKL, AutoencoderTiny
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from hashed_weights import hashed, hashed_weight, places
from safetensors.torch import save_file

GOLDEN = pathlib.Path(__file__).parent
torch.set_num_threads(2)

KL = {
    "plain": {
        "config": dict(
            block_out_channels=(16, 32),
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            norm_num_groups=8,
            sample_size=16,
        ),
        "sizes": (2, 24, 16),
    },
    "no_quant": {
        "config": dict(
            block_out_channels=(8, 16, 16),
            down_block_types=("DownEncoderBlock2D",) * 3,
            up_block_types=("UpDecoderBlock2D",) * 3,
            layers_per_block=2,
            norm_num_groups=4,
            latent_channels=6,
            in_channels=4,
            out_channels=2,
            sample_size=[32, 16],
            shift_factor=0.1,
            scaling_factor=0.36,
            use_quant_conv=False,
            use_post_quant_conv=False,
            mid_block_add_attention=False,
            force_upcast=False,
            act_fn="swish",
        ),
        "sizes": (1, 27, 37),  # sizes that halving rounds
    },
    "attention": {
        "config": dict(
            block_out_channels=(8, 16),
            down_block_types=("DownEncoderBlock2D", "AttnDownEncoderBlock2D"),
            up_block_types=("AttnUpDecoderBlock2D", "UpDecoderBlock2D"),
            norm_num_groups=2,
            latents_mean=(0.1, 0.2, 0.3, 0.4),
            latents_std=(1.0, 2.0, 3.0, 4.0),
            sample_size=16,
        ),
        "sizes": (3, 12, 20),
    },
}
TILED = {  # config, size of the picture, size of tiles (pixels), overlap
    "plain": ((1, 40, 28), 16, 0.25),
    "attention": ((2, 24, 37), 12, 0.4),
}
TINY = {
    "plain": dict(encoder_block_out_channels=(16, 16, 16, 16), decoder_block_out_channels=(16, 16, 16, 16)),
    "other": dict(
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        num_encoder_blocks=(1, 2),
        num_decoder_blocks=(2, 1),
        latent_channels=6,
        act_fn="gelu",
        latent_magnitude=2,
        latent_shift=0.25,
        scaling_factor=0.5,
        shift_factor=0.1,
    ),
}

out, shapes = {}, {}


def with_hashed_weights(model):
    model.load_state_dict({k: torch.from_numpy(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model


def tensor(name, shape):
    return torch.from_numpy(hashed(name, shape))


def gradients(model, label):
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        flat = p.grad.detach().flatten()
        picked = flat[torch.from_numpy(places(name, p.numel()))]
        out[f"{label}.{name}"] = torch.cat([flat.double().norm().float()[None], flat.abs().max()[None], picked])
    model.zero_grad()


def put(name, t, limit=1024):
    """The shape is in the JSON; of a large tensor the file holds the values at `limit` places."""
    shapes[name] = list(t.shape)
    flat = t.detach().float().flatten()
    out[name] = flat.clone() if t.numel() <= limit else flat[torch.from_numpy(places(name, t.numel(), limit))]


for name, case in KL.items():
    model = with_hashed_weights(AutoencoderKL(**case["config"]))
    batch, height, width = case["sizes"]
    x = tensor("picture", (batch, model.config.in_channels, height, width))
    posterior = model.encode(x).latent_dist
    put(f"{name}.moments", posterior.parameters)
    put(f"{name}.sample", posterior.sample(torch.Generator().manual_seed(5)))
    put(f"{name}.samples", posterior.sample([torch.Generator().manual_seed(i) for i in range(batch)]))
    put(f"{name}.kl", posterior.kl())
    other = DiagonalGaussianDistribution(tensor("other", posterior.parameters.shape))
    put(f"{name}.kl_other", posterior.kl(other))
    put(f"{name}.nll", posterior.nll(tensor("near", posterior.mean.shape)))
    (posterior.kl().mean() + (posterior.mode() ** 2).mean()).backward()
    gradients(model, f"{name}.encode_gradient")
    z = tensor("latents", tuple(posterior.mean.shape)).requires_grad_()
    decoded = model.decode(z).sample
    put(f"{name}.decoded", decoded)
    (decoded * tensor("weights of pixels", tuple(decoded.shape))).sum().backward()
    put(f"{name}.latents_gradient", z.grad)
    gradients(model, f"{name}.decode_gradient")
    put(f"{name}.forward", model(x, sample_posterior=True, generator=torch.Generator().manual_seed(3)).sample)

for name, (sizes, side, overlap) in TILED.items():
    model = with_hashed_weights(AutoencoderKL(**KL[name]["config"]))
    model.enable_tiling()
    model.tile_sample_min_size, model.tile_latent_min_size, model.tile_overlap_factor = side, side // 2, overlap
    with torch.no_grad():
        x = tensor("picture", (sizes[0], 3, *sizes[1:]))
        posterior = model.encode(x).latent_dist
        put(f"{name}.tiled_moments", posterior.parameters)
        put(f"{name}.tiled_decoded", model.decode(tensor("latents", tuple(posterior.mean.shape))).sample)

for name, config in TINY.items():
    model = with_hashed_weights(AutoencoderTiny(**config))
    x = tensor("picture", (2, 3, 32, 48))
    latents = model.encode(x).latents
    put(f"tiny.{name}.latents", latents)
    put(f"tiny.{name}.forward", model(x).sample)
    (latents**2).mean().backward()
    gradients(model, f"tiny.{name}.encode_gradient")
    decoded = model.decode(tensor("latents", tuple(latents.shape))).sample
    put(f"tiny.{name}.decoded", decoded)
    (decoded * tensor("weights of pixels", tuple(decoded.shape))).sum().backward()
    gradients(model, f"tiny.{name}.decode_gradient")

model = with_hashed_weights(AutoencoderTiny(**TINY["plain"]))
model.enable_tiling()
model.tile_sample_min_size, model.tile_latent_min_size, model.tile_overlap_factor = 64, 8, 0.25
with torch.no_grad():
    put("tiny.plain.tiled_latents", model.encode(tensor("picture", (1, 3, 112, 136))).latents)
    put("tiny.plain.tiled_decoded", model.decode(tensor("latents", (1, 4, 14, 17))).sample)

(GOLDEN / "models").mkdir(exist_ok=True)
made_by = {"torch": torch.__version__, "diffusers": diffusers.__version__}
save_file(out, GOLDEN / "models" / "autoencoders.safetensors", metadata=made_by)
cases = {"made_by": made_by, "kl": KL, "tiled": TILED, "tiny": TINY, "shapes": shapes}
(GOLDEN / "models" / "autoencoders.json").write_text(json.dumps(cases, indent=1) + "\n")

FULL = {  # the configs of the published models
    "sd_vae": dict(
        block_out_channels=(128, 256, 512, 512),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=2,
        sample_size=512,
    ),
    "sdxl_vae": dict(
        block_out_channels=(128, 256, 512, 512),
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        layers_per_block=2,
        sample_size=1024,
        scaling_factor=0.13025,
        force_upcast=True,
    ),
}
(GOLDEN / "keys").mkdir(exist_ok=True)
for name, config in FULL.items():
    with torch.device("meta"):
        state = AutoencoderKL(**config).state_dict()
    lines = [f"{key} {list(t.shape)}" for key, t in sorted(state.items())]
    head = [f"# diffusers {diffusers.__version__}: AutoencoderKL", f"# {json.dumps(config)}"]
    (GOLDEN / "keys" / f"{name}.txt").write_text("\n".join(head + lines) + "\n")
with torch.device("meta"):
    state = AutoencoderTiny().state_dict()
head = [f"# diffusers {diffusers.__version__}: AutoencoderTiny", "# {}"]
(GOLDEN / "keys" / "autoencoder_tiny.txt").write_text("\n".join(head + [f"{k} {list(t.shape)}" for k, t in sorted(state.items())]) + "\n")
print(sum(t.numel() for t in out.values()) * 4, "bytes")
