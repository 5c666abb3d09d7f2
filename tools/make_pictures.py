"""Every picture of the documents, from the shipped model with fixed seeds: `make pictures`, after its weights have
changed.

    docs/pictures/sheet.webp               24 prompts of docs/pictures/prompts.txt; the README begins with it
    docs/pictures/contact_sheet.webp       48 prompts of models/emoji-128/contact_sheet.txt, uncurated; in the card too
    docs/pictures/forming.webp             one picture after 1, 2, 4, 8 and 20 steps
    docs/pictures/between.webp             nine pictures on the way from one prompt to another
    docs/pictures/learned_style.webp       what a LoRA of two-coloured icons makes of five others, a minute's training
    tests/golden/shipped_model.png        what tests/test_shipped_model.py compares with

    docs/pictures/emoji_video.*           clips along trajectories: tools/make_clip_pictures.py

and what stands between <!-- pictures --> and <!-- /pictures --> in the README and in docs/first_picture.md.
"""

import io
import json
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile

from PIL import Image, ImageOps, ImageSequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
FORMING = ("rocket, fluent 3d, on a blue background", 3, (1, 2, 4, 8, 20))
BETWEEN = ("red apple, fluent 3d", "green apple, fluent 3d", "--frames", "9", "--seed", "1")  # as the README says it
LEARNED = ("rocket", "cat face", "sailboat", "birthday cake", "tulip")
# As docs/training.md says it.
TRAIN_LORA = ("--steps", "600", "--batch", "8", "--lr", "4e-4", "--rank", "8", "--target", "all-linear", "--quiet")
README_PART = """<!-- pictures -->
![24 icons, each from a line of words](docs/pictures/sheet.webp)

*{first}, ... One row after the other: [the prompts](docs/pictures/prompts.txt),
seeds 1 to {count}, nothing left out. The model is {megabytes:.0f} MB, comes with the program and was trained by it
([the recipe](models/emoji-128/train.json)); how far it got is in [its card](models/emoji-128/README.md).*
<!-- /pictures -->"""
GUIDE_PART = """<!-- pictures -->
![One picture after 1, 2, 4, 8 and 20 steps](pictures/forming.webp)

*{prompt}, seed {seed}, after {steps} steps.*
<!-- /pictures -->"""


def prompts(path):
    return path.read_text().split("\n")[:-1]


