"""Golden files of T5's encoder, from transformers: tiny configs, which bucket each distance falls into, and the keys of
google/t5-v1_1-xxl's encoder, as PixArt, SD 3 and FLUX ship it.

    python tests/golden/make_golden_models_t5.py      # a Python that has torch, diffusers and transformers
"""

import torch
from model_fixture import ModelFixture, floats
from transformers import T5EncoderModel
from transformers.models.t5.modeling_t5 import T5Attention

TINY = {"vocab_size": 67, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 3, "num_heads": 4,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}  # fmt: skip
IDS = [
    [5, 17, 44, 3, 61, 2, 9, 30, 30, 12, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    [9, 66, 60, 31, 2, 33, 8, 50, 50, 50, 3, 4, 6, 10, 11, 13, 14, 15, 16, 1],
]
PADDED, PADDED_LEFT = [[1] * 12 + [0] * 8, [1] * 20], [[0] * 4 + [1] * 16, [1] * 20]
XXL = {
    "vocab_size": 32128,
    "d_model": 4096,
    "d_kv": 64,
    "d_ff": 10240,
    "num_layers": 24,
    "num_heads": 64,
    "feed_forward_proj": "gated-gelu",
}
SMALL = {"feed_forward_proj": "relu"}
BUCKETS = [(32, 128), (8, 12), (64, 1000), (4, 7)]  # number of buckets, largest distance
REACH = 300

fixture = ModelFixture("t5")
written = "transformers writes it into files too"
keyword = "of transformers' other keywords"
fixture.model(T5EncoderModel, full_size={"t5_v1_1_xxl_encoder": XXL, "t5_small_encoder": SMALL}, differences={
    "config": {
        "is_decoder": "of stacks, and ours is an encoder", "is_encoder_decoder": written, "dense_act_fn": written,
        "is_gated_act": written, "tie_word_embeddings": written, "output_past": written,
        "decoder_start_token_id": written,
    },
    "forward": {"output_attentions": keyword, "output_hidden_states": keyword, "return_dict": keyword},
})  # fmt: skip
everything = {"input_ids": IDS, "output_hidden_states": True}
fixture.case(
    "version_1_1", T5EncoderModel, {**TINY, "feed_forward_proj": "gated-gelu"}, {**everything, "attention_mask": PADDED}
)
fixture.case("version_1", T5EncoderModel, TINY, everything)
other = {**TINY, "feed_forward_proj": "gated-silu", "layer_norm_epsilon": 1e-3, "d_kv": 8, "num_heads": 2}
fixture.case("padded_left", T5EncoderModel, other, {**everything, "attention_mask": PADDED_LEFT})
other = {
    **TINY,
    "feed_forward_proj": "gelu",
    "num_layers": 1,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
}
fixture.case("embeddings", T5EncoderModel, other, {"inputs_embeds": floats(2, 40, 24)})
for buckets, largest in BUCKETS:
    found = T5Attention._relative_position_bucket(
        torch.arange(-REACH, REACH + 1), num_buckets=buckets, max_distance=largest
    )
    fixture.extra(f"buckets of {buckets} up to {largest}", found.tolist())
fixture.write()
