"""`scaffolding train` with a composition: colours, pairs and counts made on the fly; what `eval` asks of them."""

import json
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from drawn_icons import refused
from evaluations import draw_two_styles

import scaffolding as sf

COMPOSITION = {
    "pair_probability": 0.3,
    "count_probability": 0.2,
    "recolour_probability": 0.5,
    "name_colour_probability": 0.5,
    "detail_dropout": 0.2,
    "variation_probability": 0.5,
    "rotation": 10,
    "smallest": 0.7,
    "hue_jitter": 10,
    "mirror_probability": 0.3,
    "gradient_probability": 0.1,
    "background_jitter": 4,
}
WEIGHTS = ("vae/diffusion_pytorch_model", "unet/diffusion_pytorch_model", "text_encoder/model")


@pytest.fixture(scope="module")
def composed(recipe, tmp_path_factory):
    folder = draw_two_styles(tmp_path_factory.mktemp("composed"))
    settings = json.loads(recipe.read_text())
    settings["data"]["composition"] = COMPOSITION
    settings["tokenizer"]["max_tokens"] = 24
    (folder / "train.json").write_text(json.dumps(settings))
    return folder / "train.json"


@pytest.fixture(scope="module")
def trained(program, composed):
    folder = composed.parent / "run"
    done = program("train", "--config", composed, "--output", folder, "--quiet")
    assert done.returncode == 0, done.stderr
    return folder


def test_a_model_of_compositions_is_trained_without_cached_latents(program, trained, tmp_path):
    assert not (trained / "latents.safetensors").exists()
    for stage, steps in (("autoencoder", 4), ("text_encoder", 4), ("denoiser", 6)):
        rows = [json.loads(line) for line in (trained / stage / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in rows if "loss" in row] == list(range(1, steps + 1)), stage
    done = program("txt2img", "two blue squares", "-m", trained / "pipeline", "--steps", 1, "-o", tmp_path / "a.png")
    assert done.returncode == 0, done.stderr
    assert sf.io.read_image(str(tmp_path / "a.png")).shape == (3, 64, 64)
    words = json.loads((trained / "pipeline/tokenizer/vocab.json").read_text())
    assert {"and</w>", "two</w>", "three</w>", "squares</w>"} <= set(words)


def test_a_killed_training_goes_on_to_the_same_weights(build_dir, program, composed, trained, tmp_path):
    """What was composed before and after kill -9 is what a run that was left alone composed."""
    command = [str(build_dir / "scaffolding"), "train", "--config", composed, "--output", tmp_path / "run", "--quiet"]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 120
    reached = tmp_path / "run/denoiser/checkpoint-2/manifest.json"
    while not reached.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert reached.exists()
    done = program("train", "--config", composed, "--output", tmp_path / "run", "--quiet")
    assert done.returncode == 0, done.stderr
    for part in WEIGHTS:
        ours, theirs = (
            (folder / f"pipeline/{part}.safetensors").read_bytes() for folder in (tmp_path / "run", trained)
        )
        assert ours == theirs, part


@pytest.mark.parametrize(
    ("part", "change"),
    [("data", {"composition": {**COMPOSITION, "pair_probability": 0.4}}), ("denoiser_training", {"noises": 2})],
)
def test_compositions_and_noises_change_what_is_learned(program, composed, trained, tmp_path, part, change):
    settings = json.loads(composed.read_text())
    settings[part] |= change
    shutil.copy(composed.parent / "icons.tar", tmp_path)
    (tmp_path / "train.json").write_text(json.dumps(settings))
    done = program("train", "--config", tmp_path / "train.json", "--output", tmp_path / "run", "--quiet")
    assert done.returncode == 0, done.stderr
    weights = f"pipeline/{WEIGHTS[0 if part == 'data' else 1]}.safetensors"
    assert (tmp_path / "run" / weights).read_bytes() != (trained / weights).read_bytes()


def test_it_goes_on_from_a_pipelines_weights(program, composed, trained, tmp_path):
    """Autoencoder, text encoder and denoiser: at no rate worth the name the weights are those that it began with."""
    settings = json.loads(composed.read_text())
    still = {"learning_rate": 1e-30}
    settings["autoencoder_training"] |= {**still, "train_pretrained": True}
    settings["text_encoder_training"] |= still
    settings["denoiser_training"] |= {**still, "text_learning_rate": 0.0}
    shutil.copy(composed.parent / "icons.tar", tmp_path)
    (tmp_path / "train.json").write_text(json.dumps(settings))
    command = ("train", "--config", tmp_path / "train.json", "--output", tmp_path / "run", "--quiet")
    done = program(*command, "--pretrained", trained / "pipeline")
    assert done.returncode == 0, done.stderr
    for stage in ("autoencoder", "text_encoder", "denoiser"):
        assert (tmp_path / "run" / stage / "metrics.jsonl").exists()
    for part in WEIGHTS:
        ours, theirs = (
            sf.safetensors.load_file(str(folder / f"pipeline/{part}.safetensors"))
            for folder in (tmp_path / "run", trained)
        )
        assert all((ours[key] == theirs[key]).all().item() for key in theirs), part


def test_the_example_runs_in_miniature(program, composed, tmp_path):
    recipe = pathlib.Path(__file__).resolve().parents[2] / "examples/icons_further.json"
    data = composed.parent / "icons.tar"
    done = program("train", "--config", recipe, "--data", data, "-o", tmp_path / "run", "--smoke", "--quiet")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/pipeline/model_index.json").exists()
    assert not (tmp_path / "run/latents.safetensors").exists()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pairs": 0.5}, "data: composition: has no field 'pairs'"),
        ({"pair_probability": 1.5}, "data: composition: pair_probability must be 0 to 1, got 1.5"),
        ({"pair_probability": 0.9}, "pair_probability and count_probability must be 1 at most together"),
        ({"gradient_probability": 0.9}, "must be 1 at most together"),
        ({"rotation": "much"}, "rotation"),
    ],
)
def test_wrong_compositions_are_one_clear_line(program, composed, tmp_path, change, text):
    settings = json.loads(composed.read_text())
    settings["data"]["composition"] |= change
    settings["data"]["path"] = str(composed.parent / "icons.tar")
    (tmp_path / "train.json").write_text(json.dumps(settings))
    refused(program("train", "--config", tmp_path / "train.json", "-o", tmp_path / "run"), text)
    assert not (tmp_path / "run").exists()


