"""`scaffolding train-lora`: a LoRA of a folder of pictures beside every text-to-image pipeline, dense and in few bits;
runs that go on to the same bytes; what is refused in one line.
"""

import json
import pathlib

import numpy as np
import pytest
from drawn_icons import refused
from golden_pipelines import CASES, one_thread, pipeline_of  # noqa: F401 (a fixture)

import scaffolding as sf

ENTRIES = sf._core._pipelines.entries()
OF_PROMPTS = [n for n, e in ENTRIES.items() if e["task"] == "text-to-image"]
CONTROLLED = [n for n in OF_PROMPTS if "controlnet" in ENTRIES[n]["components"].values()]
PIPELINES = [n for n in OF_PROMPTS if n not in CONTROLLED]
FILE, ROOT = "pytorch_lora_weights.safetensors", pathlib.Path(__file__).parents[2]


def squares(picture):
    """[3, 9, 9]: means of its middle square's parts, in 0 to 1."""
    picture = picture.numpy().astype(np.float32) / 255
    side = min(picture.shape[1:]) // 9 * 9
    top, left = ((n - side) // 2 for n in picture.shape[1:])
    cut = picture[:, top : top + side, left : left + side]
    return cut.reshape(3, 9, side // 9, 9, side // 9).mean(axis=(2, 4))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Three of a thing, with captions beside two and a metadata.jsonl for none."""
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(3):
        picture = sf.zeros(3, 72, 96 + 8 * i)
        picture[i, 10:60, 20:70] = 1.0
        sf.io.write_image(str(folder / f"{i}.png"), (picture * 255).to(sf.uint8))
        (folder / f"{i}.txt").write_text("zorp" if i else "a zorp")
    return folder


@pytest.fixture
def train(program, model, pictures, tmp_path):
    def run(*arguments, model=model, data=pictures, output="run", ok=True):
        done = program("train-lora", "-m", model, "--data", data, "-o", tmp_path / output, "-q", *arguments)
        assert not ok or done.returncode == 0, done.stderr
        return tmp_path / output if ok else done

    return run


def lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_the_shipped_model_learns_a_new_thing(train, program, pictures, tmp_path):
    shipped = ROOT / "models/emoji-128"
    arguments = ["--steps", 60, "--lr", 3e-3, "--batch", 3, "--rank", 8, "--caption", "zorp", "--sample", "zorp"]
    run = train(*arguments, "--sample-steps", 4, model=shipped)
    assert (run / "samples/step-60-0.png").is_file()
    keys = sf.safetensors.load_file(run / FILE)
    assert all(key.startswith("unet.") for key in keys) and {t.dtype for t in keys.values()} == {sf.float32}
    assert {key.split(".lora_")[0].rsplit(".", 1)[1] for key in keys} == {"to_q", "to_k", "to_v", "0"}
    assert "rank 8" in program("inspect", run).stdout
    thing = np.stack([squares(sf.io.read_image(str(pictures / f"{i}.png"))) for i in range(3)])
    made = []
    for lora in ([], ["--lora", run], ["--lora", run / FILE]):
        path = tmp_path / f"{len(made)}.png"
        done = program("txt2img", "zorp", "-m", shipped, "--steps", 8, "--seed", 1, "-q", "-o", path, *lora)
        assert done.returncode == 0, done.stderr
        made.append(squares(sf.io.read_image(str(path))))
    assert (made[1] == made[2]).all()
    before, after = (np.abs(thing - picture).mean(axis=(1, 2, 3)).min() for picture in made[:2])
    assert after < 0.5 * before, (before, after)


def test_a_run_goes_on_to_the_same_bytes(train):
    # --dropout and --flip draw too.
    arguments = ["--save-every", 2, "--dropout", 0.2, "--flip", "--caption-dropout", 0.3, "--noise-offset", 0.05]
    whole = train("--steps", 5, *arguments, output="whole")
    part = train("--steps", 2, *arguments, output="part")
    assert (part / FILE).read_bytes() != (whole / FILE).read_bytes()
    train("--steps", 5, *arguments, output="part")
    assert (part / FILE).read_bytes() == (whole / FILE).read_bytes()
    other = train("--steps", 5, *arguments, "--seed", 1, output="other")
    assert (other / FILE).read_bytes() != (whole / FILE).read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--quantize", "nf4", "--gradient-checkpointing"],
        ["--quantize", "q8_0", "--snr-gamma", 5],
        ["--dtype", "bfloat16", "--accumulate", 2],
        ["--mixed-precision", "bf16", "--target", "all-linear", "--schedule", "cosine", "--warmup", 1],
        ["--target", "conv1", "--target", "to_q", "--alpha", 2, "--resolution", 32],
    ],
    ids=lambda a: a[1],
)
def test_other_weights_and_layers(train, arguments):
    run = train("--steps", 3, "--caption", "a thing", *arguments)
    losses = [line["loss"] for line in lines(run)]
    assert losses and all(0 < loss < 10 for loss in losses)
    moved = [t.abs().max().item() for k, t in sf.safetensors.load_file(run / FILE).items() if "lora_B" in k]
    assert min(moved) > 0


