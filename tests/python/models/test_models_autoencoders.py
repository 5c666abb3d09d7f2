"""What autoencoders have of their own: distributions, tiles, slices, older files, refusals. Their numbers, keys and
dtypes: test_every_model.py.

Golden values of draws, divergences and tiles are written by tests/golden/make_golden_models_autoencoders.py.
"""

import copy
import pickle

import folders
import numpy as np
import pytest
from hashed_weights import hashed, hashed_weight
from model_cases import FOLDER, away, families
from packed import unpacked

import scaffolding as sf
from scaffolding.backends import cpu
from scaffolding.models import AutoencoderKL, AutoencoderTiny, DiagonalGaussianDistribution

FILE = families()["autoencoders"]
EXTRA = FILE["extra"]
GOLDEN = sf.safetensors.load(unpacked(FOLDER / "models" / "autoencoders.safetensors.xz"))
CALLS = {case["name"]: case for case in FILE["cases"]}
KL = [name.removesuffix(": forward") for name in CALLS if name.endswith(": forward")]


def with_hashed_weights(model):
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model


def tensor(name, shape):
    return sf.tensor(hashed(name, tuple(shape)))


def assert_is(name, got):
    """Within 1e-5 of diffusers', relative to the largest value."""
    assert list(got.shape) == EXTRA[name], name
    assert away(name, got.detach().numpy(), GOLDEN[name].numpy(), least=1) <= 1e-5, name


# ---- AutoencoderKL


def kl_model(name):
    return with_hashed_weights(AutoencoderKL(**CALLS[f"{name}: forward"]["config"]))


def picture(name):
    return tensor("picture", CALLS[f"{name}: forward"]["arguments"]["sample"]["shape"])


def latents(name):
    return tensor("latents", EXTRA[f"{name}.sample"])


@pytest.mark.parametrize("name", KL)
def test_distributions_are_diffusers(name):
    with sf.no_grad():
        posterior = kl_model(name).encode(picture(name)).latent_dist
        assert_is(f"{name}.sample", posterior.sample(sf.Generator().manual_seed(5)))
        assert_is(
            f"{name}.samples", posterior.sample([sf.Generator().manual_seed(i) for i in range(len(picture(name)))])
        )
        assert_is(f"{name}.kl", posterior.kl())
        other = DiagonalGaussianDistribution(tensor("other", posterior.parameters.shape))
        assert_is(f"{name}.kl_other", posterior.kl(other))
        assert_is(f"{name}.nll", posterior.nll(tensor("near", posterior.mean.shape)))
        assert sf.equal(posterior.mode(), posterior.mean)
        assert_is(
            f"{name}.forward",
            kl_model(name)(picture(name), sample_posterior=True, generator=sf.Generator().manual_seed(3)).sample,
        )
    parameters = posterior.parameters.clone().requires_grad_()
    posterior = DiagonalGaussianDistribution(parameters)
    (posterior.kl().mean() + (posterior.mode() ** 2).mean()).backward()
    assert_is(f"{name}.kl_gradient", parameters.grad)


def test_decode_as_a_tuple():
    model = kl_model("plain")
    with sf.no_grad():
        assert sf.equal(model.decode(latents("plain"), return_dict=False)[0], model.decode(latents("plain"))[0])


@pytest.mark.parametrize("kind", [AutoencoderKL, AutoencoderTiny])
def test_gradient_checkpointing_takes_less_memory(kind):
    def peak(checkpointing):
        if kind is AutoencoderKL:
            model = AutoencoderKL(
                block_out_channels=[16, 16, 16], down_block_types=["DownEncoderBlock2D"] * 3,
                up_block_types=["UpDecoderBlock2D"] * 3, layers_per_block=3, norm_num_groups=4,
            )  # fmt: skip
        else:
            model = AutoencoderTiny(encoder_block_out_channels=[16] * 4, decoder_block_out_channels=[16] * 4)
        if checkpointing:
            model.enable_gradient_checkpointing()
        sf.manual_seed(0)
        before = cpu.memory_allocated()
        cpu.reset_peak_memory_stats()
        loss = model(sf.randn(1, 3, 64, 64)).sample.square().sum()
        kept = cpu.memory_allocated() - before
        loss.backward()
        return kept, cpu.max_memory_allocated() - before

    (kept, most), (kept_again, most_again) = peak(False), peak(True)
    assert kept_again < kept / 4 and most_again < most * 0.75


