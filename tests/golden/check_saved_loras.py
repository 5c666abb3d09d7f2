"""Reads LoRAs that Scaffolding saved with diffusers and PEFT, and compares layers and their updates: the other way of
make_golden_lora.py.

python tests/golden/check_saved_loras.py folder      # a Python that has torch, diffusers, peft; the folder holds what
#   for name in ("style", "whole_kohya", "alphas_kohya", "mid_kohya"):
#   pipe = test_lora.pipeline(); pipe.load_lora_weights(f"lora/sd/{name}.safetensors", adapter_name="a")
#   test_lora_calls.save(pipe, "a", folder / name); pipe.unet.save_lora_adapter(folder / name / "unet", "a") wrote
"""

import pathlib
import sys

import diffusers
from lora_adapters import pipeline
from lora_cases import document
from make_golden_lora import modules_of

adapters = document()["adapters"]
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    golden = adapters[f"sd/{folder.name.partition('_')[0]}"]["modules"]
    whole, unet = pipeline("sd"), pipeline("sd")
    whole.load_lora_weights(folder, adapter_name="a", use_safetensors=True)
    unet.unet.load_lora_adapter(folder / "unet", prefix=None, adapter_name="a", use_safetensors=True)
    for read, components in ((whole, list(golden)), (unet, ["unet"])):
        got = modules_of(read, "a")
        assert set(got) == set(components)
        for component in components:
            assert set(got[component]) == set(golden[component])
            for module, (_, _, norm) in golden[component].items():
                assert abs(got[component][module][2] - norm) <= 1e-5 * norm, module
    print(folder.name, "read by diffusers", diffusers.__version__, {c: len(modules) for c, modules in golden.items()})
