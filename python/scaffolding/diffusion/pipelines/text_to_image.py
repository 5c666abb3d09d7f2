"""Pictures by one function call: txt2img_sd21, txt2img_sdxl, img2img, and where their networks are put."""

import json
import os
import re

from ... import _core, hub
from ..._core import _models
from .auto_pipeline import AutoPipelineForImage2Image
from .pipeline import DiffusionPipeline

_MODELS = {"sd21": "stabilityai/stable-diffusion-2-1", "sdxl": "stabilityai/stable-diffusion-xl-base-1.0"}
_PARTS = {
    "unet": ("unet",),
    "decoder": ("vae",),
    "encoder": ("vae",),
    "text_encoder": ("text_encoder", "text_encoder_2"),
}
_GIGABYTES = {"sdxl": (10.0, 6.0), "sd21": (6.0, 4.0)}  # of GPU memory: for all networks, for the UNet alone
# The least GPU memory in GB, the parts on the GPU, how guidance calls the UNet, and when memory is given back.
_PROFILES = {
    "full_gpu": (16.0, ("unet", "decoder", "text_encoder", "encoder"), "batched", "none"),
    "balanced": (10.0, ("unet", "decoder"), "batched", "phase"),
    "gpu_poor": (6.0, ("unet",), "sequential", "phase"),
    "unet_gpu": (6.0, ("unet",), "sequential", "step"),
    "extreme": (0.0, ("unet",), "sequential", "step"),
    "cpu_only": (None, (), "sequential", "none"),
}
_SCHEDULERS = {
    "ddim": "DDIMScheduler",
    "ddpm": "DDPMScheduler",
    "euler": "EulerDiscreteScheduler",
    "euler_ancestral": "EulerAncestralDiscreteScheduler",
    "dpmsolver": "DPMSolverMultistepScheduler",
    "pndm": "PNDMScheduler",
    "heun": "HeunDiscreteScheduler",
    "unipc": "UniPCMultistepScheduler",
    "lcm": "LCMScheduler",
    "lms": "LMSDiscreteScheduler",
    "kdpm2": "KDPM2DiscreteScheduler",
    "kdpm2_ancestral": "KDPM2AncestralDiscreteScheduler",
    "dpmsolver_singlestep": "DPMSolverSinglestepScheduler",
    "deis": "DEISMultistepScheduler",
    "tcd": "TCDScheduler",
}


def _chosen(name, value, table):
    if value not in table:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, table))}, got {value!r}")
    return table[value]


def _gpu_gigabytes():
    from ... import cuda

    return cuda.get_device_properties(0)["total_memory"] / 1e9 if cuda.is_available() else None


def auto_devices(model="sdxl", strategy="auto"):
    """{"unet", "decoder", "text_encoder", "encoder"}: the device of each, by the GPU's memory.

    strategy: "full_gpu" (all on the GPU), "unet_gpu" (the UNet there, the rest on the CPU), "cpu_only", or "auto": SDXL
    needs 10 GB for the first and 6 GB for the second, SD 2.1 6 GB and 4 GB. ValueError for another model or strategy.

    >>> sf.diffusion.auto_devices("sdxl", strategy="cpu_only")
    {'unet': 'cpu', 'decoder': 'cpu', 'encoder': 'cpu', 'text_encoder': 'cpu'}
    """
    everything, unet = _chosen("auto_devices: model", model, _GIGABYTES)
    if strategy == "auto":
        memory = _gpu_gigabytes() or 0.0
        strategy = "full_gpu" if memory >= everything else "unet_gpu" if memory >= unet else "cpu_only"
    on_gpu = _chosen(
        "auto_devices: strategy", strategy, {"full_gpu": tuple(_PARTS), "unet_gpu": ("unet",), "cpu_only": ()}
    )
    return {part: "cuda" if part in on_gpu else "cpu" for part in _PARTS}


def resolve_profile(profile="auto", model="sdxl"):
    """The memory profile's name: "full_gpu", "balanced", "unet_gpu", "gpu_poor", "extreme" or "cpu_only";
    "auto" by the GPU's memory. DiffusionPipeline.memory_plan goes by what is free and by the call's shapes.
    """
    if profile != "auto":
        _chosen("resolve_profile: profile", profile, _PROFILES)
        return profile
    memory = _gpu_gigabytes()
    return "cpu_only" if memory is None else next(name for name, (least, *_) in _PROFILES.items() if memory >= least)


