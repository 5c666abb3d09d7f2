"""Many pictures in one run: files of prompts, grids; and the passes and paddings of a picture."""

import json

import pytest
from drawn_icons import refused

import scaffolding as sf


def metadata(path):
    text = sf.io.image_info(str(path))["text"]
    return text["parameters"], json.loads(text["scaffolding"])


def same(a, b):
    return (sf.io.read_image(str(a)) == sf.io.read_image(str(b))).all().item()


@pytest.fixture
def draw(program, model, tmp_path):
    def run(*options, command="txt2img", steps=2):
        return program(command, *options, "--model", model, "--steps", steps, "--quiet", "--force", cwd=tmp_path)

    return run


# ---- --prompts


def test_a_prompt_on_each_line(draw, tmp_path):
    (tmp_path / "p.txt").write_text("\ufeffred square\r\n\n  # left out\nblue square, flat\n   \ngreen square")
    done = draw("--prompts", "p.txt", "--seed", 5, "-o", "{number}-{seed}-{prompt}.png")
    assert done.returncode == 0, done.stderr
    names = ["0-5-red-square.png", "1-6-blue-square-flat.png", "2-7-green-square.png"]
    assert done.stdout.split() == names
    # each is the picture of a run of its own, to the bit
    assert draw("blue square, flat", "--seed", 6, "-o", "alone.png").returncode == 0
    assert (tmp_path / "alone.png").read_bytes() == (tmp_path / names[1]).read_bytes()


def test_lines_have_options(draw, tmp_path):
    lines = [
        {"prompt": "red square", "seed": 7, "steps": 3, "negative_prompt": "blue"},
        {"prompt": "blue square", "sampler": "euler-a", "guidance": 2.5, "count": 2},
        {"prompt": "green square", "width": 48, "height": 64, "scheduler-option": ["beta_start=0.002"]},
        {"prompt": "red square", "tiling": True, "prompt_syntax": "weighted"},
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = draw("--prompts", "p.jsonl", "--seed", 20, "-o", "{number}.png")
    assert done.returncode == 0, done.stderr
    made = [metadata(tmp_path / f"{n}.png")[1] for n in range(5)]
    assert [m["seed"] for m in made] == [7, 21, 22, 23, 24]  # a line's own, or the first and the pictures before it
    assert [m["steps"] for m in made] == [3, 2, 2, 2, 2]
    assert [m["sampler"] for m in made] == ["", "euler-a", "euler-a", "", ""]
    assert made[0]["negative_prompt"] == "blue" and made[1]["guidance"] == 2.5 and made[0]["guidance"] == 4
    assert (made[3]["width"], made[3]["height"]) == (48, 64) and made[3]["scheduler_options"] == ["beta_start=0.002"]
    assert made[4]["tiling"] == "xy" and "tiling" not in made[3]
    # what a line set is not there for the next one
    for n, steps, options in ((0, 3, ["-n", "blue"]), (4, 2, ["--tiling", "--prompt-syntax", "weighted"])):
        alone = draw("red square", "--seed", made[n]["seed"], *options, "-o", "alone.png", steps=steps)
        assert alone.returncode == 0, alone.stderr
        assert same(tmp_path / "alone.png", tmp_path / f"{n}.png"), n


def test_files_of_one_name_are_told_apart(draw, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "red square", "seed": 1}\n{"prompt": "blue square", "seed": 1}\n')
    assert draw("--prompts", "p.jsonl").stdout.split() == ["1-0.png", "1-1.png"]
    assert draw("--prompts", "p.jsonl", "-o", "a.png").stdout.split() == ["a-0.png", "a-1.png"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"prompt": "a", "steps": 0}', "p.jsonl:3: DDIMScheduler: num_inference_steps"),
        ('{"prompt": "a", "steps": "many"}', "p.jsonl:3: "),
        ('{"prompt": "a", "stepz": 3}', "p.jsonl:3: there is no option 'stepz' (closest: 'steps')"),
        ('{"prompt": "a", "model": "b"}', "p.jsonl:3: --model is of the whole run"),
        ('{"prompt": "a", "width": 20}', "p.jsonl:3: StableDiffusionPipeline: height and width must be divisible"),
        ('{"prompt": "a", "sampler": "best"}', "p.jsonl:3: --sampler: there is no 'best'"),
        ('{"prompt": "<lora:nowhere:1>"}', "p.jsonl:3: prompt: <lora:nowhere:1>"),
        ('{"prompt": "a", "output": "a.txt"}', "p.jsonl:3: --output: must end in"),
        ('{"prompt": "a", "seed": -1}', "p.jsonl:3: "),
        ('{"prompt": "a", "tiling": "z"}', "p.jsonl:3: seamless tiling: axes must be x, y or xy"),
        ('{"prompt": {"a": 1}}', "p.jsonl:3: 'prompt' must be text"),
        ('{"prompt": ["a", "b"]}', "p.jsonl:3: 'prompt' takes one text, got a list"),
        ('{"prompt": null}', "p.jsonl:3: 'prompt' must be text"),
        (
            '{"prompt": "a", "negative_prompt": "b", "negative-prompt": "c"}',
            "p.jsonl:3: --negative-prompt is there twice",
        ),
        ('{"seed": 3}', "p.jsonl:3: txt2img: needs a prompt"),
        ("red square", "p.jsonl:3: is no JSON"),
        ('["red square"]', "p.jsonl:3: must be a JSON object"),
        ('{"prompt": ' + "[" * 200 + "]" * 200 + "}", "p.jsonl:3: JSON nested deeper"),
        ('{"prompt": "' + "a" * (1 << 20) + '"}', "p.jsonl:3: has 10"),
    ],
)
def test_what_is_wrong_with_a_line_is_found_before_the_first_picture(draw, tmp_path, line, text):
    (tmp_path / "p.jsonl").write_text('{"prompt": "red square"}\n\n' + line + "\n")
    refused(draw("--prompts", "p.jsonl", "-o", "{number}.png"), text)
    assert [f.name for f in tmp_path.iterdir()] == ["p.jsonl"]


