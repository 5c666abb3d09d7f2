"""Golden files of diffusion transformers: diffusers' DiTTransformer2DModel, and DiTModel as written here from
diffusers' parts.

Usage: /path/to/python-with-diffusers tests/golden/make_golden_models_dit.py
Writes models/dit (.json.gz, .safetensors.gz) and keys.tar.xz: see model_fixture.py.
"""

import torch
from diffusers import DiTTransformer2DModel
from diffusers.models.attention import FeedForward
from diffusers.models.attention_processor import Attention
from diffusers.models.embeddings import TimestepEmbedding, get_timestep_embedding
from model_fixture import ModelFixture, floats
from torch import nn


def normed(x, shift=0, scale=0):
    return nn.functional.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


def waves(places, channels):
    """[n, channels] sines, then cosines of 0 .. n-1."""
    angles = torch.arange(places, dtype=torch.float64)[:, None] / 10000 ** (
        torch.arange(channels // 2, dtype=torch.float64) / (channels // 2)
    )
    return torch.cat([angles.sin(), angles.cos()], -1)


class DiTBlock(nn.Module):
    def __init__(self, channels, heads, inner, text):
        super().__init__()
        self.adaLN_modulation = nn.Linear(channels, 6 * channels)
        self.attn1, self.attn2 = (
            Attention(channels, heads=heads, dim_head=channels // heads, bias=True) for _ in range(2)
        )
        self.ff = FeedForward(channels, inner_dim=inner, activation_fn="gelu-approximate")

    def forward(self, x, conditioning, text, mask):
        shift, scale, gate, shift_ff, scale_ff, gate_ff = self.adaLN_modulation(nn.functional.silu(conditioning))[
            :, None
        ].chunk(6, -1)
        x = x + gate * self.attn1(normed(x, shift, scale))
        if text is not None:
            x = x + self.attn2(normed(x), encoder_hidden_states=text, attention_mask=mask)
        return x + gate_ff * self.ff(normed(x, shift_ff, scale_ff))


class TextProjection(nn.Module):
    def __init__(self, context_dim, channels):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(context_dim, channels), nn.Linear(channels, channels)

    def forward(self, text):
        return self.linear_2(nn.functional.gelu(self.linear_1(text), approximate="tanh"))


class DiTModel(nn.Module):
    def __init__(
        self,
        patch_size=2,
        in_channels=16,
        hidden_size=1152,
        depth=28,
        num_heads=16,
        mlp_ratio=4.0,
        context_dim=4096,
        out_channels=None,
    ):
        super().__init__()
        self.patch, self.out_channels = patch_size, out_channels or in_channels
        self.x_embedder = nn.Conv2d(in_channels, hidden_size, patch_size, patch_size)
        self.t_embedder = TimestepEmbedding(256, hidden_size)
        self.text_embedder = TextProjection(context_dim, hidden_size)
        inner = int(hidden_size * mlp_ratio)
        self.blocks = nn.ModuleList([DiTBlock(hidden_size, num_heads, inner, context_dim) for _ in range(depth)])
        self.final_modulation = nn.Linear(hidden_size, 2 * hidden_size)
        self.final_linear = nn.Linear(hidden_size, patch_size**2 * self.out_channels)

    def forward(
        self, hidden_states, timestep, encoder_hidden_states=None, encoder_attention_mask=None, return_dict=True
    ):
        video = hidden_states if hidden_states.ndim == 5 else hidden_states.unsqueeze(2)
        batch, _, frames, height, width = video.shape
        x = self.x_embedder(video.transpose(1, 2).flatten(0, 1)).unflatten(0, (batch, frames))  # [B, F, C, h, w]
        h, w, channels = height // self.patch, width // self.patch, x.shape[2]
        x = x.permute(0, 1, 3, 4, 2)
        side = channels * 3 // 16 * 2  # of the channels for a row, and as many for a column
        parts = [
            waves(frames, channels - 2 * side)[:, None, None],
            waves(h, side)[None, :, None],
            waves(w, side)[None, None],
        ]
        x = (x + torch.cat([p.expand(frames, h, w, -1) for p in parts], -1)).flatten(1, 3)
        timestep = timestep.expand(batch) if torch.is_tensor(timestep) else torch.full((batch,), timestep)
        conditioning = self.t_embedder(
            get_timestep_embedding(timestep, 256, flip_sin_to_cos=True, downscale_freq_shift=0).to(x.dtype)
        )
        text = None if encoder_hidden_states is None else self.text_embedder(encoder_hidden_states)
        mask = None if encoder_attention_mask is None else (1 - encoder_attention_mask[:, None].to(x.dtype)) * -1e9
        for block in self.blocks:
            x = block(x, conditioning, text, mask)
        shift, scale = self.final_modulation(nn.functional.silu(conditioning))[:, None].chunk(2, -1)
        x = self.final_linear(normed(x, shift, scale)).reshape(
            batch, frames, h, w, self.patch, self.patch, self.out_channels
        )
        x = x.permute(0, 6, 1, 2, 4, 3, 5).reshape(batch, self.out_channels, frames, height, width)
        return {"sample": x if hidden_states.ndim == 5 else x.squeeze(2)}


def main():
    fixture = ModelFixture("dit")
    fixture.model(
        DiTTransformer2DModel,
        full_size={
            "dit_xl_2": {"num_attention_heads": 16, "attention_head_dim": 72, "out_channels": 8, "num_layers": 28}
        },
    )
    tiny = {
        "num_attention_heads": 2,
        "attention_head_dim": 10,
        "num_layers": 2,
        "sample_size": 8,
        "num_embeds_ada_norm": 7,
    }
    other = {**tiny, "patch_size": 4, "in_channels": 3, "out_channels": 6, "activation_fn": "geglu", "norm_eps": 1e-3}
    affine = {
        **tiny,
        "attention_bias": False,
        "norm_elementwise_affine": True,
        "sample_size": 4,
        "activation_fn": "gelu",
    }
    for number, (name, config, sizes, timesteps, labels) in enumerate(
        [
            ("plain", tiny, (2, 4, 8, 8), [17, 903], [3, 7]),
            ("other sizes", other, (1, 3, 16, 16), [500], [0]),
            ("affine norms", affine, (2, 4, 12, 12), [0, 999], [6, 6]),
        ]
    ):
        call = {
            "hidden_states": floats(*sizes, name=f"latents {number}"),
            "timestep": timesteps,
            "class_labels": labels,
        }
        fixture.case(name, DiTTransformer2DModel, config, call)

    fixture.model(DiTModel, full_size={"dit_text": {}})
    small = {"patch_size": 2, "in_channels": 4, "hidden_size": 32, "depth": 2, "num_heads": 4, "context_dim": 12}
    picture, video, text = floats(2, 4, 8, 6), floats(2, 4, 3, 4, 4), floats(2, 5, 12)
    fixture.case(
        "picture and text", DiTModel, small, {"hidden_states": picture, "timestep": 10, "encoder_hidden_states": text}
    )
    fixture.case(
        "picture alone",
        DiTModel,
        {**small, "out_channels": 6, "mlp_ratio": 2.5},
        {"hidden_states": picture, "timestep": [0.5, 500.0]},
    )
    masked = {"encoder_hidden_states": text, "encoder_attention_mask": [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]}
    fixture.case("video", DiTModel, small, {"hidden_states": video, "timestep": [10, 20], **masked})
    fixture.write()


if __name__ == "__main__":
    main()
