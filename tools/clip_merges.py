"""Writes scaffolding/tokenizers/clip/merges.z, CLIP's merges as they are compiled into the library.

python tools/clip_merges.py merges.txt     # transformers' file of openai/clip-vit-large-patch14

The ids of a merge's two tokens are 16 bits each: 256 bytes, the same at a word's end, then a token for each merge. They
lie as four planes (low and high bytes of the left ids, then of the right ones), deflated for zlib by PyPI's zopfli,
which takes a sixteenth less than zlib itself.
"""

import pathlib
import sys

from zopfli import zlib

PLACE = pathlib.Path(__file__).resolve().parent.parent / "scaffolding/tokenizers/clip/merges.z"


def byte_tokens():
    """As OpenAI's bytes_to_unicode: the bytes that stand for themselves, then the others."""
    itself = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = [chr(b) for b in itself] + [chr(256 + i) for i in range(256 - len(itself))]
    return letters + [letter + "</w>" for letter in letters]


def planes(merges):
    ids = {token: i for i, token in enumerate(byte_tokens())}
    pairs = []
    for left, right in merges:
        pairs.append((ids[left], ids[right]))
        ids[left + right] = len(ids)
    if len(ids) != 512 + len(merges) or len(ids) > 1 << 16:
        sys.exit("clip_merges: two merges make one token, or there are too many")
    return b"".join(bytes(pair[side] >> shift & 255 for pair in pairs) for side in (0, 1) for shift in (0, 8))


def main():
    lines = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").split("\n")
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    PLACE.write_bytes(zlib.compress(planes(merges)))
    print(f"{PLACE}: {len(merges)} merges in {PLACE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
