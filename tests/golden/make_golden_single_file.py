"""Writes tests/golden/single_file.json.xz: how diffusers takes LDM checkpoints apart.

    TORCH_PYTHON tests/golden/make_golden_single_file.py BUILD/dev/single_file_kinds.json

The argument is what `python -c "import json, scaffolding as sf; print(json.dumps(sf._core._single_file_kinds()))"`
prints: the configs of each kind. The names in an LDM checkpoint are generated here as CompVis' modules nest
(ldm/modules/diffusionmodules/openaimodel.py and model.py), OpenCLIP's (open_clip/transformer.py) and Stability AI's
(its repository sd3-ref). diffusers' own converters turn them into diffusers' names, which must be exactly those of the
model that the config makes.

For every kind at full size: "name source shape" of each tensor, source being the LDM tensor it came from. For every
kind in miniature: the CRC-32 of each converted tensor's bytes, the LDM tensors being filled by `fill`.
"""

import json
import pathlib
import sys
import zlib

import diffusers
import numpy as np
import torch
import transformers
from diffusers.loaders import single_file_utils as ldm
from packed import write_json

OUT = pathlib.Path(__file__).with_name("single_file.json.xz")


def fill(name, shape):
    """float32 values that tell tensors and places apart, the same wherever they are made."""
    start = zlib.crc32(name.encode()) % 100_003
    return np.arange(start, start + int(np.prod(shape)), dtype=np.float32).reshape(shape)


# ---- LDM checkpoints: {name: shape}


def with_bias(name, *weight):
    return {name + ".weight": list(weight), name + ".bias": [weight[0]]}


def res_block(name, c_in, c_out, time):
    out = (
        with_bias(name + ".in_layers.0", c_in)
        | with_bias(name + ".in_layers.2", c_out, c_in, 3, 3)
        | with_bias(name + ".emb_layers.1", c_out, time)
    )
    out |= with_bias(name + ".out_layers.0", c_out) | with_bias(name + ".out_layers.3", c_out, c_out, 3, 3)
    return out | (with_bias(name + ".skip_connection", c_out, c_in, 1, 1) if c_in != c_out else {})


def spatial_transformer(name, c, context, depth, linear):
    project = (c, c) if linear else (c, c, 1, 1)
    out = (
        with_bias(name + ".norm", c) | with_bias(name + ".proj_in", *project) | with_bias(name + ".proj_out", *project)
    )
    for i in range(depth):
        block = f"{name}.transformer_blocks.{i}"
        for attn, width in (("attn1", c), ("attn2", context)):
            out |= {
                f"{block}.{attn}.to_q.weight": [c, c],
                f"{block}.{attn}.to_k.weight": [c, width],
                f"{block}.{attn}.to_v.weight": [c, width],
            }
            out |= with_bias(f"{block}.{attn}.to_out.0", c, c)
        out |= with_bias(block + ".ff.net.0.proj", 8 * c, c) | with_bias(block + ".ff.net.2", c, 4 * c)
        for n in (1, 2, 3):
            out |= with_bias(f"{block}.norm{n}", c)
    return out


