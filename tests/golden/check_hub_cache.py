"""Shows that scaffolding.hub and huggingface_hub share one cache: each accepts what the other downloaded, from the
server of the tests.

    PYTHONPATH=build/dev/python PYTHON_WITH_HUGGINGFACE_HUB tests/golden/check_hub_cache.py

For development; the tests themselves never import huggingface_hub.
"""

import json
import os
import pathlib
import random
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "python"))
from hub_server import COMMIT, Server

REPO = "org/tiny"
server = Server(
    {REPO: {"config.json": b"{}", "unet/model.safetensors": random.Random(1).randbytes(300_000), "README.md": b"words"}}
)
home = tempfile.mkdtemp()
os.environ |= {"HF_HOME": home, "HF_ENDPOINT": server.url, "HF_HUB_DISABLE_XET": "1"}

import huggingface_hub  # noqa: E402

from scaffolding import hub  # noqa: E402


def files(folder):
    """Every file and link of a cache but for locks, whose text does not matter, with its bytes or where it leads."""
    paths = [p for p in pathlib.Path(folder).rglob("*") if p.is_symlink() or p.is_file()]
    kept = [p for p in paths if ".locks" not in p.parts and p.name not in ("CACHEDIR.TAG", ".check_for_update_done")]
    return {str(p.relative_to(folder)): os.readlink(p) if p.is_symlink() else p.read_bytes() for p in kept}


ours, theirs = os.path.join(home, "ours"), os.path.join(home, "theirs")
hub.snapshot_download(REPO, cache_dir=ours)
huggingface_hub.snapshot_download(REPO, cache_dir=theirs)
for download, cache in ((hub.hf_hub_download, ours), (huggingface_hub.hf_hub_download, theirs)):
    try:
        download(REPO, "none.json", cache_dir=cache)
    except Exception as e:
        print(type(e).__name__, str(e).splitlines()[0])
a, b = files(ours), files(theirs)
for content in (a, b):  # JSON, in which the order of keys does not matter
    content["tree"] = json.loads(content.pop(f"models--org--tiny/trees/{COMMIT}.json"))
assert a == b, (sorted(a), sorted(b))
print(len(a), "files and links are equal")

before = len(server.requests)
for cache in (ours, theirs):
    path = huggingface_hub.try_to_load_from_cache(REPO, "unet/model.safetensors", cache_dir=cache)
    assert path == hub.try_to_load_from_cache(REPO, "unet/model.safetensors", cache_dir=cache) and os.path.isfile(path)
    assert (
        huggingface_hub.try_to_load_from_cache(REPO, "none.json", cache_dir=cache) is huggingface_hub._CACHED_NO_EXIST
    )
    folder = huggingface_hub.snapshot_download(REPO, cache_dir=cache, local_files_only=True)
    assert folder == hub.snapshot_download(REPO, cache_dir=cache, local_files_only=True)
    assert sorted(f.path for f in huggingface_hub.get_cached_repo_tree(REPO, cache_dir=cache)) == sorted(
        hub.list_repo_files(REPO, cache_dir=cache, local_files_only=True)
    )
assert len(server.requests) == before
print("each reads the other's cache without a request: huggingface_hub", huggingface_hub.__version__)
server.close()
