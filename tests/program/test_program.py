"""The program from end to end: a tiny model trained from drawn icons, pictures made with it,
and what is asked wrongly.
"""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from drawn_icons import refused

import scaffolding as sf
from scaffolding.safetensors.torch import load_file


def test_training_leaves_a_pipeline_logs_and_samples(run_folder):
    index = json.loads((run_folder / "pipeline/model_index.json").read_text())
    assert index["_class_name"] == "StableDiffusionPipeline" and index["unet"] == ["diffusers", "UNet2DConditionModel"]
    assert index["_guidance_scale"] == 4
    assert (
        load_file(str(run_folder / "pipeline/unet/diffusion_pytorch_model.safetensors"))["conv_in.weight"].dtype
        == sf.float16
    )
    steps = [json.loads(line)["step"] for line in (run_folder / "denoiser/metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4, 5, 6]
    grid = sf.io.read_image(str(run_folder / "denoiser/samples/step-000003.png"))
    assert grid.shape == (3, 64, 4 * 64)


def test_training_again_does_nothing(program, recipe, run_folder):
    before = (run_folder / "pipeline/model_index.json").stat().st_mtime_ns
    done = program("train", "--config", recipe, "--output", run_folder, "--quiet")
    assert done.returncode == 0 and (run_folder / "pipeline/model_index.json").stat().st_mtime_ns == before


def test_a_killed_training_goes_on_to_the_same_weights(build_dir, program, recipe, run_folder, tmp_path):
    """kill -9 in the middle of the last stage, then the same command: the weights of the run that was left alone."""
    command = [
        str(build_dir / "scaffolding"),
        "train",
        "--config",
        str(recipe),
        "--output",
        str(tmp_path / "run"),
        "--quiet",
    ]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 120
    while (
        not (tmp_path / "run/denoiser/checkpoint-2/manifest.json").exists()
        and process.poll() is None
        and time.monotonic() < deadline
    ):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = program("train", "--config", recipe, "--output", tmp_path / "run", "--quiet")
    assert done.returncode == 0, done.stderr
    for part in ("vae/diffusion_pytorch_model", "unet/diffusion_pytorch_model", "text_encoder/model"):
        assert (tmp_path / f"run/pipeline/{part}.safetensors").read_bytes() == (
            run_folder / f"pipeline/{part}.safetensors"
        ).read_bytes(), part


def test_training_starts_from_a_pipelines_weights(program, recipe, model, tmp_path):
    settings = json.loads(recipe.read_text())
    settings["data"]["path"] = str(recipe.parent / settings["data"]["path"])
    settings["text_encoder_training"]["max_steps"] = 0
    settings["denoiser_training"] |= {"learning_rate": 1e-30, "text_learning_rate": 0.0, "late_timesteps": 2.0}
    (tmp_path / "still.json").write_text(json.dumps(settings))
    command = ("train", "--config", tmp_path / "still.json", "--output", tmp_path / "run", "--quiet", "--pretrained")
    refused(program(*command, tmp_path), "no folder 'tokenizer'")
    done = program(*command, model)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run/autoencoder").exists() and not (tmp_path / "run/text_encoder").exists()
    # nothing is learned at such a rate
    for part in ("vae/diffusion_pytorch_model", "unet/diffusion_pytorch_model", "text_encoder/model"):
        ours, theirs = (load_file(str(folder / f"{part}.safetensors")) for folder in (tmp_path / "run/pipeline", model))
        assert all((ours[key] == theirs[key]).all().item() for key in theirs), part


def test_txt2img_writes_pictures_with_their_settings(program, model, tmp_path):
    done = program(
        "txt2img",
        "red square, flat",
        "--model",
        model,
        "--steps",
        3,
        "--seed",
        4,
        "--count",
        3,
        "--batch",
        2,
        "-o",
        tmp_path / "{seed}.png",
        "--quiet",
    )
    assert done.returncode == 0, done.stderr
    paths = done.stdout.split()
    assert paths == [str(tmp_path / f"{seed}.png") for seed in (4, 5, 6)]
    pictures = [sf.io.read_image(p) for p in paths]
    assert pictures[0].shape == (3, 64, 64)
    assert (pictures[0] != pictures[1]).any().item()
    text = sf.io.image_info(paths[1])["text"]
    assert text["parameters"].startswith(
        "red square, flat\nSteps: 3, Sampler: DDIMScheduler, CFG scale: 4, Seed: 5, Size: 64x64"
    )
    assert json.loads(text["scaffolding"])["seed"] == 5


def test_guidance_is_what_the_model_advises(program, model, tmp_path):
    """model_index.json's "_guidance_scale"; 5 without it; the option stands over both."""
    index = json.loads((model / "model_index.json").read_text())
    folder = tmp_path / "model"
    shutil.copytree(model, folder)

    def used(advice, *options):
        fields = {k: v for k, v in index.items() if k != "_guidance_scale"}
        (folder / "model_index.json").write_text(json.dumps(fields | advice))
        done = program(
            "txt2img",
            "red square",
            "--model",
            folder,
            "--steps",
            1,
            "--seed",
            1,
            "-o",
            tmp_path / "a.png",
            "--force",
            "--quiet",
            *options,
        )
        if done.returncode:
            return done
        return json.loads(sf.io.image_info(str(tmp_path / "a.png"))["text"]["scaffolding"])["guidance"]

    assert used({"_guidance_scale": 2.5}) == 2.5
    assert used({}) == 5
    assert used({"_guidance_scale": 2.5}, "--guidance", 1) == 1
    refused(used({"_guidance_scale": "high"}), "'_guidance_scale' must be a number")


def test_like_repeats_a_picture_to_the_last_bit(program, model, tmp_path):
    program(
        "txt2img",
        "green square",
        "--model",
        model,
        "--steps",
        3,
        "--seed",
        1,
        "--count",
        2,
        "--batch",
        2,
        "-o",
        tmp_path / "{seed}.png",
        "-q",
    )
    done = program("txt2img", "--like", tmp_path / "2.png", "-o", tmp_path / "again.png", "-q")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "2.png").read_bytes()
    assert (
        program("txt2img", "--like", tmp_path / "2.png", "--seed", 7, "-o", tmp_path / "other.png", "-q").returncode
        == 0
    )
    assert (tmp_path / "other.png").read_bytes() != (tmp_path / "2.png").read_bytes()


def test_json_is_for_programs(program, model, tmp_path):
    done = program(
        "txt2img", "box", "--model", model, "--steps", 2, "--json", "--sampler", "euler-a", "-o", tmp_path / "a.webp"
    )
    row = json.loads(done.stdout)
    assert row["path"] == str(tmp_path / "a.webp") and row["settings"]["sampler"] == "euler-a" and done.stderr == ""


def test_img2img_and_inpaint(program, model, tmp_path):
    program("txt2img", "red square", "--model", model, "--steps", 2, "-o", tmp_path / "a.png", "-q")
    done = program(
        "img2img",
        "blue square",
        "--image",
        tmp_path / "a.png",
        "--model",
        model,
        "--steps",
        4,
        "--strength",
        0.5,
        "-o",
        tmp_path / "b.png",
        "-q",
    )
    assert done.returncode == 0, done.stderr
    mask = sf.zeros(1, 64, 64, dtype=sf.uint8)
    mask[:, :, :32] = 255
    sf.io.write_image(str(tmp_path / "mask.png"), mask)
    arguments = (
        "blue square",
        "--image",
        tmp_path / "a.png",
        "--model",
        model,
        "--steps",
        3,
        "-o",
        tmp_path / "c.png",
        "-q",
    )
    done = program("inpaint", *arguments, "--mask", tmp_path / "mask.png")
    assert done.returncode == 0, done.stderr
    assert sf.io.read_image(str(tmp_path / "c.png")).shape == (3, 64, 64)
    sf.io.write_image(str(tmp_path / "small.png"), mask[:, :32])
    refused(
        program("inpaint", *arguments, "--mask", tmp_path / "small.png"),
        "--mask: must have the picture's size 64x64, got 64x32",
    )


def test_convert(program, model, tmp_path):
    weights = model / "unet/diffusion_pytorch_model.safetensors"
    done = program("convert", weights, tmp_path / "unet.pt", "--dtype", "float32")
    assert done.returncode == 0, done.stderr
    again, before = sf.load(str(tmp_path / "unet.pt")), load_file(str(weights))
    assert again.keys() == before.keys() and again["conv_in.weight"].dtype == sf.float32
    assert (again["conv_in.weight"].to(sf.float16) == before["conv_in.weight"]).all().item()
    refused(program("convert", weights, tmp_path / "unet.pt"), "is there already; --force replaces it")
    refused(program("convert", weights, tmp_path / "b.safetensors", "--dtype", "int4"), "--dtype: must be float32")
    refused(program("convert", tmp_path / "none", tmp_path / "b.safetensors"), "there is no file or folder")
    refused(program("convert", weights, tmp_path / "b.gif"), "must be a folder, or end in .safetensors")
    assert not (tmp_path / "b.safetensors").exists()


def test_convert_to_gguf(program, model, tmp_path):
    one, offline = tmp_path / "one.gguf", os.environ | {"HF_HUB_OFFLINE": "1"}
    done = program("convert", model, one, "--type", "q8_0", "--rule", "*attn2.to_k*=q4_0")
    assert done.returncode == 0 and done.stdout.strip() == str(one) and "weights of" in done.stderr, done.stderr
    file = sf.io.GGUFFile(str(one))
    types = {name: file.get_dtype(name) for name in file.keys()}
    assert {"Q8_0", "Q4_0"} <= set(types.values())
    assert all(t not in ("Q8_0", "Q4_0") for name, t in types.items() if "conv_in" in name or name.startswith("vae."))

    def picture(of, name):
        drawn = program(
            "txt2img", "red square", "-m", of, "--steps", 2, "--seed", 3, "-o", tmp_path / name, "-q", env=offline
        )
        assert drawn.returncode == 0, drawn.stderr
        return sf.io.read_image(str(tmp_path / name)).float()

    assert (picture(model, "folder.png") - picture(one, "one.png")).abs().mean().item() < 8  # of 255
    refused(program("convert", model, one, "--type", "q8_0"), "is there already; --force replaces it")
    refused(program("convert", model, tmp_path / "a.gguf", "--type", "q9"), "--type: format must be one of")
    refused(program("convert", model, tmp_path / "a.gguf", "--type", "q8_0", "--rule", "x"), "must be PATTERN=TYPE")
    refused(program("convert", model, tmp_path / "a.safetensors", "--type", "q8_0"), "are for files that end in .gguf")
    assert not (tmp_path / "a.gguf").exists()


def test_any_model_is_one_file(program, model, tmp_path):
    one, offline = tmp_path / "one.safetensors", os.environ | {"HF_HUB_OFFLINE": "1"}
    done = program("convert", model, one)
    assert done.returncode == 0 and done.stdout.strip() == str(one), done.stderr

    def picture(of, name):
        drawn = program(
            "txt2img", "red square", "-m", of, "--steps", 2, "--seed", 3, "-o", tmp_path / name, "-q", env=offline
        )
        assert drawn.returncode == 0, drawn.stderr
        return sf.io.read_image(str(tmp_path / name))

    want = picture(model, "folder.png")
    assert (picture(one, "one.png") == want).all().item()
    again = program("convert", one, tmp_path / "again", env=offline)
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "again/model_index.json").read_text())["_guidance_scale"] == 4
    assert (picture(tmp_path / "again", "again.png") == want).all().item()
    assert program("convert", one, tmp_path / "wide.safetensors", "--dtype", "float32").returncode == 0
    assert (picture(tmp_path / "wide.safetensors", "wide.png") == want).all().item()
    shown = program("inspect", one).stdout
    assert "  brings unet/config.json, " in shown and "  brings tokenizer/merges.txt, " in shown
    refused(program("convert", model, tmp_path / "one.ckpt"), "give it a name that ends in .safetensors")
    # another program wrote only the weights
    bare = tmp_path / "bare.safetensors"
    sf.safetensors.save_file(load_file(str(one)), str(bare))
    refused(program("txt2img", "red square", "-m", bare, "-q"), "bare.safetensors: ")


