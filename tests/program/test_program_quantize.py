"""`scaffolding quantize`: bytes and errors of layers, predictions and pictures, and rules that fit a budget."""

import io
import json

import folders
import numpy as np
import pytest
from PIL import Image
from served import serving, skip_without_server

MODEL = str(folders.ROOT / "models" / "emoji-128")


@pytest.fixture(scope="module")
def report(program, tmp_path_factory):
    """What people see, and the file."""
    path = tmp_path_factory.mktemp("report") / "report.json"
    table = program("quantize", MODEL, "--type", "q4_K", "--steps", "2", "--report", str(path)).stdout
    return table, json.loads(path.read_text())


def test_the_report_says_what_layers_lose(report):
    table, out = report
    assert out["denoiser"] == "UNet2DConditionModel" and out["bytes"] < 0.5 * out["dense_bytes"]
    names = [layer["name"] for layer in out["layers"]]
    assert len(names) == len(set(names)) > 50 and all(name in table for name in names)
    assert not any("time_embedding" in name for name in names)
    for layer in out["layers"]:
        assert 0.01 < layer["weight_error"] < 0.15, layer
        assert 0 < layer["output_error"] < 0.3, layer
        assert layer["bytes"] < layer["dense_bytes"]
        assert layer["type"] in ("Q4_K", "Q4_0") and ("instead_of" in layer) == (layer["type"] == "Q4_0")
    assert out["other_type"] == sum("instead_of" in layer for layer in out["layers"])
    assert len(out["prediction_errors"]) == 2 and all(0 < e < 0.5 for e in out["prediction_errors"])
    assert 0 < out["picture"]["mean_error"] < 0.2 and out["picture"]["psnr"] > 10


def test_eight_bits_lose_less_and_rules_keep_layers(program):
    out = json.loads(
        program("quantize", MODEL, "--type", "q8_0", "--rule", "*attn2*=16", "--steps", "1", "--json").stdout
    )
    assert not any("attn2" in layer["name"] for layer in out["layers"])
    assert all(layer["weight_error"] < 0.01 and layer["output_error"] < 0.03 for layer in out["layers"])
    assert out["prediction_errors"][0] < 0.03 and out["picture"]["psnr"] > 30


def test_a_budget_is_kept_by_the_rules_that_are_proposed(program, report):
    errors = []
    for share in (0.5, 0.36):
        budget = int(share * report[1]["dense_bytes"])
        out = json.loads(program("quantize", MODEL, "--budget", str(budget), "--steps", "1", "--json").stdout)
        assert 0.9 * budget < out["bytes"] <= budget
        got = {layer["name"]: layer["type"] for layer in out["layers"]}
        assert got == {name: kind for name, kind in out["rules"].items() if kind}
        errors.append(out["prediction_errors"][0])
    assert errors[0] < errors[1]


@pytest.mark.parametrize(
    "words, message",
    [
        ((), "needs --type"),
        (("--type", "q9"), "--type: format must be one of"),
        (("--type", "q8_0", "--budget", "4GB"), "give one of them"),
        (("--budget", "four"), "must be bytes as 4GB"),
        (("--budget", "1KB"), "at least"),
        (("--budget", "40GB"), "fits 40GB as it is"),
        (("--type", "q8_0", "--rule", "attn"), "--rule: must be PATTERN=TYPE"),
    ],
)
def test_what_makes_no_sense_is_refused(program, words, message):
    done = program("quantize", MODEL, *words, check=False)
    assert done.returncode != 0 and message in done.stderr


@pytest.fixture(scope="module")
def full(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("full")
    return pixels(folder / draw(program, folder, "-o", "full.png"))


def draw(program, folder, *words):
    done = program("txt2img", "red apple, noto", "--steps", "4", "--seed", "7", "--json", *words, cwd=folder)
    return json.loads(done.stdout)["path"]


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB"), np.float32)


@pytest.mark.parametrize("word, near", [("q8_0", 3), ("int8", 4), ("int8-dynamic", 6), ("q4_K", 16)])
def test_a_model_is_read_in_few_bits_and_the_picture_says_so(program, full, tmp_path, word, near):
    few = draw(program, tmp_path, "-o", "few.png", "--quantize", word)
    difference = np.abs(pixels(tmp_path / few) - full).mean()
    assert 0 < difference < near
    assert json.loads(Image.open(tmp_path / few).text["scaffolding"])["quantize"] == word
    again = draw(program, tmp_path, "-o", "again.png", "--like", few)
    assert (pixels(tmp_path / again) == pixels(tmp_path / few)).all()


def test_it_may_be_called_as_stable_diffusion_cpp_does(program, tmp_path):
    notes = [json.loads(Image.open(tmp_path / draw(program, tmp_path, "--type", word)).text["scaffolding"])
             for word in ("q4_0", "bf16")]  # fmt: skip
    assert notes[0]["quantize"] == "q4_0" and notes[0]["dtype"] == "float32"
    assert "quantize" not in notes[1] and notes[1]["dtype"] == "bf16"


@pytest.mark.parametrize(
    "word, message",
    [
        ("q9", "--quantize: format must be one of"),
        ("nf4-dynamic", "--quantize: nf4 has no products with int8 activations"),
        ("-dynamic", "--quantize: format must be one of"),
    ],
)
def test_another_word_is_refused(program, tmp_path, word, message):
    done = program("txt2img", "a cat", f"--quantize={word}", check=False, cwd=tmp_path)
    assert done.returncode != 0 and message in done.stderr


def test_the_server_reads_models_so(program, build_dir, tmp_path):
    skip_without_server(program, build_dir)
    with serving(build_dir, tmp_path / "data", "--quantize", "int8-dynamic") as server:
        job = server.wait(
            server.post("/api/v1/jobs", {"prompt": "red apple, noto", "num_inference_steps": 2, "seed": 7})[1]["id"]
        )
        assert job["state"] == "done"
        picture = Image.open(io.BytesIO(server.get(job["pictures"][0]["url"])[1]))
        assert json.loads(picture.text["scaffolding"])["quantize"] == "int8-dynamic"
