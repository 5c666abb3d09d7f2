"""ComfyUI's API of `scaffolding serve`: graphs as Krita's AI Diffusion sends them, and graphs that cannot be served."""

import base64
import json
import os
import socket
import struct

import pytest
from golden_pipelines import CASES, pipeline_of
from served import serving, skip_without_server

import scaffolding as sf


@pytest.fixture(scope="module")
def server(program, build_dir, tmp_path_factory):
    skip_without_server(program, build_dir)
    with serving(build_dir, tmp_path_factory.mktemp("comfy") / "data") as running:
        yield running


class Events:
    """A WebSocket's messages."""

    def __init__(self, server, client):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=300)
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET /ws?clientId={client} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        head += f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        self.socket.sendall(head.encode())
        self.stream = self.socket.makefile("rb")
        while self.stream.readline().strip():
            pass

    def __next__(self):
        _, length = self.stream.read(2)
        if length == 126:
            (length,) = struct.unpack(">H", self.stream.read(2))
        return json.loads(self.stream.read(length))

    def until(self, *types):
        out = [next(self)]
        while out[-1]["type"] not in types:
            out.append(next(self))
        return out


def node(kind, **inputs):
    return {"class_type": kind, "inputs": inputs}


def krita(latent, split=None, steps=4, seed=7, decoded="19", model="emoji-128", **more):
    """What the plug-in sends: `latent` is the node that is sampled from, `more` further nodes."""
    graph = {
        "1": node("CheckpointLoaderSimple", ckpt_name=model),
        "3": node("CLIPTextEncode", clip=["1", 1], text="red apple, noto"),
        "4": node("CLIPTextEncode", clip=["1", 1], text="blurry"),
        "5": node("CFGGuider", model=["1", 0], positive=["3", 0], negative=["4", 0], cfg=7.0),
        "6": node("BasicScheduler", model=["1", 0], scheduler="karras", steps=steps, denoise=1.0),
        "7": node("RandomNoise", noise_seed=seed),
        "8": node("KSamplerSelect", sampler_name="dpmpp_2m"),
        "9": node("SamplerCustomAdvanced", noise=["7", 0], guider=["5", 0], sampler=["8", 0], sigmas=["6", 0]),
        "19": node("VAEDecode", vae=["1", 2], samples=["9", 1]),
        "20": node("ETN_SaveImageCache", images=[decoded, 0], format="PNG"),
        **{name[1:]: value for name, value in more.items()},
    }
    graph["9"]["inputs"]["latent_image"] = latent
    if split is not None:
        graph["16"] = node("SplitSigmas", sigmas=["6", 0], step=split)
        graph["9"]["inputs"]["sigmas"] = ["16", 1]
    return graph


EMPTY = {"n2": node("EmptyLatentImage", width=128, height=128, batch_size=1)}


def made(server, graph, name, tmp_path, client="krita"):
    events = Events(server, client)
    assert next(events)["type"] == "status"
    status, answer, _ = server.post("/prompt", {"prompt": graph, "client_id": client, "prompt_id": name})
    assert status == 200 and answer["prompt_id"] == name, answer
    told = events.until("execution_success", "execution_error")
    assert all(e["data"].get("prompt_id") == name for e in told)
    names = [e["type"] for e in told]
    assert names[0] == "execution_start" and "progress" in names and names[-3:-1] == ["executed", "executing"], told[-1]
    assert told[-2]["data"]["node"] is None
    pictures = []
    for i, image in enumerate(told[-3]["data"]["output"]["images"]):
        status, png, _ = server.get(f"/api/etn/image/{image['id']}")
        assert status == 200 and image["source"] == "http"
        (tmp_path / f"{name}{i}.png").write_bytes(png)
        pictures.append(sf.io.read_image(str(tmp_path / f"{name}{i}.png")))
    return pictures


def send(server, tmp_path, name, tensor):
    sf.io.write_image(str(tmp_path / "sent.png"), tensor)
    status = server.request("PUT", f"/api/etn/image/{name}", (tmp_path / "sent.png").read_bytes())[0]
    assert status == 201
    return ["30" if name == "image" else "31", 0 if name == "image" else 1]