@pytest.mark.parametrize("name", PIPELINES)
def test_of_every_pipeline_of_prompts(name, train, program, tmp_path):
    case = next(c for c in CASES.values() if c["pipeline"] == name)
    folder = tmp_path / "pipeline"
    pipe = pipeline_of(case, case["family"])
    pipe.save_pretrained(folder)
    size = pipe.vae_scale_factor * 8
    run = train("--steps", 3, "--lr", 1e-2, "--batch", 2, "--resolution", size, model=folder)
    assert all(0 < line["loss"] < 100 for line in lines(run))
    loaded = sf.diffusion.DiffusionPipeline.from_pretrained(folder)
    loaded.load_lora_weights(run / FILE)
    assert list(loaded.get_list_adapters()) in (["unet"], ["transformer"])


@pytest.mark.parametrize("name", CONTROLLED)
def test_networks_beside_a_controlnet_are_named(name, train, tmp_path):
    """The pipeline without it learns what it needs."""
    case = next(c for c in CASES.values() if c["pipeline"] == name)
    pipeline_of(case, case["family"]).save_pretrained(tmp_path / "pipeline")
    done = train("--steps", 1, "--resolution", 64, model=tmp_path / "pipeline", ok=False)
    refused(done, f"{name}: needs a picture for its ControlNet")


def test_a_broken_picture_is_left_out(train, pictures, tmp_path, program, model):
    folder = tmp_path / "some"
    folder.mkdir()
    for file in pictures.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "0.png").write_bytes(b"no picture")
    done = program("train-lora", "-m", model, "--data", folder, "-o", tmp_path / "run", "--steps", 1)
    assert done.returncode == 0 and "left out: 0.png" in done.stderr, done.stderr


def test_what_makes_no_sense_is_refused(train, pictures, tmp_path):
    empty, bare, foreign = (tmp_path / n for n in ("empty", "bare", "foreign"))
    for folder in (empty, bare, foreign):
        folder.mkdir()
    (bare / "a.png").write_bytes((pictures / "1.png").read_bytes())
    (foreign / "letter.txt").write_text("mine")
    refused(train(data=tmp_path / "nowhere", ok=False), "nowhere")
    refused(train(data=empty, ok=False), "empty")
    refused(train(data=bare, ok=False), "have no captions: picture.txt beside picture.png")
    refused(train(output="foreign", ok=False), "holds no run that could go on")
    refused(train("--rank", 0, ok=False), "r must be from 1 to 16384, got 0")
    refused(train("--target", "to_z", ok=False), "no module of UNet2DConditionModel is meant by target_modules 'to_z'")
    refused(train("--resolution", 33, ok=False), "the resolution must be a multiple of 8, got 33")
    refused(train("--steps", 0, ok=False), "max_steps")
    refused(train("--lr", -1, ok=False), "learning_rate must be above 0")
    refused(train("--schedule", "zigzag", ok=False), "zigzag")
    refused(train("--mixed-precision", "bf8", ok=False), "bf8")
    assert not (tmp_path / "run").exists() and [p.name for p in foreign.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("name", [n for n, e in ENTRIES.items() if e["task"] in ("class-to-image", "text-to-video")])
def test_pipelines_of_other_things_are_named(name, train, tmp_path):
    case = next(c for c in CASES.values() if c["pipeline"] == name)
    pipeline_of(case, case["family"]).save_pretrained(tmp_path / "pipeline")
    refused(train(model=tmp_path / "pipeline", ok=False), name)
