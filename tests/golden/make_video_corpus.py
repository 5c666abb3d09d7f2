"""Writes tests/fuzz_corpus/video/: small videos of each kind that VideoReader takes apart.

Needs a build of the package with libav, giflib and libwebp, and Pillow."""

import pathlib

from PIL import Image

import scaffolding as sf

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "fuzz_corpus" / "video"


def frames(count=4, side=16):
    ramp = sf.arange(side).expand(side, side) * (240 // side)
    return [sf.stack([ramp, ramp.T, sf.full((side, side), 60 * n)]).to(sf.uint8) for n in range(count)]


CORPUS.mkdir(parents=True, exist_ok=True)
text = {"title": "a ramp"}
sf.io.save_video(CORPUS / "h264.mp4", frames(), metadata=text, quality=40)
sf.io.save_video(CORPUS / "mpeg4.mov", frames(), metadata=text, quality=40, encoder="mpeg4")
sf.io.save_video(CORPUS / "h264.mkv", frames(), metadata=text, quality=40)
sf.io.save_video(CORPUS / "vp9.webm", frames(), quality=40)
sf.io.save_video(CORPUS / "still_colours.gif", frames(2))
sf.io.save_video(CORPUS / "lossy.webp", frames(), quality=40)
pictures = []
for n in range(3):  # transparent, moving, put back
    picture = Image.new("P", (16, 12), 0)
    picture.putpalette([c for k in range(4) for c in (80 * k, 255 - 80 * k, 40 * k)])
    picture.paste(n % 3 + 1, (2 * n, n, 2 * n + 6, n + 5))
    pictures.append(picture)
rest = {"save_all": True, "append_images": pictures[1:], "duration": [40, 0, 90]}
for disposal in (2, 3):
    pictures[0].save(CORPUS / f"disposal{disposal}.gif", disposal=disposal, transparency=0, optimize=False, **rest)
pictures[0].save(CORPUS / "interlaced.gif", interlace=1)
clear = [p.convert("RGBA") for p in pictures]
for p in clear:
    p.putalpha(p.getchannel("R"))
clear[0].save(CORPUS / "alpha.webp", save_all=True, append_images=clear[1:], duration=30, lossless=True)
