"""Golden file of the training of CogVideoX and Tora: the loss and the gradients of one step of tiny transformers, as
diffusers' examples (examples/cogvideo/train_cogvideox_lora.py) compute them.

    python tests/golden/make_golden_training_video.py      # a Python that has torch and diffusers

Writes training_video.json and .safetensors: for each case, in the order of sorted names, a row of each parameter's
gradient (model_cases.gradient_row). Weights and data follow hashed_weights.py. Tora is tora_twin.py's, its norms in
training. tests/python/diffusion/test_training_video.py repeats the steps.
"""

import json
import pathlib

import diffusers
import numpy as np
import torch
from diffusers import CogVideoXDPMScheduler, CogVideoXTransformer3DModel
from diffusers.models.embeddings import get_3d_rotary_pos_embed
from hashed_weights import hashed, hashed_weight
from model_cases import gradient_row
from safetensors.numpy import save_file
from tora_twin import ToraTransformer3DModel

HERE = pathlib.Path(__file__).parent
TINY = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "time_embed_dim": 8,
        "text_embed_dim": 10, "num_layers": 2, "sample_width": 8, "sample_height": 6, "sample_frames": 9,
        "max_text_seq_length": 5}  # fmt: skip
ROTARY = {"use_rotary_positional_embeddings": True}
FLOW = {"flow_in_channels": 4, "flow_channels": 8}
# as CogVideoX-2b and 5b have them
PUBLISHED = {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "clip_sample": False,
             "prediction_type": "v_prediction", "rescale_betas_zero_snr": True, "set_alpha_to_one": True,
             "timestep_spacing": "trailing", "snr_shift_scale": 1.0}  # fmt: skip
LATENTS, TEXT, TIMESTEPS = (2, 3, 4, 6, 8), (2, 5, 10), [903, 17]
CASES = {
    "cogvideox": {"config": TINY},
    "rotary": {"config": {**TINY, **ROTARY}},
    "image": {"config": {**TINY, **ROTARY, "in_channels": 8}, "image_latents": [2, 1, 4, 6, 8]},
    "tora": {"config": {**TINY, **ROTARY, **FLOW}, "video_flow": list(LATENTS)},
    "tora_sines": {"config": {**TINY, **FLOW}, "video_flow": list(LATENTS)},
}


def tensor(name, shape):
    return torch.from_numpy(hashed(name, tuple(shape))).double()


def positions(config):
    size = (config["sample_height"] // 2, config["sample_width"] // 2)
    both = get_3d_rotary_pos_embed(config["attention_head_dim"], ((0, 0), size), size, LATENTS[1])
    return tuple(t.double() for t in both)


def step(case):
    config = case["config"]
    cls = ToraTransformer3DModel if "video_flow" in case else CogVideoXTransformer3DModel
    model = cls(**config)
    with torch.no_grad():
        for name, t in model.state_dict().items():
            if t.is_floating_point():
                t.copy_(torch.from_numpy(hashed_weight(name, tuple(t.shape))))
    model = model.double().train()
    scheduler = CogVideoXDPMScheduler(**PUBLISHED)
    latents, noise, timesteps = tensor("latents", LATENTS), tensor("noise", LATENTS), torch.tensor(TIMESTEPS)
    noisy = scheduler.add_noise(latents, noise, timesteps)
    seen = noisy
    if "image_latents" in case:
        image = tensor("image_latents", case["image_latents"])
        behind = torch.zeros_like(latents[:, 1:])
        seen = torch.cat([noisy, torch.cat([image, behind], dim=1)], dim=2)
    told = {"image_rotary_emb": positions(config)} if "use_rotary_positional_embeddings" in config else {}
    if "video_flow" in case:
        told["video_flow"] = tensor("video_flow", case["video_flow"])
    output = model(
        hidden_states=seen, encoder_hidden_states=tensor("text", TEXT), timestep=timesteps, return_dict=False, **told
    )[0]
    predicted = scheduler.get_velocity(output, noisy, timesteps)
    weights = (1 / (1 - scheduler.alphas_cumprod[timesteps])).reshape(-1, 1, 1, 1, 1)
    loss = torch.mean((weights * (predicted - latents) ** 2).reshape(len(latents), -1), dim=1).mean()
    loss.backward()
    parameters = dict(model.named_parameters())
    rows = [
        gradient_row(name, np.zeros(p.shape) if p.grad is None else p.grad.numpy())
        for name, p in sorted(parameters.items())
    ]
    return loss.item(), np.stack(rows)


def main():
    torch.set_num_threads(1)
    cases, gradients = {}, {}
    for name, case in CASES.items():
        loss, gradients[name] = step(case)
        cases[name] = {**case, "loss": loss}
    head = {"torch": torch.__version__, "diffusers": diffusers.__version__, "scheduler": PUBLISHED}
    data = {"latents": LATENTS, "text": TEXT, "timesteps": TIMESTEPS}
    (HERE / "training_video.json").write_text(json.dumps({**head, **data, "cases": cases}, indent=1) + "\n")
    path = HERE / "training_video.safetensors"
    save_file(gradients, path)
    path.chmod(0o644)


if __name__ == "__main__":
    main()
