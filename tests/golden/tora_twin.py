"""ToraTransformer3DModel in PyTorch, for golden files. diffusers has no such class: it is written here around its
CogVideoXTransformer3DModel, from the description in Tora's paper and the names of its published weights.
"""

import inspect

from diffusers import CogVideoXTransformer3DModel
from torch import nn

FLOW = {"flow_in_channels": 16, "flow_channels": 128, "flow_resnets": 2}


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.block1, self.block2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return x + self.block2(self.bn2(self.block1(self.bn1(x).relu())).relu())


class Extractor(nn.Module):
    """[B, C, T, H, W] to a list of features [B * T', channels, H / 2, W / 2]"""

    def __init__(self, in_channels, channels, features, resnets, patch, patch_t):
        super().__init__()
        self.patch, self.patch_t, self.resnets = patch, patch_t, resnets
        self.body = nn.ModuleList(Residual(channels) for _ in range(features * resnets))
        self.conv_in = nn.Conv2d(in_channels * patch * patch * patch_t, channels, 3, padding=1)

    def forward(self, x):
        over = [-x.shape[i] % p for i, p in ((4, self.patch), (3, self.patch), (2, self.patch_t))]
        x = nn.functional.pad(x, (0, over[0], 0, over[1], 0, over[2]))
        x = x.unfold(2, self.patch_t, self.patch_t).unfold(3, self.patch, self.patch).unfold(4, self.patch, self.patch)
        x = x.permute(0, 2, 1, 5, 6, 7, 3, 4)  # [B, T', C, patch_t, patch, patch, H', W']
        x = self.conv_in(x.flatten(2, 5).flatten(0, 1))
        out = []
        for i, block in enumerate(self.body):
            x = block(x)
            if (i + 1) % self.resnets == 0:
                out.append(x)
        return out


class Fuser(nn.Module):
    def __init__(self, flow_channels, channels):
        super().__init__()
        for name in ("gamma", "beta"):
            setattr(self, f"flow_{name}_spatial", nn.Conv2d(flow_channels, channels // 4, 3, padding=1))
            over_time = nn.Conv1d(channels // 4, channels, 3, padding=1, padding_mode="replicate")
            setattr(self, f"flow_{name}_temporal", over_time)
        self.flow_cond_norm = nn.GroupNorm(32, channels)

    def shaped(self, name, feature, batch):
        y = getattr(self, f"flow_{name}_spatial")(feature).unflatten(0, (batch, -1))  # [B, T, c, H, W]
        places = y.permute(0, 3, 4, 2, 1)
        y = getattr(self, f"flow_{name}_temporal")(places.flatten(0, 2))
        return y.unflatten(0, places.shape[:3]).permute(0, 4, 3, 1, 2).flatten(0, 1)  # [B * T, C, H, W]

    def forward(self, tokens, feature):
        batch, (height, width) = tokens.shape[0], feature.shape[-2:]
        x = tokens.unflatten(1, (-1, height, width)).flatten(0, 1).permute(0, 3, 1, 2)
        y = x + self.flow_cond_norm(x) * self.shaped("gamma", feature, batch) + self.shaped("beta", feature, batch)
        return y.permute(0, 2, 3, 1).unflatten(0, (batch, -1)).flatten(1, 3)


class ToraTransformer3DModel(nn.Module):
    """The children of a CogVideoXTransformer3DModel, whose blocks' first norms are followed by the fusers."""

    def __init__(self, **config):
        super().__init__()
        flow = {name: config.pop(name, default) for name, default in FLOW.items()}
        base = CogVideoXTransformer3DModel(**config)
        self.__dict__["base"] = base
        for name, child in base.named_children():
            self.add_module(name, child)
        c = base.config
        self.traj_extractor = Extractor(
            flow["flow_in_channels"], flow["flow_channels"], c.num_layers, flow["flow_resnets"], c.patch_size,
            c.patch_size_t or 1,
        )  # fmt: skip
        width = c.num_attention_heads * c.attention_head_dim
        self.fuser = nn.ModuleList(Fuser(flow["flow_channels"], width) for _ in range(c.num_layers))

    def forward(
        self, hidden_states, encoder_hidden_states, timestep, video_flow=None, timestep_cond=None, ofs=None,
        image_rotary_emb=None, attention_kwargs=None, return_dict=True,
    ):  # fmt: skip
        hooks = []
        if video_flow is not None:
            features = self.traj_extractor(video_flow.transpose(1, 2))
            for block, fuser, feature in zip(self.transformer_blocks, self.fuser, features):

                def fused(norm, inputs, output, fuser=fuser, feature=feature):
                    return (fuser(output[0], feature), *output[1:])

                hooks.append(block.norm1.register_forward_hook(fused))
        output = self.base(
            hidden_states, encoder_hidden_states, timestep, timestep_cond, ofs, image_rotary_emb, attention_kwargs,
            return_dict=return_dict,
        )  # fmt: skip
        for hook in hooks:
            hook.remove()
        return output


_theirs = inspect.signature(CogVideoXTransformer3DModel.__init__).parameters.values()
_flow = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in FLOW.items()]
ToraTransformer3DModel.__init__.__signature__ = inspect.Signature([*_theirs, *_flow])
