"""Pipelines on a GPU or its emulator (SF_CUDA_LIBRARY): captured denoisers, what is kept of the prompt,
no waiting between steps, memory for the VAE.
"""

import ctypes
import gc
import os

import golden_pipelines
import pytest
import test_pipelines
from pipeline_inputs import mask, picture
from test_pipelines import make, one_thread  # noqa: F401

import scaffolding as sf
from scaffolding import cuda, diffusion
from scaffolding.data.image import read_image

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
QUICK = {"num_inference_steps": 2, "output_type": "latent", "seed": 0}
PICTURES = {
    "StableDiffusionPipeline": {},
    "StableDiffusionImg2ImgPipeline": {"image": picture(32, 32), "strength": 1.0},
    "StableDiffusionInpaintPipeline": {"image": picture(32, 32), "mask_image": mask(32, 32), "strength": 1.0},
    "StableDiffusionXLPipeline": {},
    "StableDiffusionXLImg2ImgPipeline": {"image": picture(32, 32), "strength": 1.0},
    "StableDiffusionXLInpaintPipeline": {"image": picture(32, 32), "mask_image": mask(32, 32), "strength": 1.0},
}


@pytest.fixture(autouse=True)
def own_networks(monkeypatch):
    """Networks that move are not those of other tests."""
    monkeypatch.setattr(golden_pipelines, "made_networks", {})


def on_cuda(*args, **kwargs):
    return make(*args, **kwargs).to("cuda")


def numbers(pipe, **call):
    return pipe("the cat", **{**QUICK, **call}).images.cpu().tolist()


def emulated():
    """The emulator's own functions; skips on a GPU, which does not count."""
    path = os.environ.get("SF_CUDA_LIBRARY", "")
    library = ctypes.CDLL(path) if path else None
    if library is None or not hasattr(library, "sf_cuda_emulator_count"):
        pytest.skip("counts are the emulator's")
    library.sf_cuda_emulator_count.restype = ctypes.c_int64
    library.sf_cuda_emulator_bytes_in_use.restype = ctypes.c_size_t
    library.sf_cuda_emulator_set_memory.argtypes = [ctypes.c_size_t]
    return library


def counts(library):
    return {name: library.sf_cuda_emulator_count(i) for i, name in enumerate(("waits", "to_host", "from_host"))}


@pytest.mark.parametrize("name", PICTURES)
def test_captured_pictures_are_bit_equal(name):
    pipe = on_cuda(name)
    call = PICTURES[name]
    plain = numbers(pipe, capture=False, cache_prompt=False, **call)
    assert pipe.cuda_graphs == {"captures": 0, "replays": 0, "kept": 0, "why_not": ""}
    assert numbers(pipe, capture=False, **call) == plain
    assert numbers(pipe, cache_prompt=False, **call) == plain
    assert numbers(pipe, **call) == plain
    made = pipe.cuda_graphs
    assert made["captures"] == 2 and made["replays"] >= 2  # with the prompt kept, and without
    assert numbers(pipe, **call) == plain and pipe.cuda_graphs["captures"] == 2


def test_weights_of_a_captured_denoiser_need_no_copy_and_settings_of_cudnn_are_part_of_it():
    pipe = on_cuda("StableDiffusionPipeline")
    assert pipe.unet.conv_in.weight.is_contiguous()
    plain = numbers(pipe, capture=False)
    assert numbers(pipe) == plain and pipe.cuda_graphs["captures"] == 1
    assert (
        pipe.unet.conv_in.weight.is_contiguous(memory_format=sf.channels_last)
        and not pipe.unet.conv_in.weight.is_contiguous()
    )
    assert numbers(pipe) == plain and pipe.cuda_graphs["captures"] == 1
    sf.backends.cudnn.allow_tf32 = True
    numbers(pipe)
    assert pipe.cuda_graphs["captures"] == 2


