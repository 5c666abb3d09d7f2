"""Models by name: --model and --vae look through the folders of other programs and the hub's cache, and `models` lists
what is there; hostile files are rows of the list.
"""

import io
import json
import os
import shutil
import socket
import struct
import threading
import time
import zipfile

import pytest
from drawn_icons import refused

import scaffolding as sf


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def run(program, home):
    """The program with this home folder and nothing else that says where models are."""
    hidden = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "SF_MODELS", "HF_HUB_OFFLINE")
    inherited = {k: v for k, v in os.environ.items() if k not in hidden}

    def call(*arguments, cwd=None, **environment):
        return program(*arguments, cwd=cwd, env=inherited | {"HOME": str(home)} | environment)

    return call


def picture(run, tmp_path, *arguments, **environment):
    path = tmp_path / "picture.png"
    done = run(
        "txt2img", "red square", "--steps", 1, "--seed", 1, "-q", "--force", "-o", path, *arguments, **environment
    )
    assert done.returncode == 0, done.stderr
    return (
        sf.io.read_image(str(path)).numpy().tobytes(),
        done.stderr,
        json.loads(sf.io.image_info(str(path))["text"]["scaffolding"]),
    )


def listed(run, *arguments, **environment):
    done = run("models", "--json", *arguments, **environment)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)


