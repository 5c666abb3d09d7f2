"""What CogVideoX's networks have of their own: positions, guides of what a call is told, chunks of frames, tiles,
refusals. Their numbers, keys and files: test_every_model.py.

Golden values of positions and tiles are written by tests/golden/make_golden_models_cogvideox.py.
"""

import pytest
from hashed_weights import hashed, hashed_weight
from model_cases import FOLDER, away, families
from packed import unpacked

import scaffolding as sf
from scaffolding.models import (
    AutoencoderKLCogVideoX,
    CogVideoXTransformer3DModel,
    get_3d_rotary_pos_embed,
    get_3d_sincos_pos_embed,
)

FILE = families()["cogvideox"]
EXTRA = FILE["extra"]
GOLDEN = sf.safetensors.load(unpacked(FOLDER / "models" / "cogvideox.safetensors.xz"))
CONFIGS = {case["name"]: case["config"] for case in FILE["cases"]}


def filled(model):
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model.eval()


def tensor(name, shape):
    return sf.tensor(hashed(name, tuple(shape)))


def assert_is(name, got, tolerance=1e-5):
    """Relative to the largest value."""
    assert list(got.shape) == EXTRA[name]
    assert away(name, got.numpy(), GOLDEN[name].numpy()) <= tolerance, name


# ---- positions


@pytest.mark.parametrize("name", EXTRA["rotaries"])
def test_rotary_positions_are_diffusers(name):
    cos, sin = get_3d_rotary_pos_embed(**EXTRA["rotaries"][name])
    assert_is(f"rotary: {name}", sf.stack([cos, sin]))


@pytest.mark.parametrize("name", EXTRA["sines"])
def test_sines_are_diffusers(name):
    assert_is(f"sines: {name}", get_3d_sincos_pos_embed(**EXTRA["sines"][name]))


def test_impossible_positions_are_refused():
    whole = {"crops_coords": ((0, 0), (2, 2)), "grid_size": (2, 2), "temporal_size": 2}
    for arguments, match in [
        ({"embed_dim": 24, **whole}, "embed_dim must be a multiple of 16, got 24"),
        ({"embed_dim": 16, **whole, "temporal_size": 0}, "at least 1"),
        ({"embed_dim": 16, **whole, "grid_size": (2**40, 2**40)}, "their product at most"),
        ({"embed_dim": 16, **whole, "grid_type": "grid"}, "grid_type must be 'linspace' or 'slice', got 'grid'"),
        ({"embed_dim": 16, **whole, "grid_type": "slice", "max_size": (1, 2)}, "within max_size"),
        ({"embed_dim": 16, **whole, "use_real": False}, "use_real must be True"),
    ]:
        with pytest.raises(ValueError, match=match):
            get_3d_rotary_pos_embed(**arguments)
    with pytest.raises(ValueError, match="multiple of 16"):
        get_3d_sincos_pos_embed(8, 2, 2)
    with pytest.raises(ValueError, match="scales must be above 0"):
        get_3d_sincos_pos_embed(16, 2, 2, 0.0)


# ---- the transformer


def test_what_it_is_told_matters():
    model = filled(CogVideoXTransformer3DModel(**CONFIGS["frames in patches"]))
    x, text = sf.randn(2, 4, 6, 4, 6), sf.randn(2, 5, 10)
    told = {"ofs": 2.0, "image_rotary_emb": get_3d_rotary_pos_embed(16, ((0, 0), (2, 3)), (2, 3), 2)}
    with sf.no_grad():
        y = model(x, text, 10, **told).sample
        assert y.shape == (2, 4, 4, 4, 6)
        for other in (
            model(x, sf.randn(2, 5, 10), 10, **told),
            model(x, text, 500, **told),
            model(x, text, 10, **{**told, "ofs": sf.tensor([3.0])}),
            model(x, text, 10, **{**told, "image_rotary_emb": tuple(t.flip([0]) for t in told["image_rotary_emb"])}),
        ):
            assert not sf.allclose(other.sample, y, atol=1e-4)
        as_one = {**told, "image_rotary_emb": sf.stack(list(told["image_rotary_emb"]))}
        assert sf.equal(model(x, text, sf.tensor([10, 10]), **as_one, return_dict=False)[0], y)


