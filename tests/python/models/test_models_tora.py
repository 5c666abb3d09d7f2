"""What Tora's transformer has besides other models: fusers that change nothing at first, what they compute beside NumPy
in float64, the names that it was trained under, and what of it is trained. Its outputs: test_every_model.py.
"""

import numpy as np
import pytest
from hashed_weights import hashed, hashed_weight

import scaffolding as sf
from scaffolding.models import CogVideoXTransformer3DModel, ToraTransformer3DModel
from scaffolding.nn import streaming

BASE = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "time_embed_dim": 8,
        "text_embed_dim": 10, "num_layers": 2, "sample_width": 8, "sample_height": 6, "sample_frames": 9,
        "max_text_seq_length": 5}  # fmt: skip
TINY = {**BASE, "flow_in_channels": 4, "flow_channels": 8}


def filled(model):
    state = {k: t for k, t in model.state_dict().items() if t.dtype.is_floating_point}
    model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in state.items()}, strict=False)
    return model.eval()


def numbers(name, *shape):
    return sf.tensor(hashed(name, shape))


def a_call(batch=2, frames=3, height=6, width=8):
    return {
        "hidden_states": numbers("x", batch, frames, 4, height, width),
        "encoder_hidden_states": numbers("text", batch, 5, 10),
        "timestep": sf.tensor([17.0, 903.0][:batch]),
    }


def flow(batch=2, frames=3, height=6, width=8):
    return numbers("flow", batch, frames, 4, height, width)


# ---- what changes nothing


def test_without_flow_and_with_new_fusers_it_is_cogvideox():
    new = ToraTransformer3DModel(**TINY).eval()
    plain = CogVideoXTransformer3DModel(**BASE).eval()
    assert set(plain.state_dict()) == {k for k in new.state_dict() if not k.startswith(("traj_extractor.", "fuser."))}
    plain.load_state_dict({k: t for k, t in new.state_dict().items() if k in plain.state_dict()})
    with sf.no_grad():
        want = plain(**a_call()).sample
        assert sf.equal(new(**a_call()).sample, want)
        assert sf.equal(new(**a_call(), video_flow=flow()).sample, want)
        steered = filled(ToraTransformer3DModel(**TINY))
        plain.load_state_dict({k: t for k, t in steered.state_dict().items() if k in plain.state_dict()})
        want = plain(**a_call()).sample
        assert sf.equal(steered(**a_call()).sample, want)
        assert not sf.allclose(steered(**a_call(), video_flow=flow()).sample, want, atol=1e-3)


def test_one_flow_for_the_whole_batch():
    model = filled(ToraTransformer3DModel(**TINY))
    one = flow(1)
    with sf.no_grad():
        want = model(**a_call(), video_flow=sf.cat([one, one])).sample
        assert sf.allclose(model(**a_call(), video_flow=one).sample, want, atol=1e-6)


# ---- what is computed, in float64


def conv(x, weight, bias):
    """x[N, C, places...] by a kernel of 3 in each dimension, over what has one place more on each side."""
    sizes = [n - 2 for n in x.shape[2:]]
    y = np.zeros((x.shape[0], weight.shape[0], *sizes))
    for at in np.ndindex(*weight.shape[2:]):
        part = x[(slice(None), slice(None), *(slice(i, i + n) for i, n in zip(at, sizes)))]
        y += np.einsum("nc...,oc->no...", part, weight[(slice(None), slice(None), *at)])
    return y + bias.reshape(1, -1, *[1] * len(sizes))


def conv2d(state, name, x):
    return conv(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), state[name + ".weight"], state[name + ".bias"])


