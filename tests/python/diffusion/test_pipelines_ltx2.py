"""What LTX-2's pipelines have that no other has: sound, guidance of two streams, tokens that are told pictures."""

import numpy as np
import pytest
from golden_pipelines import CASES, PICTURES, images_of, one_thread, output_of, part, pipeline_of  # noqa: F401
from libav import needs_libav
from model_cases import away, families
from pipeline_inputs import embeds, picture

import scaffolding as sf
from scaffolding import diffusion, models

OURS = [name for name, case in CASES.items() if case["family"] == "ltx2"]
PLAIN = CASES["ltx2_guided"]
LATER = CASES["ltx2_of_23"]


def made(name="ltx2_guided", **parts):
    pipe = pipeline_of(CASES[name], "ltx2")
    return type(pipe)(**{**pipe.components, **parts})


@pytest.mark.parametrize("name", OURS)
def test_the_sound_is_diffusers(name):
    got, want = (
        output_of(pipeline_of(CASES[name], "ltx2"), CASES[name]).audio.numpy(),
        PICTURES[f"{name}.audio"].numpy(),
    )
    assert away(f"{name}.audio", got, want, least=0.1) <= 1e-3


def test_sound_is_of_the_clips_length_and_may_be_absent():
    out = output_of(made(), PLAIN)
    # 5 frames at 25 a second are 5 latents, of which come 17 spectra of 4 samples
    assert out.audio.shape == (1, 2, 68) and np.abs(out.audio.numpy()).max() <= 1
    frames, sound = output_of(made(), PLAIN, return_dict=False)
    np.testing.assert_array_equal(sound.numpy(), out.audio.numpy())
    silent = output_of(made(vocoder=None), PLAIN)
    assert silent.audio is None
    np.testing.assert_array_equal(silent.frames, out.frames)
    np.testing.assert_array_equal(frames, out.frames)


@pytest.mark.parametrize("case", [PLAIN, LATER, CASES["ltx2_i2v_of_23"]], ids=lambda c: c["name"])
def test_guidance_in_two_calls_is_guidance(case):
    pipe = pipeline_of(case, "ltx2")
    batched, two = (output_of(pipe, case, guidance_mode=mode) for mode in ("batched", "sequential"))
    np.testing.assert_allclose(two.frames, batched.frames, atol=2e-3)
    np.testing.assert_allclose(two.audio.numpy(), batched.audio.numpy(), atol=2e-3)


def test_networks_that_python_calls_give_the_same():
    """Hooks see each call, with whole numbers and flags as Python has them."""
    pipe, seen = made("ltx2_of_23"), []
    want = output_of(pipe, LATER)
    transformer, connectors, vocoder = (
        type(pipe.components[n]).from_config(pipe.components[n].config)
        for n in ("transformer", "connectors", "vocoder")
    )
    for name, network in {"transformer": transformer, "connectors": connectors, "vocoder": vocoder}.items():
        network.load_state_dict(pipe.components[name].state_dict())
        network.eval().register_forward_pre_hook(
            lambda m, args, kwargs, name=name: seen.append((name, kwargs)), with_kwargs=True
        )
    hooked = made("ltx2_of_23", transformer=transformer, connectors=connectors, vocoder=vocoder)
    got = output_of(hooked, LATER)
    np.testing.assert_allclose(got.frames, want.frames, atol=1e-5)
    np.testing.assert_allclose(got.audio.numpy(), want.audio.numpy(), atol=1e-5)
    assert [name for name, _ in seen] == ["connectors"] + 9 * ["transformer"] + ["vocoder"]
    told = [kwargs for name, kwargs in seen if name == "transformer"]
    assert [k.get("spatio_temporal_guidance_blocks") for k in told[:3]] == [None, [1], None]
    assert [k.get("isolate_modalities") for k in told[:3]] == [None, None, True]


