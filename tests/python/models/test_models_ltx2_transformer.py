"""What LTX-2's transformer and text connectors have of their own: places of patches, other programs' names, LoRAs under
them, refusals. Their numbers, keys and folders: test_every_model.py.
"""

import numpy as np
import pytest
from hashed_weights import hashed, hashed_weight
from model_cases import FOLDER, away, families
from packed import LONG_SUFFIX, unpacked

import scaffolding as sf
from scaffolding.models import LTX2TextConnectors, LTX2VideoTransformer3DModel

FAMILY = families()["ltx2_transformer"]
CASES = {case["name"]: case for case in FAMILY["cases"]}
TINY, NEWER = CASES["text_to_video"]["config"], CASES["newer"]["config"]
CONNECTORS = {name: CASES[name]["config"] for name in ("connectors", "newer_connectors")}


def filled(model):
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
    return model.eval()


def floats(name, *shape):
    return sf.tensor(hashed(name, shape))


def arguments(config=TINY):
    video, audio = (10, 10) if config.get("use_prompt_embeddings", True) else (16, 8)
    return {
        "hidden_states": floats("a", 2, 12, 4),
        "audio_hidden_states": floats("b", 2, 5, 3),
        "encoder_hidden_states": floats("c", 2, 4, video),
        "audio_encoder_hidden_states": floats("d", 2, 4, audio),
        "timestep": sf.tensor([8.5, 31.25]),
        "sigma": sf.tensor([8.5, 31.25]),
        "num_frames": 2,
        "height": 3,
        "width": 2,
        "audio_num_frames": 5,
    }


@pytest.fixture
def model():
    return filled(LTX2VideoTransformer3DModel(**TINY))


def test_places_of_patches_are_diffusers():
    golden = sf.safetensors.load(unpacked(FOLDER / "models" / f"ltx2_transformer{LONG_SUFFIX}"))
    model = LTX2VideoTransformer3DModel(**FAMILY["extra"]["config of coords"])
    got = {
        "video_coords": model.rope.prepare_video_coords(2, 3, 5, 4, sf.device("cpu"), fps=30.0),
        "audio_coords": model.audio_rope.prepare_audio_coords(2, 5, "cpu", shift=1),
    }
    for name, coords in got.items():
        assert list(coords.shape) == FAMILY["extra"][name] and coords.dtype is sf.float32
        assert away(name, coords.numpy(), golden[name].numpy()) < 2e-6
    np.testing.assert_array_equal(model.rope.prepare_coords(2, 3, 5, 4, "cpu", fps=30.0).numpy(),
                                  got["video_coords"].numpy())  # fmt: skip


def test_given_places_are_those_of_the_sizes(model):
    told = arguments()
    sizes = {k: told.pop(k) for k in ("num_frames", "height", "width", "audio_num_frames")}
    with sf.no_grad():
        want = model(**told, **sizes, fps=12.0)
        video = model.rope.prepare_video_coords(2, 2, 3, 2, "cpu", fps=12.0)
        audio = model.audio_rope.prepare_audio_coords(1, 5, "cpu")
        got = model(**told, video_coords=video, audio_coords=audio, return_dict=False)
    np.testing.assert_array_equal(got[0].numpy(), want.sample.numpy())
    np.testing.assert_array_equal(got[1].numpy(), want.audio_sample.numpy())


def test_hooks_on_all_parts():
    model = filled(LTX2VideoTransformer3DModel(**NEWER))
    told = arguments(NEWER)
    with sf.no_grad():
        want, seen = model(**told), set()
        for name, part in model.named_modules():
            part.register_forward_hook(lambda part, args, output, name=name: seen.add(name))
        got = model(**told)
    for a, b in zip(got.to_tuple(), want.to_tuple()):
        assert np.abs((a - b).numpy()).max() <= 2e-5 * np.abs(b.numpy()).max()
    missed = {n for n, part in model.named_modules() if n not in seen}
    assert {type(part).__name__ for n, part in model.named_modules() if n in missed} <= {"ModuleList", "ModuleTuple"}


# ---- files of other programs

RENAMED = [("audio_proj_in.", "audio_patchify_proj."), ("proj_in.", "patchify_proj."),
           ("audio_time_embed.", "audio_adaln_single."), ("time_embed.", "adaln_single."),
           ("audio_prompt_adaln.", "audio_prompt_adaln_single."), ("prompt_adaln.", "prompt_adaln_single."),
           ("av_cross_attn_video_scale_shift.", "av_ca_video_scale_shift_adaln_single."),
           ("av_cross_attn_audio_scale_shift.", "av_ca_audio_scale_shift_adaln_single."),
           ("av_cross_attn_video_a2v_gate.", "av_ca_a2v_gate_adaln_single."),
           ("av_cross_attn_audio_v2a_gate.", "av_ca_v2a_gate_adaln_single.")]  # fmt: skip
