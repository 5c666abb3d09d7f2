"""tools/model_card.py: what a card says comes from the recipe, the run and the figures it is given."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def safetensors(path, shapes):
    header = json.dumps(
        {name: {"dtype": "F16", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)


def write_model(folder, pipeline, recipe, **parts):
    """A folder of a model whose parts are of these classes, without weights."""
    index = {"_class_name": pipeline}
    for part, name in parts.items():
        (folder / part).mkdir(parents=True)
        index[part] = ["diffusers", name]
    (folder / "model_index.json").write_text(json.dumps(index))
    (folder / "train.json").write_text((ROOT / "models" / recipe / "train.json").read_text())


def make_card(folder, *options):
    done = subprocess.run(
        [sys.executable, ROOT / "tools/model_card.py", folder, *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return (folder / "README.md").read_text()


def test_a_card(tmp_path):
    model, run = tmp_path / "model", tmp_path / "run"
    refused = subprocess.run([sys.executable, ROOT / "tools/model_card.py", tmp_path], capture_output=True, text=True)
    assert refused.returncode == 1 and "no model_index.json" in refused.stderr
    parts = {"unet": "UNet2DConditionModel", "vae": "AutoencoderKL", "text_encoder": "CLIPTextModel"}
    write_model(model, "StableDiffusionPipeline", "emoji-128", **parts, tokenizer="T", scheduler="DDIMScheduler")
    safetensors(model / "unet/a.safetensors", {"w": [1000, 2000], "b": [10]})
    for stage in ("text_encoder", "denoiser"):
        (run / stage).mkdir(parents=True)
        (run / stage / "metrics.jsonl").write_text(
            "".join(json.dumps({"step": step, "loss": 1 / step}) + "\n" for step in range(1, 101))
        )
    text = make_card(model)
    assert "Not measured yet" in text and "hardware that was not noted" in text
    (tmp_path / "eval.json").write_text(json.dumps({"top5_train": 0.815, "held_out": {"top5": 0.42}, "note": "x"}))
    text = make_card(model, "--run", run, "--eval", tmp_path / "eval.json", "--hardware", "one core", "--hours", "6.5")
    for said in (
        "| top5 train | 0.815 |",
        "| held out: top5 | 0.42 |",
        "one core, 6.5 hours",
        "| Denoiser | `UNet2DConditionModel` | 2.00 million |",
        "| denoiser | 100 | 32 |",
        "| autoencoder | 2100 | 16 | 0.001 | not given |",
    ):
        assert said in text, said
    (tmp_path / "before.json").write_text(json.dumps({"top5_train": 0.7, "held_out": {"top5": 0.3}}))
    text = make_card(model, "--eval", tmp_path / "eval.json", "--eval-before", tmp_path / "before.json")
    assert "| Figure | ships | before |" in text and "| held out: top5 | 0.42 | 0.3 |" in text
    for notice in ("Copyright Google LLC and the Noto Emoji authors", "Copyright (c) Microsoft Corporation"):
        assert (
            notice in text
            and notice.split("Copyright")[1].split(" and")[0].strip("( c)")[:6]
            in (ROOT / "models/emoji-128/LICENSES.md").read_text()
        )


def test_a_card_of_a_model_of_compositions(tmp_path):
    write_model(tmp_path / "model", "StableDiffusionPipeline", "emoji-128", unet="UNet2DConditionModel")
    safetensors(tmp_path / "model/unet/a.safetensors", {"w": [10]})
    plain = make_card(tmp_path / "model")
    assert "counts, writing and places in\nthe picture are beyond it" in plain and "`two cats, noto`" not in plain
    recipe = json.loads((tmp_path / "model/train.json").read_text())
    recipe["data"]["composition"] = {"pair_probability": 0.2, "count_probability": 0.05}
    (tmp_path / "model/train.json").write_text(json.dumps(recipe))
    text = make_card(tmp_path / "model")
    for said in (
        "`blue cat, noto`",
        "`two cats, noto`",
        "20 % show two\nicons and 5 % several",
        "others 30 % were put",
    ):
        assert said in text, said
    assert "greater numbers, writing" in text and "counts, writing" not in text


def test_a_card_of_a_model_of_clips(tmp_path):
    parts = {"transformer": "ToraTransformer3DModel", "vae": "AutoencoderKLCogVideoX", "text_encoder": "T5EncoderModel"}
    write_model(tmp_path / "model", "ToraPipeline", "emoji-video", **parts, tokenizer="T", scheduler="S")
    safetensors(tmp_path / "model/transformer/a.safetensors", {"w": [1000, 2000]})
    text = make_card(tmp_path / "model")
    assert "Not measured yet" in text and "How well it does" not in text
    assert "Clips of 17 frames of 64 x 64 pixels" in text and "the groups Symbols, Flags" in text
    assert (
        "Noto Emoji authors" in text and "Microsoft" not in text + (ROOT / "models/emoji-video/LICENSES.md").read_text()
    )
    clips = {"clips": 60, "distance": 2.31, "distance_by_chance": 18.2, "top1": 0.5, "top5": 0.734, "change": 0.031}
    report = {
        "icons": 1021,
        "steps": 20,
        "guidance": 3.0,
        "sets": {"train": clips},
        "self_check": {"rows": {"through the autoencoder": {**clips, "top5": 0.97}}, "chance_top5": 0.0049},
        "seconds_of_a_clip": 1.26,
    }
    (tmp_path / "eval.json").write_text(json.dumps(report))
    text = make_card(tmp_path / "model", "--eval", tmp_path / "eval.json", "--hardware", "one core", "--hours", "5")
    assert max(len(line) for line in text.split("\n") if not line.startswith("|")) <= 120
    text = " ".join(text.split())
    for said in (
        "2.3 pixels away from where it was asked to be (median; 18.2 by chance)",
        "in 73 % of the clips (0.5 % by chance)",
        "the most that it can reach: 2.3 pixels, 97 %",
        "A clip takes 1.3 s (20 steps, guidance 3)",
        "1 021 icons of Noto",
        "| sets: train: distance | 2.31 |",
        "| Denoiser | `ToraTransformer3DModel` | 2.00 million |",
        "| denoiser | 13000 | 64 | 0.002 | not given |",
        "one core, 5 hours",
        "scaffolding train --config models/emoji-video/train.json",
    ):
        assert said in text, said