def ldm_unet(config):
    channels, layers, context = config["block_out_channels"], config["layers_per_block"], config["cross_attention_dim"]
    depth, linear = config.get("transformer_layers_per_block", 1), config.get("use_linear_projection", False)
    depth = depth if isinstance(depth, list) else [depth] * len(channels)
    time = 4 * channels[0]
    out = with_bias("time_embed.0", time, channels[0]) | with_bias("time_embed.2", time, time)
    if added := config.get("projection_class_embeddings_input_dim"):
        out |= with_bias("label_emb.0.0", time, added) | with_bias("label_emb.0.2", time, time)
    out |= with_bias("input_blocks.0.0", channels[0], config["in_channels"], 3, 3)
    skips, c, n = [channels[0]], channels[0], 1
    for level, width in enumerate(channels):
        for _ in range(layers):
            out |= res_block(f"input_blocks.{n}.0", c, width, time)
            c = width
            if "Cross" in config["down_block_types"][level]:
                out |= spatial_transformer(f"input_blocks.{n}.1", c, context, depth[level], linear)
            skips.append(c)
            n += 1
        if level < len(channels) - 1:
            out |= with_bias(f"input_blocks.{n}.0.op", c, c, 3, 3)
            skips.append(c)
            n += 1
    out |= (
        res_block("middle_block.0", c, c, time)
        | spatial_transformer("middle_block.1", c, context, depth[-1], linear)
        | res_block("middle_block.2", c, c, time)
    )
    n = 0
    for level in reversed(range(len(channels))):
        for i in range(layers + 1):
            out |= res_block(f"output_blocks.{n}.0", c + skips.pop(), channels[level], time)
            c, inner = channels[level], 1
            if "Cross" in config["up_block_types"][len(channels) - 1 - level]:
                out |= spatial_transformer(f"output_blocks.{n}.1", c, context, depth[level], linear)
                inner = 2
            if level > 0 and i == layers:
                out |= with_bias(f"output_blocks.{n}.{inner}.conv", c, c, 3, 3)
            n += 1
    return out | with_bias("out.0", c) | with_bias("out.2", config["out_channels"], c, 3, 3)


def vae_block(name, c_in, c_out):
    out = (
        with_bias(name + ".norm1", c_in)
        | with_bias(name + ".conv1", c_out, c_in, 3, 3)
        | with_bias(name + ".norm2", c_out)
    )
    out |= with_bias(name + ".conv2", c_out, c_out, 3, 3)
    return out | (with_bias(name + ".nin_shortcut", c_out, c_in, 1, 1) if c_in != c_out else {})


def ldm_vae(config):
    channels, layers, z = config["block_out_channels"], config["layers_per_block"], config["latent_channels"]

    def middle(part, c):
        out = (
            vae_block(part + ".mid.block_1", c, c)
            | with_bias(part + ".mid.attn_1.norm", c)
            | vae_block(part + ".mid.block_2", c, c)
        )
        for name in ("q", "k", "v", "proj_out"):
            out |= with_bias(f"{part}.mid.attn_1.{name}", c, c, 1, 1)
        return out

    out, c = with_bias("encoder.conv_in", channels[0], config["in_channels"], 3, 3), channels[0]
    for level, width in enumerate(channels):
        for i in range(layers):
            out |= vae_block(f"encoder.down.{level}.block.{i}", c, width)
            c = width
        if level < len(channels) - 1:
            out |= with_bias(f"encoder.down.{level}.downsample.conv", c, c, 3, 3)
    out |= middle("encoder", c) | with_bias("encoder.norm_out", c) | with_bias("encoder.conv_out", 2 * z, c, 3, 3)
    out |= with_bias("decoder.conv_in", c, z, 3, 3) | middle("decoder", c)
    for level in reversed(range(len(channels))):
        for i in range(layers + 1):
            out |= vae_block(f"decoder.up.{level}.block.{i}", c, channels[level])
            c = channels[level]
        if level > 0:
            out |= with_bias(f"decoder.up.{level}.upsample.conv", c, c, 3, 3)
    out |= with_bias("decoder.norm_out", c) | with_bias("decoder.conv_out", config["out_channels"], c, 3, 3)
    if config.get("use_quant_conv", True):
        out |= with_bias("quant_conv", 2 * z, 2 * z, 1, 1)
    return out | (with_bias("post_quant_conv", z, z, 1, 1) if config.get("use_post_quant_conv", True) else {})


