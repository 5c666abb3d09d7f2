"""Installs a wheel into an empty virtual environment and makes a picture with the program and with the package, and a
clip with the program: `make clean-room`.
Or unpacks a Debian package and makes both with its program: `make deb-room`.

    python tests/clean_room.py dist/scaffolding-0.1.0-*.whl
    python tests/clean_room.py build-cmake/scaffolding_0.1.0_amd64.deb

The environment sees no other packages and no files of the repository. Of a model without weights in models/ nothing is
made, and it says so."""

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from bare_root import readme_program

LARGEST = 20 << 20  # bytes of a wheel, the models aside
MODELS = ("emoji-128", "emoji-video")

IN_PYTHON = """
import pathlib, sys
import scaffolding as sf
assert pathlib.Path(sf.__file__).is_relative_to(sys.prefix), sf.__file__
x = sf.tensor([2.0, 3.0], requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [4.0, 6.0]
"""
PICTURE_IN_PYTHON = """
from scaffolding.diffusion import DiffusionPipeline
pipe = DiffusionPipeline.from_pretrained("emoji-128", torch_dtype=sf.float32)
picture = pipe("red apple, fluent 3d", num_inference_steps=4, guidance_scale=5, seed=7, output_type="np").images[0]
of_the_program = sf.io.read_image("apple.png").permute(1, 2, 0).numpy()
assert abs((picture * 255).round() - of_the_program).max() <= 1, "the package and the program make different pictures"
"""


CLEAN = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SF_", "VIRTUAL_ENV", "LD_"))
}


def run(place, *command):
    print("clean-room:", *[str(c).replace(str(place), "") if len(str(c)) < 200 else "..." for c in command], flush=True)
    subprocess.run(
        [str(c) for c in command], check=True, cwd=place, env=CLEAN | {"HF_HUB_OFFLINE": "1", "HOME": str(place)}
    )


def make_picture(place, program):
    run(
        place,
        program,
        "txt2img",
        "red apple, fluent 3d",
        "--steps",
        4,
        "--guidance",
        5,
        "--seed",
        7,
        "--output",
        "apple.png",
        "--quiet",
    )


def make_clip(place, program):
    steered = ("--trajectory", "10,54 32,20 54,10", "--steps", 4, "--seed", 7)
    run(place, program, "txt2vid", "rocket, noto", *steered, "--output", "rocket/%04d.png", "--quiet")
    if (frames := len(list((place / "rocket").glob("*.png")))) != 17:
        sys.exit(f"clean-room: the clip has {frames} frames and not 17")


def make_what_can_be(place, program, models):
    for model, make in (("emoji-128", make_picture), ("emoji-video", make_clip)):
        if model in models:
            make(place, program)


def check_wheel(wheel, place):
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.compress_size for entry in archive.infolist()}
    there = {model for model in MODELS if any(name.endswith(f"{model}/model_index.json") for name in sizes)}
    models = sum(size for name, size in sizes.items() if "/share/scaffolding/models/" in name)
    rest = sum(sizes.values()) - models
    print(f"clean-room: {wheel.name}: {rest / 1e6:.1f} MB and models of {models / 1e6:.1f} MB")
    if rest > LARGEST:
        sys.exit(f"clean-room: the wheel is larger than {LARGEST} bytes, the models aside")
    modules = sorted(name for name in sizes if name.startswith("scaffolding/_core."))
    if "-abi3-" in wheel.name and modules != ["scaffolding/_core.abi3.so"]:
        sys.exit(f"clean-room: {wheel.name} is for more than one version of Python, and its modules are {modules}")
    # Nothing of libav, which is not on every machine.
    if foreign := [name for name in sizes if "scaffolding_video" in name or "/libav" in name or "/libsw" in name]:
        sys.exit(f"clean-room: {wheel.name} has {foreign}")
    run(place, sys.executable, "-m", "venv", "empty")
    python, program = place / "empty/bin/python", place / "empty/bin/scaffolding"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel.resolve()],
        check=True,
        cwd=place,
        env=CLEAN,
    )
    run(place, program, "version")
    make_what_can_be(place, program, there)
    run(place, python, "-c", IN_PYTHON + (PICTURE_IN_PYTHON if "emoji-128" in there else ""))
    if "emoji-128" in there:
        (place / "apple.png").unlink()
        run(place, python, "-c", readme_program())
        if not (place / "apple.png").exists():
            sys.exit("clean-room: the README's first program made no apple.png")
    return there


def check_debian_package(package, place):
    """Unpacked, not installed: the libraries that it depends on are those it was built with."""
    run(place, "dpkg-deb", "-x", package.resolve(), place)
    fields = subprocess.run(["dpkg-deb", "-f", package, "Depends"], check=True, capture_output=True, text=True).stdout
    if "libstdc++6" not in fields:
        sys.exit(f"clean-room: {package.name} does not name the libraries that it needs: Depends: {fields}")
    for needed in (
        "usr/bin/scaffolding",
        "usr/include/scaffolding/scaffolding.h",
        "usr/share/man/man1/scaffolding.1.gz",
    ):
        if not (place / needed).exists() and not (place / needed.removesuffix(".gz")).exists():
            sys.exit(f"clean-room: {package.name} has no {needed}")
    run(place, place / "usr/bin/scaffolding", "version")
    there = {path.parent.name for path in place.glob("usr/share/scaffolding/models/*/model_index.json")}
    make_what_can_be(place, place / "usr/bin/scaffolding", there)
    return there


def main(package):
    with tempfile.TemporaryDirectory() as folder:
        there = (check_debian_package if package.suffix == ".deb" else check_wheel)(package, pathlib.Path(folder))
    for model in MODELS:
        if model not in there:
            print(f"clean-room: nothing was made with {model}: models/{model} has no weights yet")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
