"""Model repositories of the Hugging Face hub: found in the cache on this machine, downloaded into it where that is
allowed.

The cache is the one of huggingface_hub, in the same place and with the same layout, so that both share what either
downloaded. Downloads go on where an earlier one was cut and are compared with the file's checksum. Read from the
environment: HF_HUB_CACHE, HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, HF_HUB_DISABLE_PROGRESS_BARS,
HF_HUB_ETAG_TIMEOUT, HF_HUB_DOWNLOAD_TIMEOUT.

What cannot be had is a RuntimeError that says why and what to do; names that cannot be are a ValueError.
"""

import os
import sys
import time

from . import _core
from ._documents import describe as _describe
from ._missing import help_modules

KEYWORDS = ("revision", "cache_dir", "force_download", "token", "local_files_only")  # of whoever loads from it

__all__ = [
    "hf_hub_download",
    "list_repo_files",
    "model_file",
    "model_folder",
    "snapshot_download",
    "try_to_load_from_cache",
]

_hub = _core._hub


def _options(revision, cache_dir, token=None, local_files_only=False, force_download=False, endpoint=None, **more):
    options = _hub.Options()
    options.revision = revision or "main"
    options.cache_dir = os.fspath(cache_dir) if cache_dir is not None else ""
    if token is not None and token is not True:  # True: the environment's
        options.token = token or ""
    options.local_files_only = bool(local_files_only)
    options.force_download = bool(force_download)
    options.endpoint = endpoint or ""
    for name, value in more.items():
        setattr(options, name, value)
    return options


def _patterns(patterns):
    return [patterns] if isinstance(patterns, str) else list(patterns or [])


def _bytes(n):
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000


class _Bar:
    """The state of a download on one line of a terminal, from the first byte that is received on."""

    def __init__(self, name, stream=None):
        self.name, self.stream = name, stream or sys.stderr
        self.shown = self.start = 0
        self.begun = None
        self.wanted = self.stream is not None and self.stream.isatty() and not _hub.flag("HF_HUB_DISABLE_PROGRESS_BARS")

    def __call__(self, done, total, files, all_files):
        now = time.monotonic()
        if self.begun is None:
            self.begun, self.start = done, now
        if self.wanted and done > self.begun and now - self.shown >= 0.1:
            self.shown = now
            self.stream.write("\r" + self.text(done, total, files, all_files, now) + "\x1b[K")
            self.stream.flush()

    def text(self, done, total, files, all_files, now):
        speed = (done - self.begun) / max(now - self.start, 1e-3)
        parts = [f"{self.name}: {_bytes(done)}"]
        if total:
            parts[0] = f"{self.name}: {100 * done // total:3d} %  {_bytes(done)} of {_bytes(total)}"
        parts.append(f"{_bytes(speed)}/s")
        if total and speed > 0:
            left = int((total - done) / speed)
            parts.append(f"{left // 60}:{left % 60:02d} left")
        if all_files > 1:
            parts.append(f"{files} of {all_files} files")
        return "  ".join(parts)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.shown:
            self.stream.write("\n")


def hf_hub_download(
    repo_id,
    filename,
    *,
    subfolder=None,
    revision=None,
    cache_dir=None,
    force_download=False,
    token=None,
    local_files_only=False,
    endpoint=None,
):
    """The path of a repository's file in the cache, downloaded if it is not there or changed.

    repo_id: "organisation/name". revision: a branch ("main"), tag or commit. token: text, None or True for the
    environment's, False for none.
    Where the server does not answer, what is in the cache serves.
    """
    name = f"{subfolder}/{filename}" if subfolder else filename
    with _Bar(name) as bar:
        return _hub.download(
            repo_id, name, _options(revision, cache_dir, token, local_files_only, force_download, endpoint), bar
        )


def snapshot_download(
    repo_id,
    *,
    revision=None,
    cache_dir=None,
    force_download=False,
    token=None,
    local_files_only=False,
    allow_patterns=None,
    ignore_patterns=None,
    max_workers=8,
    endpoint=None,
):
    """The folder with a repository's files in the cache, all or those that the patterns let through ("*.json",
    "unet/"; * crosses folders).
    """
    options = _options(
        revision,
        cache_dir,
        token,
        local_files_only,
        force_download,
        endpoint,
        allow_patterns=_patterns(allow_patterns),
        ignore_patterns=_patterns(ignore_patterns),
        max_workers=max_workers,
    )
    with _Bar(repo_id) as bar:
        return _hub.snapshot(repo_id, options, bar)


def list_repo_files(repo_id, *, revision=None, cache_dir=None, token=None, local_files_only=False, endpoint=None):
    """The names of a repository's files."""
    return _hub.list_files(repo_id, _options(revision, cache_dir, token, local_files_only, False, endpoint))


def try_to_load_from_cache(repo_id, filename, cache_dir=None, revision=None):
    """The path of a file in the cache, or None; never asks the network.

    >>> sf.hub.try_to_load_from_cache("organisation/name", "config.json", cache_dir="cache")
    """
    return _hub.find_in_cache(repo_id, filename, _options(revision, cache_dir))


def model_folder(
    name_or_path,
    *,
    subfolder=None,
    variant=None,
    use_safetensors=None,
    passed_components=(),
    revision=None,
    cache_dir=None,
    force_download=False,
    token=None,
    local_files_only=False,
    endpoint=None,
):
    """The folder that a pipeline or a component (subfolder="unet") is loaded from: a folder as it is, or a repository
    of the hub, of which the needed files are downloaded by diffusers' rules: safetensors where every component has
    them, files of the variant ("fp16") before plain ones, nothing for passed_components."""
    options = _options(revision, cache_dir, token, local_files_only, force_download, endpoint)
    with _Bar(os.fspath(name_or_path)) as bar:
        return _hub.model_folder(
            os.fspath(name_or_path),
            options,
            subfolder or "",
            variant or "",
            use_safetensors,
            list(passed_components),
            bar,
        )


def model_file(
    path_or_link,
    *,
    revision=None,
    cache_dir=None,
    force_download=False,
    token=None,
    local_files_only=False,
    endpoint=None,
):
    """The path of a checkpoint file: a file as it is, or one of a repository of the hub by its page's address
    ("https://huggingface.co/organisation/name/blob/main/file.safetensors") or as "organisation/name/file.safetensors".

    >>> sf.safetensors.save_file({"weight": sf.ones(1)}, "model.safetensors")
    >>> sf.hub.model_file("model.safetensors")
    'model.safetensors'
    """
    link = os.fspath(path_or_link)
    options = _options(revision, cache_dir, token, local_files_only, force_download, endpoint)
    with _Bar(link.rsplit("/", 1)[-1]) as bar:
        return _hub.model_file(link, options, bar)


_describe(globals())
help_modules()  # this one is imported after the others