def tiled_model(name):
    model = kl_model(name)
    model.enable_tiling()
    sizes, side, overlap = EXTRA["tiled"][name]
    model.tile_sample_min_size, model.tile_latent_min_size, model.tile_overlap_factor = side, side // 2, overlap
    return model, tensor("picture", (sizes[0], 3, *sizes[1:]))


@pytest.mark.parametrize("name", EXTRA["tiled"])
def test_tiles_are_diffusers_tiles(name):
    model, x = tiled_model(name)
    with sf.no_grad():
        posterior = model.encode(x).latent_dist
        z = tensor("latents", posterior.mean.shape)
        assert_is(f"{name}.tiled_moments", posterior.parameters)
        assert_is(f"{name}.tiled_decoded", model.decode(z).sample)
        model.disable_tiling()
        assert sf.equal(model.tiled_encode(x).latent_dist.parameters, posterior.parameters)
        assert_is(f"{name}.tiled_decoded", model.tiled_decode(z).sample)
        whole, tiled = model.decode(z).sample, model.tiled_decode(z).sample
        # overlaps that are no whole number of latents change the size
        assert whole.shape != tiled.shape or not sf.allclose(whole, tiled)


def test_tiling_leaves_pictures_of_one_tile_alone():
    model, x = tiled_model("plain")
    small = x[:, :, :16, :16]
    with sf.no_grad():
        tiled = model.encode(small).latent_dist.parameters
        model.disable_tiling()
        assert sf.equal(tiled, model.encode(small).latent_dist.parameters)


def test_gradients_flow_through_tiles():
    model, x = tiled_model("plain")
    z = tensor("latents", (1, 4, 20, 14)).double().requires_grad_()
    model.double()
    weights = tensor("weights of pixels", (1, 3, 40, 28)).double()
    (model.decode(z).sample * weights).sum().backward()
    step = tensor("step", z.shape).double()
    with sf.no_grad():
        up, down = ((model.decode(z + sign * 1e-5 * step).sample * weights).sum() for sign in (1, -1))
    assert abs(((up - down) / 2e-5 - (z.grad * step).sum()).item()) < 1e-5 * abs((z.grad * step).sum().item())


@pytest.mark.parametrize("name", KL)
def test_slices_give_what_the_batch_gives(name):
    model, z = kl_model(name), latents(name)
    with sf.no_grad():
        whole, moments = model.decode(z).sample, model.encode(picture(name)).latent_dist.parameters
        model.enable_slicing()
        assert sf.allclose(model.decode(z).sample, whole, atol=1e-5)
        assert sf.allclose(model.encode(picture(name)).latent_dist.parameters, moments, atol=1e-5)
        model.disable_slicing()
        assert not model.use_slicing


def test_hooks_see_convolutions_that_are_otherwise_fused():
    model, z = kl_model("plain"), latents("plain")
    block = model.decoder.up_blocks[0]
    seen = []
    with sf.no_grad():
        want = model.decode(z).sample
        for module in (block.resnets[0].conv1, block.resnets[0].conv2, block.upsamplers[0].conv):
            module.register_forward_hook(lambda m, args, out: seen.append(tuple(out.shape)))
        got = model.decode(z).sample
    assert len(seen) == 3 and sf.allclose(got, want, atol=1e-5)


def test_channels_last_pictures_stay_so():
    model = kl_model("plain")
    x = picture("plain")
    with sf.no_grad():
        want = model.encode(x).latent_dist.parameters
        got = model.encode(x.contiguous(memory_format=sf.channels_last)).latent_dist.parameters
    assert want.is_contiguous()
    assert got.is_contiguous(memory_format=sf.channels_last)
    assert sf.allclose(got, want, atol=1e-6)


def test_folders_and_old_key_names(tmp_path):
    model = kl_model("plain")
    model.save_pretrained(tmp_path / "now")
    again = AutoencoderKL.from_pretrained(tmp_path / "now")
    assert again.config.block_out_channels == (16, 32) or again.config.block_out_channels == [16, 32]
    state = model.state_dict()
    old = {}
    for key, t in state.items():
        if ".attentions." in key:
            for now, then in (
                (".to_q.", ".query."),
                (".to_k.", ".key."),
                (".to_v.", ".value."),
                (".to_out.0.", ".proj_attn."),
            ):
                key = key.replace(now, then)
        old[key] = t
    assert any(".proj_attn." in key for key in old)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text((tmp_path / "now" / "config.json").read_text())
    sf.save(old, tmp_path / "old" / "diffusion_pytorch_model.bin")
    from_old = AutoencoderKL.from_pretrained(tmp_path / "old").state_dict()
    for key, t in state.items():
        assert sf.equal(from_old[key], t) and sf.equal(again.state_dict()[key], t), key


