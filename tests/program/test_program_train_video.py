"""`scaffolding train` for clips: tiny models of squares that move and of a folder of clips, and wrong recipes."""

import copy
import json
import shutil
import signal
import subprocess
import time

import pytest
from drawn_icons import draw_icons, refused
from folders import ROOT
from tiny_video import RECIPE, TRANSFORMER, save_cogvideox

import scaffolding as sf
from scaffolding import diffusion
from scaffolding.safetensors.torch import load_file

EXAMPLES = ROOT / "examples"
WEIGHTS = ("vae/diffusion_pytorch_model", "transformer/diffusion_pytorch_model", "text_encoder/model")


def written(folder, name="train.json", **parts):
    """A recipe with these parts changed."""
    recipe = copy.deepcopy(RECIPE)
    for part, fields in parts.items():
        recipe[part].update(fields)
    (folder / name).write_text(json.dumps(recipe))
    return folder / name


def trained(program, config, folder, *arguments):
    done = program("train", "--config", config, "--output", folder, "--quiet", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(folder / "pipeline")
    return folder


def losses(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def tensors(folder, part):
    return load_file(str(folder / f"{part}.safetensors"))


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe")
    draw_icons(folder)
    return written(folder)


@pytest.fixture(scope="module")
def run(program, config, tmp_path_factory):
    return trained(program, config, tmp_path_factory.mktemp("run") / "squares")


def clip(program, model, path, *arguments):
    done = program("txt2vid", "red square, flat", "-m", model, "--steps", 2, "-s", 3, "-q", "-o", path, *arguments)
    assert done.returncode == 0, done.stderr
    return sf.io.read_video(str(path))


def test_a_run_leaves_a_pipeline_logs_and_samples(program, run, tmp_path):
    index = json.loads((run / "pipeline/model_index.json").read_text())
    assert index["_class_name"] == "ToraPipeline" and index["transformer"][1] == "ToraTransformer3DModel"
    for stage, steps in {"autoencoder": 4, "text_encoder": 4, "denoiser": 6}.items():
        assert len(losses(run / stage)) == steps
    samples = sf.io.read_image(str(run / "denoiser/samples/step-000003.png"))
    assert samples.shape == (3, 2 * 16, 9 * 16)
    plain = clip(program, run / "pipeline", tmp_path / "plain" / "%04d.png")
    steered = clip(program, run / "pipeline", tmp_path / "a" / "%04d.png", "--trajectory", "4,4 12,12")
    assert tuple(plain.shape) == tuple(steered.shape) == (9, 16, 16, 3) and plain.tolist() != steered.tolist()
    pipe = diffusion.ToraPipeline.from_pretrained(run / "pipeline")
    assert pipe.encode_prompt("red square")[0].shape == (1, 16, 24)  # as long as in training
    # the empty prompt's tokens end where the captions' do
    assert pipe.tokenizer("Red square, flat!").input_ids[-1] == pipe.tokenizer("").input_ids[0]


def test_the_recipe_that_ships_runs_in_miniature(program, tmp_path):
    draw_icons(tmp_path)
    recipe = EXAMPLES / "moving_icons.json"
    folder = trained(program, recipe, tmp_path / "run", "--data", tmp_path / "icons.tar", "--smoke")
    assert json.loads((folder / "pipeline/model_index.json").read_text())["_class_name"] == "ToraPipeline"


@pytest.mark.parametrize("stage", ["autoencoder", "text_encoder", "denoiser"])
def test_a_killed_training_goes_on_to_the_same_weights(build_dir, program, config, run, tmp_path, stage):
    command = [build_dir / "scaffolding", "train", "--config", config, "--output", tmp_path / "run", "--quiet"]
    process = subprocess.Popen([str(part) for part in command])
    deadline = time.monotonic() + 120
    begun = tmp_path / "run" / stage / "checkpoint-2/manifest.json"
    while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    trained(program, config, tmp_path / "run")
    for part in WEIGHTS:
        ours = (tmp_path / f"run/pipeline/{part}.safetensors").read_bytes()
        assert ours == (run / f"pipeline/{part}.safetensors").read_bytes(), part


def test_a_longer_run_learns(program, config, run, tmp_path):
    """The first stages are those of the short run."""
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("denoiser", "model_index.json"))
    longer = {"max_steps": 60, "learning_rate": 5e-3, "checkpointing_steps": 60, "sample_prompts": [],
              "sample_trajectories": [], "gradient_checkpointing": True}  # fmt: skip
    trained(program, written(config.parent, "longer.json", denoiser_training=longer), tmp_path / "run")
    all_losses = losses(tmp_path / "run/denoiser")
    first, last = sum(all_losses[:10]) / 10, sum(all_losses[-10:]) / 10
    assert last < 0.8 * first, (first, last)


def test_latents_of_each_frame_in_patches_of_four(program, config, tmp_path):
    """An autoencoder that does not compress time: any number of frames, in training, sampling and measuring."""
    each = written(
        config.parent,
        "each.json",
        data={"num_frames": 6},
        vae={"temporal_compression_ratio": 1},
        transformer={"patch_size": 4},
        autoencoder_training={"num_frames": 3},
        denoiser_training={"trajectory_dropout": 0, "mixed_precision": "bf16"},
    )
    run = trained(program, each, tmp_path / "run")
    assert json.loads((run / "pipeline/transformer/config.json").read_text())["temporal_compression_ratio"] == 1
    steering = ("--trajectory", "4,4 12,12")
    assert tuple(clip(program, run / "pipeline", tmp_path / "a" / "%04d.png", *steering).shape) == (6, 16, 16, 3)
    assert clip(program, run / "pipeline", tmp_path / "b" / "%04d.png", "--num-frames", 4, *steering).shape[0] == 4
    measured = ("--config", each, "--splits", "train", "--count", 2, "--steps", 1, "--json", "-q")
    done = program("eval", run / "pipeline", *measured)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["frames"] == 6


def test_parts_of_clips_teach_what_things_look_like(program, config, run, tmp_path):
    """A step on two of the three latents is another than one on all, and a model that learned so makes whole clips."""
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("denoiser", "model_index.json"))
    part = written(config.parent, "part.json", transformer={"use_rotary_positional_embeddings": True},
                   denoiser_training={"latent_frames": 2, "whole_steps": 15, "max_steps": 60, "learning_rate": 5e-3,
                                      "sample_prompts": [], "sample_trajectories": []})  # fmt: skip
    trained(program, part, tmp_path / "run")
    all_losses = losses(tmp_path / "run/denoiser")
    assert sum(all_losses[-10:]) < 0.8 * sum(all_losses[:10])
    assert clip(program, tmp_path / "run/pipeline", tmp_path / "a" / "%04d.png").shape[0] == 9
    sums = written(config.parent, "sums.json", transformer={"use_rotary_positional_embeddings": False},
                   denoiser_training={"latent_frames": 2})  # fmt: skip
    refused(program("train", "--config", sums, "-o", tmp_path / "none"), "needs a transformer with use_rotary")


