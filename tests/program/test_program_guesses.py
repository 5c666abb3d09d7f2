"""What users of other programs type, and what is mistyped: names of options and samplers, hints, and notes on prompts
and sizes.
"""

import json
import re

import pytest
from drawn_icons import refused

import scaffolding as sf


@pytest.fixture
def draw(program, model, tmp_path):
    """The rows of JSON of a call of txt2img or another command, and what stood on standard error."""

    def run(*arguments, command="txt2img"):
        done = program(command, *arguments, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr

    return run


@pytest.fixture
def understood(program, model):
    def run(*arguments):
        return program("--parse-only", *arguments)

    return run


def test_a_command_line_of_stable_diffusion_cpp(draw, model):
    words = "-p square -n circle -W 64 -H 72 --cfg-scale 3.5 --sampling-method euler_a --steps 2 --batch-count 2 -s 5"
    rows, said = draw("-m", model, *words.split(), "--type", "f32", "--lora-model-dir", model)
    assert [row["seed"] for row in rows] == [5, 6] and said == ""
    settings = rows[1]["settings"]
    assert settings["prompt"] == "square" and settings["negative_prompt"] == "circle"
    assert (settings["width"], settings["height"], settings["guidance"], settings["steps"]) == (64, 72, 3.5, 2)
    assert settings["sampler"] == "euler-a" and settings["batch_of"] == 1


@pytest.mark.parametrize("command", ["generate", "sample", "img_gen", "t2i"])
def test_commands_by_the_names_they_have_elsewhere(draw, model, command):
    rows, _ = draw("square", "-m", model, "--steps", 1, command=command)
    assert rows[0]["settings"]["command"] == "txt2img"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("i2i", "img2img"), ("vid-gen", "txt2vid"), ("t2v", "txt2vid"), ("i2v", "img2vid"), ("finetune", "train")]
    + [("webui", "serve"), ("info", "inspect"), ("list", "models"), ("img_gen", "txt2img")],
)
def test_help_of_commands_by_the_names_they_have_elsewhere(program, theirs, ours):
    assert program("help", theirs).stdout == program("help", ours).stdout != ""
    assert program(theirs, "--help").stdout == program(ours, "--help").stdout


def test_a_command_line_of_invokeai(draw, model):
    words = "-W64 -H64 -C2.5 -Ak_dpmpp_2m -S7 --iterations 2 --steps=2 --negative_prompt circle"
    rows, _ = draw("square", "--model", model, *words.split(), "--outdir", "pictures")
    assert [row["path"] for row in rows] == ["pictures/7.png", "pictures/8.png"]
    settings = rows[0]["settings"]
    assert (settings["guidance"], settings["sampler"], settings["negative_prompt"]) == (2.5, "dpm++2m", "circle")


def test_a_call_of_the_web_ui(draw, model):
    words = "--sampling_steps 2 --cfg_scale 4 --batch_size 2 --n_iter 2 --seed -1 --sampler_name"
    rows, _ = draw("square", "--ckpt", model, *words.split(), "DPM++ 2M Karras")
    assert len({row["seed"] for row in rows}) == 4
    assert [(row["settings"]["batch_of"], row["settings"]["place"]) for row in rows] == [(2, 0), (2, 1)] * 2
    assert rows[0]["settings"]["sampler"] == "dpm++2m-karras" and rows[0]["settings"]["guidance"] == 4
    again, _ = draw("square", "--ckpt", model, "--steps", 2, "--seed=-1")
    assert again[0]["seed"] not in {row["seed"] for row in rows}


def test_pictures_to_begin_with(draw, model, tmp_path):
    sf.io.write_image(tmp_path / "a.png", sf.full((3, 64, 64), 90, dtype=sf.uint8))
    words = ("square", "-m", model, "--steps", 4, "--init-img", "a.png", "--denoising-strength", 0.5)
    rows, _ = draw(*words, command="img2img")
    assert rows[0]["settings"]["image"] == "a.png" and rows[0]["settings"]["strength"] == 0.5
    rows, _ = draw(*words, "--mask_image", "a.png", command="inpaint")
    assert rows[0]["settings"]["mask"] == "a.png"


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["--num_inference_steps", "7"], ["--steps", "7"]),
        (["-steps", "7", "-cfg=2"], ["--steps", "7", "--guidance", "2"]),
        (["--guidance_scale=2"], ["--guidance", "2"]),
        (["-qW", "64"], ["-q", "--width", "64"]),
        (["--scheduler_option", "clip_sample=true"], ["--scheduler-option", "clip_sample=true"]),
        (["--batch-size", "3"], ["--batch", "3", "--count", "3"]),
        (["--batch-size", "3", "-c", "6"], ["--batch", "3", "--count", "6"]),
        (["--overwrite"], ["--force"]),
        (["--negative-prompt", "--steps"], ["--negative-prompt", "--steps"]),
    ],
)
def test_words_and_ours_give_one_picture(draw, model, words, ours):
    call = ("square", "-m", model, "--seed", 3, *(() if "7" in words else ("--steps", 1)))
    rows = [draw(*call, *given)[0] for given in (words, ours)]
    assert [row["settings"] for row in rows[0]] == [row["settings"] for row in rows[1]]
    assert len(rows[0]) == {"3": 3, "6": 6}.get(words[-1], 1)


