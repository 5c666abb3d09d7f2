"""LTX-2's autoencoder of sound and vocoders, beside what every model is tested for (test_every_model.py)."""

import numpy
import pytest
from hashed_weights import hashed, hashed_weight
from model_cases import FOLDER
from packed import LONG_SUFFIX, unpacked

import scaffolding as sf
from scaffolding.models import AutoencoderKLLTX2Audio, LTX2Vocoder, LTX2VocoderWithBWE

VAE = {"base_channels": 8, "num_res_blocks": 1, "latent_channels": 2, "mel_bins": 8}
VOCODER = {
    "in_channels": 8,
    "hidden_channels": 16,
    "upsample_kernel_sizes": [7, 4],
    "upsample_factors": [3, 2],
    "resnet_kernel_sizes": [3, 5],
    "resnet_dilations": [[1, 3], [1, 2]],
}
FILTERED = {**VOCODER, "act_fn": "snakebeta", "antialias": True, "final_act_fn": None}
BWE = {
    **VOCODER,
    **{f"bwe_{k}": v for k, v in VOCODER.items()},
    "bwe_upsample_kernel_sizes": [8, 5],
    "bwe_upsample_factors": [4, 3],
    "filter_length": 12,
    "window_length": 12,
    "hop_length": 4,
    "num_mel_channels": 4,
}


def filled(cls, config):
    model = cls(**config).eval()
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model


def mel(*shape):
    return sf.tensor(hashed("mel", shape))


def near(got, want, tolerance=1e-5):
    assert (got - want).abs().max().item() <= tolerance * want.abs().max().item()


@pytest.mark.parametrize("config", [VOCODER, FILTERED])
def test_a_hook_on_each_layer_sees_its_calls(config):
    model, x, seen = filled(LTX2Vocoder, config), mel(1, 2, 5, 4), []
    with sf.no_grad():
        plain = model(x)
        leaves = [name for name, m in model.named_modules() if name and not list(m.children())]
        for name in leaves:
            model.get_submodule(name).register_forward_hook(lambda m, args, y, name=name: seen.append(name))
        near(model(x), plain)
    assert sorted(seen) == sorted(leaves)


def test_an_untouched_model_has_diffusers_filters():
    golden = {
        k: t.numpy() for k, t in sf.safetensors.load(unpacked(FOLDER / "models" / f"ltx2_audio{LONG_SUFFIX}")).items()
    }
    for ratio, taps in ((2, 12), (3, 15)):
        model = LTX2Vocoder(**{**FILTERED, "antialias_ratio": ratio, "antialias_kernel_size": taps})
        for name in ("upsample", "downsample"):
            numpy.testing.assert_allclose(
                model.state_dict()[f"act_out.{name}.filter"].numpy().ravel(),
                golden[f"filter {ratio} {taps}"],
                atol=2e-6,
            )


def test_one_spectrogram_at_a_time():
    model = filled(AutoencoderKLLTX2Audio, VAE)
    with sf.no_grad():
        x, z = mel(3, 2, 9, 8), mel(3, 2, 3, 2)
        whole, sound = model.encode(x).latent_dist.mean, model.decode(z).sample
        model.enable_slicing()
        near(model.encode(x).latent_dist.mean, whole)
        near(model.decode(z).sample, sound)
        model.disable_slicing()
        assert not model.use_slicing
    assert sound.shape == (3, 2, 9, 8)
    assert (model.temporal_compression_ratio, model.mel_compression_ratio) == (4, 4)
    assert (model.config.sample_rate, model.config.mel_hop_length, model.config.mel_bins) == (16000, 160, 8)


@pytest.mark.parametrize("cls", [LTX2Vocoder, LTX2VocoderWithBWE])
def test_other_lengths_and_time_last(cls):
    model = filled(cls, FILTERED if cls is LTX2Vocoder else BWE)
    with sf.no_grad():
        for frames in (1, 2, 7, 40):
            y = model(mel(1, 2, frames, 4))
            assert y.shape == (1, 2, frames * (6 if cls is LTX2Vocoder else 18)) and y.is_contiguous()
        if cls is LTX2Vocoder:
            x = mel(2, 2, 7, 4)
            assert sf.equal(model(x), model(x.transpose(2, 3), time_last=True))


def renamed(name, prefix):
    """A tensor's name in Lightricks' files."""
    for ours, theirs in {
        "upsamplers": "ups",
        "resnets": "resblocks",
        "conv_in": "conv_pre",
        "conv_out": "conv_post",
        "act_out": "act_post",
        "downsample": "downsample.lowpass",
    }.items():
        name = name.replace(ours, theirs)
    return prefix + name