def get_profile_config(profile="auto", model="sdxl"):
    """What a profile means: {"profile", "devices", "guidance_mode", "cleanup"}.

    >>> sf.diffusion.get_profile_config("cpu_only", model="sdxl")["guidance_mode"]
    'sequential'
    """
    name = resolve_profile(profile, model)
    _, on_gpu, mode, cleanup = _PROFILES[name]
    return {
        "profile": name,
        "devices": {part: "cuda" if part in on_gpu else "cpu" for part in _PARTS},
        "guidance_mode": mode,
        "cleanup": cleanup,
    }


def models2devices(model_name, devices="auto", unet_dtype_str=None, download_models=False):
    """Where a model's parts go: {"model_name", "devices", "unet_dtype"}, for load_pipeline.

    devices: a device for all parts, a dict of some of "unet", "decoder", "text_encoder", "encoder" (the others go to
    the CPU), or "auto". unet_dtype_str: "float32", "float16" or "bfloat16"; absent: float16 on a GPU,
    the files' on the CPU.

    >>> sf.diffusion.models2devices("sd21", {"unet": "cpu"}, unet_dtype_str="bfloat16")["unet_dtype"]
    scaffolding.bfloat16
    """
    if devices == "auto":
        devices = auto_devices(model_name if model_name in _GIGABYTES else "sdxl")
    elif isinstance(devices, dict):
        for part in devices:
            _chosen("models2devices: devices", part, _PARTS)
        devices = {part: str(devices.get(part, "cpu")) for part in _PARTS}
    else:
        devices = {part: str(devices) for part in _PARTS}
    dtypes = {"float32": _core.float32, "float16": _core.float16, "bfloat16": _core.bfloat16}
    dtype = _chosen("models2devices: unet_dtype_str", unet_dtype_str, dtypes) if unet_dtype_str else None
    if dtype is None and devices["unet"].startswith("cuda"):
        dtype = _core.float16
    return {"model_name": model_name, "devices": devices, "unet_dtype": dtype, "download_models": download_models}


def load_from_hf(repo_id, subfolder=None, **kwargs):
    """The pipeline of a repository of the hub ("organisation/name", in the cache or downloaded) or of a folder; with
    subfolder="unet" that network alone.

    Keywords are those of from_pretrained. ValueError for a folder that holds neither.
    """
    if subfolder is None:
        return DiffusionPipeline.from_pretrained(repo_id, **kwargs)
    from ... import models

    place = {k: kwargs.pop(k) for k in hub.KEYWORDS if k in kwargs}
    folder = os.path.join(os.fspath(repo_id), subfolder)
    if not os.path.isdir(folder):
        folder = hub.model_folder(
            repo_id,
            subfolder=subfolder,
            variant=kwargs.get("variant"),
            use_safetensors=kwargs.get("use_safetensors"),
            **place,
        )
    config = _models.load_config(folder, "")
    name = config.get("_class_name") or next(iter(config.get("architectures") or []), None)
    if name not in _models.names():
        raise ValueError(
            f"load_from_hf: {os.path.join(folder, 'config.json')} is of {name}; there are {', '.join(_models.names())}"
        )
    return getattr(models, name).from_pretrained(folder, **kwargs)


def load_pipeline(model_name, m2d=None, i2i=False, **kwargs):
    """The pipeline of a model, for the functions below to use again: "sd21", "sdxl", a hub id or a folder. m2d: what
    models2devices says. i2i: for img2img.

    Other keywords are from_pretrained's.
    """
    m2d = m2d or models2devices(model_name)
    name = _MODELS.get(model_name, model_name)
    if not m2d["download_models"]:
        kwargs.setdefault("local_files_only", True)
    if m2d["unet_dtype"] is not None:
        kwargs.setdefault("torch_dtype", m2d["unet_dtype"])
    pipe = DiffusionPipeline.from_pretrained(name, **kwargs)
    for part, device in m2d["devices"].items():
        for component in _PARTS[part]:
            module = getattr(pipe, component, None)
            if module is not None and not (part == "encoder" and m2d["devices"]["decoder"] != device):
                module.to(device)
    if not i2i:
        return pipe
    return AutoPipelineForImage2Image.from_pipe(pipe)


