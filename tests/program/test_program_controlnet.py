"""ControlNets in the program and the server: pictures after pictures, repeated by --like, refused in one clear line."""

import base64
import json

import numpy as np
import pytest
from drawn_icons import refused
from served import serving, skip_without_server

import scaffolding as sf
from scaffolding.data import canny
from scaffolding.diffusion import StableDiffusionControlNetPipeline, StableDiffusionPipeline
from scaffolding.models import ControlNetModel

PROMPT = "red square"


@pytest.fixture(scope="module")
def nets(model, tmp_path_factory):
    """A folder with two ControlNets that say something, one of them in one file, and one of another family."""
    folder = tmp_path_factory.mktemp("ControlNet")
    pipe = StableDiffusionPipeline.from_pretrained(str(model))
    halvings = pipe.vae_scale_factor.bit_length() - 1  # of pictures on the way to latents
    net = ControlNetModel.from_unet(pipe.unet, conditioning_embedding_out_channels=[8] * (halvings + 1))
    generator = np.random.default_rng(0)
    state = net.state_dict()
    for key, t in state.items():
        if key.startswith("controlnet_"):
            values = generator.normal(size=tuple(t.shape)) / np.sqrt(max(t.numel() / t.shape[0], 4))
            state[key] = sf.tensor(values.astype(np.float32))
    net.load_state_dict(state)
    net.save_pretrained(folder / "edges")
    net.save_pretrained(folder / "more")
    ControlNetModel(**{**net.config, "cross_attention_dim": 24}).save_pretrained(folder / "other")
    return folder


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    """A bright disc on a dark ground, as a file."""
    folder = tmp_path_factory.mktemp("photos")
    y, x = np.mgrid[0:64, 0:64]
    disc = (np.hypot(y - 32, x - 30) < 18) * np.uint8(200)
    sf.io.write_image(str(folder / "disc.png"), sf.tensor(np.stack([disc] * 3)))
    return folder / "disc.png"


@pytest.fixture
def paint(program, model, tmp_path):
    def run(*arguments, command="txt2img", name="a.png", ok=True):
        given = ["--model", model, "--steps", 2, "--seed", 1, "-q", "--force", "-o", tmp_path / name]
        done = program(command, PROMPT, *given, *arguments)
        assert not ok or done.returncode == 0, done.stderr
        return tmp_path / name if ok else done

    return run


def pixels(path):
    return sf.io.read_image(str(path))


def test_the_picture_is_the_pipelines(paint, nets, photo, model):
    seen = ("--controlnet", nets / "edges", "--control-image", photo, "--control-mode", "canny")
    one = pixels(paint(*seen, "--control-scale", 0.7, "--control-end", 0.6, "--guidance", 3))
    pipe = StableDiffusionPipeline.from_pretrained(str(model), torch_dtype=sf.float32)
    net = ControlNetModel.from_pretrained(nets / "edges")
    pipe = StableDiffusionControlNetPipeline.from_pipe(pipe, controlnet=net)
    want = pipe(
        PROMPT, image=canny(pixels(photo)), controlnet_conditioning_scale=0.7, control_guidance_end=0.6,
        num_inference_steps=2, guidance_scale=3, seed=1, output_type="sf_tensor",
    ).images[0].permute(2, 0, 1)  # fmt: skip
    assert one.shape == want.shape and (one.to(sf.int32) - want.to(sf.int32)).abs().max().item() <= 1
    bare = pixels(paint("--width", 64, "--height", 64, "--guidance", 3))
    assert (bare.to(sf.int32) - want.to(sf.int32)).abs().max().item() > 5


def test_like_repeats_it(paint, program, nets, photo, tmp_path):
    two = ("--controlnet", nets / "edges", "--control-image", photo, "--controlnet", nets / "more", "--control-image",
           photo, "--control-mode", "canny", "--control-mode", "none", "--control-scale", "0.5,0.25")  # fmt: skip
    first = paint(*two)
    said = json.loads(sf.io.image_info(str(first))["text"]["scaffolding"])
    assert said["controlnet"] == [str(nets / "edges"), str(nets / "more")] and said["control_mode"] == ["canny", "none"]
    assert said["options"] == {"controlnet_conditioning_scale": "0.5,0.25"}
    again = program("txt2img", "--like", first, "-o", tmp_path / "b.png")
    assert again.returncode == 0, again.stderr
    assert (pixels(first) == pixels(tmp_path / "b.png")).all().item()
    assert not (pixels(first) == pixels(paint(*two[:4], name="c.png"))).all().item()
    assert "controlnet" not in json.loads(sf.io.image_info(str(paint(name="d.png")))["text"]["scaffolding"])


@pytest.mark.parametrize("command", ["img2img", "inpaint"])
def test_beside_a_picture_to_begin_with(paint, nets, photo, tmp_path, command):
    mask = sf.zeros(1, 64, 64, dtype=sf.uint8)
    mask[:, 16:48, 16:48] = 255
    sf.io.write_image(str(tmp_path / "mask.png"), mask)
    given = ["--image", photo, "--strength", 0.9, *(["--mask", tmp_path / "mask.png"] if command == "inpaint" else [])]
    seen = ("--controlnet", nets / "edges", "--control-image", photo, "--control-scale", 1)
    with_it, without = (pixels(paint(*given, *more, command=command)) for more in (seen, ()))
    assert with_it.shape == without.shape == (3, 64, 64) and not (with_it == without).all().item()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--control-image", "PHOTO"], "--control-image: needs --controlnet"),
        (["--controlnet", "NETS/edges"], "--control-image: each of the 1 --controlnet needs one, got 0"),
        (["--controlnet", "NETS/edges", "--control-image", "nothing.png"], "there is no file 'nothing.png'"),
        (["--controlnet", "NETS/nothing", "--control-image", "PHOTO"], "--controlnet: there is no"),
        (["--controlnet", "NETS/edges", "--control-image", "PHOTO", "--control-mode", "cany"], "did you mean 'canny'"),
        (["--controlnet", "NETS/other", "--control-image", "PHOTO"], "is of another family than the unet"),
        (["--controlnet", "NETS/edges", "--control-image", "PHOTO", "--hires", 2], "--hires: its second pass has no"),
        (["--control-scale", 0.5], "a StableDiffusionPipeline does not take it"),
    ],
)
def test_what_is_refused(paint, nets, photo, arguments, message):
    given = [str(a).replace("NETS", str(nets)).replace("PHOTO", str(photo)) for a in arguments]
    refused(paint(*given, ok=False), message)