def test_what_a_command_has_itself_counts_first(understood):
    """--frames of interpolate is no --num-frames, and bench's --dtype has its own names."""
    assert understood("interpolate", "a", "b", "--frames", 3).returncode == 0
    assert understood("txt2vid", "a", "--frames", 9).returncode == 0
    assert understood("bench", "--dtype", "f32").returncode == 0
    assert understood("eval", "model", "--count", 3, "--batch-size", 2).returncode == 0


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("DPM++ 2M", "dpm++2m"),
        ("DPM++ 2M Karras", "dpm++2m-karras"),
        ("dpmpp_2m_karras", "dpm++2m-karras"),
        ("k_dpmpp_2m_ka", "dpm++2m-karras"),
        ("dpmpp_2m_k", "dpm++2m-karras"),
        ("DPM++ 2M SDE", "dpm++2m-sde"),
        ("DPM++ 2M SDE Karras", "dpm++2m-sde-karras"),
        ("dpmpp_2m_sde_gpu", "dpm++2m-sde"),
        ("DPM++ 2M SDE Heun Exponential", "dpm++2m-sde-heun-exponential"),
        ("DPM++ 3M SDE", "dpm++3m-sde"),
        ("DPMSolverMultistepScheduler", "dpm++2m"),
        ("Euler a", "euler-a"),
        ("euler_a", "euler-a"),
        ("k_euler_ancestral", "euler-a"),
        ("EulerAncestralDiscreteScheduler", "euler-a"),
        ("k_euler", "euler"),
        ("euler_k", "euler-karras"),
        ("Euler Karras", "euler-karras"),
        ("k_heun", "heun"),
        ("ddim", "ddim"),
        ("DDIM", "ddim"),
        ("PLMS", "pndm"),
        ("UniPC", "unipc"),
        ("uni_pc_bh2", "unipc"),
        ("LCM", "lcm"),
        ("LMS Karras", "lms-karras"),
        ("k_dpm_2", "dpm2"),
        ("DPM2 a", "dpm2-a"),
        ("KDPM2AncestralDiscreteScheduler", "dpm2-a"),
        ("dpmpp_2s", "dpm++2s"),
        ("DEIS", "deis"),
        ("TCDScheduler", "tcd"),
    ],
)
def test_samplers_by_the_names_of_others(draw, model, theirs, ours):
    rows, _ = draw("square", "-m", model, "--steps", 2, "--width", 64, "--seed", 1, "--sampler", theirs)
    assert rows[0]["settings"]["sampler"] == ours


def test_every_sampler_that_is_listed_draws(program, draw, model):
    listed = re.search(r"Instead of the model's own: ([^\[]*?)\n  -", program("txt2img", "--help").stdout, re.DOTALL)
    names = [name.strip() for name in listed[1].replace("\n", " ").split(",")]
    assert {"heun-karras", "unipc-karras", "dpm++3m-sde-karras"} < set(names) and len(names) > 15
    for name in names:
        rows, _ = draw("square", "-m", model, "--steps", 3, "--seed", 1, "--sampler", name)
        assert rows[0]["settings"]["sampler"] == name


