"""The adapters of the golden files of LoRA, and the tiny pipelines that they are for: make_golden_lora.py's.

Networks, tokenizers and the scheduler are those of make_golden_pipelines_stable_diffusion.py.
"""

import copy
import json
import logging
import shutil
import tempfile
import warnings
from pathlib import Path

import diffusers
import make_golden_pipelines_stable_diffusion as stable_diffusion
import numpy as np
import peft
import torch
import transformers
from hashed_weights import hashed
from lora_cases import FOLDER, take
from lora_formats import (
    down_keys,
    filled,
    kohya_keys,
    original_keys,
    processor_keys,
    script_keys,
    settled,
    written,
)
from peft.tuners.tuners_utils import BaseTunerLayer
from pipeline_fixture import PipelineFixture

warnings.simplefilter("ignore")
logging.disable(logging.ERROR)
transformers.utils.logging.disable_progress_bar()
del transformers.CLIPTextModel.text_model  # diffusers looks for it to know how the keys of text encoders begin
torch.use_deterministic_algorithms(True)

CALL = {"prompt": "a photo of the cat", "num_inference_steps": 3, "guidance_scale": 7.5}
PIPELINES = {
    "sd": diffusers.StableDiffusionPipeline,
    "sd2": diffusers.StableDiffusionPipeline,
    "xl": diffusers.StableDiffusionXLPipeline,
}
NETWORKS = {
    family: stable_diffusion.components(cls.__name__, "xl" if family == "xl" else "unet", "ddim")[0]
    for family, cls in PIPELINES.items()
}
# As 2.x has them: projections around attention that are linear, heads by level, another text encoder, v prediction.
NETWORKS["sd2"] |= {"unet": "unet_2", "text_encoder": "text_of_2", "tokenizer": "tokenizer_2", "scheduler": "v"}
OWN = ("unet_2", "text_of_2")  # networks that no other golden file has

# ---- the pipelines


def fixture():
    vocab = len(json.loads((stable_diffusion.FOLDER / "tokenizer" / "vocab.json").read_text()))
    made, configs = PipelineFixture("stable_diffusion"), stable_diffusion.configs(vocab)
    made.network("text", transformers.CLIPTextModel, configs["text"], stable_diffusion.key)
    made.network("text_2", transformers.CLIPTextModelWithProjection, configs["text"], stable_diffusion.key)
    of_2 = {"num_hidden_layers": 3, "intermediate_size": 64, "num_attention_heads": 2, "projection_dim": 16}
    made.network("text_of_2", transformers.CLIPTextModel, {**configs["text"], **of_2}, stable_diffusion.key)
    configs["unet_2"] = {**configs["unet"], "use_linear_projection": True, "attention_head_dim": [2, 4]}
    for name in ("unet", "unet_2", "xl"):
        made.network(name, diffusers.UNet2DConditionModel, configs[name])
    for name in ("vae", "xl_vae"):
        made.network(name, diffusers.AutoencoderKL, configs[name])
    for name in ("ddim", "v"):
        cls, config = stable_diffusion.SCHEDULERS[name]
        made.scheduler(name, getattr(diffusers, cls), config)
    for name in ("tokenizer", "tokenizer_2"):
        made.tokenizer(name, transformers.CLIPTokenizer)
    return made


FIXTURE = fixture()
PARTS = FIXTURE.parts