def test_inspect(program, model, tmp_path):
    done = program("inspect", model)
    assert "StableDiffusionPipeline" in done.stdout and "safetensors" in done.stdout
    one = json.loads(program("inspect", model / "unet", "--json", "--contains", "conv_in").stdout)
    assert one["tensors"]["conv_in.weight"] == {"dtype": "F16", "shape": [16, 4, 3, 3]}
    refused(program("inspect", tmp_path / "nothing"), "there is no file or folder")
    (tmp_path / "text.txt").write_text("hello")
    assert program("inspect", tmp_path / "text.txt").returncode == 2


def test_inspect_of_a_lora(program, tmp_path):
    stem = "lora_unet_input_blocks_7_1_transformer_blocks_9_attn2_to_k"
    text = "lora_te2_text_model_encoder_layers_31_mlp_fc1"
    tensors = {
        f"{stem}.lora_down.weight": sf.ones(4, 2048, dtype=sf.float16),
        f"{stem}.lora_up.weight": sf.ones(1280, 4, dtype=sf.float16),
        f"{stem}.alpha": sf.tensor(2.0),
        f"{text}.lora_down.weight": sf.ones(8, 1280, dtype=sf.float16),
        f"{text}.lora_up.weight": sf.ones(5120, 8, dtype=sf.float16),
        "lora_unet_nowhere.lora_down.weight": sf.ones(4, 4),
        "lora_unet_nowhere.lora_up.weight": sf.ones(4, 4),
    }
    tags = {"10_cats": {"tabby": 20, " sofa": 3}, "5_more": {"sofa": 4}}
    metadata = {"ss_base_model_version": "sdxl_base_v1-0", "ss_tag_frequency": json.dumps(tags), "ss_seed": "1"}
    sf.safetensors.save_file(tensors, tmp_path / "lora.safetensors", metadata)
    shown = program("inspect", tmp_path / "lora.safetensors").stdout
    for line in (
        "  LoRA in the format of kohya",
        "  for Stable Diffusion XL, Stable Diffusion XL for inpainting",
        "  unet: 1 layers",
        "  text_encoder_2: 1 layers",
        "  rank 4 (2), 8 (1)",
        "  alpha 2",
        "  trained on: sdxl_base_v1-0",
        "  trigger words: tabby (20), sofa (7)",
        "  unused: 2 keys",
        "    'lora_unet_nowhere.lora_down.weight' is of a layer that is not there",
    ):
        assert line in shown.splitlines(), shown
    lora = json.loads(program("inspect", tmp_path / "lora.safetensors", "--json").stdout)["lora"]
    assert lora["layers"] == {"text_encoder_2": 1, "unet": 1} and lora["ranks"] == {"4": 2, "8": 1}
    assert list(lora["unused"]) == ["lora_unet_nowhere.lora_down.weight", "lora_unet_nowhere.lora_up.weight"]
    del tensors[f"{stem}.lora_up.weight"]
    sf.safetensors.save_file(tensors, tmp_path / "half.safetensors")
    half = program("inspect", tmp_path / "half.safetensors")
    assert half.returncode == 0 and "lacks its other half, the up (B) weight" in half.stdout


