"""The card of a trained model, of pictures or of clips, from its recipe, its run and its figures.

    python tools/model_card.py models/emoji-128 --run runs/emoji --eval eval.json --hardware "one core of a 2-core Xeon"
    --hours 6.5
    python tools/model_card.py models/emoji-video --eval eval.json --hardware "one core of a 2-core EPYC" --hours 5

--run: the folder that `scaffolding train` wrote (metrics.jsonl of each stage: steps and last losses). --eval: what
`scaffolding eval --json` wrote, a JSON object of named numbers. Writes README.md into the model's folder; what was not
given is left out, and said.
"""

import argparse
import json
import pathlib
import sys
import textwrap

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
    "transformer": "Denoiser",
    "vae": "Autoencoder",
    "scheduler": "Scheduler",
}

CONTACT_SHEET, CLIPS = ROOT / "docs/pictures/contact_sheet.webp", ROOT / "docs/pictures/emoji_video_sheet.webp"

FLUENT = "Fluent Emoji, Copyright (c) Microsoft Corporation, MIT License (the notice travels with copies)"

SHEET = """![48 pictures, uncurated](../../docs/pictures/contact_sheet.webp)

*[48 prompts](contact_sheet.txt), evenly spaced rows of the data: 24 of the split train and 24 name-and-style
combinations of the held-out split; seeds 1 to 48, nothing left out.*
"""

PICTURES = """# emoji-128

Icons of 128 x 128 pixels from words. A latent-diffusion model in diffusers' folder layout, trained from nothing by
Scaffolding, in float16.

```
scaffolding txt2img "red apple, fluent 3d, on a blue background" --seed 7
```

It loads in diffusers unchanged: `StableDiffusionPipeline.from_pretrained("models/emoji-128")`.

{state}## Prompts
A thing, a style (`noto`, `fluent 3d`, `fluent flat`) and, if you like, a background:
`caption, style, on a COLOUR background`. Without one the ground is white. It knows the names and keywords of emoji and
nothing else.{prompts}

{sheet}
## Data and licences
4 719 pictures of emoji with transparency, their names and keywords; left out are: {left_out}.
They are drawn on {backgrounds}.{composed}
The weights and every picture of the data carry these notices:

| Style | Pictures | Licence | Attribution |
|---|---|---|---|
| `noto` | 1 632 | Apache-2.0 | Noto Emoji, Copyright Google LLC and the Noto Emoji authors, Apache License 2.0 |
| `fluent 3d` | 1 544 | MIT | {fluent} |
| `fluent flat` | 1 543 | MIT | {fluent} |

Names and keywords come from Unicode's emoji-test.txt and CLDR annotations (Unicode licence), a few newer ones from
emojilib and unicode-emoji-json (MIT). The Noto part is made again from Debian's packages by `tools/make_noto_data.py`.
The full notices: [LICENSES.md](LICENSES.md).

{recipe}
## Limits
{beyond}; the names that were held out to measure it include everyday words, and were learned last.
People have the yellow of emoji. It is an example of what the program does.
"""


BEYOND = (
    "It draws what it was trained on: single icons in three styles. Things that no emoji shows, counts, writing and "
    "places in\nthe picture are beyond it"
)

# Of a recipe with a composition.
COMPOSED_PROMPTS = """ A colour may stand before the thing (`blue cat, noto`), two things may be asked
for (`cat and apple, noto`), and two or three of one (`two cats, noto`)."""

COMPOSED = """ Pictures were composed while it learned: {pairs} show two
icons and {counts} several of one; of the others {recoloured} were put into a colour that the caption names."""

COMPOSED_BEYOND = """It draws what it was trained on: icons in three styles, alone, in twos and threes. Things that no
emoji shows, greater numbers, writing and places in the picture are beyond it"""

CLIP_SHEET = """![Three prompts along four trajectories](../../docs/pictures/emoji_video_sheet.webp)

*Each prompt along the same four trajectories, the thin lines, with the same seed: frames 0, 4, 8, 12 and 16 of each
clip, nothing left out.*
"""

CLIP_TEXT = """# emoji-video

Clips of {frames} frames of {size} x {size} pixels, from words and a line that the thing follows. Tora's networks
(CogVideoX steered by trajectories) in small, in diffusers' folder layout, trained from nothing by Scaffolding, in
float16.

```
scaffolding txt2vid "rocket, noto" --trajectory "10,54 32,20 54,10" -o rocket.webp
```

In Python `ToraPipeline.from_pretrained("emoji-video")`. Trajectories are points in pixels, from the left and the top.

{state}{measured}## Prompts
A thing and, if you like, a background: `caption, noto, on a COLOUR background`. Without one the ground is white, or
what the model thinks of. It knows the names of emoji and nothing else.

{sheet}
## Data and licences
Clips are composed of {icons} of Noto: an icon {side} moves along a random smooth way, over white, a colour
that the caption names, or a gradient. {left_out}. The weights and every icon of the data carry this notice:

| Style | Licence | Attribution |
|---|---|---|
| `noto` | Apache-2.0 | Noto Emoji, Copyright Google LLC and the Noto Emoji authors, Apache License 2.0 |

Names come from Unicode's emoji-test.txt and CLDR annotations (Unicode licence), a few newer ones from emojilib and
unicode-emoji-json (MIT). The data are made again from Debian's packages by `tools/make_noto_data.py`.
The full notices: [LICENSES.md](LICENSES.md).

{recipe}
## Limits
One icon at a time, of those it was trained on, in one style and one size of clip; a trajectory moves it and does not
turn it. Without a trajectory it goes somewhere. Colours and edges are softer than the icons'. It is an example of what
the program does.
"""

