"""Memory plans on a GPU or its emulator (SF_CUDA_LIBRARY): the bits of resident networks within less memory, and what a
run does where it does not suffice."""

import gc

import golden_pipelines
import numpy as np
import pytest
from golden_pipelines import guided_as, one_thread, output_of  # noqa: F401 (a fixture)
from test_cuda_pipelines import emulated, numbers
from test_memory_plans import FIRST, least_plan, made
from test_pipelines import make

import scaffolding as sf
from scaffolding import cuda, diffusion
from scaffolding.nn import streaming

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")


@pytest.fixture(autouse=True)
def own_networks(monkeypatch):
    """Networks that move are not those of other tests."""
    monkeypatch.setattr(golden_pipelines, "made_networks", {})


def resident(pipe, case, plan):
    """What the call gives with all networks where the plan has them, and guidance and decoding as there."""
    pipe.remove_all_hooks()
    for name, part in plan.parts.items():
        getattr(pipe, name).to(part["device"])
    return output_of(pipe, case, **guided_as(pipe, plan))[0]


def whole_peak(pipe, whole):
    """Of all networks on the GPU, without what captured calls keep."""
    return pipe.memory_plan(max_vram=f"{whole.device_peak - 1} B").device_peak


def networks(name):
    kinds = sf._core._pipelines.entries()[name]["components"].values()
    return sum(kind in ("denoiser", "autoencoder", "text_encoder") for kind in kinds)


# of which one can be elsewhere while another computes
@pytest.mark.parametrize("name", [name for name in FIRST if networks(name) > 1])
def test_less_memory_gives_the_bits_of_resident_networks(name):
    pipe, case = made(name)
    whole = pipe.memory_plan()
    assert whole.profile == "full_gpu"
    pipe.apply_memory_plan(whole)
    want = output_of(pipe, case)[0]
    assert not any(streaming.streamer_of(m) for m in pipe._modules())

    phases = pipe.memory_plan(max_vram=f"{whole_peak(pipe, whole) - 1} B")
    assert "phase" in {p["residency"] for p in phases.parts.values()} and phases.guidance_mode == "batched"
    for _ in range(2):  # the second plan takes the first one's place
        pipe.apply_memory_plan(phases)
        np.testing.assert_array_equal(output_of(pipe, case)[0], want)
    sizes = [p["weights"] for p in phases.parts.values()]
    loaded = [streaming.streamer_of(m).is_loaded for m in pipe._modules() if streaming.streamer_of(m)]
    assert sum(loaded) <= 1 and len(sizes) > 1

    least = least_plan(pipe, "max_vram", whole.device_peak)
    assert least.device_peak < phases.device_peak
    pipe.apply_memory_plan(least)
    got = output_of(pipe, case)[0]
    np.testing.assert_array_equal(got, resident(pipe, case, least))
    np.testing.assert_allclose(got, want, atol=2e-4)


@pytest.mark.parametrize("profile", ["full_gpu", "balanced", "unet_gpu", "gpu_poor", "extreme"])
def test_profiles_are_carried_out(profile):
    pipe, case = made("StableDiffusionXLPipeline")
    plan = pipe.memory_plan(profile)
    pipe.apply_memory_plan(plan)
    for part, p in plan.parts.items():
        assert str(getattr(pipe, part).device) == p["device"]
    got = output_of(pipe, case)[0]
    pipe.to("cpu")
    np.testing.assert_allclose(got, output_of(pipe, case)[0], atol=2e-3)


def test_a_step_copies_what_is_away():
    pipe = make("StableDiffusionPipeline")
    whole = pipe.memory_plan()
    plan = least_plan(pipe, "max_vram", whole.device_peak, profile="extreme")
    assert plan.parts["unet"]["residency"] == "streamed" and plan.guidance_mode == "sequential"
    pipe.apply_memory_plan(plan)
    numbers(pipe, num_inference_steps=2)
    streamer = streaming.streamer_of(pipe.unet)
    copied = []
    for steps in (2, 5):
        before = streamer.statistics()["copied_bytes"]
        numbers(pipe, num_inference_steps=steps)
        copied.append(streamer.statistics()["copied_bytes"] - before)
    now = streamer.statistics()
    assert copied[1] - copied[0] == 3 * 2 * plan.parts["unet"]["streamed"]  # guidance calls it twice a step
    assert now["weight_bytes"] - now["resident_bytes"] == plan.parts["unet"]["streamed"]
    assert now["resident_bytes"] + now["slot_bytes"] <= plan.parts["unet"]["weights"] + 64 * 256


