"""Folders of video pipelines with tiny random networks: clips of 9 frames of 16 x 32 pixels unless others are asked
for."""

import folders

import scaffolding as sf
from scaffolding import diffusion, models

TRANSFORMER = {
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "in_channels": 4,
    "out_channels": 4,
    "time_embed_dim": 8,
    "text_embed_dim": 24,
    "num_layers": 2,
    "sample_width": 8,
    "sample_height": 4,
    "sample_frames": 9,
    "use_rotary_positional_embeddings": True,
}
TEXT = {"vocab_size": 235, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 1, "num_heads": 4}
VAE = {
    "down_block_types": ["CogVideoXDownBlock3D"] * 3,
    "up_block_types": ["CogVideoXUpBlock3D"] * 3,
    "block_out_channels": [8, 8, 16],
    "latent_channels": 4,
    "layers_per_block": 1,
    "norm_num_groups": 4,
}


def _save(folder, cls, transformer):
    sf.manual_seed(0)
    pipe = cls(
        tokenizer=sf.tokenizers.T5Tokenizer.from_pretrained(
            str(folders.ROOT / "tests" / "golden" / "pipelines" / "pixart_tokenizer")
        ),
        text_encoder=models.T5EncoderModel(**TEXT).eval(),
        vae=models.AutoencoderKLCogVideoX(**VAE).eval(),
        transformer=transformer.eval(),
        scheduler=diffusion.CogVideoXDPMScheduler(prediction_type="v_prediction", timestep_spacing="trailing"),
    )
    pipe.save_pretrained(folder)
    return folder


def save_cogvideox(folder):
    return _save(folder, diffusion.CogVideoXPipeline, models.CogVideoXTransformer3DModel(**TRANSFORMER))


def save_image_to_video(folder):
    transformer = models.CogVideoXTransformer3DModel(**{**TRANSFORMER, "in_channels": 8})
    return _save(folder, diffusion.CogVideoXImageToVideoPipeline, transformer)


def save_tora(folder):
    steered = models.ToraTransformer3DModel(**TRANSFORMER, flow_in_channels=4, flow_channels=8)
    for fuser in steered.fuser:  # which are zeros at first
        for p in fuser.parameters():
            p.data = sf.randn(p.shape) * 0.3
    return _save(folder, diffusion.ToraPipeline, steered)


# of clips with sound: 8 pixels for each latent, and 2 frames
LTX2 = {
    "transformer": {"in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 8,
                    "cross_attention_dim": 16, "audio_in_channels": 4, "audio_out_channels": 4,
                    "audio_num_attention_heads": 2, "audio_attention_head_dim": 4, "audio_cross_attention_dim": 8,
                    "num_layers": 2, "caption_channels": 16, "rope_type": "split", "perturbed_attn": True},
    "connectors": {"caption_channels": 16, "text_proj_in_factor": 3, "connector_rope_base_seq_len": 32,
                   "rope_type": "split",
                   **{f"{of}_connector_{what}": n for of in ("video", "audio")
                      for what, n in {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 1,
                                      "num_learnable_registers": 8}.items()}},
    "text_encoder": {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                     "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "query_pre_attn_scalar": 8,
                     "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "vae": {"latent_channels": 4, "block_out_channels": [8], "decoder_block_out_channels": [8],
            "layers_per_block": [1, 1], "decoder_layers_per_block": [1, 1], "spatio_temporal_scaling": [True],
            "decoder_spatio_temporal_scaling": [True], "decoder_inject_noise": [False, False],
            "downsample_type": ["spatial"], "upsample_residual": [False], "upsample_factor": [1], "patch_size": 4,
            "patch_size_t": 1},
    "audio_vae": {"base_channels": 4, "output_channels": 2, "ch_mult": [1], "num_res_blocks": 1, "in_channels": 2,
                  "resolution": 32, "latent_channels": 2, "norm_type": "pixel", "causality_axis": "height",
                  "mid_block_add_attention": False, "mel_bins": 8},
    "vocoder": {"in_channels": 16, "hidden_channels": 32, "out_channels": 2, "upsample_kernel_sizes": [16, 15, 8, 4, 4],
                "upsample_factors": [6, 5, 2, 2, 2], "resnet_kernel_sizes": [3], "resnet_dilations": [[1, 3, 5]]},
}  # fmt: skip


def save_ltx2(folder):
    sf.manual_seed(0)
    classes = {
        "transformer": models.LTX2VideoTransformer3DModel,
        "connectors": models.LTX2TextConnectors,
        "text_encoder": models.Gemma3TextModel,
        "vae": models.AutoencoderKLLTX2Video,
        "audio_vae": models.AutoencoderKLLTX2Audio,
        "vocoder": models.LTX2Vocoder,
    }
    pipe = diffusion.LTX2Pipeline(
        tokenizer=sf.tokenizers.GemmaTokenizer.from_pretrained(
            str(folders.ROOT / "tests" / "golden" / "pipelines" / "ltx2_tokenizer")
        ),
        scheduler=diffusion.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05),
        **{name: cls(**LTX2[name]).eval() for name, cls in classes.items()},
    )
    pipe.save_pretrained(folder)
    return folder


def _stage(max_steps, batch_size, **fields):
    """A stage of a recipe that saves every second step."""
    return {
        "max_steps": max_steps,
        "batch_size": batch_size,
        "warmup_steps": 1,
        "checkpointing_steps": 2,
        "logging_steps": 1,
        "num_workers": 0,
        **fields,
    }


RECIPE = {  # of scaffolding train, for drawn_icons.py's squares: a Tora
    "seed": 0,
    "data": {
        "path": "icons.tar",
        "num_frames": 9,
        "height": 16,
        "width": 16,
        "icons": {"smallest_icon": 6, "largest_icon": 8, "margin": 4},
    },
    "tokenizer": {"vocab_size": 200, "max_tokens": 16},
    "vae": {**VAE, "block_out_channels": [8, 8, 8]},
    "text_encoder": {"d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 1, "num_heads": 4, "dropout_rate": 0.0},
    "transformer": {
        "_class_name": "ToraTransformer3DModel",
        "num_attention_heads": 2,
        "attention_head_dim": 16,
        "time_embed_dim": 8,
        "num_layers": 2,
        "use_rotary_positional_embeddings": True,
        "flow_channels": 8,
    },
    "scheduler": {
        "_class_name": "CogVideoXDPMScheduler",
        "prediction_type": "v_prediction",
        "rescale_betas_zero_snr": True,
        "timestep_spacing": "trailing",
        "snr_shift_scale": 1.0,
    },
    "autoencoder_training": _stage(4, 2, crop=12, square_steps=3),
    "text_encoder_training": _stage(4, 8),
    "denoiser_training": _stage(
        6,
        8,
        clips=2,
        trajectory_dropout=0.25,
        sample_steps=3,
        sample_prompts=["red square, flat", "blue square"],
        sample_trajectories=["4,4 12,12", "4,12 12,4; 8,2 8,14"],
    ),
}
