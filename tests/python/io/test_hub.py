"""scaffolding.hub against a server on loopback: downloads, faults, the cache's layout, which files a model needs."""

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import pytest
from hub_server import COMMIT, Server, etag_of, on_a_fresh_port

import scaffolding as sf
from scaffolding import hub

CONFIG = b'{"_class_name": "Tiny"}'
WEIGHTS = random.Random(1).randbytes(300_000)
REPO = "org/tiny"


@pytest.fixture(scope="module")
def libcurl():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "_options", quick(hub._options))
        try:
            hub.list_repo_files(REPO, endpoint="http://127.0.0.1:9", cache_dir="/nonexistent")
        except NotImplementedError as e:
            pytest.skip(str(e))
        except RuntimeError:
            pass


@pytest.fixture
def server(libcurl, tmp_path, monkeypatch):
    for name in [n for n in os.environ if n.startswith(("HF_", "HUGGING")) or n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    server = Server({REPO: {"config.json": CONFIG, "unet/model.safetensors": WEIGHTS, "README.md": b"words"}})
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr(hub, "_options", quick(hub._options))
    yield server
    server.close()


def quick(make):
    def options(*args, **more):
        made = make(*args, **more)
        made.retry_wait = 0.01
        return made

    return options


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "home" / "hub" / "models--org--tiny"


def tree(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def test_a_file_is_downloaded_into_the_shared_layout(server, cache):
    path = hub.hf_hub_download(REPO, "model.safetensors", subfolder="unet")
    assert path == str(cache / "snapshots" / COMMIT / "unet/model.safetensors") and open(path, "rb").read() == WEIGHTS
    sha = etag_of(WEIGHTS, True)
    assert os.readlink(path) == f"../../../blobs/{sha}"
    assert (cache / "refs/main").read_text() == COMMIT
    assert tree(cache) == [f"blobs/{sha}", "refs/main", f"snapshots/{COMMIT}/unet/model.safetensors"]
    assert (cache.parent / ".locks/models--org--tiny" / f"{sha}.lock").exists()
    assert (cache.parent / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    small = hub.hf_hub_download(REPO, "config.json")
    assert os.readlink(small) == f"../../blobs/{etag_of(CONFIG, False)}" and open(small, "rb").read() == CONFIG


def test_what_is_there_is_not_downloaded_again(server):
    path = hub.hf_hub_download(REPO, "unet/model.safetensors")
    assert hub.hf_hub_download(REPO, "unet/model.safetensors") == path
    assert len(server.sent("store", "GET")) == 1
    before = len(server.requests)
    assert hub.hf_hub_download(REPO, "unet/model.safetensors", revision=COMMIT) == path
    assert (
        hub.try_to_load_from_cache(REPO, "unet/model.safetensors") == path
        and hub.try_to_load_from_cache(REPO, "config.json") is None
    )
    assert len(server.requests) == before  # a commit never changes
    assert hub.hf_hub_download(REPO, "unet/model.safetensors", force_download=True) == path
    assert len(server.sent("store", "GET")) == 2


def test_a_changed_file_gets_a_snapshot_of_its_own(server, cache):
    hub.hf_hub_download(REPO, "config.json")
    server.commit = "f" * 40
    server.repos[REPO]["config.json"] = b"{}"
    path = hub.hf_hub_download(REPO, "config.json")
    assert open(path, "rb").read() == b"{}" and ("f" * 40) in path and (cache / "refs/main").read_text() == "f" * 40
    assert (cache / "snapshots" / COMMIT / "config.json").read_bytes() == CONFIG


def test_tags_and_snapshots(server, cache):
    folder = hub.snapshot_download(REPO, revision="v1.0", ignore_patterns="*.md")
    assert folder == str(cache / "snapshots" / COMMIT) and (cache / "refs/v1.0").read_text() == COMMIT
    assert tree(pathlib.Path(folder)) == ["config.json", "unet/model.safetensors"]
    listed = json.loads((cache / f"trees/{COMMIT}.json").read_text())
    assert listed["format_version"] == 1
    assert listed["files"]["unet/model.safetensors"] == {
        "size": len(WEIGHTS),
        "blob_id": etag_of(WEIGHTS, False),
        "lfs_sha256": etag_of(WEIGHTS, True),
        "lfs_size": len(WEIGHTS),
    }
    assert hub.list_repo_files(REPO) == ["config.json", "unet/model.safetensors", "README.md"]
    assert tree(pathlib.Path(hub.snapshot_download(REPO, allow_patterns=["README.md", "unet/"]))) == [
        "README.md",
        "config.json",
        "unet/model.safetensors",
    ]
    with pytest.raises(RuntimeError, match="none of the 3 files"):
        hub.snapshot_download(REPO, allow_patterns="*.gguf")


# ---- connections


@pytest.mark.parametrize("cuts", [[1000], [0, 299_999], [100_000, 1, 1, 1, 1, 1, 1, 1]])
def test_a_cut_download_goes_on(server, cuts):
    server.cut["unet/model.safetensors"] = list(cuts)
    assert open(hub.hf_hub_download(REPO, "unet/model.safetensors"), "rb").read() == WEIGHTS
    ranges = [h.get("Range") for _, h in server.sent("store", "GET")]
    assert (
        len(ranges) == len(cuts) + 1
        and ranges[0] is None
        and ranges[-1] == (f"bytes={sum(cuts)}-" if sum(cuts) else None)
    )


def test_the_next_call_goes_on(server, cache):
    server.cut["unet/model.safetensors"] = [70_000] + [0] * 6
    with pytest.raises(RuntimeError, match="broke off after 70000 bytes.*goes on from there"):
        hub.hf_hub_download(REPO, "unet/model.safetensors")
    assert (cache / "blobs" / f"{etag_of(WEIGHTS, True)}.incomplete").stat().st_size == 70_000
    assert open(hub.hf_hub_download(REPO, "unet/model.safetensors"), "rb").read() == WEIGHTS
    assert server.sent("store", "GET")[-1][1]["Range"] == "bytes=70000-" and not list(cache.glob("blobs/*.incomplete"))


@pytest.mark.parametrize("left", [b"\0" * 5000, WEIGHTS + b"more", WEIGHTS])
@pytest.mark.parametrize("ignore_range", [False, True])
def test_what_another_run_left(server, cache, left, ignore_range):
    server.ignore_range = ignore_range
    (cache / "blobs").mkdir(parents=True)
    (cache / "blobs" / f"{etag_of(WEIGHTS, True)}.incomplete").write_bytes(left)
    assert open(hub.hf_hub_download(REPO, "unet/model.safetensors"), "rb").read() == WEIGHTS
    assert len(server.sent("store", "GET")) == (
        0 if left == WEIGHTS else 2 if left == b"\0" * 5000 and not ignore_range else 1
    )


@pytest.mark.parametrize("file", ["config.json", "unet/model.safetensors"])
def test_a_wrong_checksum_is_found(server, cache, file):
    server.corrupt[file] = 1
    assert open(hub.hf_hub_download(REPO, file), "rb").read() == server.repos[REPO][file]
    server.corrupt[file] = 2
    with pytest.raises(RuntimeError, match="arrived twice with the checksum"):
        hub.hf_hub_download(REPO, file, force_download=True)
    assert all(p.stat().st_size == 0 for p in cache.glob("blobs/*.incomplete"))
    assert open(hub.hf_hub_download(REPO, file), "rb").read() == server.repos[REPO][file]


def test_trouble_is_waited_for(server):
    server.fail["hub"], server.fail["store"] = [503, 429, 500], [502, 504]
    assert open(hub.hf_hub_download(REPO, "unet/model.safetensors"), "rb").read() == WEIGHTS
    server.fail["hub"] = [500] * 7
    with pytest.raises(RuntimeError, match="refuses file 'config.json' of org/tiny \\(HTTP 500\\)"):
        hub.hf_hub_download(REPO, "config.json")


def test_the_cache_serves_while_the_server_does_not(server, monkeypatch):
    path = hub.hf_hub_download(REPO, "config.json")
    folder = hub.snapshot_download(REPO)
    server.fail["hub"] = [500] * 2
    assert hub.hf_hub_download(REPO, "config.json") == path and hub.snapshot_download(REPO) == folder
    server.close()
    assert hub.hf_hub_download(REPO, "config.json") == path and hub.snapshot_download(REPO) == folder
    with pytest.raises(RuntimeError, match=r"hub: HEAD http://127.0.0.1.*[Cc]onnect"):
        hub.hf_hub_download(REPO, "other.json")


@pytest.fixture
def silent(libcurl, tmp_path, monkeypatch):
    """The address of a server that never answers: its queue of connections is full."""
    for name in [n for n in os.environ if n.startswith(("HF_", "HUGGING")) or n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    with on_a_fresh_port(lambda: socket.create_server(("127.0.0.1", 0), backlog=0)) as held:
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(held.getsockname())
        time.sleep(0.1)
        with socket.socket() as one_more:
            one_more.settimeout(0.3)
            if one_more.connect_ex(held.getsockname()) == 0:
                pytest.skip("this system takes more connections than a server asks for")
        yield f"http://127.0.0.1:{held.getsockname()[1]}"
        for client in waiting:
            client.close()


def test_without_a_network_the_answer_comes_at_once(silent, tmp_path):
    def refused(ask, endpoint):
        begun = time.monotonic()
        with pytest.raises(RuntimeError, match=f"hub: .*{endpoint}.*; is there a network") as error:
            ask(endpoint)
        assert f"copy the repository's folder from another machine's cache into {tmp_path}/home/hub" in str(error.value)
        return time.monotonic() - begun

    calls = (
        lambda endpoint: hub.hf_hub_download(REPO, "config.json", endpoint=endpoint),
        lambda endpoint: hub.hf_hub_download("org/other", "model.safetensors", endpoint=endpoint),
        lambda endpoint: hub.snapshot_download(REPO, endpoint=endpoint),
        lambda endpoint: hub.model_folder(REPO, endpoint=endpoint),
        lambda endpoint: hub.model_file("org/tiny/model.safetensors", endpoint=endpoint),
    )
    assert refused(calls[0], silent) < 3
    assert sum(refused(ask, silent) for ask in calls) < 0.5  # it is remembered
    with on_a_fresh_port(lambda: socket.create_server(("127.0.0.1", 0))) as held:
        closed = f"http://127.0.0.1:{held.getsockname()[1]}"
    for endpoint in (closed, "http://nowhere.invalid"):
        assert refused(calls[0], endpoint) + refused(calls[3], endpoint) < 3


def test_only_the_hub_sees_the_token(server, monkeypatch, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/token").write_text("hf_file\n")
    for given, sent in [("hf_mine", "hf_mine"), (None, "hf_file"), (True, "hf_file"), (False, None)]:
        server.requests.clear()
        server.token = sent
        hub.hf_hub_download(REPO, "unet/model.safetensors", token=given, force_download=True)
        assert {h.get("Authorization") for _, h in server.sent("hub", "HEAD")} == {f"Bearer {sent}" if sent else None}
        assert all("Authorization" not in h for _, h in server.sent("store", "GET")) and server.sent("store", "GET")
    monkeypatch.setenv("HF_TOKEN", " hf_env ")
    server.token = "hf_env"
    hub.hf_hub_download(REPO, "config.json")
    with pytest.raises(RuntimeError, match="or the token may not read it") as error:
        hub.hf_hub_download(REPO, "README.md", token="hf_secret")
    assert "hf_secret" not in str(error.value)
    with pytest.raises(ValueError, match="character that no token has"):
        hub.hf_hub_download(REPO, "README.md", token="a\nX-Evil: 1")


def test_a_certificate_that_nobody_vouches_for(server, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("needs the program openssl to make a certificate")
    key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ed25519",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
    ]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.hub.socket = context.wrap_socket(server.hub.socket, server_side=True)
    with pytest.raises(RuntimeError, match="hub: HEAD https://127.0.0.1.*certificate.*ca-certificates"):
        hub.hf_hub_download(REPO, "config.json", endpoint=server.url.replace("http:", "https:"))
    assert not server.requests


def test_the_store_may_refuse(server):
    server.fail["store"] = [403]
    with pytest.raises(RuntimeError, match="where http.* keeps the file, refuses to send it \\(HTTP 403\\)"):
        hub.hf_hub_download(REPO, "unet/model.safetensors")
    hub.hf_hub_download(REPO, "unet/model.safetensors")


def test_refusals_say_what_to_do(server, cache):
    server.errors = {"org/gated": (403, "GatedRepo"), "org/gone": (404, "RepoNotFound"), "org/odd": (418, "")}
    cases = {
        (
            "org/private",
            "a",
        ): "does not exist at http.*, or is private \\(HTTP 401\\): check the name; for a private one set HF_TOKEN",
        ("org/gated", "a"): "is gated \\(HTTP 403\\): ask for access at http.*/org/gated and set HF_TOKEN",
        ("org/gone", "a"): "does not exist",
        ("org/odd", "a"): "refuses file 'a' of org/odd \\(HTTP 418\\)",
        (REPO, "none.json"): "org/tiny has no file 'none.json' \\(HTTP 404\\)",
    }
    for (repo, file), message in cases.items():
        with pytest.raises(RuntimeError, match=message):
            hub.hf_hub_download(repo, file)
    assert (cache / ".no_exist" / COMMIT / "none.json").read_bytes() == b""  # as huggingface_hub notes it
    with pytest.raises(RuntimeError, match="no such branch, tag or commit"):
        hub.hf_hub_download(REPO, "config.json", revision="nope")
    with pytest.raises(RuntimeError, match="is gated"):
        hub.snapshot_download("org/gated")


def test_offline(server, cache, monkeypatch):
    path = hub.hf_hub_download(REPO, "config.json")
    before = len(server.requests)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hub.hf_hub_download(REPO, "config.json") == path
    assert hub.snapshot_download(REPO) == os.path.dirname(path)  # nobody knows what else there should be
    with pytest.raises(
        RuntimeError,
        match=(
            "file 'README.md' of org/tiny is not on this machine.*HF_HUB_OFFLINE is set; expected "
            f".*{COMMIT}.*copy the folder"
        ),
    ):
        hub.hf_hub_download(REPO, "README.md")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    for download in (
        lambda r: hub.snapshot_download(r, local_files_only=True),
        lambda r: hub.model_folder(r, local_files_only=True),
    ):
        with pytest.raises(
            RuntimeError,
            match=(
                "local_files_only is set; expected .*/models--org--other/refs/main.*copy the folder "
                "models--org--other into"
            ),
        ):
            download("org/other")
    with pytest.raises(ValueError, match="force_download needs the network"):
        hub.hf_hub_download(REPO, "config.json", local_files_only=True, force_download=True)
    assert len(server.requests) == before
    with pytest.raises(RuntimeError, match="HTTP 404"):
        hub.hf_hub_download(REPO, "none.json")
    with pytest.raises(RuntimeError, match="has no file 'none.json', as the server said"):
        hub.hf_hub_download(REPO, "none.json", local_files_only=True)
    hub.snapshot_download(REPO)
    (cache / "snapshots" / COMMIT / "README.md").unlink()
    with pytest.raises(RuntimeError, match="1 of the files \\(README.md\\)"):
        hub.snapshot_download(REPO, local_files_only=True)
    assert hub.snapshot_download(REPO, local_files_only=True, ignore_patterns=["*.md"])


def test_two_processes_download_one_file_once(server, tmp_path):
    server.slow = 0.002
    code = f"from scaffolding import hub; print(hub.hf_hub_download({REPO!r}, 'unet/model.safetensors'))"
    runs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    paths = {run.communicate()[0].strip() for run in runs}
    assert len(paths) == 1 and open(paths.pop(), "rb").read() == WEIGHTS
    assert len(server.sent("store", "GET")) == 1


def test_ctrl_c_ends_a_download(server):
    server.slow = 0.02
    code = f"from scaffolding import hub; print('ready', flush=True); hub.snapshot_download({REPO!r})"
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run.stdout.readline()
    time.sleep(0.5)
    run.send_signal(signal.SIGINT)
    begun = time.monotonic()
    assert "KeyboardInterrupt" in run.communicate(timeout=20)[1] and time.monotonic() - begun < 3


# ---- names from strangers


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../b", "a//b", "C:/x", "a\\b", "a/", "", "a\nb"])
def test_hostile_file_names(server, name, tmp_path):
    with pytest.raises(ValueError):
        hub.hf_hub_download(REPO, name)
    server.extra_files = [name]
    with pytest.raises(ValueError):
        hub.snapshot_download(REPO)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("repo", ["..", "a/b/c", "../x", "org/..", "a--b/c", "", "/x", "org/x.git", "-a/b", "org/a b"])
def test_hostile_repository_names(server, repo, tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")  # nothing lies beside it
    with pytest.raises(ValueError, match="a repository is called"):
        hub.snapshot_download(repo)
    with pytest.raises(ValueError, match="neither a folder nor a repository"):
        hub.model_folder(repo if repo != ".." else "./nowhere")


@pytest.mark.parametrize("revision", ["../../x", "/main", "a//b", "a b", ".", "x" * 300])
def test_hostile_revisions(server, revision):
    with pytest.raises(ValueError, match="a revision is"):
        hub.hf_hub_download(REPO, "config.json", revision=revision)


@pytest.mark.parametrize("commit", ["../../../evil", "", "main", "0" * 39 + "G"])
def test_hostile_commits(server, commit, tmp_path):
    server.commit = commit
    with pytest.raises(RuntimeError, match="does not answer as a hub does"):
        hub.hf_hub_download(REPO, "config.json")
    with pytest.raises(RuntimeError, match="names no commit"):
        hub.snapshot_download(REPO)
    assert not (tmp_path / "home").exists()


def test_a_link_in_the_place_of_the_bytes_is_not_followed(server, cache, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (cache / "blobs").mkdir(parents=True)
    (cache / "blobs" / f"{etag_of(CONFIG, False)}.incomplete").symlink_to(victim)
    with pytest.raises(RuntimeError, match="cannot create"):
        hub.hf_hub_download(REPO, "config.json")
    assert victim.read_text() == "precious"


# ---- which files a model is loaded from


def test_patterns_are_pythons():
    import fnmatch

    chance = random.Random(3)
    letters = "ab.*?[]!-/"
    for _ in range(5_000):
        pattern = "".join(chance.choices(letters, k=chance.randint(0, 7)))
        path = "".join(chance.choices("ab.-/[", k=chance.randint(0, 6)))
        try:
            expected = fnmatch.fnmatchcase(path, pattern)
        except Exception:  # Python's own translation of some sets is no regular expression
            continue
        assert sf._core._hub.matches_pattern(pattern, path) == expected, (pattern, path)


SD = [
    "model_index.json",
    "README.md",
    "v1-5-pruned.ckpt",
    "v1-5-pruned.safetensors",
    "scheduler/scheduler_config.json",
    "tokenizer/vocab.json",
    "tokenizer/merges.txt",
    "text_encoder/config.json",
    "text_encoder/model.safetensors",
    "text_encoder/pytorch_model.bin",
    "text_encoder/model.fp16.safetensors",
    "text_encoder/pytorch_model.fp16.bin",
    "unet/config.json",
    "unet/diffusion_pytorch_model.bin",
    "unet/diffusion_pytorch_model.safetensors",
    "unet/diffusion_pytorch_model.fp16.safetensors",
    "unet/diffusion_pytorch_model.non_ema.safetensors",
    "vae/config.json",
    "vae/diffusion_pytorch_model.bin",
    "vae/diffusion_pytorch_model.safetensors",
    "vae/diffusion_flax_model.msgpack",
    "vae_onnx/model.onnx",
]
FOLDERS = ["scheduler", "tokenizer", "text_encoder", "unet", "vae"]
ALWAYS = [
    "model_index.json",
    "scheduler/scheduler_config.json",
    "text_encoder/config.json",
    "tokenizer/merges.txt",
    "tokenizer/vocab.json",
]
ALWAYS += ["unet/config.json", "vae/config.json"]


def pipeline_files(files=SD, folders=FOLDERS, variant="", use_safetensors=None, passed=()):
    return sf._core._hub.pipeline_files(files, folders, variant, use_safetensors, list(passed))


def test_files_of_a_pipeline():
    weights = [
        "text_encoder/model.safetensors",
        "unet/diffusion_pytorch_model.safetensors",
        "vae/diffusion_pytorch_model.safetensors",
    ]
    assert pipeline_files() == sorted(ALWAYS + weights)
    # the VAE has no such file
    half = ["text_encoder/model.fp16.safetensors", "unet/diffusion_pytorch_model.fp16.safetensors", weights[2]]
    assert pipeline_files(variant="fp16") == sorted(ALWAYS + half)
    pickles = ["text_encoder/pytorch_model.bin", "unet/diffusion_pytorch_model.bin", "vae/diffusion_pytorch_model.bin"]
    assert pipeline_files(use_safetensors=False) == sorted(ALWAYS + pickles)
    without = [f for f in SD if f != "vae/diffusion_pytorch_model.safetensors"]
    assert pipeline_files(without) == sorted(ALWAYS + pickles)  # all or none, as in diffusers
    with pytest.raises(ValueError, match="use_safetensors is set, but there are none in vae"):
        pipeline_files(without, use_safetensors=True)
    assert not [f for f in pipeline_files(passed=["unet", "tokenizer"]) if f.startswith(("unet/", "tokenizer/"))]
    with pytest.raises(ValueError, match="no weights of variant 'bf16'"):
        pipeline_files(variant="bf16")


def test_files_in_shards():
    shards = [f"unet/diffusion_pytorch_model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    half = [f"unet/diffusion_pytorch_model.fp16-0000{i}-of-00002.safetensors" for i in (1, 2)]
    old = [f"unet/diffusion_pytorch_model-0000{i}-of-00002.bf16.safetensors" for i in (1, 2)]
    index = "unet/diffusion_pytorch_model.safetensors.index{}.json"
    rest = ["unet/config.json", "unet/diffusion_pytorch_model.bin", "unet/diffusion_pytorch_model.bin.index.json"]
    files = (
        shards
        + half
        + old
        + rest
        + [index.format(""), index.format(".fp16"), "unet/diffusion_pytorch_model.safetensors.bf16.index.json"]
    )
    assert pipeline_files(files, ["unet"]) == sorted([*shards, index.format(""), "unet/config.json"])
    assert pipeline_files(files, ["unet"], "fp16") == sorted([*half, index.format(".fp16"), "unet/config.json"])
    assert pipeline_files(files, ["unet"], "bf16") == sorted(
        [*old, "unet/diffusion_pytorch_model.safetensors.bf16.index.json", "unet/config.json"]
    )


def test_a_model_folder_has_what_is_needed(server, cache, tmp_path):
    index = {
        "_class_name": "StableDiffusionPipeline",
        "unet": ["diffusers", "UNet2DConditionModel"],
        "safety_checker": [None, None],
        "size": [1, 2],
    }
    index |= {name: ["transformers", "X"] for name in FOLDERS if name != "unet"}
    server.repos[REPO] = {name: name.encode() for name in SD} | {"model_index.json": json.dumps(index).encode()}
    folder = pathlib.Path(hub.model_folder(REPO, variant="fp16"))
    assert folder == cache / "snapshots" / COMMIT and tree(folder) == pipeline_files(variant="fp16")
    before = len(server.sent("hub", "GET"))
    # the list alone
    assert hub.model_folder(REPO, variant="fp16") == str(folder) and len(server.sent("hub", "GET")) == before + 1
    assert hub.model_folder(REPO, variant="fp16", local_files_only=True) == str(folder)
    with pytest.raises(RuntimeError, match="of the files \\(.*vae|of the files"):
        hub.model_folder(REPO, local_files_only=True)
    assert hub.model_folder(REPO, subfolder="vae") == str(folder / "vae")
    assert tree(folder / "vae") == ["config.json", "diffusion_pytorch_model.safetensors"]
    with pytest.raises(ValueError, match="there is no folder 'controlnet'; there are scheduler"):
        hub.model_folder(REPO, subfolder="controlnet")
    assert hub.model_folder(tmp_path) == str(tmp_path)
    with pytest.raises(ValueError, match="has no folder 'unet'"):
        hub.model_folder(tmp_path, subfolder="unet")
    with pytest.raises(ValueError, match="neither a folder nor a repository"):
        hub.model_folder(str(tmp_path / "nowhere"))


def test_a_checkpoint_by_its_address(server, cache, tmp_path):
    server.repos[REPO]["old/v1-5.ckpt"] = WEIGHTS[:999]
    path = str(cache / "snapshots" / COMMIT / "old/v1-5.ckpt")
    for link in (
        f"{REPO}/old/v1-5.ckpt",
        f"https://huggingface.co/{REPO}/blob/main/old/v1-5.ckpt",
        f"{server.url}/{REPO}/resolve/v1.0/old/v1-5.ckpt?download=true",
    ):
        assert hub.model_file(link) == path
    assert (cache / "refs/v1.0").exists() and hub.model_file(tmp_path) == str(tmp_path)
    for link in (
        "v1-5.ckpt",
        "org/tiny",
        "https://example.com/org/tiny/blob/main/a",
        f"{REPO}/",
        "/org/tiny/a",
        f"{REPO}/../a",
    ):
        with pytest.raises(ValueError):
            hub.model_file(link)


def test_a_model_from_the_hub(server, tmp_path, monkeypatch):
    model = sf.models.AutoencoderTiny(encoder_block_out_channels=(8, 8, 8, 8), decoder_block_out_channels=(8, 8, 8, 8))
    model.save_pretrained(tmp_path / "vae", variant="fp16")
    server.repos[REPO] |= {f"vae/{p.name}": p.read_bytes() for p in (tmp_path / "vae").iterdir()}
    again = sf.models.AutoencoderTiny.from_pretrained(REPO, subfolder="vae", variant="fp16")
    assert all(sf.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values()))
    sf.models.AutoencoderTiny.from_pretrained(REPO, subfolder="vae", variant="fp16", local_files_only=True)
    with pytest.raises(
        ValueError,
        match="there are no weights of variant 'bf16'; there are vae/diffusion_pytorch_model.fp16.safetensors",
    ):
        sf.models.AutoencoderTiny.from_pretrained(REPO, subfolder="vae", variant="bf16")
    with pytest.raises(RuntimeError, match="org/nothing does not exist"):
        sf.models.AutoencoderTiny.from_pretrained("org/nothing")


def test_the_progress_bar_is_for_terminals(server, capfd):
    hub.snapshot_download(REPO)
    assert capfd.readouterr() == ("", "")
    bar = hub._Bar("org/tiny")
    bar(1_000_000, 4_000_000, 0, 3)
    assert (
        bar.text(2_000_000, 4_000_000, 1, 3, bar.start + 2)
        == "org/tiny:  50 %  2.0 MB of 4.0 MB  500.0 kB/s  0:04 left  1 of 3 files"
    )