def test_each_shape_is_captured_once_and_twelve_are_kept():
    pipe = on_cuda()
    sizes = [(8 * i, 8 * j) for i in range(1, 5) for j in range(1, 4)] + [(8, 32)]

    def drawn(size, **call):
        return numbers(pipe, height=size[0], width=size[1], num_inference_steps=1, **call)

    want = [drawn(size, capture=False) for size in sizes]
    for _ in range(2):
        assert [drawn(size) for size in sizes[:12]] == want[:12]
        assert pipe.cuda_graphs["captures"] == 12
    assert drawn(sizes[12]) == want[12]
    assert pipe.cuda_graphs["captures"] == 13 and pipe.cuda_graphs["kept"] == 12
    assert drawn(sizes[0]) == want[0] and pipe.cuda_graphs["captures"] == 14  # that was longest without use


def test_other_prompts_in_turn():
    pipe = on_cuda()
    texts = ["the cat", "a dog", "the cat"]
    want = [pipe(t, capture=False, **QUICK).images.cpu().tolist() for t in texts]
    assert [pipe(t, **QUICK).images.cpu().tolist() for t in texts] == want
    assert want[0] != want[1] and pipe.cuda_graphs["captures"] == 1


def test_guidance_in_two_calls_has_a_graph_for_each_text():
    pipe = on_cuda()
    want = numbers(pipe, guidance_mode="sequential", capture=False)
    assert numbers(pipe, guidance_mode="sequential") == want
    assert numbers(pipe, guidance_mode="sequential", negative_prompt="a dog") != want
    assert numbers(pipe, guidance_mode="sequential") == want
    assert pipe.cuda_graphs["captures"] == 2


def test_other_weights_are_captured_anew():
    pipe = on_cuda()
    before = numbers(pipe)
    with sf.no_grad():
        pipe.unet.conv_out.weight.mul_(0.5)
    want = numbers(pipe, capture=False)
    assert want != before and numbers(pipe) == want and pipe.cuda_graphs["captures"] == 2
    pipe.to(sf.bfloat16)
    assert numbers(pipe) == numbers(pipe, capture=False) and pipe.cuda_graphs["captures"] == 3


def test_weights_that_a_callback_changes_count_from_the_next_step_on():
    def change(pipe, step, timestep, tensors):
        with sf.no_grad():
            pipe.unet.conv_out.weight.mul_(0.9)
        return {}

    results = []
    for capture in (False, True):
        pipe = on_cuda()
        results.append(numbers(pipe, capture=capture, callback_on_step_end=change))
        golden_pipelines.made_networks.clear()
    assert results[0] == results[1]


def test_callbacks_read_and_replace_tensors():
    seen = {False: [], True: []}
    pipe = on_cuda()

    def callback(capture):
        def at_end(pipe, step, timestep, tensors):
            seen[capture].append((timestep.item(), tensors["latents"].cpu().tolist()))
            return {
                "latents": tensors["latents"] * 0.5,
                "prompt_embeds": tensors["prompt_embeds"] * 2 if step == 0 else tensors["prompt_embeds"],
            }

        return {
            "callback_on_step_end": at_end,
            "callback_on_step_end_tensor_inputs": ["latents", "prompt_embeds"],
            "capture": capture,
        }

    assert numbers(pipe, **callback(False)) == numbers(pipe, **callback(True))
    assert seen[False] == seen[True] and len(seen[True]) == 2


def test_hooks_see_every_call_and_say_why_there_is_no_graph():
    pipe, calls = on_cuda(), []
    want = numbers(pipe)
    handle = pipe.unet.mid_block.register_forward_hook(lambda *_: calls.append(1))
    assert "mid_block is called through hooks" in pipe.cuda_graphs["why_not"]
    assert numbers(pipe) == want and len(calls) == 2 and pipe.cuda_graphs["captures"] == 1
    handle.remove()
    assert numbers(pipe) == want and pipe.cuda_graphs["why_not"] == ""


