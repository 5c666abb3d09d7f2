"""Trains a small text-to-video model on shapes that the program draws itself: a square or a disc of some colour that
moves over a dark ground in one of four directions, and prompts that say so.

    python examples/train_text_to_video.py [output_dir] [--steps 400] [--frames 8] [--size 32] [--channels 32]

With an output_dir, Ctrl-C saves and the next call goes on; the pipeline and the frames of a clip that it makes at the
end are there then, and an animation where this build writes them.
"""

import argparse
import pathlib

import scaffolding as sf
from scaffolding.nn.video import TextToVideoPipeline, save_video_frames
from scaffolding.train import Trainer
from scaffolding.utils.data import DataLoader, Dataset

COLOURS = {"red": (0.9, -0.6, -0.6), "green": (-0.6, 0.9, -0.6), "blue": (-0.6, -0.6, 0.9), "white": (0.9, 0.9, 0.9)}
DIRECTIONS = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}
SHAPES = ("square", "disc")
PROMPTS = [f"a {c} {s} moves {d}" for c in COLOURS for s in SHAPES for d in DIRECTIONS]


def clip(prompt, frames, size, start):
    """[3, frames, size, size] in [-1, 1]. start: from 0 to 1, where the shape begins beside its way."""
    _, colour, shape, _, direction = prompt.split()
    down, right = DIRECTIONS[direction]
    half, way = size / 8, size / 2  # in pixels
    rows, columns = sf.arange(size).reshape(size, 1) + 0.5, sf.arange(size).reshape(1, size) + 0.5
    video = sf.full((3, frames, size, size), -0.8)
    for frame in range(frames):
        along = (frame / max(frames - 1, 1) - 0.5) * way
        beside = (start - 0.5) * way
        y = rows - (size / 2 + down * along + abs(right) * beside)
        x = columns - (size / 2 + right * along + abs(down) * beside)
        inside = (x * x + y * y < half * half) if shape == "disc" else sf.maximum(x.abs(), y.abs()) < half
        for channel, value in enumerate(COLOURS[colour]):
            video[channel, frame] = sf.where(inside, value, video[channel, frame])
    return video


class Clips(Dataset):
    """Every prompt, each time from another place."""

    def __init__(self, frames, size, seed):
        self.frames, self.size, self.generator = frames, size, sf.Generator().manual_seed(seed)

    def __len__(self):
        return 4 * len(PROMPTS)

    def __getitem__(self, i):
        prompt, start = PROMPTS[i % len(PROMPTS)], sf.rand((), generator=self.generator).item()
        return clip(prompt, self.frames, self.size, start), prompt


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("output_dir", nargs="?", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--prompt", default="a red square moves right")
    args = parser.parse_args()

    sf.manual_seed(0)
    pipeline = TextToVideoPipeline(args.frames, args.size, args.size, 64, args.channels)
    loader = DataLoader(Clips(args.frames, args.size, seed=1), batch_size=8, shuffle=True)
    optimizer = sf.optim.AdamW(pipeline.parameters(), lr=1e-3)
    losses = []

    def loss_of(batch):
        loss = pipeline.training_step(*batch)
        losses.append(loss.item())
        return loss

    trainer = Trainer(
        pipeline,
        optimizer,
        loader,
        loss_of,
        args.output_dir,
        max_steps=args.steps,
        max_grad_norm=1.0,
        scheduler=sf.optim.get_scheduler("cosine", optimizer, num_warmup_steps=10, num_training_steps=args.steps),
        seed=0,
        resume="latest" if args.output_dir else None,
    )
    result = trainer.fit()
    part = max(1, len(losses) // 10)
    print(f"{result.step} steps, loss {sum(losses[:part]) / part:.3f} to {sum(losses[-part:]) / part:.3f}")
    video = pipeline.generate(args.prompt, num_steps=20, guidance_scale=3.0, seed=0)
    print(f"{args.prompt}: {tuple(video.shape)}")
    if args.output_dir:
        pipeline.save_pretrained(args.output_dir / "pipeline")
        save_video_frames(video, args.output_dir / "frames")
        if sf.data.can_write_animation("clip.webp"):
            frames = ((video[0] + 1) * 127.5).round().to(sf.uint8).transpose(0, 1).contiguous()
            sf.data.save_animation(args.output_dir / "clip.webp", frames, fps=8)


if __name__ == "__main__":
    main()
