"""scaffolding.nn.video: the tokenizer's ids, the pipeline's training and sampling, files, refusals. The networks'
numbers, gradients and files: test_every_model.py.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import scaffolding as sf
from scaffolding import optim
from scaffolding.nn import video as nv
from scaffolding.utils.data import DataLoader, Dataset

TINY = {
    "num_frames": 3,
    "frame_height": 8,
    "frame_width": 12,
    "text_embed_dim": 16,
    "model_channels": 8,
    "num_heads": 2,
}


@pytest.fixture
def pipeline():
    sf.manual_seed(0)
    return nv.TextToVideoPipeline(**TINY)


def clips(count, seed=0):
    return sf.rand(count, 3, 3, 8, 12, generator=sf.Generator().manual_seed(seed)) * 2 - 1


# ---- tokenizer

# Frozen: models that were trained know these words by these ids.
IDS = {
    "a cat walking on grass": [1, 4510, 4534, 4545, 4981, 6860, 2],
    "Rocket, NOTO": [1, 270, 226, 825, 2],
    "Cafe\u0301 \u732b x_y\t2": [1, 1524, 2388, 6534, 7072, 2],
    "": [1, 2],
}
PROGRAM = """
import json, sys
from scaffolding.nn.video import TextTokenizer
print(json.dumps({text: TextTokenizer()(text)["input_ids"] for text in json.loads(sys.argv[1])}))
"""


def padded(ids):
    return ids + [0] * (77 - len(ids))


def test_ids_never_change():
    tokenizer = nv.TextTokenizer()
    assert (tokenizer.vocab_size, tokenizer.max_length, len(tokenizer)) == (8192, 77, 8192)
    for text, ids in IDS.items():
        assert tokenizer.encode(text) == padded(ids), text


@pytest.mark.parametrize("seed", ["1", "987654321"])
def test_ids_are_the_same_in_every_process(seed):
    shown = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(list(IDS))],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": seed},
    )
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == {text: padded(ids) for text, ids in IDS.items()}


def test_texts_as_lists_tensors_and_arrays():
    tokenizer = nv.TextTokenizer(max_length=5)
    one, several = tokenizer("a cat"), tokenizer(["a cat", "a cat walking on grass"], return_tensors="sf")
    assert one.input_ids == [1, *IDS["a cat walking on grass"][1:3], 2, 0] and one.attention_mask == [1, 1, 1, 1, 0]
    assert several.input_ids.tolist() == [one.input_ids, [1, *IDS["a cat walking on grass"][1:4], 2]]
    assert several.attention_mask.shape == (2, 5) and several.input_ids.dtype is sf.int64
    assert tokenizer([], return_tensors="np").input_ids.shape == (0, 5)
    assert tokenizer.tokenize("A Cat, 2 dogs!") == ["a", "cat", ",", "2", "dogs", "!"]
    assert repr(tokenizer) == "TextTokenizer(vocab_size=8192, max_length=5)"


def test_what_the_tokenizer_refuses(tmp_path):
    with pytest.raises(ValueError, match="vocab_size must be from 4 to 1048576"):
        nv.TextTokenizer(vocab_size=3)
    with pytest.raises(ValueError, match="max_length must be from 3 to 65536"):
        nv.TextTokenizer(max_length=2)
    with pytest.raises(TypeError, match="a str or a list of str, got int at 1"):
        nv.TextTokenizer()(["a", 2])
    with pytest.raises(UnicodeEncodeError):
        nv.TextTokenizer()("\ud800")
    with pytest.raises(FileNotFoundError):
        nv.TextTokenizer.from_pretrained(tmp_path)


# ---- networks


def test_every_name_of_the_package_is_there():
    for name in nv.__all__:
        assert hasattr(nv, name), name
    assert sf.nn.video is nv and nv.UNet3D is sf.models.UNet3D and nv.DDIMScheduler is sf.diffusion.DDIMScheduler
    with pytest.raises(AttributeError, match="has no attribute 'videos'"):
        sf.nn.videos


def test_frames_are_told_apart_by_their_place():
    """Without its place a frame among equal ones would come out as they do."""
    sf.manual_seed(0)
    attention = nv.SpatialTemporalAttention(8, 2, None)
    frame = sf.randn(1, 8, 1, 2, 2)
    with sf.no_grad():
        y = attention(sf.cat([frame, frame, sf.randn(1, 8, 1, 2, 2)], 2))
    assert (y[:, :, 0] - y[:, :, 1]).abs().max() > 1e-5


def test_padding_of_a_text_changes_nothing():
    sf.manual_seed(0)
    encoder, unet = nv.TextEncoder(99, 16, 2, 2).eval(), nv.SimpleUNet3D(3, None, 8, 2, 16, 4).eval()
    ids = sf.tensor([[1, 5, 7, 2, 0, 0]])
    mask = (ids != 0).to(sf.int64)
    x = sf.randn(1, 3, 2, 4, 4)
    with sf.no_grad():
        short, long = encoder(ids[:, :4]), encoder(ids, mask)
        np.testing.assert_allclose(long[:, :4].numpy(), short.numpy(), atol=1e-5)
        np.testing.assert_allclose(unet(x, 5, long, mask).numpy(), unet(x, 5, short).numpy(), atol=1e-5)


def test_what_networks_refuse():
    with pytest.raises(ValueError, match="norm_num_groups must divide model_channels, got 8 and 12"):
        nv.UNet3D(model_channels=12)
    with pytest.raises(ValueError, match="attention_levels must be numbers of levels, from 0 to 2, got 3"):
        nv.UNet3D(attention_levels=[3])
    with pytest.raises(TypeError, match="attention_levels must be a list of numbers of levels, or None"):
        nv.UNet3D(attention_levels=1)
    with pytest.raises(TypeError, match="attention_levels must be whole numbers, got a str"):
        nv.UNet3D(attention_levels=["1"])
    with pytest.raises(ValueError, match="channel_mult must have from 1 to 8 entries, got 0"):
        nv.UNet3D(channel_mult=[])
    with pytest.raises(ValueError, match="channel_mult times model_channels"):
        nv.UNet3D(channel_mult=[2**40])
    with pytest.raises(ValueError, match="num_res_blocks must be between 1 and 333"):
        nv.UNet3D(num_res_blocks=10**9)
    with pytest.raises(ValueError, match="num_heads must divide the channels at hand, got 3 and 128"):
        nv.SimpleUNet3D(num_heads=3)
    with pytest.raises(ValueError, match="num_heads must divide embed_dim"):
        nv.TextEncoder(num_heads=3)
    with pytest.raises(ValueError, match="scaling_factor must be above 0"):
        nv.VideoEncoder(scaling_factor=0.0)
    with pytest.raises(ValueError, match="dropout must be from 0 to below 1"):
        nv.ResBlock3D(dropout=1.0)
    unet, text = nv.SimpleUNet3D(3, None, 8, 2, 10, 4), sf.zeros(1, 5, 10)
    with pytest.raises(ValueError, match="height and width must be multiples of 4, got 6 and 8"):
        unet(sf.zeros(1, 3, 2, 6, 8), 0, text)
    with pytest.raises(ValueError, match=r"sample must be \[B, 3, T, H, W\], got \[1, 3, 8, 8\]"):
        unet(sf.zeros(1, 3, 8, 8), 0, text)
    with pytest.raises(ValueError, match="one for each of the 1 samples"):
        unet(sf.zeros(1, 3, 2, 8, 8), sf.tensor([1, 2]), text)
    with pytest.raises(ValueError, match="needs encoder_hidden_states"):
        unet(sf.zeros(1, 3, 2, 8, 8), 0)
    with pytest.raises(ValueError, match=r"encoder_hidden_states must be \[1, tokens, 10\]"):
        unet(sf.zeros(1, 3, 2, 8, 8), 0, sf.zeros(1, 5, 9))
    with pytest.raises(ValueError, match=r"encoder_attention_mask must be \[1, 5\], got \[1, 4\]"):
        unet(sf.zeros(1, 3, 2, 8, 8), 0, text, sf.ones(1, 4))
    encoder = nv.TextEncoder(99, 16, 1, 2, max_length=4)
    with pytest.raises(ValueError, match="takes at most max_length=4 tokens, got 5"):
        encoder(sf.ones(1, 5, dtype=sf.int64))
    with pytest.raises(IndexError):
        encoder(sf.full((1, 2), 99))
    with pytest.raises(ValueError, match="has no time_embed_dim|as it has a time_embed_dim"):
        nv.ResBlock3D(8)(sf.zeros(1, 8, 1, 2, 2))


# ---- schedulers


def test_ddim_steps_to_the_previous_step_of_inference():
    """Not of training: of 10 steps over 1000, each goes 100 down, to the alphas there."""
    scheduler = nv.DDIMScheduler(clip_sample=False)
    scheduler.set_timesteps(10)
    sample, noise = sf.randn(2, 3, 2, 4, 4), sf.randn(2, 3, 2, 4, 4)
    t = int(scheduler.timesteps[3])
    now, before = (float(scheduler.alphas_cumprod[i]) for i in (t, int(scheduler.timesteps[4])))
    assert t - int(scheduler.timesteps[4]) == 100
    clean = (sample - (1 - now) ** 0.5 * noise) / now**0.5
    for i in range(3):
        scheduler.step(noise, scheduler.timesteps[i], sample)
    got = scheduler.step(noise, t, sample).prev_sample
    np.testing.assert_allclose(got.numpy(), (before**0.5 * clean + (1 - before) ** 0.5 * noise).numpy(), atol=1e-5)


# ---- training


def reached(pipeline, loss):
    loss.backward()
    return {name: None if p.grad is None else float(p.grad.abs().max()) for name, p in pipeline.named_parameters()}


@pytest.mark.parametrize("unet", ["SimpleUNet3D", "UNet3D"])
def test_the_loss_reaches_every_weight(unet):
    """At the first step: no weight begins where another one's zeros keep gradients from it."""
    sf.manual_seed(0)
    network = nv.UNet3D(3, None, 8, num_heads=2, context_dim=16, norm_num_groups=4) if unet == "UNet3D" else None
    pipeline = nv.TextToVideoPipeline(**TINY, unet=network)
    loss = pipeline.training_step(clips(2), ["a red square", "a blue circle that moves left"], condition_dropout=0)
    assert loss.shape == () and 0.2 < loss.item() < 2
    gradients = reached(pipeline, loss)
    assert len(gradients) == len(list(pipeline.parameters())) > 100
    assert not [name for name, g in gradients.items() if not g]