def pipeline(family):
    """A fresh one, whose networks nothing has been loaded into."""
    parts = {
        component: PARTS[name]() if component == "scheduler" else copy.deepcopy(PARTS[name])
        for component, name in NETWORKS[family].items()
    }
    more = {"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False}
    pipe = PIPELINES[family](**parts, **({"add_watermarker": False} if family == "xl" else more))
    pipe.set_progress_bar_config(disable=True)
    return pipe


def load_folder(pipe, folder, adapter_name):
    """PEFT's own, which diffusers leaves to it."""
    component = folder.name.removeprefix("peft_")
    model = getattr(pipe, component)
    loaded = peft.PeftModel.from_pretrained(model, folder, adapter_name=adapter_name)
    model.peft_config, model._hf_peft_config_loaded = loaded.peft_config, True


def taken(pipe, steps):
    for method, arguments, keywords in steps:
        file = arguments and isinstance(arguments[0], dict) and arguments[0].get("file")
        if file and (FOLDER / file).is_dir():
            load_folder(pipe, FOLDER / file, **keywords)
            continue
        # only XL's looks for names of the original code by itself
        sd = method == "load_lora_weights" and type(pipe) is not PIPELINES["xl"]
        take(pipe, [method, arguments, keywords], torch.from_numpy, **({"unet_config": pipe.unet.config} if sd else {}))
    return pipe


# ---- the adapters

# A few layers of each sort and of each place: files shall be small.
STYLE = {
    "r": 2,
    "lora_alpha": 1,
    "target_modules": r"(up_blocks.*|mid_block.*attn1|down_blocks.*attn2)\..*(attn1\.to_q|to_k|to_v|to_out\.0)",
}
STYLE_TEXT = {"r": 2, "lora_alpha": 1, "target_modules": r".*layers\.[03].*\.(q|k|v|out)_proj"}
SAMPLERS = ["downsamplers.0.conv", "upsamplers.0.conv"]
RESNETS = ["conv1", "conv2", "conv_shortcut", "time_emb_proj"]
OUTER = ["conv_in", "conv_out", "time_embedding.linear_1", "time_embedding.linear_2"]
WHOLE = {
    "r": 2,
    "lora_alpha": 1,
    "target_modules": ["attn2.to_k", "proj_in", "proj_out", "ff.net.0.proj", "ff.net.2", *RESNETS, *SAMPLERS, *OUTER],
    "exclude_modules": r"(up_blocks\.(0\.(attentions\.[01]|resnets\.1)|1\.resnets\.0)|mid_block\.resnets\.[01])\..*",
    "rank_pattern": {"conv_in": 4, "time_emb_proj": 3, "up_blocks.1.resnets.1.conv1": 4},
    "alpha_pattern": {"conv_in": 4, "proj_in": 2, "down_blocks.1.resnets.0.conv2": 3},
}
WHOLE_TEXT = {"r": 3, "lora_alpha": 3, "target_modules": r".*layers\.[12].*\.(fc1|fc2|out_proj)"}
XL_WHOLE = (
    r"(add|time)_embedding\.linear_[12]|conv_in|conv_out|(down_blocks|mid_block|up_blocks\.0).*\.(proj_in|proj_out|"
    r"ff\.net\.0\.proj|ff\.net\.2|conv1?|conv_shortcut|time_emb_proj)"
)
# Those of text encoders have out_proj: without it diffusers leaves the other projections of kohya's out and does not
# read its own kind where the MLP is alone.
ADAPTERS = {
    "sd": {
        "style": {"unet": STYLE, "text_encoder": STYLE_TEXT},
        "whole": {"unet": WHOLE, "text_encoder": WHOLE_TEXT},
        "convs": {"unet": {"r": 2, "lora_alpha": 2, "target_modules": [*RESNETS, *SAMPLERS],
                           "exclude_modules": r"(up_blocks\.(0\.resnets\.0|1\.resnets\.1)|mid_block\.resnets\.1)\..*"}},
        "alphas": {
            "unet": {"r": 2, "lora_alpha": 1, "target_modules": r"mid_block.*(to_[qkv]|to_out\.0|proj_in|conv2)",
                     "alpha_pattern": {"to_q": 4, "to_v": 0.5, "attn2.to_out.0": 3, "proj_in": 2}},
            "text_encoder": {"r": 2, "lora_alpha": 2, "target_modules": r".*layers\.[02].*(q_proj|v_proj|fc1)",
                             "alpha_pattern": {"q_proj": 4, "fc1": 1}},
        },
        "peft_unet": {"unet": {"r": 3, "lora_alpha": 2, "use_rslora": True,
                               "target_modules": ["to_v", "attn1.to_q", "conv2", "proj_out"],
                               "exclude_modules": r"up_blocks\.0\.attentions\.0.*",
                               "rank_pattern": {"conv2": 2, r"mid_block.*to_q": 4},
                               "alpha_pattern": {r"up_blocks\.0\.attentions\.1.*": 1,
                                                 "down_blocks.0.resnets.0.conv2": 4}}},
        "peft_text_encoder": {"text_encoder": {"r": 2, "lora_alpha": 4, "target_modules": ["v_proj", "fc2"],
                                               "rank_pattern": {r"layers\.[12]\.mlp\.fc2": 3}}},
    },
    "sd2": {
        "style": {
            "unet": {"r": 2, "lora_alpha": 1, "target_modules": r".*(proj_in|proj_out|attn2\.to_[kv]|attn1\.to_q)"},
            "text_encoder": {"r": 2, "lora_alpha": 1, "target_modules": r".*layers\.[02].*\.(q|v|out)_proj"},
        },
        "whole": {
            "unet": {"r": 2, "lora_alpha": 1, "rank_pattern": {"proj_in": 4}, "alpha_pattern": {"proj_in": 2},
                     "target_modules": r"conv_in|time_embedding\.linear_1|(down_.*\.1|mid).*(proj_in|net\.2|conv1)"},
            "text_encoder": {"r": 2, "lora_alpha": 2, "target_modules": r".*layers\.1.*(fc[12]|out_proj)"},
        },
        "peft_unet": {"unet": {"r": 2, "lora_alpha": 3, "target_modules": ["proj_out", "attn2.to_v"]}},
    },
    "xl": {
        "style": {
            "unet": {"r": 2, "lora_alpha": 1,
                     "target_modules": r".*transformer_blocks\.1\.(attn1\.to_q|attn2\.to_(k|out\.0))"},
            "text_encoder": {"r": 2, "lora_alpha": 1, "target_modules": r".*layers\.[03].*\.(q|out)_proj"},
            "text_encoder_2": {"r": 2, "lora_alpha": 1, "target_modules": r".*layers\.[02].*\.(v|out)_proj"},
        },
        "whole": {
            "unet": {"r": 2, "lora_alpha": 1, "rank_pattern": {"add_embedding.linear_1": 4},
                     "alpha_pattern": {"proj_out": 2},
                     "target_modules": XL_WHOLE,
                     "exclude_modules": r".*(former_blocks\.0|mid.*resnets\.1|blocks\.0\.(resnets|attentions)\.0).*"},
            "text_encoder": {"r": 2, "lora_alpha": 2, "target_modules": r".*layers\.[03].*(fc[12]|out_proj)"},
            "text_encoder_2": {"r": 2, "lora_alpha": 2, "target_modules": r".*layers\.[13].*(fc[12]|out_proj)"},
        },
        "peft_unet": {"unet": {"r": 2, "lora_alpha": 3, "target_modules": ["attn2.to_v", "ff.net.2"],
                               "rank_pattern": {r"mid_block.*ff\.net\.2": 3}}},
    },
}  # fmt: skip
LOUD = 0.5
parts_of = {}  # by (family, adapter): {component: {module: (A, B, scale * rank)}}


def settled_config(config):
    """Sets as sorted lists: their order is another in each process."""
    return {k: sorted(v) if isinstance(v, set) else v for k, v in config.to_dict().items()}


def name_in_files(component, module):
    return stable_diffusion.key(module) if component.startswith("text_encoder") else module


def adapted(model):
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, BaseTunerLayer)}


