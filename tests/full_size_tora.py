"""Tora at its full size as a pipeline's folder: the transformer of 6.3 billion parameters, T5-XXL's encoder, the
autoencoder; 22 GB in bfloat16. The files are sparse: their weights are zeros, which are read and computed with as any
others."""

import json
import math
import pathlib
import shutil

import scaffolding as sf
from scaffolding import models

T5_XXL = {
    "vocab_size": 32128,
    "d_model": 4096,
    "d_kv": 64,
    "d_ff": 10240,
    "num_layers": 24,
    "num_heads": 64,
    "feed_forward_proj": "gated-gelu",
}
NETWORKS = {
    "text_encoder": ("transformers", "T5EncoderModel", T5_XXL, "model"),
    "transformer": (
        "diffusers",
        "ToraTransformer3DModel",
        {"num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True},
        "diffusion_pytorch_model",
    ),
    "vae": ("diffusers", "AutoencoderKLCogVideoX", {"scaling_factor": 0.7}, "diffusion_pytorch_model"),
}
SCHEDULER = {
    "_class_name": "CogVideoXDPMScheduler",
    "prediction_type": "v_prediction",
    "rescale_betas_zero_snr": True,
    "snr_shift_scale": 1.0,
    "timestep_spacing": "trailing",
}


def write_sparse(path, shapes):
    """A safetensors file of zeros in bfloat16 that takes no room on the disk."""
    at, entries = 0, {}
    for name, shape in shapes.items():
        size = 2 * math.prod(shape)
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + at)
    return at


def write_tora(folder):
    """A pipeline's folder; the bytes of its weights."""
    index, total = {"_class_name": "ToraPipeline"}, 0
    for name, (library, cls, config, stem) in NETWORKS.items():
        (folder / name).mkdir()
        with sf.device("meta"):
            model = getattr(models, cls).from_config(config)
        shapes = {key: list(t.shape) for key, t in model.state_dict().items()}
        total += write_sparse(folder / name / f"{stem}.safetensors", shapes)
        named = {"architectures": [cls], "model_type": "t5"} if library == "transformers" else {"_class_name": cls}
        (folder / name / "config.json").write_text(json.dumps(config | named))
        index[name] = [library, cls]
    (folder / "scheduler").mkdir()
    (folder / "scheduler" / "scheduler_config.json").write_text(json.dumps(SCHEDULER))
    golden = pathlib.Path(__file__).parent / "golden" / "pipelines" / "pixart_tokenizer"
    shutil.copytree(golden, folder / "tokenizer")
    index |= {"scheduler": ["diffusers", SCHEDULER["_class_name"]], "tokenizer": ["transformers", "T5Tokenizer"]}
    (folder / "model_index.json").write_text(json.dumps(index))
    return total