def _pipeline(pipeline, model_name, i2i, devices, unet_dtype_str, download_models, scheduler):
    if pipeline is None:
        pipeline = load_pipeline(model_name, models2devices(model_name, devices, unet_dtype_str, download_models), i2i)
    elif i2i:
        pipeline = AutoPipelineForImage2Image.from_pipe(pipeline)
    if scheduler is not None:
        from .. import schedulers

        cls = getattr(schedulers, _chosen("scheduler", scheduler, _SCHEDULERS))
        if type(pipeline.scheduler) is not cls:
            pipeline = type(pipeline).from_pipe(pipeline, scheduler=cls.from_config(pipeline.scheduler.config))
    return pipeline


def _finish(pictures, prompt, model_name, save_file, filename, metadata_path, metadata):
    """{"image", "metadata"}, with the files that were asked for."""
    image = pictures[0] if len(pictures) == 1 else pictures
    if save_file:
        from ...data.image import write_image
        from .image_processor import VaeImageProcessor

        if filename is None:
            words = re.sub(r"[^A-Za-z0-9]+", "_", prompt if isinstance(prompt, str) else prompt[0]).strip("_")[:50]
            filename = f"{model_name if model_name in _MODELS else 'picture'}_{words or 'picture'}.png"
        made = VaeImageProcessor.numpy_to_pictures(pictures)
        stem, suffix = os.path.splitext(os.fspath(filename))
        names = [filename] if len(made) == 1 else [f"{stem}_{i}{suffix}" for i in range(len(made))]
        for name, picture in zip(names, made):
            write_image(name, picture)
        metadata["filename"] = [os.fspath(n) for n in names]
    if metadata_path is not None:
        with open(metadata_path, "w", encoding="utf-8") as f:
            json.dump(metadata, f, indent=1)
            f.write("\n")
    return {"image": image, "metadata": metadata}


def _generate(
    pipe,
    model_name,
    prompt,
    negative_prompt,
    arguments,
    memory_profile,
    seed,
    save_file,
    filename,
    metadata_path,
    verbose,
):
    metadata = {
        "model": model_name,
        "prompt": prompt,
        "negative_prompt": negative_prompt,
        "seed": seed,
        "scheduler": type(pipe.scheduler).__name__,
    }
    metadata |= {k: v for k, v in arguments.items() if isinstance(v, (int, float, str))}
    if memory_profile is not None:
        arguments["guidance_mode"] = get_profile_config(memory_profile)["guidance_mode"]
    before = pipe._progress_bar_config
    pipe.set_progress_bar_config(disable=None if verbose else True)
    try:
        images = pipe(
            prompt=prompt,
            negative_prompt=negative_prompt,
            seed=seed,
            output_type="np",
            **{k: v for k, v in arguments.items() if v is not None},
        ).images
    finally:
        pipe._progress_bar_config = before
    return _finish(images, prompt, model_name, save_file, filename, metadata_path, metadata)


def _txt2img(model_name, prompt, negative_prompt, img_dim, pipeline, devices, memory_profile, unet_dtype_str,
             download_models, scheduler, timesteps, initial_latents, num_inference_steps, guidance_scale, seed,
             save_file, filename, metadata_path, verbose, kwargs):  # fmt: skip
    if memory_profile is not None and devices == "auto":
        devices = get_profile_config(memory_profile)["devices"]
    pipe = _pipeline(
        pipeline,
        kwargs.pop("diffusers_dir", None) or model_name,
        False,
        devices,
        unet_dtype_str,
        download_models,
        scheduler,
    )
    for name in [k for k in kwargs if k.startswith("use_native_")]:
        kwargs.pop(name)  # every network is native
    width, height = img_dim if isinstance(img_dim, (list, tuple)) else (img_dim, img_dim)
    arguments = {
        "height": height,
        "width": width,
        "num_inference_steps": num_inference_steps,
        "guidance_scale": guidance_scale,
    }
    arguments |= {"timesteps": timesteps, "latents": initial_latents, **kwargs}
    return _generate(
        pipe,
        model_name,
        prompt,
        negative_prompt,
        arguments,
        memory_profile,
        seed,
        save_file,
        filename,
        metadata_path,
        verbose,
    )


