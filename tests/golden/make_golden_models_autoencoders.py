"""Golden files of autoencoders: what diffusers' compute.

    python tests/golden/make_golden_models_autoencoders.py      # a Python that has torch and diffusers

Writes models/autoencoders (.json.gz, .safetensors.gz) and keys.tar.xz: see model_fixture.py. What is drawn from a
distribution, its divergences, and tiles are for test_models_autoencoders.py; those are computed in float32,
since draws depend on the dtype.
"""

import torch
from diffusers import AutoencoderKL, AutoencoderTiny
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution
from hashed_weights import hashed
from model_fixture import ModelFixture, floats

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

PUBLISHED = {
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


def tensor(name, shape):
    return torch.from_numpy(hashed(name, tuple(shape)))


def kl(fixture, name, config, sizes):
    batch, height, width = sizes
    picture = (batch, config.get("in_channels", 3), height, width)
    fixture.case(f"{name}: forward", AutoencoderKL, config, {"sample": floats(*picture, name="picture")})
    fixture.case(f"{name}: encode", AutoencoderKL, config, {"x": floats(*picture, name="picture")}, method="encode")
    model = fixture.filled(AutoencoderKL, config)
    with torch.no_grad():
        posterior = model.encode(tensor("picture", picture)).latent_dist
        fixture.extra(f"{name}.sample", posterior.sample(torch.Generator().manual_seed(5)))
        fixture.extra(f"{name}.samples", posterior.sample([torch.Generator().manual_seed(i) for i in range(batch)]))
        fixture.extra(f"{name}.kl", posterior.kl())
        fixture.extra(
            f"{name}.kl_other", posterior.kl(DiagonalGaussianDistribution(tensor("other", posterior.parameters.shape)))
        )
        fixture.extra(f"{name}.nll", posterior.nll(tensor("near", posterior.mean.shape)))
        drawn = model(
            tensor("picture", picture), sample_posterior=True, generator=torch.Generator().manual_seed(3)
        ).sample
        fixture.extra(f"{name}.forward", drawn)
    parameters = posterior.parameters.clone().requires_grad_()
    posterior = DiagonalGaussianDistribution(parameters)
    (posterior.kl().mean() + (posterior.mode() ** 2).mean()).backward()
    fixture.extra(f"{name}.kl_gradient", parameters.grad)
    fixture.case(
        f"{name}: decode", AutoencoderKL, config, {"z": floats(*posterior.mean.shape, name="latents")}, method="decode"
    )


def main():
    fixture = ModelFixture("autoencoders")
    fixture.model(AutoencoderKL, PUBLISHED, methods=("forward", "encode", "decode"))
    config = {
        "use_midblock_gn": "TAEF2's pool branches, which diffusers' class has not",
        "block_out_channels": "diffusers writes it into the config itself: pipelines count its entries",
    }
    fixture.model(
        AutoencoderTiny, {"autoencoder_tiny": {}}, {"config": config}, methods=("forward", "encode", "decode")
    )
    for name, case in KL.items():
        kl(fixture, name, **case)
    for name, (sizes, side, overlap) in TILED.items():
        model = fixture.filled(AutoencoderKL, KL[name]["config"])
        model.enable_tiling()
        model.tile_sample_min_size, model.tile_latent_min_size, model.tile_overlap_factor = side, side // 2, overlap
        with torch.no_grad():
            posterior = model.encode(tensor("picture", (sizes[0], 3, *sizes[1:]))).latent_dist
            fixture.extra(f"{name}.tiled_moments", posterior.parameters)
            fixture.extra(f"{name}.tiled_decoded", model.decode(tensor("latents", posterior.mean.shape)).sample)
    fixture.extra("tiled", TILED)

    picture = floats(2, 3, 32, 48, name="picture")
    for name, config in TINY.items():
        fixture.case(f"tiny {name}: encode", AutoencoderTiny, config, {"x": picture}, method="encode")
        latents = fixture.document["cases"][-1]["outputs"]["latents"]
        fixture.case(
            f"tiny {name}: decode", AutoencoderTiny, config, {"x": floats(*latents, name="latents")}, method="decode"
        )
        fixture.case(
            f"tiny {name}: by way of 8 bits",
            AutoencoderTiny,
            config,
            {"sample": picture},
            gradients=False,
            tolerance=1e-4,
            dtype=torch.float32,
        )
    model = fixture.filled(AutoencoderTiny, TINY["plain"])
    model.enable_tiling()
    model.tile_sample_min_size, model.tile_latent_min_size, model.tile_overlap_factor = 64, 8, 0.25
    with torch.no_grad():
        fixture.extra("tiny.tiled_latents", model.encode(tensor("picture", (1, 3, 112, 136))).latents)
        fixture.extra("tiny.tiled_decoded", model.decode(tensor("latents", (1, 4, 14, 17))).sample)
    fixture.write()


if __name__ == "__main__":
    main()