def test_networks_make_room_step_by_step():
    pipe = make("StableDiffusionPipeline")
    pipe.apply_memory_plan(pipe.memory_plan())
    want = numbers(pipe)
    resident, seen, streamers = cuda.memory_allocated(), [], []
    while pipe._placement.make_room():
        seen.append({name: part["residency"] for name, part in pipe._placement.plan.parts.items()})
        assert numbers(pipe) == want
        if (streamer := streaming.streamer_of(pipe.unet)) not in (None, *streamers):
            streamers.append(streamer)
    assert len(streamers) == 1  # blocks leave where the network is
    assert {"unet": "streamed", "vae": "phase", "text_encoder": "phase"} == seen[-1] and len(seen) >= 3
    pipe._graphs.clear()
    gc.collect()
    assert cuda.memory_allocated() < resident
    assert not pipe._placement.make_room() and numbers(pipe) == want
    pipe.remove_all_hooks()
    assert numbers(pipe.to("cuda")) == want


def test_runs_make_do_where_memory_does_not_suffice():
    library = emulated()
    call = {"height": 32, "width": 32, "num_images_per_prompt": 2}
    pipe = make("StableDiffusionPipeline")
    want = numbers(pipe.to("cuda"), **call)
    peak = library.sf_cuda_emulator_bytes_in_use()
    pipe.apply_memory_plan(pipe.memory_plan(height=32, width=32, batch=2))
    cuda.empty_cache()
    library.sf_cuda_emulator_set_memory(peak - (4 << 20))
    try:
        run = pipe.start("the cat", seed=0, output_type="latent", num_inference_steps=2, **call)
        while not run.done:
            run.step()
        assert run.makeshifts == ["the denoiser's calls not captured"]
        with pytest.warns(UserWarning, match="memory did not suffice, so that the call went on with the denoiser's"):
            assert run.finish().images.cpu().tolist() == want
    finally:
        library.sf_cuda_emulator_set_memory(8 << 30)
    assert numbers(pipe, **call) == want


def test_a_preview_takes_the_denoisers_place_for_a_while():
    pipe, case = made("StableDiffusionPipeline")
    whole = pipe.memory_plan()
    pipe.apply_memory_plan(whole)
    want = numbers(pipe)
    pipe.apply_memory_plan(pipe.memory_plan(max_vram=f"{whole_peak(pipe, whole) - 1} B"))
    shared = diffusion.StableDiffusionImg2ImgPipeline.from_pipe(pipe)
    assert shared._placement is pipe._placement
    run = pipe.start("the cat", seed=0, output_type="latent", num_inference_steps=2)
    run.step()
    run.preview()
    run.step()
    assert run.finish().images.cpu().tolist() == want


def test_plans_and_offloading_take_turns(tmp_path):
    pipe = make("StableDiffusionPipeline")
    whole = pipe.memory_plan()
    less = pipe.memory_plan(max_vram=f"{whole_peak(pipe, whole) - 1} B")
    pipe.enable_group_offload("cuda", offload_type="leaf_level")
    with pytest.raises(ValueError, match="enable_group_offload is on for .*; call remove_all_hooks"):
        pipe.apply_memory_plan(less)
    pipe.remove_all_hooks()
    pipe.apply_memory_plan(less)
    with pytest.raises(RuntimeError, match="come and go with its calls, and cannot be moved"):
        pipe.to("cuda")
    with pytest.raises(ValueError, match="come and go already, by apply_memory_plan"):
        pipe.enable_group_offload("cuda", offload_type="leaf_level")
    pipe.enable_model_cpu_offload()  # takes the plan's place
    assert pipe._placement is None
    numbers(pipe)
    pipe.remove_all_hooks()
    pipe.save_pretrained(tmp_path)
    planned = type(pipe).from_pretrained(tmp_path, max_vram=f"{whole_peak(pipe, whole) - 1} B")
    assert planned._placement.plan.profile == "balanced"
    with pytest.raises(ValueError, match="max_vram of 1.0 kB is too little .* profile 'balanced'.* needs at least"):
        type(pipe).from_pretrained(tmp_path, profile="balanced", max_vram="1kB")
    assert sf.cuda.memory_allocated() >= 0
