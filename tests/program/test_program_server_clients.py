"""`scaffolding serve` as the clients of OpenAI's and AUTOMATIC1111's APIs call it: requests written down from their
sources, and the packages `openai` and `webuiapi` where they are installed.
"""

import base64
import hashlib
import json
import re
import shutil
import threading
import time

import pytest
from served import serving, skip_without_server

import scaffolding as sf

PROMPT = "red apple, noto"


@pytest.fixture(scope="module")
def has_server(program, build_dir):
    skip_without_server(program, build_dir)


@pytest.fixture(scope="module")
def server(has_server, build_dir, tmp_path_factory):
    with serving(build_dir, tmp_path_factory.mktemp("clients") / "data") as running:
        yield running


def picture(text, folder):
    (folder / "picture.png").write_bytes(base64.b64decode(text))
    return sf.io.read_image(str(folder / "picture.png"))


def png(folder, value=128, channels=3, size=64):
    path = folder / f"{channels}.png"
    made = sf.full((channels, size, size), value, dtype=sf.uint8)
    if channels == 4:
        made[3, :, : size // 2] = 255
        made[3, :, size // 2 :] = 0
    sf.io.write_image(str(path), made)
    return path.read_bytes()


# ---- OpenAI


def test_generations_in_every_format(server, tmp_path):
    body = {
        "prompt": PROMPT,
        "num_inference_steps": 2,
        "seed": 7,
        "size": "64x64",
        "n": 2,
        "user": "x",
        "model": "emoji-128",
    }
    answer = server.post("/v1/images/generations?api-version=2024-02-01", body)[1]
    assert len(answer["data"]) == 2 and answer["created"] > 1e9 and answer["size"] == "64x64"
    first = picture(answer["data"][0]["b64_json"], tmp_path)
    assert first.shape == (3, 64, 64)
    for kind, magic in (("jpeg", b"\xff\xd8"), ("webp", b"RIFF")):
        answer = server.post("/v1/images/generations", {**body, "n": 1, "output_format": kind})[1]
        assert base64.b64decode(answer["data"][0]["b64_json"]).startswith(magic)
    answer = server.post("/v1/images/generations", {**body, "n": 1, "response_format": "url"})[1]
    url = answer["data"][0]["url"]
    assert url.startswith(server.url)
    path = url.removeprefix(server.url)
    status, data, _ = server.get(path)
    assert status == 200
    assert (picture(base64.b64encode(data), tmp_path) == first).all().item()
    assert server.get(path[:-1] + ("0" if path[-1] != "0" else "1"))[0] == 403
    assert server.get(path.replace("expires=", "expires=9"))[0] == 403


def test_streams_have_partial_pictures(server, tmp_path):
    body = {"prompt": PROMPT, "num_inference_steps": 8, "seed": 7, "stream": True, "partial_images": 2}
    status, text, headers = server.post("/v1/images/generations", body)
    assert status == 200 and headers["Content-Type"] == "text/event-stream"
    events = [json.loads(e.split("data: ", 1)[1]) for e in text.decode().strip().split("\n\n")]
    assert [e["type"].rpartition(".")[2] for e in events] == ["partial_image", "partial_image", "completed"]
    assert [e["partial_image_index"] for e in events[:2]] == [0, 1]
    assert picture(events[0]["b64_json"], tmp_path).shape[0] == 3
    assert picture(events[2]["b64_json"], tmp_path).shape == (3, 128, 128) and "usage" in events[2]


def form(fields, files):
    out = b""
    for name, value in fields.items():
        out += f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
    for name, data in files:
        head = (
            f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="x.png"\r\nContent-Type: image/png\r\n\r\n'
        )
        out += head.encode() + data + b"\r\n"
    return out + b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}


def test_edits_keep_what_the_mask_covers(server, tmp_path):
    fields = {"prompt": PROMPT, "num_inference_steps": "2", "seed": "7"}
    image, mask = png(tmp_path), png(tmp_path, channels=4)
    for name in ("image", "image[]"):
        body, headers = form(fields, [(name, image)])
        status, answer, _ = server.post("/v1/images/edits", body, headers=headers)
        assert status == 200, answer
    body, headers = form(fields, [("image", image), ("mask", mask)])
    made = picture(server.post("/v1/images/edits", body, headers=headers)[1]["data"][0]["b64_json"], tmp_path)
    grey = (made.to(sf.float32) - 128).abs().mean(dim=0)
    assert grey[:, :24].mean().item() < 0.5 * grey[:, 40:].mean().item()  # opaque stays, transparent is made anew
    data_url = "data:image/png;base64," + base64.b64encode(image).decode()
    answer = server.post(
        "/v1/images/edits", {"prompt": PROMPT, "num_inference_steps": 2, "images": [{"image_url": data_url}]}
    )
    assert answer[0] == 200, answer
    body, headers = form(fields, [("image[]", image), ("image[]", image)])
    assert server.post("/v1/images/edits", body, headers=headers)[0] == 400


def test_variations_have_no_prompt(server, tmp_path):
    fields = {"n": "2", "size": "64x64", "num_inference_steps": "2", "seed": "7", "response_format": "b64_json"}
    body, headers = form(fields, [("image", png(tmp_path))])
    status, answer, _ = server.post("/v1/images/variations", body, headers=headers)
    assert status == 200, answer
    first, second = (picture(made["b64_json"], tmp_path) for made in answer["data"])
    assert first.shape == (3, 64, 64) and not (first == second).all().item()
    body, headers = form({**fields, "prompt": "x"}, [("image", png(tmp_path))])
    status, answer, _ = server.post("/v1/images/variations", body, headers=headers)
    assert status == 400 and answer["error"]["param"] == "prompt"
    body, headers = form(fields, [])
    assert server.post("/v1/images/variations", body, headers=headers)[0] == 400


@pytest.mark.parametrize(
    "body, status, param",
    [
        ({}, 400, "prompt"),
        ({"prompt": PROMPT, "n": 11}, 400, "n"),
        ({"prompt": PROMPT, "size": "big"}, 400, "size"),
        ({"prompt": PROMPT, "background": "transparent"}, 400, "background"),
        ({"prompt": PROMPT, "style": "vivid"}, 400, "style"),
        ({"prompt": PROMPT, "model": "dall-e-3"}, 404, "model"),
        ({"prompt": PROMPT, "quality": "ultra"}, 400, "quality"),
        ({"prompt": PROMPT, "\0": 1}, 400, "\0"),
    ],
)
def test_openai_errors_have_its_shape(server, body, status, param):
    got, answer, _ = server.post("/v1/images/generations", body)
    assert got == status and answer["error"]["param"] == param and answer["error"]["message"], answer
    assert answer["error"]["type"] in ("invalid_request_error", "not_found_error")


def test_the_package_openai(server, tmp_path):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    assert [m.id for m in client.models.list()] == ["emoji-128"]
    more = {"num_inference_steps": 2, "seed": 7}
    made = client.images.generate(prompt=PROMPT, size="64x64", response_format="b64_json", extra_body=more)
    assert picture(made.data[0].b64_json, tmp_path).shape == (3, 64, 64)
    kinds = [e.type for e in client.images.generate(prompt=PROMPT, stream=True, partial_images=1, extra_body=more)]
    assert kinds == ["image_generation.partial_image", "image_generation.completed"]
    (tmp_path / "in.png").write_bytes(png(tmp_path))
    with open(tmp_path / "in.png", "rb") as image:
        assert client.images.edit(image=image, prompt=PROMPT, extra_body=more).data[0].b64_json
    with pytest.raises(openai.NotFoundError, match="there is no 'dall-e-2'"):
        client.images.generate(prompt=PROMPT, model="dall-e-2")
    with pytest.raises(openai.BadRequestError, match="size"):
        client.images.generate(prompt=PROMPT, size="huge")


# ---- AUTOMATIC1111

LISTS = """samplers schedulers sd-models sd-vae sd-modules upscalers latent-upscale-modes loras embeddings prompt-styles
    hypernetworks face-restorers realesrgan-models scripts script-info extensions cmd-flags memory options
    progress""".split()


def test_every_list_is_there_with_a_slash_or_without(server):
    for name in LISTS:
        for path in (f"/sdapi/v1/{name}", f"/sdapi/v1/{name}/"):
            status, answer, _ = server.get(path)
            assert status == 200 and isinstance(answer, (list, dict)), name
    assert server.get("/sdapi/v1/upscalers")[1][0]["name"] == "None"
    assert server.get("/sdapi/v1/sd-models")[1][0]["model_name"] == "emoji-128"
    names = [s["name"] for s in server.get("/sdapi/v1/samplers")[1]]
    assert {"Euler a", "DPM++ 2M", "DPM++ 2M Karras", "DDIM"} <= set(names)


def test_what_open_webui_sends(server, tmp_path):
    headers = {"authorization": "Basic Og=="}
    options = server.get("/sdapi/v1/options", headers=headers)[1]
    options["sd_model_checkpoint"] = server.get("/sdapi/v1/sd-models", headers=headers)[1][0]["title"]
    assert server.post("/sdapi/v1/options", options, headers=headers)[0] == 200  # the whole dict comes back
    body = {"prompt": PROMPT, "batch_size": 1, "width": 128, "height": 128, "steps": 2, "negative_prompt": "blurry",
            "cfg_scale": 2.5, "sampler_name": "Euler", "scheduler": "Karras"}  # fmt: skip
    answer = server.post("/sdapi/v1/txt2img", body, headers=headers)[1]
    info = json.loads(answer["info"])
    assert picture(answer["images"][0], tmp_path).shape == (3, 128, 128)
    assert info["sampler_name"] == "euler" and info["steps"] == 2 and info["all_seeds"] == [info["seed"]]
    assert answer["parameters"]["scheduler"] == "Karras"
    told = server.post("/sdapi/v1/png-info", {"image": answer["images"][0]})[1]
    assert "Negative prompt: blurry" in told["info"] and "Steps: 2" in told["info"]
    body["init_images"] = [answer["images"][0]]
    assert server.post("/sdapi/v1/img2img", body, headers=headers)[0] == 200


def test_what_sillytavern_sends(server):
    status = server.request("OPTIONS", "/sdapi/v1/txt2img")[0]
    assert status == 204
    assert server.post("/sdapi/v1/options", {"sd_model_checkpoint": "emoji-128"})[0] == 200
    progress = server.get("/sdapi/v1/progress")[1]
    assert progress["progress"] == 0 and progress["state"]["job_count"] == 0
    body = {"url": "http://x", "auth": "user:password", "prompt": PROMPT, "negative_prompt": "",
            "sampler_name": "Euler a",
            "scheduler": "Automatic", "steps": 2, "cfg_scale": 7, "width": 128, "height": 128, "restore_faces": False,
            "enable_hr": False, "hr_upscaler": "None", "hr_scale": 1.5, "denoising_strength": 0.7, "clip_skip": 1,
            "save_images": True, "send_images": True, "do_not_save_grid": False, "seed": -1,
            "override_settings": {"CLIP_stop_at_last_layers": 1},
            "override_settings_restore_afterwards": True}  # fmt: skip
    status, answer, _ = server.post("/sdapi/v1/txt2img", body)
    assert status == 200 and len(answer["images"]) == 1, answer
    assert "password" not in json.dumps(answer["parameters"])


def test_progress_and_interrupt_are_of_a_job_that_runs(server):
    body = {"prompt": PROMPT, "steps": 400, "width": 128, "height": 128}
    answers = []
    thread = threading.Thread(target=lambda: answers.append(server.post("/sdapi/v1/txt2img", body)))
    thread.start()
    deadline = time.monotonic() + 30
    while (progress := server.get("/sdapi/v1/progress")[1])["state"][
        "sampling_step"
    ] < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert 0 < progress["progress"] < 1 and progress["state"]["sampling_steps"] == 400
    assert base64.b64decode(progress["current_image"]).startswith(b"\x89PNG")
    assert server.post("/sdapi/v1/interrupt")[1] == {}
    thread.join(timeout=30)
    assert answers[0][0] == 200, answers[0]  # the picture as it was then
    (image,) = answers[0][1]["images"]
    after = re.search(r", Skipped after: (\d+)$", server.post("/sdapi/v1/png-info", {"image": image})[1]["info"])
    assert after and 2 <= int(after[1]) < 400


@pytest.mark.parametrize(
    "body, status, words",
    [
        ({"enable_hr": True, "hr_upscaler": "ESRGAN_4x"}, 422, "hr_upscaler"),
        ({"enable_hr": True, "hr_resize_x": 512}, 422, "hr_resize_x"),
        ({"styles": ["x"]}, 422, "styles"),
        ({"subseed_strength": 0.5}, 422, "subseed_strength"),
        ({"script_name": "x/y/z plot"}, 422, "script_name"),
        ({"sampler_name": "Eulr"}, 422, "sampler"),
        ({"scheduler": "None such"}, 422, "None such"),
        ({"override_settings": {"sd_model_checkpoint": "nothing"}}, 422, "nothing"),
        ({"steps": "many"}, 422, "steps"),
        ({"width": 100000}, 422, "width"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(server, body, status, words):
    got, answer, _ = server.post("/sdapi/v1/txt2img", {"prompt": PROMPT, **body})
    detail = answer["detail"][0]["msg"] if isinstance(answer["detail"], list) else answer["detail"]
    assert got == status and words in detail, answer


def test_masks_with_all_their_fields(server, tmp_path):
    image = base64.b64encode(png(tmp_path, size=128)).decode()
    cover = sf.zeros(1, 128, 128, dtype=sf.uint8)
    cover[:, 48:80, 48:80] = 255
    sf.io.write_image(str(tmp_path / "mask.png"), cover)
    mask = base64.b64encode((tmp_path / "mask.png").read_bytes()).decode()
    body = {"prompt": PROMPT, "steps": 3, "width": 128, "height": 128, "seed": 7, "init_images": [image], "mask": mask,
            "mask_blur": 2, "denoising_strength": 1.0}  # fmt: skip
    made = {}
    for name, more in {
        "whole": {"inpaint_full_res": False},
        "region": {"inpaint_full_res": True, "inpaint_full_res_padding": 8},
        "original": {"inpaint_full_res": False, "inpainting_fill": 1},
        "inverted": {"inpaint_full_res": False, "inpainting_mask_invert": 1},
        "noise": {"inpaint_full_res": False, "inpainting_fill": 2},
        "nothing": {"inpaint_full_res": False, "inpainting_fill": 3},
        "noise kept": {"inpaint_full_res": False, "inpainting_fill": 2, "denoising_strength": 0.4},
        "nothing kept": {"inpaint_full_res": False, "inpainting_fill": 3, "denoising_strength": 0.4},
    }.items():
        status, answer, _ = server.post("/sdapi/v1/img2img", {**body, **more})
        assert status == 200, answer
        made[name] = (picture(answer["images"][0], tmp_path).to(sf.float32) - 128).abs().mean(dim=0)
        assert made[name].shape == (128, 128)
    for name in ("whole", "region", "original", "noise", "nothing", "noise kept", "nothing kept"):
        assert made[name][:32].max().item() == 0, name  # far from the mask it is the picture that was sent
        assert made[name][56:72, 56:72].mean().item() > 1, name
    assert made["inverted"][60:68, 60:68].max().item() == 0 and made["inverted"][:32].mean().item() > 1
    # At a strength of 1 nothing is left of what was there to begin with; below it is seen.
    assert (made["noise"] == made["nothing"]).all().item()
    assert not (made["noise kept"] == made["nothing kept"]).all().item()
    status, answer, _ = server.post("/sdapi/v1/img2img", {**body, "inpainting_fill": 4})
    assert status == 422 and "inpainting_fill" in json.dumps(answer["detail"])


@pytest.fixture(scope="module")
def shelf(has_server, build_dir, model, tmp_path_factory):
    """A server with a small model, another autoencoder for it, an upscaler, and a file that is no model."""
    folder = tmp_path_factory.mktemp("shelf")
    shutil.copytree(model, folder / "models/squares")
    weights = sf.safetensors.load_file(model / "vae/diffusion_pytorch_model.safetensors")
    for name in ("decoder.conv_out.bias", "decoder.conv_out.weight"):
        weights[name] = -weights[name]
    (folder / "models/vae").mkdir()
    sf.safetensors.save_file(weights, folder / "models/vae/negative.safetensors")
    (folder / "models/ESRGAN").mkdir()
    sf.manual_seed(3)
    network = sf.models.RRDBNet(num_feat=16, num_block=1, num_grow_ch=16).eval()
    sf.save({"params_ema": dict(network.state_dict())}, folder / "models/ESRGAN/x4.pth")
    sf.safetensors.save_file({"odd": sf.zeros(3)}, folder / "models/odd.safetensors")
    with serving(build_dir, folder / "data", "--models", folder / "models") as running:
        yield running


def test_pictures_are_made_larger(shelf, tmp_path):
    names = [u["name"] for u in shelf.get("/sdapi/v1/upscalers")[1]]
    assert names == ["None", "Nearest", "Bicubic", "Lanczos", "x4"]
    (tmp_path / "in.png").write_bytes(png(tmp_path, size=20))
    made = sf.tensor([[[i * j % 256 for i in range(30)] for j in range(20)]] * 3, dtype=sf.uint8)
    sf.io.write_image(str(tmp_path / "in.png"), made)
    text = base64.b64encode((tmp_path / "in.png").read_bytes()).decode()

    def larger(**fields):
        status, answer, _ = shelf.post("/sdapi/v1/extra-single-image", {"image": text, **fields})
        assert status == 200 and answer["html_info"] == "", answer
        return picture(answer["image"], tmp_path)

    assert (larger(upscaling_resize=3) == made).all().item()  # None leaves it as it is
    twice = larger(upscaling_resize=2, upscaler_1="Nearest")
    assert twice.shape == (3, 40, 60) and (twice[:, ::2, ::2] == made).all().item()
    network = sf.models.RRDBNet(num_feat=16, num_block=1, num_grow_ch=16)
    network.load_state_dict(sf.load(shelf.data.parent / "models/ESRGAN/x4.pth")["params_ema"])
    four = larger(upscaling_resize=4, upscaler_1="x4")
    assert (four == sf.models.upscale(network.eval(), made)).all().item()
    cut = larger(resize_mode=1, upscaling_resize_w=50, upscaling_resize_h=50, upscaler_1="Lanczos")
    assert cut.shape == (3, 50, 50)
    whole = larger(
        resize_mode=1, upscaling_resize_w=50, upscaling_resize_h=50, upscaler_1="Lanczos", upscaling_crop=False
    )
    assert whole.shape == (3, 50, 75)
    nearest, lanczos = (larger(upscaler_1=name).to(sf.float32) for name in ("Nearest", "Lanczos"))
    both = larger(upscaler_1="Nearest", upscaler_2="Lanczos", extras_upscaler_2_visibility=0.5).to(sf.float32)
    assert (both - (nearest + lanczos) / 2).abs().max().item() <= 0.5
    items = [{"data": text, "name": f"{i}.png"} for i in range(3)]
    status, answer, _ = shelf.post("/sdapi/v1/extra-batch-images", {"imageList": items, "upscaler_1": "Lanczos"})
    assert status == 200 and len(answer["images"]) == 3
    assert picture(answer["images"][2], tmp_path).shape == (3, 40, 60)
    for fields, words in (
        ({"upscaler_1": "x5"}, "(closest: 'x4')"),
        ({"codeformer_visibility": 0.5}, "codeformer_visibility"),
        ({"image": "eA=="}, "image"),
        ({"upscaling_resize": 9}, "upscaling_resize"),
        (
            {"upscaler_1": "Lanczos", "resize_mode": 1, "upscaling_resize_w": 16384, "upscaling_resize_h": 16384},
            "at most",
        ),
    ):
        status, answer, _ = shelf.post("/sdapi/v1/extra-single-image", {"image": text, **fields})
        assert status == 422 and words in json.dumps(answer), answer
    for items in ([], "x", [{}], [3]):
        assert shelf.post("/sdapi/v1/extra-batch-images", {"imageList": items})[0] == 422


def test_models_go_by_their_hashes(shelf):
    wanted = hashlib.sha256((shelf.data.parent / "models/odd.safetensors").read_bytes()).hexdigest()
    deadline = time.monotonic() + 30
    while True:  # it is computed beside
        listed = {m["model_name"]: m for m in shelf.get("/sdapi/v1/sd-models")[1]}
        if listed["odd"]["sha256"] or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert listed["odd"]["sha256"] == wanted and listed["odd"]["hash"] == wanted[:10]
    assert listed["squares"]["sha256"] is None  # a folder
    for name in ("odd", "odd.safetensors", wanted, wanted[:10], f"odd.safetensors [{wanted[:10]}]"):
        assert shelf.post("/sdapi/v1/options", {"sd_model_checkpoint": name})[0] == 200, name
        assert shelf.get("/sdapi/v1/options")[1]["sd_model_checkpoint"] == "odd.safetensors"
    status, answer, _ = shelf.post("/sdapi/v1/options", {"sd_model_checkpoint": "0123456789"})
    assert status == 422 and "there is no '0123456789'" in json.dumps(answer)
    assert shelf.post("/sdapi/v1/options", {"sd_model_checkpoint": "squares"})[0] == 200


def test_another_autoencoder(shelf, program, tmp_path):
    assert shelf.get("/sdapi/v1/sd-vae")[1] == [{"model_name": "negative", "filename": "negative"}]
    body = {"prompt": "red square", "steps": 2, "seed": 3, "override_settings": {"sd_model_checkpoint": "squares"}}

    def made(vae=None):
        override = {**body["override_settings"], **({"sd_vae": vae} if vae else {})}
        status, answer, _ = shelf.post("/sdapi/v1/txt2img", {**body, "override_settings": override})
        assert status == 200, answer
        return picture(answer["images"][0], tmp_path).to(sf.int32), json.loads(answer["info"])["sd_vae_name"]

    own, name = made()
    other, other_name = made("negative")
    assert name is None and other_name == "negative"
    assert (own + other - 255).abs().max().item() <= 1
    assert "VAE: negative" in sf.io.image_info(str(tmp_path / "picture.png"))["text"]["parameters"]
    assert (made("Automatic")[0] == own).all().item()
    assert shelf.post("/sdapi/v1/options", {"sd_vae": "negative.safetensors"})[0] == 200
    assert shelf.get("/sdapi/v1/options")[1]["sd_vae"] == "negative"
    assert (made()[0] == other).all().item()
    assert shelf.post("/sdapi/v1/options", {"sd_vae": "Automatic"})[0] == 200
    status, answer, _ = shelf.post("/sdapi/v1/options", {"sd_vae": "negativ"})
    assert status == 422 and "(closest: 'negative')" in json.dumps(answer)


def test_hires_fix_is_the_programs(server, program, tmp_path):
    body = {"prompt": PROMPT, "steps": 3, "width": 64, "height": 64, "seed": 7, "cfg_scale": 2.5,
            "sampler_name": "DDIM", "enable_hr": True, "hr_scale": 2, "denoising_strength": 0.7}  # fmt: skip
    answer = server.post("/sdapi/v1/txt2img", body)[1]
    served = picture(answer["images"][0], tmp_path)
    assert served.shape == (3, 128, 128)
    again = program("txt2img", "--like", tmp_path / "picture.png", "-o", tmp_path / "again.png")
    assert again.returncode == 0, again.stderr
    assert (sf.io.read_image(str(tmp_path / "again.png")) == served).all().item()


def test_img2img_without_a_picture(server):
    status, answer, _ = server.post("/sdapi/v1/img2img", {"prompt": PROMPT})
    assert status == 404 and answer["detail"] == "Init image not found"


def test_a_task_id_makes_one_job(server):
    body = {"prompt": PROMPT, "steps": 2, "force_task_id": "task(1)", "width": 128, "height": 128}
    first, again = (json.loads(server.post("/sdapi/v1/txt2img", body)[1]["info"])["seed"] for _ in range(2))
    assert first == again


def test_the_package_webuiapi(server):
    webuiapi = pytest.importorskip("webuiapi")
    api = webuiapi.WebUIApi(host="127.0.0.1", port=server.port)
    made = api.txt2img(prompt=PROMPT, steps=2, width=128, height=128, sampler_name="Euler a", cfg_scale=2.5, seed=7)
    assert made.image.size == (128, 128) and made.info["seed"] == 7
    changed = api.img2img(images=[made.image], prompt=PROMPT, steps=3, width=128, height=128, seed=7)
    assert changed.image.size == (128, 128)
    assert "Steps: 2" in api.png_info(made.image).info
    assert api.get_samplers() and api.util_get_model_names() == ["emoji-128"]
