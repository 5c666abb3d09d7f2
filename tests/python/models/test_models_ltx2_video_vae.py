"""What LTX-2's autoencoder of videos and the network that enlarges its latents have of their own: tiles, causal calls,
sizes, files of Lightricks', refusals. Their numbers, keys and files: test_every_model.py.

Golden values of tiles are written by tests/golden/make_golden_models_ltx2_video_vae.py.
"""

import pytest
from hashed_weights import hashed, hashed_weight
from model_cases import FOLDER, away, families, published
from packed import unpacked

import scaffolding as sf
from scaffolding.models import AutoencoderKLLTX2Video, LTX2LatentUpsamplerModel

FILE = families()["ltx2_video_vae"]
EXTRA = FILE["extra"]
GOLDEN = sf.safetensors.load(unpacked(FOLDER / "models" / "ltx2_video_vae.safetensors.xz"))
CONFIGS = {case["name"]: case["config"] for case in FILE["cases"]}


def filled(model):
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model.eval()


def vae(name="decode", **fields):
    return filled(AutoencoderKLLTX2Video(**{**CONFIGS[name], **fields}))


def tensor(name, shape):
    return sf.tensor(hashed(name, tuple(shape)))


def assert_is(name, got, tolerance=1e-5):
    """Relative to the largest value."""
    assert list(got.shape) == EXTRA[name]
    assert away(name, got.numpy(), GOLDEN[name].numpy()) <= tolerance, name


# ---- tiles


@pytest.mark.parametrize("name", EXTRA["tiled"])
def test_tiles_and_slices_are_diffusers(name):
    sizes, attributes = EXTRA["tiled"][name]
    model = vae()
    model.enable_slicing()
    for attribute, value in attributes.items():
        setattr(model, attribute, value)
    x, z = tensor("video", (sizes[0], 3, *sizes[1:])), tensor("latents", EXTRA[f"{name}: latents"])
    with sf.no_grad():
        moments, decoded = model.encode(x).latent_dist.parameters, model.decode(z).sample
        assert_is(f"{name}: tiled_moments", moments)
        assert_is(f"{name}: tiled_decoded", decoded)
        assert moments.is_contiguous() and decoded.is_contiguous()
        model.disable_slicing()
        assert sf.allclose(model.decode(z).sample, decoded, atol=1e-5)
        if name == "pictures":
            assert sf.allclose(model.tiled_encode(x), moments, atol=1e-5)
            assert sf.allclose(model.tiled_decode(z, None).sample, decoded, atol=1e-5)
        model.use_tiling = model.use_framewise_decoding = False
        assert model.decode(z).sample.shape == decoded.shape
        assert not sf.allclose(model.decode(z).sample, decoded, atol=1e-4)


def test_tiles_may_be_set_one_by_one():
    model = vae()
    model.enable_tiling(tile_sample_min_width=64, tile_sample_stride_num_frames=4)
    assert model.use_tiling and (model.tile_sample_min_height, model.tile_sample_min_width) == (512, 64)
    assert (model.tile_sample_stride_width, model.tile_sample_stride_num_frames) == (448, 4)
    with pytest.raises(ValueError, match="tiles' width and strides must be multiples of 8, .* got 64 and 448"):
        model.decode(sf.zeros(1, 4, 1, 2, 9))
    model.enable_tiling(tile_sample_stride_width=20)
    with pytest.raises(ValueError, match="must be multiples of 8, .* got 64 and 20"):
        model.encode(sf.zeros(1, 3, 1, 8, 72))
    guessed = AutoencoderKLLTX2Video(**{**CONFIGS["decode"], "spatial_compression_ratio": None})
    assert guessed.spatial_compression_ratio == 16  # as in diffusers, where a block scales pictures and frames
    guessed.enable_tiling(tile_sample_min_width=32, tile_sample_stride_width=16)
    with pytest.raises(
        ValueError, match="the compression ratio that the network has, 8 for each (height|width), got 16"
    ):
        guessed.decode(sf.zeros(1, 4, 1, 2, 9))