def test_eval_asks_for_colours_pairs_counts_and_seeds(program, composed, trained, tmp_path):
    asked = ("eval", trained / "pipeline", "--config", composed, "--splits", "train", "--count", 4, "--steps", 1, "-q")
    done = program(*asked, "--compositions", 6, "--json", "-o", tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)["compositions"]
    assert report["colours"]["pictures"] == report["pairs"]["pictures"] == report["counts"]["pictures"] == 6
    assert report["seeds"]["prompts"] == 1 and report["seeds"]["distance"] > 0
    assert report["seeds"]["distance_of_other_icons"] > 0
    rows = {row["change"]: row for row in report["self_check"]["rows"]}
    real, chance = rows["composed of real icons"], rows["by chance"]
    assert real["colours"]["right"] >= 0.95 and real["pairs"]["both"] >= 0.95 and real["counts"]["all"] >= 0.95
    assert chance["colours"]["right"] <= 0.5
    assert "through the autoencoder" in rows
    assert report["self_check"]["named_in_captions"] == {"pictures": 18, "right": 1}
    prompts = report["prompts"]
    assert [row["set"] for row in prompts] == ["colours"] * 6 + ["pairs"] * 6 + ["counts"] * 6
    assert all(" and " in row["prompt"] for row in prompts[6:12])
    assert all(row["prompt"].startswith(("two ", "three ")) for row in prompts[12:])
    shown = program(*asked)
    assert "put together" in shown.stdout and "by chance" in shown.stdout and "colours as captions" in shown.stdout
    none = program(*asked, "--compositions", 0, "--json")
    assert none.returncode == 0 and "compositions" not in json.loads(none.stdout)