def below(folder, name):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
def one_file(program, model, tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "one.safetensors"
    assert program("convert", model, path).returncode == 0
    return path


def test_a_model_is_found_by_name(run, home, model, one_file, tmp_path):
    want = picture(run, tmp_path, "-m", model)[0]
    ink = below(home, "ComfyUI/models/checkpoints/sub/Ink.safetensors")
    shutil.copy(one_file, ink)
    shutil.copy(one_file, below(home, "ComfyUI/models/loras/Ink.safetensors"))  # not for --model
    for name in ("Ink", "ink", "INK.safetensors", "sub/ink"):
        got, said, settings = picture(run, tmp_path, "-m", name, HF_ENDPOINT="http://127.0.0.1:9")
        assert got == want and said == f"scaffolding: --model {name} is {ink}\n"
        assert settings["model"] == str(ink)  # so that --like finds it again
    shutil.copytree(model, below(home, "stable-diffusion-webui/models/Stable-diffusion/squares"))
    assert picture(run, tmp_path, "-m", "squares")[0] == want
    shutil.copytree(model, below(tmp_path, "own/deep/mine"))
    assert picture(run, tmp_path, "-m", "mine", SF_MODELS=f":{tmp_path / 'own'}")[0] == want
    # a path of this name stands before it
    shutil.copytree(model, tmp_path / "here/ink")
    got, said, settings = picture(run, tmp_path, "-m", "ink", cwd=tmp_path / "here")
    assert got == want and said == "" and settings["model"] == "ink"


def test_names_of_many_and_of_none(run, home, one_file, tmp_path):
    for place in (
        "ComfyUI/models/checkpoints/ink.safetensors",
        "stable-diffusion-webui/models/Stable-diffusion/ink.ckpt",
    ):
        shutil.copy(one_file, below(home, place))
    asked = ("txt2img", "red square", "-q", "--steps", 1, "-o", tmp_path / "a.png", "-m")
    done = run(*asked, "ink")
    refused(done, "--model: 2 models have the name 'ink': ")
    assert f"'{home}/ComfyUI/models/checkpoints/ink.safetensors'" in done.stderr and "ink.ckpt'" in done.stderr
    assert run(*asked, "checkpoints/ink").returncode == 0
    assert run(*asked, "ink.safetensors").returncode == 0
    refused(run(*asked, "inc"), "; did you mean 'ink'?")
    refused(run(*asked, "emoji-182"), "'emoji-128'")
    refused(run(*asked, "quite another name"), "'scaffolding models' lists them, SF_MODELS names other folders")
    refused(run(*asked, "sub/inc", HF_HUB_OFFLINE="1"), "HF_HUB_OFFLINE is set")
    assert "; did you mean 'ink'?" in run(*asked, "sub/inc", HF_HUB_OFFLINE="1").stderr
    refused(run(*asked, "./ink"), "--model: there is no './ink'")
    refused(run(*asked, "ink", SF_MODELS=str(tmp_path / "none")), "SF_MODELS: there is no folder")
    # the same file under two names is one
    os.remove(home / "stable-diffusion-webui/models/Stable-diffusion/ink.ckpt")
    os.symlink(
        home / "ComfyUI/models/checkpoints/ink.safetensors",
        home / "stable-diffusion-webui/models/Stable-diffusion/ink.ckpt",
    )
    assert run(*asked, "ink").returncode == 0


class Listener:
    """A hub that counts who asks, and has nothing."""

    def __enter__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.asked = 0
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def _serve(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.asked += 1
            with connection, connection.makefile("rb") as head:
                while head.readline().strip():
                    pass
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def __exit__(self, *_):
        self.server.close()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.getsockname()[1]}"


def test_what_is_in_the_hubs_cache_whole_asks_no_server(run, home, model, tmp_path):
    commit = "a" * 40
    snapshot = home / f".cache/huggingface/hub/models--org--squares/snapshots/{commit}"
    below(home, ".cache/huggingface/hub/models--org--squares/refs/main").write_text(commit)
    shutil.copytree(model, snapshot)
    want = picture(run, tmp_path, "-m", model)[0]
    with Listener() as hub:
        for name in ("org/squares", "squares"):
            got, _, settings = picture(run, tmp_path, "-m", name, HF_ENDPOINT=hub.address)
            assert got == want and settings["model"] == "org/squares"
        assert picture(run, tmp_path, "-m", "org/squares", "--vae", "squares", HF_ENDPOINT=hub.address)[0] == want
        assert hub.asked == 0
        # a part is missing: only the server has it
        os.remove(snapshot / "unet/diffusion_pytorch_model.safetensors")
        done = run("txt2img", "x", "-q", "-m", "org/squares", "-o", tmp_path / "b.png", HF_ENDPOINT=hub.address)
        assert done.returncode == 2 and hub.asked > 0
    rows = listed(run, "--kind", "broken")
    assert [(row["name"], row["problem"].endswith("unet: has no weights")) for row in rows] == [("org/squares", True)]


def test_vae(run, home, model, one_file, tmp_path):
    vae = sf.models.AutoencoderKL.from_pretrained(str(model / "vae"))
    weights = {k: v.to(sf.float32) for k, v in vae.state_dict().items()}
    for name, tensor in weights.items():
        if name.startswith("decoder.conv_out"):
            weights[name] = tensor * 0.5
    brown = below(home, "ComfyUI/models/vae/brown.safetensors")
    sf.safetensors.save_file(weights, str(brown))
    plain, _, settings = picture(run, tmp_path, "-m", model)
    assert "vae" not in settings
    changed, _, settings = picture(run, tmp_path, "-m", model, "--vae", brown)
    assert changed != plain and settings["vae"] == str(brown)
    again = tmp_path / "again.png"
    assert run("txt2img", "--like", tmp_path / "picture.png", "-o", again).returncode == 0
    assert sf.io.read_image(str(again)).numpy().tobytes() == changed
    assert "VAE: brown.safetensors" in sf.io.image_info(str(again))["text"]["parameters"]
    got, said, _ = picture(run, tmp_path, "-m", model, "--vae", "BROWN")
    assert got == changed and said == f"scaffolding: --vae BROWN is {brown}\n"
    assert picture(run, tmp_path, "-m", model, "--vae", model)[0] == plain
    assert picture(run, tmp_path, "-m", model, "--vae", model / "vae")[0] == plain
    # as in Python
    pipe = sf.diffusion.StableDiffusionPipeline.from_pretrained(str(model), torch_dtype=sf.float32)
    vae.load_state_dict(weights)
    passed = sf.diffusion.StableDiffusionPipeline.from_pretrained(
        str(model), torch_dtype=sf.float32, vae=vae.to(sf.float32)
    )
    assert sf.diffusion.StableDiffusionPipeline.from_single_file(str(one_file), vae=vae).vae is vae
    call = {"num_inference_steps": 1, "generator": sf.Generator().manual_seed(1), "output_type": "np"}
    call["guidance_scale"] = 4
    drawn = passed("red square", **call).images[0]
    call["generator"] = sf.Generator().manual_seed(1)
    assert (drawn != pipe("red square", **call).images[0]).any()
    shown = sf.io.read_image(str(again)).numpy().transpose(1, 2, 0) / 255
    assert abs(shown - drawn).max() < 0.01
    wide = {k: sf.cat([v, v], 1) if k == "decoder.conv_in.weight" else v for k, v in weights.items()}
    sf.safetensors.save_file(wide, str(tmp_path / "wide.safetensors"))
    asked = ("txt2img", "red square", "-q", "-m", model, "-o", tmp_path / "c.png", "--vae")
    refused(run(*asked, tmp_path / "wide.safetensors"), "has latents of 8 channels, and the model's have 4")
    refused(run(*asked, "braun"), "--vae: there is no 'braun'")
    refused(run(*asked, model / "unet"), "vae")
    assert not (tmp_path / "c.png").exists()


def sparse(path, shapes, dtype="F16"):
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + at)