def test_graphs_are_shared_given_back_and_switched_off():
    pipe = on_cuda()
    want = numbers(pipe)
    held = cuda.memory_stats()["graph_pool_bytes"]
    assert held > 0
    other = diffusion.StableDiffusionPipeline.from_pipe(pipe)
    assert numbers(other) == want and other.cuda_graphs["captures"] == 1
    pipe.enable_cuda_graphs(False)
    assert cuda.memory_stats()["graph_pool_bytes"] < held
    assert numbers(pipe) == want and pipe.cuda_graphs["captures"] == 1
    assert pipe.cuda_graphs["why_not"] == "enable_cuda_graphs(False)"
    pipe.enable_cuda_graphs()
    assert numbers(pipe) == want and pipe.cuda_graphs["captures"] == 2
    pipe.to("cpu")
    assert pipe.cuda_graphs["kept"] == 0 and "on cpu" in pipe.cuda_graphs["why_not"]


def test_frames_stay_on_the_gpu():
    pipe = on_cuda()
    call = {"num_inference_steps": 1, "seed": 0}
    frames = pipe("the cat", output_type="sf_tensor", **call).images
    assert frames.device.type == "cuda" and frames.dtype is sf.uint8 and frames.shape == (1, 32, 32, 3)
    array = pipe("the cat", output_type="np", **call).images
    assert frames.cpu().numpy().tolist() == (array * 255).round().astype("uint8").tolist()


class Stub(sf.nn.Module):
    """A denoiser that costs nothing: what a step waits for is then the loop's and the scheduler's."""

    config = {"in_channels": 4, "sample_size": 4, "cross_attention_dim": 8}
    dtype, device = sf.float32, sf.device("cuda")

    def forward(self, x, t, encoder_hidden_states):
        return x * 0.1 + encoder_hidden_states.mean()


SCHEDULERS = {
    name: (name, {})
    for name in (
        "DDIMScheduler",
        "DDPMScheduler",
        "EulerDiscreteScheduler",
        "EulerAncestralDiscreteScheduler",
        "DPMSolverMultistepScheduler",
        "PNDMScheduler",
        "FlowMatchEulerDiscreteScheduler",
        "HeunDiscreteScheduler",
        "UniPCMultistepScheduler",
        "LCMScheduler",
        "CogVideoXDDIMScheduler",
    )
} | {
    "runge-kutta": ("PNDMScheduler", {"skip_prk_steps": False}),
    "sde": ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    "stochastic": ("FlowMatchEulerDiscreteScheduler", {"stochastic_sampling": True}),
    "thresholding": ("DDIMScheduler", {"thresholding": True, "clip_sample": False}),
    "thresholding multistep": ("DPMSolverMultistepScheduler", {"thresholding": True}),
}


@pytest.mark.parametrize("case", SCHEDULERS)
@pytest.mark.parametrize("pipeline", ["StableDiffusionPipeline", "StableDiffusionInpaintPipeline"])
def test_no_step_waits_for_the_gpu(case, pipeline):
    if pipeline == "StableDiffusionInpaintPipeline" and case not in (
        "DDIMScheduler",
        "EulerDiscreteScheduler",
        "UniPCMultistepScheduler",
    ):
        pytest.skip("adds noise as these three do")
    library = emulated()
    cls, config = SCHEDULERS[case]
    pipe = getattr(diffusion, pipeline)(
        vae=test_pipelines.filled("vae").to("cuda"),
        unet=Stub(),
        scheduler=getattr(diffusion, cls)(**config),
        text_encoder=None,
        tokenizer=None,
    )
    seen = []

    def at_end(pipe, step, timestep, tensors):
        seen.append(counts(library))
        return {}

    call = (
        {"image": picture(8, 8), "mask_image": mask(8, 8), "height": 8, "width": 8, "strength": 1.0}
        if "Inpaint" in pipeline
        else {}
    )
    eta = {"eta": 0.5} if cls == "DDIMScheduler" else {}
    embeds = sf.ones(1, 3, 8, device="cuda")
    images = pipe(
        prompt_embeds=embeds,
        num_inference_steps=5,
        generator=sf.Generator("cuda").manual_seed(0),
        callback_on_step_end=at_end,
        callback_on_step_end_tensor_inputs=["latents"],
        output_type="latent",
        **eta,
        **call,
    ).images
    assert bool(images.isfinite().all().cpu())
    assert len(seen) >= 5 and all(s == seen[0] for s in seen)


