"""Golden file of LoRAs trained by PEFT and diffusers: see lora_training_cases.py.

python tests/golden/make_golden_lora_training.py        # with torch, diffusers, peft
"""

import json
import pathlib

import diffusers
import peft
import torch
from hashed_weights import hashed, hashed_weight, places
from lora_training_cases import CONFIGS, KEPT, LEARNING_RATE, SEED, SHAPES, STEPS, TIMESTEPS, UNET
from packed import write_json

INPUTS = {name: torch.from_numpy(hashed(name, shape)) for name, shape in SHAPES.items()}


def some(tensors):
    chosen = ((name, t.detach().flatten()[places(name, t.numel(), KEPT)]) for name, t in tensors)
    return {name: [float(f"{x:.6g}") for x in values.tolist()] for name, values in chosen}


def trained(fields):
    unet = diffusers.UNet2DConditionModel(**UNET)
    unet.load_state_dict({k: torch.from_numpy(hashed_weight(k, tuple(t.shape))) for k, t in unet.state_dict().items()})
    unet.requires_grad_(False).train()
    torch.manual_seed(SEED)
    unet.add_adapter(peft.LoraConfig(**fields))
    names = [[name, p] for name, p in unet.named_parameters() if p.requires_grad]
    out = {"parameters": [[name, list(p.shape)] for name, p in names], "begin": some(names), "losses": []}
    optimizer = torch.optim.AdamW([p for _, p in names], lr=LEARNING_RATE)
    for step in range(STEPS):
        y = unet(INPUTS["sample"], torch.tensor(TIMESTEPS), INPUTS["encoder_hidden_states"]).sample
        loss = torch.nn.functional.mse_loss(y, INPUTS["target"])
        loss.backward()
        if step == 0:
            out["gradients"] = some([name, p.grad] for name, p in names)
        optimizer.step()
        optimizer.zero_grad()
        out["losses"].append(loss.item())
    return out | {"end": some(names)}


if __name__ == "__main__":
    made_by = {"torch": torch.__version__, "diffusers": diffusers.__version__, "peft": peft.__version__}
    document = {"made_by": made_by, "cases": {name: trained(fields) for name, fields in CONFIGS.items()}}
    write_json(pathlib.Path(__file__).parent / "lora_training.json.xz", json.dumps(document))