def test_hostile_files_of_prompts(draw, tmp_path):
    refused(draw("--prompts", "p.txt"), "--prompts: there is no file 'p.txt'")
    refused(draw("--prompts", "."), "--prompts: there is no file '.'")
    for content, text in (
        (b"", "--prompts: there is none in"),
        (b"# nothing\n\n", "--prompts: there is none in"),
        (b"red square\n\xff\xfe\n", "p.txt:2: is not UTF-8"),
        (b"red\0square\n", "p.txt:1: is not UTF-8"),
        (b"a\n" * 100_001, "has more than 100000 lines"),
    ):
        (tmp_path / "p.txt").write_bytes(content)
        refused(draw("--prompts", "p.txt"), text)
    with open(tmp_path / "p.txt", "wb") as large:
        large.truncate((64 << 20) + 1)
    refused(draw("--prompts", "p.txt"), "has more than 64 MiB")


def test_prompts_of_pictures_to_begin_with(draw, tmp_path):
    assert draw("red square", "--seed", 1, "-o", "a.png").returncode == 0
    lines = [{"prompt": "blue square", "strength": s} for s in (0.5, 1.0)]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = ("--image", "a.png", "--prompts", "p.jsonl", "-o", "b{number}.png")
    done = draw(*options, "--seed", 3, command="img2img", steps=4)
    assert done.returncode == 0, done.stderr
    alone = draw(
        "blue square", "--image", "a.png", "--seed", 4, "--strength", 1, "-o", "c.png", command="img2img", steps=4
    )
    assert alone.returncode == 0 and same(tmp_path / "c.png", tmp_path / "b1.png")
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b", "image": "none.png"}')
    refused(draw(*options, command="img2img", steps=4), "p.jsonl:2: --image: there is no file 'none.png'")


def test_json_has_a_line_for_each(program, model, tmp_path):
    (tmp_path / "p.txt").write_text("red square\nblue square\n")
    done = program("txt2img", "--prompts", "p.txt", "-m", model, "--steps", 2, "--json", cwd=tmp_path)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["settings"]["prompt"] for r in rows] == ["red square", "blue square"]
    assert rows[1]["seed"] == rows[0]["seed"] + 1 and done.stderr == ""


# ---- --grid


