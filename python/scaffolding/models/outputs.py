"""What models return: named tensors that are also a tuple and a dict, as in diffusers."""

from collections import OrderedDict


class BaseOutput(OrderedDict):
    """A dict of the entries that are not None; by attribute, by name, and by position as a tuple."""

    _names = ()

    def __init__(self, *args, **kwargs):
        super().__init__()
        if len(args) > len(self._names):
            raise TypeError(f"{type(self).__name__}: takes at most {len(self._names)} entries, got {len(args)}")
        values = dict(zip(self._names, args)) | kwargs
        for name in values:
            if name not in self._names:
                raise TypeError(f"{type(self).__name__}: has no entry '{name}'")
        for name in self._names:
            setattr(self, name, values.get(name))

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name in self._names:
            if value is None:
                self.pop(name, None)
            else:
                super().__setitem__(name, value)

    def __setitem__(self, name, value):
        setattr(self, name, value)

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self):
        return tuple(self[name] for name in self)

    def __reduce__(self):
        return type(self), tuple(getattr(self, name) for name in self._names)


def output(name, *fields, doc):
    """A class of outputs with these entries."""
    return type(name, (BaseOutput,), {"_names": fields, "__doc__": doc, "__module__": __name__})


AutoencoderKLOutput = output(
    "AutoencoderKLOutput", "latent_dist", doc="latent_dist: a DiagonalGaussianDistribution of [B, C, h, w]."
)
AutoencoderTinyOutput = output("AutoencoderTinyOutput", "latents", doc="latents: [B, C, h, w].")
DecoderOutput = output("DecoderOutput", "sample", "commit_loss", doc="sample: the decoded pictures [B, C, H, W].")
UNet2DOutput = output("UNet2DOutput", "sample", doc="sample: the prediction [B, out_channels, H, W].")
UNet2DConditionOutput = output("UNet2DConditionOutput", "sample", doc="sample: the prediction [B, out_channels, H, W].")
ControlNetOutput = output(
    "ControlNetOutput",
    "down_block_res_samples",
    "mid_block_res_sample",
    doc="down_block_res_samples: what is added to each of the UNet's skips; mid_block_res_sample: to its middle.",
)
Transformer2DModelOutput = output("Transformer2DModelOutput", "sample", doc="sample: [B, in_channels, H, W].")
AudioVisualModelOutput = output(
    "AudioVisualModelOutput",
    "sample",
    "audio_sample",
    doc="sample: tokens of a video [B, N, out_channels]; audio_sample: of its sound [B, L, audio_out_channels].",
)
BaseModelOutput = output(
    "BaseModelOutput",
    "last_hidden_state",
    "hidden_states",
    "attentions",
    doc="last_hidden_state: [B, N, C]; hidden_states: a tuple of [B, N, C], where they were asked for.",
)
BaseModelOutputWithPooling = output(
    "BaseModelOutputWithPooling",
    "last_hidden_state",
    "pooler_output",
    "hidden_states",
    "attentions",
    doc=(
        "last_hidden_state: [B, N, C]; pooler_output: [B, C]; hidden_states: a tuple of [B, N, C], where they were "
        "asked for."
    ),
)
CLIPTextModelOutput = output(
    "CLIPTextModelOutput",
    "text_embeds",
    "last_hidden_state",
    "hidden_states",
    "attentions",
    doc=(
        "text_embeds: [B, projection_dim]; last_hidden_state: [B, N, C]; hidden_states: a tuple of [B, N, C], "
        "where they were asked for."
    ),
)