UNET = "model.diffusion_model.input_blocks."


def test_models_lists_what_is_there(run, home, model):
    sparse(
        below(home, "ComfyUI/models/checkpoints/dream.safetensors"),
        {
            UNET + "0.0.weight": [320, 4, 3, 3],
            UNET + "4.1.transformer_blocks.0.attn2.to_k.weight": [640, 2048],
            "conditioner.embedders.1.model.positional_embedding": [77, 1280],
            "first_stage_model.decoder.conv_out.weight": [3, 128, 3, 3],
        },
    )
    sparse(
        below(home, "stable-diffusion-webui/models/Lora/ink.safetensors"),
        {"lora_unet_x_attn2_to_k.lora_down.weight": [4, 768], "lora_unet_x_attn2_to_k.lora_up.weight": [320, 4]},
    )
    sf.save(
        {"params_ema": {"conv_first.weight": sf.ones(4, 3, 3, 3), "body.0.rdb1.conv1.weight": sf.ones(4, 4, 3, 3)}},
        below(home, "ComfyUI/models/upscale_models/4x.pth"),
    )
    shutil.copytree(model, below(home, "ComfyUI/models/diffusers/squares"))
    found = {row["name"]: row for row in listed(run) if row["program"] != "scaffolding"}
    told = {name: (row["kind"], row["title"], row["precision"]) for name, row in found.items()}
    assert told == {
        "squares": ("pipeline", "StableDiffusionPipeline", "float16"),
        "dream": ("model", "Stable Diffusion XL", "float16"),
        "ink": ("lora", "LoRA for Stable Diffusion 1.x", "float16"),
        "4x": ("upscaler", "ESRGAN upscaler (RRDB)", "float32"),
    }
    assert found["dream"]["program"] == "ComfyUI" and found["dream"]["place"] == "checkpoints/dream.safetensors"
    assert found["dream"]["bytes"] == os.path.getsize(found["dream"]["path"])
    assert [row["kind"] for row in listed(run)][-3:] == ["model", "lora", "upscaler"]  # sorted by kind
    assert [row["name"] for row in listed(run, "--kind", "lora")] == ["ink"]
    assert [row["name"] for row in listed(run, "--kind", "xl")] == ["dream"]
    assert {row["name"] for row in listed(run, "upscale")} == {"4x"}
    lines = run("models", "--kind", "model").stdout.splitlines()
    assert len(lines) == 1 and lines[0].split()[:5] == ["dream", "Stable", "Diffusion", "XL", "float16"]
    assert lines[0].endswith(str(home / "ComfyUI/models/checkpoints/dream.safetensors"))
    nothing = run("models", "--kind", "embedding")
    assert nothing.returncode == 0 and nothing.stdout == "" and "no models of that kind" in nothing.stderr