def test_what_is_trained_follows_the_prompt():
    sf.manual_seed(0)
    sizes = {"num_frames": 2, "frame_height": 8, "frame_width": 8}
    pipeline = nv.TextToVideoPipeline(**{**TINY, **sizes, "model_channels": 16})
    prompts = ["a red wall", "a blue wall"]
    walls = sf.full((2, 3, 2, 8, 8), -0.8)
    walls[0, 0] = walls[1, 2] = 0.8
    optimizer, generator = optim.AdamW(pipeline.parameters(), lr=3e-3), sf.Generator().manual_seed(1)
    for _ in range(100):
        pipeline.training_step(walls.repeat(4, 1, 1, 1, 1), prompts * 4, generator=generator).backward()
        optimizer.step()
        optimizer.zero_grad()
    red, blue = pipeline.generate(prompts, num_steps=8, guidance_scale=2, seed=0).mean((2, 3, 4)).tolist()
    assert red[0] > max(red[1:]) + 0.3 and blue[2] > max(blue[:2]) + 0.3, (red, blue)


def test_dropped_prompts_are_the_empty_text(pipeline):
    given = {"noise": sf.randn(2, 3, 3, 8, 12), "timesteps": sf.tensor([10, 500])}
    video, prompts = clips(2), ["red", "blue"]
    kept, all_dropped, empty = (
        pipeline.training_step(video, p, condition_dropout=share, **given).item()
        for p, share in ((prompts, 0), (prompts, 1), (["", ""], 0))
    )
    assert all_dropped == empty != kept