def test_a_grid_of_two_options(draw, tmp_path):
    grid = ("--grid", "steps=1, 2,3", "--grid", "guidance=1.5,4")
    done = draw("red square", *grid, "--seed", 5, "-o", "s.png")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*(f"s-{n}.png" for n in range(6)), "s-grid.png"]
    cells = [metadata(tmp_path / f"s-{n}.png")[1] for n in range(6)]
    assert [(c["steps"], c["guidance"], c["seed"]) for c in cells] == [
        (steps, guidance, 5) for guidance in (1.5, 4.0) for steps in (1, 2, 3)
    ]
    sheet = sf.io.read_image(str(tmp_path / "s-grid.png"))
    assert sheet.shape[2] == 8 + 3 * (64 + 8)
    for n, cell in enumerate(sf.io.read_image(str(tmp_path / f"s-{n}.png")) for n in range(6)):
        top, left = 8 + n // 3 * (sheet.shape[1] - 8) // 2, 8 + n % 3 * 72
        assert (sheet[:, top : top + 64, left : left + 64] == cell).all().item(), n
        assert (sheet[:, top + 68 : top + 78, left : left + 64] < 128).any().item(), "a label"
    text, settings = metadata(tmp_path / "s-grid.png")
    assert 'Script: X/Y/Z plot, X Type: steps, X Values: "1,2,3", Y Type: guidance, Y Values: "1.5,4"' in text
    assert settings["grid"] == [grid[1], grid[3]] and (settings["width"], settings["height"]) == (64, 64)
    # a cell is the picture of a run of its own, and the sheet is repeated
    alone = draw("red square", "--guidance", 4, "--seed", 5, "-o", "alone.png")
    assert alone.returncode == 0 and same(tmp_path / "alone.png", tmp_path / "s-4.png")
    again = draw("--like", "s-grid.png", "--grid-only", "-o", "again.png")
    assert again.stdout.split() == ["again.png"], again.stderr
    assert same(tmp_path / "again.png", tmp_path / "s-grid.png") and not (tmp_path / "again-0.png").exists()


def test_a_grid_of_one_option_with_samplers_and_sizes(draw, tmp_path):
    done = draw("red square", "--grid", "sampler=euler-a,ddim", "--seed", 2, "-o", "c/{number}.png")
    assert done.stdout.split() == ["c/0.png", "c/1.png", "c/grid.png"], done.stderr
    alone = draw("red square", "--sampler", "ddim", "--seed", 2, "-o", "alone.png")
    assert alone.returncode == 0 and same(tmp_path / "alone.png", tmp_path / "c/1.png")
    done = draw("red square", "--grid", "width=32,64", "--grid-only", "-o", "w.png")
    assert done.returncode == 0, done.stderr
    sheet = sf.io.read_image(str(tmp_path / "w.png"))
    assert sheet.shape[2] == 8 + 2 * 72 and (sheet[:, 8:72, 8 + 32 : 72] == 255).all().item()


def test_prompts_of_a_grid(draw, tmp_path):
    def prompts(*options):
        done = draw(*options, "--seed", 1, "-o", "p.png", steps=1)
        assert done.returncode == 0, done.stderr
        return [metadata(tmp_path / f"p-{n}.png")[1]["prompt"] for n in range(2)]

    assert prompts("--grid", "prompt=red square|blue, flat square") == ["red square", "blue, flat square"]
    assert prompts("a red square", "--grid", "prompt=red|blue") == ["a red square", "a blue square"]
    assert prompts("a red square", "--grid", "prompt=red,blue") == ["a red square", "a blue square"]
    refused(draw("a square", "--grid", "prompt=red|blue"), "--grid: --prompt 'a square' has no 'red'")


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        (["steps"], "--grid: must be option=value,value"),
        (["stepz=1,2"], "--grid: there is no option 'stepz' (closest: 'steps')"),
        (["model=a,b"], "--grid: --model is of the whole run"),
        (["count=1,2"], "--grid: --count is of the whole sheet"),
        (["steps=1,1"], "--grid: --steps has the value '1' twice"),
        (["steps=1", "steps=2"], "--grid: both axes are of --steps"),
        (["steps=1", "eta=0", "guidance=2"], "--grid: takes one axis or two, got 3"),
        (["steps=1,2000"], "--grid, steps=2000: DDIMScheduler: num_inference_steps"),
        (["sampler=ddim,best"], "--grid, sampler=best: --sampler: there is no 'best'"),
        (["seed=" + ",".join(map(str, range(257)))], "--grid: 257 times 1 pictures are more than the 256"),
        (["seed=" + ",".join(map(str, range(20))), "steps=" + ",".join(map(str, range(1, 14)))], "20 times 13"),
        (["width=8192,8184", "height=8192,8184"], "--grid: a sheet of 16408x16496 is more than the 200 megapixels"),
    ],
)
def test_every_value_of_a_grid_is_checked_first(draw, tmp_path, grid, text):
    refused(draw("red square", *(part for axis in grid for part in ("--grid", axis))), text)
    assert list(tmp_path.iterdir()) == []