RECIPE = """## Recipe
[train.json](train.json), seed {seed}: `scaffolding train --config models/{name}/train.json --output runs/{run}`.

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
        if part not in index:
            continue
        count = parameters(model / part)
        yield f"| {title} | `{index[part][1]}` | {f'{count / 1e6:.2f} million' if count else ''} |"


def numbers(values, prefix=""):
    """Each number by its name, however deep."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from numbers(value, f"{prefix}{name}: ")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield (prefix + name).replace("_", " "), f"{value:.4g}"


def figure_table(name, figures, before):
    if not figures:
        return "Not measured yet: `scaffolding eval`."
    columns = [dict(numbers(figures))]
    lines = [f"`scaffolding eval models/{name}`:", "", "| Figure | |", "|---|---|"]
    if before:
        columns.append(dict(numbers(before)))
        lines = [
            (
                f"`scaffolding eval models/{name}`, and the same of the weights before they saw any icon of the "
                "held-out splits:"
            ),
            "",
            "| Figure | ships | before |",
            "|---|---|---|",
        ]
    lines += [f"| {name} | " + " | ".join(c.get(name, "") for c in columns) + " |" for name in columns[0]]
    return "\n".join(lines)


def left_out_groups(groups):
    return " and ".join(groups) or "none"


def composed_texts(composition):
    """What a composition changes in a card; a recipe names every share that it changes."""
    if composition is None:
        return {"prompts": "", "composed": "", "beyond": BEYOND}
    shares = (("pairs", "pair", 0.15), ("counts", "count", 0.1), ("recoloured", "recolour", 0.3))
    said = {name: percent(composition.get(f"{field}_probability", share)) for name, field, share in shares}
    return {"prompts": COMPOSED_PROMPTS, "composed": COMPOSED.format(**said), "beyond": COMPOSED_BEYOND}


def picture_card(recipe, figures, /, **parts):
    data = recipe["data"]
    return PICTURES.format(
        **composed_texts(data.get("composition")),
        fluent=FLUENT,
        sheet=SHEET if CONTACT_SHEET.exists() else "",
        left_out=left_out_groups(data.get("left_out_groups", [])),
        backgrounds=(
            f"white, and with probability {data.get('background_probability', 0)} on a colour that the caption "
            "then names"
        ),
        **parts,
    )


def percent(share, digits=0):
    return f"{100 * share:.{digits}f} %"


def measured_clips(figures):
    """The figures that say most, in sentences."""
    if not figures:
        return ""
    lines = []
    for name, f in figures["sets"].items():
        lines.append(
            f"- {f['clips']} captions of `{name}`: the thing is {f['distance']:.1f} pixels away from where it was "
            f"asked to be (median; {f['distance_by_chance']:.1f} by chance), and among the nearest five of all icons "
            f"in {percent(f['top5'])} of the clips ({percent(figures['self_check']['chance_top5'], 1)} by chance). "
            f"From a frame to the next it changes by {percent(f['change'], 1)}."
        )
    real = figures["self_check"]["rows"]["through the autoencoder"]
    lines.append(
        f"- Real clips through its autoencoder, the most that it can reach: {real['distance']:.1f} pixels, "
        f"{percent(real['top5'])}, {percent(real['change'], 1)}."
    )
    lines.append(
        f"- A clip takes {figures['seconds_of_a_clip']:.1f} s ({figures['steps']} steps, guidance "
        f"{figures['guidance']:g}) on the machine it was measured on."
    )
    return "## How well it does\n" + "\n".join(lines) + "\n\n"


def clip_card(recipe, figures, /, **parts):
    data = recipe["data"]
    left_out = data["icons"].get("left_out_groups", [])
    sides = [data["icons"].get(f"{which}_icon") for which in ("smallest", "largest")]
    return CLIP_TEXT.format(
        frames=data["num_frames"],
        size=data["height"],
        sheet=CLIP_SHEET if CLIPS.exists() else "",
        icons=f"{figures['icons']:,} icons".replace(",", " ") if figures else "the icons",
        side=f"of {sides[0]} x {sides[0]} pixels" if sides[0] and sides[0] == sides[1] else "in a random size",
        left_out=f"Left out are the groups {', '.join(left_out)}" if left_out else "No group is left out",
        measured=measured_clips(figures),
        **parts,
    )


def card(model, run=None, figures=None, before=None, hardware=None, hours=None, state=None):
    recipe = json.loads((model / "train.json").read_text())
    clips = "transformer" in recipe
    splits = recipe["data"].get("icons", recipe["data"]).get("splits")
    name = "emoji-video" if clips else "emoji-128"
    text = RECIPE.format(
        name=name,
        run="emoji-video" if clips else "emoji",
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
        figures=figure_table(name, figures, before),
    )
    make = clip_card if clips else picture_card
    return make(recipe, figures, state=f"## State\n{state}\n\n" if state else "", recipe=text)


def wrapped(text, width=120):
    """Prose in lines of that many columns; rows of tables stay as long as they are."""
    lines = []
    for line in text.split("\n"):
        fits = len(line) <= width or line.startswith("|")
        indent = "  " if line.startswith("- ") else ""
        lines += (
            [line]
            if fits
            else textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        )
    return "\n".join(lines)


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
    (options.model / "README.md").write_text(wrapped(text))
    print(options.model / "README.md")


if __name__ == "__main__":
    main()
