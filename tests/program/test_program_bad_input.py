"""What cannot be: one clear line, exit status 2, and no file left half written."""

import json
import os
import resource
import shutil
import subprocess

import pytest
from drawn_icons import refused

import scaffolding as sf

# Every command that takes a model, with what else it needs; {} stands for a folder with a picture and a mask of 64x64.
COMMANDS = {
    "txt2img": ["square", "-o", "{}/out/a.png", "--steps", "2"],
    "img2img": ["square", "-o", "{}/out/a.png", "--steps", "2", "--image", "{}/a.png"],
    "inpaint": ["square", "-o", "{}/out/a.png", "--steps", "2", "--image", "{}/a.png", "--mask", "{}/a.png"],
    "interpolate": ["square", "box", "-o", "{}/out/a.webp", "--steps", "2", "--frames", "2"],
}


@pytest.fixture
def call(program, model, tmp_path):
    """Runs one of COMMANDS with other options besides; every path that is named has tmp_path/out to write to."""
    sf.io.write_image(tmp_path / "a.png", sf.zeros(3, 64, 64, dtype=sf.uint8))
    (tmp_path / "out").mkdir()

    def run(command, *arguments, folder=tmp_path, **options):
        given = [part.replace("{}", str(folder)) for part in COMMANDS[command]]
        for name, value in zip(arguments[::2], arguments[1::2]):
            if name in given:
                given[given.index(name) + 1] = str(value)
            else:
                given += [name, str(value)]
        if "--model" not in given:
            given += ["--model", str(model)]
        return program(command, *given, "-q", **options)

    yield run
    assert not [p for p in (tmp_path / "out").rglob("*") if ".tmp" in p.name or "partial" in p.name]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_works_on_what_is_right(call, command, tmp_path):
    done = call(command)
    assert done.returncode == 0, done.stderr
    assert [p.name for p in (tmp_path / "out").iterdir()] == [os.path.basename(done.stdout.strip())]


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_models_and_wrong_kinds_of_files(call, command, tmp_path):
    (tmp_path / "text.safetensors").write_text("not a checkpoint")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    sf.save({"weight": sf.zeros(2)}, str(tmp_path / "other.pt"))
    refused(call(command, "--model", tmp_path / "none"), "--model: there is no")
    refused(call(command, "--model", tmp_path / "a.png"), "is a picture")
    for name in ("text.safetensors", "empty.safetensors", "folder", "other.pt"):
        refused(call(command, "--model", tmp_path / name), name)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--width", 0), "--width"),
        (("--height", -64), "--height"),
        (("--width", 80000000), "--width"),
        (("--seed", -2), "--seed"),
        (("--seed", 2**63), "--seed"),
        (("--seed", "one"), "--seed"),
        (("--steps", 0), "num_inference_steps"),
        (("--batch", 0), "--batch"),
        (("--guidance", "inf"), "guidance_scale"),
        (("--dtype", "int8"), "--dtype"),
        (("--sampler", "best"), "--sampler"),
        (("-o", "/proc/nowhere/a.webp"), "--output: cannot make the folder"),
        (("-o", "{}/out/a.exe"), "--output: must end in"),
        (("-o", "{}/out/" + "a" * 300 + ".webp"), "--output: a file's name has at most 255 bytes"),
    ],
)
def test_numbers_and_names_out_of_range(call, command, arguments, text, tmp_path):
    refused(call(command, *(str(a).replace("{}", str(tmp_path)) for a in arguments)), text)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("command", ["txt2img", "interpolate"])
def test_sizes_that_do_not_fit(call, command, tmp_path):
    refused(call(command, "--width", 100), "divisible by 8")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_last_seed_is_one_and_the_next_is_none(program, model, tmp_path):
    arguments = (
        "txt2img",
        "square",
        "--model",
        model,
        "--steps",
        1,
        "-q",
        "-o",
        tmp_path / "{seed}.png",
        "--seed",
        2**63 - 2,
    )
    assert program(*arguments).returncode == 0
    refused(program(*arguments, "--count", 3), "--seed: 9223372036854775806 is too large for 3 pictures")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_prompt_of_ten_thousand_characters(program, model, call, command, tmp_path):
    given = [part.replace("{}", str(tmp_path)) for part in COMMANDS[command]]
    given[0] = "red square " * 909 + "x"
    done = program(command, *given, "--model", model, "-q")
    assert done.returncode == 0 and len(done.stderr) < 400, done.stderr


@pytest.mark.parametrize("prompt", ["", "\x01\x02", "\u2603 \U0001f34e", "(((", "a" * 10000])
def test_prompts_of_any_kind(call, prompt, program, model, tmp_path):
    for syntax in ("plain", "weighted"):
        done = program(
            "txt2img",
            "--prompt",
            prompt if syntax == "plain" else prompt[:500],  # of 64 chunks at most
            "--model",
            model,
            "--steps",
            1,
            "-q",
            "-o",
            tmp_path / "out/{prompt}.png",
            "--prompt-syntax",
            syntax,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["img2img", "inpaint"])
