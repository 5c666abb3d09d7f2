"""LoRAs in the program: found by path and by name, by --lora and by tags in prompts as the web UI writes them; named in
the picture, so that --like repeats it; refused in one clear line.
"""

import json
import os
import re
import shutil

import pytest
from drawn_icons import LORA_STEMS, refused, save_lora

import scaffolding as sf


@pytest.fixture(scope="module")
def loras(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loras")
    save_lora(folder / "style.safetensors", 1)
    metadata = {"ss_output_name": "the ink", "sshs_model_hash": "0123456789ab" + "c" * 52}
    save_lora(folder / "sub/ink.safetensors", 2, layers=["unet"], metadata=metadata)
    return folder


@pytest.fixture
def paint(program, model, tmp_path):
    """A picture's path, of one step."""

    def run(prompt, *arguments, name="a.png", ok=True, **options):
        given = ["--model", model, "--steps", 1, "--seed", 1, "-q", "--force", "-o", tmp_path / name]
        done = program("txt2img", prompt, *given, *arguments, **options)
        assert not ok or done.returncode == 0, done.stderr
        return tmp_path / name if ok else done

    return run


def pixels(path):
    return sf.io.read_image(path).numpy().tobytes()


def settings(path):
    return json.loads(sf.io.image_info(str(path))["text"]["scaffolding"])


def web_ui_fields(path):
    """The last line of the text, as the web UI's own parser takes it apart."""
    *prompt, last = sf.io.image_info(str(path))["text"]["parameters"].split("\n")
    fields = re.findall(r'\s*(\w[\w \-/]+):\s*("(?:\\.|[^\\"])+"|[^,]*)(?:,|$)', last)
    return "\n".join(prompt), {k: json.loads(v) if v.startswith('"') else v for k, v in fields}


def test_files_names_and_tags_are_the_same(paint, loras):
    bare = pixels(paint("red square"))
    style, below = loras / "style.safetensors", ("--lora-dir", loras)
    once = pixels(paint("red square", "--lora", f"{style}:0.8"))
    assert once != bare
    for arguments in (
        ("red square", "--lora", "style:0.8", *below),
        ("red <lora:style:0.8>square", *below),
        ("<lyco:style:te=0.8>red square", *below),
        ("red square<lora:style:0.4><lora:style:0.4>", *below),  # one file's weights are summed
        ("red square", "--lora", "style:0.4", "--lora", f"{style}:0.4", *below),
        ("red square<lora:style:0.8>", "--lora", f"{style}:3"),  # a tag's weight stands over --lora's, as there
        ("red square<lora:style:0.8>", "--prompt-syntax", "plain", *below),
    ):
        assert pixels(paint(*arguments)) == once, arguments
    both = pixels(paint("red square<lora:style:0.8><lora:ink:-0.5>", *below))
    assert both != once
    for name in ("sub/ink", "ink.safetensors", "the ink"):  # the last is what its metadata call it
        assert pixels(paint(f"red square<lora:style:0.8><lora:{name}:-0.5>", *below)) == both, name
    assert pixels(paint("red square <lora:style:0>", *below)) == pixels(paint("red square "))
    text, unet = (pixels(paint(f"red square<lora:style:{w}>", *below)) for w in ("te=0.8:unet=0", "0:0.8"))
    assert len({bare, once, text, unet}) == 4
    assert pixels(paint("red square", "--lora", "style:0:0.8", *below)) == unet


def test_pictures_are_the_packages(paint, loras, model):
    pipe = sf.diffusion.StableDiffusionPipeline.from_pretrained(str(model), torch_dtype=sf.float32)
    pipe.load_lora_weights(str(loras / "style.safetensors"), adapter_name="style")
    pipe.load_lora_weights(str(loras / "sub/ink.safetensors"), adapter_name="ink")
    pipe.set_adapters(["style", "ink"], [{"unet": 0.5, "text_encoder": -1.5}, 0.75])
    call = {"num_inference_steps": 1, "guidance_scale": 4, "output_type": "np"}
    ours = pipe("red square ", generator=sf.Generator().manual_seed(1), **call).images[0]
    made = sf.io.read_image(paint("red square <lora:style:-1.5:0.5><lora:ink:0.75>", "--lora-dir", loras))
    assert ((ours * 255).round().astype("uint8") == made.permute(1, 2, 0).numpy()).all()


def test_what_is_no_tag_is_text(paint, loras):
    """The web UI takes tags out of prompts only, not out of negative ones, and other brackets are no LoRA's."""
    bare = pixels(paint("red square"))
    assert pixels(paint("red square", "-n", "<lora:nowhere:1>")) != bare
    assert pixels(paint("red square <b>")) != bare
    weighted = ("--prompt-syntax", "weighted")
    tagged = paint("(red:1.3) square<lora:style:0.8>", *weighted, "--lora-dir", loras)
    assert pixels(tagged) == pixels(paint("(red:1.3) square", *weighted, "--lora", loras / "style.safetensors:0.8"))


def test_the_environment_names_folders(paint, loras, tmp_path):
    below = os.environ | {"SF_LORA_DIR": f"{loras / 'sub'}:{loras}"}
    assert settings(paint("square <lora:style>", env=below))["lora"][0]["path"] == str(loras / "style.safetensors")
    gone = os.environ | {"SF_LORA_DIR": "/no/such/folder"}  # which only names are looked for in
    assert "lora" in settings(paint("square", "--lora", loras / "style.safetensors", env=gone))
    refused(paint("<lora:style>", env=gone, ok=False), "SF_LORA_DIR: there is no folder '/no/such/folder'")
    (tmp_path / "other").mkdir()  # --lora-dir stands in its place
    refused(paint("<lora:style>", "--lora-dir", tmp_path / "other", env=below, ok=False), "there is no LoRA 'style'")


def test_the_text_is_the_web_uis(paint, loras, tmp_path):
    ink, hashes = "<lora:the ink:0.5:-1>", "0123456789ab"
    path = paint(f"red {ink} square", "-n", "blue", "--lora", f"{loras / 'style.safetensors'}:0.8", "--lora-dir", loras)
    prompt, fields = web_ui_fields(path)
    assert prompt == f"red {ink} square <lora:style:0.8>\nNegative prompt: blue"  # so that others repeat it
    saved = settings(path)
    style = saved["lora"][0]["hash"]
    assert re.fullmatch("[0-9a-f]{12}", style)
    assert fields["Lora hashes"] == f"style: {style}, the ink: {hashes}"
    assert fields["Steps"] == "1" and fields["Model"] == "pipeline" and list(fields)[-1] == "Version"
    assert saved["prompt"] == f"red {ink} square"
    assert saved["lora"] == [
        {"name": "style", "weight": 0.8, "hash": style, "path": str(loras / "style.safetensors")},
        {"name": "the ink", "weight": -1, "text_encoders": 0.5, "hash": hashes}
        | {"path": str(loras / "sub/ink.safetensors"), "in_prompt": True},
    ]
    assert "lora" not in settings(paint("red square")) and "Lora hashes" not in web_ui_fields(path.parent / "a.png")[1]


def test_like_repeats_a_picture_with_its_loras(program, paint, loras, tmp_path):
    here, again = tmp_path / "mine", tmp_path / "again.png"
    shutil.copytree(loras, here)
    path = paint("a <lora:ink:0.5:-1> square", "--lora", here / "style.safetensors:0.7", "--lora-dir", here)

    def like(*arguments, **options):
        return program("txt2img", "--like", path, "-q", "--force", "-o", again, *arguments, **options)

    def is_the_same(done):
        assert done.returncode == 0, done.stderr
        return again.read_bytes() == path.read_bytes()

    assert is_the_same(like(env=os.environ | {"SF_LORA_DIR": "/no/such/folder"}))  # the path is enough
    assert is_the_same(like("--prompt", "a <lora:ink:0.5:-1> square"))
    bare = paint("a  square", name="bare.png")
    assert not is_the_same(like("--prompt", "a  square"))  # the tag's is gone, --lora's stays
    assert [row["name"] for row in settings(again)["lora"]] == ["style"]
    (here / "style.safetensors").rename(here / "sub/style.safetensors")
    refused(like(), "--like: the LoRA 'style' is not at")
    assert like("--lora-dir", here).returncode == 0  # by its name there
    assert pixels(again) == pixels(path) and settings(again)["lora"][0]["path"] == str(here / "sub/style.safetensors")
    # Another file of that name is no repetition, unless it is asked for.
    save_lora(here / "style.safetensors", 5)
    assert like("--lora-dir", here).returncode == 0 and pixels(again) == pixels(path)
    (here / "a").mkdir()
    (here / "a/style.pt").write_text("no tensors")
    assert like("--lora-dir", here).returncode == 0 and pixels(again) == pixels(path)
    (here / "sub/style.safetensors").unlink()
    refused(like(), "is not the LoRA 'style' that the picture was made with: its hash is")
    assert not is_the_same(like("--lora", here / "style.safetensors:0.7"))
    assert not is_the_same(like("--lora", "ink:0", "--lora-dir", here, "--prompt", "a  square"))
    assert pixels(again) == pixels(bare)


def test_pictures_of_strangers_cannot_name_what_is_no_lora(program, paint, loras, tmp_path):
    path = paint("a <lora:style> square", "--lora-dir", loras)
    text, picture = sf.io.image_info(str(path))["text"], sf.io.read_image(path)
    row = settings(path)["lora"][0]
    for wrong, why in (
        ([{"name": "style"}], "has a 'lora' of another kind"),
        ("style", "has a 'lora' of another kind"),
        ([row | {"weight": "1"}], "has a 'lora' of another kind"),
        ([row | {"path": "/dev/zero"}], "is not at '/dev/zero' any more"),
        ([row | {"hash": ""}], "is not the LoRA 'style'"),
    ):
        saved = json.dumps(json.loads(text["scaffolding"]) | {"lora": wrong})
        sf.io.write_image(tmp_path / "b.png", picture, text={"scaffolding": saved})
        refused(program("txt2img", "--like", tmp_path / "b.png", "-o", tmp_path / "c.png", "-q"), why)


def test_other_commands(program, paint, loras, model, tmp_path):
    below, style = ("--lora-dir", loras), "<lora:style:0.8>"
    sf.io.write_image(tmp_path / "in.png", sf.zeros(3, 64, 64, dtype=sf.uint8) + 90)
    sf.io.write_image(tmp_path / "mask.png", sf.zeros(1, 64, 64, dtype=sf.uint8) + 255)
    quick = ("--model", model, "--steps", 2, "--seed", 1, "-q")
    for command, more in (("img2img", ()), ("inpaint", ("--mask", tmp_path / "mask.png"))):
        pictures = []
        for name, arguments in (("bare", ("square",)), ("tag", (f"square{style}", *below))):
            out = tmp_path / f"{command}-{name}.png"
            done = program(command, *arguments, "--image", tmp_path / "in.png", *more, *quick, "-o", out)
            assert done.returncode == 0, done.stderr
            pictures.append(pixels(out))
        assert pictures[0] != pictures[1], command
        again = tmp_path / f"{command}-again.png"
        assert program(command, "--like", out, "-q", "-o", again).returncode == 0
        assert again.read_bytes() == out.read_bytes()
    walk = ("--frames", 2, *quick, "--json", "-o", tmp_path / "walk.webp", *below)
    done = program("interpolate", f"square{style}", f"{style}box", *walk)
    assert done.returncode == 0 and json.loads(done.stdout)["lora"][0]["weight"] == 0.8, done.stderr
    refused(program("interpolate", f"square{style}", "box", *walk), "both prompts must have the same <lora:...>")
    (tmp_path / "prompts.txt").write_text(f"square\nbox {style}\n")
    demo = program("demo", "--prompts", tmp_path / "prompts.txt", "--model", model, "-q", "-o", tmp_path / "demo")
    refused(demo, "--prompts: demo takes no LoRA")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["a <lora:stile:0.8>"], "prompt: <lora:stile:0.8>: no folder of LoRAs is known; name one with --lora-dir"),
        (["a <lora:stile:0.8>", "--lora-dir", "{}"], "there is no LoRA 'stile' below '{}'; did you mean 'style'?"),
        (["a <lora:nothing>", "--lora-dir", "{}"], "there are 'ink', 'style' and 'twice'; --lora-dir names other"),
        (["a <lora:twice>", "--lora-dir", "{}"], "'{}/a/twice.pt' and '{}/b/twice.safetensors' have the name 'twice'"),
        (["a <lora:style:strong>", "--lora-dir", "{}"], "a weight must be a number"),
        (["a <lora:style:1:1:8>", "--lora-dir", "{}"], "ranks cannot be cut here"),
        (["a <lora:style:1> <lora:stile>", "--lora-dir", "{}"], "there is no LoRA 'stile'"),
        (["a", "--lora", "stile:0.8"], "--lora: there is no file 'stile', and no folder of LoRAs is known"),
        (["a", "--lora", "{}/none.safetensors"], "--lora: there is no file '{}/none.safetensors'"),
        (["a", "--lora", "style:high", "--lora-dir", "{}"], "--lora: style:high: a weight must be a number"),
        (["a", "--lora", "{}/style.safetensors", "--lora", "{}/c/style.safetensors"], "have the same name"),
        (["a", "--lora-dir", "{}/none"], "--lora-dir: there is no folder '{}/none'"),
        (["a", "--lora", "{}/a/twice.pt"], "twice.pt"),
        (["a", "--lora", "{}/c/wide.safetensors"], "wide.safetensors"),
    ],
)
def test_what_cannot_be_is_one_clear_line(paint, loras, tmp_path, arguments, text):
    folder = tmp_path / "loras"
    shutil.copytree(loras, folder)
    for name in ("a/twice.pt", "b/twice.safetensors"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("no tensors")
    if any("/c/" in argument for argument in arguments):
        save_lora(folder / "c/style.safetensors", 3)
        to_q = LORA_STEMS["unet"]
        wide = {f"{to_q}.lora_down.weight": sf.ones(2, 320), f"{to_q}.lora_up.weight": sf.ones(320, 2)}
        sf.safetensors.save_file(wide, folder / "c/wide.safetensors")
    given = [argument.replace("{}", str(folder)) for argument in arguments]
    refused(paint(*given, ok=False), text.replace("{}", str(folder)))
    assert not (tmp_path / "a.png").exists()


def test_the_prompt_may_stand_behind_the_options(program, model, loras, tmp_path):
    given = ["--model", model, "--steps", 1, "-q", "-o", tmp_path / "a.png", "--lora-dir", loras]
    assert program("txt2img", *given, "--lora", "style:0.8", "red square").returncode == 0
    assert settings(tmp_path / "a.png")["prompt"] == "red square"