WITHIN = [("video_a2v_cross_attn_scale_shift_table", "scale_shift_table_a2v_ca_video"),
          ("audio_a2v_cross_attn_scale_shift_table", "scale_shift_table_a2v_ca_audio"),
          (".norm_q.", ".q_norm."), (".norm_k.", ".k_norm.")]  # fmt: skip


def theirs(model):
    """As Lightricks' checkpoints have the transformer's tensors."""
    out = {}
    for key, t in model.state_dict().items():
        name = next((new + key[len(old) :] for old, new in RENAMED if key.startswith(old)), key)
        for old, new in WITHIN:
            name = name.replace(old, new)
        out["model.diffusion_model." + name] = t.contiguous().clone()
    return out


def connectors_theirs(connectors, before="model.diffusion_model."):
    out = {}
    for key, t in connectors.state_dict().items():
        name = key.replace("transformer_blocks", "transformer_1d_blocks")
        name = name.replace("norm_q", "q_norm").replace("norm_k", "k_norm")
        for stream in ("video", "audio"):
            name = name.replace(f"{stream}_connector.", f"{before}{stream}_embeddings_connector.")
            name = name.replace(f"{stream}_text_proj_in.", f"text_embedding_projection.{stream}_aggregate_embed.")
        out[name.replace("text_proj_in.", "text_embedding_projection.aggregate_embed.")] = t.contiguous().clone()
    return out


def assert_same(model, again):
    state = again.state_dict()
    for key, t in model.state_dict().items():
        np.testing.assert_array_equal(state[key].numpy(), t.numpy(), key)


@pytest.mark.parametrize("which", ["connectors", "newer_connectors"])
def test_a_checkpoint_under_its_own_names(which, tmp_path):
    config = TINY if which == "connectors" else NEWER
    model = filled(LTX2VideoTransformer3DModel(**config))
    connectors = filled(LTX2TextConnectors(**CONNECTORS[which]))
    path = tmp_path / "ltx2.safetensors"
    sf.safetensors.save_file(theirs(model) | connectors_theirs(connectors), path)
    assert_same(model, LTX2VideoTransformer3DModel.from_single_file(path, config=config))
    assert_same(connectors, LTX2TextConnectors.from_single_file(path, config=CONNECTORS[which]))
    sf.safetensors.save_file(connectors_theirs(connectors, ""), path)
    assert_same(connectors, LTX2TextConnectors.from_single_file(path, config=CONNECTORS[which]))


def lora(rows, columns, name):
    return floats(name + " down", 2, columns), floats(name + " up", rows, 2)


@pytest.mark.parametrize(
    ("ours", "names", "shape"),
    [
        ("transformer_blocks.1.audio_to_video_attn.to_q", ["transformer_blocks.1.audio_to_video_attn.to_q"], (8, 16)),
        ("proj_in", ["patchify_proj"], (16, 4)),
        ("audio_time_embed.linear", ["audio_adaln_single.linear"], (48, 8)),
        ("av_cross_attn_video_a2v_gate.linear", ["av_ca_a2v_gate_adaln_single.linear"], (16, 16)),
    ],
)
def test_loras_under_diffusers_and_other_names(model, ours, names, shape):
    down, up = lora(*shape, "lora")

    def with_lora(key):
        model.load_lora_adapter({f"{key}.lora_A.weight": down, f"{key}.lora_B.weight": up}, adapter_name="one",
                                prefix="transformer")  # fmt: skip
        with sf.no_grad():
            out = model(**arguments())
        model.delete_adapters("one")
        return [y.numpy() for y in out.to_tuple()]

    want = with_lora(f"transformer.{ours}")
    with sf.no_grad():
        bare = model(**arguments()).sample.numpy()
    assert np.abs(want[0] - bare).max() > 1e-4
    for name in names:
        for a, b in zip(with_lora(f"diffusion_model.{name}"), want):
            np.testing.assert_array_equal(a, b)


def test_a_lora_of_the_connectors():
    connectors = filled(LTX2TextConnectors(**CONNECTORS["connectors"]))
    down, up = lora(8, 24, "lora")
    states, mask = floats("states", 2, 8, 8, 3), sf.ones(2, 8, dtype=sf.int64)
    outs = []
    for key in ("connectors.text_proj_in", "text_embedding_projection.aggregate_embed"):
        connectors.load_lora_adapter({f"{key}.lora_A.weight": down, f"{key}.lora_B.weight": up}, adapter_name="one",
                                     prefix="connectors")  # fmt: skip
        with sf.no_grad():
            outs.append(connectors(states, mask)[0].numpy())
        connectors.delete_adapters("one")
    np.testing.assert_array_equal(*outs)


