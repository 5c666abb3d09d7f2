"""What AUTOMATIC1111's API of `scaffolding serve` does to models, files and jobs: memory, refreshing, skipping; masks
of another size than the picture's, by every API."""

import base64
import functools
import re
import shutil
import threading
import time

import pytest
from served import serving, skip_without_server

import scaffolding as sf

BODY = {"prompt": "red apple, noto", "steps": 2, "width": 64, "height": 64, "seed": 7}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("webui")
    for name in ("models/vae", "loras"):
        (folder / name).mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def server(program, build_dir, folders):
    skip_without_server(program, build_dir)
    options = ("--models", folders / "models", "--lora-dir", folders / "loras", "--max-batch", 1)
    with serving(build_dir, folders / "data", *options) as running:
        yield running


def made(server, **more):
    status, answer, _ = server.post("/sdapi/v1/txt2img", {**BODY, **more})
    assert status == 200, answer
    return answer["images"]


def gauge(server, name):
    return float(re.search(rf"^{name} (\S+)$", server.get("/metrics")[1].decode(), re.M)[1])


def resident(server):
    status = open(f"/proc/{server.process.pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10


def test_models_leave_memory_and_come_back(server):
    first = made(server)
    weights, before = gauge(server, "scaffolding_model_bytes"), resident(server)
    assert weights > 1e7
    assert server.post("/sdapi/v1/unload-checkpoint")[:2] == (200, {})
    deadline = time.monotonic() + 20
    while gauge(server, "scaffolding_model_bytes"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert before - resident(server) > weights / 2
    assert server.post("/sdapi/v1/reload-checkpoint")[:2] == (200, {})
    while gauge(server, "scaffolding_model_bytes") != weights:  # without a job that needs them
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert made(server) == first and gauge(server, "scaffolding_model_bytes") == weights


def names(server, path, key):
    return [item[key] for item in server.get(f"/sdapi/v1/{path}")[1]]


def test_files_are_seen_after_refreshing(server, folders, model):
    vae = model / "vae/diffusion_pytorch_model.safetensors"
    for path, key, refresh, name, copy in (
        ("sd-models", "model_name", "refresh-checkpoints", "squares",
         lambda: shutil.copytree(model, folders / "models/squares")),
        ("sd-vae", "model_name", "refresh-vae", "other.safetensors",
         lambda: shutil.copy(vae, folders / "models/vae/other.safetensors")),
        ("loras", "name", "refresh-loras", "style",
         lambda: sf.safetensors.save_file({"lora_up.weight": sf.zeros(2, 2)}, folders / "loras/style.safetensors")),
    ):  # fmt: skip
        assert name not in str(names(server, path, key))
        copy()
        assert name not in str(names(server, path, key))
        assert server.post(f"/sdapi/v1/{refresh}")[0] == 200
        assert name.split(".")[0] in str(names(server, path, key)), path


def test_skip_keeps_what_there_is_and_goes_on_with_the_next(server):
    answers = []
    body = {**BODY, "steps": 100, "n_iter": 2}
    thread = threading.Thread(target=lambda: answers.append(server.post("/sdapi/v1/txt2img", body, timeout=600)))
    assert server.post("/sdapi/v1/skip")[:2] == (200, {})  # of nothing: what comes is whole
    thread.start()
    deadline = time.monotonic() + 300
    while server.get("/sdapi/v1/progress")[1]["state"]["sampling_step"] < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert server.post("/sdapi/v1/skip")[:2] == (200, {})
    thread.join(timeout=600)
    status, answer, _ = answers[0]
    assert status == 200 and len(answer["images"]) == 2, answer
    first, second = (server.post("/sdapi/v1/png-info", {"image": image})[1] for image in answer["images"])
    after = re.search(r", Skipped after: (\d+)$", first["info"])
    assert after and 3 <= int(after[1]) < 100 and "scaffolding" not in first["items"], first  # nothing repeats it
    assert "Skipped" not in second["info"] and "scaffolding" in second["items"], second


def test_interrupt_answers_with_what_there_is_and_cancels_what_waits(server):
    answers = {}
    threads = []
    for name, steps in (("runs", 400), ("waits", 2)):
        body = {**BODY, "steps": steps, "n_iter": 3}
        post = functools.partial(server.post, "/sdapi/v1/txt2img", body, timeout=600)
        threads.append(threading.Thread(target=lambda name=name, post=post: answers.update({name: post()})))
        threads[-1].start()
        deadline = time.monotonic() + 300
        while server.get("/sdapi/v1/progress")[1]["state"]["job_count"] < len(threads):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    while server.get("/sdapi/v1/progress")[1]["state"]["sampling_step"] < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not server.get("/sdapi/v1/progress")[1]["state"]["interrupted"]
    assert server.post("/sdapi/v1/interrupt")[:2] == (200, {})
    for thread in threads:
        thread.join(timeout=600)
    status, answer, _ = answers["runs"]
    assert status == 200 and len(answer["images"]) == 1, answer  # of three: the one that had begun
    info = server.post("/sdapi/v1/png-info", {"image": answer["images"][0]})[1]["info"]
    assert 3 <= int(re.search(r", Skipped after: (\d+)$", info)[1]) < 400
    status, answer, _ = answers["waits"]
    assert status == 409 and "cancelled" in answer["detail"], answer
    assert len(made(server)) == 1


def test_masks_of_another_size(server, tmp_path):
    def sent(height, width, channels=1):
        picture = sf.zeros(channels, height, width, dtype=sf.uint8)
        picture[:, :, width // 2 :] = 255
        sf.io.write_image(str(tmp_path / "a.png"), picture)
        return base64.b64encode((tmp_path / "a.png").read_bytes()).decode()

    image = sent(64, 64, 3)
    body = {**BODY, "init_images": [image], "mask_blur": 0, "inpaint_full_res": False, "denoising_strength": 1}
    made = {}
    for invert in (0, 1):  # it is resized, as AUTOMATIC1111 does
        for mask in (sent(16, 32), sent(64, 64)):
            status, answer, _ = server.post(
                "/sdapi/v1/img2img", {**body, "mask": mask, "inpainting_mask_invert": invert}
            )
            assert status == 200, answer
            (tmp_path / "b.png").write_bytes(base64.b64decode(answer["images"][0]))
            made.setdefault(invert, []).append(sf.io.read_image(str(tmp_path / "b.png")).to(sf.float32))
        small, whole = made[invert]
        kept = slice(40, 64) if invert else slice(0, 24)
        assert (small[:, :, kept] == whole[:, :, kept]).all().item()
        assert small[:, :, kept].std().item() == 0 and (small - whole).abs().mean().item() < 8
    status, answer, _ = server.post("/api/v1/jobs", {"prompt": "x", "image": image, "mask_image": sent(32, 32)})
    assert status == 422 and "mask: must have the picture's size 64x64, got 32x32" in answer["error"]["message"], answer
    status, answer, _ = server.post("/v1/images/edits", {"prompt": "x", "image": image, "mask": sent(32, 32, 4)})
    assert status == 400 and answer["error"]["type"] == "invalid_request_error", answer
    assert "mask: must have the picture's size" in answer["error"]["message"]
