"""`scaffolding serve` and bodies with something wrong in them, drawn at random: fields, pictures, forms, graphs.
SF_SERVER_MALFORMED says how many, SF_SERVER_SEED repeats what a run has printed (Makefile)."""

import base64
import copy
import json
import os
import pathlib
import random
import time
import zlib

from golden_pipelines import CASES, part
from served import Server, skip_without_server

from scaffolding.diffusion import StableDiffusionPipeline

CORPUS = pathlib.Path(__file__).resolve().parents[1] / "fuzz_corpus/image"
BOMB = zlib.compress(bytes(1 << 22), 9)
# ---- pictures


def chunk(kind, data):
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def png(width, height, channels=3, bits=8, more=b"", claimed=None):
    """claimed: the size that its head says."""
    rows = b"".join(
        b"\0" + bytes((x * 37 + y) % 256 for x in range(width * channels * bits // 8)) for y in range(height)
    )
    size = b"".join(n.to_bytes(4, "big") for n in claimed or (width, height))
    kind = {1: b"\0", 2: b"\x04", 3: b"\x02", 4: b"\x06"}[channels]
    head = chunk(b"IHDR", size + bytes([bits]) + kind + b"\0\0\0")
    return b"\x89PNG\r\n\x1a\n" + head + more + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def picture(drawn, kept):
    """A picture as a client might send it, most of them with something wrong."""
    side = drawn.choice([16, 16, 16, 8, 24, 64])
    data = drawn.choice(
        [
            lambda: png(side, side, drawn.choice([1, 2, 3, 4]), drawn.choice([8, 16])),
            lambda: png(16, 16),
            lambda: png(16, 16, 4),
            lambda: png(side, drawn.choice([1, 7, 8, 40])),  # a mask or a picture of another size
            lambda: png(
                16, 16, claimed=drawn.choice([(100000, 100000), (5000, 5000), (2**31 - 1, 1), (0, 16), (16, 17)])
            ),
            lambda: png(16, 16, more=chunk(b"zTXt", b"parameters\0\0" + BOMB)),
            lambda: png(
                16, 16, more=chunk(drawn.choice([b"PLTE", b"tRNS", b"eXIf", b"acTL", b"IDAT"]), drawn.randbytes(9))
            ),
            lambda: drawn.choice(kept),
        ]
    )()
    kind = drawn.randrange(8)
    if kind == 0:
        data = data[: drawn.randrange(len(data))]
    elif kind == 1:
        data = bytearray(data)
        for _ in range(drawn.randint(1, 4)):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
    return bytes(data)


def sent(drawn, kept):
    text = base64.b64encode(picture(drawn, kept)).decode()
    kind = drawn.randrange(20)
    if kind == 0:
        return text[: drawn.randrange(len(text) + 1)]
    if kind == 1:
        return drawn.choice(
            ["http://127.0.0.1/x.png", "data:image/png;base64,", "data:,x", "====", "\u00e9", text + "!"]
        )
    return drawn.choice(["", "data:image/png;base64,"]) + text


# ---- bodies

APPLE = {"prompt": "red apple, noto", "num_inference_steps": 2, "seed": 7, "width": 16, "height": 16}
PLAIN = {**APPLE, "loras": {"a": 1}, "scheduler_options": ["a=b"], "count": 2}
WEBUI = {"prompt": "red apple", "steps": 2, "width": 16, "height": 16, "sampler_name": "Euler", "scheduler": "Karras"}


def fields(drawn, path, image):
    """What a client sends to that path, with pictures where the path takes some."""
    net = {"image": image(), "mode": "canny", "weight": 0.8, "guidance_start": 0, "guidance_end": 1}
    net |= drawn.choice([{}, {"model": "canny"}])
    unit = {"model": "canny", "image": image(), "module": "canny", "weight": 1, "control_mode": 2, "enabled": True}
    controlled = {"alwayson_scripts": {"controlnet": {"args": [unit, {"enabled": False}]}}}
    if path == "/api/v1/jobs":
        more = {"image": image(), "mask_image": image(), "strength": 0.5, "mask_blur": 2, "padding_mask_crop": 4}
        return drawn.choice([PLAIN, {**APPLE, **more, "mask_fill": "around"}, {**APPLE, "controlnet": [net]},
                             {**APPLE, "hires": 2, "hires_upscaler": "lanczos"}])  # fmt: skip
    if path.startswith("/v1/"):
        one = {"prompt": "red apple", "size": "16x16", "num_inference_steps": 2, "response_format": "url"}
        masked = {"images": [{"image_url": image()}], "mask": image()}
        if path.endswith("variations"):
            return {"image": image(), "size": "16x16", "num_inference_steps": 2}
        return {**one, **drawn.choice([{"image": image()}, masked])} if path.endswith("edits") else one
    if path.endswith("img2img"):
        more = {"init_images": [image()], "mask": image(), "mask_blur": 4, "inpainting_mask_invert": drawn.randrange(2)}
        return {**WEBUI, **more, "inpainting_fill": drawn.randrange(4), **drawn.choice([{}, {}, controlled])}
    if path.endswith("txt2img"):
        return {**WEBUI, **drawn.choice([controlled, {"enable_hr": True}, {"override_settings": {"sd_vae": "None"}}])}
    if path.endswith("batch-images"):
        return {"imageList": [{"data": image(), "name": "a"}] * 2, "upscaler_1": "Lanczos", "upscaling_resize": 2}
    if path == "/prompt":
        return {"prompt": graph(image), "client_id": "a", "prompt_id": str(drawn.random())}
    if path.endswith("options"):
        return {"sd_model_checkpoint": "tiny", "CLIP_stop_at_last_layers": 2, "sd_vae": "Automatic"}
    return {"image": image(), "upscaler_1": "Nearest", "resize_mode": 1, "upscaling_resize_w": 32}


def graph(image):
    node = lambda kind, **inputs: {"class_type": kind, "inputs": inputs}  # noqa: E731
    return {
        "1": node("CheckpointLoaderSimple", ckpt_name="tiny"),
        "2": node("ETN_LoadImageBase64", image=image()),
        "3": node("CLIPTextEncode", clip=["1", 1], text="red apple"),
        "4": node("VAEEncode", vae=["1", 2], pixels=["8", 0]),
        "5": node("KSampler", model=["1", 0], positive=["3", 0], negative=["3", 0], latent_image=["4", 0], seed=7,
                  steps=2, cfg=7.0, sampler_name="euler", scheduler="normal", denoise=0.5),
        "6": node("VAEDecode", vae=["1", 2], samples=["5", 0]),
        "7": node("SaveImage", images=["6", 0], filename_prefix="a"),
        "8": node("ImageScale", image=["2", 0], upscale_method="lanczos", width=16, height=16, crop="disabled"),
    }  # fmt: skip


def places(value):
    """Each (container, key) within."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield value, key
        yield from places(inner)


def spoilt(drawn, body, image):
    """With values of other kinds and sizes, fields too many or too few, or bytes that are no JSON."""
    body = copy.deepcopy(body)
    for _ in range(drawn.choice([0, 0, 1, 1, 2, 3])):
        all_places = list(places(body))
        if not all_places:
            break
        container, key = drawn.choice(all_places)
        kind = drawn.randrange(8)
        if kind == 0:
            del container[key]
        elif kind == 1 and isinstance(container, dict):
            container[drawn.choice(["promt", "", "x" * 300, "\u0000", "steps", "model"])] = container[key]
        else:
            odd = [
                None,
                True,
                -1,
                0,
                1,
                2**31,
                2**63,
                -(2**63),
                1e308,
                0.1,
                "",
                "-1",
                "a" * 9000,
                "\u0000",
                "\ud800",
                [],
            ]
            odd += [{}, [[]], [key], ["5", 0], ["1", 99], {"a": {"b": []}}, [container[key]] * 20, image()]
            container[key] = drawn.choice(odd)
    text = bytearray(json.dumps(body).encode())
    if drawn.random() < 0.75:
        return bytes(text)
    for _ in range(drawn.randint(1, 4)):
        at = drawn.randrange(len(text))
        kind = drawn.randrange(5)
        if kind == 0:
            text[at] = drawn.randrange(256)
        elif kind == 1:
            del text[at : at + drawn.randint(1, 20)]
        elif kind == 2:
            odd = [b"{", b"[", b'"', b"\\u0000", b"1e999", b"-1", b"null", b"\xff", b"NaN", b'{"a":' * 40]
            text[at:at] = drawn.choice(odd)
        elif kind == 3:
            text[at:at] = text[at : at + drawn.randint(1, 30)]
        else:
            del text[at:]
        text = text or bytearray(b"{")
    return bytes(text)


def form(drawn, kept, path):
    part = b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    body = part % (b"num_inference_steps", b"", b"2") + part % (b"size", b"", b"16x16")
    if path.endswith("edits"):
        body += part % (b"prompt", b"", b"red")
    for name in drawn.choice([(), (b"image",), (b"image[]",), (b"image[]", b"mask"), (b"image", b"image")]):
        body += part % (name, b'; filename="a.png"', picture(drawn, kept))
    body = bytearray(body + b"--b--\r\n")
    for _ in range(drawn.randint(0, 3)):
        at = drawn.randrange(len(body))
        if drawn.random() < 0.5:
            del body[at : at + drawn.randint(1, 9)]
        else:
            body[at:at] = drawn.choice([b"--b", b"\r\n", b'name="', b"\0", b"\xff", b"a" * 300])
    return bytes(body)


PATHS = ["/api/v1/jobs", "/v1/images/generations", "/v1/images/edits", "/v1/images/variations", "/prompt"]
PATHS += ["/api/etn/image/a"]
PATHS += [f"/sdapi/v1/{name}" for name in ("txt2img", "img2img", "options", "png-info", "extra-single-image")]
PATHS += ["/sdapi/v1/extra-batch-images"]
FORMS = ("/v1/images/edits", "/v1/images/variations")
OURS = ("/api/v1/jobs", "/prompt")  # which do not wait for their pictures: what is made is cancelled at once


def test_malformed_bodies_are_refused_and_nothing_falls(program, build_dir, tmp_path):
    skip_without_server(program, build_dir)
    count = int(os.environ.get("SF_SERVER_MALFORMED", "400"))
    seed = int(os.environ.get("SF_SERVER_SEED") or time.time_ns() % 10**9)
    print(f"\n{count} bodies: SF_SERVER_SEED={seed}")
    drawn = random.Random(seed)
    kept = [file.read_bytes() for file in sorted(CORPUS.iterdir())]
    case = CASES["control_t2i"]  # small networks: what is no malformed body after all costs little
    parts = {component: part(case["family"], name) for component, name in case["components"].items()}
    parts.pop("controlnet").save_pretrained(tmp_path / "nets/canny")
    StableDiffusionPipeline(**parts).save_pretrained(tmp_path / "models/tiny")
    options = ("--models", tmp_path / "models", "--model", "tiny", "--controlnet-dir", tmp_path / "nets")
    server = Server(build_dir, tmp_path / "data", "--max-steps", 4, "--max-pixels", 64 * 64, *options)
    statuses = {path: {} for path in PATHS}
    try:
        for i in range(count):
            path = PATHS[i % len(PATHS)]
            method, kind = "POST", "application/json"
            if path in FORMS and drawn.random() < 0.5:
                body, kind = form(drawn, kept, path), "multipart/form-data; boundary=b"
            elif path.startswith("/api/etn"):
                method, body, kind = "PUT", picture(drawn, kept), "image/png"
            else:
                body = spoilt(drawn, fields(drawn, path, lambda: sent(drawn, kept)), lambda: sent(drawn, kept))
            try:
                status, answer, _ = server.request(method, path, body, {"Content-Type": kind})
            except OSError as e:
                raise AssertionError(f"{i}: {path} {body[:2000]} {e!r}\n{server.told()[-6000:]}") from e
            statuses[path][status] = statuses[path].get(status, 0) + 1
            assert status < 500, (i, path, body[:2000], answer, server.told()[-2000:])
            if status < 300 and path in OURS:
                server.request("DELETE", "/api/v1/jobs/" + (answer.get("id") or answer["prompt_id"]))
        assert server.get("/healthz")[0] == 200 and server.process.poll() is None
    finally:
        code = server.stop()
    assert code == 0, (tmp_path / "data.log").read_text()[-6000:]
    print("\n".join(f"{path}: {sorted(found.items())}" for path, found in statuses.items()))
    refused = sum(n for found in statuses.values() for status, n in found.items() if status >= 400)
    assert count / 3 < refused < count, statuses
