"""Files of pipelines: folders, variants, single files, the hub's cache, the memory that loading takes;
and the functions that load and call.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from test_pipelines import CONFIGS, filled, make, one_thread, scheduler  # noqa: F401

import scaffolding as sf
from scaffolding import diffusion
from scaffolding.diffusion import StableDiffusionPipeline
from scaffolding.safetensors.torch import save_file

QUICK = {"num_inference_steps": 2, "output_type": "np", "seed": 0}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    make().save_pretrained(folder / "sd")
    make("StableDiffusionXLPipeline").save_pretrained(folder / "xl", variant="fp16")
    return folder


def test_a_pipeline_comes_back_from_its_folder(saved):
    index = json.loads((saved / "sd" / "model_index.json").read_text())
    assert index["unet"] == ["diffusers", "UNet2DConditionModel"] and index["text_encoder"] == [
        "transformers",
        "CLIPTextModel",
    ]
    assert index["safety_checker"] == [None, None] and index["_class_name"] == "StableDiffusionPipeline"
    want = make()("the cat", **QUICK).images
    for cls in (diffusion.DiffusionPipeline, StableDiffusionPipeline, diffusion.AutoPipelineForText2Image):
        pipe = cls.from_pretrained(saved / "sd")
        assert type(pipe) is StableDiffusionPipeline
        np.testing.assert_array_equal(pipe("the cat", **QUICK).images, want)
    half = StableDiffusionPipeline.from_pretrained(saved / "sd", torch_dtype=sf.float16)
    assert half.unet.dtype is sf.float16 and half.text_encoder.dtype is sf.float16 and half.dtype is sf.float16
    other = StableDiffusionPipeline.from_pretrained(
        saved / "sd", scheduler=scheduler("euler"), text_encoder=None, safety_checker=None
    )
    assert type(other.scheduler).__name__ == "EulerDiscreteScheduler" and other.text_encoder is None
    i2i = diffusion.AutoPipelineForImage2Image.from_pretrained(saved / "sd")
    assert type(i2i) is diffusion.StableDiffusionImg2ImgPipeline
    shared = diffusion.AutoPipelineForInpainting.from_pipe(i2i)
    assert shared.unet is i2i.unet and type(shared) is diffusion.StableDiffusionInpaintPipeline


def test_configs_are_read_once(saved, monkeypatch):
    plan = sf._core._pipelines.plan(str(saved / "sd"), "", [], "")
    assert {step["name"]: step["config"].get("_class_name") for step in plan["steps"] if step["kind"] == "model"} == {
        "vae": "AutoencoderKL", "unet": "UNet2DConditionModel", "text_encoder": None,
    }  # fmt: skip
    monkeypatch.setattr(sf._core._models, "load_config", lambda *_: pytest.fail("the plan has read it"))
    assert (
        StableDiffusionPipeline.from_pretrained(saved / "sd").unet.config.cross_attention_dim
        == make().unet.config.cross_attention_dim
    )


def test_variants(saved):
    assert (saved / "xl" / "unet" / "diffusion_pytorch_model.fp16.safetensors").exists()
    pipe = diffusion.DiffusionPipeline.from_pretrained(saved / "xl", variant="fp16")
    np.testing.assert_array_equal(
        pipe("the cat", **QUICK).images, make("StableDiffusionXLPipeline")("the cat", **QUICK).images
    )
    with pytest.raises(ValueError, match="variant 'bf16'"):
        diffusion.DiffusionPipeline.from_pretrained(saved / "xl", variant="bf16")
    with pytest.raises(ValueError, match="there are no weights"):
        diffusion.DiffusionPipeline.from_pretrained(saved / "xl")


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"_class_name": None}, ValueError, "has no _class_name"),
        ({"_class_name": "AuraFlowPipeline"}, ValueError, "no pipeline class 'AuraFlowPipeline'"),
        ({"unet": ["diffusers", "UNet9DModel"]}, ValueError, "no class 'UNet9DModel' for 'unet'"),
        ({"unet": ["diffusers", "AutoencoderKL"]}, ValueError, "AutoencoderKL"),
        ({"unet": "UNet2DConditionModel"}, ValueError, "has no 'unet'"),
        ({"unet": ["diffusers"]}, ValueError, "must be \\[library, class\\]"),
        ({"unet": [1, 2]}, ValueError, "must be \\[library, class\\]"),
        ({"../unet": ["diffusers", "UNet2DConditionModel"]}, ValueError, "no name of a folder"),
    ],
)
def test_a_wrong_model_index(saved, tmp_path, change, error, message):
    for entry in (saved / "sd").iterdir():
        if entry.is_dir():
            (tmp_path / entry.name).symlink_to(entry)
    index = json.loads((saved / "sd" / "model_index.json").read_text())
    index = {k: v for k, v in {**index, **change}.items() if v is not None}
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(error, match=message):
        diffusion.DiffusionPipeline.from_pretrained(tmp_path)


def test_other_wrong_folders(saved, tmp_path):
    with pytest.raises(ValueError, match="model_index.json"):
        diffusion.DiffusionPipeline.from_pretrained(saved)
    (tmp_path / "model_index.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(ValueError, match="model_index.json"):
        diffusion.DiffusionPipeline.from_pretrained(tmp_path)
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text((saved / "sd" / "unet" / "config.json").read_text())
    lora = {
        "down_blocks.1.attentions.0.to_q.lora_A.weight": sf.zeros(4, 8),
        "down_blocks.1.attentions.0.to_q.lora_B.weight": sf.zeros(8, 4),
    }
    save_file(lora, tmp_path / "unet" / "diffusion_pytorch_model.safetensors")
    with pytest.raises(ValueError, match="holds a LoRA"):
        diffusion.UNet2DConditionModel.from_pretrained(tmp_path, subfolder="unet")
    (tmp_path / "unet" / "config.json").write_text(
        json.dumps({"_class_name": "UNet2DConditionModel", "in_channels": "four"})
    )
    with pytest.raises(TypeError, match="in_channels"):
        diffusion.UNet2DConditionModel.from_pretrained(tmp_path, subfolder="unet")
    with pytest.raises(TypeError, match="unexpected keyword argument 'unett'"):
        diffusion.DiffusionPipeline.from_pretrained(saved / "sd", unett=None)


def peak_growth(code):
    """Kilobytes that the peak of resident memory grows by while the code runs in a process of its own."""
    program = textwrap.dedent(
        """
        import scaffolding as sf, sys
        def status(key):
            return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))
        {setup}
        before = status("VmRSS")
        open("/proc/self/clear_refs", "w").write("5")
        {code}
        print(status("VmHWM") - before)
        """
    )
    setup, code = code
    done = subprocess.run(
        [sys.executable, "-c", program.format(setup=setup, code=code)], capture_output=True, text=True, check=True
    )
    return int(done.stdout.split()[-1])


# 105 MB
HUGE = {
    "vocab_size": 40000,
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "intermediate_size": 2048,
}


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """A folder of files in which one network takes 105 MB, and the bytes of its weights: {kind of file:
    the Python that loads it}.
    """
    folder = tmp_path_factory.mktemp("huge")
    model = diffusion.CLIPTextModel(**HUGE)
    model.save_pretrained(folder / "whole")
    model.save_pretrained(folder / "shards", max_shard_size="20MB")
    assert len(list((folder / "shards").glob("*.safetensors"))) > 3
    model.save_pretrained(folder / "bin", safe_serialization=False)
    assert (folder / "bin" / "pytorch_model.bin").exists()
    pipe = make(text_encoder=model)
    pipe.save_pretrained(folder / "pipeline")
    single_file(pipe, "v1", folder / "one.safetensors")
    sf.save({"state_dict": sf.safetensors.load_file(folder / "one.safetensors")}, folder / "one.ckpt")
    networks = (pipe.unet, pipe.vae, model)
    one = (
        "sf.diffusion.StableDiffusionPipeline.from_single_file(folder + '/one.{}', config=folder + '/pipeline', "
        "{{}}).text_encoder"
    )
    loads = {
        kind: f"sf.diffusion.CLIPTextModel.from_pretrained(folder + '/{kind}', {{}})"
        for kind in ("whole", "shards", "bin")
    }
    loads |= {kind: one.format(kind) for kind in ("safetensors", "ckpt")}
    loads["pipeline"] = "sf.diffusion.DiffusionPipeline.from_pretrained(folder + '/pipeline', {}).text_encoder"
    return folder, loads, sum(p.numel() for m in networks for p in m.parameters())


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="the peak of resident memory cannot be reset here"
)
@pytest.mark.parametrize("dtype, size", [("float32", 4), ("float16", 2)])
@pytest.mark.parametrize("kind", ["whole", "shards", "bin", "pipeline", "safetensors", "ckpt"])
def test_loading_holds_nothing_twice(huge, kind, dtype, size):
    """Where the file or another dtype's copy stayed beside the weights, the peak would be 105 MB higher."""
    folder, loads, numbers = huge
    # a page that is mapped counts when it is read
    read = "sum(float(p.reshape(-1)[::1024].sum()) for p in model.parameters())"
    grown = peak_growth(
        (f"folder = {str(folder)!r}", f"model = {loads[kind].format('torch_dtype=sf.' + dtype)}; {read}")
    )
    weights = numbers * size // 1024
    assert grown < weights + 40 * 1024, (grown, weights)


