"""LTX-2's autoencoder of sound and its vocoders, under diffusers' names."""

from .autoencoder_kl import DiagonalGaussianDistribution
from .modeling import ModelMixin, model_class, native_method
from .outputs import AutoencoderKLOutput, DecoderOutput


@model_class
class AutoencoderKLLTX2Audio(ModelMixin):
    """LTX-2's autoencoder of sound: mel spectrograms [B, 2, L, 64] to distributions of latents [B, 8, (L + 3) / 4, 16],
    latents to spectrograms [B, 2, 4 l - 3, 64].

    `latents_mean` and `latents_std` are those of latents whose channels and mel bins are one list.

    >>> vae = sf.models.AutoencoderKLLTX2Audio(base_channels=8, num_res_blocks=1)
    >>> vae.encode(sf.zeros(1, 2, 9, 64)).latent_dist.mode().shape
    scaffolding.Size([1, 8, 3, 16])
    """

    temporal_compression_ratio = mel_compression_ratio = 4
    _moments, _decode = native_method("moments"), native_method("decode")

    def enable_slicing(self):
        """One spectrogram of a batch at a time: the same result with the memory of one."""
        self.use_slicing = True

    def disable_slicing(self):
        """The whole batch at once again."""
        self.use_slicing = False

    def encode(self, x, return_dict=True):
        """The distribution of the latents of spectrograms x[B, 2, L, 64]. ValueError for another number of channels."""
        posterior = DiagonalGaussianDistribution(self._moments(x))
        return AutoencoderKLOutput(latent_dist=posterior) if return_dict else (posterior,)

    def decode(self, z, return_dict=True):
        """Spectrograms of latents z[B, 8, l, 16], which are not scaled: those of a pipeline times `latents_std` plus
        `latents_mean`.
        """
        sample = self._decode(z)
        return DecoderOutput(sample=sample) if return_dict else (sample,)

    def forward(self, sample, sample_posterior=False, return_dict=True, generator=None):
        """There and back, by a sample of the latents (drawn with the generator) or by their means."""
        sample = self.native_forward(sample, sample_posterior, generator)
        return DecoderOutput(sample=sample) if return_dict else (sample,)


@model_class
class LTX2Vocoder(ModelMixin):
    """LTX-2.0's vocoder: mel spectrograms to stereo sound, `config.output_sampling_rate` samples a second.

    >>> vocoder = sf.models.LTX2Vocoder(hidden_channels=64)
    >>> vocoder(sf.zeros(1, 2, 3, 64)).shape  # 240 samples for each frame
    scaffolding.Size([1, 2, 720])
    """

    def forward(self, hidden_states, time_last=False):
        """Sound [B, out_channels, samples] of spectrograms [B, channels, frames, mel bins], or with time_last [B,
        channels, mel bins, frames]: channels * mel bins are config.in_channels.
        """
        return self.native_forward(hidden_states, time_last)


@model_class
class LTX2VocoderWithBWE(ModelMixin):
    """LTX-2.3's vocoder: a vocoder, and a second one that adds the high frequencies to what the first one made;
    `config.output_sampling_rate` samples a second.

    >>> vocoder = sf.models.LTX2VocoderWithBWE(hidden_channels=64, bwe_hidden_channels=32)
    >>> vocoder(sf.zeros(1, 2, 4, 64)).shape
    scaffolding.Size([1, 2, 1920])
    """

    def forward(self, mel_spec):
        """Sound [B, out_channels, samples] in [-1, 1] of spectrograms [B, channels, frames, mel bins]."""
        return self.native_forward(mel_spec)