@pytest.mark.parametrize(
    ("cls", "config"), [(LTX2Vocoder, VOCODER), (LTX2Vocoder, FILTERED), (LTX2VocoderWithBWE, BWE)]
)
def test_lightricks_names_of_vocoders(cls, config, tmp_path):
    model = filled(cls, config)
    state = {renamed(k, "vocoder."): t for k, t in model.state_dict().items()}
    sf.safetensors.save_file(state, tmp_path / "a.safetensors")
    again = cls.from_single_file(tmp_path / "a.safetensors", config=config)
    for k, t in model.state_dict().items():
        assert sf.equal(again.state_dict()[k], t), k


def test_lightricks_names_of_the_autoencoder(tmp_path):
    model = filled(AutoencoderKLLTX2Audio, VAE)
    statistics = {"latents_mean": "mean-of-means", "latents_std": "std-of-means"}
    state = {
        "audio_vae." + (f"per_channel_statistics.{statistics[k]}" if k in statistics else k): t
        for k, t in model.state_dict().items()
    }
    sf.safetensors.save_file(state, tmp_path / "a.safetensors")
    again = AutoencoderKLLTX2Audio.from_single_file(tmp_path / "a.safetensors", config=VAE)
    for k, t in model.state_dict().items():
        assert sf.equal(again.state_dict()[k], t), k


@pytest.mark.parametrize(
    ("cls", "fields", "error", "text"),
    [
        (
            AutoencoderKLLTX2Audio,
            {"causality_axis": "time"},
            ValueError,
            "causality_axis must be height, width, .*'time'",
        ),
        (AutoencoderKLLTX2Audio, {"norm_type": "group"}, ValueError, "norm_type group needs causality_axis none"),
        (AutoencoderKLLTX2Audio, {"norm_type": "layer"}, ValueError, "norm_type must be pixel or group, got 'layer'"),
        (AutoencoderKLLTX2Audio, {"double_z": False}, NotImplementedError, "double_z must be True"),
        (AutoencoderKLLTX2Audio, {"ch_mult": []}, ValueError, "ch_mult must have 1 to 16 entries"),
        (AutoencoderKLLTX2Audio, {"attn_resolutions": 16}, TypeError, "attn_resolutions must be None or a list"),
        (LTX2Vocoder, {"act_fn": "relu"}, ValueError, "act_fn must be leaky_relu, snake or snakebeta, got 'relu'"),
        (LTX2Vocoder, {"antialias": True}, NotImplementedError, "antialias is for act_fn snake and snakebeta"),
        (LTX2Vocoder, {"final_act_fn": "relu"}, ValueError, "final_act_fn must be tanh, clamp or None"),
        (LTX2Vocoder, {"upsample_factors": [2]}, ValueError, "must have the same length, got 5 and 1"),
        (LTX2Vocoder, {"resnet_dilations": [[1]]}, ValueError, "must have the same length, got 1 and 3"),
        (LTX2Vocoder, {"resnet_dilations": [1, 2, 3]}, TypeError, "resnet_dilations must be a list of lists"),
        (LTX2Vocoder, {"hidden_channels": 16}, ValueError, "hidden_channels must be at least 32 for 5"),
        (LTX2Vocoder, {"upsample_kernel_sizes": [4] * 5}, ValueError, "must be at least upsample_factors, got 4 and 6"),
        (LTX2VocoderWithBWE, {"hop_length": 100}, ValueError, "must multiply to hop_length"),
        (LTX2VocoderWithBWE, {"output_sampling_rate": 44100}, ValueError, "must be 1 to 64 times input_sampling_rate"),
        (LTX2VocoderWithBWE, {"num_mel_channels": 32}, ValueError, "bwe_in_channels must be out_channels"),
    ],
)
def test_impossible_configs_are_refused(cls, fields, error, text):
    with sf.device("meta"), pytest.raises(error, match=f"^{cls.__name__}|^LTX2Vocoder") as refused:
        cls(**fields)
    refused.match(text)


def test_wrong_spectrograms_are_refused():
    vocoder, vae = filled(LTX2Vocoder, VOCODER), filled(AutoencoderKLLTX2Audio, VAE)
    with pytest.raises(
        ValueError, match=r"LTX2Vocoder: hidden_states must be \[B, channels, L, mel bins\] with .* = 8"
    ):
        vocoder(mel(1, 2, 5, 5))
    with pytest.raises(ValueError, match=r"AutoencoderKLLTX2Audio.encode: x must be \[B, 2, L, M\]"):
        vae.encode(mel(1, 3, 9, 8))
    with pytest.raises(ValueError, match=r"AutoencoderKLLTX2Audio.decode: z must be \[B, 2, L, M\]"):
        vae.decode(mel(2, 2, 8))