def test_hostile_files_are_rows(run, home):
    folder = below(home, "ComfyUI/models/checkpoints/x").parent
    sparse(folder / "good.safetensors", {UNET + "0.0.weight": [320, 4, 3, 3]})
    (folder / "short.safetensors").write_bytes(b"abc")
    (folder / "text.ckpt").write_text("<html>not found</html>")
    (folder / "long.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{")
    (folder / "header.safetensors").write_bytes(struct.pack("<Q", 90_000_000) + b"{")
    os.truncate(folder / "header.safetensors", 95_000_000)
    (folder / "deep.safetensors").write_bytes(struct.pack("<Q", 100_000) + b"[" * 100_000)
    (folder / "line\nbreak\x1b[31m.safetensors").write_bytes(b"abc")
    with zipfile.ZipFile(folder / "bomb.ckpt", "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data.pkl", bytes(200_000_000))
    (folder / "pickle.pt").write_bytes(b"\x80\x02cos\nsystem\nX\x0a\x00\x00\x00touch ownedq\x00\x85R.")
    os.mkfifo(folder / "fifo.safetensors")
    os.symlink("/dev/zero", folder / "zero.ckpt")
    os.symlink(folder, folder / "again")
    os.symlink("loop.pt", folder / "loop.pt")
    (folder / "pipe").mkdir()
    (folder / "pipe/model_index.json").write_text("[" * 1000)
    text = run("models")
    lines = text.stdout.splitlines()
    assert text.returncode == 0 and "\x1b" not in text.stdout and sum("line\\nbreak" in line for line in lines) == 1
    (folder / b"bytes\xff.safetensors".decode("utf8", "surrogateescape")).write_bytes(b"abc")
    started = time.monotonic()
    rows = {row["place"]: row for row in listed(run) if row["program"] == "ComfyUI"}
    assert time.monotonic() - started < 10
    assert len(rows) == 11 and all(len(row.get("problem", "").splitlines()) <= 1 for row in rows.values())
    assert rows.pop("checkpoints/good.safetensors")["kind"] == "part"
    assert rows.pop("checkpoints/pickle.pt")["kind"] == "other"
    assert {row["kind"] for row in rows.values()} == {"broken"} and all(row["problem"] for row in rows.values())
    assert "is deflated" in rows["checkpoints/bomb.ckpt"]["problem"]
    assert "at most 16777216 are looked at" in rows["checkpoints/header.safetensors"]["problem"]


def test_a_checkpoints_directory_is_all_that_is_read(run, home):
    """Of a .ckpt the tensors' bytes are neither looked at nor inflated: that their checksum is wrong is not found."""
    path = below(home, "ComfyUI/models/checkpoints/a.ckpt")
    sf.save({"state_dict": {UNET + "0.0.weight": sf.ones(320, 4, 3, 3)}, "global_step": 1}, path)
    sound = path.read_bytes()
    data = bytearray(sound)
    at = data.find(struct.pack("<f", 1.0) * 8)
    data[at : at + 8] = b"\0" * 8
    path.write_bytes(data)
    assert [row["title"] for row in listed(run, "--kind", "part")] == ["Stable Diffusion 1.x, its UNet alone"]
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sound)) as old, zipfile.ZipFile(packed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name), zipfile.ZIP_DEFLATED if "/data/" in name else zipfile.ZIP_STORED)
    path.write_bytes(packed.getvalue())
    assert [row["title"] for row in listed(run, "--kind", "part")] == ["Stable Diffusion 1.x, its UNet alone"]


def test_ten_thousand_files(run, home):
    """Prints what a name and a list take; times fail no test."""
    shapes = {"lora_unet_x.lora_down.weight": [4, 768], "lora_unet_x.lora_up.weight": [320, 4]}
    for i in range(10_000):
        sparse(below(home, f"ComfyUI/models/loras/{i // 100}/style {i}.safetensors"), shapes)
    started = time.monotonic()
    done = run("txt2img", "x", "-m", "style 9999 of another kind")
    named = time.monotonic() - started
    refused(done, "--model: there is no 'style 9999 of another kind'")
    started = time.monotonic()
    assert len(listed(run, "--kind", "lora")) == 10_000
    print(
        f"\n10 000 files: a name {named:.2f} s, the list {time.monotonic() - started:.2f} s, with the program's start"
    )