# ---- refusals


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"qk_norm": "rms_norm"}, NotImplementedError, "qk_norm must be rms_norm_across_heads, got 'rms_norm'"),
        ({"use_keyframes_abs_pos_embedding": True}, NotImplementedError, "is LTX-2.5's"),
        ({"rope_type": "whole"}, ValueError, "rope_type must be 'interleaved' or 'split', got 'whole'"),
        ({"attention_head_dim": 7, "cross_attention_dim": 14}, ValueError, "num_attention_heads must divide half"),
        ({"audio_cross_attention_dim": 16}, ValueError, "audio_num_attention_heads.*, got 16 and 8"),
        ({"cross_attention_dim": 8}, ValueError, "with use_prompt_embeddings, .*, got 8 and 16"),
        ({"vae_scale_factors": [8, 32]}, ValueError, "must have 3 numbers, of frames, rows and columns, got 2"),
        ({"num_layers": 0}, ValueError, "num_layers must be between 1 and"),
        ({"rope_theta": 0.0}, ValueError, "rope_theta must be above 0"),
        ({"activation_fn": "mish"}, NotImplementedError, "activation_fn must be geglu"),
    ],
)
def test_impossible_transformers_are_refused(fields, error, words):
    with pytest.raises(error, match=words):
        LTX2VideoTransformer3DModel(**{**TINY, **fields})


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"caption_channels": 10}, ValueError, "must be caption_channels, got 8 and 10"),
        ({"per_modality_projections": True}, ValueError, "must be video_hidden_dim, got 8 and 4096"),
        ({"rope_type": "none"}, ValueError, "rope_type must be 'interleaved' or 'split'"),
        ({"video_connector_num_learnable_registers": 0}, ValueError, "registers must be between 1 and"),
    ],
)
def test_impossible_connectors_are_refused(fields, error, words):
    with pytest.raises(error, match=words):
        LTX2TextConnectors(**{**CONNECTORS["connectors"], **fields})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden_states": sf.zeros(2, 12, 5)}, r"hidden_states must be \[B, tokens, 4\], got"),
        ({"audio_hidden_states": sf.zeros(1, 5, 3)}, "audio_hidden_states must have 2 samples"),
        ({"encoder_hidden_states": sf.zeros(2, 4, 9)}, r"encoder_hidden_states must be \[2, M, 10\], got"),
        ({"timestep": sf.zeros(2, 11)}, r"timestep must be one number or \[2\] or a number for each token, got"),
        ({"timestep": sf.zeros(2, 12)}, r"timestep must be one number or \[2\], got"),  # there is no audio_timestep
        ({"num_frames": None}, "needs video_coords, or num_frames, height and width"),
        ({"num_frames": 3}, r"video_coords must be \[1, 3, 12, 2\] or \[2, 3, 12, 2\], got \[1, 3, 18, 2\]"),
        ({"audio_num_frames": None}, "needs audio_coords, or audio_num_frames"),
        ({"spatio_temporal_guidance_blocks": [2]}, "numbers of blocks, from 0 to 1, got 2"),
        ({"perturbation_mask": sf.zeros(3)}, r"perturbation_mask must be \[2\] or \[2, 1, 1\], got"),
        ({"sigma": None, "use_cross_timestep": True}, "sigma"),
        ({"video_self_attention_mask": sf.zeros(2, 12)}, "video_self_attention_mask"),
    ],
)
def test_impossible_calls_are_refused(model, change, words):
    with pytest.raises((ValueError, TypeError), match=words), sf.no_grad():
        model(**{**arguments(), **change})


def test_what_ltx_2_5_takes_is_refused(model):
    with pytest.raises(NotImplementedError, match="video_keyframes_mask is LTX-2.5's"):
        model(**arguments(), video_keyframes_mask=sf.ones(2, 12, 1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text_encoder_hidden_states": sf.zeros(2, 8, 25)}, r"must be \[B, M, 8, 3\], or with the last two as one"),
        ({"attention_mask": sf.ones(2, 7)}, "attention_mask"),
        ({"padding_side": "top"}, "padding_side must be 'left' or 'right', got 'top'"),
        (
            {"text_encoder_hidden_states": sf.zeros(2, 6, 24), "attention_mask": sf.ones(2, 6)},
            "a multiple of the 4 registers, got 6",
        ),
    ],
)
def test_impossible_texts_are_refused(change, words):
    told = {"text_encoder_hidden_states": floats("states", 2, 8, 8, 3), "attention_mask": sf.ones(2, 8)}
    with pytest.raises(ValueError, match=words), sf.no_grad():
        LTX2TextConnectors(**CONNECTORS["connectors"])(**{**told, **change})