def test_a_schedule_beside_a_sampler(draw, model, tmp_path):
    call = ("square", "-m", model, "--steps", 3, "--seed", 1)
    pictures = []
    for words in (
        ("--sampling-method", "euler", "--scheduler", "karras"),
        ("--sampler", "euler-karras"),
        ("--scheduler", "Euler Karras"),
        ("--sampler", "euler"),
        ("--sampler", "euler", "--scheduler", "discrete"),
    ):
        rows, _ = draw(*call, *words)
        pictures.append(sf.io.read_image(tmp_path / rows[0]["path"]).tolist())
    assert pictures[0] == pictures[1] == pictures[2]
    assert pictures[3] == pictures[4] != pictures[0]
    # before the prompt, too, which is no value of it
    rows, _ = draw("-m", model, "--steps", 1, "--sampler", "euler", "--scheduler", "karras", "square")
    assert rows[0]["settings"]["prompt"] == "square"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--sampler", "Restart Karras"], "there is no 'Restart Karras' here; the nearest that is: heun-karras"),
        (["--sampler", "DPM++ SDE"], "there is no 'DPM++ SDE' here; the nearest that is: dpm++2m-sde"),
        (["--sampler", "res_2s"], "the nearest that is: heun"),
        (["--sampler", "Euler a Karras"], "there is no 'Euler a Karras' here; the nearest that is: euler-a"),
        (["--sampling-method", "dpm++2s_a"], "the nearest that is: euler-a"),
        (["--sampler", "unipcc"], "--sampler: there is no 'unipcc'; did you mean 'unipc'? there are ddim, ddpm"),
        (["--sampler", "best"], "--sampler: there is no 'best'; there are ddim, ddpm"),
        (["--sampler", "Karras"], "'Karras' is no sampler but how its steps are spread: --scheduler karras"),
        (["--scheduler", ""], "--scheduler: must not be empty"),
        (["--batch-size"], "--batch-size: must not be empty"),
        (["--batch-size", "x"], "--batch"),
        (["--outdir="], "--outdir: must not be empty"),
        (["--scheduler", "karas"], "--scheduler: there is no 'karas'; did you mean 'karras'?"),
        (["--scheduler", "kl_optimal"], "--scheduler: there is no 'kl_optimal'; steps are spread by karras,"),
        (["--scheduler", "ddim_trailing"], "--scheduler: there is no 'ddim_trailing' here; the nearest that is: ddim"),
    ],
)
def test_samplers_that_are_not_here(understood, arguments, text):
    refused(understood("txt2img", "square", *arguments), text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["txt2img", "a", "--stepz", 3], "txt2img: there is no option '--stepz'; did you mean '--steps'?"),
        (["txt2img", "a", "--negativ_prompt=x"], "no option '--negativ_prompt'; did you mean '--negative-prompt'?"),
        (["txt2img", "a", "--init-img", "b.png"], "'--init-img'; img2img, img2vid and inpaint have it"),
        (["txt2img", "a", "-i", "b.png"], "there is no option '-i'; img2img, img2vid and inpaint have it"),
        (["txt2img", "a", "--to-seed", 1], "there is no option '--to-seed'; interpolate has it"),
        (["img2img", "a", "--threads", 4], "'--threads'; SF_NUM_THREADS in the environment says how many"),
        (["txt2img", "a", "--medvram"], "'--medvram'; --profile auto fits a model into the memory"),
        (["txt2img", "- a cat"], "a prompt that begins with '-' stands behind --prompt="),
        (["txt2img", "--steps", "many", "a"], "--steps"),
        (["text2img", "a"], "there is no command 'text2img'; did you mean 'txt2img'?"),
        (["-p", "a"], "A subcommand is required, such as txt2img"),
        (["txt2img", "a", "--cfg-scale", 3, "-g", 2], "--guidance: is given more than once"),
        (["--parse-onl", "txt2img", "a"], "does not expect '--parse-onl'"),
        (["txt2img", "a", "two\nlines", "\x1b"], "does not expect 'two\\nlines', '\\x1b'"),
        (["txt2img", "a", "--two\nlines"], "there is no option '--two\\nlines'"),
        (["two\nlines"], "there is no command 'two\\nlines'"),
        (["txt2img", "a", "--sampler", "two\nlines"], "there is no 'two\\nlines'"),
        (["paint", "a"], "there is no command 'paint'; did you mean 'inpaint'?"),
        (["help", "img2imgs"], "help: there is no command 'img2imgs'; did you mean 'img2img'?"),
        (["ops", "sofmax"], "there is no op 'sofmax'; did you mean 'softmax'?"),
        (["bench", "sd15-unt"], "there is no model 'sd15-unt'; did you mean 'sd15-unet'?"),
        (["completion", "zhs"], "got 'zhs'; did you mean 'zsh'?"),
        (["txt2img", "a", "--profile", "balancd"], "or cpu_only, got 'balancd'; did you mean 'balanced'?"),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(program, arguments, text):
    refused(program(*arguments), text)