def test_copies_and_pickles():
    model = kl_model("no_quant")
    z = latents("no_quant")
    with sf.no_grad():
        want = model.decode(z).sample
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert sf.equal(other.decode(z).sample, want)


def test_a_deterministic_distribution_has_no_spread():
    moments = tensor("moments", (2, 8, 3, 3))
    d = DiagonalGaussianDistribution(moments, deterministic=True)
    assert (
        d.deterministic
        and sf.equal(d.sample(), d.mean)
        and d.kl().tolist() == [0.0]
        and d.nll(d.mean).tolist() == [0.0]
    )
    d = DiagonalGaussianDistribution(moments * 100)
    assert d.logvar.max().item() <= 20 and d.logvar.min().item() >= -30


@pytest.mark.parametrize(
    "config, message",
    [
        (
            {"block_out_channels": (64, 128)},
            "down_block_types and block_out_channels must have the same length, got 1 and 2",
        ),
        (
            {"down_block_types": ("DownBlock2D",)},
            "down_block_types must be DownEncoderBlock2D or AttnDownEncoderBlock2D, got 'DownBlock2D'",
        ),
        (
            {"up_block_types": ("UpBlock2D",)},
            "up_block_types must be UpDecoderBlock2D or AttnUpDecoderBlock2D, got 'UpBlock2D'",
        ),
        ({"norm_num_groups": 7}, "norm_num_groups must divide block_out_channels, got norm_num_groups=7 for 64"),
        ({"layers_per_block": 0}, "layers_per_block must be at least 1 and at most 256, got 0"),
        ({"block_out_channels": (-64,)}, "block_out_channels must be at least 1"),
        ({"act_fn": "relu"}, "act_fn must be silu or swish, got 'relu'"),
        ({"latents_mean": (1.0,)}, "must have latent_channels=4 numbers, got 1"),
        ({"sample_size": (1, 2, 3)}, "sample_size"),
        ({"sample_size": 0}, "sample_size must be at least 1"),
    ],
)
def test_impossible_configs_are_refused(config, message):
    with pytest.raises(ValueError, match="AutoencoderKL") as error:
        AutoencoderKL(**config)
    assert message in str(error.value)


def test_wrong_pictures_are_refused():
    model = kl_model("plain")
    with pytest.raises(ValueError, match=r"AutoencoderKL.encode: x must be \[B, 3, H, W\], got \[1, 4, 8, 8\]"):
        model.encode(sf.zeros(1, 4, 8, 8))
    with pytest.raises(ValueError, match=r"AutoencoderKL.decode: z must be \[B, 4, H, W\], got \[4, 8, 8\]"):
        model.decode(sf.zeros(4, 8, 8))
    model.enable_tiling()
    model.tile_overlap_factor = 1.0
    with pytest.raises(ValueError, match="tiles must be larger than their overlap"):
        model.decode(sf.zeros(1, 4, 16, 16))
    with pytest.raises(ValueError, match=r"parameters must be \[B, 2 C, ...\]"):
        DiagonalGaussianDistribution(sf.zeros(1, 3, 2, 2))
    with pytest.raises(ValueError, match="one for each of the batch, got 3 for"):
        DiagonalGaussianDistribution(sf.zeros(2, 4, 2, 2)).sample([sf.Generator()] * 3)
    with pytest.raises(TypeError, match="generator must be a Generator or a list of them"):
        DiagonalGaussianDistribution(sf.zeros(2, 4, 2, 2)).sample(5)


# ---- AutoencoderTiny


def tiny_model(name):
    model = with_hashed_weights(AutoencoderTiny(**CALLS[f"tiny {name}: encode"]["config"]))
    assert model.config.block_out_channels == model.config.decoder_block_out_channels  # pipelines count them
    return model


def test_tiny_tiles_and_slices():
    model = tiny_model("plain")
    x, z = tensor("picture", (1, 3, 112, 136)), tensor("latents", (1, 4, 14, 17))
    model.enable_tiling()
    model.tile_sample_min_size, model.tile_latent_min_size, model.tile_overlap_factor = 64, 8, 0.25
    with sf.no_grad():
        assert_is("tiny.tiled_latents", model.encode(x).latents)
        assert_is("tiny.tiled_decoded", model.decode(z).sample)
        model.disable_tiling()
        batch = tensor("batch", (3, 4, 5, 6))
        whole = model.decode(batch).sample
        model.enable_slicing()
        assert sf.allclose(model.decode(batch).sample, whole, atol=1e-5)