@pytest.mark.parametrize("size", ["10 apples", "B", "MB", "1e999"])
def test_sizes_of_shards_are_bytes(size, tmp_path):
    model = filled("text")
    model.save_pretrained(tmp_path, max_shard_size="0.02MB")
    several = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    model.save_pretrained(tmp_path / "bytes", max_shard_size=20_000)
    assert len(several) > 3 and several == sorted(p.name for p in (tmp_path / "bytes").glob("*.safetensors"))
    with pytest.raises(ValueError, match="max_shard_size must be a number of bytes"):
        model.save_pretrained(tmp_path / "never", max_shard_size=size)


def single_file(pipe, kind, path):
    parts = {n: m.state_dict() for n, m in pipe.components.items() if hasattr(m, "state_dict")}
    configs = {n: dict(m.config) for n, m in pipe.components.items() if hasattr(m, "state_dict")}
    tensors = {k: t.contiguous().clone() for k, t in sf._core._to_single_file(kind, parts, configs).items()}
    save_file(tensors, path)
    return path


@pytest.mark.filterwarnings("ignore:.*not known here")
def test_a_pipeline_from_one_file(saved, tmp_path):
    path = single_file(make(), "v1", tmp_path / "sd.safetensors")
    want = make()("the cat", **QUICK).images
    for cls in (StableDiffusionPipeline, diffusion.DiffusionPipeline):
        pipe = cls.from_single_file(path, config=saved / "sd")
        assert type(pipe) is StableDiffusionPipeline and type(pipe.scheduler).__name__ == "DDIMScheduler"
        np.testing.assert_allclose(pipe("the cat", **QUICK).images, want, atol=1e-5)
    half = StableDiffusionPipeline.from_single_file(
        path, config=saved / "sd", torch_dtype=sf.float16, scheduler=scheduler("euler")
    )
    assert half.unet.dtype is sf.float16 and type(half.scheduler).__name__ == "EulerDiscreteScheduler"
    (tmp_path / "config").mkdir()
    for name in ("unet", "vae", "text_encoder"):
        (tmp_path / "config" / name).symlink_to(saved / "sd" / name)
    with pytest.raises(ValueError, match="the tokenizer of such models has 49408: .*; pass tokenizer= or config="):
        StableDiffusionPipeline.from_single_file(path, config=tmp_path / "config")
    with pytest.raises(FileNotFoundError, match="config"):
        StableDiffusionPipeline.from_single_file(path, config=tmp_path / "none")