def save(picture, path, quality=75):
    """A WebP of a twelfth of the PNG's bytes, in which icons look the same."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, quality=quality, method=6)
    print(f"{path.relative_to(ROOT)}: {picture.width}x{picture.height}, {path.stat().st_size // 1000} kB")


def row_of(pictures):
    row = Image.new("RGB", (sum(p.width for p in pictures), pictures[0].height))
    for i, picture in enumerate(pictures):
        row.paste(picture, (i * picture.width, 0))
    return row


def sheet(program, lines, columns, output, folder):
    subprocess.run(
        [program, "demo", "--prompts", lines, "--columns", str(columns), "--seed", "1", "--output", folder, "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    save(Image.open(folder / "grid.png").convert("RGB"), output)


def forming(program, folder):
    prompt, seed, all_steps = FORMING
    steps = []
    for count in all_steps:
        path = folder / f"{count}.png"
        subprocess.run(
            [program, "txt2img", prompt, "--seed", str(seed), "--steps", str(count), "--output", path, "--quiet"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        steps.append(Image.open(path).convert("RGB"))
    save(row_of(steps), PICTURES / "forming.webp")


def between(program, folder):
    path = folder / "between.webp"
    subprocess.run(
        [program, "interpolate", *BETWEEN, "--output", path, "--quiet"], check=True, stdout=subprocess.DEVNULL
    )
    save(
        row_of([frame.convert("RGB") for frame in ImageSequence.Iterator(Image.open(path))]), PICTURES / "between.webp"
    )


def two_coloured(icon):
    """Its greys from violet over red to peach, on a dark ground."""
    white = Image.new("RGBA", icon.size, "white")
    white.alpha_composite(icon)
    grey = ImageOps.posterize(ImageOps.grayscale(white.convert("RGB")), 2)
    out = Image.new("RGB", icon.size, (24, 16, 48))
    colours = ImageOps.colorize(grey, black=(40, 10, 80), mid=(230, 60, 110), white=(255, 190, 120))
    out.paste(colours, mask=icon.getchannel("A"))
    return out


def learned_style(program, folder, count=150):
    """Above what the model draws, below the same prompts and seeds with a LoRA of `count` others in two colours."""
    data = ROOT.parent / "shared/data/emoji128/emoji128.tar"
    if not data.exists():
        return print(f"make_pictures: docs/pictures/learned_style.webp stays, {data} is not here")
    pictures = folder / "pictures"
    pictures.mkdir()
    with tarfile.open(data) as tar:
        rows = [json.loads(line) for line in tar.extractfile("metadata.jsonl").read().splitlines()]
        taken = set(" ".join(LEARNED).split())
        rows = [r for r in rows if r["file_name"].startswith("noto/") and not set(r["caption"].split()) & taken]
        for i, row in enumerate(random.Random(3).sample(rows, count)):
            icon = Image.open(io.BytesIO(tar.extractfile(row["file_name"]).read())).convert("RGBA")
            two_coloured(icon).save(pictures / f"{i}.png")
            (pictures / f"{i}.txt").write_text(row["caption"].split(",")[0] + ", noto")
    lora = folder / "lora"
    subprocess.run([program, "train-lora", "--data", pictures, "--output", lora, *TRAIN_LORA], check=True)
    rows = []
    for given in ([], ["--lora", lora]):
        made = []
        for i, thing in enumerate(LEARNED):
            path = folder / f"learned-{len(rows)}-{i}.png"
            call = [program, "txt2img", f"{thing}, noto", "--seed", "7", "--output", path, "--quiet", *given]
            subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
            made.append(Image.open(path).convert("RGB"))
        rows.append(row_of(made))
    both = Image.new("RGB", (rows[0].width, 2 * rows[0].height))
    both.paste(rows[0], (0, 0))
    both.paste(rows[1], (0, rows[0].height))
    save(both, PICTURES / "learned_style.webp")


def replace_part(path, part):
    text = path.read_text()
    before, _, rest = text.partition("<!-- pictures -->")
    _, end, after = rest.partition("<!-- /pictures -->")
    if not end:
        sys.exit(f"make_pictures: {path} has no part between <!-- pictures --> and <!-- /pictures -->")
    path.write_text(before + part + after)


def write_documents():
    lines = prompts(PICTURES / "prompts.txt")
    size = sum(p.stat().st_size for p in (ROOT / "models/emoji-128").rglob("*") if p.is_file()) / 1e6
    replace_part(
        ROOT / "README.md",
        README_PART.format(first=", ".join(f"“{line}”" for line in lines[:2]), count=len(lines), megabytes=size),
    )
    prompt, seed, steps = FORMING
    replace_part(
        ROOT / "docs/first_picture.md", GUIDE_PART.format(prompt=prompt, seed=seed, steps=", ".join(map(str, steps)))
    )


def main(build):
    program = build / "scaffolding"
    if not (ROOT / "models/emoji-128/model_index.json").exists():
        sys.exit("make_pictures: models/emoji-128 has no weights; train it by its recipe, or put them there")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        sheet(program, PICTURES / "prompts.txt", 8, PICTURES / "sheet.webp", folder / "sheet")
        sheet(
            program,
            ROOT / "models/emoji-128/contact_sheet.txt",
            12,
            PICTURES / "contact_sheet.webp",
            folder / "contact",
        )
        forming(program, folder)
        between(program, folder)
        learned_style(program, folder)
    subprocess.run([sys.executable, ROOT / "tests/test_shipped_model.py", build], check=True)
    subprocess.run([sys.executable, ROOT / "tools/make_clip_pictures.py", build], check=True)
    write_documents()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]).resolve())