def test_a_text_may_be_short_where_positions_are_not_learned():
    model = filled(CogVideoXTransformer3DModel(**CONFIGS["sines"]))
    with sf.no_grad():
        assert model(sf.randn(1, 3, 4, 4, 8), sf.randn(1, 2, 10), 3).sample.shape == (1, 3, 4, 4, 8)


def test_hooks_see_every_layer():
    model = filled(CogVideoXTransformer3DModel(**CONFIGS["rotary"]))
    arguments = (sf.randn(1, 2, 4, 4, 6), sf.randn(1, 5, 10), 10)
    rotary = get_3d_rotary_pos_embed(16, ((0, 0), (2, 3)), (2, 3), 2)
    with sf.no_grad():
        want = model(*arguments, image_rotary_emb=rotary).sample
        seen = {}
        for name, module in model.named_modules():
            if name and not list(module.children()):
                module.register_forward_hook(lambda m, args, out, name=name: seen.update({name: out}))
        got = model(*arguments, image_rotary_emb=rotary).sample
    assert sf.allclose(got, want, atol=1e-5)
    missed = [n for n, m in model.named_modules() if n and not list(m.children()) and n not in seen]
    assert not missed, missed


def test_blocks_can_be_replaced_in_python():
    model = filled(CogVideoXTransformer3DModel(**CONFIGS["sines"]))
    x, text = sf.randn(1, 3, 4, 4, 8), sf.randn(1, 5, 10)

    class Skipped(sf.nn.Module):
        def forward(self, hidden_states, encoder_hidden_states, *others):
            return [hidden_states, encoder_hidden_states]

    with sf.no_grad():
        want = model(x, text, 10).sample
        model.transformer_blocks[1] = Skipped()
        assert not sf.allclose(model(x, text, 10).sample, want, atol=1e-4)


def test_impossible_transformers_are_refused():
    tiny = CONFIGS["sines"]
    for config, match in [
        ({"attention_head_dim": 12}, "must be a multiple of 16 where positions are added, got 24"),
        ({"patch_size_t": 2}, "patch_size_t above 1 needs rotary positions"),
        ({"use_learned_positional_embeddings": True}, "needs use_rotary_positional_embeddings"),
        ({"ofs_embed_dim": 16}, "ofs_embed_dim must be time_embed_dim, to which it is added, got 16 and 8"),
        ({"patch_size": 6}, "patch_size must be at most sample_width and sample_height, got 6"),
        ({"num_layers": 0}, "num_layers must be between 1 and 1000, got 0"),
        ({"text_embed_dim": 2**40}, "text_embed_dim must be between 1 and"),
        ({"spatial_interpolation_scale": 0.0}, "must be above 0"),
        ({"timestep_activation_fn": "gelu"}, "timestep_activation_fn must be silu, got 'gelu'"),
    ]:
        with pytest.raises((ValueError, NotImplementedError), match=match):
            CogVideoXTransformer3DModel(**{**tiny, **config})


def test_impossible_calls_are_refused():
    rotary = {"image_rotary_emb": get_3d_rotary_pos_embed(16, ((0, 0), (2, 3)), (2, 3), 2)}
    x, text = sf.zeros(1, 2, 4, 4, 6), sf.zeros(1, 5, 10)
    model = CogVideoXTransformer3DModel(**CONFIGS["rotary"])
    for arguments, keywords, match in [
        ((sf.zeros(1, 2, 4, 4, 7), text, 0), rotary, "patch_size 2 must divide height and width"),
        ((sf.zeros(1, 2, 3, 4, 6), text, 0), rotary, r"must be \[B, T, 4, H, W\], got \[1, 2, 3, 4, 6\]"),
        ((sf.zeros(1, 4, 4, 6), text, 0), rotary, r"must be \[B, T, 4, H, W\]"),
        ((x, sf.zeros(1, 5, 11), 0), rotary, r"encoder_hidden_states must be \[1, M, 10\], got \[1, 5, 11\]"),
        ((x, text, sf.tensor([1, 2])), rotary, "timestep must be one number"),
        ((sf.zeros(1, 3, 4, 4, 6), text, 0), rotary, r"image_rotary_emb must be \[2, 18, R\]"),
        ((x, text, 0), {**rotary, "timestep_cond": text}, "timestep_cond must be None"),
    ]:
        with pytest.raises(ValueError, match=match):
            model(*arguments, **keywords)
    with pytest.raises(TypeError, match="image_rotary_emb must be a tensor, got None"):
        model(x, text, 0)
    with pytest.raises(NotImplementedError, match="attention_kwargs has no use for gate"):
        model(x, text, 0, **rotary, attention_kwargs={"gate": 1})
    learned = CogVideoXTransformer3DModel(**CONFIGS["learned"])
    with pytest.raises(ValueError, match="learned positions are of sample_height 4 and sample_width 8"):
        learned(sf.zeros(1, 3, 8, 4, 6), text, 0, **rotary)
    with pytest.raises(ValueError, match="learned positions are of max_text_seq_length 5"):
        learned(sf.zeros(1, 3, 8, 4, 8), sf.zeros(1, 4, 10), 0, **rotary)
    halved = CogVideoXTransformer3DModel(**CONFIGS["frames in patches"])
    with pytest.raises(ValueError, match="patch_size_t 2 must divide the number of frames"):
        halved(sf.zeros(1, 3, 6, 4, 6), text, 0, **rotary)
    with pytest.raises(TypeError, match="ofs must be a tensor, got None"):
        halved(sf.zeros(1, 4, 6, 4, 6), text, 0, **rotary)
    with pytest.raises(ValueError, match="ofs must be one number, or one for each of the 1 samples"):
        halved(sf.zeros(1, 4, 6, 4, 6), text, 0, ofs=sf.zeros(3), **rotary)


