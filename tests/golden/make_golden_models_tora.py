"""Golden files of ToraTransformer3DModel, which tora_twin.py has in PyTorch.

python tests/golden/make_golden_models_tora.py      # a Python that has torch, diffusers and transformers
"""

from diffusers.models.embeddings import get_3d_rotary_pos_embed
from model_fixture import ModelFixture, floats
from tora_twin import ToraTransformer3DModel

T2V = {"num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True}
I2V = {**T2V, "in_channels": 32, "use_learned_positional_embeddings": True}
TINY = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "time_embed_dim": 8,
        "text_embed_dim": 10, "num_layers": 2, "sample_width": 8, "sample_height": 6, "sample_frames": 9,
        "max_text_seq_length": 5, "flow_in_channels": 4, "flow_channels": 8}  # fmt: skip


def rotary(frames, height, width, grid_type="linspace"):
    """Cosines and sines as lists of few digits."""
    size = (height, width)
    both = get_3d_rotary_pos_embed(16, ((0, 0), size), size, frames, grid_type=grid_type, max_size=size)
    return {"list": [[[round(x, 4) for x in row] for row in t.tolist()] for t in both]}


fixture = ModelFixture("tora")
fixture.model(
    ToraTransformer3DModel,
    full_size={"tora_t2v_transformer": T2V, "tora_i2v_transformer": I2V},
)
call = {"hidden_states": floats(2, 3, 4, 6, 8), "encoder_hidden_states": floats(2, 5, 10), "timestep": [17, 903]}
flow = {"video_flow": floats(2, 3, 4, 6, 8)}
fixture.case("steered", ToraTransformer3DModel, TINY, {**call, **flow})
fixture.case("without_flow", ToraTransformer3DModel, TINY, call)
turned = {**TINY, "use_rotary_positional_embeddings": True, "flow_in_channels": 3, "flow_resnets": 1}
angles = {"image_rotary_emb": rotary(3, 3, 4)}
fixture.case("rotary", ToraTransformer3DModel, turned, {**call, "video_flow": floats(2, 3, 3, 6, 8), **angles})
patches = {**turned, "patch_size_t": 2, "flow_in_channels": 4}
of_two = {**call, "hidden_states": floats(2, 4, 4, 6, 8), "video_flow": floats(2, 4, 4, 6, 8)}
angles = {"image_rotary_emb": rotary(2, 3, 4, "slice")}
fixture.case("patches_of_two_frames", ToraTransformer3DModel, patches, {**of_two, **angles})
fixture.write()