def test_what_a_grid_does_not_go_with(draw, tmp_path):
    (tmp_path / "p.txt").write_text("red square\n")
    refused(draw("--prompts", "p.txt", "--grid", "steps=1,2"), "--grid: is a sheet of one prompt")
    refused(draw("red square", "--grid", "steps=1,2", "--count", 2), "--grid: has one picture in a cell")
    refused(draw("red square", "--grid-only"), "--grid-only: needs --grid")


# ---- --hires and --tiling


@pytest.mark.parametrize("upscaler", ["latent", "bicubic", "lanczos"])
def test_hires_is_two_passes(draw, model, tmp_path, upscaler):
    from scaffolding.diffusion import StableDiffusionPipeline, hires

    options = ("--hires", 1.5, "--hires-strength", 0.5, "--hires-steps", 6, "--hires-upscaler", upscaler)
    done = draw("red square", *options, "--seed", 4, "-o", "a.png", steps=3)
    assert done.returncode == 0, done.stderr
    text, settings = metadata(tmp_path / "a.png")
    assert sf.io.read_image(str(tmp_path / "a.png")).shape == (3, 96, 96) and "Size: 64x64" in text
    wanted = f"Denoising strength: 0.5, Hires upscale: 1.5, Hires steps: 6, Hires upscaler: {upscaler.capitalize()}"
    assert wanted in text and (settings["width"], settings["hires"]) == (64, 1.5)
    pipe = StableDiffusionPipeline.from_pretrained(str(model), torch_dtype=sf.float32)
    call = {"num_inference_steps": 3, "guidance_scale": 4, "seed": 4, "output_type": "sf_tensor"}
    frames = hires(pipe, "red square", scale=1.5, strength=0.5, steps=6, upscaler=upscaler, **call).images
    assert (frames[0].permute(2, 0, 1) == sf.io.read_image(str(tmp_path / "a.png"))).all().item()
    assert draw("--like", "a.png", "-o", "b.png", steps=3).returncode == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_hires_by_a_network_in_a_file(draw, tmp_path):
    sf.manual_seed(3)
    network = sf.models.RRDBNet(num_feat=16, num_block=1, num_grow_ch=16).eval()
    sf.save({"params_ema": dict(network.state_dict())}, tmp_path / "ink_x4.pth")
    options = ("--hires", 1.5, "--seed", 4, "--hires-upscaler")
    done = draw("red square", *options, "ink_x4.pth", "-o", "a.png")
    assert done.returncode == 0, done.stderr
    assert sf.io.read_image(str(tmp_path / "a.png")).shape == (3, 96, 96)
    assert "Hires upscaler: Ink_x4" in metadata(tmp_path / "a.png")[0]
    assert draw("red square", *options, "lanczos", "-o", "b.png").returncode == 0
    assert not same(tmp_path / "a.png", tmp_path / "b.png")
    assert draw("--like", "a.png", "-o", "c.png").returncode == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "c.png").read_bytes()
    (tmp_path / "wrong.pth").write_bytes(b"no file of weights")
    refused(draw("red square", *options, "wrong.pth", "-o", "d.png"), "wrong.pth")


