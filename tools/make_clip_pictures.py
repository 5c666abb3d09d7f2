"""The pictures of clips in the documents, from the model of clips that ships, with one seed: a part of `make pictures`.

python tools/make_clip_pictures.py build [--model models/emoji-video] [--output docs/pictures]

emoji_video_sheet.webp   prompts side by side, each along the same four trajectories, one under the other; of each clip
                         five frames, with the trajectory as a thin line and a dot where the thing should be
emoji_video.webp         the same clips moving, trajectories side by side, without lines
"""

import argparse
import pathlib
import subprocess
import tempfile

from PIL import Image, ImageDraw

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPTS = ("rocket, noto", "red apple, noto", "cat face, noto, on a blue background")
TRAJECTORIES = ("10,54 32,20 54,10", "54,32 10,32", "14,14 32,50 50,14", "12,50 12,14 52,14 52,50")
SEED, FRAMES = 1, 17
SHOWN = (0, 4, 8, 12, 16)  # frames in the sheet
BETWEEN_FRAMES, BETWEEN_PROMPTS = 2, 8  # pixels of the ground, which shows where frames on white end
GROUND = (216, 216, 216)
LINE, DOT = (60, 60, 60, 150), (230, 0, 0, 220)


def clip(program, model, prompt, trajectory, folder):
    """The frames, as pictures."""
    command = [program, "txt2vid", prompt, "--trajectory", trajectory, "--seed", str(SEED), "--quiet"]
    command += ["--model", model, "--output", folder / "%04d.png"]
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
    frames = [Image.open(path).convert("RGB") for path in sorted(folder.glob("*.png"))]
    if len(frames) != FRAMES:
        raise RuntimeError(f"{model} made {len(frames)} frames of '{prompt}', and not {FRAMES}")
    return frames


def place_at(trajectory, frame):
    """Where the thing should be in a frame: between fewer points than frames, on straight lines of equal times."""
    points = [tuple(map(float, point.split(","))) for point in trajectory.split()]
    at = frame / (FRAMES - 1) * (len(points) - 1)
    i = min(int(at), len(points) - 2)
    return tuple(a + (b - a) * (at - i) for a, b in zip(points[i], points[i + 1]))


def marked(picture, trajectory, frame, fine=4):
    """With the line and the dot, drawn `fine` times as large, so that they have soft edges."""
    over = Image.new("RGBA", (picture.width * fine, picture.height * fine))
    draw = ImageDraw.Draw(over)
    centre = [tuple((v + 0.5) * fine for v in place_at(trajectory, i)) for i in range(FRAMES)]
    draw.line(centre, fill=LINE, width=fine // 2, joint="curve")
    x, y = centre[frame]
    draw.ellipse((x - fine * 1.5, y - fine * 1.5, x + fine * 1.5, y + fine * 1.5), fill=DOT)
    over = over.resize(picture.size, Image.Resampling.BOX)
    return Image.alpha_composite(picture.convert("RGBA"), over).convert("RGB")


def sheet(clips):
    """clips[prompt][trajectory] -> one picture."""
    side = clips[0][0][0].width
    step = side + BETWEEN_FRAMES
    wide, high = step * len(SHOWN) - BETWEEN_FRAMES, step * len(TRAJECTORIES) - BETWEEN_FRAMES
    out = Image.new("RGB", (len(clips) * (wide + BETWEEN_PROMPTS) - BETWEEN_PROMPTS, high), GROUND)
    for column, of_prompt in enumerate(clips):
        for row, (frames, trajectory) in enumerate(zip(of_prompt, TRAJECTORIES)):
            for i, frame in enumerate(SHOWN):
                place = column * (wide + BETWEEN_PROMPTS) + i * step, row * step
                out.paste(marked(frames[frame], trajectory, frame), place)
    return out


def moving(clips):
    """clips[prompt][trajectory] -> the frames of one clip."""
    side = clips[0][0][0].width
    out = []
    for frame in range(FRAMES):
        picture = Image.new("RGB", (len(TRAJECTORIES) * side, len(clips) * side), "white")
        for row, of_prompt in enumerate(clips):
            for column, frames in enumerate(of_prompt):
                picture.paste(frames[frame], (column * side, row * side))
        out.append(picture)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="the folder with the program")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/emoji-video")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/pictures")
    options = parser.parse_args()
    if not (options.model / "model_index.json").exists():
        print(f"make_clip_pictures: skipped, {options.model} has no weights")
        return
    with tempfile.TemporaryDirectory() as folder:
        places = pathlib.Path(folder)
        clips = [
            [
                clip(options.build.resolve() / "scaffolding", options.model, prompt, trajectory, places / f"{row}-{k}")
                for k, trajectory in enumerate(TRAJECTORIES)
            ]
            for row, prompt in enumerate(PROMPTS)
        ]
    options.output.mkdir(parents=True, exist_ok=True)
    still, first, *rest = options.output / "emoji_video_sheet.webp", *moving(clips)
    sheet(clips).save(still, quality=75, method=6)
    film = options.output / "emoji_video.webp"
    first.save(film, save_all=True, append_images=rest, duration=125, loop=0, quality=70, method=6)
    for path in (still, film):
        print(f"{path}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