def fused(state, tokens, features):
    batch, times, _, height, width = features.shape

    def over_time(name):
        y = conv2d(state, f"flow_{name}_spatial", features.reshape(batch * times, -1, height, width))
        y = y.reshape(batch, times, -1, height * width).transpose(0, 3, 2, 1).reshape(batch * height * width, -1, times)
        y = np.pad(y, ((0, 0), (0, 0), (1, 1)), mode="edge")
        y = conv(y, state[f"flow_{name}_temporal.weight"], state[f"flow_{name}_temporal.bias"])
        return y.reshape(batch, height * width, -1, times).transpose(0, 3, 1, 2)  # [B, T, H W, C]

    h = tokens.reshape(tokens.shape[0], times, height * width, -1)
    groups = h.reshape(*h.shape[:3], 32, -1)
    mean = groups.mean((2, 4), keepdims=True)
    spread = ((groups - mean) ** 2).mean((2, 4), keepdims=True)
    normed = ((groups - mean) / np.sqrt(spread + 1e-5)).reshape(h.shape)
    normed = normed * state["flow_cond_norm.weight"] + state["flow_cond_norm.bias"]
    return (h + normed * over_time("gamma") + over_time("beta")).reshape(tokens.shape)


def batch_norm(state, name, x, training):
    mean, spread = state[name + ".running_mean"], state[name + ".running_var"]
    if training:
        mean, spread = x.mean((0, 2, 3)), x.var((0, 2, 3))
    shape = (1, -1, 1, 1)
    y = (x - mean.reshape(shape)) / np.sqrt(spread.reshape(shape) + 1e-5)
    return y * state[name + ".weight"].reshape(shape) + state[name + ".bias"].reshape(shape)