def test_a_tile_of_one_latent_is_decoded_where_there_is_nothing_to_reflect():
    model = vae()
    with sf.no_grad():
        picture = model.decode(tensor("latents", (1, 4, 1, 1, 3))).sample
    assert picture.shape == (1, 3, 1, 8, 24)


# ---- time


def test_a_later_frame_changes_no_earlier_one():
    model = vae()
    x = tensor("video", (1, 3, 9, 16, 16))
    other = x.clone()
    other[:, :, 5:] = 0
    z = tensor("latents", (1, 4, 3, 2, 2))
    changed = z.clone()
    changed[:, :, 2:] = 0
    with sf.no_grad():
        a, b = (model.encode(v).latent_dist.mean for v in (x, other))
        assert sf.allclose(a[:, :, :2], b[:, :, :2], atol=1e-6) and not sf.allclose(a, b, atol=1e-4)
        assert sf.allclose(model.encode(x, causal=False).latent_dist.mean, a)  # the config says so
        a, b = (model.decode(v, causal=True).sample for v in (z, changed))
        assert sf.allclose(a[:, :, :5], b[:, :, :5], atol=1e-6) and not sf.allclose(a, b, atol=1e-4)
        a, b = (model.decode(v).sample for v in (z, changed))
        assert not sf.allclose(a[:, :, :5], b[:, :, :5], atol=1e-4)


@pytest.mark.parametrize("frames", [2, 4, 7, 8])
def test_frames_that_cannot_be_are_refused(frames):
    with pytest.raises(ValueError, match=r"encode: x must have 4 k \+ 1 frames and sides that are multiples of 8, got"):
        vae().encode(sf.zeros(1, 3, frames, 8, 8))


def test_convolutions_that_leave_frames_out_take_any_number():
    model = vae("other there and back", downsample_type=["conv", "spatial"])
    for frames, latents in ((1, 1), (2, 1), (4, 2), (5, 3)):
        assert model.encode(sf.zeros(1, 2, frames, 8, 8)).latent_dist.mean.shape[2] == latents
    assert model.encode(sf.zeros(1, 2, 1, 7, 8)).latent_dist.mean.shape[3:] == (2, 2)


# ---- parts


def test_noise_is_drawn_where_the_config_says_so():
    config = {"decoder_inject_noise": [True, False, True]}
    model, plain, z = vae(**config), vae(), tensor("latents", (1, 4, 1, 2, 2))
    assert model.decoder.mid_block.resnets[0].per_channel_scale1.shape == (16, 1, 1)
    with sf.no_grad():
        sf.manual_seed(3)
        a, b = model.decode(z).sample, model.decode(z).sample
        sf.manual_seed(3)
        assert sf.equal(model.decode(z).sample, a) and not sf.allclose(a, b, atol=1e-4)
        for name, t in model.named_parameters():
            if "per_channel" in name:
                t.zero_()
        assert sf.allclose(model.decode(z).sample, plain.decode(z).sample, atol=1e-6)


def test_hooks_see_layers_that_are_otherwise_fused():
    model, z, seen = vae("told timesteps"), tensor("latents", (1, 4, 2, 2, 3)), []
    block = model.decoder.up_blocks[0]
    with sf.no_grad():
        want = model.decode(z, sf.tensor([0.4])).sample
        resnet = block.resnets[0]
        for module in (resnet.norm1, resnet.conv2.conv, resnet.conv1, block.upsamplers[0].conv, model.decoder.norm_out):
            module.register_forward_hook(lambda m, args, out: seen.append(type(m).__name__))
        got = model.decode(z, sf.tensor([0.4])).sample
    assert len(seen) == 5 and sf.allclose(got, want, atol=1e-5)


def test_channels_last_videos_stay_so():
    model, x = vae(), tensor("video", (2, 3, 5, 16, 16))
    with sf.no_grad():
        want = model(x).sample
        got = model(x.contiguous(memory_format=sf.channels_last_3d)).sample
    assert want.is_contiguous() and got.is_contiguous(memory_format=sf.channels_last_3d)
    assert sf.allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("level", ["block_level", "leaf_level"])