@pytest.mark.parametrize(
    "config, message",
    [
        (
            {"num_encoder_blocks": (1, 2)},
            "encoder_block_out_channels and num_encoder_blocks must have the same length, got 4 and 2",
        ),
        (
            {"decoder_block_out_channels": (8, 16, 8, 8)},
            "decoder_block_out_channels must be one number of 1 to 65536 for all stages, got 16 after 8",
        ),
        ({"act_fn": "elu"}, "act_fn must be"),
        ({"num_decoder_blocks": (1, -1, 1, 1)}, "num_decoder_blocks must be 0 to 256, got -1"),
        ({"latent_channels": 0}, "latent_channels must be 1 to 65536, got 0"),
        ({"latent_magnitude": 0}, "latent_magnitude must not be 0"),
    ],
)
def test_impossible_tiny_configs_are_refused(config, message):
    with pytest.raises(ValueError, match="AutoencoderTiny") as error:
        AutoencoderTiny(**config)
    assert message in str(error.value)


def test_tiny_refuses_tiles_that_do_not_fit():
    model = tiny_model("plain")
    model.enable_tiling()
    with pytest.raises(ValueError, match="tiling needs sizes that 8 divides"):
        model.encode(sf.zeros(1, 3, 60, 64))
    model.tile_overlap_factor = 0
    with pytest.raises(ValueError, match="must overlap by more than one latent"):
        model.decode(sf.zeros(1, 4, 8, 8))
    other = tiny_model("other")
    other.enable_tiling()
    with pytest.raises(ValueError, match="set spatial_scale_factor"):
        other.decode(sf.zeros(1, 6, 8, 8))
    with pytest.raises(ValueError, match=r"AutoencoderTiny.decode: x must be \[B, 4, H, W\], got \[1, 3, 8, 8\]"):
        model.decode(sf.zeros(1, 3, 8, 8))


TAEF2 = folders.SHARED / "taef2"


@pytest.mark.skipif(not TAEF2.is_dir(), reason=f"{TAEF2} is not there")
@pytest.mark.parametrize("kind", ["safetensors", "pth"])
def test_taef2_gives_its_authors_picture(kind, tmp_path):
    model = AutoencoderTiny.from_taesd(
        TAEF2 / f"taef2_encoder.{kind}", TAEF2 / f"taef2_decoder.{kind}", torch_dtype=sf.float32
    )
    assert model.config.use_midblock_gn and model.config.latent_channels == 32 and not model.training
    want = sf.safetensors.load_file(TAEF2 / "golden.safetensors")
    image = want["image"].unsqueeze(0)
    with sf.no_grad():
        latents = model.encode(image * 2 - 1).latents
        picture = ((model.decode(latents).sample + 1) / 2).clamp(0, 1)
    assert (latents[0] - want["latent"]).abs().max().item() < 1e-4 * want["latent"].abs().max().item()
    assert (picture[0] - want["recon"]).abs().max().item() < 1e-4
    error = (picture - image).double()
    assert abs(-10 * np.log10((error * error).mean().item()) - 37.49) < 0.01
    if kind == "safetensors":
        model.save_pretrained(tmp_path)
        again = AutoencoderTiny.from_pretrained(tmp_path)
        with sf.no_grad():
            assert sf.equal(again.encode(image * 2 - 1).latents, latents)


def test_files_that_are_not_taesds_are_refused(tmp_path):
    model = AutoencoderTiny(encoder_block_out_channels=(8,) * 4, decoder_block_out_channels=(8,) * 4)
    parts = {}
    for half, offset in (("encoder", 0), ("decoder", 1)):
        layers = getattr(model, half).layers.state_dict()
        parts[half] = {f"{int(k.split('.')[0]) + offset}.{k.split('.', 1)[1]}": t for k, t in layers.items()}
        sf.safetensors.save_file(parts[half], tmp_path / half)
    with pytest.raises(ValueError, match=r"(?s)are not TAESD's: .*encoder.layers.0.weight"):  # 64 channels
        AutoencoderTiny.from_taesd(tmp_path / "encoder", tmp_path / "decoder")
    sf.safetensors.save_file({"encoder.weight": sf.zeros(2)}, tmp_path / "named")
    with pytest.raises(ValueError, match="must be named by the number of their layer, got 'encoder.weight'"):
        AutoencoderTiny.from_taesd(tmp_path / "named", tmp_path / "decoder")