def test_a_model_is_trained_on_by_a_later_run(program, config, run, tmp_path):
    """All of its parts, or all but the autoencoder, which is then used as it is."""
    little = {"learning_rate": 1e-7, "ema_decay": 0.0}
    recipe = {"text_encoder_training": {"max_steps": 0},
              "denoiser_training": {**little, "text_learning_rate": 1e-7, "max_steps": 2}}  # fmt: skip
    for whole in (True, False):
        autoencoder = {**little, "train_pretrained": whole, "max_steps": 2}
        further = written(config.parent, "further.json", **recipe, autoencoder_training=autoencoder)
        later = trained(program, further, tmp_path / f"{whole}", "--pretrained", run / "pipeline")
        assert (later / "autoencoder").exists() == whole
        for part in WEIGHTS:
            ours, theirs = (tensors(folder / "pipeline", part) for folder in (later, run))
            assert ours.keys() == theirs.keys()
            learned = [k for k in ours if "running_" not in k and "num_batches" not in k]  # statistics of its batches
            assert max((ours[k].float() - theirs[k].float()).abs().max().item() for k in learned) < 2e-3, part
    other = {"vae": {"temporal_compression_ratio": 2}, **recipe}
    wrong = written(config.parent, "other.json", **other)
    command = ("train", "--config", wrong, "-o", tmp_path / "wrong", "-q", "--pretrained", run / "pipeline")
    refused(program(*command), "temporal_compression_ratio 4 and the recipe's vae 2")


def folder_of_clips(folder, trajectory):
    folder.mkdir()
    rows = []
    for i in range(4):
        frames = sf.zeros(9, 16, 32, 3, dtype=sf.uint8)
        for t in range(9):
            frames[t, 4:12, 2 + 2 * t : 8 + 2 * t, i % 3] = 255
        sf.io.save_video(str(folder / f"{i}.webp"), frames)
        steering = {"trajectory": "5,8 21,8"} if trajectory else {}
        rows.append({"file_name": f"{i}.webp", "text": f"a square of colour {i}", **steering})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("trained_part", ["all", "tora"])