def test_weights_may_come_and_go(level, tmp_path):
    model, z = vae(), tensor("latents", (1, 4, 2, 2, 3))
    model.save_pretrained(tmp_path)
    streamed = AutoencoderKLLTX2Video.from_pretrained(tmp_path)
    one = {"num_blocks_per_group": 1} if level == "block_level" else {}
    streamed.enable_group_offload(onload_device="cpu", offload_type=level, **one)
    with sf.no_grad():
        want = model.decode(z).sample
        assert sf.equal(streamed.decode(z).sample, want) and sf.equal(streamed.decode(z).sample, want)


# ---- files


def original_names(names, blocks):
    """Lightricks' names of ours, by blocks of either half that are resampled."""
    order = [
        *(f"encoder.down_blocks.{i}" + end for i in range(blocks[0]) for end in (".resnets", ".downsamplers.0")),
        "encoder.mid_block.resnets",
    ]
    up = [f"decoder.up_blocks.{i}" + end for i in range(blocks[1]) for end in (".upsamplers.0", ".resnets")]
    starts = {
        **{ours: f"encoder.down_blocks.{i}" for i, ours in enumerate(order)},
        **{ours: f"decoder.up_blocks.{i}" for i, ours in enumerate(["decoder.mid_block.resnets", *up])},
    }
    out = {}
    for name in names:
        start = next((s for s in starts if name.startswith(s + ".")), None)
        theirs = name
        if start:
            theirs = starts[start] + (".res_blocks" if start.endswith("resnets") else "") + name[len(start) :]
        theirs = theirs.replace("latents_mean", "per_channel_statistics.mean-of-means")
        out[name] = theirs.replace("latents_std", "per_channel_statistics.std-of-means")
    return out


@pytest.mark.parametrize("name, blocks", [("decode", (3, 2)), ("2.3: decode", (3, 3))])
def test_files_of_lightricks_load(name, blocks, tmp_path):
    model = vae(name)
    state = model.state_dict()
    theirs = original_names(state, blocks)
    assert theirs["encoder.down_blocks.1.downsamplers.0.conv.conv.weight"] == "encoder.down_blocks.3.conv.conv.weight"
    assert theirs["decoder.up_blocks.1.resnets.0.conv1.conv.bias"] == "decoder.up_blocks.4.res_blocks.0.conv1.conv.bias"
    file = {f"vae.{theirs[k]}": t.contiguous() for k, t in state.items()}
    file["vae.per_channel_statistics.channel"] = sf.zeros(4)
    file["audio_vae.decoder.conv_in.conv.weight"] = sf.zeros(4, 4, 3, 3)
    sf.safetensors.save_file(file, tmp_path / "ltx.safetensors")
    again = AutoencoderKLLTX2Video.from_single_file(tmp_path / "ltx.safetensors", config=dict(CONFIGS[name]))
    assert all(sf.equal(t, state[k]) for k, t in again.state_dict().items())


@pytest.mark.parametrize("name, blocks", [("ltx2_vae", (4, 3)), ("ltx2_3_vae", (4, 4))])
def test_published_files_say_what_they_are(name, blocks, tmp_path):
    _, config, keys = published(name)
    names = original_names(keys, blocks)
    sf.safetensors.save_file({f"vae.{k}": sf.zeros(1) for k in names.values()}, tmp_path / "ltx.safetensors")
    with pytest.raises(ValueError, match=rf"has {len(keys)} tensors of another shape: 'vae\.per_channel_statistics"):
        AutoencoderKLLTX2Video.from_single_file(tmp_path / "ltx.safetensors")


# ---- refusals