def fill(family, adapter, component, model, adapter_name):
    layers = {}
    with torch.no_grad():
        for module, layer in adapted(model).items():
            a, b = layer.lora_A[adapter_name].weight, layer.lora_B[adapter_name].weight
            name = name_in_files(component, module.removeprefix("base_model.model."))
            values = filled(f"{family} {adapter}", component, name, a.shape, b.shape, LOUD)
            a.copy_(values[0])
            b.copy_(values[1])
            layers[name] = (*values, layer.scaling[adapter_name] * len(a))
    return layers


def write_folder(family, adapter, component, config):
    """As PEFT saves it, in float16, without its model card."""
    folder, model = FOLDER / family / adapter, copy.deepcopy(PARTS[NETWORKS[family][component]])
    wrapped = peft.get_peft_model(model, peft.LoraConfig(**config))
    parts_of[family, adapter] = {component: fill(family, adapter, component, wrapped, "default")}
    with tempfile.TemporaryDirectory() as there:
        wrapped.half().save_pretrained(there)
        folder.mkdir(parents=True)
        shutil.copy(Path(there) / "adapter_model.safetensors", folder)
        settled(folder / "adapter_model.safetensors")
        saved = json.loads((Path(there) / "adapter_config.json").read_text())
    saved["target_modules"] = sorted(saved["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")


def write_adapter(family, adapter, configs):
    pipe, layers, metadata = pipeline(family), {}, {}
    for component, config in configs.items():
        model = getattr(pipe, component)
        model.add_adapter(peft.LoraConfig(**config), adapter_name="default")
        parts = parts_of.setdefault((family, adapter), {})
        parts[component] = fill(family, adapter, component, model, "default")
        state = peft.get_peft_model_state_dict(model, adapter_name="default")
        layers[component] = {k: t.half() for k, t in state.items()}
        metadata[component] = settled_config(model.peft_config["default"])
    folder = FOLDER / family
    folder.mkdir(parents=True, exist_ok=True)
    if adapter == "convs":
        return written(folder / "convs.safetensors", down_keys(parts))
    if adapter == "alphas":
        return written(folder / "alphas_kohya.safetensors", kohya_keys(parts), {"ss_network_module": "networks.lora"})
    PIPELINES[family].save_lora_weights(
        folder,
        weight_name=f"{adapter}.safetensors",
        **{f"{component}_lora_layers": tensors for component, tensors in layers.items()},
        **{f"{component}_lora_adapter_metadata": values for component, values in metadata.items()},
    )
    settled(folder / f"{adapter}.safetensors")
    kohya = {"ss_network_module": "networks.lora", "ss_network_dim": "2"}
    kohya["ss_base_model_version"] = {"sd": "sd_v1", "sd2": "sd_v2_768_v", "xl": "sdxl_base_v1-0"}[family]
    written(folder / f"{adapter}_original.safetensors", original_keys(parts, pipe.unet.config), kohya)
    if adapter == "whole" and family == "xl":
        return None
    written(folder / f"{adapter}_kohya.safetensors", kohya_keys(parts), kohya)
    if adapter == "style" and family != "sd2":
        written(folder / "style_script.safetensors", script_keys(parts))
        written(folder / "style_processor.safetensors", processor_keys(parts))
    return None


def write_mid(layers):
    """kohya's convolutions 3x3 as 1x1, 3x3, 1x1; as A and B the first two are one."""
    tensors, parts = {}, {}
    for module in layers:
        shape = pipeline("sd").unet.get_submodule(module).weight.shape
        (down, up), name = filled("sd mid", "unet", module, (3, shape[1], 1, 1), (shape[0], 3, 1, 1), LOUD), module
        middle = torch.from_numpy(hashed("sd mid " + name, (3, 3, *shape[2:])).astype(np.float16))
        stem = "lora_unet_" + module.replace(".", "_")
        tensors |= {f"{stem}.lora_down.weight": down, f"{stem}.lora_mid.weight": middle,
                    f"{stem}.lora_up.weight": up, f"{stem}.alpha": torch.tensor(1.5)}  # fmt: skip
        joined = torch.einsum("kcij,cdxy->kdij", middle.double(), down.double())
        parts[module] = (joined.float(), up, 1.5)
    written(FOLDER / "sd" / "mid_kohya.safetensors", tensors)
    parts_of["sd", "mid"] = {"unet": parts}
