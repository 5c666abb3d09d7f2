"""`scaffolding serve` as the clients of OpenAI's and AUTOMATIC1111's APIs call it: requests written down from their
sources, and the packages `openai` and `webuiapi` where they are installed.
"""

import base64
import json
import threading
import time

import pytest
from served import serving, skip_without_server

import scaffolding as sf

PROMPT = "red apple, noto"


@pytest.fixture(scope="module")
def server(program, build_dir, tmp_path_factory):
    skip_without_server(program, build_dir)
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
    assert answers[0][0] == 409 and "cancelled" in answers[0][1]["detail"]


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
    }.items():
        status, answer, _ = server.post("/sdapi/v1/img2img", {**body, **more})
        assert status == 200, answer
        made[name] = (picture(answer["images"][0], tmp_path).to(sf.float32) - 128).abs().mean(dim=0)
        assert made[name].shape == (128, 128)
    for name in ("whole", "region", "original"):
        assert made[name][:32].max().item() == 0, name  # far from the mask it is the picture that was sent
        assert made[name][56:72, 56:72].mean().item() > 1, name
    assert made["inverted"][60:68, 60:68].max().item() == 0 and made["inverted"][:32].mean().item() > 1
    status, answer, _ = server.post("/sdapi/v1/img2img", {**body, "inpainting_fill": 2})
    assert status == 422 and "inpainting_fill" in answer["detail"]


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