def test_no_step_of_the_twelfth_scheduler_waits_for_the_gpu():
    """CogVideoXDPMScheduler's step takes the answer before and its timestep, which pictures' pipelines do not give."""
    library = emulated()
    scheduler = sf.diffusion.CogVideoXDPMScheduler()
    scheduler.set_timesteps(6)
    x, old, seen = sf.randn(1, 4, 4, 4).to("cuda"), None, []
    generator = sf.Generator("cuda").manual_seed(0)
    times = [int(t) for t in scheduler.timesteps.tolist()]
    for before, now in zip([None, *times], times):
        x, old = scheduler.step(x * 0.1, old, now, before, x, generator=generator, return_dict=False)
        seen.append(counts(library))
    assert all(s == seen[0] for s in seen), seen
    x.sum().item()
    assert counts(library)["to_host"] > seen[0]["to_host"]


def test_noise_of_a_generator_on_the_host_is_all_that_a_step_copies_and_nothing_waits_for_it():
    library = emulated()
    pipe = diffusion.StableDiffusionPipeline(
        vae=None, unet=Stub(), scheduler=diffusion.DDPMScheduler(), text_encoder=None, tokenizer=None
    )
    seen = []
    pipe(
        prompt_embeds=sf.ones(1, 3, 8, device="cuda"),
        num_inference_steps=4,
        seed=0,
        callback_on_step_end=lambda *_: seen.append(counts(library)) or {},
        output_type="latent",
    )
    assert [s["from_host"] - seen[0]["from_host"] for s in seen] == [0, 1, 2, 2]
    assert all(s["to_host"] == seen[0]["to_host"] and s["waits"] == seen[0]["waits"] for s in seen)


def test_thresholds_on_the_gpu_are_the_hosts():
    for dtype in (sf.float32, sf.float16):
        sample = sf.randn(3, 4, 5, 7, generator=sf.Generator().manual_seed(0)).to(dtype) * sf.tensor(
            [0.1, 3.0, 30.0]
        ).to(dtype).reshape(3, 1, 1, 1)
        sample[0, 0, 0, 0] = float("inf")
        for ratio, most in ((0.995, 1.0), (0.5, 4.0), (1.0, 100.0), (0.0, 2.0)):
            make_one = lambda: diffusion.DDIMScheduler(  # noqa: E731, B023
                thresholding=True,
                clip_sample=False,
                dynamic_thresholding_ratio=ratio,
                sample_max_value=most,
                prediction_type="sample",  # noqa: B023
            )
            results = []
            for device in ("cpu", "cuda"):
                schedule = make_one()
                schedule.set_timesteps(10)
                out = schedule.step(sample.to(device), 900, (sample * 0.5).to(device))
                results.append(out.pred_original_sample.cpu())
            assert [str(v) for v in results[0].flatten().tolist()] == [str(v) for v in results[1].flatten().tolist()]


def _vae():
    sf.manual_seed(0)
    blocks = {"down_block_types": ["DownEncoderBlock2D"] * 3, "up_block_types": ["UpDecoderBlock2D"] * 3}
    return (
        diffusion.AutoencoderKL(block_out_channels=[8, 16, 16], norm_num_groups=4, sample_size=32, **blocks)
        .to("cuda")
        .eval()
    )


def _decoded(vae, latents):
    """(what a pipeline decodes, the most memory it took): its denoiser changes nothing here."""
    pipe = diffusion.StableDiffusionPipeline(
        vae=vae, unet=Stub(), scheduler=diffusion.DDIMScheduler(), text_encoder=None, tokenizer=None
    )
    gc.collect()
    cuda.empty_cache()
    before = cuda.memory_allocated()
    cuda.reset_peak_memory_stats()
    embeds = sf.ones(latents.shape[0], 3, 8, device="cuda")
    images = pipe(
        prompt_embeds=embeds, latents=latents, num_inference_steps=1, output_type="pt", guidance_scale=1.0
    ).images
    return images.cpu().tolist(), cuda.max_memory_allocated() - before