def test_samples_leave_a_run():
    case = CASES["ltx2_two"]
    pipe = pipeline_of(case, "ltx2")
    from golden_pipelines import generators
    from pipeline_cases import arguments_of

    call = {**arguments_of(case["call"], lambda kind, value: value), "output_type": "np"}
    whole = pipe(**call, generator=generators(case["seed"]))
    run = pipe.start(**call, generator=generators(case["seed"]))
    run.step()
    run.keep_samples([1])
    while not run.done:
        run.step()
    out = run.finish()
    np.testing.assert_allclose(out.frames, whole.frames[1:], atol=2e-3)
    np.testing.assert_allclose(out.audio.numpy(), whole.audio.numpy()[1:], atol=2e-3)


def test_prompts_are_padded_at_the_left():
    pipe = made()
    embeds, mask, negative, negative_mask = pipe.encode_prompt("a photo of a cat", max_sequence_length=16)
    assert embeds.shape == negative.shape == (1, 16, 16 * 3) and mask.shape == (1, 16)
    count = int(mask.sum())
    assert mask[0].tolist() == [0] * (16 - count) + [1] * count and int(negative_mask.sum()) == 1
    given = {"prompt": None, "prompt_embeds": embeds, "prompt_attention_mask": mask,
             "negative_prompt_embeds": negative, "negative_prompt_attention_mask": negative_mask}  # fmt: skip
    np.testing.assert_array_equal(images_of(pipe, PLAIN, **given), images_of(pipe, PLAIN))
    with pytest.warns(UserWarning, match="was cut off"):
        images_of(pipe, PLAIN, prompt="a photo of a dog and a cat " * 9)


def test_pictures_between_stages_are_diffusers():
    pipe = diffusion.LTX2LatentUpsamplePipeline(part("ltx2", "vae"), part("ltx2", "upsampler"))
    latents = sf.tensor(embeds("latents", [1, 4, 2, 3, 4]))
    calls = {
        "plain": {},
        "filtered": {"adain_factor": 0.4, "tone_map_compression_ratio": 0.6},
        "normalized": {"latents_normalized": True},
    }
    for name, call in calls.items():
        made = pipe(latents=latents, output_type="latent", **call).frames
        assert made.shape == (1, 4, 2, 6, 8)
        name = f"ltx2_upsampled.{name}"
        assert away(name, made.numpy(), PICTURES[name].numpy(), least=1) <= 1e-3
    clip = [picture(30, 50) for _ in range(6)]
    frames = pipe(video=clip, height=32, width=64, output_type="np", generator=sf.Generator().manual_seed(0)).frames
    assert frames.shape == (1, 9, 64, 128, 3)  # this encoder leaves as many frames as there are
    with pytest.raises(ValueError, match="one of them"):
        pipe()
    with pytest.raises(ValueError, match=r"must be \[B, C, T, h, w\]"):
        pipe(latents=latents[0])
    with pytest.raises(ValueError, match="tone_map_compression_ratio"):
        pipe(latents=latents, tone_map_compression_ratio=2.0)