def test_values_and_models_that_there_are_not(program, model, tmp_path):
    def said(*arguments):
        return program("txt2img", "a", "-q", "--steps", 1, *arguments, cwd=tmp_path)

    refused(
        said("-m", model, "--dtype", "flaot16"), "--dtype: must be float32, bfloat16 or float16, got 'flaot16'; did"
    )
    refused(said("-m", model, "--prompt-syntax", "weigthed"), "got 'weigthed'; did you mean 'weighted'?")
    refused(
        said("-m", model, "--scheduler-option", "clip_sampel=1"), "field 'clip_sampel'; did you mean 'clip_sample'?"
    )
    (tmp_path / "stable-diffusion").mkdir()
    refused(
        said("-m", "./stable-difusion"), "--model: there is no './stable-difusion'; did you mean './stable-diffusion'?"
    )
    (tmp_path / "model.safetensors").write_bytes(b"")
    wrong = str(tmp_path / "modl.safetensors")
    refused(said("-m", wrong), f"there is no '{wrong}'; did you mean '{tmp_path}/model.safetensors'?")


def test_arguments_are_quoted_in_the_order_in_which_they_were_given(understood):
    refused(
        understood("txt2img", "a", "red", "cat", "two"), "txt2img: does not expect 'red', 'cat', 'two'; a prompt of"
    )
    done = understood("txt2img", "a", "--widht", 3, "--heigth", "4", "-y")
    refused(done, "no options '--widht' (did you mean '--width'?), '--heigth' (did you mean '--height'?), '-y';")
    assert done.stderr.index("--widht") < done.stderr.index("--heigth") < done.stderr.index("'-y'")


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ("a (red:1.3) square", "'(red:1.3)' in the prompt is taken as plain words; --prompt-syntax weighted makes"),
        ("((blue box: 0.8) and more)", "'(blue box: 0.8)'"),
        (
            "a <LoRA:style:0.8> square",
            "'<LoRA:style:0.8>' in the prompt is taken as plain words; a LoRA's tag is <lora:",
        ),
        ("a <lora:style", "'<lora:style' in the prompt is taken as plain words"),
        ("a <hypernet:style:1>", "hypernetworks are not here"),
    ],
)
def test_what_a_prompt_has_of_another_syntax_is_told(draw, model, prompt, found):
    _, said = draw(prompt, "-m", model, "--steps", 1)
    assert found in said.splitlines()[0] and said.startswith("scaffolding: ")


@pytest.mark.parametrize(
    "prompt",
    [
        "(a cat)",
        "((cat))",
        "a [cat]",
        r"\(cat:1.3\)",
        "at (10:30)",
        "(John 3:16)",
        "(a: b)",
        "(16:9)",
        "(:1.2)",
        ":)",
    ],
)
def test_innocent_brackets_are_left_alone(draw, model, prompt):
    assert draw(prompt, "-m", model, "--steps", 1)[1] == ""


def test_weights_that_count_are_not_told_of(draw, model):
    assert draw("(red:1.3) square", "-m", model, "--steps", 1, "--prompt-syntax", "weighted")[1] == ""
    _, said = draw("square", "-n", "(red:1.3) <lora:x:1>", "-m", model, "--steps", 1, "-q")
    assert "'(red:1.3)' in the negative prompt" in said and "'<lora:x:1>' in the negative prompt is taken" in said


def test_a_size_beyond_what_was_trained_is_told(draw, model, tmp_path):
    call = ("square", "-m", model, "--steps", 1)
    _, said = draw(*call, "--width", 256, "--height", 128)
    assert said == (
        "scaffolding: the model was trained for 64 x 64 pixels, and 256 x 128 is 8 times as many, in which things may "
        "come twice; ask for 88 x 40, then upscale\n"
    )
    assert "64 x 64" in draw(*call, "--width", 128, "--height", 128)[1]
    assert draw(*call, "--width", 128, "--height", 120)[1] == ""
    sf.io.write_image(tmp_path / "a.png", sf.full((3, 128, 128), 90, dtype=sf.uint8))
    walk = ("square", *call, "--frames", 2, "--output", "walk.webp", "--width", 256)
    assert "256 x 64" in draw(*walk, command="interpolate")[1]
    assert "128 x 128" in draw(*call[:3], "--steps", 2, "--image", "a.png", command="img2img")[1]