# ---- both


@pytest.mark.parametrize("level", ["block_level", "leaf_level"])
@pytest.mark.parametrize("name", ["rotary", "encode 9"])
def test_weights_may_come_and_go(name, level, tmp_path):
    cls = CogVideoXTransformer3DModel if name == "rotary" else AutoencoderKLCogVideoX
    model, rotary = filled(cls(**CONFIGS[name])), get_3d_rotary_pos_embed(16, ((0, 0), (2, 3)), (2, 3), 2)

    def call(m):
        if cls is AutoencoderKLCogVideoX:
            return m.decode(tensor("latents", (1, 4, 5, 2, 3))).sample
        arguments = tensor("video", (1, 2, 4, 4, 6)), tensor("text", (1, 5, 10)), 7
        return m(*arguments, image_rotary_emb=rotary).sample

    model.save_pretrained(tmp_path)
    streamed = cls.from_pretrained(tmp_path)
    one = {"num_blocks_per_group": 1} if level == "block_level" else {}
    streamed.enable_group_offload(onload_device="cpu", offload_type=level, **one)
    with sf.no_grad():
        want = call(model)
        assert sf.equal(call(streamed), want) and sf.equal(call(streamed), want)


# ---- the autoencoder


def vae(name="encode 9"):
    return filled(AutoencoderKLCogVideoX(**CONFIGS[name]))


@pytest.mark.parametrize("name", EXTRA["tiled"])
def test_tiles_and_slices_are_diffusers(name):
    sizes, arguments = EXTRA["tiled"][name]
    model = vae()
    model.enable_tiling(**arguments)
    model.enable_slicing()
    x, z = tensor("video", (sizes[0], 3, *sizes[1:])), tensor("latents", EXTRA[f"{name}: latents"])
    with sf.no_grad():
        moments, decoded = model.encode(x).latent_dist.parameters, model.decode(z).sample
        assert_is(f"{name}: tiled_moments", moments)
        assert_is(f"{name}: tiled_decoded", decoded)
        model.disable_tiling()
        assert sf.allclose(model.tiled_encode(x), moments, atol=1e-5)
        model.disable_slicing()
        assert sf.allclose(model.tiled_decode(z).sample, decoded, atol=1e-5)
        assert not sf.allclose(model.decode(z).sample[..., :4, :4], decoded[..., :4, :4], atol=1e-4)


def test_tiles_follow_the_sizes_of_the_config():
    model = vae()
    assert (model.tile_sample_min_height, model.tile_sample_min_width) == (24, 40)
    assert (model.tile_latent_min_height, model.tile_latent_min_width) == (6, 10)
    model.enable_tiling(tile_sample_min_width=18)
    assert (model.tile_sample_min_height, model.tile_sample_min_width, model.tile_latent_min_width) == (24, 18, 4)
    x = tensor("video", (1, 3, 1, 24, 16))  # of one tile
    with sf.no_grad():
        tiled = model.encode(x).latent_dist.parameters
        model.disable_tiling()
        assert sf.equal(model.encode(x).latent_dist.parameters, tiled)


