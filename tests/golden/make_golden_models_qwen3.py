"""Golden files of Qwen3's layers as a text encoder, from transformers: tiny configs, and the keys of the one that
Z-Image has.

    python tests/golden/make_golden_models_qwen3.py      # a Python that has torch, diffusers and transformers
"""

from model_fixture import ModelFixture, floats
from transformers import Qwen3Model

TINY = {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64, "use_cache": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}  # fmt: skip
Z_IMAGE = {"vocab_size": 151936, "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
           "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
           "tie_word_embeddings": True}  # fmt: skip
IDS = [[5, 17, 44, 3, 60, 2, 9], [9, 33, 31, 2, 0, 0, 0]]
PADDED = [[1] * 7, [1] * 4 + [0] * 3]

fixture = ModelFixture("qwen3")
keyword = "of transformers' other keywords"
generates = "nothing is generated: anything but None or False is refused"
fixture.model(Qwen3Model, full_size={"z_image_text_encoder": Z_IMAGE}, differences={
    "forward": {"output_hidden_states": keyword, "return_dict": keyword},
})  # fmt: skip
fixture.case("padded", Qwen3Model, TINY, {"input_ids": IDS, "attention_mask": PADDED, "output_hidden_states": True})
other = {**TINY, "num_hidden_layers": 1, "num_key_value_heads": 4, "attention_bias": True, "rms_norm_eps": 1e-3}
other.pop("rope_parameters")
fixture.case(
    "embeddings",
    Qwen3Model,
    other,
    # without a mask transformers takes a place that does not follow the one before for another text's first
    {"inputs_embeds": floats(1, 5, 16), "attention_mask": [[1] * 5], "position_ids": [[3, 4, 5, 9, 10]]},
    gradients=False,
)
fixture.write()
