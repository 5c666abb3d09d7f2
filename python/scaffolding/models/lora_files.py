"""Where a LoRA is: a file, a folder, a repository of the hub, or tensors at hand."""

import os
from collections.abc import Mapping

from .. import hub

SAVED_AS = "pytorch_lora_weights.safetensors"
_KNOWN = (SAVED_AS, "adapter_model.safetensors", "pytorch_lora_weights.bin", "adapter_model.bin")
_CONFIG = "adapter_config.json"  # PEFT's, beside its file
_NO_LORA = ("scheduler", "optimizer", "checkpoint")  # in names of what a training run leaves beside one
_IGNORED = ("low_cpu_mem_usage", "use_safetensors", "proxies", "_pipeline")


def source(who, given, kwargs):
    """A path, or a dict of tensors as it is. Takes its keywords out of kwargs; TypeError for others."""
    weight_name = kwargs.pop("weight_name", None)
    options = {k: kwargs.pop(k) for k in (*hub.KEYWORDS, "subfolder") if k in kwargs}
    for name in _IGNORED:
        kwargs.pop(name, None)
    if kwargs:
        raise TypeError(f"{who}: unexpected keyword argument '{next(iter(kwargs))}'")
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"{who}: the LoRA must be a path or a dict of tensors, got {type(given).__name__}")
    path = os.fspath(given)
    if os.path.isdir(path):
        path = os.path.join(path, options.pop("subfolder", None) or "")
        return os.path.join(path, weight_name) if weight_name else path.rstrip("/")
    if os.path.exists(path) or path.count("/") != 1 or path.endswith((".safetensors", ".bin", ".pt")):
        return path
    return _of_hub(who, path, weight_name, options)


def metadata(who, kwargs):
    """The keyword of that name, taken out: PEFT's fields for a dict of tensors. TypeError for another thing."""
    given = kwargs.pop("metadata", None)
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"{who}: metadata must be a dict of PEFT's fields, got {type(given).__name__}")
    return None if given is None else dict(given)


def _of_hub(who, repo, weight_name, options):
    """Of a repository's file, or of a folder with PEFT's for each component. Without weight_name as diffusers guesses:
    the names that programs give, or the only .safetensors there is.
    """
    folder = f"{options['subfolder']}/" if options.get("subfolder") else ""
    place = {k: v for k, v in options.items() if k != "subfolder"}
    if weight_name is None:
        weight_name = _chosen(who, repo, _files_of(repo, folder, place))
        if weight_name is None:
            patterns = [f"{folder}*/adapter_model.*", f"{folder}*/adapter_config.json"]
            return os.path.join(hub.snapshot_download(repo, allow_patterns=patterns, **place), folder).rstrip("/")
    directory, name = os.path.split(weight_name)
    config = os.path.join(directory, _CONFIG)
    if name.startswith("adapter_model.") and config in _files_of(repo, folder, place):
        hub.hf_hub_download(repo, config, **options)
    return hub.hf_hub_download(repo, weight_name, **options)


def _files_of(repo, folder, place):
    """Names in a repository's folder; of one that nobody can list now, those of the known ones that are cached."""
    options = {k: v for k, v in place.items() if k != "force_download"}
    try:
        files = hub.list_repo_files(repo, **options)
    except RuntimeError:
        where = {k: options[k] for k in ("cache_dir", "revision") if k in options}
        files = [folder + n for n in (*_KNOWN, _CONFIG) if hub.try_to_load_from_cache(repo, folder + n, **where)]
        if not files:
            raise
    return [f.removeprefix(folder) for f in files if f.startswith(folder)]


def _chosen(who, repo, files):
    """The file of a repository's folder that is the LoRA; None: there is one for each component below."""
    here = [f for f in files if "/" not in f]
    for name in _KNOWN:
        if name in here:
            return name
    found = [f for f in here if f.endswith(".safetensors") and not any(part in f for part in _NO_LORA)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(
            f"{who}: {repo} holds {len(found)} files that may be the LoRA, such as '{found[0]}' and '{found[1]}'; name "
            "one of them (weight_name=)"
        )
    if not any(f.count("/") == 1 and f.rsplit("/", 1)[1].startswith("adapter_model.") for f in files):
        raise ValueError(f"{who}: {repo} holds no LoRA: it has no {SAVED_AS} and no other .safetensors file")
    return None