def test_a_batch_is_drawn_from_its_generator(pipeline):
    losses = [
        pipeline.training_step(clips(2), ["a", "b"], generator=sf.Generator().manual_seed(seed)).item()
        for seed in (3, 3, 4)
    ]
    assert losses[0] == losses[1] != losses[2]


def test_what_training_refuses(pipeline):
    for shape in ((1, 3, 8, 12), (1, 3, 4, 8, 12), (1, 4, 3, 8, 12), (0, 3, 3, 8, 12)):
        with pytest.raises(ValueError, match=r"video must be \[B, 3, 3, 8, 12\]"):
            pipeline.training_step(sf.zeros(*shape), ["a"])
    with pytest.raises(TypeError, match="floating numbers in .-1, 1., got .*uint8"):
        pipeline.training_step(sf.zeros(1, 3, 3, 8, 12, dtype=sf.uint8), ["a"])
    with pytest.raises(ValueError, match="a prompt for each of the 2 videos, got 1"):
        pipeline.training_step(clips(2), ["a"])
    with pytest.raises(ValueError, match="must not be an empty list"):
        pipeline.training_step(clips(2), [])
    with pytest.raises(TypeError, match="got a str"):
        pipeline.training_step(clips(1), "a")
    with pytest.raises(ValueError, match="condition_dropout must be from 0 to 1"):
        pipeline.training_step(clips(1), ["a"], condition_dropout=1.5)


