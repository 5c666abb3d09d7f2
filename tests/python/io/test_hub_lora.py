"""Which file of a hub's repository is the LoRA, against a server on loopback."""

import json

import lora_cases
import pytest
from test_hub import libcurl, quick, server  # noqa: F401 (fixtures)

from scaffolding import models

LORA = lora_cases.FOLDER / "sd"
NETWORKS = lora_cases.networks()
STYLE = (LORA / "style.safetensors").read_bytes()
PEFT = {f: (LORA / "peft_unet" / f).read_bytes() for f in ("adapter_model.safetensors", "adapter_config.json")}


@pytest.fixture
def loaded(server):  # noqa: F811
    def load(files, **more):
        server.repos["org/lora"] = {"README.md": b"words", **files}
        class_name, config = NETWORKS["unet"]
        unet = getattr(models, class_name).from_config(config)
        unet.load_lora_adapter("org/lora", prefix="unet", adapter_name="a", **more)
        return {key.rpartition(".lora_")[0] for key in models.get_peft_model_state_dict(unet, "a")}, unet

    return load


def test_the_file_that_diffusers_writes(loaded):
    usual, _ = loaded({"pytorch_lora_weights.safetensors": STYLE, "a_draft.safetensors": b"nothing"})
    assert len(usual) == 20
    assert loaded({"deep/pytorch_lora_weights.safetensors": STYLE}, subfolder="deep")[0] == usual


def test_the_only_file_of_its_kind(loaded):
    files = {"my_style.safetensors": STYLE, "optimizer.safetensors": b"no", "pictures/a.safetensors": b"no"}
    assert len(loaded(files)[0]) == 20
    assert len(loaded({"a.safetensors": b"no", "b.safetensors": STYLE}, weight_name="b.safetensors")[0]) == 20
    with pytest.raises(ValueError, match="org/lora holds 2 files that may be the LoRA, such as 'a.safetensors' and"):
        loaded({"a.safetensors": STYLE, "b.safetensors": STYLE})
    with pytest.raises(ValueError, match="org/lora holds no LoRA"):
        loaded({"config.json": b"{}"})


def test_what_peft_pushes(loaded):
    """Its config says the alphas: without it they would be others."""
    modules, unet = loaded(PEFT)
    config = models.peft_config_of(unet, "a")
    said = json.loads(PEFT["adapter_config.json"])
    alpha = config["alpha_pattern"].get("down_blocks.1.attentions.0.proj_out", config["lora_alpha"])
    assert modules and alpha == pytest.approx(said["lora_alpha"] * said["r"] ** 0.5)  # rsLoRA
    named, unet = loaded(PEFT, weight_name="adapter_model.safetensors", force_download=True)
    assert named == modules and models.peft_config_of(unet, "a") == config
    parts = {f"unet/{name}": data for name, data in PEFT.items()}
    together, unet = loaded(parts)
    assert together == modules and models.peft_config_of(unet, "a") == config


def test_what_was_downloaded_once_is_there_offline(loaded, server, monkeypatch):  # noqa: F811
    usual, _ = loaded({"pytorch_lora_weights.safetensors": STYLE})
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    sent = len(server.requests)
    assert loaded({})[0] == usual and len(server.requests) == sent
    monkeypatch.delenv("HF_HUB_OFFLINE")
    server.errors["org/lora"] = (404, "RepoNotFound")
    with pytest.raises(RuntimeError, match="org/lora"):
        loaded({}, cache_dir="/nonexistent")
