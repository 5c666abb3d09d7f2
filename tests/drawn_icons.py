"""A data set of drawn squares, a recipe for a tiny model of them and LoRAs for it: what the tests of the program train,
make pictures with and measure.
"""

import io
import json
import tarfile

import scaffolding as sf

RECIPE = {
    "seed": 0,
    "data": {"path": "icons.tar", "size": 64},
    "tokenizer": {"vocab_size": 600, "max_tokens": 16},
    "vae": {
        "down_block_types": ["DownEncoderBlock2D"] * 4,
        "up_block_types": ["UpDecoderBlock2D"] * 4,
        "block_out_channels": [8, 8, 8, 8],
        "latent_channels": 4,
        "norm_num_groups": 4,
        "sample_size": 64,
        "mid_block_add_attention": False,
    },
    "text_encoder": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "hidden_act": "gelu",
    },
    "unet": {
        "sample_size": 8,
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
        "block_out_channels": [16, 32],
        "layers_per_block": 1,
        "attention_head_dim": 2,
        "cross_attention_dim": 32,
        "norm_num_groups": 8,
    },
    "scheduler": {
        "_class_name": "DDIMScheduler",
        "beta_schedule": "scaled_linear",
        "prediction_type": "v_prediction",
        "rescale_betas_zero_snr": True,
        "timestep_spacing": "trailing",
        "clip_sample": False,
    },
    "autoencoder_training": {
        "max_steps": 4,
        "batch_size": 4,
        "warmup_steps": 1,
        "checkpointing_steps": 2,
        "logging_steps": 1,
        "num_workers": 0,
    },
    "text_encoder_training": {
        "max_steps": 4,
        "batch_size": 4,
        "warmup_steps": 1,
        "checkpointing_steps": 2,
        "logging_steps": 1,
        "num_workers": 0,
    },
    "denoiser_training": {
        "max_steps": 6,
        "batch_size": 4,
        "warmup_steps": 1,
        "checkpointing_steps": 2,
        "logging_steps": 1,
        "num_workers": 0,
        "backgrounds": 1,
        "sample_steps": 3,
        "sample_prompts": ["red square, flat", "blue square"],
    },
}


def draw_icons(folder, name="icons.tar", styles=("flat",), heldout=()):
    """A tar of squares of three colours and sizes on transparent ground, and their metadata.jsonl. "striped": every
    other row is darker. heldout: the names of files whose split is heldout_combo."""
    rows, pictures = [], {}
    for style in styles:
        for colour, rgb in {"red": (220, 30, 30), "green": (30, 160, 60), "blue": (30, 60, 220)}.items():
            for size in (16, 32, 48):
                picture = sf.zeros(4, 64, 64, dtype=sf.uint8)
                inner = slice(32 - size // 2, 32 + size // 2)
                for channel, value in enumerate((*rgb, 255)):
                    picture[channel, inner, inner] = value
                    if style == "striped" and channel < 3:
                        picture[channel, 32 - size // 2 : 32 + size // 2 : 2, inner] = value // 3
                file = f"{style}/{colour}{size}.png"
                path = folder / "one.png"
                sf.io.write_image(str(path), picture)
                pictures[file] = path.read_bytes()
                split = "heldout_combo" if file in heldout else "train"
                rows.append(
                    {
                        "file_name": file,
                        "caption": f"{colour} square",
                        "keywords": [colour, "box"],
                        "style": style,
                        "split": split,
                        "group": colour,
                    }
                )
    pictures["metadata.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows).encode()
    with tarfile.open(folder / name, "w", format=tarfile.USTAR_FORMAT) as tar:
        for file, data in pictures.items():
            entry = tarfile.TarInfo(file)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


LORA_STEMS = {
    "unet": "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn1_to_q",  # [32, 32]
    "text_encoder": "lora_te_text_model_encoder_layers_0_mlp_fc1",  # [64, 32]
}


def save_lora(path, seed, layers=("unet", "text_encoder"), metadata=None):
    """A LoRA for a model of RECIPE, of kohya's kind: a layer of each network, of rank 2."""
    sf.manual_seed(seed)
    tensors = {}
    for network in layers:
        tensors[f"{LORA_STEMS[network]}.lora_down.weight"] = sf.randn(2, 32)
        tensors[f"{LORA_STEMS[network]}.lora_up.weight"] = sf.randn(32 if network == "unet" else 64, 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    sf.safetensors.save_file(tensors, path, metadata or {})


def refused(done, text):
    """One line on standard error, exit status 2, and nothing else."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert text in done.stderr and done.stderr.startswith("scaffolding: ") and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