def test_what_krita_asks_first(server):
    assert server.get("/system_stats")[1]["devices"][0]["type"] == "cpu"
    nodes = server.get("/object_info")[1]
    assert 30 <= len(nodes) and "emoji-128" in nodes["CheckpointLoaderSimple"]["input"]["required"]["ckpt_name"][0]
    assert server.get("/object_info/KSampler")[1] == {"KSampler": nodes["KSampler"]}
    assert server.get("/api/etn/model_info/checkpoints?offset=0&limit=8")[1]["emoji-128"]["base_model"] == "sd15"
    assert server.get("/api/etn/model_info/unet_gguf")[1] == {} and server.get("/api/etn/languages")[1] == []
    assert server.get("/api/etn/translate/de/roter%20Apfel")[1] == "roter Apfel"
    assert server.request("PUT", "/api/etn/upload/loras/a.safetensors", b"x")[0] == 403
    for what in ("subscribe", "unsubscribe"):
        assert server.post(f"/api/etn/workflow/{what}", {"client_id": "x"})[0] == 200
    assert server.get("/ws")[0] == 426


def test_text_to_picture_is_the_programs(server, program, tmp_path):
    (picture,) = made(server, krita(["2", 0], **EMPTY), "one", tmp_path)
    options = ["--negative-prompt", "blurry", "--steps", 4, "--guidance", 7, "--seed", 7, "--sampler", "dpm++2m-karras"]
    done = program("txt2img", "red apple, noto", *options, "-o", tmp_path / "own.png")
    assert done.returncode == 0, done.stderr
    assert (picture == sf.io.read_image(str(tmp_path / "own.png"))).all().item()
    # Of another size than the plug-in's picture, and several of them.
    scaled = {
        "n21": node("ImageScale", image=["19", 0], width=100, height=90, upscale_method="lanczos", crop="disabled")
    }
    two = {"n2": node("EmptyLatentImage", width=128, height=128, batch_size=2)}
    pictures = made(server, krita(["2", 0], decoded="21", **two, **scaled), "two", tmp_path)
    assert [p.shape for p in pictures] == [(3, 90, 100)] * 2
    assert server.post("/prompt", {"prompt": krita(["2", 0], steps=5, **EMPTY), "prompt_id": "one"})[0] == 409


def test_refining_and_inpainting(server, tmp_path):
    (before,) = made(server, krita(["2", 0], **EMPTY), "before", tmp_path)
    image = send(server, tmp_path, "image", before)
    nodes = {
        "n30": node("ETN_LoadImageCache", id="image"),
        "n31": node("ETN_LoadImageCache", id="mask"),
        "n10": node("VAEEncode", vae=["1", 2], pixels=image),
    }
    (refined,) = made(server, krita(["10", 0], split=2, seed=9, **nodes), "refined", tmp_path)
    job = server.get("/api/v1/jobs?limit=1")[1]["jobs"][0]["request"]
    assert job["task"] == "image-to-image" and abs(job["strength"] - 0.5) < 1e-6 and job["api"] == "comfy"
    assert refined.shape == before.shape and not (refined == before).all().item()

    cover = sf.zeros(1, 128, 128, dtype=sf.uint8)
    cover[:, 32:96, 32:96] = 255
    mask = send(server, tmp_path, "mask", cover)
    nodes |= {
        "n2": node("DifferentialDiffusion", model=["1", 0]),
        "n12": node("INPAINT_ExpandMask", mask=mask, grow=4, blur=4, blur_type="linear"),
        "n13": node("INPAINT_StabilizeMask", mask=["12", 0], epsilon=0.01),
        "n14": node("INPAINT_MaskedBlur", image=image, mask=mask, blur=65, falloff=9),
        "n10": node("VAEEncode", vae=["1", 2], pixels=["14", 0]),
        "n11": node("SetLatentNoiseMask", samples=["10", 0], mask=["13", 0]),
        "n21": node("INPAINT_ColorMatch", target=["19", 0], reference=image, exclude_mask=["13", 0], strength=1.0),
        "n22": node("ImageCrop", image=["21", 0], x=16, y=16, width=96, height=96),
        "n23": node("CropMask", mask=mask, x=16, y=16, width=96, height=96),
        "n24": node("ThresholdMask", mask=["23", 0], value=0.0),
        "n25": node("INPAINT_ShrinkMask", mask=["24", 0], shrink=2, blur=0, blur_type="gaussian"),
        "n26": node("ETN_ApplyMaskToImage", image=["22", 0], mask=["25", 0]),
    }
    (part,) = made(server, krita(["11", 0], split=1, decoded="26", **nodes), "part", tmp_path)
    assert server.get("/api/v1/jobs?limit=1")[1]["jobs"][0]["request"]["task"] == "inpainting"
    assert part.shape == (4, 96, 96)
    alpha = part[3]
    assert (alpha[18:78, 18:78] == 255).all().item() and alpha.to(sf.float32).sum().item() == 255 * 60 * 60


