"""What CLIP's text encoders have of their own: files of whole CLIP models, outputs, refusals. Their numbers,
keys and dtypes: test_every_model.py.
"""

import json

import numpy as np
import pytest
from hashed_weights import hashed_weight

import scaffolding as sf
from scaffolding.backends import cpu
from scaffolding.models import CLIPTextModel, CLIPTextModelWithProjection
from scaffolding.safetensors.torch import load_file, save_file

TINY = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "projection_dim": 20, "num_hidden_layers": 3,
    "num_attention_heads": 4, "max_position_embeddings": 16, "eos_token_id": 98,
}  # fmt: skip
IDS = [[0, 5, 17, 44, 3, 98, 1, 1, 1, 1], [0, 9, 96, 60, 31, 2, 77, 8, 98, 98]]


def made(cls):
    model = cls(**TINY)
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model.eval()


def test_gradient_checkpointing_takes_less_memory():
    def peak(checkpointing):
        model = CLIPTextModel(**{**TINY, "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 8})
        if checkpointing:
            model.enable_gradient_checkpointing()
        before = cpu.memory_allocated()
        cpu.reset_peak_memory_stats()
        loss = model(sf.randint(0, 99, (64, 16))).last_hidden_state.square().sum()
        kept = cpu.memory_allocated() - before
        loss.backward()
        return kept, cpu.max_memory_allocated() - before

    (kept, most), (kept_again, most_again) = peak(False), peak(True)
    assert kept_again < kept / 4 and most_again < most / 2


def test_a_folder_as_transformers_writes_it(tmp_path):
    model = made(CLIPTextModelWithProjection)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["CLIPTextModelWithProjection"] and config["model_type"] == "clip_text_model"
    assert config["torch_dtype"] == "float32" and "_class_name" not in config and config["projection_dim"] == 20
    assert set(load_file(tmp_path / "model.safetensors")) == set(model.state_dict())
    again = CLIPTextModelWithProjection.from_pretrained(tmp_path)
    ids = sf.tensor(IDS)
    assert np.array_equal(again(ids).text_embeds.detach().numpy(), model(ids).text_embeds.detach().numpy())
    half = CLIPTextModelWithProjection.from_pretrained(tmp_path, torch_dtype=sf.bfloat16)
    half.save_pretrained(tmp_path / "half")
    assert json.loads((tmp_path / "half/config.json").read_text())["torch_dtype"] == "bfloat16"
    model.save_pretrained(tmp_path / "bin", safe_serialization=False)
    assert (tmp_path / "bin/pytorch_model.bin").is_file()
    again = CLIPTextModelWithProjection.from_pretrained(tmp_path / "bin")
    assert np.array_equal(again(ids).text_embeds.detach().numpy(), model(ids).text_embeds.detach().numpy())


def test_files_of_whole_clip_models_and_of_other_versions(tmp_path):
    model = made(CLIPTextModel)
    state = {k: v.detach() for k, v in model.state_dict().items()}
    ids = sf.tensor(IDS)
    want = model(ids).last_hidden_state.detach().numpy()
    nested = {
        "architectures": ["CLIPModel"], "model_type": "clip", "projection_dim": 20,
        "text_config": {k: v for k, v in TINY.items() if k != "projection_dim"}, "vision_config": {"hidden_size": 64},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(nested))
    others = {
        "text_model.embeddings.position_ids": sf.arange(16).reshape(1, 16),
        "vision_model.post_layernorm.weight": sf.ones(4), "logit_scale": sf.ones(()),
        "visual_projection.weight": sf.ones(2, 2), "text_projection.weight": sf.ones(20, 32),
    }  # fmt: skip
    save_file(state | others, tmp_path / "model.safetensors")
    loaded = CLIPTextModel.from_pretrained(tmp_path)
    assert np.array_equal(loaded(ids).last_hidden_state.detach().numpy(), want)
    assert loaded.config.projection_dim == 20 and "vision_config" not in loaded.config
    projecting = CLIPTextModelWithProjection.from_pretrained(tmp_path)
    assert np.array_equal(projecting.text_projection.weight.detach().numpy(), np.ones((20, 32)))
    assert CLIPTextModel.from_pretrained(tmp_path, eos_token_id=2).config.eos_token_id == 2

    save_file({k.removeprefix("text_model."): v for k, v in state.items()}, tmp_path / "model.safetensors")
    assert np.array_equal(CLIPTextModel.from_pretrained(tmp_path)(ids).last_hidden_state.detach().numpy(), want)


@pytest.mark.parametrize(
    ("width", "layers", "heads", "act"), [(768, 2, 12, "quick_gelu"), (1024, 3, 16, "gelu"), (1280, 1, 20, "gelu")]
)
def test_the_kind_is_recognised_from_the_weights(tmp_path, width, layers, heads, act):
    cls = CLIPTextModelWithProjection if width == 1280 else CLIPTextModel
    sizes = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "intermediate_size": 64,
        "vocab_size": 30,
        "max_position_embeddings": 9,
    }
    model = cls(**sizes, num_attention_heads=heads, hidden_act=act, projection_dim=width)
    save_file({k: v.detach() for k, v in model.state_dict().items()}, tmp_path / "model.safetensors")
    loaded = cls.from_pretrained(tmp_path)
    expected = sizes | {"num_attention_heads": heads, "hidden_act": act, "projection_dim": width}
    assert {k: loaded.config[k] for k in expected} == expected


def test_weights_of_something_else_are_no_text_encoder(tmp_path):
    save_file({"conv.weight": sf.ones(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="no tensor text_model.embeddings.token_embedding.weight"):
        CLIPTextModel.from_pretrained(tmp_path)
    save_file({"text_model.embeddings.token_embedding.weight": sf.ones(2, 100)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="512, 768, 1024 or 1280"):
        CLIPTextModel.from_pretrained(tmp_path)


def test_what_is_refused():
    with pytest.raises(ValueError, match="must divide hidden_size"):
        CLIPTextModel(**{**TINY, "num_attention_heads": 5})
    with pytest.raises(ValueError, match="hidden_act must be"):
        CLIPTextModel(**TINY, hidden_act="tanh")
    with pytest.raises(ValueError, match="num_hidden_layers must be between 0 and 1000, got 1000000000"):
        CLIPTextModel(**{**TINY, "num_hidden_layers": 10**9})
    with pytest.raises(RuntimeError, match="out of memory"):
        CLIPTextModel(**{**TINY, "hidden_size": 2**40})
    with pytest.raises(TypeError, match="hidden_size must be an integer"):
        CLIPTextModel(**{**TINY, "hidden_size": "32"})
    with pytest.raises(ValueError, match="projection_dim must be above 0"):
        CLIPTextModelWithProjection(**{**TINY, "projection_dim": None})
    model = CLIPTextModel(**TINY)
    with pytest.raises(ValueError, match=r"at most max_position_embeddings=16 tokens, got \[1, 17\]"):
        model(sf.zeros(1, 17, dtype=sf.int64))
    with pytest.raises(ValueError, match=r"must be \[batch, tokens\]"):
        model(sf.zeros(4, dtype=sf.int64))
    with pytest.raises(ValueError, match="attention_mask"):
        model(sf.zeros(1, 4, dtype=sf.int64), attention_mask=sf.ones(1, 3))
    with pytest.raises(IndexError):
        model(sf.full((1, 4), 99))
    with pytest.raises(NotImplementedError, match="output_attentions"):
        model(sf.zeros(1, 4, dtype=sf.int64), output_attentions=True)


def test_outputs_by_name_and_as_a_tuple():
    model = made(CLIPTextModel)
    ids = sf.tensor(IDS)
    out = model(ids)
    assert (
        list(out) == ["last_hidden_state", "pooler_output"]
        and out.hidden_states is None
        and out[1] is out.pooler_output
    )
    hidden = model(ids, output_hidden_states=True).hidden_states
    assert isinstance(hidden, tuple) and len(hidden) == 4
    penultimate = model.text_model.final_layer_norm(hidden[-2])  # clip_skip, as pipelines do it
    assert penultimate.shape == (2, 10, 32)
    assert np.array_equal(
        model.text_model.final_layer_norm(hidden[-1]).detach().numpy(), out.last_hidden_state.detach().numpy()
    )
    assert isinstance(model(ids, return_dict=False), tuple)