def test_interrupt_stops_within_a_step(build_dir, model, tmp_path):
    # A picture that takes minutes, and a first progress line: the signal comes in the middle on a fast machine and on a
    # slow one.
    sizes = ["--steps", "1000", "--width", "768", "--height", "768"]
    command = [
        str(build_dir / "scaffolding"),
        "txt2img",
        "red square",
        "--model",
        str(model),
        *sizes,
        "-o",
        str(tmp_path / "a.png"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and error.endswith("scaffolding: stopped\n")
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_pictures_without_text(program, tmp_path):
    from scaffolding.diffusion import DDPMPipeline, DDPMScheduler, UNet2DModel

    unet = UNet2DModel(
        sample_size=8,
        block_out_channels=(4, 8),
        layers_per_block=1,
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    DDPMPipeline(unet=unet, scheduler=DDPMScheduler()).save_pretrained(tmp_path / "model")
    refused(
        program("txt2img", "x", "--model", tmp_path / "model"),
        "makes pictures without being told what; in Python: DiffusionPipeline.from_pretrained(",
    )
    shown = program("inspect", tmp_path / "model")
    assert shown.returncode == 0 and "DDPMPipeline" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--model", "/no/such/folder"], "--model: there is no '/no/such/folder'"),
        (["--sampler", "best"], "--sampler: there is no 'best'; there are ddim"),
        (["--scheduler-option", "colour=1"], "has no field 'colour'"),
        (["--scheduler-option", "colour"], "must be field=value"),
        (["--width", "100"], "must be divisible by 8"),
        (["--steps", "0"], "num_inference_steps must be from 1"),
        (["--steps", "1001"], "num_inference_steps must be from 1"),
        (["--guidance", "nan"], "guidance_scale"),
        (["--dtype", "int8"], "--dtype: must be float32, bfloat16 or float16"),
        (["--output", "picture.txt"], "--output: must end in .png"),
        (["--output", "/proc/nowhere/a.png"], "--output: cannot make the folder"),
        (["--prompt-syntax", "loud"], "--prompt-syntax: must be plain or weighted"),
        (["--clip-skip", "9"], "clip_skip"),
    ],
)
def test_bad_arguments_are_one_clear_line(program, model, tmp_path, arguments, text):
    defaults = {"--model": str(model), "--output": str(tmp_path / "a.png"), "--steps": "2"}
    given = dict(zip(arguments[::2], arguments[1::2]))
    refused(program("txt2img", "square", "-q", *[part for pair in (defaults | given).items() for part in pair]), text)
    assert list(tmp_path.iterdir()) == []


def test_wrong_files_are_refused(program, model, tmp_path, recipe):
    (tmp_path / "a.png").write_bytes(b"\x89PNG and then nothing")
    assert program("img2img", "x", "--model", model, "--image", tmp_path / "a.png").returncode == 2
    refused(program("txt2img", "--like", tmp_path / "missing.png", "--model", model), "missing.png")
    refused(program("txt2img", "x", "--model", tmp_path / "a.png"), "is a picture")
    refused(program("txt2img", "--model", model, "-q"), "txt2img: needs a prompt")
    refused(program("train", "--config", tmp_path / "none.json", "-o", tmp_path / "run"), "none.json")
    wrong = json.loads(recipe.read_text())
    wrong["denoiser_training"]["steps"] = 3
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    refused(
        program("train", "--config", tmp_path / "wrong.json", "-o", tmp_path / "run"),
        "denoiser_training: has no field 'steps'",
    )
    assert not (tmp_path / "run").exists()


def test_a_long_prompt_says_what_is_left_out(program, model, tmp_path):
    done = program("txt2img", "red square " * 1000, "--model", model, "--steps", 2, "-o", tmp_path / "a.png", "-q")
    assert done.returncode == 0 and "too long" in done.stderr and len(done.stderr) < 300


def test_help_teaches_with_examples(program):
    assert "Examples:" in program("txt2img", "--help").stdout
    overview = program("--help").stdout
    for name in ("txt2img", "img2img", "inpaint", "train", "inspect", "devices"):
        assert name in overview


def test_the_model_of_the_environment(program, model, tmp_path):
    done = program(
        "txt2img", "square", "--steps", 2, "-o", tmp_path / "a.png", "-q", env=os.environ | {"SF_MODEL": str(model)}
    )
    assert done.returncode == 0, done.stderr