# ---- the server


@pytest.fixture(scope="module")
def server(program, build_dir, nets, model, tmp_path_factory):
    skip_without_server(program, build_dir)
    data = tmp_path_factory.mktemp("served") / "data"
    with serving(build_dir, data, "--controlnet-dir", nets, "--models", model.parent) as running:
        yield running


def encoded(path):
    return base64.b64encode(path.read_bytes()).decode()


def test_a_job_is_what_the_program_makes(server, paint, nets, photo, model, tmp_path):
    net = {"model": "edges", "image": encoded(photo), "mode": "canny", "weight": 0.7}
    body = {"model": model.name, "prompt": PROMPT, "seed": 1, "num_inference_steps": 2, "guidance_scale": 3}
    status, job, _ = server.post("/api/v1/jobs", {**body, "controlnet": [net]})
    assert status == 202, job
    assert job["request"]["controlnet"] == [{"model": "edges", "mode": "canny"}]
    done = server.wait(job["id"])
    assert done["state"] == "done", done
    (tmp_path / "s.png").write_bytes(server.get(done["pictures"][0]["url"])[1])
    seen = ("--controlnet", nets / "edges", "--control-image", photo, "--control-mode", "canny")
    want = pixels(paint(*seen, "--control-scale", 0.7, "--guidance", 3))
    assert (pixels(tmp_path / "s.png").to(sf.int32) - want.to(sf.int32)).abs().max().item() <= 1
    said = json.loads(sf.io.image_info(str(tmp_path / "s.png"))["text"]["scaffolding"])
    assert said["controlnet"] == ["edges"] and said["control_mode"] == ["canny"]


def test_a_retry_finds_its_job(server, photo, model):
    net = {"model": "edges", "image": encoded(photo)}
    body = {"model": model.name, "prompt": PROMPT, "seed": 1, "num_inference_steps": 1, "controlnet": [net]}
    ids = [server.post("/api/v1/jobs", body, headers={"Idempotency-Key": "once"})[1]["id"] for _ in range(2)]
    assert ids[0] == ids[1] and server.wait(ids[0])["state"] == "done"
    status, answer, _ = server.post(
        "/api/v1/jobs", {**body, "controlnet": [{**net, "mode": "canny"}]}, headers={"Idempotency-Key": "once"}
    )
    assert status == 409 and "was used for another request" in json.dumps(answer)


def test_the_extension_of_automatic1111(server, photo, model, tmp_path):
    assert set(server.get("/controlnet/model_list")[1]["model_list"]) == {"edges", "more", "other"}
    assert server.get("/controlnet/module_list")[1]["module_list"] == ["none", "canny"]
    assert server.get("/controlnet/version")[1] == {"version": 2}
    unit = {"enabled": True, "input_image": encoded(photo), "module": "canny", "model": "edges [0123abcd]", "weight": 1,
            "guidance_start": 0, "guidance_end": 1, "control_mode": "Balanced"}  # fmt: skip
    body = {"prompt": PROMPT, "seed": 1, "steps": 2, "override_settings": {"sd_model_checkpoint": model.name}}

    def made(**more):
        args = {**unit, **more}
        status, answer, _ = server.post(
            "/sdapi/v1/txt2img", {**body, "alwayson_scripts": {"ControlNet": {"args": [args]}}}
        )
        assert status == 200, answer
        (tmp_path / "a.png").write_bytes(base64.b64decode(answer["images"][0]))
        return pixels(tmp_path / "a.png")

    one = made()
    assert one.shape == (3, 64, 64) and (one == made()).all().item()
    assert not (one == made(weight=0.2)).all().item() and not (one == made(control_mode=2)).all().item()
    assert made(enabled=False, weight=9).shape[0] == 3


@pytest.mark.parametrize(
    ("net", "words"),
    [
        ({"model": "nothing"}, "controlnet: there is no 'nothing' here"),
        ({"mode": "depth"}, "mode must be none or canny, got 'depth'"),
        ({"image": "no base64!"}, "must be base64 of a picture"),
        ({"weight": "much"}, "weight must be a number"),
        ({"guidance_end": 2}, "guidance_end must be from 0 to 1"),
        ({"model": ""}, "has none inside"),
        ({"model": "other"}, "is of another family than the unet"),
    ],
)
def test_what_the_server_refuses(server, photo, model, net, words):
    body = {"model": model.name, "prompt": PROMPT, "seed": 1, "num_inference_steps": 1}
    one = {"model": "edges", "image": encoded(photo), **net}
    status, answer, _ = server.post("/api/v1/jobs", {**body, "controlnet": [one]})
    if status == 202:  # what its networks say is known once they are there
        answer = server.wait(answer["id"])
        assert answer["state"] == "failed"
    assert words in json.dumps(answer), answer
