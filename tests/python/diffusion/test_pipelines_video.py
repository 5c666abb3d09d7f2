"""What pipelines of clips have besides what test_every_pipeline.py looks at: CogVideoX's and Tora's own arguments,
clips as arrays, lists and pictures, bad input."""

import re

import numpy as np
import pytest
import tiny_video
from golden_pipelines import CASES, images_of, one_thread, output_of, pipeline_of  # noqa: F401 (a fixture)

import scaffolding as sf
from scaffolding import diffusion, models
from scaffolding.diffusion import CogVideoXDPMScheduler, CogVideoXPipeline, DiTModel, VideoProcessor


def made(name):
    case = CASES[name]
    return pipeline_of(case, case["family"]), case


def test_the_documents_pipeline_around_a_dit_model():
    transformer = DiTModel(patch_size=2, in_channels=16, hidden_size=1152, depth=28)
    sched = CogVideoXDPMScheduler(num_train_timesteps=1000, snr_shift_scale=3.0, prediction_type="v_prediction")
    pipe = CogVideoXPipeline(transformer=transformer, scheduler=sched, num_frames=49, latent_channels=16)
    prompt_embeds = sf.randn(1, 7, 4096)  # (B, S, D) text embeddings
    # of the documents' 50 steps one, and a small clip
    video = pipe(prompt_embeds=prompt_embeds, num_inference_steps=1, height=32, width=48, guidance_scale=1.0)
    assert tuple(video.shape) == (1, 16, 49, 4, 6) and video.frames is video
    with pytest.raises(ValueError, match="latent_channels must be the transformer's in_channels 16, got 4"):
        CogVideoXPipeline(transformer=transformer, scheduler=sched, num_frames=49, latent_channels=4)


def test_clips_of_each_prompt_and_each_generator():
    pipe, case = made("cogvideox_rotary")
    call = {**case["call"], "num_videos_per_prompt": 2}
    both = images_of(pipe, {**case, "seed": [1, 2]}, call)
    assert both.shape[0] == 2
    for i, seed in enumerate([1, 2]):
        one = images_of(pipe, {**case, "seed": seed})
        np.testing.assert_allclose(both[i], one[0], atol=1e-4)


def test_sequential_guidance_gives_the_same_clip():
    pipe, case = made("cogvideox_dynamic")
    np.testing.assert_allclose(images_of(pipe, case), images_of(pipe, case, guidance_mode="sequential"), atol=1e-4)


def test_a_run_shows_clips_between_its_steps():
    pipe, case = made("tora_trajectory")
    run = pipe.start(**case["call"], seed=0, output_type="np")
    run.step()
    assert run.preview(1, "np").shape == (1, 9, 16, 32, 3)
    while not run.done:
        run.step()
    want = images_of(pipe, case)
    np.testing.assert_array_equal(run.finish().frames, want)


@pytest.mark.parametrize("name", ["cogvideox_rotary", "tora_trajectory"])
def test_frames_are_bytes_as_soon_as_they_are_decoded(name):
    """And the same as those of a clip that is decoded as a whole, as one is whose decode() is Python's."""
    pipe, case = made(name)
    frames = images_of(pipe, case, output_type="sf_tensor")
    assert all(f.dtype is sf.uint8 and f.is_contiguous() for clip in frames for f in clip)
    array = images_of(pipe, case)
    np.testing.assert_array_equal(np.stack([[f.numpy() for f in c] for c in frames]), (array * 255).round())
    early = pipe.start(**case["call"], seed=0, output_type="sf_tensor")
    assert [len(clip) for clip in early.preview(1)] == [len(frames[0])]
    while not early.done:
        early.step()
    assert [[f.tolist() for f in c] for c in early.finish().frames] == [[f.tolist() for f in c] for c in frames]
    decode, calls = pipe.vae.decode, []
    pipe.vae.decode = lambda z: calls.append(1) or decode(z)
    try:
        whole = images_of(pipe, case, output_type="sf_tensor")
    finally:
        del pipe.vae.decode
    assert calls == [1]
    assert [[f.tolist() for f in c] for c in whole] == [[f.tolist() for f in c] for c in frames]


def test_what_the_text_encoder_gives_may_be_made_before():
    pipe, case = made("cogvideox_negative")
    call = dict(case["call"])
    prompt, negative = call.pop("prompt"), call.pop("negative_prompt")
    embeds = pipe.encode_prompt(prompt, negative, max_sequence_length=call["max_sequence_length"])
    assert embeds[0].shape == embeds[1].shape
    given = dict(zip(("prompt_embeds", "negative_prompt_embeds"), embeds))
    np.testing.assert_array_equal(images_of(pipe, case, call, **given), images_of(pipe, case))


def test_frames_of_the_flow_go_in_mini_batches():
    pipe, case = made("tora_trajectory")
    assert type(pipe)._UNET_FRAME_BATCH == 4
    want = images_of(pipe, case)
    seen = []
    pipe.transformer.traj_extractor.body[0].block1.register_forward_hook(lambda _, x, __: seen.append(x[0].shape[0]))
    for frame_batch, most in ((1, 1), (2, 2), (0, 99)):
        pipe._UNET_FRAME_BATCH = frame_batch
        seen.clear()
        np.testing.assert_allclose(images_of(pipe, case), want, atol=1e-5)
        assert seen and max(seen) <= most and (most > 2) == (max(seen) > 2)
    for wrong in (-1, 2.0, None, True):
        pipe._UNET_FRAME_BATCH = wrong
        with pytest.raises(ValueError, match="_UNET_FRAME_BATCH must be a number of frames"):
            images_of(pipe, case)