def test_a_later_frame_changes_no_earlier_one():
    model = vae()
    x = tensor("video", (1, 3, 17, 8, 8))
    other = x.clone()
    other[:, :, 9:] = 0
    with sf.no_grad():
        a, b = (model.encode(v).latent_dist.mean for v in (x, other))
    assert sf.equal(a[:, :, :3], b[:, :, :3]) and not sf.allclose(a[:, :, 3:], b[:, :, 3:], atol=1e-4)


def test_chunks_know_the_frames_before_them():
    model = vae()
    z = tensor("latents", (1, 4, 5, 2, 2))
    with sf.no_grad():
        whole = model.decode(z).sample
        assert not sf.allclose(model.decode(z[:, :, 3:]).sample, whole[:, :, 9:], atol=1e-4)
        model.num_latent_frames_batch_size = 5  # norms see all frames
        assert model.decode(z).sample.shape == whole.shape and not sf.allclose(model.decode(z).sample, whole, atol=1e-4)


def test_channels_last_videos_stay_so():
    model, x = vae(), tensor("video", (2, 3, 9, 8, 12))
    with sf.no_grad():
        want = model.encode(x).latent_dist.parameters
        got = model.encode(x.contiguous(memory_format=sf.channels_last_3d)).latent_dist.parameters
    assert want.is_contiguous() and got.is_contiguous(memory_format=sf.channels_last_3d)
    assert sf.allclose(got, want, atol=1e-6)


def test_hooks_see_convolutions_that_are_otherwise_fused():
    model, z, seen = vae(), tensor("latents", (1, 4, 3, 2, 3)), []
    block = model.decoder.up_blocks[0]
    with sf.no_grad():
        want = model.decode(z).sample
        for module in (block.resnets[0].conv1.conv, block.resnets[0], block.upsamplers[0].conv, model.decoder.norm_out):
            module.register_forward_hook(lambda m, args, out: seen.append(type(m).__name__))
        got = model.decode(z).sample
    assert len(seen) == 4 and sf.allclose(got, want, atol=1e-5)


@pytest.mark.parametrize(
    "config, message",
    [
        ({"block_out_channels": (8, 8)}, "down_block_types and block_out_channels must have the same length"),
        ({"down_block_types": ("DownEncoderBlock2D",) * 3}, "down_block_types must be CogVideoXDownBlock3D, got"),
        ({"norm_num_groups": 3}, "norm_num_groups must divide block_out_channels, got norm_num_groups=3 for 8"),
        ({"act_fn": "relu"}, "act_fn must be silu or swish, got 'relu'"),
        ({"temporal_compression_ratio": 0}, "temporal_compression_ratio must be at least 1"),
        ({"use_quant_conv": True}, "need as many out_channels as latent_channels, got 3 and 4"),
        ({"latents_mean": (1.0,)}, "must have latent_channels=4 numbers, got 1"),
        ({"sample_width": 0}, "sample_width must be at least 1"),
    ],
)
def test_impossible_autoencoders_are_refused(config, message):
    with pytest.raises(ValueError, match="AutoencoderKLCogVideoX") as error:
        AutoencoderKLCogVideoX(**{**CONFIGS["encode 9"], **config})
    assert message in str(error.value)


def test_wrong_videos_are_refused():
    model = vae()
    with pytest.raises(ValueError, match=r"encode: x must be \[B, 3, T, H, W\], got \[1, 3, 8, 8\]"):
        model.encode(sf.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match=r"decode: z must be \[B, 4, T, H, W\], got \[1, 3, 1, 2, 2\]"):
        model.decode(sf.zeros(1, 3, 1, 2, 2))
    with pytest.raises(ValueError, match=r"must be \[B, 4, T, H, W\], got \[1, 4, 0, 2, 2\]"):
        model.decode(sf.zeros(1, 4, 0, 2, 2))
    model.num_latent_frames_batch_size = 0
    with pytest.raises(ValueError, match="num_latent_frames_batch_size must be positive, got 0"):
        model.decode(sf.zeros(1, 4, 1, 2, 2))
    model.enable_tiling(tile_overlap_factor_height=1.0)
    with pytest.raises(ValueError, match="tiles must be larger than their overlap"):
        model.encode(sf.zeros(1, 3, 1, 32, 8))