def test_pictures_that_are_none(call, command, tmp_path):
    (tmp_path / "cut.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])
    (tmp_path / "text.png").write_text("hello")
    refused(call(command, "--image", tmp_path / "none.png"), "--image: there is no file")
    refused(call(command, "--image", tmp_path / "text.png"), "is no PNG, JPEG or WebP")
    refused(call(command, "--image", tmp_path / "cut.png"), "cut.png")
    refused(call(command, "--image", tmp_path / "out"), "--image: there is no file")
    refused(call(command, "--strength", 1.5), "strength")
    refused(call(command, "--strength", 0), "strength")


@pytest.fixture
def read_only(tmp_path):
    """A folder that nothing can be written into, by root neither."""
    folder = tmp_path / "sealed"
    folder.mkdir()
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)
        return
    if not shutil.which("chattr") or subprocess.run(["chattr", "+i", folder], capture_output=True).returncode != 0:
        yield "/proc/sys"  # root may write anywhere else
        return
    yield folder
    subprocess.run(["chattr", "-i", folder], check=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_cannot_be_written_to(call, command, read_only):
    suffix = ".webp" if command == "interpolate" else ".png"
    refused(call(command, "-o", f"{read_only}/a{suffix}"), str(read_only))


def test_converting_and_training_into_a_folder_that_cannot_be_written_to(program, model, recipe, read_only):
    refused(
        program("convert", model / "unet/diffusion_pytorch_model.safetensors", f"{read_only}/one.safetensors"),
        str(read_only),
    )
    refused(program("train", "--config", recipe, "-o", f"{read_only}/run", "-q"), str(read_only))


def limited(size):
    """Files may not grow beyond so many bytes, as on a disk that is full (the write fails with an error instead of a
    signal).
    """

    def limit():
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_leaves_no_part_of_a_file(call, command, tmp_path):
    refused(call(command, preexec_fn=limited(100)), "out/a.")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_full_disk_keeps_what_was_there(call, program, model, tmp_path):
    assert call("txt2img", "--seed", 1).returncode == 0
    before = (tmp_path / "out/a.png").read_bytes()
    refused(call("txt2img", "--seed", 2, "--json", "--force", preexec_fn=limited(100)), "out/a.png")
    refused(call("txt2img", "--seed", 2, preexec_fn=limited(100)), "out/a.png")
    assert (tmp_path / "out/a.png").read_bytes() == before
    done = program(
        "convert",
        model / "unet/diffusion_pytorch_model.safetensors",
        tmp_path / "out/one.safetensors",
        preexec_fn=limited(2000),
    )
    refused(done, "one.safetensors")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a.png"]


def test_a_full_disk_stops_a_training_which_goes_on_when_there_is_room(program, recipe, run_folder, tmp_path):
    arguments = ("train", "--config", recipe, "--output", tmp_path / "run", "-q")
    refused(program(*arguments, preexec_fn=limited(20000)), str(tmp_path / "run"))
    done = program(*arguments)
    assert done.returncode == 0, done.stderr
    unet = "pipeline/unet/diffusion_pytorch_model.safetensors"
    assert (tmp_path / "run" / unet).read_bytes() == (run_folder / unet).read_bytes()


def test_standard_output_that_is_full_or_closed(build_dir, program, model, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run([build_dir / "scaffolding", "version"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and done.stderr.startswith("scaffolding: ") and done.stderr.count("\n") == 1


def test_recipes_that_are_wrong(program, recipe, tmp_path):
    def attempt(change, text):
        wrong = json.loads(recipe.read_text())
        change(wrong)
        (tmp_path / "wrong.json").write_text(json.dumps(wrong))
        shutil.copy(recipe.parent / "icons.tar", tmp_path / "icons.tar")
        refused(program("train", "--config", tmp_path / "wrong.json", "-o", tmp_path / "run"), text)
        assert not (tmp_path / "run/pipeline/unet").exists()

    attempt(lambda r: r.pop("unet"), "must have an object 'unet'")
    attempt(lambda r: r["denoiser_training"].update(learning_rate=-1), "learning_rate")
    attempt(lambda r: r["data"].update(path="none.tar"), "none.tar")
    attempt(lambda r: r["denoiser_training"].update(batch_size="four"), "batch_size")
    (tmp_path / "wrong.json").write_text("{")
    refused(program("train", "--config", tmp_path / "wrong.json", "-o", tmp_path / "run"), "wrong.json")
    refused(program("train", "--config", tmp_path / "icons.tar", "-o", tmp_path / "run"), "icons.tar")
    sf.io.write_image(tmp_path / "a.png", sf.zeros(3, 8, 8, dtype=sf.uint8))
    shutil.copy(recipe, tmp_path / "train.json")
    refused(
        program("train", "--config", tmp_path / "train.json", "--data", tmp_path / "a.png", "-o", tmp_path / "run"),
        "a.png",
    )


def test_what_inspect_and_convert_cannot_read(program, model, tmp_path):
    (tmp_path / "text.safetensors").write_text("hello")
    (tmp_path / "cut.safetensors").write_bytes((model / "unet/diffusion_pytorch_model.safetensors").read_bytes()[:1000])
    (tmp_path / "empty").mkdir()
    for command in (("inspect",), ("convert",)):
        rest = [tmp_path / "out.safetensors"] if command == ("convert",) else []
        for name in ("text.safetensors", "cut.safetensors", "empty", "none"):
            refused(program(*command, tmp_path / name, *rest), name)
    assert not (tmp_path / "out.safetensors").exists()
    refused(program("bench", "sd99-unet"), "sd99-unet")
    refused(program("bench", "sd15-unet", "--dtype", "int4"), "dtype")
