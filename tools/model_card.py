"""The card of a trained model, from its recipe, its run and its figures.

    python tools/model_card.py models/emoji-128 --run runs/emoji --eval eval.json --hardware "one core of a 2-core Xeon"
    --hours 6.5

--run: the folder that `scaffolding train` wrote (metrics.jsonl of each stage: steps and last losses). --eval: what
`scaffolding eval --json` wrote, a JSON object of named numbers. Writes README.md into the model's folder; what was not
given is left out, and said.
"""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAGES = {
    "autoencoder": "autoencoder_training",
    "text_encoder": "text_encoder_training",
    "denoiser": "denoiser_training",
}
PARTS = {
    "tokenizer": "Tokenizer",
    "text_encoder": "Text encoder",
    "unet": "Denoiser",
    "vae": "Autoencoder",
    "scheduler": "Scheduler",
}

FLUENT = "Fluent Emoji, Copyright (c) Microsoft Corporation, MIT License (the notice travels with copies)"

SHEET = """![48 pictures, uncurated](../../docs/pictures/contact_sheet.png)

*[48 prompts](contact_sheet.txt), evenly spaced rows of the data: 24 of the split train and 24 name-and-style
combinations of the held-out split; seeds 1 to 48, nothing left out.*
"""

TEXT = """# emoji-128

Icons of 128 x 128 pixels from words. A latent-diffusion model in diffusers' folder layout, trained from nothing by
Scaffolding, in float16.

```
scaffolding txt2img "red apple, fluent 3d, on a blue background" --seed 7
```

It loads in diffusers unchanged: `StableDiffusionPipeline.from_pretrained("models/emoji-128")`.

{state}## Prompts
A thing, a style (`noto`, `fluent 3d`, `fluent flat`) and, if you like, a background:
`caption, style, on a COLOUR background`. Without one the ground is white. It knows the names and keywords of emoji and
nothing else.

{sheet}
## Data and licences
4 719 pictures of emoji with transparency, their names and keywords; left out are: {left_out}.
They are drawn on {backgrounds}.
The weights and every picture of the data carry these notices:

| Style | Pictures | Licence | Attribution |
|---|---|---|---|
| `noto` | 1 632 | Apache-2.0 | Noto Emoji, Copyright Google LLC and the Noto Emoji authors, Apache License 2.0 |
| `fluent 3d` | 1 544 | MIT | {fluent} |
| `fluent flat` | 1 543 | MIT | {fluent} |

Names and keywords come from Unicode's emoji-test.txt and CLDR annotations (Unicode licence), a few newer ones from
emojilib and unicode-emoji-json (MIT). The Noto part is made again from Debian's packages by `tools/make_noto_data.py`.
The full notices: [LICENSES.md](LICENSES.md).

## Recipe
[train.json](train.json), seed {seed}: `scaffolding train --config models/emoji-128/train.json --output runs/emoji`.

| Stage | Steps | Batch | Learning rate | Loss at the end |
|---|---|---|---|---|
{stages}

{trained_on} {splits}

| Part | Class | Parameters |
|---|---|---|
{parts}

{megabytes:.1f} MB in all.

## Figures
{figures}

## Limits
It draws what it was trained on: single icons in three styles. Things that no emoji shows, counts, writing and places in
the picture are beyond it; the names that were held out to measure it include everyday words, and were learned last.
People have the yellow of emoji. It is an example of what the program does.
"""


def parameters(folder):
    """Of a component: read from the headers of its safetensors."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, tensor in header.items():
            size = 1
            for length in tensor.get("shape", [0]) if name != "__metadata__" else [0]:
                size *= length
            total += size
    return total


def last_loss(run, stage):
    rows = [json.loads(line) for line in (run / stage / "metrics.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if "loss" in row]
    if not losses:
        sys.exit(f"model_card: {run / stage}/metrics.jsonl has no loss")
    tail = losses[-max(1, len(losses) // 50) :]
    return rows[-1]["step"], sum(tail) / len(tail)


def stage_rows(recipe, run):
    for stage, section in STAGES.items():
        settings = recipe[section]
        # A stage that was trained in another run has no metrics here.
        steps, loss = (
            last_loss(run, stage) if run and (run / stage / "metrics.jsonl").exists() else (settings["max_steps"], None)
        )
        yield (
            f"| {stage} | {steps} | {settings['batch_size']} | {settings['learning_rate']} | "
            f"{'not given' if loss is None else f'{loss:.4f}'} |"
        )


def part_rows(model):
    index = json.loads((model / "model_index.json").read_text())
    for part, title in PARTS.items():
        count = parameters(model / part)
        yield f"| {title} | `{index[part][1]}` | {f'{count / 1e6:.2f} million' if count else ''} |"


def numbers(values, prefix=""):
    """Each number by its name, however deep."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{prefix}{name}: ")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield (prefix + name).replace("_", " "), f"{value:.4g}"


def figure_table(figures, before):
    if not figures:
        return "Not measured yet: `scaffolding eval`."
    columns = [dict(numbers(figures))]
    lines = ["`scaffolding eval models/emoji-128`:", "", "| Figure | |", "|---|---|"]
    if before:
        columns.append(dict(numbers(before)))
        lines = [
            (
                "`scaffolding eval models/emoji-128`, and the same of the weights before they saw any icon of the "
                "held-out splits:"
            ),
            "",
            "| Figure | ships | before |",
            "|---|---|---|",
        ]
    lines += [f"| {name} | " + " | ".join(c.get(name, "") for c in columns) + " |" for name in columns[0]]
    return "\n".join(lines)


def card(model, run=None, figures=None, before=None, hardware=None, hours=None, state=None):
    recipe = json.loads((model / "train.json").read_text())
    data = recipe["data"]
    splits = data.get("splits")
    return TEXT.format(
        fluent=FLUENT,
        state=f"## State\n{state}\n\n" if state else "",
        sheet=SHEET if (ROOT / "docs/pictures/contact_sheet.png").exists() else "",
        left_out=" and ".join(data.get("left_out_groups", [])) or "none",
        backgrounds=(
            f"white, and with probability {data.get('background_probability', 0)} on a colour that the caption "
            "then names"
        ),
        seed=recipe["seed"],
        stages="\n".join(stage_rows(recipe, run)),
        trained_on=(
            f"Trained on {hardware or 'hardware that was not noted'}, "
            f"{'hours not noted' if hours is None else f'{hours:g} hours'}."
        ),
        splits=f"Splits trained on: {', '.join(splits)}."
        if splits
        else "The weights that ship were trained on all splits.",
        parts="\n".join(part_rows(model)),
        megabytes=sum(p.stat().st_size for p in model.rglob("*") if p.is_file()) / 1e6,
        figures=figure_table(figures, before),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--run", type=pathlib.Path)
    parser.add_argument("--eval", type=pathlib.Path)
    parser.add_argument(
        "--eval-before", type=pathlib.Path, help="the same of weights that had not seen the held-out splits"
    )
    parser.add_argument("--hardware")
    parser.add_argument("--hours", type=float)
    parser.add_argument("--state", help="what a user should know of these weights first")
    options = parser.parse_args()
    if not (options.model / "model_index.json").exists():
        sys.exit(f"model_card: {options.model} has no model_index.json: there are no weights to describe")
    figures = json.loads(options.eval.read_text()) if options.eval else None
    before = json.loads(options.eval_before.read_text()) if options.eval_before else None
    text = card(options.model, options.run, figures, before, options.hardware, options.hours, options.state)
    (options.model / "README.md").write_text(text)
    print(options.model / "README.md")


if __name__ == "__main__":
    main()