def test_the_vae_decodes_in_slices_and_then_in_tiles_when_memory_is_short():
    library, vae, latents = (
        emulated(),
        _vae(),
        sf.randn(3, 4, 16, 16, generator=sf.Generator().manual_seed(0)).to("cuda"),
    )
    whole, sliced, tiled = {}, {}, {}
    for found, slicing, tiling in ((whole, False, False), (sliced, True, False), (tiled, True, True)):
        vae.enable_slicing() if slicing else vae.disable_slicing()
        vae.enable_tiling() if tiling else vae.disable_tiling()
        found["images"], found["peak"] = _decoded(vae, latents)
    vae.disable_slicing()
    vae.disable_tiling()
    assert whole["peak"] > 2 * sliced["peak"] > 2 * tiled["peak"] and whole["images"] != tiled["images"]
    gc.collect()
    cuda.empty_cache()
    try:
        used = library.sf_cuda_emulator_bytes_in_use()
        for wanted, other in ((whole, None), (sliced, False), (tiled, True)):  # short of what the larger way takes
            free = 1 << 30 if other is None else vae.decode_bytes(list(latents.shape), latents.dtype, other, False) - 1
            library.sf_cuda_emulator_set_memory(used + free)
            images, peak = _decoded(vae, latents)
            assert images == wanted["images"] and peak == pytest.approx(wanted["peak"], rel=0.01)
            assert not vae.use_slicing and not vae.use_tiling
    finally:
        library.sf_cuda_emulator_set_memory(8 << 30)


@pytest.mark.parametrize("batch, side, dtype", [(1, 16, sf.float32), (2, 8, sf.float32), (1, 16, sf.bfloat16)])
def test_the_estimate_for_the_vae_is_above_what_it_takes(batch, side, dtype):
    vae = _vae().to(dtype)
    latents = sf.randn(batch, 4, side, side).to("cuda").to(dtype)
    cuda.empty_cache()
    before = cuda.memory_allocated()
    cuda.reset_peak_memory_stats()
    with sf.no_grad():
        vae.decode(latents)
    peak = cuda.max_memory_allocated() - before
    # rows of convolutions, which cuDNN does without
    assert peak <= vae.decode_bytes(list(latents.shape), dtype, False, False) <= 6 * peak


def test_the_program_draws_on_the_gpu(program, tmp_path):
    on_the_cpu = make()
    on_the_cpu.save_pretrained(str(tmp_path / "tiny"))
    call = ["txt2img", "the cat", "--model", tmp_path / "tiny", "--steps", 1, "--seed", 3, "--quiet"]
    for name, options in (("a", ["--device", "cuda"]), ("b", ["--device", "cuda", "--no-capture"]), ("cpu", [])):
        done = program(*call, *options, "-o", tmp_path / f"{name}.png")
        assert done.returncode == 0, done.stderr
    a, b, cpu = (read_image(tmp_path / f"{name}.png").to(sf.int32) for name in ("a", "b", "cpu"))
    assert a.tolist() == b.tolist() and (a - cpu).abs().max().item() <= 1
    refused = program(*call, "--device", "tpu")
    assert refused.returncode != 0 and "tpu" in refused.stderr


def test_running_out_of_memory_names_the_part_of_a_model():
    library, pipe = emulated(), on_cuda()
    latents, text = sf.randn(2, 4, 64, 64).to("cuda"), sf.randn(2, 7, pipe.unet.config.cross_attention_dim).to("cuda")
    gc.collect()
    cuda.empty_cache()
    library.sf_cuda_emulator_fail_allocations_after.argtypes = [ctypes.c_int64]
    library.sf_cuda_emulator_fail_allocations_after(0)
    try:
        with pytest.raises(cuda.OutOfMemoryError, match="asked for by .*UNet2DConditionModel"):
            pipe.unet(latents, 1, text)
    finally:
        library.sf_cuda_emulator_fail_allocations_after(-1)
    assert numbers(pipe) == numbers(pipe, capture=False)


