"""The Noto part of the icons that models/emoji-128 is trained on, from three Debian packages and nothing else.

    apt-get install python3-fonttools python3-pil         # or: pip install fonttools pillow
    python3 tools/make_noto_data.py --download noto.tar   # fetches the packages with apt-get; needs no root
    python3 tools/make_noto_data.py noto.tar              # where they are installed
    scaffolding train --config models/emoji-128/train.json --data noto.tar --output runs/noto

fonts-noto-color-emoji has the pictures (128 pixels high, in the font's CBDT table), unicode-data their names and groups
(emoji-test.txt), unicode-cldr-core the keywords (CLDR's annotations). Skin tones and the flags of regions are left out.
The tar begins with metadata.jsonl; then come noto/<codepoints>.webp, lossless, with transparency. About 30 seconds.
"""

import argparse
import hashlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
import xml.etree.ElementTree as ElementTree

PACKAGES = ("fonts-noto-color-emoji", "unicode-data", "unicode-cldr-core")
FONT = "usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"
EMOJI_TEST = "usr/share/unicode/emoji/emoji-test.txt"
ANNOTATIONS = (
    "usr/share/unicode/cldr/common/annotations/en.xml",
    "usr/share/unicode/cldr/common/annotationsDerived/en.xml",
)
SKIN_TONES = set(range(0x1F3FB, 0x1F400))
VARIATION = 0xFE0F
SIZE = 128


def download(folder):
    """The packages, unpacked below the folder."""
    subprocess.run(["apt-get", "-qq", "download", *PACKAGES], cwd=folder, check=True, stderr=subprocess.DEVNULL)
    for package in sorted(folder.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        print(f"make_noto_data: {package.name}", file=sys.stderr)
    return folder


def ascii_text(text):
    for curly, straight in (("’", "'"), ("“", ""), ("”", "")):
        text = text.replace(curly, straight)
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def names(path):
    """Rows of emoji-test.txt: (codepoints, name, group, subgroup), in its order."""
    group = subgroup = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# group: "):
            group = line.removeprefix("# group: ")
        elif line.startswith("# subgroup: "):
            subgroup = line.removeprefix("# subgroup: ")
        elif row := re.match(r"([0-9A-F ]+?) *; fully-qualified +# \S+ E[\d.]+ (.*)", line):
            codepoints = [int(c, 16) for c in row[1].split()]
            if not SKIN_TONES & set(codepoints) and not row[2].startswith("flag:"):
                yield codepoints, ascii_text(row[2]), group, subgroup


def keywords(paths):
    """emoji without variation selectors: keywords of CLDR."""
    found = {}
    for path in paths:
        for entry in ElementTree.parse(path).iter("annotation"):
            if entry.get("type") != "tts":
                found[entry.get("cp").replace(chr(VARIATION), "")] = [
                    ascii_text(word).strip() for word in entry.text.split("|")
                ]
    return found


class Pictures:
    """The colour bitmaps of a font by codepoints."""

    def __init__(self, path):
        from fontTools.ttLib import TTFont

        font = TTFont(path)
        self.cmap = font.getBestCmap()
        self.bitmaps = max(
            zip(font["CBLC"].strikes, font["CBDT"].strikeData), key=lambda s: s[0].bitmapSizeTable.ppemY
        )[1]
        self.ligatures = {}
        for lookup in font["GSUB"].table.LookupList.Lookup:
            for table in lookup.SubTable:
                table = table.ExtSubTable if lookup.LookupType == 7 else table
                for first, rest in getattr(table, "ligatures", {}).items():
                    for ligature in rest:
                        self.ligatures[(first, *ligature.Component)] = ligature.LigGlyph

    def png(self, codepoints):
        """Bytes of a PNG, or None where the font has no such picture."""
        for sequence in (codepoints, [c for c in codepoints if c != VARIATION]):
            glyphs = tuple(self.cmap.get(c) for c in sequence)
            glyph = glyphs[0] if len(glyphs) == 1 else self.ligatures.get(glyphs)
            if glyph in self.bitmaps:
                return self.bitmaps[glyph].imageData
        return None


def square(png):
    """The bitmap in the middle of 128 x 128 pixels, colourless where it is transparent, as lossless WebP."""
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGBA")
    left, top = (picture.width - SIZE) // 2, (picture.height - SIZE) // 2
    picture = picture.crop((left, top, left + SIZE, top + SIZE))
    clear = Image.new("RGBA", picture.size)
    clear.paste(picture, mask=picture.getchannel("A").point(lambda a: 255 if a else 0))
    out = io.BytesIO()
    clear.save(out, "WEBP", lossless=True, exact=True)
    return out.getvalue()


def split_of(name):
    """One name in twenty is held out, by the hash of the name, whatever else is in the data."""
    return "heldout_name" if int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 20 == 0 else "train"


def write_data(root, output):
    words = keywords([root / path for path in ANNOTATIONS])
    pictures = Pictures(root / FONT)
    rows, files, same, missing = [], {}, {}, []
    for codepoints, name, group, subgroup in names(root / EMOJI_TEST):
        png = pictures.png(codepoints)
        if png is None:
            missing.append(name)
            continue
        if png in same:  # one drawing for several emoji: one row, with the other names beside
            same[png].setdefault("aliases", []).append(name)
            continue
        plain = [c for c in codepoints if c != VARIATION]
        code = "-".join(f"{c:x}" for c in plain)
        row = same[png] = {
            "file_name": f"noto/{code}.webp",
            "caption": name,
            "keywords": [w for w in words.get("".join(map(chr, plain)), []) if w and w != name],
        }
        row |= {
            "style": "noto",
            "group": group,
            "subgroup": subgroup,
            "emoji": "".join(map(chr, codepoints)),
            "codepoints": code,
            "split": split_of(name),
        }
        rows.append(row)
        files[row["file_name"]] = square(png)
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows).encode()
    temporary = output.with_name(output.name + ".incomplete")
    with tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in {"metadata.jsonl": text, **files}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    temporary.replace(output)
    return rows, missing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path, help="the tar to write")
    parser.add_argument(
        "--root", type=pathlib.Path, default=pathlib.Path("/"), help="where the packages are unpacked, if not installed"
    )
    parser.add_argument(
        "--download", action="store_true", help="fetch the packages with apt-get into a temporary folder"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = download(pathlib.Path(temporary)) if options.download else options.root
        lacking = [path for path in (FONT, EMOJI_TEST, *ANNOTATIONS) if not (root / path).exists()]
        if lacking:
            sys.exit(
                f"make_noto_data: {root / lacking[0]} is not there; install {' '.join(PACKAGES)}, or give --download"
            )
        rows, missing = write_data(root, options.output)
    print(
        f"{options.output}: {len(rows)} pictures; the font has none for {len(missing)} "
        f"names{': ' if missing else ''}{', '.join(missing[:5])}"
    )


if __name__ == "__main__":
    main()
