"""UNet2DModel, under diffusers' name."""

from .. import _core
from .modeling import ModelMixin, model_class
from .outputs import UNet2DOutput


@model_class
class UNet2DModel(ModelMixin):
    """The denoiser of pictures without text, as DDPM, DDIM and score-based models have it, with diffusers' config
    fields and keys.

    >>> unet = sf.models.UNet2DModel(
    ...     block_out_channels=[32, 32], down_block_types=["DownBlock2D"] * 2, up_block_types=["UpBlock2D"] * 2)
    >>> unet(sf.zeros(1, 3, 16, 16), timestep=10).sample.shape
    scaffolding.Size([1, 3, 16, 16])
    """

    def forward(self, sample, timestep, class_labels=None, return_dict=True):
        """The prediction [B, out_channels, H, W] for sample [B, in_channels, H, W] at a timestep (a number, [] or [B]).

        H and W are multiples of 2 for each level but the last. class_labels: [B], or [B, time_embedding_dim] where
        class_embed_type is "identity"; ValueError where the config has no class embedding, and where they are missing.
        """
        if not isinstance(timestep, _core.Tensor):
            timestep = _core.tensor(timestep, device=sample.device)
        sample = self.native_forward(sample, timestep, class_labels)
        return UNet2DOutput(sample=sample) if return_dict else (sample,)
