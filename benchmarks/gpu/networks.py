"""Rows of whole networks, with random weights: passes of the UNets, the VAE's decoder, a picture from end to end,
training steps.
"""

import contextlib

from operators import capturable_adamw
from work import Work, bf16, device, ours

UNETS = {
    "sd21": {"cross_attention_dim": 1024, "attention_head_dim": (5, 10, 20, 20), "use_linear_projection": True},
    "sdxl": {
        "block_out_channels": (320, 640, 1280),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "transformer_layers_per_block": (1, 2, 10),
        "attention_head_dim": (5, 10, 20),
        "cross_attention_dim": 2048,
        "use_linear_projection": True,
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    },
}
_SMALL = {
    "block_out_channels": (16, 32),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "cross_attention_dim": 32,
    "attention_head_dim": (2, 4),
    "use_linear_projection": True,
}
TINY_UNETS = {
    "sd21": _SMALL,
    "sdxl": _SMALL
    | {
        "addition_embed_type": "text_time",
        "addition_time_embed_dim": 8,
        "transformer_layers_per_block": (1, 1),
        "projection_class_embeddings_input_dim": 80,
    },
}
VAE = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
    "sample_size": 1024,
}
TINY_VAE = {
    "block_out_channels": (8, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "sample_size": 16,
}

TRANSFORMERS = {
    "2b": {"num_attention_heads": 30, "num_layers": 30},
    "5b": {"num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True},
}

# Latents' pixels, multiplications and additions of one sample's pass at that size (not at others: attention grows
# faster than the area), parameters.
UNET_FLOP = {"sd21": (64, 1609e9 / 2, 866e6), "sdxl": (128, 13522e9 / 2, 2567e6)}
# Of those, what the layers of quantize_fp8 multiply, as benchmarks/gpu_floor.py counts: convolutions, attention and
# what stays in 16 bits are the rest.
FLOAT8_FLOP = {"sd21": 409.4e9 / 2, "sdxl": 7516.2e9 / 2}
VAE_FLOP = {64: 2515e9, 128: 10470e9}


def models(lib):
    if ours(lib):
        import scaffolding.models as module
    else:
        import diffusers as module
    return module


def make(lib, name, config, dtype):
    with lib.device(device(lib)):  # weights are drawn there
        model = getattr(models(lib), name)(**config)
    return model.to(dtype).to(memory_format=lib.channels_last)


def make_unet(lib, kind, tiny, dtype):
    return make(lib, "UNet2DConditionModel", (TINY_UNETS if tiny else UNETS)[kind], dtype)


def unet_inputs(lib, kind, tiny, batch, pixels, dtype):
    """x [batch, 4, pixels, pixels], timesteps [batch], text [batch, 77, features], and what SDXL is told beside."""
    config, place = (TINY_UNETS if tiny else UNETS)[kind], {"device": device(lib)}
    x = lib.randn(batch, 4, pixels, pixels, **place).to(dtype).contiguous(memory_format=lib.channels_last)
    steps = lib.randint(0, 1000, (batch,), **place)
    text = lib.randn(batch, 77, config["cross_attention_dim"], **place).to(dtype)
    if kind != "sdxl":
        return x, steps, text, None
    pooled = config["projection_class_embeddings_input_dim"] - 6 * config["addition_time_embed_dim"]
    ids = lib.tensor([[8.0 * pixels, 8.0 * pixels, 0.0, 0.0, 8.0 * pixels, 8.0 * pixels]] * batch, **place).to(dtype)
    return x, steps, text, {"text_embeds": lib.randn(batch, pooled, **place).to(dtype), "time_ids": ids}


def unet_flop(kind, batch, pixels):
    size, flop, parameters = UNET_FLOP[kind]
    return (batch * flop, 2 * parameters) if pixels == size else (0, 0)


def float8_rate(kind):
    """How many times as fast the whole pass is at most, where float8 is twice as fast as bfloat16."""
    flop = UNET_FLOP[kind][1]
    return flop / (flop - FLOAT8_FLOP[kind] / 2)


def unet(lib, kind, batch, pixels, tiny=False, fp8=False):
    model = make_unet(lib, kind, tiny, lib.bfloat16).eval()
    if fp8:
        model.quantize_fp8()
    model.fuse_qkv_projections()  # as our pipelines do by themselves
    x, steps, text, added = unet_inputs(lib, kind, tiny, batch, pixels, lib.bfloat16)
    flop, weights = unet_flop(kind, batch, pixels)
    return Work(
        [lambda: model(x, steps, text, added_cond_kwargs=added).sample],
        flop=flop,
        moved=weights / (2 if fp8 else 1),
        tensor_rate=float8_rate(kind) if fp8 else 1,
    )


def vae_decode(lib, pixels, tiny=False):
    model = make(lib, "AutoencoderKL", TINY_VAE if tiny else VAE, lib.bfloat16).eval()
    z = bf16(lib, 1, 4, pixels, pixels).contiguous(memory_format=lib.channels_last)
    return Work([lambda: model.decode(z).sample], flop=VAE_FLOP.get(pixels, 0))


def video(lib, kind, batch, frames, height, width, tiny=False):
    """A pass of CogVideoX's transformer over latents of [frames, height, width] and 226 tokens of text."""
    config = dict(TRANSFORMERS[kind])
    heads, layers = config["num_attention_heads"], config["num_layers"]
    text = 4096
    if tiny:
        heads, layers, text = 2, 1, 16
        config |= {"num_attention_heads": heads, "num_layers": layers, "text_embed_dim": text, "time_embed_dim": 16}
        config |= {"sample_height": height, "sample_width": width, "sample_frames": 4 * frames - 3}
    with lib.device(device(lib)):
        model = models(lib).CogVideoXTransformer3DModel(**config).to(lib.bfloat16).eval()
    x, prompt = bf16(lib, batch, frames, 16, height, width), bf16(lib, batch, 226, text)
    steps = lib.randint(0, 1000, (batch,), device=device(lib))
    seen, hidden = frames * (height // 2) * (width // 2), 64 * heads
    rotary = None
    if "use_rotary_positional_embeddings" in config:
        rotary = tuple(lib.randn(seen, 64, device=device(lib)) for _ in range(2))
    tokens = seen + 226
    flop = batch * layers * (24 * tokens * hidden**2 + 4 * tokens**2 * hidden)
    return Work([lambda: model(x, prompt, steps, image_rotary_emb=rotary).sample], flop=flop)


def video_decode(lib, frames, height, width, tiny=False):
    """CogVideoX's decoder of latents [1, 16, frames, height, width], in the pieces of frames that it takes itself."""
    small = {"block_out_channels": (8, 8, 8, 8), "norm_num_groups": 4} if tiny else {}
    with lib.device(device(lib)):
        model = models(lib).AutoencoderKLCogVideoX(**small).to(lib.bfloat16).eval()
    z = bf16(lib, 1, 16, frames, height, width)
    return Work([lambda: model.decode(z).sample])


def picture(lib, pixels, steps, tiny=False, capture=True):
    """SDXL with guidance from embedded prompts to a picture on the device, which a call of a pipeline is."""
    if ours(lib):
        from scaffolding.diffusion import EulerDiscreteScheduler, StableDiffusionXLPipeline
    else:
        from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline
    network = make_unet(lib, "sdxl", tiny, lib.bfloat16).eval()
    vae = make(
        lib,
        "AutoencoderKL",
        (TINY_VAE if tiny else VAE) | {"force_upcast": False, "scaling_factor": 0.13025},
        lib.bfloat16,
    ).eval()
    scheduler = EulerDiscreteScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    parts = dict.fromkeys(("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2"))
    pipe = StableDiffusionXLPipeline(unet=network, vae=vae, scheduler=scheduler, **parts)
    _, _, text, added = unet_inputs(lib, "sdxl", tiny, 2, pixels // 8, lib.bfloat16)
    call = {
        "prompt_embeds": text[:1],
        "negative_prompt_embeds": text[1:],
        "pooled_prompt_embeds": added["text_embeds"][:1],
        "negative_pooled_prompt_embeds": added["text_embeds"][1:],
        "height": pixels,
        "width": pixels,
        "num_inference_steps": steps,
        "output_type": "sf_tensor" if ours(lib) else "pt",
    }
    if ours(lib):
        call["capture"] = capture
    else:
        pipe.set_progress_bar_config(disable=True)
        if capture and device(lib) == "cuda":
            replay_in_graph(lib, network)
    flop = steps * unet_flop("sdxl", 2, pixels // 8)[0] + VAE_FLOP.get(pixels // 8, 0)
    return Work([lambda: pipe(**call).images], flop=flop if pixels == 1024 else 0, images=1)


def replay_in_graph(torch, network):
    """torch's denoiser as a replay: its inputs are copied into those of the first call. One shape only."""
    forward, kept = network.forward, {}

    def replaying(sample, timestep, encoder_hidden_states, added_cond_kwargs=None, return_dict=True, **ignored):
        inputs = [sample, timestep.reshape(1), encoder_hidden_states, *added_cond_kwargs.values()]
        if not kept:
            static = kept["inputs"] = [t.clone() for t in inputs]

            def run():
                given = dict(zip(added_cond_kwargs, static[3:]))
                return forward(static[0], static[1], static[2], added_cond_kwargs=given, return_dict=False)

            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(2):
                    run()
            torch.cuda.current_stream().wait_stream(side)
            kept["graph"] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(kept["graph"]):
                kept["out"] = run()
        for mine, given in zip(kept["inputs"], inputs):
            mine.copy_(given)
        kept["graph"].replay()
        return tuple(t.clone() for t in kept["out"])

    network.forward = replaying


def training(lib, kind, batch, pixels, tiny=False):
    """Noise prediction in bfloat16 autocast over float32 weights: forward, loss, backward, clipping, AdamW."""
    model = make_unet(lib, kind, tiny, lib.float32).train()
    x, steps, text, added = unet_inputs(lib, kind, tiny, batch, pixels, lib.float32)
    noise = lib.randn(*x.shape, device=device(lib)).contiguous(memory_format=lib.channels_last)
    parameters = list(model.parameters())
    optimizer = capturable_adamw(lib, parameters)
    autocast = lib.autocast("cuda", dtype=lib.bfloat16) if device(lib) == "cuda" else contextlib.nullcontext()

    def step():
        optimizer.zero_grad()
        with autocast:
            loss = lib.nn.functional.mse_loss(model(x, steps, text, added_cond_kwargs=added).sample.float(), noise)
        loss.backward()
        lib.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    flop, weights = unet_flop(kind, batch, pixels)
    return Work([step], flop=3 * flop, moved=14 * weights, in_turn=True, images=batch, grad=True)
