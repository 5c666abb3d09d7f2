"""Trainings of LoRAs that make_golden_lora_training.py does with PEFT and test_lora_training.py repeats: the network,
configs and inputs. Weights of the base and inputs follow hashed_weights.py; the LoRAs begin as PEFT draws them.

lora_training.json.xz:

    made_by   versions of torch, diffusers, peft
    cases     by name: parameters: [[name, shape]] of the LoRA; begin, end: {name: values at KEPT places(name)}
              before the first step and after the last; gradients: of the first step, the same; losses of each step
"""

UNET = {
    "sample_size": 8,
    "in_channels": 4,
    "out_channels": 4,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    "block_out_channels": [16, 32],
    "layers_per_block": 1,
    "cross_attention_dim": 12,
    "attention_head_dim": 4,
    "norm_num_groups": 4,
}
ATTENTION = ["to_q", "to_k", "to_v", "to_out.0"]
CONFIGS = {
    "attention": {"r": 4, "lora_alpha": 8, "target_modules": ATTENTION},
    "gaussian": {"r": 3, "target_modules": ATTENTION, "init_lora_weights": "gaussian"},
    "patterns": {
        "r": 4,
        "lora_alpha": 2,
        "target_modules": [*ATTENTION, "conv1", "proj_in", "ff.net.2"],
        "exclude_modules": ["attn2.to_q"],
        "use_rslora": True,
        "rank_pattern": {"mid_block.attentions.0.proj_in": 6, "to_v": 2},
        "alpha_pattern": {"conv1": 5},
    },
    "regex": {"r": 2, "target_modules": r".*up_blocks.*\.(to_q|conv2)", "init_lora_weights": False},
}
SEED, STEPS, LEARNING_RATE, KEPT = 7, 4, 1e-2, 2
SHAPES = {"sample": (2, 4, 8, 8), "encoder_hidden_states": (2, 5, 12), "target": (2, 4, 8, 8)}
TIMESTEPS = [3, 700]
