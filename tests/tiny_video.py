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
