"""What is installed and packed works where it is put:
the program finds its library and the model that comes with it.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL, CLIPS = ROOT / "models/emoji-128", ROOT / "models/emoji-video"
needs_weights = pytest.mark.skipif(
    not (MODEL / "model_index.json").exists(), reason="models/emoji-128 has no weights yet"
)


def run(*command, ok=True, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in ("SF_MODEL", "SF_VIDEO_MODEL")}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=clean | environment)
    assert not ok or done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture
def program(build_dir):
    if not (build_dir / "scaffolding").exists():
        pytest.skip("the program is not built")
    return build_dir / "scaffolding"


def copy_of_the_program(program, folder):
    """An installation with the program and its library, and nothing else."""
    for place, source in (("bin", program), ("lib", program.parent / "libscaffolding.so.0")):
        (folder / place).mkdir(parents=True)
        shutil.copy(source, folder / place)
    return folder / "bin/scaffolding"


# What takes a model where none is named, the model, and the variable that names another.
COMMANDS = [("txt2img", "emoji-128", "SF_MODEL", "a.png"), ("txt2vid", "emoji-video", "SF_VIDEO_MODEL", "a.webp")]


@pytest.mark.parametrize("command, model, variable, name", COMMANDS)
def test_without_the_model_the_error_names_the_places(program, tmp_path, command, model, variable, name):
    library = {"LD_LIBRARY_PATH": str(tmp_path / "lib")}  # before the build folder's RUNPATH
    alone = copy_of_the_program(program, tmp_path)
    done = run(alone, command, "red apple", "--output", tmp_path / name, ok=False, **library)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    for place in ("lib/share", "share"):
        assert str(tmp_path / place / "scaffolding/models" / model) in done.stderr
    assert f"set {variable}" in done.stderr and not (tmp_path / name).exists()
    done = run(alone, command, "red apple", "--model", model, ok=False, **library)
    assert done.returncode == 2 and "looked in" in done.stderr


@pytest.mark.parametrize("command, model, variable, name", COMMANDS)
def test_a_model_that_the_environment_names_must_be_there(program, tmp_path, command, model, variable, name):
    done = run(program, command, "red apple", ok=False, **{variable: str(tmp_path)})
    assert done.returncode == 2 and f"{variable}: there is no model_index.json in" in done.stderr


@pytest.mark.parametrize("model, network", [(MODEL, "unet"), (CLIPS, "transformer")])
def test_the_package_names_the_places_too(model, network):
    sf = pytest.importorskip("scaffolding")
    if (model / "model_index.json").exists():
        pipe = sf.diffusion.DiffusionPipeline.from_pretrained(model.name, torch_dtype=sf.float32)
        assert sum(p.numel() for p in getattr(pipe, network).parameters()) > 0
    else:
        with pytest.raises(ValueError, match=f"'{model.name}' that comes with Scaffolding is not there; looked in"):
            sf.diffusion.DiffusionPipeline.from_pretrained(model.name)


@pytest.mark.usefixtures("build_lock")
def test_the_debian_package(build_dir, tmp_path):
    for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    run("cpack", "-G", "DEB", "--config", build_dir / "CPackConfig.cmake", "-B", tmp_path)
    (package,) = tmp_path.glob("scaffolding_*.deb")
    assert package.stat().st_size < (20 << 20) + 46_000_000
    assert "libav" not in run("dpkg-deb", "-f", package, "Depends").stdout
    assert "libscaffolding_video" not in run("dpkg-deb", "-c", package).stdout
    if (build_dir / "libscaffolding_video.so").exists():
        (video,) = tmp_path.glob("scaffolding-video_*.deb")
        needs = run("dpkg-deb", "-f", video, "Depends").stdout
        assert "scaffolding (=" in needs and "libavformat" in needs and "libswscale" in needs
        files = [line.split()[-1] for line in run("dpkg-deb", "-c", video).stdout.splitlines()]
        assert [f for f in files if not f.endswith("/")] == ["./usr/lib/libscaffolding_video.so"]
    for dependency in run("dpkg-deb", "-f", package, "Depends").stdout.split(", "):
        assert "installed" in run("dpkg-query", "-W", "-f", "${Status}", dependency.split()[0]).stdout
    run("dpkg-deb", "-x", package, tmp_path / "root")
    program = tmp_path / "root/usr/bin/scaffolding"
    assert str(tmp_path / "root/usr/lib/libscaffolding.so") in os.path.realpath(
        run("ldd", program).stdout.split("libscaffolding.so.0 => ")[1].split()[0]
    )
    for model in (MODEL, CLIPS):
        assert (tmp_path / "root/usr/share/scaffolding/models" / model.name / "train.json").exists()
    assert "OpenAI" in (tmp_path / "root/usr/share/scaffolding/licenses/clip/LICENSE").read_text()
    if (MODEL / "model_index.json").exists():
        run(program, "txt2img", "red apple, noto", "--steps", 2, "--seed", 1, "--output", tmp_path / "a.png")
    else:
        assert "looked in" in run(program, "txt2img", "red apple", ok=False).stderr


@pytest.mark.usefixtures("build_lock")
def test_libav_is_needed_by_one_library_that_no_wheel_has(build_dir, tmp_path):
    def needs(library):
        return [line for line in run("readelf", "-d", library).stdout.splitlines() if "NEEDED" in line]

    libraries = [build_dir / "libscaffolding.so", *build_dir.glob("python/scaffolding/_core*.so")]
    assert not [line for library in libraries for line in needs(library) if "[libav" in line or "[libsw" in line]
    # What fills a wheel is the component python; pip's build leaves the library out (cmake/video.cmake).
    run("cmake", "--install", build_dir, "--component", "python", "--prefix", tmp_path / "wheel")
    assert not list((tmp_path / "wheel").rglob("*scaffolding_video*"))
    if (build_dir / "libscaffolding_video.so").exists():
        assert len([line for line in needs(build_dir / "libscaffolding_video.so") if "[libav" in line]) >= 3


@needs_weights
def test_the_model_is_small_and_whole():
    files = [path for path in MODEL.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 40_000_000
    index = json.loads((MODEL / "model_index.json").read_text())
    for part in ("unet", "vae", "text_encoder", "tokenizer", "scheduler"):
        assert part in index and (MODEL / part).is_dir()


@needs_weights
def test_the_demo_draws_its_sheet(program, tmp_path):
    shown = run(program, "demo", "--output", tmp_path / "sheet", "--steps", 2).stdout
    assert shown.count(" s  ") == 9 and str(tmp_path / "sheet/grid.png") in shown
    sf = pytest.importorskip("scaffolding")
    assert tuple(sf.io.read_image(str(tmp_path / "sheet/grid.png")).shape) == (3, 256, 512)
    assert len(list((tmp_path / "sheet").glob("*.png"))) == 9
    (tmp_path / "prompts.txt").write_text("red apple\n\ncat face\n")
    run(
        program,
        "demo",
        "--output",
        tmp_path / "two",
        "--steps",
        2,
        "--prompts",
        tmp_path / "prompts.txt",
        "--columns",
        1,
        "--quiet",
    )
    assert tuple(sf.io.read_image(str(tmp_path / "two/grid.png")).shape) == (3, 256, 128)


def test_bindings_keep_to_the_stable_abi():
    """Names of CPython outside of it stand in python_api.h alone, or where a module for one version is compiled."""
    outside = re.compile(
        r"\b_Py\w+|->tp_\w+|\bPy\w+_Type\.tp_\w+|structmember\.h|\bT_PYSSIZET\b|Py_TRASHCAN\w*"
        r"|\bPy(?:Function_Check|Method_New|Type_FromSpec\w*)\(|\bPySliceObject\b"
    )
    of_one_version = re.compile(r"#ifdef Py_LIMITED_API.*?#else(.*?)#endif", re.DOTALL)
    found, seen = [], 0
    for path in sorted((ROOT / "python/bindings").rglob("*.*")):
        seen += 1
        if path.stem != "python_api":
            text = of_one_version.sub("", path.read_text(encoding="utf-8"))
            found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in outside.finditer(text)]
    assert seen > 50 and not found, "\n".join(found)
