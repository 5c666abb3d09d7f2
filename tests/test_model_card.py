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
    index = {"_class_name": "StableDiffusionPipeline"}
    for part, name in {
        "unet": "UNet2DConditionModel",
        "vae": "AutoencoderKL",
        "text_encoder": "CLIPTextModel",
        "tokenizer": "T",
        "scheduler": "DDIMScheduler",
    }.items():
        (model / part).mkdir(parents=True)
        index[part] = ["diffusers", name]
    safetensors(model / "unet/a.safetensors", {"w": [1000, 2000], "b": [10]})
    (model / "model_index.json").write_text(json.dumps(index))
    (model / "train.json").write_text((ROOT / "models/emoji-128/train.json").read_text())
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