def mmdit(config):
    c, head = config["num_attention_heads"] * config["attention_head_dim"], config["attention_head_dim"]
    patch, last = config["patch_size"], config["num_layers"] - 1

    def attention(name, projects=True):
        out = with_bias(name + ".qkv", 3 * c, c) | (with_bias(name + ".proj", c, c) if projects else {})
        return out | ({f"{name}.ln_{x}.weight": [head] for x in "qk"} if config.get("qk_norm") else {})

    out = {"pos_embed": [1, config["pos_embed_max_size"] ** 2, c]}
    out |= with_bias("x_embedder.proj", c, config["in_channels"], patch, patch)
    for name, width in (("t_embedder", 256), ("y_embedder", config["pooled_projection_dim"])):
        out |= with_bias(name + ".mlp.0", c, width) | with_bias(name + ".mlp.2", c, c)
    out |= with_bias("context_embedder", c, config["joint_attention_dim"])
    for i in range(last + 1):
        dual = i in config.get("dual_attention_layers", ())
        for part in ("x_block", "context_block"):
            name, ends = f"joint_blocks.{i}.{part}", part == "context_block" and i == last
            out |= attention(name + ".attn", not ends)
            out |= attention(name + ".attn2") if dual and part == "x_block" else {}
            shifts = 2 if ends else 9 if dual and part == "x_block" else 6
            out |= with_bias(name + ".adaLN_modulation.1", shifts * c, c)
            if not ends:
                out |= with_bias(name + ".mlp.fc1", 4 * c, c) | with_bias(name + ".mlp.fc2", c, 4 * c)
    out |= with_bias("final_layer.adaLN_modulation.1", 2 * c, c)
    return out | with_bias("final_layer.linear", patch * patch * config["out_channels"], c)


def open_clip(config, layers):
    c = config["hidden_size"]
    out = {
        "positional_embedding": [config["max_position_embeddings"], c],
        "text_projection": [c, config["projection_dim"]],
        "logit_scale": [],
    }
    for i in range(layers):
        block = f"transformer.resblocks.{i}"
        out |= with_bias(block + ".ln_1", c) | {
            block + ".attn.in_proj_weight": [3 * c, c],
            block + ".attn.in_proj_bias": [3 * c],
        }
        out |= with_bias(block + ".attn.out_proj", c, c) | with_bias(block + ".ln_2", c)
        out |= with_bias(block + ".mlp.c_fc", config["intermediate_size"], c) | with_bias(
            block + ".mlp.c_proj", c, config["intermediate_size"]
        )
    return out | {"token_embedding.weight": [config["vocab_size"], c]} | with_bias("ln_final", c)


def transformers_clip(config):
    model = clip_model("CLIPTextModel", config)
    names = {"text_model." + k.removeprefix("text_model."): list(v.shape) for k, v in model.state_dict().items()}
    # as files of that time have it
    return {"text_model.embeddings.position_ids": [1, config["max_position_embeddings"]], **names}


def t5_model(config):
    with torch.device("meta"):
        return transformers.T5EncoderModel(
            transformers.T5Config(**{k: v for k, v in config.items() if k != "architectures"})
        )


def clip_model(name, config):
    with torch.device("meta"):
        return getattr(transformers, name)(
            transformers.CLIPTextConfig(**{k: v for k, v in config.items() if k != "architectures"})
        )


def prefixed(prefix, tensors):
    return {prefix + name: shape for name, shape in tensors.items()}


def sd3_checkpoint(parts):
    """CLIP-L is there without its projection, which is an identity."""
    out = prefixed("model.diffusion_model.", mmdit(parts["transformer"])) | prefixed(
        "first_stage_model.", ldm_vae(parts["vae"])
    )
    clip_l = transformers_clip(parts["text_encoder"])
    clip_l.pop("text_model.embeddings.position_ids")
    clip_g = clip_model("CLIPTextModelWithProjection", parts["text_encoder_2"]).state_dict()
    t5 = t5_model(parts["text_encoder_3"]).named_parameters()
    out |= prefixed("text_encoders.clip_l.transformer.", clip_l) | {"text_encoders.clip_l.logit_scale": []}
    out |= prefixed("text_encoders.clip_g.transformer.", {k: list(v.shape) for k, v in clip_g.items()})
    return out | prefixed("text_encoders.t5xxl.transformer.", {k: list(v.shape) for k, v in t5})


