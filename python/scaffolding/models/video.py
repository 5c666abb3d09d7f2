"""The networks of the small video family: what scaffolding.nn.video is made of. Videos are [B, C, T, H, W]."""

from .autoencoder_kl import DiagonalGaussianDistribution
from .dit import _as_tensor
from .modeling import ModelMixin, model_class


@model_class
class TextEncoder(ModelMixin):
    """A transformer over the ids of TextTokenizer: self-attention among the tokens of a text, with trained positions.

    vocab_size, max_length: the tokenizer's. embed_dim: channels of the result; num_layers, num_heads.

    >>> encoder = sf.models.TextEncoder(vocab_size=100, embed_dim=16, num_layers=1)
    >>> encoder(sf.tensor([[1, 17, 44, 2]])).shape
    scaffolding.Size([1, 4, 16])
    """

    def forward(self, input_ids, attention_mask=None):
        """input_ids[B, N] to [B, N, embed_dim]. attention_mask[B, N]: 0 where a token is padding.

        ValueError for more than max_length tokens, IndexError for an id that is not below vocab_size."""
        return self.native_forward(input_ids, attention_mask)


@model_class
class VideoTimestepEmbedding(ModelMixin):
    """Cosines and sines of a timestep (`channels` of them) through two linear layers with SiLU between.

    >>> sf.nn.video.TimestepEmbedding(channels=8, time_embed_dim=16)(10).shape
    scaffolding.Size([1, 16])
    """

    def forward(self, timestep, dtype=None):
        """timestep: a number, or [B], whole or fractional, to [B, time_embed_dim] in `dtype`, the weights' unless
        given.
        """
        return self.native_forward(_as_tensor(timestep, self.device), dtype)


@model_class
class ResBlock3D(ModelMixin):
    """Group norm, SiLU and a 3x3x3 convolution, twice, beside a shortcut; a timestep's embedding is added in the
    middle.

    out_channels: in_channels unless given. time_embed_dim: None for a block that is told no timestep.

    >>> sf.nn.video.ResBlock3D(8, 16, time_embed_dim=12)(sf.zeros(1, 8, 4, 6, 6), sf.zeros(1, 12)).shape
    scaffolding.Size([1, 16, 4, 6, 6])
    """

    def forward(self, hidden_states, temb=None):
        """hidden_states[B, in_channels, T, H, W], temb[B, time_embed_dim] to [B, out_channels, T, H, W]."""
        return self.native_forward(hidden_states, temb)


@model_class
class SpatialTemporalAttention(ModelMixin):
    """Attention among the pixels of each frame, then among the frames of each pixel, then of all pixels to a text.

    context_dim: channels of the text's vectors, None for no attention to a text.

    >>> attention = sf.nn.video.SpatialTemporalAttention(channels=8, num_heads=2, context_dim=12)
    >>> attention(sf.zeros(1, 8, 4, 6, 6), sf.zeros(1, 5, 12)).shape
    scaffolding.Size([1, 8, 4, 6, 6])
    """

    def forward(self, hidden_states, encoder_hidden_states=None, encoder_attention_mask=None):
        """hidden_states[B, channels, T, H, W] to the same shape. encoder_hidden_states[B, M, context_dim];
        encoder_attention_mask[B, M]: 0 where the text is padding."""
        return self.native_forward(hidden_states, encoder_hidden_states, encoder_attention_mask)


@model_class
class SimpleUNet3D(ModelMixin):
    """A small denoiser: two levels of one residual block each, attention in the smaller, a bottleneck of 4
    model_channels, and the way back with what the levels gave.

    out_channels: in_channels unless given. context_dim: channels of the text's vectors, None for no text.
    norm_num_groups divides model_channels.

    >>> unet = sf.nn.video.SimpleUNet3D(in_channels=3, model_channels=8, num_heads=2, context_dim=12)
    >>> unet(sf.zeros(1, 3, 4, 8, 8), 10, sf.zeros(1, 5, 12)).shape
    scaffolding.Size([1, 3, 4, 8, 8])
    """

    def forward(self, sample, timestep, encoder_hidden_states=None, encoder_attention_mask=None):
        """sample[B, in_channels, T, H, W], H and W multiples of 4, to [B, out_channels, T, H, W].

        timestep: a number, or [B]. encoder_hidden_states[B, M, context_dim]; encoder_attention_mask[B, M]: 0 where the
        text is padding."""
        timestep = _as_tensor(timestep, sample.device)
        return self.native_forward(sample, timestep, encoder_hidden_states, encoder_attention_mask)


@model_class
class UNet3D(ModelMixin):
    """A denoiser with levels as its config has them.

    channel_mult: channels of each level in model_channels; each level is half as high and wide as the one before.
    num_res_blocks: of each level. attention_levels: numbers of the levels with attention, from 0, all but the first
    unless given; the middle always has it. The rest is SimpleUNet3D's.

    >>> unet = sf.nn.video.UNet3D(in_channels=3, model_channels=8, channel_mult=[1, 2], num_heads=2, context_dim=12)
    >>> unet(sf.zeros(1, 3, 4, 8, 8), 10, sf.zeros(1, 5, 12)).shape
    scaffolding.Size([1, 3, 4, 8, 8])
    """

    def forward(self, sample, timestep, encoder_hidden_states=None, encoder_attention_mask=None):
        """sample[B, in_channels, T, H, W], H and W multiples of 2 ** (levels - 1), to [B, out_channels, T, H, W].

        timestep: a number, or [B]. encoder_hidden_states[B, M, context_dim]; encoder_attention_mask[B, M]: 0 where the
        text is padding."""
        timestep = _as_tensor(timestep, sample.device)
        return self.native_forward(sample, timestep, encoder_hidden_states, encoder_attention_mask)


@model_class
class VideoEncoder(ModelMixin):
    """Videos to latents: height and width are halved at each level of channel_mult after the first.

    scaling_factor: what latents are multiplied by before they are diffused, so that their variance is about 1.

    >>> encoder = sf.nn.video.VideoEncoder(model_channels=8, channel_mult=[1, 2])
    >>> encoder(sf.zeros(1, 3, 4, 16, 16)).mode().shape
    scaffolding.Size([1, 4, 4, 8, 8])
    """

    def forward(self, video):
        """The distribution (`sample()`, `mode()`, `kl()`) of the latents [B, latent_channels, T, h, w] of
        video[B, in_channels, T, H, W]."""
        return DiagonalGaussianDistribution(self.native_forward(video))


@model_class
class VideoDecoder(ModelMixin):
    """Latents to videos: VideoEncoder's way back.

    >>> decoder = sf.nn.video.VideoDecoder(model_channels=8, channel_mult=[1, 2])
    >>> decoder(sf.zeros(1, 4, 4, 8, 8)).shape
    scaffolding.Size([1, 3, 4, 16, 16])
    """

    def forward(self, latents):
        """latents[B, latent_channels, T, h, w], not scaled, to [B, out_channels, T, H, W]."""
        return self.native_forward(latents)