# ---- sampling


def test_a_seed_gives_a_video(pipeline):
    pipeline.train()
    videos = [pipeline.generate("a cat", num_steps=3, seed=seed) for seed in (7, 7, 8)]
    assert videos[0].shape == (1, 3, 3, 8, 12) and not videos[0].requires_grad
    assert videos[0].abs().max() <= 1 and sf.equal(videos[0], videos[1]) and not sf.equal(videos[0], videos[2])
    assert all(module.training for module in pipeline.modules())
    own = [sf.Generator().manual_seed(seed) for seed in (8, 7)]  # each sample's does not depend on the batch
    pair = pipeline.generate(["a cat", "a cat"], num_steps=3, generator=own)
    np.testing.assert_allclose(pair[1:].numpy(), videos[0].numpy(), atol=1e-4)


def test_guidance(pipeline):
    def video(**options):
        return pipeline.generate(["red", "a blue square"], num_steps=2, seed=1, **options).numpy()

    one, two = video(), video(guidance_mode="sequential")
    np.testing.assert_allclose(one, two, atol=1e-4)
    assert np.abs(one - video(negative_prompt="dark")).max() > 1e-6
    np.testing.assert_array_equal(video(negative_prompt="dark"), video(negative_prompt=["dark", "dark"]))
    np.testing.assert_array_equal(video(guidance_scale=1), video(guidance_scale=0.5, negative_prompt="dark"))


