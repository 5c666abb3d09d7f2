"""Golden files of Gemma 3's layers as a text encoder, from transformers: tiny configs, the keys of the one that LTX-2
has, and what the whole model of texts and pictures makes of prompts as LTX-2's pipeline asks for it.

    python tests/golden/make_golden_models_gemma3.py      # a Python that has torch, diffusers and transformers
"""

import tempfile

import torch
from hashed_weights import hashed_weight
from model_fixture import ModelFixture, floats
from safetensors import safe_open
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextModel

ROPES = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
         "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}  # fmt: skip
TINY = {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64, "query_pre_attn_scalar": 10,
        "sliding_window": 3, "rope_parameters": ROPES, "use_cache": False,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}  # fmt: skip
LTX2 = {"vocab_size": 262208, "hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "sliding_window": 1024,
        "rope_parameters": ROPES}  # fmt: skip
IDS = [[2, 17, 44, 3, 60, 5, 9], [0, 0, 0, 2, 33, 31, 8]]
PADDED = [[1] * 7, [0] * 3 + [1] * 4]
VISION = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
          "patch_size": 4}  # fmt: skip

fixture = ModelFixture("gemma3")
keyword = "of transformers' other keywords"
fixture.model(Gemma3TextModel, full_size={"ltx2_text_encoder": LTX2}, differences={
    "forward": {"output_hidden_states": keyword, "return_dict": keyword},
})  # fmt: skip
fixture.case("padded", Gemma3TextModel, TINY, {
    "input_ids": IDS, "attention_mask": PADDED, "output_hidden_states": True})  # fmt: skip
other = {**TINY, "num_hidden_layers": 7, "num_key_value_heads": 4, "attention_bias": True, "rms_norm_eps": 1e-3}
for name in ("layer_types", "rope_parameters"):  # five of six slide, and nothing is stretched
    other.pop(name)
fixture.case(
    "embeddings",
    Gemma3TextModel,
    other,
    # without a mask transformers takes a place that does not follow the one before for another text's first
    {
        "inputs_embeds": floats(1, 9, 16),
        "attention_mask": [[1] * 9],
        "position_ids": [[3, 4, 5, 9, 10, 11, 12, 13, 14]],
    },
    gradients=False,
)


def whole_model():
    """Gemma3ForConditionalGeneration around a Gemma3TextModel whose weights follow the rule."""
    config = Gemma3Config(text_config=TINY, vision_config=VISION, mm_tokens_per_image=1, image_token_index=60)
    model = Gemma3ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, t in model.model.language_model.named_parameters():
            t.copy_(torch.from_numpy(hashed_weight(name, tuple(t.shape))))
    return model


def prompts_states():
    model = whole_model().double()
    mask = torch.tensor(PADDED)
    with torch.no_grad():
        out = model(input_ids=torch.tensor(IDS), attention_mask=mask, output_hidden_states=True)
    stacked = torch.stack(out.hidden_states, dim=-1).flatten(2, 3)
    return stacked * mask.unsqueeze(-1)  # of padding LTX-2's connectors read nothing


def files():
    model, shapes = whole_model(), {}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "pt") as file:
            for name in file.keys():  # noqa: SIM118
                shapes[name] = file.get_slice(name).get_shape()
        with open(f"{folder}/config.json") as file:
            return {"config.json": file.read(), "shapes": shapes}


fixture.extra("stacked", prompts_states())
fixture.extra("folder", files())
fixture.write()
