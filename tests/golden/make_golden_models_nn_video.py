"""Golden files of the small video family (scaffolding.nn.video), whose networks no other library has: they are written
here from torch.nn's layers.

Usage: /path/to/python-with-diffusers tests/golden/make_golden_models_nn_video.py
Writes models/nn_video (.json.gz, .safetensors.gz) and keys.tar.xz: see model_fixture.py.
"""

import math

import torch
from model_fixture import ModelFixture, floats
from torch import nn
from torch.nn import functional as F


def waves(places, channels):
    """[n, channels]: sines, then cosines of the places."""
    half = channels // 2
    angles = places.double()[:, None] * 10000 ** (-torch.arange(half, dtype=torch.float64) / half)
    return torch.cat([angles.sin(), angles.cos()], -1)


class Attention(nn.Module):
    def __init__(self, channels, heads, context=None):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(channels, channels, bias=False)
        self.to_k = nn.Linear(context or channels, channels, bias=False)
        self.to_v = nn.Linear(context or channels, channels, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(channels, channels), nn.Identity()])

    def forward(self, x, context=None, mask=None):
        """x[B, N, C], mask[B, M]: 0 is not seen"""
        context = x if context is None else context
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for t in (self.to_q(x), self.to_k(context), self.to_v(context))
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None] == 0, -torch.inf)
        return self.to_out[0]((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class TextEncoderLayer(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(channels), Attention(channels, heads), nn.LayerNorm(channels)
        proj = nn.Module()
        proj.proj = nn.Linear(channels, 4 * channels)
        self.ff = nn.Module()
        self.ff.net = nn.ModuleList([proj, nn.Identity(), nn.Linear(4 * channels, channels)])

    def forward(self, x, mask):
        x = x + self.attn(self.norm1(x), mask=mask)
        return x + self.ff.net[2](F.gelu(self.ff.net[0].proj(self.norm2(x)), approximate="tanh"))


class TextEncoder(nn.Module):
    def __init__(self, vocab_size=8192, embed_dim=256, num_layers=4, num_heads=4, max_length=77):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, embed_dim)
        self.position_embedding = nn.Embedding(max_length, embed_dim)
        self.layers = nn.ModuleList([TextEncoderLayer(embed_dim, num_heads) for _ in range(num_layers)])
        self.final_norm = nn.LayerNorm(embed_dim)

    def forward(self, input_ids, attention_mask=None):
        x = self.token_embedding(input_ids) + self.position_embedding.weight[: input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x, attention_mask)
        return self.final_norm(x)


class VideoTimestepEmbedding(nn.Module):
    _supports_gradient_checkpointing = False

    def __init__(self, channels=64, time_embed_dim=256):
        super().__init__()
        self.channels = channels
        self.linear_1, self.linear_2 = nn.Linear(channels, time_embed_dim), nn.Linear(time_embed_dim, time_embed_dim)

    def forward(self, timestep, dtype=None):
        timestep = timestep if torch.is_tensor(timestep) else torch.tensor(timestep)
        sines, cosines = waves(timestep.reshape(-1), self.channels).chunk(2, -1)
        angles = torch.cat([cosines, sines], -1).to(self.linear_1.weight.dtype)
        return self.linear_2(F.silu(self.linear_1(angles)))


class ResBlock3D(nn.Module):
    _supports_gradient_checkpointing = False

    def __init__(self, in_channels=64, out_channels=None, time_embed_dim=256, norm_num_groups=8, dropout=0.0):
        super().__init__()
        out = out_channels or in_channels
        self.norm1 = nn.GroupNorm(norm_num_groups, in_channels, eps=1e-6)
        self.conv1 = nn.Conv3d(in_channels, out, 3, padding=1)
        if time_embed_dim is not None:
            self.time_emb_proj = nn.Linear(time_embed_dim, out)
        self.norm2 = nn.GroupNorm(norm_num_groups, out, eps=1e-6)
        self.conv2 = nn.Conv3d(out, out, 3, padding=1)
        if in_channels != out:
            self.conv_shortcut = nn.Conv3d(in_channels, out, 1)

    def forward(self, hidden_states, temb=None):
        h = self.conv1(F.silu(self.norm1(hidden_states)))
        if temb is not None:
            h = h + self.time_emb_proj(F.silu(temb))[:, :, None, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (self.conv_shortcut(hidden_states) if hasattr(self, "conv_shortcut") else hidden_states)


class SpatialTemporalAttention(nn.Module):
    _supports_gradient_checkpointing = False

    def __init__(self, channels=64, num_heads=4, context_dim=256):
        super().__init__()
        self.spatial_norm, self.spatial_attn = nn.LayerNorm(channels), Attention(channels, num_heads)
        self.temporal_norm, self.temporal_attn = nn.LayerNorm(channels), Attention(channels, num_heads)
        if context_dim is not None:
            self.cross_norm = nn.LayerNorm(channels)
            self.cross_attn = Attention(channels, num_heads, context_dim)

    def forward(self, hidden_states, encoder_hidden_states=None, encoder_attention_mask=None):
        batch, channels, frames, height, width = hidden_states.shape
        x = hidden_states.movedim(1, -1)  # [B, T, H, W, C]
        rows = x.reshape(batch * frames, height * width, channels)
        x = (rows + self.spatial_attn(self.spatial_norm(rows))).reshape(x.shape)
        rows = x.movedim(1, 3).reshape(batch * height * width, frames, channels)
        told = self.temporal_norm(rows) + waves(torch.arange(frames), channels).to(rows.dtype)
        x = (rows + self.temporal_attn(told)).reshape(batch, height, width, frames, channels).movedim(3, 1)
        if encoder_hidden_states is not None:
            rows = x.reshape(batch, -1, channels)
            rows = rows + self.cross_attn(self.cross_norm(rows), encoder_hidden_states, encoder_attention_mask)
            x = rows.reshape(x.shape)
        return x.movedim(-1, 1)


class Layer(nn.Module):
    def __init__(self, in_channels, out_channels, attends, time=None, heads=4, context=None, groups=8):
        super().__init__()
        self.resnet = ResBlock3D(in_channels, out_channels, time, groups)
        if attends:
            self.attention = SpatialTemporalAttention(out_channels, heads, context)

    def forward(self, x, temb, *text):
        x = self.resnet(x, temb)
        return self.attention(x, *text) if hasattr(self, "attention") else x


class Level(nn.Module):
    """Of the way down (a downsampler behind the layers), or of the way up (an upsampler before them)."""

    def __init__(self, layers, down=None, up=None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        if down:
            self.downsampler = nn.Conv3d(down, down, (1, 3, 3), (1, 2, 2), (0, 1, 1))
        if up:
            self.upsampler = nn.Conv3d(up, up, (1, 3, 3), padding=(0, 1, 1))

    def forward(self, x, skips, temb=None, *text):
        """skips: grows on the way down, shrinks on the way up where it is not None."""
        if hasattr(self, "upsampler"):
            x = self.upsampler(F.interpolate(x, scale_factor=(1, 2, 2)))
        for layer in self.layers:
            if self.rises and skips is not None:
                x = torch.cat([x, skips.pop()], 1)
            x = layer(x, temb, *text)
            if not self.rises and skips is not None:
                skips.append(x)
        return self.downsampler(x) if hasattr(self, "downsampler") else x


def levels_of(channels, first, last, blocks, attends, shrinks, skipped, **options):
    """(down, up) levels: `first` channels come in, `last` come back from the middle."""
    down, up, count = [], [], len(channels)
    for i, c in enumerate(channels):
        before = first if i == 0 else channels[i - 1]
        layers = [Layer(before if j == 0 else c, c, attends[i], **options) for j in range(blocks)]
        down.append(Level(layers, down=c if shrinks[i] else None))
        below = last if i == count - 1 else channels[i + 1]
        more = c if skipped else 0
        layers = [Layer((below if j == 0 else c) + more, c, attends[i], **options) for j in range(blocks)]
        up.insert(0, Level(layers, up=below if shrinks[i] else None))
    for level in down:
        level.rises = False
    for level in up:
        level.rises = True
    return nn.ModuleList(down), nn.ModuleList(up)


class UNet(nn.Module):
    def build(self, in_channels, out_channels, model_channels, channels, attends, blocks, middle, shrinks, **options):
        options["time"] = 4 * model_channels
        self.time_embedding = VideoTimestepEmbedding(model_channels, 4 * model_channels)
        self.conv_in = nn.Conv3d(in_channels, channels[0], 3, padding=1)
        self.down_blocks, self.up_blocks = levels_of(
            channels, channels[0], middle, blocks, attends, shrinks, True, **options
        )
        self.mid_layers = nn.ModuleList(
            [Layer(channels[-1], middle, True, **options), Layer(middle, middle, False, **options)]
        )
        self.conv_norm_out = nn.GroupNorm(options["groups"], channels[0], eps=1e-6)
        self.conv_out = nn.Conv3d(channels[0], out_channels or in_channels, 3, padding=1)

    def forward(self, sample, timestep, encoder_hidden_states=None, encoder_attention_mask=None):
        text = (encoder_hidden_states, encoder_attention_mask)
        timestep = timestep if torch.is_tensor(timestep) else torch.tensor(timestep)
        temb = self.time_embedding(timestep.reshape(-1).expand(sample.shape[0]))
        x, skips = self.conv_in(sample), []
        for level in self.down_blocks:
            x = level(x, skips, temb, *text)
        for layer in self.mid_layers:
            x = layer(x, temb, *text)
        for level in self.up_blocks:
            x = level(x, skips, temb, *text)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class SimpleUNet3D(UNet):
    def __init__(
        self, in_channels=3, out_channels=None, model_channels=64, num_heads=4, context_dim=256, norm_num_groups=8
    ):
        super().__init__()
        self.build(
            in_channels,
            out_channels,
            model_channels,
            [model_channels, 2 * model_channels],
            [False, True],
            1,
            4 * model_channels,
            [True, True],
            heads=num_heads,
            context=context_dim,
            groups=norm_num_groups,
        )


class UNet3D(UNet):
    def __init__(
        self,
        in_channels=3,
        out_channels=None,
        model_channels=64,
        channel_mult=(1, 2, 4),
        num_res_blocks=2,
        attention_levels=None,
        num_heads=4,
        context_dim=256,
        norm_num_groups=8,
        dropout=0.0,
    ):
        super().__init__()
        count = len(channel_mult)
        attends = range(1, count) if attention_levels is None else attention_levels
        self.build(
            in_channels,
            out_channels,
            model_channels,
            [m * model_channels for m in channel_mult],
            [i in attends for i in range(count)],
            num_res_blocks,
            channel_mult[-1] * model_channels,
            [i + 1 < count for i in range(count)],
            heads=num_heads,
            context=context_dim,
            groups=norm_num_groups,
        )


class VideoEncoder(nn.Module):
    def __init__(
        self,
        in_channels=3,
        latent_channels=4,
        model_channels=32,
        channel_mult=(1, 2, 4),
        num_res_blocks=1,
        num_heads=4,
        norm_num_groups=8,
        scaling_factor=1.0,
    ):
        super().__init__()
        channels, last = [m * model_channels for m in channel_mult], channel_mult[-1] * model_channels
        shrinks, options = [i + 1 < len(channels) for i in range(len(channels))], {"groups": norm_num_groups}
        options["heads"] = num_heads
        self.conv_in = nn.Conv3d(in_channels, channels[0], 3, padding=1)
        never = [False] * len(channels)
        self.down_blocks, _ = levels_of(channels, channels[0], last, num_res_blocks, never, shrinks, False, **options)
        self.mid_layers = nn.ModuleList([Layer(last, last, True, **options), Layer(last, last, False, **options)])
        self.conv_norm_out = nn.GroupNorm(norm_num_groups, last, eps=1e-6)
        self.conv_out = nn.Conv3d(last, 2 * latent_channels, 3, padding=1)

    def forward(self, video):
        x = self.conv_in(video)
        for level in self.down_blocks:
            x = level(x, None)
        for layer in self.mid_layers:
            x = layer(x, None)
        return {"parameters": self.conv_out(F.silu(self.conv_norm_out(x)))}


class VideoDecoder(nn.Module):
    def __init__(
        self,
        out_channels=3,
        latent_channels=4,
        model_channels=32,
        channel_mult=(1, 2, 4),
        num_res_blocks=1,
        num_heads=4,
        norm_num_groups=8,
    ):
        super().__init__()
        channels, last = [m * model_channels for m in channel_mult], channel_mult[-1] * model_channels
        shrinks, options = [i + 1 < len(channels) for i in range(len(channels))], {"groups": norm_num_groups}
        options["heads"] = num_heads
        self.conv_in = nn.Conv3d(latent_channels, last, 3, padding=1)
        self.mid_layers = nn.ModuleList([Layer(last, last, True, **options), Layer(last, last, False, **options)])
        never = [False] * len(channels)
        _, self.up_blocks = levels_of(channels, channels[0], last, num_res_blocks, never, shrinks, False, **options)
        self.conv_norm_out = nn.GroupNorm(norm_num_groups, channels[0], eps=1e-6)
        self.conv_out = nn.Conv3d(channels[0], out_channels, 3, padding=1)

    def forward(self, latents):
        x = self.conv_in(latents)
        for layer in self.mid_layers:
            x = layer(x, None)
        for level in self.up_blocks:
            x = level(x, None)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


def main():
    fixture = ModelFixture("nn_video")
    every = [TextEncoder, VideoTimestepEmbedding, ResBlock3D, SpatialTemporalAttention, SimpleUNet3D, UNet3D]
    for cls in (*every, VideoEncoder, VideoDecoder):
        file = f"nn_video_{cls.__name__.lower()}"
        fixture.model(cls, full_size={file: {}})

    ids, seen = [[1, 9, 4, 2, 0], [1, 3, 2, 0, 0]], [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]
    small = {"vocab_size": 11, "embed_dim": 16, "num_layers": 2, "num_heads": 2, "max_length": 6}
    fixture.case("text", TextEncoder, small, {"input_ids": ids, "attention_mask": seen})
    fixture.case("text without a mask", TextEncoder, {**small, "num_heads": 4}, {"input_ids": ids})

    embedding = {"channels": 8, "time_embed_dim": 12}
    fixture.case("timesteps", VideoTimestepEmbedding, embedding, {"timestep": [0.0, 12.5, 999.0]})

    block, video, temb = (
        {"in_channels": 8, "time_embed_dim": 6, "norm_num_groups": 4},
        floats(2, 8, 3, 4, 6),
        floats(2, 6),
    )
    fixture.case("block", ResBlock3D, block, {"hidden_states": video, "temb": temb})
    fixture.case(
        "block to other channels", ResBlock3D, {**block, "out_channels": 12}, {"hidden_states": video, "temb": temb}
    )

    text, mask = floats(2, 5, 10), seen
    attention, told = {"channels": 8, "num_heads": 2, "context_dim": 10}, {"encoder_hidden_states": text}
    fixture.case("attention", SpatialTemporalAttention, attention, {"hidden_states": video, **told})
    masked = {**told, "encoder_attention_mask": mask}
    fixture.case("attention to part of a text", SpatialTemporalAttention, attention, {"hidden_states": video, **masked})
    alone = {**attention, "context_dim": None}
    fixture.case("attention without a text", SpatialTemporalAttention, alone, {"hidden_states": video})

    simple = {"model_channels": 8, "num_heads": 2, "context_dim": 10, "norm_num_groups": 4}
    sample = floats(2, 3, 2, 8, 12)
    fixture.case("simple", SimpleUNet3D, simple, {"sample": sample, "timestep": [3, 905], **masked})
    other = {**simple, "in_channels": 4, "out_channels": 5, "context_dim": None}
    fixture.case("simple without a text", SimpleUNet3D, other, {"sample": floats(1, 4, 1, 4, 4), "timestep": 17.5})

    unet = {**simple, "channel_mult": [1, 2], "num_res_blocks": 2}
    fixture.case("unet", UNet3D, unet, {"sample": sample, "timestep": [3, 905], **masked})
    deep = {**simple, "channel_mult": [1, 1, 2], "num_res_blocks": 1, "attention_levels": [0], "out_channels": 4}
    fixture.case(
        "unet of three levels",
        UNet3D,
        deep,
        {"sample": floats(1, 3, 3, 8, 4), "timestep": 500, **{"encoder_hidden_states": floats(1, 5, 10)}},
    )

    auto = {"model_channels": 8, "channel_mult": [1, 2], "num_heads": 2, "norm_num_groups": 4, "latent_channels": 2}
    fixture.case("encoder", VideoEncoder, auto, {"video": floats(2, 3, 2, 8, 4)})
    fixture.case("decoder", VideoDecoder, auto, {"latents": floats(2, 2, 2, 4, 2)})
    fixture.write()


if __name__ == "__main__":
    main()
