"""tools/make_noto_data.py: names, keywords and splits as it reads them,
and the whole tar where Debian's packages are installed.
"""

import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import tarfile

import pytest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools/make_noto_data.py"


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("make_noto_data", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_names_leave_out_skin_tones_flags_of_regions_and_what_is_not_fully_qualified(tool, tmp_path):
    (tmp_path / "emoji-test.txt").write_text(
        "# group: Objects\n\n# subgroup: tool\n"
        "2692 FE0F ; fully-qualified     # x E1.0 hammer and pick\n"
        "2692      ; unqualified         # x E1.0 hammer and pick\n"
        "1F468 1F3FB ; fully-qualified   # x E1.0 man: light skin tone\n"
        "1F9F0     ; fully-qualified     # x E11.0 woman’s toolbox\n"
        "# group: Flags\n"
        "1F1E6 1F1E8 ; fully-qualified   # x E2.0 flag: Ascension Island\n",
        encoding="utf-8",
    )
    rows = list(tool.names(tmp_path / "emoji-test.txt"))
    assert rows == [
        ([0x2692, 0xFE0F], "hammer and pick", "Objects", "tool"),
        ([0x1F9F0], "woman's toolbox", "Objects", "tool"),
    ]


def test_keywords_are_those_of_the_annotations(tool, tmp_path):
    (tmp_path / "en.xml").write_text(
        '<ldml><annotations><annotation cp="⚒">hammer | tool</annotation><annotation cp="⚒" type="tts">hammer and '
        "pick</annotation></annotations></ldml>",
        encoding="utf-8",
    )
    assert tool.keywords([tmp_path / "en.xml"]) == {"⚒": ["hammer", "tool"]}


def test_a_name_is_held_out_wherever_it_stands(tool):
    splits = [tool.split_of(f"name {i}") for i in range(1000)]
    assert 20 < splits.count("heldout_name") < 90 and splits == [tool.split_of(f"name {i}") for i in range(1000)]


def test_missing_packages_are_named(tmp_path):
    done = subprocess.run(
        [sys.executable, TOOL, tmp_path / "out.tar", "--root", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 1 and "install fonts-noto-color-emoji unicode-data unicode-cldr-core" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_tar_of_the_installed_packages(tool, tmp_path):
    pytest.importorskip("fontTools", reason="fontTools is not installed (python3-fonttools)")
    image = pytest.importorskip("PIL.Image")
    for path in (tool.FONT, tool.EMOJI_TEST, *tool.ANNOTATIONS):
        if not pathlib.Path("/", path).exists():
            pytest.skip(f"/{path} is not there: {', '.join(tool.PACKAGES)} are not installed")
    rows, missing = tool.write_data(pathlib.Path("/"), tmp_path / "noto.tar")
    assert len(rows) > 1500 and len(missing) < 50
    with tarfile.open(tmp_path / "noto.tar") as tar:
        assert tar.getnames() == ["metadata.jsonl", *(row["file_name"] for row in rows)]
        assert [json.loads(line) for line in tar.extractfile("metadata.jsonl")] == rows
        apple = next(row for row in rows if row["caption"] == "red apple")
        picture = image.open(io.BytesIO(tar.extractfile(apple["file_name"]).read())).convert("RGBA")
    assert picture.size == (128, 128) and picture.getpixel((0, 0)) == (0, 0, 0, 0)
    red, green, blue, alpha = picture.getpixel((64, 80))
    assert alpha == 255 and red > 2 * green and red > 2 * blue
    assert apple["group"] == "Food & Drink" and "fruit" in apple["keywords"]