def checkpoint(kind, parts):
    return (sd3_checkpoint(parts) if kind.startswith("sd3") else ldm_checkpoint(kind, parts)) | {
        "betas": [1000],
        "model_ema.decay": [],
    }


def ldm_checkpoint(kind, parts):
    out = prefixed("model.diffusion_model.", ldm_unet(parts["unet"])) | prefixed(
        "first_stage_model.", ldm_vae(parts["vae"])
    )
    xl = kind.startswith("xl")
    if "text_encoder_2" in parts:
        place = "conditioner.embedders.0.model." if kind == "xl_refiner" else "conditioner.embedders.1.model."
        out |= prefixed(place, open_clip(parts["text_encoder_2"], parts["text_encoder_2"]["num_hidden_layers"]))
    if "text_encoder" in parts and kind.endswith("v2"):
        h = parts["text_encoder"]  # the last layer is there and not used, and so is a square projection
        out |= prefixed(
            "cond_stage_model.model.", open_clip(h | {"projection_dim": h["hidden_size"]}, h["num_hidden_layers"] + 1)
        )
    elif "text_encoder" in parts:
        out |= prefixed(
            "conditioner.embedders.0.transformer." if xl else "cond_stage_model.transformer.",
            transformers_clip(parts["text_encoder"]),
        )
    return out


# ---- diffusers' side


def converted(kind, part, config, tensors):
    if part == "unet":
        return ldm.convert_ldm_unet_checkpoint(
            tensors, {"class_embed_type": None, "addition_embed_type": None, **config}
        )
    if part == "vae":
        return ldm.convert_ldm_vae_checkpoint(tensors, config)
    if part == "transformer":
        return ldm.convert_sd3_transformer_checkpoint_to_diffusers(tensors)
    if part == "text_encoder_3":
        return ldm.convert_sd3_t5_checkpoint_to_diffusers(tensors)
    if kind.startswith("sd3") and part == "text_encoder_2":
        return ldm.convert_ldm_clip_checkpoint(tensors, "text_encoders.clip_g.transformer.")
    if kind.startswith("sd3") and part == "text_encoder":  # as create_diffusers_clip_model_from_ldm does
        out = ldm.convert_ldm_clip_checkpoint(tensors, "text_encoders.clip_l.transformer.")
        size, like = config["hidden_size"], next(iter(out.values()))
        return out | {"text_projection.weight": torch.eye(size, device=like.device)}
    if part == "text_encoder" and not kind.endswith("v2"):
        out = ldm.convert_ldm_clip_checkpoint(tensors)
        return {k: v for k, v in out.items() if not k.endswith("position_ids")}
    place = {"xl_refiner": "conditioner.embedders.0.model."}.get(
        kind, "conditioner.embedders.1.model." if kind.startswith("xl") else "cond_stage_model.model."
    )
    model = type("Model", (), {"config": type("Config", (), {"hidden_size": config["hidden_size"]})})
    return ldm.convert_open_clip_checkpoint(model, tensors, prefix=place)


def expected(part, class_name, config):
    if class_name == "T5EncoderModel":
        return {k: list(v.shape) for k, v in t5_model(config).named_parameters()}
    if part.startswith("text"):
        state = clip_model(class_name, config).state_dict()
        return {
            k if k.startswith(("text_model.", "text_projection")) else "text_model." + k: list(v.shape)
            for k, v in state.items()
        }
    with torch.device("meta"):
        state = getattr(diffusers, class_name).from_config(config).state_dict()
    return {k: list(v.shape) for k, v in state.items()}


