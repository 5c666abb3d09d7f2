"""Memory plans of every pipeline, and memory by hand. What a plan decides is tested in C++ over many budgets."""

import json

import golden_pipelines
import numpy as np
import pytest
from golden_pipelines import (
    CASES,
    guided_as,
    one_thread,  # noqa: F401 (a fixture)
    output_of,
    pipeline_of,
)

import scaffolding as sf
from scaffolding import diffusion

FIRST = {}
for _case in CASES.values():
    FIRST.setdefault(_case["pipeline"], _case)
every_pipeline = pytest.mark.parametrize("name", FIRST)


def made(name):
    case = FIRST[name]
    return pipeline_of(case, case["family"]), case


@pytest.fixture
def xl():
    """A pipeline whose networks other tests share: they get back what a plan changed."""
    pipe, case = made("StableDiffusionXLPipeline")
    vae = pipe.vae.use_slicing, pipe.vae.use_tiling, pipe.vae.tile_sample_min_size, pipe.vae.tile_latent_min_size
    yield pipe, case
    pipe.vae.use_slicing, pipe.vae.use_tiling, pipe.vae.tile_sample_min_size, pipe.vae.tile_latent_min_size = vae


@every_pipeline
def test_every_pipeline_has_a_plan(name):
    pipe, _ = made(name)
    whole_size = name.endswith("ImageToVideoPipeline")  # whose learned positions are of one size
    sides = (16, 48) if name.startswith("StableDiffusion3") else (64, 128)  # whose positions end there
    small, large = ({} if whole_size else {"height": side, "width": side} for side in sides)
    plan = pipe.memory_plan("cpu_only", **small, batch=2)
    networks = {n for n, c in pipe.components.items() if hasattr(c, "parameters")}
    assert set(plan.parts) == networks and not plan.notes
    for part in plan.parts.values():
        assert part["device"] == "cpu" and part["residency"] == "resident"
        assert part["activations"] > 0 and part["bytes"] > 0 and part["format"] == "float32"
    assert plan.guidance_mode == "sequential" and plan.cleanup == "none"
    larger = pipe.memory_plan("cpu_only", **large, batch=8)
    assert larger.host_peak > plan.host_peak


@every_pipeline
def test_where_all_fits_nothing_changes(name):
    pipe, case = made(name)
    before = output_of(pipe, case)[0]
    plan = pipe.memory_plan(max_vram=0)  # of the CPU alone
    assert (plan.profile, plan.guidance_mode, plan.cleanup) == ("cpu_only", "batched", "none")
    assert not plan.vae_slicing and not plan.vae_tiling
    assert pipe.apply_memory_plan(plan) is pipe
    np.testing.assert_array_equal(output_of(pipe, case)[0], before)


def least_plan(pipe, limit, most, **limits):
    """The plan with about the least bytes that `limit`, max_vram or max_ram, can be."""
    fits, plan, too_little = int(most), None, 0
    while plan is None or fits - too_little > most / 4000:
        middle = (fits + too_little) // 2
        try:
            plan = pipe.memory_plan(**limits, **{limit: f"{middle} B"})
            fits = middle
        except ValueError as refused:
            assert "is too little" in str(refused)
            too_little = middle
    return plan


@every_pipeline
def test_pages_of_files_come_and_go(name, tmp_path):
    """With about the least host memory that there is a plan for, and the bits of resident networks."""
    pipe, case = made(name)
    want = output_of(pipe, case)[0]
    pipe.save_pretrained(tmp_path)
    pipe = type(pipe).from_pretrained(tmp_path)
    np.testing.assert_array_equal(output_of(pipe, case)[0], want)
    whole = pipe.memory_plan(max_vram=0)
    plan = least_plan(pipe, "max_ram", whole.host_peak, max_vram=0)
    assert plan.host_peak < whole.host_peak
    kinds = {part["residency"] for part in plan.parts.values()}
    assert kinds & {"phase", "streamed"}, str(plan)
    pipe.apply_memory_plan(plan)
    planned = output_of(pipe, case)[0]
    assert "predicted peak of host memory" in pipe.memory_report() and "measured" in pipe.memory_report()
    pipe.remove_all_hooks()  # how the autoencoder decodes stays
    np.testing.assert_array_equal(planned, output_of(pipe, case, **guided_as(pipe, plan))[0])
    np.testing.assert_allclose(planned, want, atol=1e-4)


def half(tmp_path):
    """SDXL in float16 from files, whose autoencoder decodes in float32 (force_upcast), and its pictures."""
    pipe, case = made("StableDiffusionXLPipeline")
    pipe.to(sf.float16)
    pipe.save_pretrained(tmp_path)
    config = tmp_path / "vae" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"force_upcast": True}))
    pipe = type(pipe).from_pretrained(tmp_path, torch_dtype=sf.float16)
    assert pipe.vae.config.force_upcast and pipe.vae.dtype == sf.float16
    return pipe, case