def txt2img_sd21(
    prompt,
    negative_prompt=None,
    img_dim=768,
    pipeline=None,
    devices="auto",
    memory_profile=None,
    unet_dtype_str=None,
    download_models=False,
    scheduler="ddim",
    timesteps=None,
    initial_latents=None,
    num_inference_steps=50,
    guidance_scale=7.5,
    seed=None,
    save_file=True,
    filename=None,
    metadata_path=None,
    verbose=True,
    **kwargs,
):
    """A picture with Stable Diffusion 2.1: {"image": array [H, W, 3] in [0, 1], "metadata": dict}.

    img_dim: pixels each way, or (width, height). pipeline: one that load_pipeline made; absent, the model is read from
    the hub's cache, or downloaded with download_models=True, or read from the folder diffusers_dir. devices: see
    models2devices. memory_profile: see get_profile_config. save_file: a PNG is written, named after the prompt where no
    filename is given. metadata_path: a JSON file with what made the picture.
    Other keywords are the pipeline's (num_images_per_prompt, clip_skip, callback_on_step_end, ...).

    >>> made = sf.diffusion.txt2img_sd21("a red apple", seed=7, filename="apple.png")  # doctest: +SKIP
    """
    return _txt2img("sd21", prompt, negative_prompt, img_dim, pipeline, devices, memory_profile, unet_dtype_str,
                    download_models, scheduler, timesteps, initial_latents, num_inference_steps, guidance_scale, seed,
                    save_file, filename, metadata_path, verbose, kwargs)  # fmt: skip


def txt2img_sdxl(
    prompt,
    negative_prompt=None,
    img_dim=1024,
    pipeline=None,
    devices="auto",
    memory_profile=None,
    unet_dtype_str=None,
    download_models=False,
    scheduler="ddim",
    timesteps=None,
    initial_latents=None,
    num_inference_steps=30,
    guidance_scale=7.5,
    seed=None,
    save_file=True,
    filename=None,
    metadata_path=None,
    verbose=True,
    **kwargs,
):
    """A picture with SDXL; arguments as in txt2img_sd21."""
    return _txt2img("sdxl", prompt, negative_prompt, img_dim, pipeline, devices, memory_profile, unet_dtype_str,
                    download_models, scheduler, timesteps, initial_latents, num_inference_steps, guidance_scale, seed,
                    save_file, filename, metadata_path, verbose, kwargs)  # fmt: skip


def img2img(
    input_image,
    prompt,
    negative_prompt=None,
    img_dim=512,
    pipeline=None,
    model_name="sd21",
    devices="auto",
    memory_profile=None,
    unet_dtype_str=None,
    download_models=False,
    scheduler="ddim",
    num_inference_steps=50,
    strength=0.8,
    guidance_scale=7.5,
    seed=None,
    save_file=True,
    filename=None,
    metadata_path=None,
    verbose=True,
    **kwargs,
):
    """A picture changed by a prompt. input_image: a file's path, a PIL picture, an array or a tensor (see
    VaeImageProcessor), resized to img_dim.

    strength, in [0, 1]: how far the result may be from it. model_name: "sd21", "sdxl", a hub id or a folder.
    The rest is as in txt2img_sd21.
    """
    if memory_profile is not None and devices == "auto":
        devices = get_profile_config(memory_profile)["devices"]
    pipe = _pipeline(
        pipeline,
        kwargs.pop("diffusers_dir", None) or model_name,
        True,
        devices,
        unet_dtype_str,
        download_models,
        scheduler,
    )
    for name in [k for k in kwargs if k.startswith("use_native_")]:
        kwargs.pop(name)
    if isinstance(input_image, (str, os.PathLike)):
        from ...data.image import read_image

        input_image = read_image(input_image, "RGB")
    width, height = img_dim if isinstance(img_dim, (list, tuple)) else (img_dim, img_dim)
    image = (pipe.image_processor.preprocess(input_image, height, width) + 1) / 2
    arguments = {
        "image": image,
        "num_inference_steps": num_inference_steps,
        "strength": strength,
        "guidance_scale": guidance_scale,
        **kwargs,
    }
    return _generate(
        pipe,
        model_name,
        prompt,
        negative_prompt,
        arguments,
        memory_profile,
        seed,
        save_file,
        filename,
        metadata_path,
        verbose,
    )
