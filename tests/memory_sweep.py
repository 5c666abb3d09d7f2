"""The program under limits of memory: from the least with which it starts, a command ends in what was asked for or in
one line that says why not.
"""

import resource
import subprocess

LIMITS = {"RLIMIT_AS": resource.RLIMIT_AS, "RLIMIT_DATA": resource.RLIMIT_DATA}  # ulimit -v, ulimit -d


def limited(program, which, size, *arguments):
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(LIMITS[which], (size, size)),
    )


def least(program, which, step=1 << 20):
    """The least limit with which --version starts, to within a step."""
    low, high = 0, 4 << 30
    while high - low > step:
        middle = (low + high) // 2
        if limited(program, which, middle, "version").returncode == 0:
            high = middle
        else:
            low = middle
    return high


def commands(model, folder):
    """Each with what it writes, or None."""
    weights = model / "unet" / "diffusion_pytorch_model.safetensors"
    picture = folder / "a.png"
    return {
        "txt2img": (("txt2img", "square", "-m", model, "--steps", 1, "-q", "-o", picture), picture),
        "img2img": (
            ("img2img", "square", "-m", model, "--image", folder / "given.png", "--steps", 2, "-q", "-o", picture),
            picture,
        ),
        "interpolate": (
            ("interpolate", "a", "b", "-m", model, "--steps", 1, "--frames", 2, "-q", "-o", folder / "a.webp"),
            folder / "a.webp",
        ),
        "inpaint": (
            ("inpaint", "square", "-m", model, "--image", folder / "given.png", "--mask", folder / "given.png")
            + ("--steps", 2, "-q", "-o", picture),
            picture,
        ),
        "demo": (("demo", "-m", model, "--steps", 1, "-q", "-o", folder / "demo"), folder / "demo" / "grid.png"),
        "inspect": (("inspect", model), None),
        "models": (("models",), None),
        "convert": (("convert", weights, folder / "a.pt"), folder / "a.pt"),
        "devices": (("devices",), None),
        "ops": (("ops",), None),
        "env": (("env",), None),
        "help": (("help", "--examples"), None),
        "completion": (("completion", "bash", "-o", folder / "bash"), folder / "bash"),
    }


def ends_well(program, which, size, arguments, written):
    """Whether it came to what was asked for; an assertion fails where it ended in anything but that and one line."""
    if written is not None:
        written.unlink(missing_ok=True)
    done = limited(program, which, size, *arguments)
    told = f"{which} {size >> 10} KiB, {arguments[0]}: {done.returncode}\n{done.stderr}"
    assert done.returncode in (0, 2), told
    lines = done.stderr.splitlines()
    assert all(line.startswith("scaffolding: ") for line in lines), told
    assert done.returncode == 0 or lines, told
    if written is not None:
        assert written.exists() == (done.returncode == 0), told
    return done.returncode == 0