def test_an_autoencoder_that_overflows_decodes_wide_wherever_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(golden_pipelines, "made_networks", {})
    pipe, case = half(tmp_path)
    want = output_of(pipe, case)[0]
    assert np.isfinite(want).all() and pipe.vae.dtype == sf.float16
    assert pipe.memory_plan(max_vram=0).parts["vae"]["mapped"]  # the weights stayed pages of the file
    # a model converted whole, to the bit
    whole = type(pipe).from_pretrained(tmp_path, torch_dtype=sf.float16)
    whole.vae.to(sf.float32)
    np.testing.assert_array_equal(output_of(whole, case)[0], want)
    # with calls that only Python sees
    handle = pipe.vae.decoder.register_forward_hook(lambda *_: None)
    np.testing.assert_array_equal(output_of(pipe, case)[0], want)
    handle.remove()
    # one whose blocks come and go
    peak = pipe.memory_plan(max_vram=0).host_peak
    plan = least_plan(pipe, "max_ram", peak, max_vram=0)
    assert plan.parts["vae"]["residency"] != "resident"
    pipe.apply_memory_plan(plan)
    planned = output_of(pipe, case)[0]
    pipe.remove_all_hooks()
    np.testing.assert_array_equal(planned, output_of(pipe, case, guidance_mode=plan.guidance_mode)[0])


def test_a_plan_is_carried_out(xl):
    pipe, case = xl
    before = output_of(pipe, case)[0]
    calls = []
    hook = pipe.unet.register_forward_hook(lambda *_: calls.append(1))
    try:
        output_of(pipe, case)
        batched = len(calls)
        pipe.apply_memory_plan(pipe.memory_plan("cpu_only"))
        calls.clear()
        again = output_of(pipe, case)[0]
    finally:
        hook.remove()
    assert len(calls) == 2 * batched
    np.testing.assert_allclose(again, before, atol=1e-4)
    # what shares the networks shares the plan
    shared = diffusion.StableDiffusionXLImg2ImgPipeline.from_pipe(pipe)
    assert shared._savings == pipe._savings == (True, False, 0)


def test_a_plan_prints_a_table(xl):
    plan = xl[0].memory_plan("cpu_only")
    for word in ("StableDiffusionXLPipeline: profile cpu_only", "text_encoder_2", "float32", "predicted peak of host"):
        assert word in str(plan)
    assert repr(plan) == str(plan)


def test_a_plan_of_clips_names_what_decoding_takes():
    pipe, _ = made("CogVideoXPipeline")
    few, many = (pipe.memory_plan(max_vram=0, num_frames=n, height=32, width=48) for n in (17, 49))
    assert 0 < few.decode_bytes <= few.parts["vae"]["activations"]
    # what is decoded at a time is the same: the bytes of 32 frames more, and the latents of 8
    assert 32 * 32 * 48 * 3 <= many.decode_bytes - few.decode_bytes < 2 * 32 * 32 * 48 * 3
    pipe.apply_memory_plan(few)
    try:
        report = pipe.memory_report()
    finally:
        pipe.remove_all_hooks()
    assert "decoding takes" in report and "of host memory beside the vae's weights" in report


def test_networks_that_python_calls_are_counted(xl):
    pipe, _ = xl
    plain = pipe.memory_plan("cpu_only").parts["unet"]
    hook = pipe.unet.register_forward_hook(lambda *_: None)
    try:
        plan = pipe.memory_plan("cpu_only")
    finally:
        hook.remove()
    assert plan.parts["unet"] == plain and not plan.notes


def test_device_map_balanced_is_a_plan(xl, tmp_path):
    xl[0].save_pretrained(tmp_path)
    load = diffusion.DiffusionPipeline.from_pretrained
    pipe = load(tmp_path, device_map="balanced", max_memory={0: 0, "cpu": "8GB"})
    assert pipe._savings == (False, False, 0) and str(pipe.device) == "cpu"
    with pytest.raises(ValueError, match="max_ram of 1.0 MB is too little"):
        load(tmp_path, device_map="balanced", max_memory={0: 0, "cpu": "1MB"})
    with pytest.raises(ValueError, match="max_memory goes with device_map='balanced'"):
        load(tmp_path, max_memory={"cpu": "8GB"})
    with pytest.raises(ValueError, match="max_memory is of 'cpu' and of GPUs by number, got 'disk'"):
        load(tmp_path, device_map="balanced", max_memory={"disk": "8GB"})
    with pytest.raises(ValueError, match="both"):
        load(tmp_path, device_map="balanced", max_memory={"cpu": "8GB"}, max_ram=8)