@pytest.mark.parametrize(
    "config, message",
    [
        ({"layers_per_block": [1]}, "layers_per_block must have one entry more than block_out_channels"),
        ({"down_block_types": ["DownEncoderBlock2D"] * 3}, "down_block_types must be LTX2VideoDownBlock3D, got"),
        ({"downsample_type": ["spatial"]}, "downsample_type must have 3 entries for the blocks of the encoder, got 1"),
        ({"downsample_type": ["linear"] * 3}, "must be conv, spatial, temporal or spatiotemporal, got 'linear'"),
        ({"upsample_type": ["conv"] * 2}, "upsample_type must be spatial, temporal or spatiotemporal, got 'conv'"),
        ({"block_out_channels": [6, 8, 16]}, "block_out_channels must be a multiple of 4 and divide 16, 4 times"),
        ({"spatio_temporal_scaling": False}, "must stay where a block is not scaled, got 8 after 4"),
        ({"spatio_temporal_scaling": [True]}, "spatio_temporal_scaling must have one entry for each of the 3 blocks"),
        ({"upsample_factor": [2]}, "upsample_factor must have one entry for each of the 2 blocks, got 1"),
        ({"upsample_factor": [3, 2]}, "upsample_factor must divide decoder_block_out_channels, got 3 for 8"),
        ({"decoder_block_out_channels": [4, 16]}, "upsample_factor must be 1 where a block is not scaled or changes"),
        ({"timestep_conditioning": True, "upsample_factor": [1, 1], "upsample_residual": False},
         "timestep_conditioning and decoder_inject_noise need decoder_block_out_channels"),
        ({"patch_size_t": 2}, "patch_size_t must be 1, got 2"),
        ({"latent_channels": 0}, "latent_channels must be between 1 and"),
        ({"decoder_spatial_padding_mode": "mirror"}, "padding_mode must be one of zeros, reflect"),
    ],
)  # fmt: skip
def test_impossible_autoencoders_are_refused(config, message):
    with pytest.raises((ValueError, NotImplementedError)) as error:
        AutoencoderKLLTX2Video(**{**CONFIGS["decode"], **config})
    assert message in str(error.value)


def test_wrong_videos_are_refused():
    model = vae()
    with pytest.raises(ValueError, match=r"encode: x must be \[B, 3, T, H, W\], got \[1, 3, 8, 8\]"):
        model.encode(sf.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match="sides that are multiples of 8, got"):
        model.encode(sf.zeros(1, 3, 1, 12, 8))
    with pytest.raises(ValueError, match=r"decode: z must be \[B, 4, T, H, W\], got \[1, 3, 1, 2, 2\]"):
        model.decode(sf.zeros(1, 3, 1, 2, 2))
    told = vae("told timesteps")
    with pytest.raises(TypeError, match="temb must be a tensor, got None"):
        told.decode(sf.zeros(1, 4, 1, 2, 2))
    with pytest.raises(ValueError, match="temb must be one number for each of the 2 videos"):
        told.decode(sf.zeros(2, 4, 1, 2, 2), sf.tensor([0.1]))


# ---- larger latents


@pytest.mark.parametrize(
    "config, message",
    [
        ({"mid_channels": 48}, "mid_channels must be a multiple of 32, got 48"),
        ({"dims": 1}, "dims must be 2 or 3, got 1"),
        ({"spatial_upsample": False}, "spatial_upsample or temporal_upsample must be true"),
        ({"temporal_upsample": True, "dims": 2}, "temporal_upsample needs dims=3, got 2"),
        ({"rational_spatial_scale": 3.0}, "rational_spatial_scale must be 0.75, 1.5, 2 or 4, got 3"),
    ],
)
def test_impossible_upsamplers_are_refused(config, message):
    with pytest.raises(ValueError) as error:
        LTX2LatentUpsamplerModel(**{**CONFIGS["rational 2"], **config})
    assert message in str(error.value)


def test_latents_of_another_network_are_refused():
    with pytest.raises(ValueError, match=r"hidden_states must be \[B, 4, T, H, W\], got \[1, 3, 1, 2, 2\]"):
        LTX2LatentUpsamplerModel(**CONFIGS["doubled"])(sf.zeros(1, 3, 1, 2, 2))