def test_xl_pictures_are_the_pipelines(program, build_dir, tmp_path):
    """Text to picture, refining and inpainting with a tiny Stable Diffusion XL, against jobs of our own API, which are
    the pipelines' (test_program_server_pipelines.py)."""
    skip_without_server(program, build_dir)
    case = next(c for c in CASES.values() if c["pipeline"] == "StableDiffusionXLPipeline")
    pipeline_of(case, case["family"]).save_pretrained(tmp_path / "models" / "xl")
    with serving(build_dir, tmp_path / "data", "--models", tmp_path / "models") as server:
        assert server.get("/api/etn/model_info/checkpoints")[1]["xl"]["base_model"] == "sdxl"
        size = {"width": 64, "height": 64}
        request = {"model": "xl", "prompt": "red apple, noto", "negative_prompt": "blurry", "num_inference_steps": 4}
        request |= {"guidance_scale": 7.0, "sampler": "dpm++2m-karras", "seed": 7}

        def own(**more):
            job = server.post("/api/v1/jobs", {**request, **more})[1]
            assert server.wait(job["id"])["state"] == "done"
            return sf.io.decode_image(server.get(f"/api/v1/pictures/{job['id']}-0")[1])

        def is_own(graph, name, **more):
            (picture,) = made(server, krita(model="xl", **graph), name, tmp_path)
            assert picture.shape == (3, 64, 64) and (picture == own(**more)).all().item(), name
            return picture

        empty = {"n2": node("EmptyLatentImage", **size, batch_size=1)}
        before = is_own({"latent": ["2", 0], **empty}, "xl-text", **size)
        png = base64.b64encode(sf.io.encode_image(before, "png")).decode()
        image = send(server, tmp_path, "image", before)
        nodes = {
            "n30": node("ETN_LoadImageCache", id="image"),
            "n31": node("ETN_LoadImageCache", id="mask"),
            "n10": node("VAEEncode", vae=["1", 2], pixels=image),
        }
        refined = is_own({"latent": ["10", 0], "split": 2, **nodes}, "xl-refined", image=png, strength=0.5)
        cover = sf.zeros(1, 64, 64, dtype=sf.uint8)
        cover[:, 16:48, 16:48] = 255
        mask = send(server, tmp_path, "mask", cover)
        nodes["n11"] = node("SetLatentNoiseMask", samples=["10", 0], mask=mask)
        graph = {"latent": ["11", 0], "split": 1, **nodes}
        hole = base64.b64encode(sf.io.encode_image(cover, "png")).decode()
        part = is_own(graph, "xl-part", image=png, mask_image=hole, strength=0.75)
        outside = cover[0] == 0
        changed = (part.to(sf.float32) - before.to(sf.float32)).abs().amax(0)
        assert not (refined == before).all().item() and changed[~outside].mean().item() > changed[outside].mean().item()


def test_plain_graphs_history_and_view(server, tmp_path):
    graph = {
        "1": node("CheckpointLoaderSimple", ckpt_name="emoji-128"),
        "2": node("CLIPTextEncode", clip=["1", 1], text="blue car"),
        "3": node("EmptyLatentImage", width=128, height=128, batch_size=1),
        "4": node("KSampler", model=["1", 0], seed=2**63 - 10, steps=2, cfg=5, sampler_name="euler", scheduler="normal",
                  positive=["2", 0], negative=["2", 0], latent_image=["3", 0], denoise=1),
        "5": node("VAEDecode", samples=["4", 0], vae=["1", 2]),
        "6": node("SaveImage", images=["5", 0], filename_prefix="x"),
    }  # fmt: skip
    name = server.post("/prompt", {"prompt": graph})[1]["prompt_id"]
    while not (told := server.get(f"/history/{name}")[1]):
        pass
    assert told[name]["status"]["status_str"] == "success"
    image = told[name]["outputs"]["6"]["images"][0]
    assert image["type"] == "output" and server.get(f"/view?filename={image['filename']}")[1][:4] == b"\x89PNG"
    assert name in server.get("/history?max_items=5")[1]
    assert server.get("/view?filename=../../secret.png")[0] == 404