def test_tora_without_steering_is_cogvideox():
    pipe, case = made("tora_without")
    state = {k: v for k, v in pipe.transformer.state_dict().items() if not k.startswith(("traj_extractor", "fuser"))}
    config = {k: v for k, v in pipe.transformer.config.items() if not k.startswith(("flow_", "_"))}
    plain = diffusion.CogVideoXTransformer3DModel(**config).eval()
    plain.load_state_dict(state)
    parts = {**pipe.components, "transformer": plain}
    np.testing.assert_array_equal(images_of(CogVideoXPipeline(**parts), case), images_of(pipe, case))


@pytest.mark.parametrize(
    "name, given, error, text",
    [
        ("cogvideox_ddim", {"num_frames": 4}, ValueError, "num_frames must be 4 k + 1, got 4; the closest are 1 and 5"),
        ("cogvideox_ddim", {"num_frames": 0}, ValueError, "num_frames must be 4 k"),
        ("cogvideox_ddim", {"height": 20}, ValueError, "divisible by 8"),
        ("cogvideox_ddim", {"latents": sf.zeros(1, 3, 4, 4, 6)}, ValueError, "latents must be"),
        ("cogvideox_ddim", {"max_sequence_length": 0}, ValueError, "max_sequence_length"),
        ("cogvideox_ddim", {"attention_kwargs": {"gate": 1}}, NotImplementedError, "attention_kwargs takes scale"),
        ("cogvideox_image", {"image": None}, ValueError, "needs an image"),
        ("tora_trajectory", {"trajectories": ""}, ValueError, "traject"),
        ("tora_trajectory", {"trajectories": "1,1"}, ValueError, "point"),
        ("tora_trajectory", {"trajectories": "1,1 32.5,4"}, ValueError, "outside"),
        ("tora_trajectory", {"trajectories": "1,1 nan,4"}, ValueError, "nan"),
        ("tora_trajectory", {"trajectories": [[(1, 1), (2, 2)]] * 17}, ValueError, "16"),
        ("tora_trajectory", {"trajectories": 5}, TypeError, "trajectories"),
        ("tora_trajectory", {"video_flow": sf.zeros(1, 9, 3, 16, 32)}, ValueError, "video_flow or trajectories"),
        ("tora_without", {"video_flow": sf.zeros(1, 8, 3, 16, 32)}, ValueError, "video_flow must be"),
    ],
)
def test_bad_input_is_refused_by_name(name, given, error, text):
    pipe, case = made(name)
    with pytest.raises(error, match=re.escape(text)):
        output_of(pipe, case, **given)


# The published ones: a latent for 8 x 8 pixels, patches of 2 x 2 latents.
@pytest.mark.parametrize("name", ["cogvideox_ddim", "tora_without"])
@pytest.mark.parametrize("size", [{"height": 24, "width": 32}, {"height": 32, "width": 40}])
def test_sizes_are_whole_patches_of_the_published_autoencoder(name, size):
    pipe, case = made(name)
    blocks = {"down_block_types": ["CogVideoXDownBlock3D"] * 4, "up_block_types": ["CogVideoXUpBlock3D"] * 4}
    pipe.vae = models.AutoencoderKLCogVideoX(**tiny_video.VAE | blocks | {"block_out_channels": [8, 8, 8, 16]})
    assert pipe.vae_scale_factor == 8 and pipe.transformer.config.patch_size == 2
    what, value = next((k, v) for k, v in size.items() if v % 16)
    with pytest.raises(ValueError, match=f"height and width must be divisible by 16, got {what}={value}"):
        output_of(pipe, case, latents=None, **size)


def test_a_prompt_needs_its_encoder():
    pipe, case = made("cogvideox_ddim")
    bare = CogVideoXPipeline(**{**pipe.components, "text_encoder": None})
    with pytest.raises(ValueError, match="has no text_encoder and tokenizer"):
        output_of(bare, case)
    with pytest.raises(ValueError, match="has no vae"):
        output_of(CogVideoXPipeline(**{**pipe.components, "vae": None}), case)


def test_a_video_processor_takes_clips_of_any_kind():
    processor = VideoProcessor(vae_scale_factor=8)
    array = np.random.default_rng(0).random((5, 16, 24, 3)).astype(np.float32)
    want = 2 * np.moveaxis(array, -1, 0)[None] - 1
    made = processor.preprocess_video(array)
    assert tuple(made.shape) == (1, 3, 5, 16, 24)
    np.testing.assert_allclose(made.numpy(), want, atol=1e-6)
    tensor = sf.tensor(np.moveaxis(array, -1, 1).copy())
    for video in (tensor, [tensor], tensor.unsqueeze(0), [array], array[None]):
        np.testing.assert_allclose(processor.preprocess_video(video).numpy(), want, atol=1e-6)
    both = processor.preprocess_video([array, array[::-1].copy()])
    assert tuple(both.shape) == (2, 3, 5, 16, 24)
    back = processor.postprocess_video(both, "np")
    np.testing.assert_allclose(back[0], array, atol=1e-6)
    image = pytest.importorskip("PIL.Image")
    pictures = [image.fromarray((frame * 255).round().astype(np.uint8)) for frame in array]
    of_pictures = processor.preprocess_video(pictures, height=8, width=8)
    assert tuple(of_pictures.shape) == (1, 3, 5, 8, 8)
    with pytest.raises(ValueError, match="video must be a clip"):
        processor.preprocess_video([3.0])
    with pytest.raises(ValueError, match="one size and number of frames"):
        processor.preprocess_video([array, array[:3]])