UNET = {
    "block_out_channels": [32, 64],
    "cross_attention_dim": 16,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "layers_per_block": 2,
}
UNET |= {"up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "sample_size": 8}
UNET_XL = UNET | {
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
}
UNET_XL |= {
    "transformer_layers_per_block": [1, 2],
    "projection_class_embeddings_input_dim": 24,
    "addition_time_embed_dim": 8,
}
VAE = {
    "block_out_channels": [32, 64],
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
    "layers_per_block": 1,
}
CLIP = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_attention_heads": 2,
    "vocab_size": 20,
    "max_position_embeddings": 7,
}
T5 = {"d_model": 8, "d_ff": 12, "d_kv": 4, "num_heads": 2, "num_layers": 2, "vocab_size": 20}
MMDIT = {
    "num_attention_heads": 2,
    "attention_head_dim": 4,
    "caption_projection_dim": 8,
    "joint_attention_dim": 8,
    "pooled_projection_dim": 14,
    "num_layers": 3,
    "pos_embed_max_size": 5,
    "sample_size": 8,
}


def miniature(parts):
    out = {}
    for part, (_, _, config) in parts.items():
        if part == "unet":
            out[part] = config | (UNET_XL if config.get("addition_embed_type") else UNET) | {"attention_head_dim": 8}
        elif part == "vae":
            out[part] = config | VAE
        elif part == "transformer":
            dual = {"dual_attention_layers": [0, 1]} if "dual_attention_layers" in config else {}
            out[part] = config | MMDIT | dual
        elif part == "text_encoder_3":
            out[part] = config | T5
        elif part.startswith("text"):
            # 23: diffusers knows the last one of 24 by its name
            layers = 23 if config["num_hidden_layers"] == 23 else 2
            out[part] = (
                config | CLIP | {"num_hidden_layers": layers, "projection_dim": 6 if part == "text_encoder_2" else 8}
            )
    return out


def main():
    kinds = json.loads(pathlib.Path(sys.argv[1]).read_text())
    golden = {
        "versions": {
            "torch": torch.__version__,
            "diffusers": diffusers.__version__,
            "transformers": transformers.__version__,
        },
        "full": {},
        "tiny": {},
    }
    for kind, (_, repository, parts) in kinds.items():
        parts = {p: v for p, v in parts.items() if p != "scheduler"}
        shapes = checkpoint(kind, {p: config for p, (_, _, config) in parts.items()})
        tensors = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
        inferred = ldm.infer_diffusers_model_type(tensors)
        assert (
            inferred == kind
            and ldm.DIFFUSERS_DEFAULT_PIPELINE_PATHS[kind]["pretrained_model_name_or_path"] == repository
        ), (kind, inferred)
        names = {id(t): name for name, t in tensors.items()}
        full = {"checkpoint": {name: list(shape) for name, shape in shapes.items()}, "parts": {}}
        for part, (_, class_name, config) in parts.items():
            new = converted(kind, part, config, dict(tensors))
            want = expected(part, class_name, config)
            if class_name == "CLIPTextModel":
                new.pop("text_projection.weight", None)
            assert {k: list(v.shape) for k, v in new.items()} == want, (kind, part, set(new) ^ set(want))
            # Slices and transposed ones are new tensors: where they came from shows in miniature.
            full["parts"][part] = {k: [names.get(id(v)), list(v.shape)] for k, v in new.items()}
        golden["full"][kind] = full

        tiny = miniature(parts | {"scheduler": kinds[kind][2]["scheduler"]})
        shapes = checkpoint(kind, tiny)
        tensors = {name: torch.from_numpy(fill(name, shape)) for name, shape in shapes.items()}
        sums = {}
        for part, config in tiny.items():
            new = converted(kind, part, config, dict(tensors))
            want = expected(part, parts[part][1], config)
            assert {k: list(v.shape) for k, v in new.items() if k in want} == want, (kind, part)
            sums[part] = {k: zlib.crc32(new[k].contiguous().numpy().tobytes()) for k in want}
        golden["tiny"][kind] = {"configs": tiny, "checkpoint": shapes, "sums": sums}
    write_json(OUT, json.dumps(golden, separators=(",", ":")))
    for kind, full in golden["full"].items():
        print(kind, {p: len(t) for p, t in full["parts"].items()}, len(full["checkpoint"]))
    print(OUT, OUT.stat().st_size, "bytes")


main()
