"""Pipelines beyond diffusers' pictures: arguments, components written in Python, callbacks, refusals."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import test_pipelines as golden
from pipeline_inputs import picture
from test_pipelines import filled, make, one_thread, scheduler  # noqa: F401

import scaffolding as sf
from scaffolding import diffusion
from scaffolding.diffusion import StableDiffusionPipeline

QUICK = {"num_inference_steps": 2, "output_type": "np", "seed": 0}


def test_guidance_in_two_calls_is_the_same():
    both = [make()("the cat", guidance_mode=mode, **QUICK).images for mode in ("batched", "sequential")]
    assert np.abs(both[0] - both[1]).max() < 1e-4
    inpaint = make("StableDiffusionInpaintPipeline", "unet9")
    call = {"image": picture(32, 32), "mask_image": picture(32, 32)[:, :, 0], **QUICK}
    both = [inpaint("the cat", guidance_mode=mode, **call).images for mode in ("batched", "sequential")]
    assert np.abs(both[0] - both[1]).max() < 1e-4


@pytest.mark.parametrize("name", ["t2i_ddim", "i2i_euler", "inpaint_unet9_strength", "xl_dpm"])
def test_keeping_what_is_made_of_the_prompt_changes_no_bit(name):
    kept, computed = (golden.run(golden.CASES[name], output_type="np", cache_prompt=on) for on in (True, False))
    np.testing.assert_array_equal(kept, computed)


def test_there_are_no_graphs_on_the_cpu():
    pipe = make()
    pipe("the cat", **QUICK)
    assert pipe.cuda_graphs == {"captures": 0, "replays": 0, "kept": 0, "why_not": "the denoiser is on cpu"}


def test_the_readme_of_the_first_days():
    config, vae = golden.CONFIGS["unet"], golden.CONFIGS["vae"]
    pipe = StableDiffusionPipeline(
        unet=diffusion.UNet2DConditionModel(**config),
        scheduler=diffusion.DDPMScheduler(),
        vae=diffusion.AutoencoderKL(**vae),
    )
    image = pipe(prompt_embeds=sf.randn(2, 77, 32), num_inference_steps=3)
    assert image.shape == (2, 3, 32, 32) and isinstance(image, sf.Tensor) and image.images is image
    assert 0 <= image.min() and image.max() <= 1
    named = pipe(prompt_embeds=sf.randn(1, 77, 32), num_inference_steps=1, output_type="np")
    assert named.images.shape == (1, 32, 32, 3)


def test_output_types():
    pipe = make()
    values = pipe("the cat", num_inference_steps=1, seed=0, output_type="pt").images
    assert values.shape == (1, 3, 32, 32) and values.dtype is sf.float32
    array = pipe("the cat", num_inference_steps=1, seed=0, output_type="np").images
    np.testing.assert_array_equal(array, values.permute(0, 2, 3, 1).numpy())
    frames = pipe("the cat", num_inference_steps=1, seed=0, output_type="sf_tensor").images
    assert frames.shape == (1, 32, 32, 3) and frames.dtype is sf.uint8 and frames.is_contiguous()
    np.testing.assert_array_equal(frames.numpy(), (array * 255).round().astype(np.uint8))
    assert pipe("the cat", num_inference_steps=1, output_type="latent").images.shape == (1, 4, 16, 16)
    images, nsfw = pipe("the cat", num_inference_steps=1, output_type="np", return_dict=False)
    assert nsfw is None and images.shape == (1, 32, 32, 3)
    with pytest.raises(ValueError, match="output_type must be"):
        pipe("the cat", output_type="jpeg")


def test_a_side_may_be_given_alone():
    for name in ("StableDiffusionPipeline", "StableDiffusionXLPipeline"):
        assert make(name)("the cat", height=24, **QUICK).images.shape == (1, 24, 32, 3)
        assert make(name)("the cat", width=40, **QUICK).images.shape == (1, 32, 40, 3)


def test_pil_pictures():
    image = pytest.importorskip("PIL.Image")
    pipe = make()
    made = pipe("the cat", num_inference_steps=1, seed=0).images
    assert isinstance(made[0], image.Image) and made[0].size == (32, 32)
    array = pipe("the cat", num_inference_steps=1, seed=0, output_type="np").images
    np.testing.assert_array_equal(np.array(made[0]), (array[0] * 255).round().astype(np.uint8))
    call = {"num_inference_steps": 2, "seed": 0, "output_type": "np"}
    i2i = make("StableDiffusionImg2ImgPipeline")
    a, b = (i2i("the cat", image=x, **call).images for x in (picture(40, 32), image.fromarray(picture(40, 32))))
    np.testing.assert_array_equal(a, b)


# ---- components of another kind


class Recorded(diffusion.UNet2DConditionModel):
    """A subclass whose forward sees every call."""

    def forward(self, sample, timestep, encoder_hidden_states, **kwargs):
        self.calls = [*getattr(self, "calls", []), (tuple(sample.shape), float(timestep), sorted(kwargs))]
        return super().forward(sample, timestep, encoder_hidden_states, **kwargs)


def filled_as(cls, like):
    model = cls.from_config(like.config)
    model.load_state_dict(like.state_dict())
    return model.eval()


@pytest.mark.filterwarnings("ignore:.*not known here")
def test_a_subclassed_network_is_called_by_its_own_forward():
    want = make()("the cat", **QUICK).images
    pipe = make(unet=None)
    pipe.unet = filled_as(Recorded, pipe.unet)
    np.testing.assert_allclose(pipe("the cat", **QUICK).images, want, atol=1e-5)
    assert [shape for shape, _, _ in pipe.unet.calls] == [(2, 4, 16, 16)] * 2
    xl = make("StableDiffusionXLPipeline")
    want = xl("the cat", **QUICK).images
    xl.unet = filled_as(Recorded, xl.unet)
    np.testing.assert_allclose(xl("the cat", **QUICK).images, want, atol=1e-5)
    assert xl.unet.calls[0][2] == ["added_cond_kwargs"]


def test_hooks_of_a_network_and_of_its_parts_run():
    pipe = make()
    pipe.unet = filled_as(diffusion.UNet2DConditionModel, pipe.unet)
    seen = []
    handles = [
        pipe.unet.register_forward_hook(lambda module, args, output: seen.append("unet")),
        pipe.unet.conv_in.register_forward_hook(lambda module, args, output: seen.append("conv_in")),
    ]
    pipe("the cat", **QUICK)
    assert seen == ["conv_in", "unet"] * 2
    for h in handles:
        h.remove()


def test_a_vae_with_a_decode_of_its_own():
    class Grey(diffusion.AutoencoderKL):
        def decode(self, z, return_dict=True, generator=None):
            return diffusion.AutoencoderKL.decode(self, z, return_dict=False)[0] * 0.0

    pipe = make()
    pipe.vae = filled_as(Grey, pipe.vae)
    assert np.all(pipe("the cat", **QUICK).images == 0.5)


def test_networks_that_are_written_in_python():
    class Net(sf.nn.Module):
        config = {"in_channels": 4, "sample_size": 8, "cross_attention_dim": 32}

        def forward(self, x, t, encoder_hidden_states):
            return x * 0.1 + encoder_hidden_states.mean()

    pipe = StableDiffusionPipeline(unet=Net(), scheduler=scheduler(), vae=filled("vae"))
    assert pipe(prompt_embeds=sf.ones(1, 77, 32), num_inference_steps=2).shape == (1, 3, 16, 16)


@pytest.mark.parametrize("name", ["ddim", "euler", "heun"])
def test_a_subclassed_scheduler_steps_by_its_own_methods(name):
    class Recorded(getattr(diffusion, type(scheduler(name)).__name__)):
        def step(self, model_output, timestep, sample, **kwargs):
            self.seen = [*getattr(self, "seen", []), float(timestep)]
            return super().step(model_output, timestep, sample, **kwargs)

    for pipeline, more in (
        ("StableDiffusionPipeline", {}),
        ("StableDiffusionImg2ImgPipeline", {"image": picture(32, 32)}),
    ):
        call = {"num_inference_steps": 4, "seed": 0, "output_type": "np", **more}
        want = make(pipeline, schedule=name)("the cat", **call).images
        own = Recorded.from_config(scheduler(name).config)
        np.testing.assert_array_equal(make(pipeline, scheduler=own)("the cat", **call).images, want)
        assert len(own.seen) >= 3 and own.seen == sorted(own.seen, reverse=True)


def test_a_tiny_autoencoder_in_the_vaes_place():
    tiny = diffusion.AutoencoderTiny(
        encoder_block_out_channels=(16, 16),
        decoder_block_out_channels=(16, 16),
        num_encoder_blocks=(1, 1),
        num_decoder_blocks=(1, 1),
    )
    pipe = make(vae=tiny)
    assert pipe("the cat", **QUICK).images.shape == (1, 32, 32, 3)


def test_float16_networks_and_the_vae_in_float32():
    pipe = make("StableDiffusionXLPipeline")
    want = pipe("the cat", **QUICK).images
    for name in ("unet", "vae", "text_encoder", "text_encoder_2"):
        setattr(pipe, name, filled_as(type(getattr(pipe, name)), getattr(pipe, name)).to(sf.float16))
    got = pipe("the cat", **QUICK).images
    assert pipe.vae.dtype is sf.float16 and np.isfinite(got).all() and np.abs(got - want).mean() < 0.02


# ---- callbacks, generators, prompts


def test_callbacks_see_steps_and_tensors():
    seen = []

    def callback(pipe, step, timestep, tensors):
        seen.append((step, int(timestep), sorted(tensors)))
        return {}

    pipe = make()
    pipe(
        "the cat",
        callback_on_step_end=callback,
        callback_on_step_end_tensor_inputs=["latents", "negative_prompt_embeds"],
        **QUICK,
    )
    assert (
        [s for s, _, _ in seen] == [0, 1]
        and seen[0][2] == ["latents", "negative_prompt_embeds"]
        and pipe.num_timesteps == 2
    )
    old = []
    pipe(
        "the cat",
        callback=lambda step, timestep, latents: old.append((step, latents.shape)),
        callback_steps=2,
        num_inference_steps=3,
        output_type="np",
    )
    assert old == [(0, (1, 4, 16, 16)), (2, (1, 4, 16, 16))]
    with pytest.raises(ValueError, match="callback_on_step_end_tensor_inputs"):
        pipe("the cat", callback_on_step_end=callback, callback_on_step_end_tensor_inputs=["unet"])
    with pytest.raises(ZeroDivisionError):
        pipe("the cat", callback_on_step_end=lambda *a: 1 / 0, **QUICK)


def test_a_picture_does_not_depend_on_its_batch():
    alone = make()("the cat", generator=sf.Generator().manual_seed(7), num_inference_steps=2, output_type="np").images
    generators = [sf.Generator().manual_seed(s) for s in (3, 7)]
    two = make()(["the dog", "the cat"], generator=generators, num_inference_steps=2, output_type="np").images
    assert np.abs(two[1] - alone[0]).max() < 1e-4


def weights_of(prompt):
    return [(text, round(weight, 4)) for text, weight in sf._core._pipelines.parse_weights(prompt)]


@pytest.mark.parametrize(
    "prompt, parts",
    [
        ("plain", [("plain", 1.0)]),
        ("(word)", [("word", 1.1)]),
        ("a ((b)) c", [("a ", 1.0), ("b", 1.21), (" c", 1.0)]),
        ("(a:1.3)", [("a", 1.3)]),
        ("(a (b:0.5) c:2)", [("a ", 2.0), ("b", 1.0), (" c", 2.0)]),
        ("[a]", [("a", 0.9091)]),
        ("([a])", [("a", 1.0)]),
        (r"\(a\) \[b\] c\\", [("(a) [b] c\\", 1.0)]),
        ("(unclosed", [("unclosed", 1.1)]),
        ("closed) too]", [("closed) too]", 1.0)]),
        ("a:1.2)", [("a:1.2)", 1.0)]),
        ("a (b : + 1.5 )", [("a ", 1.0), ("b : + 1.5 ", 1.1)]),
        ("(b: +1.5 )", [("b", 1.5)]),
        ("one BREAK two", [("one", 1.0), ("BREAK", -1.0), ("two", 1.0)]),
        ("BREAKFAST", [("BREAKFAST", 1.0)]),
        ("", []),
    ],
)
def test_prompt_weights(prompt, parts):
    assert weights_of(prompt) == parts


def test_weights_scale_the_embeds_of_their_words():
    pipe = make()
    plain = pipe.encode_prompt("the cat", do_classifier_free_guidance=False)[0]
    same, _ = pipe.encode_prompt("the cat", do_classifier_free_guidance=False, prompt_syntax="a1111")
    np.testing.assert_allclose(same.numpy(), plain.numpy(), atol=1e-6)
    weighted = pipe.encode_prompt("the (cat:1.5)", do_classifier_free_guidance=False, prompt_syntax="a1111")[0].numpy()
    raw = plain.numpy().copy()
    raw[:, 2] *= 1.5  # begin of text, "the", "cat"
    np.testing.assert_allclose(weighted, raw * (plain.numpy().mean() / raw.mean()), rtol=1e-3, atol=1e-5)


def test_long_prompts_take_chunks():
    pipe = make()
    long = "the cat and the dog " * 40  # 160 tokens
    positive, negative = pipe.encode_prompt(long, prompt_syntax="a1111", negative_prompt="dog")
    assert positive.shape == negative.shape == (1, 3 * 77, 32)
    first = pipe.encode_prompt("the cat and the dog " * 15, do_classifier_free_guidance=False, prompt_syntax="a1111")[0]
    np.testing.assert_allclose(positive[:, :77].numpy(), first[:, :77].numpy(), atol=1e-5)
    broken = pipe.encode_prompt("the cat BREAK the dog", do_classifier_free_guidance=False, prompt_syntax="a1111")[0]
    assert broken.shape[1] == 2 * 77
    with pytest.warns(UserWarning, match="was cut off: .*dog"):
        pipe(long, **QUICK)
    assert pipe(long, prompt_syntax="a1111", **QUICK).images.shape == (1, 32, 32, 3)
    xl = make("StableDiffusionXLPipeline")
    assert xl(long, negative_prompt="dog", prompt_syntax="a1111", **QUICK).images.shape == (1, 32, 32, 3)


@pytest.mark.filterwarnings("ignore:.*was cut off")
def test_enormous_and_empty_prompts():
    pipe = make()
    for prompt in ("", " ", "cat " * 2500, "(" * 90 + "cat", "\x00", "\u4e2d" * 10000):
        for syntax in ("plain", "a1111"):
            if not (syntax == "a1111" and len(prompt) > 9000):
                assert np.isfinite(
                    pipe(prompt, num_inference_steps=1, prompt_syntax=syntax, output_type="np").images
                ).all()
    assert pipe.encode_prompt("cat " * 2500, prompt_syntax="a1111")[0].shape == (1, 34 * 77, 32)
    with pytest.raises(ValueError, match="more than 100 brackets"):
        pipe("(" * 5000, prompt_syntax="a1111", **QUICK)
    with pytest.raises(ValueError, match="a weight must be a number"):
        pipe("(cat:1.2.3)", prompt_syntax="a1111", **QUICK)


# ---- refusals


@pytest.mark.parametrize(
    "call, message",
    [
        ({"height": 30}, "divisible by 8"),
        ({"width": 0}, "divisible by 8"),
        ({"num_inference_steps": 0}, "num_inference_steps"),
        ({"num_inference_steps": 1001}, "1000"),
        ({"num_inference_steps": -3}, "num_inference_steps"),
        ({"guidance_scale": float("nan")}, "guidance_scale must be finite"),
        ({"guidance_scale": float("inf")}, "guidance_scale must be finite"),
        ({"guidance_rescale": float("nan")}, "guidance_rescale"),
        ({"eta": float("nan")}, "eta must be finite"),
        ({"num_images_per_prompt": 0}, "num_images_per_prompt"),
        ({"clip_skip": 9}, "clip_skip"),
        ({"clip_skip": -1}, "clip_skip"),
        ({"prompt": None}, "needs prompt or prompt_embeds"),
        ({"prompt": []}, "must not be an empty list"),
        ({"prompt_embeds": sf.zeros(1, 77, 32)}, "prompt or prompt_embeds, not both"),
        ({"prompt": None, "prompt_embeds": sf.zeros(1, 77)}, r"\[prompts, tokens, features\]"),
        ({"prompt": None, "prompt_embeds": sf.zeros(1, 77, 31)}, "cross_attention_dim"),
        (
            {"prompt": None, "prompt_embeds": sf.zeros(1, 77, 32), "negative_prompt_embeds": sf.zeros(1, 70, 32)},
            "one shape",
        ),
        ({"negative_prompt": "a", "negative_prompt_embeds": sf.zeros(1, 77, 32)}, "not both"),
        ({"negative_prompt": ["a", "b"]}, "one for each of 1"),
        ({"generator": [sf.Generator(), sf.Generator()]}, "list of generators"),
        ({"seed": 1, "generator": sf.Generator()}, "seed or generator"),
        ({"latents": sf.zeros(1, 3, 16, 16)}, "latents must be"),
        ({"timesteps": [1, 2], "sigmas": [1.0]}, "not both"),
        ({"sigmas": [1.0]}, "sigmas"),
        ({"guidance_mode": "both"}, "guidance_mode"),
        ({"prompt_syntax": "xml"}, "prompt_syntax"),
    ],
)
def test_refused_calls(call, message):
    with pytest.raises(ValueError, match=message):
        make()(**{"prompt": "the cat", "num_inference_steps": 1, "output_type": "np", **call})


def test_refused_types():
    pipe = make()
    with pytest.raises(TypeError, match="str or a list of str"):
        pipe(b"\xff\xfe")
    with pytest.raises(TypeError, match="str or a list of str"):
        pipe(["the cat", 3])
    with pytest.raises(UnicodeEncodeError):
        pipe("cat \ud800")
    with pytest.raises(TypeError, match="unexpected keyword argument 'promt'"):
        pipe(promt="the cat")
    with pytest.raises(NotImplementedError, match="IP adapters"):
        pipe("the cat", ip_adapter_image=picture(8, 8))
    with pytest.raises(TypeError, match="Generator"):
        pipe("the cat", generator=7)
    with pytest.raises(TypeError, match="unet: must be a UNet2DConditionModel"):
        StableDiffusionPipeline(unet=filled("vae"))
    with pytest.raises(TypeError, match="scheduler"):
        StableDiffusionPipeline(unet=filled("unet"), scheduler="ddim")
    with pytest.raises(ValueError, match="strength"):
        make("StableDiffusionImg2ImgPipeline")("the cat", image=picture(32, 32), strength=1.2)
    with pytest.raises(ValueError, match="leaves no step"):
        make("StableDiffusionImg2ImgPipeline")("the cat", image=picture(32, 32), strength=0.01, num_inference_steps=5)
    with pytest.raises(ValueError, match="needs an image"):
        make("StableDiffusionImg2ImgPipeline")("the cat")
    with pytest.raises(ValueError, match="PIL pictures, arrays or tensors"):
        make("StableDiffusionImg2ImgPipeline")("the cat", image="cat.png")
    with pytest.raises(ValueError, match="pooled_prompt_embeds"):
        make("StableDiffusionXLPipeline")(prompt_embeds=sf.zeros(1, 77, 64))
    with pytest.raises(ValueError, match="denoising_start must be below"):
        make("StableDiffusionXLImg2ImgPipeline")("cat", image=picture(32, 32), denoising_start=0.6, denoising_end=0.5)
    with pytest.raises(ValueError, match="requires_aesthetics_score"):
        make("StableDiffusionXLImg2ImgPipeline", requires_aesthetics_score=True)(
            "cat", image=picture(32, 32), strength=0.9
        )


def test_embeds_of_a_prompt_are_those_of_the_run():
    pipe = make()
    positive, negative = pipe.encode_prompt("the cat", negative_prompt="dog")
    call = {"num_inference_steps": 2, "seed": 0, "output_type": "np"}
    a = pipe("the cat", negative_prompt="dog", **call).images
    b = pipe(prompt_embeds=positive, negative_prompt_embeds=negative, **call).images
    np.testing.assert_array_equal(a, b)


# ---- runs between their steps


def test_a_run_in_steps_is_the_call():
    pipe = make()
    call = {"num_inference_steps": 3, "output_type": "np"}
    want = [pipe("the cat", seed=s, **call).images for s in (0, 1)]
    runs = [pipe.start("the cat", seed=s, **call) for s in (0, 1)]
    while not all(r.done for r in runs):  # in turn, each with its own scheduler
        for r in runs:
            r.step()
    assert [r.at for r in runs] == [3, 3] and runs[0].steps == 3
    for r, images in zip(runs, want):
        np.testing.assert_array_equal(r.finish().images, images)
    with pytest.raises(RuntimeError, match="no step left after 3"):
        runs[0].step()


def test_what_a_run_can_do_between_steps():
    pipe = make()
    generators = [sf.Generator().manual_seed(s) for s in (3, 7)]
    run = pipe.start(["the dog", "the cat"], generator=generators, num_inference_steps=4, output_type="np")
    run.step()
    assert run.preview(1, "np").shape == (1, 32, 32, 3)
    run.keep_samples([1])
    while not run.done:
        run.step()
    alone = pipe("the cat", generator=sf.Generator().manual_seed(7), num_inference_steps=4, output_type="np").images
    assert np.abs(run.finish().images - alone).max() < 1e-4
    run = pipe.start("the cat", num_inference_steps=4, seed=0, output_type="latent")
    with pytest.raises(ValueError, match="latents must stay of shape"):
        run.latents = run.latents[:, :2]
    with pytest.raises(ValueError, match="places in a batch of 1, got 1"):
        run.keep_samples([1])
    run.latents = run.latents * 0
    run.interrupt()
    assert run.done and float(run.finish().images.abs().max()) == 0
    with pytest.raises(TypeError, match="unexpected keyword argument 'promt'"):
        pipe.start(promt="the cat")


@pytest.mark.parametrize("output_type", ["pil", "np", "latent"])
def test_a_call_leaves_no_threads_behind(output_type):
    # Those of each thread that called would be more than there are processors: all then wait by sleeping.
    threads, pipe, seen = sf.get_num_threads(), make(), []

    def running():
        return set(os.listdir("/proc/self/task"))

    def callback(*_):
        seen.append(running())
        return {}

    def call():
        seen.append(running())
        pipe(
            "the cat",
            height=256,
            width=256,
            num_inference_steps=1,
            output_type=output_type,
            callback_on_step_end=callback,
        )
        started = seen[1] - seen[0]
        assert len(started) == 2
        for _ in range(500):  # a thread that has left is listed until the system has cleared it away
            if not started & running():
                break
            time.sleep(0.01)
        seen.append(running())

    sf.set_num_threads(3)
    try:
        with ThreadPoolExecutor(1) as caller:
            caller.submit(call).result()
    finally:
        sf.set_num_threads(threads)
    before, inside, after = seen
    assert not (inside - before) & after