def test_bad_plans_are_refused(xl):
    pipe, _ = xl
    with pytest.raises(ValueError, match="profile must be one of 'auto', 'full_gpu'.* got 'fast'"):
        pipe.memory_plan("fast")
    with pytest.raises(ValueError, match="max_ram of 1.0 MB is too little .* needs at least .* of host memory"):
        pipe.memory_plan(max_vram=0, max_ram="1MB")
    with pytest.raises(ValueError, match="must be an amount of memory such as 6, 6GB"):
        pipe.memory_plan(max_ram="lots")
    with pytest.raises(TypeError, match="max_ram"):
        pipe.memory_plan(max_ram=[1])
    with pytest.raises(ValueError, match="GB, got -1"):
        pipe.memory_plan(max_ram=-1)
    with pytest.raises(ValueError, match="takes no max_vram"):
        pipe.memory_plan("cpu_only", max_vram=4)
    with pytest.raises(ValueError, match="batch must be at least 1"):
        pipe.memory_plan(batch=0)
    if not sf.cuda.is_available():
        with pytest.raises(ValueError, match="profile 'balanced' needs a GPU, and there is none"):
            pipe.memory_plan("balanced")
    other, _ = made("StableDiffusionPipeline")
    with pytest.raises(ValueError, match="the plan is of a pipeline with"):
        other.apply_memory_plan(pipe.memory_plan("cpu_only"))
    assert other._savings == (False, False, 0)


def test_from_pretrained_plans(xl, tmp_path):
    pipe, case = xl
    pipe.save_pretrained(tmp_path)
    planned = diffusion.DiffusionPipeline.from_pretrained(tmp_path, profile="cpu_only", max_ram="4GB")
    assert planned._savings == (True, False, 0)
    plan = planned.memory_plan("cpu_only")
    assert all(part["mapped"] for part in plan.parts.values())
    # pages of files need not all be in memory at a time
    assert planned.memory_plan(max_vram=0, max_ram=plan.host_peak / 1e9).host_peak <= plan.host_peak
    with pytest.raises(ValueError, match="a device or a memory plan"):
        diffusion.DiffusionPipeline.from_pretrained(tmp_path, profile="auto", device="cpu")
    with pytest.raises(ValueError, match="profile must be one of"):
        diffusion.DiffusionPipeline.from_pretrained(tmp_path, profile="best")


def test_free_host_memory():
    free, total = sf.backends.cpu.mem_get_info()
    limits = sf.backends.cpu.memory_limits()
    assert 0 < free <= total
    assert list(limits.values()) == sorted(limits.values())
    if limits:
        assert "MemAvailable" in limits


def test_reports(capsys):
    report = diffusion.vram_report("decode")
    assert set(report) == {"allocated", "reserved", "free", "total"}
    if not sf.cuda.is_available():
        assert capsys.readouterr().err == "[decode] VRAM: 0.00 GB allocated, 0.00 GB reserved\n"
        with pytest.raises(RuntimeError):
            sf.cuda.set_per_process_memory_fraction(0.5)
    diffusion.clear_vram(verbose=True)
    assert "[clear_vram] VRAM" in capsys.readouterr().err
    with pytest.raises(ValueError, match="fraction must be in"):
        sf.cuda.set_per_process_memory_fraction(1.5)
    with pytest.raises(TypeError, match="fraction must be a number"):
        sf.cuda.set_per_process_memory_fraction("half")


def test_profiles_of_sdxl():
    for vram, name in ((24, "full_gpu"), (16, "full_gpu"), (12, "balanced"), (8, "unet_gpu"), (4, "cpu_only")):
        assert diffusion.sdxl_memory_profile(vram)["profile"] == name
    assert diffusion.sdxl_memory_profile(8) == {
        "profile": "unet_gpu",
        "devices": {"unet": "cuda", "decoder": "cpu", "encoder": "cpu", "text_encoder": "cpu"},
        "guidance_mode": "sequential",
        "cleanup": "step",
    }
    if not sf.cuda.is_available():
        assert diffusion.sdxl_memory_profile()["profile"] == "cpu_only"
    with pytest.raises(ValueError, match="must not be negative"):
        diffusion.sdxl_memory_profile(-1)
    with pytest.raises(TypeError, match="vram_gb must be a number"):
        diffusion.sdxl_memory_profile("16GB")


def test_denoising_and_decoding_apart(xl):
    pipe, _ = xl
    call = {"prompt": "a cat", "num_inference_steps": 2, "height": 64, "width": 64}
    noise = sf.randn(1, pipe.unet.config["in_channels"], 64 // pipe.vae_scale_factor, 64 // pipe.vae_scale_factor)
    latents = diffusion.run_denoise_sdxl(noise, pipe, **call)
    assert latents.shape == noise.shape
    whole = pipe(latents=noise, output_type="np", **call).images
    np.testing.assert_array_equal(diffusion.run_decode_sdxl(latents, pipe), whole)
    np.testing.assert_array_equal(diffusion.run_decode_sdxl(latents, pipe.vae, device="cpu"), whole)


def test_networks_by_hand(xl):
    unet = xl[0].unet
    assert diffusion.offload_to_cpu(unet) is unet and str(unet.device) == "cpu"
    assert diffusion.load_to_gpu(unet, device="cpu") is unet
