"""Files and arguments that mean ill: FIFOs, archives that inflate without end, prompts without end, empty names."""

import os
import shutil
import stat
import subprocess
import sys
import zipfile

import pytest
from drawn_icons import refused

import scaffolding as sf

BOMB = 256 << 20  # bytes of zeros, which deflate to a thousandth


# A process of its own: what its child begins with counts as the child's, and is little.
MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(done.returncode)
"""


def run_measured(build_dir, tmp_path, *arguments):
    """(standard output, standard error, exit status, KB in memory at most)"""
    command = [sys.executable, "-c", MEASURED, tmp_path / "most", build_dir / "scaffolding", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout, done.stderr, done.returncode, int((tmp_path / "most").read_text())


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    zeros = [bytes(1 << 20)] * (BOMB >> 20)
    sf.save({"weight": sf.zeros(BOMB // 4)}, str(folder / "plain.pt"))
    with (
        zipfile.ZipFile(folder / "plain.pt") as old,
        zipfile.ZipFile(folder / "bomb.pt", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new,
    ):
        for entry in old.namelist():
            new.writestr(entry, old.read(entry))
    (folder / "plain.pt").unlink()
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % (BOMB // 4)
    header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        with z.open("weight.npy", "w") as f:
            f.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
            for piece in zeros:
                f.write(piece)
    return folder


@pytest.mark.parametrize("name", ["bomb.pt", "bomb.npz"])
def test_inspecting_a_bomb_inflates_none_of_it(build_dir, tmp_path, bombs, name):
    assert (bombs / name).stat().st_size < 1 << 20
    said, errors, status, most = run_measured(build_dir, tmp_path, "inspect", bombs / name, "--tensors")
    assert status == 0 and f"[{BOMB // 4}]" in said, errors
    assert most < BOMB >> 10, "less than its tensor"


def test_a_pickle_that_inflates_without_end_is_refused(program, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        z.writestr("a/data.pkl", b"\x80\x02" + b"0" * (65 << 20))
    refused(program("inspect", tmp_path / "a.pt"), "'data.pkl' is deflated and has")


def test_a_fifo_is_neither_waited_for_nor_replaced(program, model, tmp_path):
    fifo = tmp_path / "fifo.png"
    os.mkfifo(fifo)
    refused(program("inspect", fifo), "is not a regular file")
    refused(program("txt2img", "square", "-m", model, "--steps", 1, "-q", "-o", fifo), "is a FIFO or a device")
    weights = model / "unet/diffusion_pytorch_model.safetensors"
    os.mkfifo(tmp_path / "fifo.safetensors")
    refused(program("convert", weights, tmp_path / "fifo.safetensors", "--force"), "is no regular file")
    refused(program("completion", "bash", "-o", fifo), "is no regular file")
    for path in (fifo, tmp_path / "fifo.safetensors"):
        assert stat.S_ISFIFO(os.stat(path).st_mode)


@pytest.mark.parametrize("option", ["-m", "-g", "--steps", "--sampler", "--dtype", "--seed", "-o", "--lora", "--width"])
def test_an_empty_value_is_no_default(program, model, tmp_path, option):
    done = program("txt2img", "square", "--steps", 1, "-q", "-m", model, option, "", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_model_is_named(program, tmp_path):
    refused(program("txt2img", "square", "-q", "-m", "", cwd=tmp_path), "--model: must not be empty")
    refused(program("txt2img", "square", "-q", "-g", "", cwd=tmp_path), "--guidance: must not be empty")
    refused(program("inspect", "", cwd=tmp_path), "path: must not be empty")


def test_prompts_may_be_empty(program, model, tmp_path):
    done = program("txt2img", "", "-n", "", "-m", model, "--steps", 1, "-q", "-o", tmp_path / "a.png")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("option", ["-o", "--save-steps"])
def test_a_name_that_is_not_filled_in(program, model, tmp_path, option):
    suffix = ".png" if option == "-o" else ".webp"
    arguments = ("txt2img", "square", "-m", model, "--steps", 1, "-q", option)
    done = program(*arguments, f"{{date}}{suffix}", cwd=tmp_path)
    refused(done, "{date} is not filled in; {seed}, {number} and {prompt} are")
    assert list(tmp_path.iterdir()) == []
    done = program(*arguments, f"{{prompt}}-{{seed}}-{{{suffix}", "--seed", 3, cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / f"square-3-{{{suffix}").exists(), done.stderr
    walk = program("interpolate", "square", "box", "-m", model, "-q", "-o", "{seed}.webp", cwd=tmp_path)
    refused(walk, "{seed} is not filled in; nothing is here")


def test_a_weighted_prompt_is_not_endless(program, model, tmp_path):
    arguments = ("-m", model, "--steps", 1, "-q", "-o", tmp_path / "a.png", "--prompt-syntax", "weighted")
    refused(program("txt2img", "(red:1.1) square " * 7353, *arguments), "takes more than 64 chunks of")
    refused(program("txt2img", "BREAK " * 20_000, *arguments), "takes more than 64 chunks of")
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize("name", ["model_index.json", "unet/config.json", "scheduler/scheduler_config.json"])
def test_a_broken_config_is_told_in_words(program, model, tmp_path, name):
    shutil.copytree(model, tmp_path / "model")
    for text in ("{", "[1, 2", '{"a": nul}', '{"a": 1e999}', '{"a": "\x1b"}', "\xff"):
        (tmp_path / "model" / name).write_text(text, encoding="latin-1")
        done = program("txt2img", "square", "-m", tmp_path / "model", "--steps", 1, "-q", "-o", tmp_path / "a.png")
        refused(done, name)
        assert "json.exception" not in done.stderr and "\x1b" not in done.stderr