def extracted(state, video, features, training=False, resnets=2):
    batch, times, channels, height, width = video.shape
    x = np.zeros((batch * times, channels * 4, -(-height // 2), -(-width // 2)))
    padded = np.pad(video, ((0, 0), (0, 0), (0, 0), (0, height % 2), (0, width % 2)))
    for c in range(channels):
        for row in range(2):
            for column in range(2):
                part = padded[:, :, c, row::2, column::2]
                x[:, 4 * c + 2 * row + column] = part.reshape(batch * times, *part.shape[2:])
    x = conv2d(state, "conv_in", x)
    out = []
    for i in range(features * resnets):
        block = f"body.{i}."
        y = np.maximum(batch_norm(state, block + "bn1", x, training), 0)
        y = np.maximum(batch_norm(state, block + "bn2", conv2d(state, block + "block1", y), training), 0)
        x = x + conv2d(state, block + "block2", y)
        if (i + 1) % resnets == 0:
            out.append(x.reshape(batch, times, *x.shape[1:]))
    return out


def state_of(module):
    return {k: t.numpy().astype(np.float64) for k, t in module.state_dict().items()}


def near(got, want, tolerance=1e-5):
    assert got.shape == want.shape
    assert np.abs(got.numpy() - want).max() <= tolerance * np.abs(want).max()


@pytest.mark.parametrize("samples", [1, 2])
def test_a_fuser_beside_numpy(samples):
    model = filled(ToraTransformer3DModel(**TINY))
    seen = []
    model.fuser[1].register_forward_hook(lambda module, inputs, output: seen.append((*inputs, output)))
    with sf.no_grad():
        model(**a_call(), video_flow=flow(samples))
    ((tokens, features, output),) = seen
    assert features.shape == (samples, 3, 8, 3, 4) and tokens.shape == output.shape == (2, 36, 32)
    near(output, fused(state_of(model.fuser[1]), *(t.numpy().astype(np.float64) for t in (tokens, features))))


def test_hooks_see_every_part():
    """Who looks at a convolution over time has it called, with the same result as without."""
    model = filled(ToraTransformer3DModel(**TINY))
    model.frame_batch = 0
    seen = []
    with sf.no_grad():
        want = model(**a_call(), video_flow=flow()).sample
        for name, module in [*model.fuser.named_modules(), *model.traj_extractor.named_modules()]:
            if not isinstance(module, sf.nn.ModuleList):
                module.register_forward_hook(lambda module, inputs, output, name=name: seen.append(name))
        assert sf.allclose(model(**a_call(), video_flow=flow()).sample, want, atol=1e-5)
    assert len(seen) == 2 * 6 + 1 + 1 + 4 * 5 and {"0.flow_gamma_temporal", "body.3.bn2", "conv_in"} <= set(seen)


@pytest.mark.parametrize("training", [False, True])
def test_the_extractor_beside_numpy(training):
    extractor = filled(ToraTransformer3DModel(**TINY)).traj_extractor.train(training)
    video = flow(2, 3, 5, 7)  # zeros stand in for the sixth row and the eighth column
    want = extracted(state_of(extractor), video.numpy().astype(np.float64), 2, training)
    with sf.no_grad():
        features = extractor(video)
    assert len(features) == 2
    for got, expected in zip(features, want):
        near(got, expected, 2e-5)
    counted = [t.item() for k, t in extractor.state_dict().items() if k.endswith("num_batches_tracked")]
    assert counted == [int(training)] * 8


@pytest.mark.parametrize("frame_batch", [1, 4, 5, 14, 99])
def test_the_extractor_takes_frames_in_batches(frame_batch):
    """Of 2 clips of 7 frames: the same features whatever the batches, one call of each part for each of them."""
    model = filled(ToraTransformer3DModel(**TINY))
    calls = []
    model.traj_extractor.body[0].block1.register_forward_hook(lambda _, inputs, __: calls.append(inputs[0].shape[0]))
    call = {**a_call(frames=7), "video_flow": flow(frames=7)}
    assert model.frame_batch == 4
    model.frame_batch = 0
    with sf.no_grad():
        want = model(**call).sample
        assert calls == [14]
        calls.clear()
        model.frame_batch = frame_batch
        assert sf.allclose(model(**call).sample, want, rtol=1e-5, atol=1e-5)
    assert calls == [min(frame_batch, 14 - at) for at in range(0, 14, frame_batch)]
    calls.clear()
    model(**call)  # with gradients, for which everything is kept anyway
    with sf.no_grad():
        model.train()(**call)  # norms that look at all frames
    assert calls == [14, 14]


# ---- files


@pytest.mark.parametrize("leaves", [False, True])
def test_weights_that_come_from_the_file_when_they_are_needed(leaves, tmp_path):
    """The fusers belong to the model and to its blocks: streamed by blocks and by parts, to the bit."""
    model = filled(ToraTransformer3DModel(**{**TINY, "num_layers": 4}))
    model.save_pretrained(tmp_path)
    streamed = ToraTransformer3DModel.from_pretrained(tmp_path)
    streamer = streaming.attach(streamed, "test", device=sf.device("cpu"), leaves=leaves)
    with sf.no_grad():
        for video_flow in (flow(), flow(1), None):
            want = model(**a_call(), video_flow=video_flow).sample
            assert sf.equal(streamed(**a_call(), video_flow=video_flow).sample, want)
    said = streamer.statistics()
    assert said["resident_bytes"] < said["weight_bytes"] / 10


def sat_names(state, layers):
    """The names and layout that CogVideoX and Tora were trained under, of ours."""
    ours = dict(state)
    out = {}

    def move(name, theirs):
        for end in ("weight", "bias"):
            if f"{name}.{end}" in ours:
                out[f"{theirs}.{end}"] = ours.pop(f"{name}.{end}")

    for i in range(layers):
        block, layer, mixin = f"transformer_blocks.{i}.", f"transformer.layers.{i}.", "mixins.adaln_layer."
        for end in ("weight", "bias"):
            parts = [ours.pop(f"{block}attn1.to_{part}.{end}") for part in "qkv"]
            out[f"{layer}attention.query_key_value.{end}"] = sf.cat(parts)
            first, second = (ours.pop(f"{block}norm{n}.linear.{end}").chunk(6) for n in (1, 2))
            rows = sf.cat([*first[:3], *second[:3], *first[3:], *second[3:]])
            out[f"{mixin}adaLN_modulations.{i}.1.{end}"] = rows
        for name, theirs in {
            "attn1.to_out.0": layer + "attention.dense",
            "attn1.norm_q": f"{mixin}query_layernorm_list.{i}",
            "attn1.norm_k": f"{mixin}key_layernorm_list.{i}",
            "ff.net.0.proj": layer + "mlp.dense_h_to_4h",
            "ff.net.2": layer + "mlp.dense_4h_to_h",
            "norm1.norm": layer + "input_layernorm",
            "norm2.norm": layer + "post_attention_layernorm",
        }.items():
            move(block + name, theirs)
    for name, theirs in {
        "patch_embed.proj": "mixins.patch_embed.proj",
        "patch_embed.text_proj": "mixins.patch_embed.text_proj",
        "time_embedding.linear_1": "time_embed.0",
        "time_embedding.linear_2": "time_embed.2",
        "norm_final": "transformer.final_layernorm",
        "norm_out.norm": "mixins.final_layer.norm_final",
        "norm_out.linear": "mixins.final_layer.adaLN_modulation.1",
        "proj_out": "mixins.final_layer.linear",
    }.items():
        move(name, theirs)
    if "patch_embed.pos_embedding" in ours:
        out["mixins.pos_embed.pos_embedding"] = ours.pop("patch_embed.pos_embedding")
    for name in list(ours):
        out[name.replace("fuser.", "mixins.adaln_layer.fuser_list.", 1)] = ours.pop(name)
    return {"model.diffusion_model." + name: t for name, t in out.items()}


LEARNED = {"use_rotary_positional_embeddings": True, "use_learned_positional_embeddings": True}


@pytest.mark.parametrize(
    ("cls", "config"),
    [
        (ToraTransformer3DModel, TINY),
        (CogVideoXTransformer3DModel, BASE),
        (CogVideoXTransformer3DModel, {**BASE, **LEARNED}),
        (ToraTransformer3DModel, {**TINY, **LEARNED}),
    ],
)
@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_files_as_it_was_trained(cls, config, kind, tmp_path):
    model = filled(cls(**config))
    theirs = sat_names(model.state_dict(), 2)
    others = {"first_stage_model.encoder.conv_in.conv.weight": sf.zeros(3), "model.diffusion_model.extra": sf.zeros(1)}
    path = tmp_path / f"model.{kind}"
    if kind == "pt":
        sf.save({"module": theirs | others, "iteration": 7}, path)
    else:
        sf.safetensors.save_file({k: t.contiguous() for k, t in (theirs | others).items()}, path)
    again = cls.from_single_file(path, config)
    assert not again.training and again.config == model.config
    want = model.state_dict()
    for k, t in again.state_dict().items():
        assert t.dtype is want[k].dtype and sf.equal(t, want[k]), k
    half = cls.from_single_file(path, **config, torch_dtype=sf.bfloat16)
    assert half.dtype is sf.bfloat16
    with pytest.raises(ValueError, match=r"its \w+ has .* of another shape: .*pass its config"):
        cls.from_single_file(path, {**config, "text_embed_dim": 12})
    lacking = {k: t.contiguous() for k, t in theirs.items() if "layers.1.mlp.dense_4h_to_h.bias" not in k}
    sf.safetensors.save_file(lacking, tmp_path / "lacking.safetensors")
    with pytest.raises(ValueError, match=r"lacks 1 tensor: 'model.diffusion_model.*layers.1.mlp.dense_4h_to_h.bias'"):
        cls.from_single_file(tmp_path / "lacking.safetensors", config)
    sf.safetensors.save_file(others, tmp_path / "others.safetensors")
    with pytest.raises(ValueError, match=r"has no tensor of a \w+; it has 2 tensors such as"):
        cls.from_single_file(tmp_path / "others.safetensors", config)


def test_what_is_added_is_as_large_as_published():
    config = {"num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True}
    with sf.device("meta"):
        model = ToraTransformer3DModel(**config)
    extractor = sum(p.numel() for p in model.traj_extractor.parameters())
    fuser = sum(p.numel() for p in model.fuser[0].parameters())
    assert (extractor, fuser, len(model.fuser)) == (24_910_976, 15_939_072, 42)
    assert model.num_parameters() - extractor - 42 * fuser == 5_570_283_072


# ---- training


@pytest.mark.parametrize("checkpointing", [False, True])
def test_only_what_tora_adds_is_trained(checkpointing):
    model = filled(ToraTransformer3DModel(**TINY)).train()
    if checkpointing:
        model.enable_gradient_checkpointing()
    model.set_trainable("tora")
    model(**a_call(), video_flow=flow()).sample.square().mean().backward()
    for name, p in model.named_parameters():
        own = name.startswith(("traj_extractor.", "fuser."))
        assert p.requires_grad is own and (p.grad is not None) is own, name
        assert not own or name.endswith("bias") or p.grad.abs().max().item() > 0, name
    assert model.num_parameters(only_trainable=True) == sum(
        p.numel() for part in (model.traj_extractor, model.fuser) for p in part.parameters()
    )
    model.set_trainable("all")
    assert all(p.requires_grad for p in model.parameters())
    model.set_trainable("none")
    assert not any(p.requires_grad for p in model.parameters())
    with pytest.raises(ValueError, match="set_trainable takes 'tora', 'all' or 'none', got 'fuser'"):
        model.set_trainable("fuser")


def test_a_step_of_training_begins_at_the_zero_fusers():
    """The last convolutions are zero: the first step reaches them alone, the second what is before them."""
    model = ToraTransformer3DModel(**TINY)
    model.set_trainable("tora")
    optimizer = sf.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    moved = []
    for _ in range(2):
        before = {k: p.detach().clone() for k, p in model.named_parameters()}
        optimizer.zero_grad()
        model(**a_call(), video_flow=flow()).sample.square().mean().backward()
        optimizer.step()
        moved.append({k for k, p in model.named_parameters() if not sf.equal(p, before[k])})
    assert moved[0] and all(".flow_gamma_temporal." in k or ".flow_beta_temporal." in k for k in moved[0])
    assert any(k.startswith("traj_extractor.conv_in") for k in moved[1])
    assert all(k.startswith(("traj_extractor.", "fuser.")) for k in moved[1])


def test_what_is_refused():
    for config, match in [
        ({"attention_head_dim": 12}, "must be a multiple of 32, the groups of the fusers' norm, got 24"),
        ({"flow_channels": 0}, "flow_channels must be between 1 and"),
        ({"flow_in_channels": 2**40}, "flow_in_channels must be between 1 and"),
        ({"flow_resnets": 17}, "flow_resnets must be between 1 and 16, got 17"),
        ({"num_layers": 0}, "num_layers must be between 1 and 1000, got 0"),
    ]:
        with pytest.raises(ValueError, match=match):
            ToraTransformer3DModel(**{**TINY, **config})
    model = ToraTransformer3DModel(**TINY)
    for given in [flow(3), flow(frames=2), flow(height=4), numbers("flow", 2, 3, 16, 6, 8), flow()[0]]:
        with pytest.raises(ValueError, match=r"video_flow must be \[2, 3, 4, 6, 8\] or one sample of that, got"):
            model(**a_call(), video_flow=given)
    with pytest.raises(ValueError, match=r"MGF: features must have a place for each token"):
        model.fuser[0](sf.zeros(1, 7, 32), sf.zeros(1, 2, 8, 2, 2))
    with pytest.raises(ValueError, match=r"TrajExtractor: video_flow must be \[B, T, 4, H, W\], got \[1, 2, 3\]"):
        model.traj_extractor(sf.zeros(1, 2, 3))