def test_steps_are_shown(pipeline, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    seen = []
    pipeline.set_progress_bar_config(disable=False, desc="video")
    pipeline.generate("a", num_steps=3, callback=lambda i, t, x: seen.append((i, int(t), tuple(x.shape))))
    assert "video: [" in capsys.readouterr().err and [s[0] for s in seen] == [0, 1, 2]
    assert seen[0][1] == 999 and seen[0][2] == (1, 3, 3, 8, 12)


def test_weights_may_rest_in_another_dtype(pipeline):
    want = pipeline.generate("a", num_steps=2, seed=0)
    for network in (pipeline.unet, pipeline.text_encoder):
        network.enable_layerwise_casting(sf.float8_e4m3fn)
    assert pipeline.unet.conv_in.weight.dtype is sf.float8_e4m3fn and pipeline.dtype is sf.float32
    got = pipeline.generate("a", num_steps=2, seed=0)
    assert 0 < (got - want).abs().mean() < 0.1 * want.abs().mean()
    embedding = nv.TimestepEmbedding(8, 16)
    embedding.enable_layerwise_casting(sf.float8_e4m3fn)
    assert embedding(5).dtype is sf.float32


def test_other_schedulers(pipeline):
    for cls in (nv.DDPMScheduler, sf.diffusion.DPMSolverMultistepScheduler, sf.diffusion.EulerDiscreteScheduler):
        pipeline.scheduler = cls.from_config(pipeline.scheduler.config)
        assert pipeline.generate("a", num_steps=2, seed=0).isfinite().all(), cls


def test_what_sampling_refuses(pipeline):
    for argument, message in {
        "prompt": "must not be an empty list",
        "num_steps": "num_inference_steps",
        "guidance_scale": "guidance_scale must be finite",
        "negative_prompt": "one negative_prompt, or one for each of the 1 prompts, got 2",
        "guidance_mode": "must be 'batched' or 'sequential'",
        "latents": r"latents must be \(1, 3, 3, 8, 12\), got \(1, 3, 3, 8, 8\)",
        "generator": "takes seed or generator, not both",
    }.items():
        wrong = {
            "prompt": [],
            "num_steps": 0,
            "guidance_scale": float("nan"),
            "negative_prompt": ["a", "b"],
            "guidance_mode": "both",
            "latents": sf.zeros(1, 3, 3, 8, 8),
            "generator": sf.Generator(),
        }[argument]
        with pytest.raises(ValueError, match=message):
            pipeline.generate(**{"prompt": "a", "num_steps": 2, "seed": 1, argument: wrong})
    for prompt in (None, 3, ["a", 3]):
        with pytest.raises(TypeError, match="prompt"):
            pipeline.generate(prompt)
    with pytest.warns(UserWarning, match="has at most 75 words here, and this part was cut off: end"):
        pipeline.generate("word " * 75 + "end", num_steps=1)


def test_what_a_pipeline_refuses():
    for sizes, message in (
        ({"num_frames": 0}, "num_frames must be positive, got 0"),
        ({"frame_height": 10}, "must be multiples of 4, got 10 and 12"),
        ({"encoder": nv.VideoEncoder(model_channels=8)}, "encoder and decoder come together"),
        (
            {"unet": nv.SimpleUNet3D(model_channels=8, num_heads=2, context_dim=9, norm_num_groups=4)},
            "context_dim must",
        ),
        ({"unet": nv.SimpleUNet3D(4, model_channels=8, num_heads=2, norm_num_groups=4)}, "3 channels in and out"),
        ({"text_encoder": nv.TextEncoder(vocab_size=99, embed_dim=8)}, "ids below 8192 and texts of 77"),
    ):
        with pytest.raises(ValueError, match=message):
            nv.TextToVideoPipeline(**{**TINY, **sizes})


# ---- latent diffusion


@pytest.fixture
def latent_pipeline():
    sf.manual_seed(0)
    sizes = {"latent_channels": 2, "model_channels": 8, "channel_mult": [1, 2], "num_heads": 2}
    encoder, decoder = nv.VideoEncoder(**sizes, scaling_factor=0.5), nv.VideoDecoder(**sizes)
    return nv.TextToVideoPipeline(**{**TINY, "frame_width": 16}, encoder=encoder, decoder=decoder)


def test_diffusion_of_latents(latent_pipeline):
    pipeline = latent_pipeline
    assert pipeline.unet.config.in_channels == 2
    assert pipeline.generate("a", num_steps=2, seed=0).shape == (1, 3, 3, 8, 16)
    gradients = reached(pipeline, pipeline.training_step(sf.rand(2, 3, 3, 8, 16), ["a b", "c"], condition_dropout=0))
    for name, gradient in gradients.items():
        assert (gradient is None) == name.startswith(("encoder.", "decoder.")) and gradient != 0, name


def test_an_autoencoder_is_trained_by_its_parts():
    sf.manual_seed(0)
    sizes = {"latent_channels": 2, "model_channels": 8, "channel_mult": [1, 2], "num_heads": 2}
    encoder, decoder = nv.VideoEncoder(**sizes), nv.VideoDecoder(**sizes)
    video = sf.rand(1, 3, 2, 8, 8)
    posterior = encoder(video)
    loss = sf.nn.functional.mse_loss(decoder(posterior.sample()), video) + 1e-6 * posterior.kl().mean()
    loss.backward()
    for part in (encoder, decoder):
        assert all(p.grad is not None and p.grad.abs().max() > 0 for p in part.parameters())


# ---- files


def test_frames_as_files(tmp_path):
    video = sf.tensor([-2.0, -1.0, 0.0, 1.0]).reshape(1, 1, 4, 1, 1).expand(1, 3, 4, 2, 5)
    paths = nv.save_video_frames(video, tmp_path / "a" / "b")
    assert [os.path.basename(p) for p in paths] == [f"frame_000{i}.png" for i in range(4)]
    assert sorted(os.listdir(tmp_path / "a" / "b")) == [f"frame_000{i}.png" for i in range(4)]
    for path, value in zip(paths, (0, 0, 128, 255)):
        image = sf.io.read_image(path)
        assert image.shape == (3, 2, 5) and (image == value).all()
    assert nv.save_video_frames(video[0], tmp_path) == [str(tmp_path / f"frame_000{i}.png") for i in range(4)]
    pair = nv.save_video_frames(video.expand(2, 3, 4, 2, 5), tmp_path / "pair")
    assert pair[1][3] == str(tmp_path / "pair" / "video_0001" / "frame_0003.png") and os.path.isfile(pair[1][3])


def test_frames_that_are_refused(tmp_path):
    for wrong, error in (
        (sf.zeros(1, 3, 2, 4, 4, dtype=sf.uint8), TypeError),
        (np.zeros((1, 3, 2, 4, 4)), TypeError),
        (sf.zeros(3, 4, 4), ValueError),
        (sf.zeros(1, 4, 2, 4, 4), ValueError),
        (sf.zeros(1, 3, 0, 4, 4), ValueError),
        (sf.full((1, 3, 1, 2, 2), float("nan")), ValueError),
    ):
        with pytest.raises(error, match="save_video_frames: video"):
            nv.save_video_frames(wrong, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", ["pixels", "latents"])
def test_folders_there_and_back(kind, pipeline, latent_pipeline, tmp_path):
    pipeline = latent_pipeline if kind == "latents" else pipeline
    video = pipeline.generate("a cat", num_steps=2, seed=5)
    pipeline.save_pretrained(tmp_path)
    again = nv.TextToVideoPipeline.from_pretrained(tmp_path)
    assert again.config == pipeline.config and type(again.scheduler) is nv.DDIMScheduler
    assert not any(module.training for module in again.modules())
    assert sf.equal(again.generate("a cat", num_steps=2, seed=5), video)
    half = nv.TextToVideoPipeline.from_pretrained(tmp_path, torch_dtype=sf.bfloat16)
    assert half.dtype is sf.bfloat16 and half.generate("a cat", num_steps=1).dtype is sf.bfloat16
    index = json.loads((tmp_path / "model_index.json").read_text())
    assert index["unet"] == ["diffusers", "SimpleUNet3D"] and index["tokenizer"] == ["scaffolding", "TextTokenizer"]


def test_folders_that_are_refused(pipeline, tmp_path):
    pipeline.save_pretrained(tmp_path)
    index = json.loads((tmp_path / "model_index.json").read_text())

    def refused(message, error=ValueError, **changes):
        (tmp_path / "model_index.json").write_text(json.dumps({**index, **changes}))
        with pytest.raises(error, match=message):
            nv.TextToVideoPipeline.from_pretrained(tmp_path)

    refused("_class_name must be 'TextToVideoPipeline', got 'DiTPipeline'", _class_name="DiTPipeline")
    refused("num_frames must be a positive whole number, got 'many'", num_frames="many")
    refused("must be multiples of 4", frame_height=7)
    with pytest.raises(TypeError, match="unexpected keyword argument 'vae'"):
        nv.TextToVideoPipeline.from_pretrained(tmp_path, vae=None)
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    config = tmp_path / "unet" / "config.json"
    config.write_text(config.read_text().replace("SimpleUNet3D", "T5EncoderModel"))
    with pytest.raises(ValueError, match="must name one of SimpleUNet3D, UNet3D, got 'T5EncoderModel'"):
        nv.TextToVideoPipeline.from_pretrained(tmp_path)
    (tmp_path / "model_index.json").unlink()
    with pytest.raises(FileNotFoundError):
        nv.TextToVideoPipeline.from_pretrained(tmp_path)


# ---- as the product's documents write it


class Clips(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return sf.rand(3, 16, 64, 64) * 2 - 1, f"clip number {i}"


USAGE = """
from scaffolding.nn.video import TextToVideoPipeline

# Create pipeline
pipeline = TextToVideoPipeline(
    num_frames=16,
    frame_height=64,
    frame_width=64,
    text_embed_dim=256,
    model_channels=64,
    num_heads=4,
)

# Generate video from text prompt
video = pipeline.generate(
    prompt="a cat walking on grass",
    num_steps=50,
    guidance_scale=7.5,
)
print(video.shape)  # (1, 3, 16, 64, 64) — (B, C, T, H, W)

# Save frames to disk
pipeline.save_video_frames(video, output_dir="./output_frames")
"""
TRAINING = """
import scaffolding as sf
import scaffolding.optim as optim

pipeline = TextToVideoPipeline(num_frames=16, frame_height=64, frame_width=64)
optimizer = optim.AdamW(pipeline.parameters(), lr=1e-4)

# Training loop
for video_batch, prompts in dataloader:
    loss = pipeline.training_step(video_batch, prompts)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_programs_of_the_documents(tmp_path, monkeypatch, capsys):
    """Word for word, and with every shape; a network of one number stands in for the two that take minutes there."""
    monkeypatch.chdir(tmp_path)

    class OneNumber(sf.nn.Module):
        def __init__(self, **config):
            super().__init__()
            self.config, self.scale = config, sf.nn.Parameter(sf.ones(()))

        def forward(self, sample, timestep, states, mask):
            return sample * self.scale + 0 * states.sum()

    monkeypatch.setattr("scaffolding.nn.video.pipeline.SimpleUNet3D", OneNumber)
    names = {"dataloader": DataLoader(Clips(), batch_size=2)}
    exec(USAGE, names)
    assert capsys.readouterr().out == "(1, 3, 16, 64, 64)\n" and len(os.listdir("output_frames")) == 16
    exec(TRAINING, names)
    assert np.isfinite(names["loss"].item()) and names["pipeline"].unet.scale.item() != 1


def test_the_networks_of_the_documents():
    """Of the size that the documents write, without memory."""
    with sf.device("meta"):
        pipeline = nv.TextToVideoPipeline(num_frames=16, frame_height=64, frame_width=64)
        states = pipeline.text_encoder(sf.zeros(2, 77, dtype=sf.int64))
        video = pipeline.unet(sf.zeros(2, 3, 16, 64, 64), sf.zeros(2), states)
    assert states.shape == (2, 77, 256) and video.shape == (2, 3, 16, 64, 64)
