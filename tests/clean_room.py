"""Installs a wheel into an empty virtual environment and makes a picture with the program and with the package: `make clean-room`.

    python tests/clean_room.py dist/scaffolding-0.1.0-*.whl

The environment sees no other packages and no files of the repository. Without weights in models/emoji-128 the pictures are left out, and it says so.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

LARGEST = 20 << 20  # bytes of a wheel, the model aside

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


def main(wheel):
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.compress_size for entry in archive.infolist()}
    has_model = any(name.endswith("emoji-128/model_index.json") for name in sizes)
    model = sum(size for name, size in sizes.items() if "/share/scaffolding/models/" in name)
    print(f"clean-room: {wheel.name}: {(sum(sizes.values()) - model) / 1e6:.1f} MB and a model of {model / 1e6:.1f} MB")
    if sum(sizes.values()) - model > LARGEST:
        sys.exit(f"clean-room: the wheel is larger than {LARGEST} bytes, the model aside")
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SF_", "VIRTUAL_ENV"))}

        def run(*command):
            print("clean-room:", *[str(c).replace(folder, "") if len(str(c)) < 200 else "..." for c in command], flush=True)
            subprocess.run([str(c) for c in command], check=True, cwd=place, env=clean | {"HF_HUB_OFFLINE": "1", "HOME": folder})

        run(sys.executable, "-m", "venv", "empty")
        python, program = place / "empty/bin/python", place / "empty/bin/scaffolding"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel.resolve()], check=True, cwd=place, env=clean)
        run(program, "version")
        if has_model:
            run(program, "txt2img", "red apple, fluent 3d", "--steps", 4, "--seed", 7, "--output", "apple.png", "--quiet")
        run(python, "-c", IN_PYTHON + (PICTURE_IN_PYTHON if has_model else ""))
    if not has_model:
        print("clean-room: no picture was made: models/emoji-128 has no weights yet")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