def test_hires_of_a_batch_and_of_a_list(draw, tmp_path):
    options = ("--hires", 1.5, "--hires-upscaler", "lanczos", "--sampler", "euler-a")
    assert draw("red square", *options, "--seed", 4, "-c", 2, "-b", 2, "-o", "{number}.png").returncode == 0
    assert draw("--like", "1.png", "-o", "again.png").returncode == 0
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "1.png").read_bytes()
    lines = [{"prompt": "red square"}, {"prompt": "red square", "hires": 2, "hires_strength": 0.5, "seed": 4}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert draw("--prompts", "p.jsonl", "-o", "l{number}.png").returncode == 0
    assert sf.io.read_image(str(tmp_path / "l0.png")).shape == (3, 64, 64)
    assert draw("red square", "--hires", 2, "--hires-strength", 0.5, "--seed", 4, "-o", "alone.png").returncode == 0
    assert same(tmp_path / "alone.png", tmp_path / "l1.png")
    (tmp_path / "p.jsonl").write_text('{"prompt": "red square"}\n{"prompt": "red square", "hires": 2, "steps": 1}')
    refused(draw("--prompts", "p.jsonl"), "p.jsonl:2: hires: of 1 steps a strength of 0.7 leaves none")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--hires", "1"], "hires: scale must be above 1 and at most 8, got 1"),
        (["--hires", "nan"], "hires: scale must be above 1"),
        (["--hires", "2", "--hires-strength", "0"], "hires: strength must be above 0"),
        (["--hires", "2", "--hires-strength", "0.2"], "hires: of 2 steps a strength of 0.2 leaves none"),
        (["--hires", "2", "--hires-upscaler", "esrgan"], "or it is latent, bicubic or lanczos"),
        (["--hires", "2", "--save-steps", "a.gif"], "--save-steps: the passes of --hires have two sizes"),
        (["--tiling=z"], "seamless tiling: axes must be x, y or xy, got 'z'"),
        (["--freeu", "0.9,0.2,1.5"], "FreeU: must be four numbers S1,S2,B1,B2, such as 0.9,0.2,1.5,1.6, got"),
        (["--freeu", "0.9,0.2,1.5,1.6,1"], "FreeU: must be four numbers S1,S2,B1,B2"),
        (["--freeu", "0.9,nan,1.5,1.6"], "FreeU: s1, s2, b1 and b2 must be finite numbers, got nan"),
    ],
)
def test_passes_and_paddings_that_there_are_not(draw, tmp_path, options, text):
    refused(draw("red square", *options, "-o", "a.png"), text)
    assert list(tmp_path.iterdir()) == []


def test_freeu_is_that_of_the_pipeline(draw, model, tmp_path):
    from scaffolding.diffusion import StableDiffusionPipeline

    factors = (0.9, 0.2, 1.5, 1.6)
    lines = [{"prompt": "red square", "seed": 4}, {"prompt": "red square", "seed": 4, "freeu": "0.9,0.2,1.5,1.6"}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, [lines[1], lines[0]])))
    done = draw("--prompts", "p.jsonl", "-o", "l{number}.png")
    assert done.returncode == 0, done.stderr
    pipe = StableDiffusionPipeline.from_pretrained(str(model), torch_dtype=sf.float32)
    call = {"num_inference_steps": 2, "guidance_scale": 4, "seed": 4, "output_type": "sf_tensor"}
    for number, used in ((1, None), (0, factors)):
        if used:
            pipe.enable_freeu(*used)
        frame = pipe("red square", height=64, width=64, **call).images[0].permute(2, 0, 1)
        assert (frame == sf.io.read_image(str(tmp_path / f"l{number}.png"))).all().item(), number
    assert not same(tmp_path / "l0.png", tmp_path / "l1.png")
    assert draw("--like", "l0.png", "-o", "again.png").returncode == 0
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "l0.png").read_bytes()
    assert metadata(tmp_path / "l0.png")[1]["freeu"] == "0.9,0.2,1.5,1.6"
    assert "freeu" not in metadata(tmp_path / "l1.png")[1]


def test_tiling_is_the_recipe_of_circular_convolutions(draw, model, tmp_path):
    from scaffolding.diffusion import StableDiffusionPipeline

    for flag, axes in (("--tiling", "xy"), ("--tiling=x", "x"), ("--tiling=y", "y")):
        done = draw("red square", flag, "--seed", 4, "-o", f"{axes}.png")
        assert done.returncode == 0, done.stderr
        text, settings = metadata(tmp_path / f"{axes}.png")
        assert settings["tiling"] == axes and ("Tiling: True" in text) == (axes == "xy")
        pipe = StableDiffusionPipeline.from_pretrained(str(model), torch_dtype=sf.float32)
        pipe.enable_seamless_tiling(axes)
        call = {"num_inference_steps": 2, "guidance_scale": 4, "seed": 4, "output_type": "sf_tensor"}
        frame = pipe("red square", **call).images[0].permute(2, 0, 1)
        assert (frame == sf.io.read_image(str(tmp_path / f"{axes}.png"))).all().item()
    assert not same(tmp_path / "x.png", tmp_path / "y.png")
    assert draw("--like", "x.png", "-o", "again.png").returncode == 0
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "x.png").read_bytes()
