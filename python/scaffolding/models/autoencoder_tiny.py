"""AutoencoderTiny, under diffusers' name."""

import os

from .._core import _models
from .autoencoder_mixin import AutoencoderMixin
from .modeling import ModelMixin, model_class, native_method
from .outputs import AutoencoderTinyOutput, DecoderOutput


@model_class
class AutoencoderTiny(AutoencoderMixin, ModelMixin):
    """TAESD: pictures [B, 3, H, W] in [-1, 1] to latents [B, 4, H / 8, W / 8] and back, with 1.2 million parameters
    each way.

    use_midblock_gn=True adds the pool branches of TAEF2, for FLUX.2's latents [B, 32, H / 8, W / 8]; diffusers' class
    has none. See `from_taesd`.

    >>> vae = sf.models.AutoencoderTiny(encoder_block_out_channels=[8] * 4, decoder_block_out_channels=[8] * 4)
    >>> vae.encode(sf.zeros(1, 3, 32, 48)).latents.shape
    scaffolding.Size([1, 4, 4, 6])
    """

    _encode, _decode = native_method("encode"), native_method("decode")
    scale_latents = native_method("scale_latents")
    unscale_latents = native_method("unscale_latents")

    @classmethod
    def from_taesd(cls, encoder, decoder, torch_dtype=None):
        """A model from the two files that TAESD's authors publish (taesd, taesdxl, taesd3, taef1, taef2; .pth or
        .safetensors), in eval mode.

        Latent channels and TAEF2's pool branches are seen from the files. torch_dtype: absent, the files'. ValueError
        for files of something else. Pictures are [-1, 1] here too, where the authors' own program has [0, 1].
        """
        model = cls.__new__(cls)
        _models.load_taesd(model, os.fspath(encoder), os.fspath(decoder), torch_dtype)
        return model

    def encode(self, x, return_dict=True):
        """Latents of pictures x[B, 3, H, W] in [-1, 1]."""
        latents = self._encode(x)
        return AutoencoderTinyOutput(latents=latents) if return_dict else (latents,)

    def decode(self, x, generator=None, return_dict=True):
        """Pictures of latents x[B, 4, h, w]."""
        sample = self._decode(x)
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def forward(self, sample, return_dict=True):
        """There and back by way of 8-bit latents."""
        sample = self.native_forward(sample)
        return DecoderOutput(sample=sample) if return_dict else (sample,)