def test_the_queue_is_emptied(server):
    slow = krita(["2", 0], steps=400, **EMPTY)
    for name in ("a", "b", "c"):
        size = {"n2": node("EmptyLatentImage", width=128 + 64 * (name != "a"), height=128, batch_size=1)}
        assert server.post("/prompt", {"prompt": {**slow, "2": size["n2"]}, "prompt_id": name})[0] == 200
    while not (queue := server.get("/queue")[1])["queue_running"]:
        pass
    assert queue["queue_running"][0][1] == "a" and [q[1] for q in queue["queue_pending"]] == ["b", "c"]
    server.post("/queue", {"delete": ["c"]})
    server.post("/queue", {"clear": True})
    events = Events(server, "anyone")
    server.post("/interrupt")
    assert events.until("execution_interrupted")[-1]["data"]["prompt_id"] == "a"
    assert server.get("/queue")[1] == {"queue_running": [], "queue_pending": []}


def changed(at, **inputs):
    graph = krita(["2", 0], **EMPTY)
    graph[at]["inputs"].update(inputs)
    return graph


def test_graphs_that_cannot_be_served_say_why(server):
    circle = krita(["2", 0], **EMPTY)
    circle["5"]["inputs"]["model"] = ["40", 0]
    circle["40"] = node("DifferentialDiffusion", model=["41", 0])
    circle["41"] = node("DifferentialDiffusion", model=["40", 0])
    second = krita(["9", 0], **EMPTY)
    deep = krita(["2", 0], **EMPTY)
    for i in range(100, 400):
        deep[str(i)] = node("DifferentialDiffusion", model=[str(i + 1) if i < 399 else "1", 0])
    deep["5"]["inputs"]["model"] = ["100", 0]
    again = krita(["10", 0], n10=node("VAEEncode", vae=["1", 2], pixels=["19", 0]))
    big = {"n2": node("EmptyLatentImage", width=16384, height=16384, batch_size=1)}
    for graph, said in (
        ({}, "must be an object of nodes"),
        (changed("1", ckpt_name="nothing.safetensors"), "nothing"),
        ({**changed("1"), "50": node("FluxGuidance"), "51": node("<b>x")}, "no nodes of the kinds FluxGuidance, <b>x"),
        ({**changed("1"), "50": node("")}, "no nodes of the kinds ''"),
        (circle, "circle"),
        (second, "circle"),
        (again, "circle"),
        (deep, "behind each other"),
        (krita(["2", 0], **big), "pixels"),
        (changed("9", latent_image=["77", 0]), "node 77, which is not there"),
        (changed("9", latent_image=["1", 0]), "must be LATENT, got MODEL"),
        (changed("9", latent_image=["2", 7]), "an output that the node has not"),
        (changed("9", latent_image=[["2"], -1]), "must be a link"),
        (changed("9", latent_image=None), "latent_image is needed"),
        (changed("6", steps=10**9), "steps must be at most 10000"),
        (changed("6", steps="<script>"), "steps must be a number"),
        (changed("6", scheduler="gits"), "gits"),
        (changed("8", sampler_name="res_multistep"), "res_multistep"),
        (changed("7", noise_seed=2**64 - 1), "noise_seed"),
        (changed("3", text="x" * 30_000), "too long"),
        (changed("3", text=["3", 0]), "circle"),
        (krita(["10", 0], n10=node("VAEEncode", vae=["1", 2], pixels=["11", 0]),
               n11=node("ETN_LoadImageCache", id="../x")), "no picture '../x'"),
        (krita(["10", 0], n10=node("VAEEncode", vae=["1", 2], pixels=["11", 0]),
               n11=node("ETN_LoadImageBase64", image="aGVsbG8=")), "image"),
        ({k: v for k, v in changed("1").items() if k != "20"}, "has no output"),
        ({"1": "text"}, "no class_type"),
        ({"1": {"class_type": "KSampler", "inputs": 3}}, "inputs"),
    ):  # fmt: skip
        status, answer, _ = server.post("/prompt", {"prompt": graph})
        assert status == 400 and said in answer["error"]["message"], (said, status, answer)
    assert server.post("/prompt", {"prompt": []})[0] == 422
    assert server.request("PUT", "/api/etn/image/x", b"no picture")[0] == 422
    assert not server.get("/api/v1/jobs?state=active")[1]["jobs"]
