"""What the documents and tools say holds: their programs run and print what they say, tools/new_op.py and
tools/new_model.py write files that compile.

Programs run in an empty folder but for `stable-diffusion-2-1` and `emoji-128`, pipelines of that layout with tiny
random networks, `CogVideoX-2b`, `CogVideoX-5b-I2V`, `Tora_T2V` and `LTX-2`, the same of videos, `pictures` and `films`,
folders of captioned pictures and clips, `sea.png`, a mask, and LoRAs for these networks, `style.safetensors`,
`ink.safetensors` and `loras/ink.safetensors`. A block of text after a program is what it prints; `...` stands for
anything. `<!-- not run: why -->` before a program skips it. A shell program that calls a tool of the repository finds
the tools and the files that they change.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from tiny_video import save_cogvideox, save_image_to_video, save_ltx2, save_tora

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>.*?) "
    r"-->\n)?```(?P<language>\w+)\n(?P<program>.*?)^```\n(?:\n```text\n(?P<prints>.*?)^```)?",
    re.MULTILINE | re.DOTALL,
)


def programs(document, language):
    return [block for block in BLOCK.finditer((ROOT / document).read_text()) if block["language"] == language]


def blocks(document, language):
    return [block["program"] for block in programs(document, language)]


def save_tiny_pipeline(folder):
    import scaffolding as sf
    from scaffolding.diffusion import (
        AutoencoderKL,
        CLIPTextModel,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )

    sf.manual_seed(0)
    tokenizer = sf.tokenizers.train_bpe(["a lighthouse at dusk, in oil", "in watercolour"], vocab_size=530)
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    StableDiffusionPipeline(
        vae=AutoencoderKL(
            block_out_channels=[4, 4, 8, 8],
            down_block_types=["DownEncoderBlock2D"] * 4,
            up_block_types=["UpDecoderBlock2D"] * 4,
            norm_num_groups=4,
            sample_size=64,
        ),
        text_encoder=CLIPTextModel(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            hidden_act="gelu",
            **ends,
        ),
        tokenizer=tokenizer,
        unet=UNet2DConditionModel(
            sample_size=8,
            block_out_channels=[16, 32],
            layers_per_block=1,
            norm_num_groups=8,
            down_block_types=["CrossAttnDownBlock2D", "DownBlock2D"],
            up_block_types=["UpBlock2D", "CrossAttnUpBlock2D"],
            cross_attention_dim=32,
            attention_head_dim=2,
        ),
        scheduler=DDIMScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            steps_offset=1,
            clip_sample=False,
            set_alpha_to_one=False,
        ),
    ).save_pretrained(folder)


def save_lora(path, model):
    """For queries of the tiny pipeline's attention."""
    import scaffolding as sf
    from scaffolding.diffusion import StableDiffusionPipeline

    pipe, tensors = StableDiffusionPipeline.from_pretrained(model), {}
    for component, end in (("unet", "to_q"), ("text_encoder", "q_proj")):
        for name, layer in pipe.components[component].named_modules():
            if name.endswith(end):
                rows, columns = layer.weight.shape
                tensors[f"{component}.{name}.lora_A.weight"] = sf.randn(2, columns)
                tensors[f"{component}.{name}.lora_B.weight"] = sf.randn(rows, 2)
    sf.safetensors.save_file(tensors, path)


def save_captioned_pictures(folder):
    import scaffolding as sf

    folder.mkdir()
    for i in range(4):
        sf.io.write_image(str(folder / f"{i}.png"), sf.full((3, 64, 64), 60 * i, dtype=sf.uint8))
        (folder / f"{i}.txt").write_text(f"grey number {i}")


def save_captioned_clips(folder):
    import scaffolding as sf

    folder.mkdir()
    for i in range(2):
        sf.io.save_video(str(folder / f"{i}.webp"), sf.full((9, 20, 40, 3), 100 * i, dtype=sf.uint8))
        (folder / f"{i}.txt").write_text(f"grey number {i}")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    sf = pytest.importorskip("scaffolding")
    folder = tmp_path_factory.mktemp("models")
    save_tiny_pipeline(folder / "stable-diffusion-2-1")
    save_cogvideox(folder / "CogVideoX-2b")
    save_image_to_video(folder / "CogVideoX-5b-I2V")
    save_tora(folder / "Tora_T2V")
    save_ltx2(folder / "LTX-2")
    save_captioned_pictures(folder / "pictures")
    save_captioned_clips(folder / "films")
    (folder / "loras").mkdir()
    for name in ("style", "ink", "loras/ink"):
        save_lora(folder / f"{name}.safetensors", folder / "stable-diffusion-2-1")
    mask = sf.zeros(1, 64, 64, dtype=sf.uint8)
    mask[:, 32:] = 255
    sf.io.write_image(str(folder / "sea.png"), mask)
    return folder


