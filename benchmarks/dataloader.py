"""Pictures per second through the DataLoader: 128x128 WebP decoded, resized to 64 and batched by 32 as floats, two
workers.

    PYTHONPATH=build/dev/python .venv/bin/python benchmarks/dataloader.py [--torch-python PYTHON]

Prints ours, PyTorch's DataLoader with Pillow (two processes, kept from epoch to epoch), and the limit: the same files
decoded by libwebp into planes on two threads and nothing else. Programs take turns, --rounds times; medians of three
epochs of each; "cpu" counts per second of processor time, which other programs disturb less. The pictures are
emoji128's where it is there, else drawn; "lossy" is RGB of quality 80,
"lossless" RGBA that is composited over white first.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = pathlib.Path(os.environ.get("SF_SHARED_DATA", ROOT.parent / "shared" / "data"))
QUICK = "--quick" in sys.argv  # of torch_peer.py and overhead.py, which have these as rows
COUNT, EPOCHS = (64, 1) if QUICK else (1536, 3)
BATCH, WORKERS = 32, 2


def pictures(kind, decode, encode):
    """The folder of COUNT files, made if it is not there. decode(bytes) gives a numpy array [128, 128, 4],
    encode(array) bytes.
    """
    import numpy

    emoji = SHARED / "emoji128" / "emoji128.tar"
    folder = (
        pathlib.Path(tempfile.gettempdir())
        / f"scaffolding_bench_{kind}_{'emoji' if emoji.exists() else 'drawn'}_{COUNT}"
    )
    if (folder / "done").exists():
        return folder
    folder.mkdir(exist_ok=True)
    tar = tarfile.open(emoji) if emoji.exists() else None
    members = [m for m in tar if m.name.endswith(".webp")] if tar else []
    y, x = numpy.mgrid[0:128, 0:128]
    for i in range(COUNT):
        if tar:
            rgba = decode(tar.extractfile(members[i * len(members) // COUNT]).read())
        else:
            a, b, c, d = numpy.random.default_rng(i).integers(20, 100, 4)
            rgba = numpy.stack(
                [x * 2, y * 2, (x * a + y * b) // 64, 255 * ((x - 64) ** 2 + (y - 64) ** 2 < (c + d) ** 2 // 4)], -1
            )
            rgba = rgba.clip(0, 255).astype(numpy.uint8)
        if kind == "lossy":
            alpha = rgba[:, :, 3:].astype(int)
            rgba = ((rgba[:, :, :3] * alpha + 255 * (255 - alpha)) // 255).astype(numpy.uint8)
        (folder / f"{i:05}.webp").write_bytes(encode(rgba))
    (folder / "done").write_text("")
    return folder


def timed(epoch, children=False):
    """Wall and processor seconds of each epoch; the first is not counted."""
    walls, cpus = [], []
    for i in range(EPOCHS + 1):
        wall, cpu = time.perf_counter(), sum(os.times()[:2])
        extra = epoch()
        if i:
            walls.append(time.perf_counter() - wall)
            cpus.append(sum(os.times()[:2]) - cpu + (extra if children else 0))
    return {"wall": statistics.median(walls), "cpu": statistics.median(cpus)}


def our_pictures(kind):
    import numpy

    import scaffolding as sf

    def encode(pixels):
        return sf.data.encode_image(sf.tensor(pixels).permute(2, 0, 1), "webp", quality=80, lossless=kind == "lossless")

    return pictures(
        kind, lambda b: numpy.ascontiguousarray(sf.data.decode_image(b, "RGBA").permute(1, 2, 0).numpy()), encode
    )


def ours(kind):
    import scaffolding as sf
    from scaffolding.utils.data import DataLoader

    T = sf.data.transforms
    steps = [T.Resize((64, 64)), T.ToFloat(), T.Normalize(0.5, 0.5)]
    if kind == "lossless":
        steps.insert(0, T.Composite((255, 255, 255)))
    folder = sf.data.ImageFolder(our_pictures(kind), T.Compose(steps), mode="RGBA" if kind == "lossless" else "RGB")
    loader = DataLoader(folder, batch_size=BATCH, shuffle=True, num_workers=WORKERS)

    def epoch():
        assert sum(len(b["image"]) for b in loader) == COUNT

    return timed(epoch)


def limit(kind):
    import scaffolding as sf

    files = [p.read_bytes() for p in sorted(our_pictures(kind).glob("*.webp"))]
    decode = sf.data.decode_image

    def part(k):
        for f in files[k::WORKERS]:
            decode(f)

    def epoch():
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(part, range(WORKERS)))

    return timed(epoch)


def peer(kind):
    import io

    import numpy
    import torch
    from PIL import Image

    def encode(pixels):
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, "webp", quality=80, lossless=kind == "lossless")
        return out.getvalue()

    files = sorted(
        pictures(kind, lambda b: numpy.asarray(Image.open(io.BytesIO(b)).convert("RGBA")), encode).glob("*.webp")
    )

    class Pictures(torch.utils.data.Dataset):
        def __len__(self):
            return len(files)

        def __getitem__(self, i):
            image = Image.open(files[i])
            if kind == "lossless":
                over = Image.new("RGBA", image.size, (255, 255, 255, 255))
                over.alpha_composite(image.convert("RGBA"))
                image = over
            pixels = numpy.array(image.convert("RGB").resize((64, 64), Image.BILINEAR))
            return torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div_(127.5).sub_(1)

    loader = torch.utils.data.DataLoader(
        Pictures(), batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True
    )

    def worker_seconds():  # of living workers, from the kernel: they count as children only when they end
        total = 0
        for w in loader._iterator._workers:
            fields = pathlib.Path(f"/proc/{w.pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return total

    seen = [0.0]

    def epoch():
        assert sum(len(b) for b in loader) == COUNT
        before, seen[0] = seen[0], worker_seconds()
        return seen[0] - before

    return timed(epoch, children=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--torch-python", default=os.environ.get("TORCH_PYTHON", sys.executable))
    parser.add_argument("--only", choices=["ours", "limit", "peer"])
    parser.add_argument("--kind", choices=["lossy", "lossless"])
    parser.add_argument("--rounds", type=int, default=1 if QUICK else 3)
    parser.add_argument("--quick", action="store_true", help="few pictures, once: does it run?")
    options = parser.parse_args()
    if options.only:
        return print(json.dumps(globals()[options.only](options.kind)))
    for kind in [options.kind] if options.kind else ["lossy", "lossless"]:
        rounds = {"ours": [], "limit": [], "peer": []}
        for _ in range(options.rounds):  # in turn, so that what else the machine does falls on all alike
            for who, answers in rounds.items():
                python = options.torch_python if who == "peer" else sys.executable
                command = [python, __file__, "--only", who, "--kind", kind] + (["--quick"] if QUICK else [])
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode == 0:
                    answers.append(json.loads(done.stdout.strip().splitlines()[-1]))
                elif not answers:
                    print(f"without {who}: {done.stderr.strip().splitlines()[-1]}")
        results = {
            who: {key: statistics.median(a[key] for a in answers) for key in answers[0]}
            for who, answers in rounds.items()
            if answers
        }
        for who, r in results.items():
            print(f"{kind:8} {who:6} {COUNT / r['wall']:8.0f} pictures/s   {COUNT / r['cpu']:8.0f} per cpu second")
        if len(results) == 3:
            for key in ("wall", "cpu"):
                o, p, m = (results[w][key] for w in ("ours", "peer", "limit"))
                print(f"{kind:8} {key}: ours is {p / o:.2f} x the peer, {m / o:.0%} of the limit")


if __name__ == "__main__":
    main()