def test_a_pipeline_goes_on_with_a_folder_of_clips(program, tmp_path, trained_part):
    """CogVideoX all of it, or Tora's parts beside CogVideoX's weights, which stay."""
    steered = trained_part == "tora"
    folder_of_clips(tmp_path / "clips", steered)
    start = save_cogvideox(tmp_path / "start")
    recipe = {
        "data": {"path": "clips", "num_frames": 9, "height": 16, "width": 32},
        "tokenizer": {"max_tokens": 16},
        "vae": json.loads((start / "vae/config.json").read_text()),
        "text_encoder": json.loads((start / "text_encoder/config.json").read_text()),
        "transformer": {**json.loads((start / "transformer/config.json").read_text()),
                        "_class_name": "ToraTransformer3DModel" if steered else "CogVideoXTransformer3DModel",
                        **({"flow_channels": 8} if steered else {})},
        "scheduler": RECIPE["scheduler"],
        "autoencoder_training": {},
        "denoiser_training": {**RECIPE["denoiser_training"], "batch_size": 4, "clips": 2, "text_learning_rate": 0.0,
                              "sample_prompts": ["a square"], "sample_trajectories": [], "trainable": trained_part,
                              "max_steps": 3},
    }  # fmt: skip
    (tmp_path / "train.json").write_text(json.dumps(recipe))
    run = trained(program, tmp_path / "train.json", tmp_path / "run", "--pretrained", start)
    assert not (run / "autoencoder").exists()
    ours, theirs = (tensors(f, "transformer/diffusion_pytorch_model") for f in (run / "pipeline", start))
    same = [key for key in theirs if (ours[key] == theirs[key].half()).all().item()]
    assert len(same) == (len(theirs) if steered else 0) or not steered and len(same) < len(theirs) / 2
    assert steered == any(key.startswith("fuser.") and ours[key].abs().max().item() > 0 for key in ours)
    kept, before = (tensors(f, "text_encoder/model") for f in (run / "pipeline", start))
    assert all((kept[key] == before[key].half()).all().item() for key in before)
    assert clip(program, run / "pipeline", tmp_path / "a" / "%04d.png").shape[0] == 9
    assert TRANSFORMER["sample_frames"] == 9


def test_smoke_is_the_whole_chain_in_miniature(program, config, tmp_path):
    big = {"vae": {"block_out_channels": [128, 256, 512]}, "transformer": {"num_layers": 40}, "text_encoder": {}}
    run = trained(program, written(config.parent, "big.json", **big), tmp_path / "run", "--smoke")
    assert len(losses(run / "denoiser")) == 6
    assert json.loads((run / "pipeline/transformer/config.json").read_text())["num_layers"] == 2


@pytest.mark.parametrize(
    "part, fields, text",
    [
        ("data", {"num_frames": 10}, "num_frames must be 4 k + 1, got 10"),
        ("data", {"height": 20, "width": 20}, "multiples of 8"),
        ("data", {"width": 32}, "squares"),
        ("data", {"path": "none.tar"}, "none.tar"),
        ("data", {"icons": {"largest_icon": 99}}, "99"),
        ("data", {"icons": {"size": 9}}, "has no field 'size'"),
        ("vae", {"latent_chanels": 4}, "vae: has no field 'latent_chanels'"),
        ("transformer", {"_class_name": "UNet2DModel"}, "_class_name must be"),
        ("transformer", {"patch_size_t": 2}, "patch_size_t"),
        ("scheduler", {"_class_name": "None"}, "None"),
        ("denoiser_training", {"trajectory_dropout": 2}, "trajectory_dropout must be 0 to 1"),
        ("denoiser_training", {"trainable": "fusers"}, "trainable must be"),
        ("denoiser_training", {"sample_trajectories": ["1,1 2,2"]}, "one for each of the 2 sample_prompts"),
        ("denoiser_training", {"sample_trajectories": ["1,1 99,2", "1,1 2,2"]}, "outside"),
        ("denoiser_training", {"clips": 0}, "clips must be"),
        ("tokenizer", {"max_tokens": 15}, "max_tokens must be 16 or more"),
        ("vae", {"temporal_compression_ratio": 0}, "temporal_compression_ratio must be above 0"),
        ("autoencoder_training", {"square_steps": -1}, "square_steps must not be negative"),
        ("autoencoder_training", {"adam_beta2": 1}, "adam_beta2 must be in [0, 1)"),
        ("autoencoder_training", {"crop": 6}, "crop must be a multiple of 4"),
        ("autoencoder_training", {"crop": 20}, "at most 16"),
        ("autoencoder_training", {"num_frames": 13}, "at most data's 9"),
        ("denoiser_training", {"whole_steps": 7}, "whole_steps must be 0 to max_steps, 6, got 7"),
        ("denoiser_training", {"latent_frames": 0}, "latent_frames must be 1 to a clip's 3, got 0"),
        ("denoiser_training", {"latent_frames": 4}, "latent_frames must be 1 to a clip's 3, got 4"),
    ],
)
def test_wrong_recipes_are_one_clear_line(program, config, tmp_path, part, fields, text):
    wrong = written(config.parent, "wrong.json", **{part: fields})
    refused(program("train", "--config", wrong, "-o", tmp_path / "run"), text)
    assert not (tmp_path / "run").exists()


def test_what_a_folder_of_clips_lacks(program, config, tmp_path):
    folder_of_clips(tmp_path / "clips", False)
    recipe = json.loads(config.read_text())
    recipe["data"] = {"path": str(tmp_path / "clips"), "num_frames": 9, "height": 16, "width": 16}
    (tmp_path / "train.json").write_text(json.dumps(recipe))
    command = ("train", "--config", tmp_path / "train.json", "-o", tmp_path / "run")
    refused(program(*command), "has no trajectories")
    (tmp_path / "clips/metadata.jsonl").unlink()
    refused(program(*command), "have no captions")
    (tmp_path / "empty").mkdir()
    refused(program(*command, "--data", tmp_path / "empty"), "holds no videos")
    assert not (tmp_path / "run").exists()