def lora_of(pipe, layers, rank, seed, alpha=None):
    """A LoRA of the UNet's layers whose names end so."""
    sf.manual_seed(seed)
    tensors = {}
    for name, module in pipe.unet.named_modules():
        if not name.endswith(layers) or getattr(module, "weight", None) is None:
            continue
        out, into, *kernel = module.weight.shape
        tensors[f"unet.{name}.lora.down.weight"] = sf.randn(rank, into, *kernel) * 0.2
        tensors[f"unet.{name}.lora.up.weight"] = sf.randn(out, rank, *[1 for _ in kernel]) * 0.2
        if alpha is not None:
            tensors[f"unet.{name}.alpha"] = sf.tensor(float(alpha))
    return tensors


ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")


def test_loras_of_the_same_layers_take_turns_in_one_captured_denoiser():
    pipe = on_cuda()
    golden_pipelines.made_networks.clear()
    there = make()
    one, other = lora_of(there, ATTENTION, 4, 1), lora_of(there, ATTENTION, 8, 2, alpha=3)
    bare = numbers(pipe)
    for p in (pipe, there):
        p.load_lora_weights(one, adapter_name="style")
    first = numbers(pipe)
    captured = pipe.cuda_graphs["captures"]
    assert first == numbers(pipe, capture=False) and pipe.cuda_graphs["captures"] == captured == 2
    near = {"abs": 1e-4, "rel": 1e-3}
    assert sf.tensor(first).flatten().tolist() == pytest.approx(sf.tensor(numbers(there)).flatten().tolist(), **near)
    for p in (pipe, there):
        p.load_lora_weights(other, adapter_name="style", hotswap=True)
    second = numbers(pipe)
    assert second != first and second == numbers(pipe, capture=False)
    assert sf.tensor(second).flatten().tolist() == pytest.approx(sf.tensor(numbers(there)).flatten().tolist(), **near)
    pipe.load_lora_weights(one, adapter_name="back")
    pipe.set_adapters("back")
    assert numbers(pipe) == first
    pipe.set_adapters(["back", "style"], [0.5, -0.25])
    assert numbers(pipe) == numbers(pipe, capture=False) != first
    halved = numbers(pipe, cross_attention_kwargs={"scale": 0.5})
    assert halved == numbers(pipe, capture=False, cross_attention_kwargs={"scale": 0.5}) != numbers(pipe)
    assert pipe.cuda_graphs["captures"] == captured, "one capture for them all"
    pipe.unload_lora_weights()
    assert numbers(pipe) == bare


def test_a_reserved_rank_takes_loras_of_any_layers():
    pipe = on_cuda()
    pipe.enable_lora_hotswap(target_rank=16)
    assert numbers(pipe) == numbers(pipe, capture=False)
    captured = pipe.cuda_graphs["captures"]
    some = lora_of(pipe, ATTENTION, 4, 1)
    more = lora_of(pipe, (*ATTENTION, "proj", "ff.net.2", "conv1", "proj_in"), 16, 2, alpha=8)
    pipe.load_lora_weights(some, adapter_name="style")
    first = numbers(pipe)
    assert first == numbers(pipe, capture=False)
    pipe.load_lora_weights(more, adapter_name="style", hotswap=True)
    second = numbers(pipe)
    assert second == numbers(pipe, capture=False) and second != first
    pipe.unload_lora_weights()
    numbers(pipe)
    assert pipe.cuda_graphs["captures"] == captured
    pipe.load_lora_weights(lora_of(pipe, ATTENTION, 17, 3))
    assert numbers(pipe) == numbers(pipe, capture=False)
    assert pipe.cuda_graphs["captures"] == captured + 1, "more than was reserved"


def test_a_swap_within_a_run_renews_what_is_kept_of_the_text():
    pipe = on_cuda()
    for seed, name in enumerate("ab"):
        pipe.load_lora_weights(lora_of(pipe, ("attn2.to_k", "attn2.to_v"), 4, seed), adapter_name=name)

    def drawn(**how):
        pipe.set_adapters("a")
        return numbers(pipe, callback_on_step_end=lambda p, i, t, kw: p.set_adapters("b") or kw, **how)

    assert drawn() == drawn(capture=False, cache_prompt=False)
