"""Tora's transformer, CogVideoX's steered by trajectories, under its authors' name."""

from .cogvideox import predicted
from .modeling import ModelMixin, model_class

_TRAINED = {"tora": ("traj_extractor.", "fuser."), "all": ("",), "none": ()}


@model_class
class ToraTransformer3DModel(ModelMixin):
    """CogVideoXTransformer3DModel with a fuser in each block, by which the latents of a flow's clip steer where things
    go (Tora). Its config has three fields more: flow_in_channels of these latents, flow_channels of the features made
    of them, and flow_resnets, the residual blocks before each feature; the published model has the defaults.

    >>> model = sf.models.ToraTransformer3DModel(
    ...     num_attention_heads=2, attention_head_dim=16, num_layers=1, text_embed_dim=12, max_text_seq_length=3)
    >>> latents = flow = sf.zeros(1, 2, 16, 4, 6)
    >>> model(latents, sf.zeros(1, 3, 12), timestep=10, video_flow=flow).sample.shape
    scaffolding.Size([1, 2, 16, 4, 6])
    """

    _skip_layerwise_casting_patterns = ("patch_embed", "norm", "traj_extractor")

    def forward(
        self,
        hidden_states,
        encoder_hidden_states,
        timestep,
        video_flow=None,
        timestep_cond=None,
        ofs=None,
        image_rotary_emb=None,
        attention_kwargs=None,
        return_dict=True,
    ):
        """hidden_states [B, T, in_channels, H, W] to [B, T, out_channels, H, W], as CogVideoXTransformer3DModel.

        video_flow: [B, T, flow_in_channels, H, W], or [1, ...] for the whole batch: the latents of
        pipelines.tora.video_flow's clip, times the autoencoder's scaling_factor. None: the network is CogVideoX.
        ValueError where shapes do not fit.
        """
        return predicted(
            self,
            hidden_states,
            encoder_hidden_states,
            timestep,
            timestep_cond,
            ofs,
            image_rotary_emb,
            attention_kwargs,
            return_dict,
            video_flow=video_flow,
        )

    def set_trainable(self, part):
        """What gets gradients: "tora", the extractor of features and the fusers alone, as Tora is trained; "all"; or
        "none".
        """
        if part not in _TRAINED:
            raise ValueError(f"ToraTransformer3DModel: set_trainable takes 'tora', 'all' or 'none', got {part!r}")
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.startswith(_TRAINED[part]))
