"""Golden files of LTX-2's autoencoder of sound and its vocoders, from diffusers: tiny configs, and the keys of 2.0 and
2.3.

    python tests/golden/make_golden_models_ltx2_audio.py      # a Python that has torch, diffusers and transformers
"""

from diffusers import AutoencoderKLLTX2Audio
from diffusers.pipelines.ltx2.vocoder import DownSample1d, LTX2Vocoder, LTX2VocoderWithBWE
from model_fixture import ModelFixture, floats

VAE = {
    "base_channels": 8,
    "ch_mult": [1, 2, 4],
    "num_res_blocks": 1,
    "latent_channels": 2,
    "mel_bins": 8,
}
WIDTH = {**VAE, "causality_axis": "width", "output_channels": 1, "in_channels": 3, "ch_mult": [2, 1]}
COMPATIBLE = {**WIDTH, "causality_axis": "width-compatibility", "mel_bins": None}
GROUP = {
    **VAE,
    "base_channels": 32,
    "ch_mult": [1, 2],
    "norm_type": "group",
    "causality_axis": "none",
    "mid_block_add_attention": True,
    "attn_resolutions": [16],
    "resolution": 32,
}

VOCODER = {
    "in_channels": 8,
    "hidden_channels": 16,
    "upsample_kernel_sizes": [7, 4],
    "upsample_factors": [3, 2],
    "resnet_kernel_sizes": [3, 5],
    "resnet_dilations": [[1, 3], [1, 2]],
}
FILTERED = {**VOCODER, "act_fn": "snakebeta", "antialias": True, "final_act_fn": None, "final_bias": False}
# Few of these activations: where the filters' numbers are any, sines of large numbers make roundings large.
ONE = {
    **VOCODER,
    "upsample_kernel_sizes": [7],
    "upsample_factors": [3],
    "resnet_dilations": [[1], [2]],
    "act_fn": "snakebeta",
    "antialias": True,
}
OTHER_FILTER = {**ONE, "antialias_ratio": 3, "antialias_kernel_size": 15, "final_act_fn": "clamp"}
SNAKE = {**VOCODER, "act_fn": "snake", "out_channels": 1, "resnet_dilations": [[1], [2]]}
BWE = {
    **ONE,
    "bwe_in_channels": 6,
    "bwe_hidden_channels": 8,
    "bwe_upsample_kernel_sizes": [8, 5],
    "bwe_upsample_factors": [4, 3],
    "bwe_resnet_kernel_sizes": [3],
    "bwe_resnet_dilations": [[1]],
    "bwe_act_fn": "leaky_relu",
    "bwe_antialias": False,
    "bwe_final_act_fn": "tanh",
    "filter_length": 12,
    "window_length": 12,
    "hop_length": 4,
    "num_mel_channels": 3,
}


def main():
    fixture = ModelFixture("ltx2_audio")
    vae = AutoencoderKLLTX2Audio
    fixture.model(vae, {"ltx2_audio_vae": {}}, methods=("forward", "encode", "decode"))
    fixture.case("there and back", vae, VAE, {"sample": floats(1, 2, 9, 8, name="mel")})
    fixture.case("encode", vae, VAE, {"x": floats(2, 2, 6, 8, name="mel")}, method="encode")
    fixture.case("decode", vae, VAE, {"z": floats(2, 2, 3, 2, name="latents")}, method="decode")
    fixture.case("along the bins", vae, WIDTH, {"sample": floats(1, 3, 5, 8, name="mel")})
    fixture.case("along the bins, compatible", vae, COMPATIBLE, {"sample": floats(1, 3, 6, 7, name="mel")})
    grouped = {"x": floats(1, 2, 6, 4, name="mel")}
    fixture.case("groups and attention, encoded", vae, GROUP, grouped, method="encode")
    grouped = {"z": floats(1, 2, 3, 2, name="latents")}
    fixture.case("groups and attention, decoded", vae, GROUP, grouped, method="decode")

    fixture.model(LTX2Vocoder, {"ltx2_vocoder": {}})
    mel = {"hidden_states": floats(2, 2, 5, 4, name="mel")}
    fixture.case("leaky", LTX2Vocoder, VOCODER, mel)
    last = {"hidden_states": floats(1, 2, 4, 5, name="mel"), "time_last": True}
    fixture.case("filtered", LTX2Vocoder, FILTERED, last)
    fixture.case("another filter", LTX2Vocoder, OTHER_FILTER, mel)
    fixture.case("snake", LTX2Vocoder, SNAKE, mel)

    for ratio, taps in ((2, 12), (3, 15)):  # of models that no file has filled yet
        fixture.extra(f"filter {ratio} {taps}", DownSample1d(ratio, taps).filter)

    fixture.model(LTX2VocoderWithBWE, {"ltx2_3_vocoder": {}})
    fixture.case("extended", LTX2VocoderWithBWE, BWE, {"mel_spec": floats(2, 2, 5, 4, name="mel")})
    fixture.write()


if __name__ == "__main__":
    main()
