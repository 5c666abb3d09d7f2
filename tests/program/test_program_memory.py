"""The program plans its memory: --profile, --max-vram, --max-ram."""

import re

import pytest
from drawn_icons import refused

import scaffolding as sf


def picture(program, model, path, *arguments):
    done = program("txt2img", "square", "--model", model, "--steps", 2, "--seed", 3, "-o", path, *arguments)
    assert done.returncode == 0, done.stderr
    return sf.io.read_image(path).tolist(), done.stderr


def test_a_plan_is_printed_and_carried_out(program, model, tmp_path):
    plain, said = picture(program, model, tmp_path / "plain.png")
    assert "profile" not in said
    same, said = picture(program, model, tmp_path / "auto.png", "--profile", "auto", "--max-vram", 0)
    assert same == plain, "where all fits, nothing changes"
    assert "profile cpu_only (auto), guidance batched, cleanup none" in said
    assert "predicted peak of host memory" in said
    assert "measured: " in said.splitlines()[-1], "the program's last word"
    _, said = picture(program, model, tmp_path / "cpu.png", "--profile", "cpu_only", "--max-ram", "4GiB")
    assert "profile cpu_only, guidance sequential" in said and "of 4.29 GB" in said
    quiet, said = picture(program, model, tmp_path / "quiet.png", "--max-vram", "0", "-q")
    assert quiet == plain and said == ""


def test_pages_of_files_come_and_go(program, tmp_path):
    """Less host memory than the networks of the model that ships take together, as its files have them: the same
    picture."""
    call = (program, "emoji-128", tmp_path / "a.png", "--dtype", "float16", "--max-vram", "0")
    plain, said = picture(*call)
    assert "while it runs" not in said and " blocks" not in said
    whole = int(re.search(r"predicted peak of host memory: (\d+) MB", said)[1])
    same, said = picture(*call, "--max-ram", f"{whole - 4}MB")
    assert same == plain
    assert "while it runs" in said or " blocks" in said


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["--profile", "best"], "--profile"),
        (["--max-ram", "much"], "--max-ram: must be an amount of memory such as 6, 6GB, 500MB or 5.5GiB, got 'much'"),
        (["--max-vram", "0", "--max-ram", "1MB"], "max_ram of 1.0 MB is too little"),
        (["--profile", "cpu_only", "--max-vram", "4"], "'cpu_only' uses no GPU"),
    ],
)
def test_bad_budgets_are_one_clear_line(program, model, tmp_path, arguments, text):
    refused(program("txt2img", "square", "-q", "--model", model, "-o", tmp_path / "a.png", *arguments), text)
    assert not (tmp_path / "a.png").exists()


def test_other_commands_plan_too(program, model, tmp_path):
    sf.io.write_image(tmp_path / "a.png", sf.zeros(3, 64, 64, dtype=sf.uint8))
    done = program("img2img", "square", "--model", model, "--image", tmp_path / "a.png", "--steps", 4, "-o",
                   tmp_path / "b.png", "--profile", "cpu_only")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "StableDiffusionImg2ImgPipeline: profile cpu_only" in done.stderr


def test_devices_say_what_is_free(program):
    done = program("devices")
    assert done.returncode == 0 and "host memory: " in done.stdout and " MiB free" in done.stdout