BAD = [
    ({"num_frames": 4}, "num_frames must be 2 k \\+ 1, got 4; the closest are 3 and 5"),
    ({"height": 36}, "divisible by 8"),
    ({"frame_rate": 0.0}, "frame_rate must be positive"),
    ({"motion_speed": -1.0}, "motion_speed must be positive"),
    ({"stg_scale": 1.0, "spatio_temporal_guidance_blocks": None}, "stg_scale above 0 needs"),
    ({"stg_scale": 1.0, "spatio_temporal_guidance_blocks": [0.5]}, "numbers of blocks"),
    ({"noise_scale": 2.0}, "noise_scale must be in"),
    ({"audio_guidance_scale": float("nan")}, "audio_guidance_scale must be finite"),
    ({"latents": sf.zeros(1, 4, 3, 4)}, "latents must be"),
    ({"latents": sf.zeros(1, 5, 3, 4, 8)}, "latents must be"),
    ({"audio_latents": sf.zeros(1, 5)}, "audio_latents must be"),
    ({"audio_latents": sf.zeros(1, 2, 5, 3)}, "audio_latents must be"),
    ({"prompt": None, "prompt_embeds": sf.zeros(1, 16, 48)}, "prompt_attention_mask must be given together"),
    ({"decode_timestep": [0.1, 0.2]}, "decode_timestep must be one"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_bad_calls_say_what_is_wrong(changes, message):
    with pytest.raises(ValueError, match=message):
        images_of(made(), PLAIN, **changes)


def test_bad_conditions_say_what_is_wrong():
    pipe, case = pipeline_of(CASES["ltx2_condition_first"], "ltx2"), CASES["ltx2_condition_first"]

    def told(frames, **kwargs):
        return diffusion.LTX2VideoCondition(frames, crf=0, **kwargs)

    for condition, message in (
        (told(picture(8, 8), index=3), "index must be a whole number from -3 to 2"),
        (told(picture(8, 8), strength=1.5), "strength must be in"),
        (told(sf.zeros(1, 2, 8, 8)), "frames must be of 3 channels"),
    ):
        with pytest.raises(ValueError, match=message):
            images_of(pipe, case, conditions=condition)
    for condition in ("a picture", [picture(8, 8)]):
        with pytest.raises(TypeError, match="LTX2VideoCondition"):
            images_of(pipe, case, conditions=condition)
    with pytest.raises(TypeError, match="frames must be pictures"):
        images_of(pipe, case, conditions=told("a picture"))


def test_a_picture_is_needed():
    pipe = pipeline_of(CASES["ltx2_i2v"], "ltx2")
    with pytest.raises(ValueError, match="needs an image"):
        images_of(pipe, CASES["ltx2_i2v"], image=None)


@needs_libav
def test_pictures_are_told_as_those_of_the_training():
    """Compressed by H.264 as diffusers does it: another libx264 may round otherwise."""
    pipe, case = pipeline_of(CASES["ltx2_i2v_alone"], "ltx2"), CASES["ltx2_i2v_alone"]

    def compressed(shown, crf):
        return pipe._told_picture(shown.permute(2, 0, 1), crf).permute(1, 2, 0)

    shown = sf.tensor(picture(16, 32))
    want = PICTURES["ltx2_compressed"].numpy().astype(int)
    assert np.abs(compressed(shown, 33).numpy() - want).mean() < 0.5 < 5 < np.abs(shown.numpy() - want).mean()
    assert (compressed(shown, 0) == shown).all() and compressed(sf.tensor(picture(33, 47)), 33).shape == (32, 46, 3)
    for bad, crf, message in (
        (shown, 52, "crf must be 0 to 51"),
        (shown.float(), 33, "must be uint8"),
        (shown[:1], 33, "2 to"),
    ):
        with pytest.raises(ValueError, match=message):
            compressed(bad, crf)
    bare = images_of(pipe, case)
    default, as_said = images_of(pipe, case, image_crf=None), images_of(pipe, case, image_crf=33)
    np.testing.assert_array_equal(default, as_said)
    assert np.abs(default - bare).max() > 0.01
    with pytest.raises(ValueError, match="image_crf is for pictures"):
        images_of(pipe, case, image=sf.zeros(1, 3, 32, 32), image_crf=None)
    once = diffusion.LTX2VideoCondition(picture(40, 60), crf=33)
    through = pipeline_of(CASES["ltx2_condition_first"], "ltx2")
    told = images_of(through, CASES["ltx2_condition_first"], conditions=once)
    assert np.abs(told - images_of(through, CASES["ltx2_condition_first"])).max() > 0.01


def test_what_is_of_other_models_is_refused_by_name():
    with pytest.raises(NotImplementedError, match="enable_prompt_enhancement"):
        images_of(made(), PLAIN, enable_prompt_enhancement=True, system_prompt="better")
    with pytest.raises(NotImplementedError, match="duration_head"):
        made(duration_head=object())
    assert isinstance(made().transformer, models.LTX2VideoTransformer3DModel)


# ---- files of all networks

NETWORKS = ("connectors", "transformer", "vae", "audio_vae", "vocoder")
KINDS = {"ltx2-dev": "ltx2_guided", "ltx2.3-dev": "ltx2_of_23"}


def of_kind(kind):
    """A pipeline and its case, of 2.3 with the vocoder that its files have."""
    case = CASES[KINDS[kind]]
    pipe = pipeline_of(case, "ltx2")
    if kind == "ltx2.3-dev":
        config = next(c["config"] for c in families()["ltx2_audio"]["cases"] if c["class"] == "LTX2VocoderWithBWE")
        pipe.vocoder = models.LTX2VocoderWithBWE(**config).eval()
    return pipe, case


def whole_file(kind, pipe):
    """Lightricks' checkpoint with the pipeline's networks."""
    networks = {n: pipe.components[n] for n in NETWORKS}
    tensors = sf._core._to_single_file(
        kind, {n: dict(m.state_dict()) for n, m in networks.items()}, {n: dict(m.config) for n, m in networks.items()}
    )
    return {k: t.contiguous().clone() for k, t in tensors.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_all_networks_is_the_pipeline(kind, tmp_path):
    (pipe, case), path = of_kind(kind), tmp_path / "ltx2.safetensors"
    tensors = whole_file(kind, pipe)
    # by which diffusers knows it
    assert {
        "model.diffusion_model.av_ca_a2v_gate_adaln_single.emb.timestep_embedder.linear_1.weight",
        "vae.per_channel_statistics.mean-of-means",
        "audio_vae.per_channel_statistics.mean-of-means",
    } <= set(tensors)
    # which those have that Lightricks publishes
    sf.safetensors.save_file(tensors | {"vae.per_channel_statistics.channel": sf.zeros(4)}, path)
    pipe.save_pretrained(tmp_path / "folder")
    texts = {"text_encoder": pipe.text_encoder, "tokenizer": pipe.tokenizer}
    again = type(pipe).from_single_file(path, config=tmp_path / "folder", **texts)
    if kind == "ltx2-dev":
        want, got = output_of(pipe, case), output_of(again, case)
        np.testing.assert_array_equal(got.frames, want.frames)
        np.testing.assert_array_equal(got.audio.numpy(), want.audio.numpy())
    for name in NETWORKS:  # with the others, and alone
        model = pipe.components[name]
        alone = type(model).from_single_file(path, config=dict(model.config))
        for made in (again.components[name], alone):
            assert type(made) is type(model)
            assert all(sf.equal(t, made.state_dict()[k]) for k, t in model.state_dict().items()), name
    with pytest.raises(ValueError, match="has no 'text_encoder'"):
        type(pipe).from_single_file(path, config=tmp_path / "folder")


def test_files_of_all_networks_say_their_version(tmp_path):
    """Without a config the networks are of the published size, which these are not."""
    for kind, title in {"ltx2-dev": r"LTX-2", "ltx2.3-dev": r"LTX-2\.3"}.items():
        path = tmp_path / f"{kind}.safetensors"
        sf.safetensors.save_file(whole_file(kind, of_kind(kind)[0]), path)
        with pytest.raises(ValueError, match=f"is {title}, but its connectors lacks"):
            diffusion.LTX2Pipeline.from_single_file(path)
    tensors = sf.safetensors.load_file(path)
    sf.safetensors.save_file(tensors | {"duration_head.mlp_hidden.weight": sf.zeros(4, 4)}, path)
    with pytest.raises(NotImplementedError, match=r"is LTX-2\.5, which is not supported yet"):
        diffusion.LTX2Pipeline.from_single_file(path)
    alone = {k: t for k, t in tensors.items() if not k.startswith(("vae.", "audio_vae.", "vocoder."))}
    sf.safetensors.save_file(alone, path)
    with pytest.raises(ValueError, match="is the transformer of LTX-2 alone; load it by LTX2VideoTransformer3DModel"):
        diffusion.LTX2Pipeline.from_single_file(path)