@pytest.mark.filterwarnings("ignore:.*not known here")
def test_the_tokenizer_of_a_kind_is_part_of_the_library(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    clip = sf.tokenizers.CLIPTokenizer.built_in()
    text = diffusion.CLIPTextModel.from_config({**CONFIGS["text"], "vocab_size": len(clip)}).eval()
    pipe = make(text_encoder=text, tokenizer=clip)
    path = single_file(pipe, "v1", tmp_path / "sd.safetensors")
    pipe.save_pretrained(tmp_path / "config")
    shutil.rmtree(tmp_path / "config" / "tokenizer")
    again = StableDiffusionPipeline.from_single_file(path, config=tmp_path / "config")
    assert again.tokenizer.get_vocab() == clip.get_vocab() and not (tmp_path / "home").exists()
    np.testing.assert_allclose(again("the cat", **QUICK).images, pipe("the cat", **QUICK).images, atol=1e-5)


def test_what_is_no_model_is_not_written_into_one_file(tmp_path):
    text = diffusion.CLIPTextModel.from_config(CONFIGS["text"])
    text.register_forward_hook(lambda *_: None)
    with pytest.raises(NotImplementedError, match="text_encoder is no model of this library"):
        make(text_encoder=text).save_single_file(tmp_path / "one.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_not_in_the_cache(tmp_path):
    with pytest.raises(RuntimeError, match="organisation/model"):
        diffusion.DiffusionPipeline.from_pretrained("organisation/model", cache_dir=tmp_path, local_files_only=True)
    with pytest.raises(ValueError, match="neither a folder nor a repository"):
        diffusion.DiffusionPipeline.from_pretrained(tmp_path / "no" / "such" / "folder")


def test_a_pipeline_in_the_hubs_cache(saved, tmp_path):
    repo, commit = tmp_path / "models--organisation--model", "1" * 40
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    (repo / "snapshots").mkdir()
    (repo / "snapshots" / commit).symlink_to(saved / "sd")
    pipe = diffusion.AutoPipelineForText2Image.from_pretrained(
        "organisation/model", cache_dir=tmp_path, local_files_only=True
    )
    np.testing.assert_array_equal(pipe("the cat", **QUICK).images, make()("the cat", **QUICK).images)


def test_load_from_hf(saved, tmp_path):
    assert type(diffusion.load_from_hf(saved / "sd", torch_dtype=sf.bfloat16)) is StableDiffusionPipeline
    unet = diffusion.load_from_hf(saved / "sd", subfolder="unet", torch_dtype=sf.bfloat16)
    assert type(unet) is diffusion.UNet2DConditionModel and unet.dtype is sf.bfloat16
    assert type(diffusion.load_from_hf(saved / "sd", subfolder="text_encoder")) is diffusion.CLIPTextModel
    with pytest.raises(RuntimeError, match="organisation/model"):
        diffusion.load_from_hf("organisation/model", subfolder="unet", cache_dir=tmp_path, local_files_only=True)


# ---- functions


def test_functions_make_pictures(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pipe = diffusion.load_pipeline(str(saved / "sd"))
    call = {"img_dim": 32, "pipeline": pipe, "num_inference_steps": 2, "seed": 3, "verbose": False}
    made = diffusion.txt2img_sd21("the cat", filename="cat.png", metadata_path="cat.json", **call)
    assert made["image"].shape == (32, 32, 3) and sf.data.read_image("cat.png").shape == (3, 32, 32)
    assert json.loads((tmp_path / "cat.json").read_text())["seed"] == 3
    assert type(pipe.scheduler).__name__ == "DDIMScheduler"
    again = diffusion.txt2img_sd21("the cat", save_file=False, memory_profile="cpu_only", **call)
    assert np.abs(again["image"] - made["image"]).max() < 1e-3
    diffusion.txt2img_sd21("the cat", scheduler="euler", **call)
    assert (tmp_path / "sd21_the_cat.png").exists()
    changed = diffusion.img2img("cat.png", "the dog", save_file=False, strength=0.9, **call)
    assert changed["image"].shape == (32, 32, 3) and np.abs(changed["image"] - made["image"]).max() > 0.01
    xl = diffusion.load_pipeline(str(saved / "xl"), variant="fp16")
    assert diffusion.txt2img_sdxl("the cat", save_file=False, **{**call, "pipeline": xl})["image"].shape == (32, 32, 3)


def test_devices_and_profiles():
    assert diffusion.auto_devices("sd21", "unet_gpu") == {
        "unet": "cuda",
        "decoder": "cpu",
        "encoder": "cpu",
        "text_encoder": "cpu",
    }
    assert set(diffusion.auto_devices("sdxl", "cpu_only").values()) == {"cpu"}
    assert diffusion.get_profile_config("gpu_poor")["guidance_mode"] == "sequential"
    assert diffusion.models2devices("sdxl", "cpu", "bfloat16")["unet_dtype"] is sf.bfloat16
    with pytest.raises(ValueError, match="strategy"):
        diffusion.auto_devices("sdxl", "best")