def run_program(command, block, models, folder, **environment):
    for path in models.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "emoji-128").symlink_to(models / "stable-diffusion-2-1")
    quiet = {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hub"),
        "SF_NUM_THREADS": "1",
        "SF_MODEL": str(folder / "emoji-128"),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | quiet | environment, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    if block["prints"] is not None:
        expected = ".*?".join(re.escape(part) for part in block["prints"].rstrip().split("..."))
        assert re.fullmatch(
            expected, done.stdout.rstrip(), re.DOTALL
        ), f"it printed\n{done.stdout}and not\n{block['prints']}"


def numbered(language):
    return [
        pytest.param(document, number, id=f"{document}-{number}")
        for document in DOCUMENTS
        for number in range(len(programs(document, language)))
    ]


@pytest.mark.parametrize(("document", "number"), numbered("python"))
def test_python_programs_run(document, number, models, tmp_path):
    pytest.importorskip("PIL")  # what pipelines return
    block = programs(document, "python")[number]
    if block["why"]:
        pytest.skip(f"not run: {block['why']}")
    # the package may lie in a relative path
    program = f"import os, scaffolding\nos.chdir({str(tmp_path)!r})\n" + block["program"]
    run_program([sys.executable, "-W", "error", "-c", program], block, models, tmp_path, PYTHONPATH=import_path())


def import_path():
    import scaffolding

    return str(pathlib.Path(scaffolding.__file__).parent.parent)


@pytest.mark.parametrize(("document", "number"), numbered("sh"))
def test_shell_programs_run(document, number, models, build_dir, tmp_path):
    block = programs(document, "sh")[number]
    if block["why"]:
        pytest.skip(f"not run: {block['why']}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "scaffolding").symlink_to(build_dir / "scaffolding")
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    if "tools/" in block["program"]:
        (tmp_path / "tools").symlink_to(ROOT / "tools")
        copy_model_lists(tmp_path)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    run_program(
        ["bash", "-euo", "pipefail", "-c", block["program"]],
        block,
        models,
        tmp_path,
        PATH=path,
        PYTHONPATH=import_path(),
    )


@pytest.mark.parametrize(("document", "number"), numbered("cpp"))
def test_cpp_programs_are_parts_of_those_that_are_tested(document, number):
    program = programs(document, "cpp")[number]["program"]
    tested = [*(ROOT / "examples").glob("*.cpp"), ROOT / "tests/find_package/main.cpp"]
    assert any(program in path.read_text() for path in tested), f"no file of examples/ has this text:\n{program}"


def test_the_program_for_a_picture(build_dir, tmp_path):
    pytest.importorskip("scaffolding")
    program = build_dir / "examples" / "text_to_image"
    if not program.exists():
        pytest.skip(f"{program} is not built: -DSF_BUILD_EXAMPLES=ON")
    save_tiny_pipeline(tmp_path / "model")
    done = subprocess.run(
        [program, tmp_path / "model", "a lighthouse", "2"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2] == "2 of 2" and (tmp_path / "picture.png").stat().st_size > 100
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    wrong = subprocess.run(
        [program, tmp_path / "nowhere", "a lighthouse"], cwd=tmp_path, capture_output=True, text=True, env=offline
    )
    assert wrong.returncode == 1 and wrong.stderr.startswith("text_to_image: "), wrong.stderr


def test_the_program_for_a_lora(build_dir, models, tmp_path):
    program = build_dir / "examples" / "lora"
    if not program.exists():
        pytest.skip(f"{program} is not built: -DSF_BUILD_EXAMPLES=ON")
    where = [models / "stable-diffusion-2-1", models / "style.safetensors"]
    for prompt in ("a lighthouse", "in oil"):
        done = subprocess.run([program, *where, prompt], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    with_it, half = ((tmp_path / name).read_bytes() for name in ("with_lora.png", "unet_alone.png"))
    assert with_it != half
    wrong = subprocess.run([program, where[0], models / "sea.png", "a"], cwd=tmp_path, capture_output=True, text=True)
    assert wrong.returncode == 1 and wrong.stderr.startswith("lora: "), wrong.stderr


def test_readme_cmake_is_the_project_that_is_tested():
    (text,) = blocks("README.md", "cmake")
    assert text in (ROOT / "tests/find_package/CMakeLists.txt").read_text()


def test_install_names_the_systems_that_the_wheel_serves_and_those_it_does_not():
    oldest = int(re.search(r"--plat manylinux_2_(\d+)_", (ROOT / "Makefile").read_text())[1])
    text = (ROOT / "docs/install.md").read_text()
    rows = re.findall(r"^\| 2\.(\d+)( and later)? \| (.*?) \| (.+) \|$", text, re.MULTILINE)
    assert [int(v) for v, later, *_ in rows if later] == [oldest] and f"`manylinux_2_{oldest}`" in text
    without = {system for v, _, systems, _ in rows if int(v) < oldest for system in systems.split(", ")}
    assert {"Ubuntu 22.04", "Debian 11", "RHEL 9"} <= without


def test_makefile_has_the_documented_targets():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    targets |= set(re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", makefile, re.MULTILINE)[1].split())
    for document in (*DOCUMENTS, "CONTRIBUTING.md", "ARCHITECTURE.md"):
        for target in re.findall(r"(?:`|^)make ([a-z0-9-]+)", (ROOT / document).read_text(), re.MULTILINE):
            assert target in targets, f"{document} names `make {target}`"


def copy_model_lists(root):
    """What tools/new_model.py adds a line to, and the models that there are."""
    (root / "scaffolding/diffusion/pipelines").mkdir(parents=True)
    shutil.copy(ROOT / "scaffolding/diffusion/pipelines/pipelines.h", root / "scaffolding/diffusion/pipelines")
    shutil.copytree(ROOT / "scaffolding/models", root / "scaffolding/models")
    shutil.copy(ROOT / "README.md", root)
    shutil.copytree(
        ROOT / "docs",
        root / "docs",
        ignore=lambda folder, names: [n for n in names if pathlib.Path(n).suffix not in ("", ".md")],
    )


COMPILED = set()  # texts of files with the written headers that they name: four tasks have the same model


def new_model(root, *arguments):
    """The files that it wrote, which compile."""
    command = [sys.executable, ROOT / "tools/new_model.py", *arguments, "--root", root]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    written = [root / line.removeprefix("wrote ") for line in printed.split("\n") if line.startswith("wrote ")]
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode != 0 and "exists already" in again.stderr
    compiler = shutil.which("c++") or shutil.which("g++")
    for source in written:
        if source.suffix == ".py":
            compile(source.read_text(), source, "exec")
        elif source.suffix == ".cpp":
            text = source.read_text()
            for header in reversed(written):
                text += header.read_text() if f'#include "{header.relative_to(root)}"' in text else ""
            if text in COMPILED:
                continue
            done = subprocess.run(
                [compiler, "-std=c++20", "-fsyntax-only", f"-I{root}", f"-I{ROOT}", source],
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            COMPILED.add(text)
    assert "@" not in "".join(path.read_text() for path in written).replace("@model_class", "")
    return [str(path.relative_to(root)) for path in written]


@pytest.mark.parametrize("like", ["diffusers.SampleNet2DModel", "transformers.SampleNetModel"])
def test_new_model_writes_files_that_compile(like, tmp_path):
    copy_model_lists(tmp_path)
    name = like.split(".")[1]
    written = new_model(tmp_path, name, "--like", like, "--layout", "original")
    header, source = written[:2]
    assert f'#include "{header}"' in (tmp_path / "scaffolding/models/models.h").read_text()
    assert like.startswith("transformers") == ('return "transformers"' in (tmp_path / header).read_text())
    assert f"SF_MODEL({name})" in (tmp_path / source).read_text()
    tables = [path.read_text().split("\n") for path in (tmp_path / "README.md", *(tmp_path / "docs").rglob("*.md"))]
    (rows,) = ([lines[i - 1], lines[i]] for lines in tables for i in range(1, len(lines)) if f"`{name}` |" in lines[i])
    assert rows[0].count("|") == rows[1].count("|")


@pytest.mark.parametrize("task", ["text-to-image", "image-to-image", "inpainting", "class-to-image"])
def test_new_model_writes_pipelines_that_compile(task, tmp_path):
    copy_model_lists(tmp_path)
    written = new_model(
        tmp_path, "SampleTransformer2DModel", "--pipeline", "SampleSigmaPipeline", "--family", "sample", "--task", task
    )
    assert written == [
        "scaffolding/models/transformers/sample_transformer_2d.h",
        "scaffolding/models/transformers/sample_transformer_2d.cpp",
        "python/scaffolding/models/sample_transformer_2d.py",
        "tests/golden/make_golden_models_sample_transformer_2d.py",
        "scaffolding/diffusion/pipelines/sample/pipeline_sample_sigma.h",
        "scaffolding/diffusion/pipelines/sample/pipeline_sample_sigma.cpp",
        "tests/golden/make_golden_pipelines_sample.py",
    ]
    for document, header in (("models/models.h", written[0]), ("diffusion/pipelines/pipelines.h", written[4])):
        assert f'#include "{header}"' in (tmp_path / "scaffolding" / document).read_text()
    registered = (tmp_path / written[5]).read_text()
    assert "SF_PIPELINE(SampleSigmaPipeline)" in registered and '.family("sample")' in registered


def test_new_model_writes_further_pipelines_of_a_family(tmp_path):
    copy_model_lists(tmp_path)
    arguments = ["UNet2DConditionModel", "--family", "sample"]
    first = new_model(tmp_path, *arguments, "--pipeline", "SamplePipeline")
    stem = "scaffolding/diffusion/pipelines/sample/pipeline_sample"
    # the model is there, and it is a unet
    assert first == [f"{stem}.h", f"{stem}.cpp", "tests/golden/make_golden_pipelines_sample.py"]
    assert "SF_COMPONENTS(vae, text_encoder, tokenizer, unet, scheduler)" in (tmp_path / first[0]).read_text()
    assert new_model(tmp_path, *arguments, "--pipeline", "SampleImg2ImgPipeline", "--task", "image-to-image") == [
        f"{stem}_img2img.h",
        f"{stem}_img2img.cpp",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["small_model"], "a model's name is a class name, got 'small_model'"),
        (
            ["NewModel", "--like", "NewModel"],
            "--like takes a module and a class such as diffusers.NewModel, got 'NewModel'",
        ),
        (["NewModel", "--file", "../x"], "a file's name is snake_case, got '../x'"),
        (["NewModel", "--layout", "a b"], "a layout is one word, got 'a b'"),
        (["NewModel"], "run it in the repository"),
        (["NewModel", "--pipeline", "NewPipeline"], "--pipeline and --family go together"),
        (["NewModel", "--task", "inpainting"], "--pipeline and --family go together, and --task with them"),
        (
            ["NewModel", "--pipeline", "New", "--family", "new"],
            "a pipeline's name is a class name such as DiTPipeline, got 'New'",
        ),
        (["NewModel", "--pipeline", "NewPipeline", "--family", "New"], "a family's name is snake_case, got 'New'"),
        (
            ["NewModel", "--pipeline", "NewPipeline", "--family", "new", "--folder", "autoencoders"],
            "--pipeline goes with its denoiser, of transformers or unets",
        ),
    ],
)
def test_new_model_refuses(arguments, message, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "tools/new_model.py", *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode != 0 and message in done.stderr and not list(tmp_path.iterdir())


def test_new_op_writes_files_that_compile(tmp_path):
    ops = tmp_path / "scaffolding/ops"
    ops.mkdir(parents=True)
    shutil.copy(ROOT / "scaffolding/ops/ops.h", ops)
    command = [sys.executable, ROOT / "tools/new_op.py", "sample_of_an_op", "--root", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    assert '#include "scaffolding/ops/sample_of_an_op/sample_of_an_op.h"' in (ops / "ops.h").read_text()
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode != 0 and "exists already" in again.stderr
    compiler = shutil.which("c++") or shutil.which("g++")
    for source in sorted((ops / "sample_of_an_op").glob("*.cpp")):
        done = subprocess.run(
            [compiler, "-std=c++20", "-fsyntax-only", f"-I{tmp_path}", f"-I{ROOT}", source],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
