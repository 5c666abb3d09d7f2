"""Checkpoints in one file against what diffusers' converters make of them (tests/golden/make_golden_single_file.py)."""

import json
import struct
import subprocess
import sys
import zlib

import folders
import numpy as np
import pytest
from packed import read_json

import scaffolding as sf

GOLDEN = read_json(folders.GOLDEN / "single_file.json.xz")
KINDS = list(GOLDEN["full"])
CLIP_L = "text_encoders.clip_l.transformer."
open_file = sf._core._SingleFile


def fill(name, shape):
    start = zlib.crc32(name.encode()) % 100_003
    return np.arange(start, start + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def tensors_of(shapes):
    return {name: sf.tensor(fill(name, shape)) for name, shape in shapes.items()}


def crc(tensor):
    return zlib.crc32(tensor.contiguous().numpy().tobytes())


def save(shapes, path):
    if path.suffix == ".ckpt":
        sf.save({"global_step": 3, "state_dict": tensors_of(shapes), "callbacks": {}}, path)
    else:
        sf.safetensors.save_file(tensors_of(shapes), path)
    return str(path)


def save_empty(shapes, path, dtype="F16"):
    """A safetensors file of any size: its data is a hole that takes no place on the disk."""
    header, at = {}, 0
    for name, shape in sorted(shapes.items()):
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # else the data are not aligned, and every tensor is a copy
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    return str(path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_of_the_full_size(kind, tmp_path):
    golden = GOLDEN["full"][kind]
    file = open_file(save_empty(golden["checkpoint"], tmp_path / "model.safetensors"))
    assert file.kind == kind and sorted(file.parts()) == sorted([*golden["parts"], "scheduler"])
    for part, tensors in golden["parts"].items():
        rows = file.rows(part)
        assert {name: list(shape) for name, _, shape in rows} == {name: shape for name, (_, shape) in tensors.items()}
        for name, source, _ in rows:
            assert tensors[name][0] in (None, source)
    unused = file.unused()
    assert {"betas", "model_ema.decay"} <= set(unused)
    assert all(
        n in ("betas", "model_ema.decay")
        or n.endswith(("position_ids", "logit_scale", "text_projection"))
        or ".resblocks.23." in n
        for n in unused
    )


# as many as have a pipeline here
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "xl_inpaint"])
def test_whole_pipelines_need_nothing_else(kind, tmp_path, monkeypatch):
    """Tokenizers, schedulers and configs of published kinds are part of the library: the hub is not asked."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    # T5's vocabulary alone is not: files without T5 need nothing.
    tensors = {name: shape for name, shape in GOLDEN["full"][kind]["checkpoint"].items() if ".t5xxl." not in name}
    path = save_empty(tensors, tmp_path / "model.safetensors")
    first = sf.diffusion.DiffusionPipeline.from_single_file(path)
    for pipe in (first, type(first).from_single_file(path)):
        assert type(pipe.scheduler).__name__ == config_of(kind)["scheduler"]["_class_name"]
        encoders = [n for n in ("text_encoder", "text_encoder_2") if getattr(pipe, n, None) is not None]
        assert encoders
        for encoder in encoders:
            tokenizer = getattr(pipe, encoder.replace("text_encoder", "tokenizer"))
            assert tokenizer("a photo of a cat").input_ids == [49406, 320, 1125, 539, 320, 2368, 49407]
            # OpenCLIP's encoders were trained with zeros behind a text
            openai = encoder == "text_encoder" and not kind.endswith("v2")
            assert tokenizer.pad_token_id == (49407 if openai else 0)
    assert not (tmp_path / "home").exists()


def test_counts_of_tensors():
    counts = {
        kind: {part: len(sf._core._single_file_rows(kind, part, {})) for part in GOLDEN["full"][kind]["parts"]}
        for kind in KINDS
    }
    assert counts["v2"] == {"unet": 686, "vae": 248, "text_encoder": 372}
    assert counts["xl_base"] == {"unet": 1680, "vae": 248, "text_encoder": 196, "text_encoder_2": 517}


@pytest.mark.parametrize("kind", KINDS)
def test_the_models_have_these_tensors(kind):
    for part, (_, class_name, config) in sf._core._single_file_kinds()[kind][2].items():
        if part != "scheduler":
            with sf.device("meta"):
                state = getattr(sf.models, class_name).from_config(config).state_dict()
            assert {name: list(t.shape) for name, t in state.items()} == {
                name: list(s) for name, _, s in sf._core._single_file_rows(kind, part, {})
            }


@pytest.mark.parametrize("suffix", ["safetensors", "ckpt"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_value_in_miniature(kind, suffix, tmp_path):
    golden = GOLDEN["tiny"][kind]
    file = open_file(save(golden["checkpoint"], tmp_path / f"model.{suffix}"), golden["configs"])
    assert file.kind == kind
    for part, sums in golden["sums"].items():
        assert {name: crc(file.tensor(part, name)) for name in sums} == sums
        assert file.parts()[part][2] == golden["configs"][part]


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind, tmp_path):
    golden = GOLDEN["tiny"][kind]
    file = open_file(save(golden["checkpoint"], tmp_path / "model.safetensors"), golden["configs"])
    parts = {part: {name: file.tensor(part, name) for name, _, _ in file.rows(part)} for part in golden["configs"]}
    back = sf._core._to_single_file(kind, parts, golden["configs"])
    assert set(golden["checkpoint"]) - set(back) == set(file.unused())
    if kind.startswith("sd3"):  # an identity, which files leave out
        np.testing.assert_array_equal(back.pop(CLIP_L + "text_projection.weight").numpy(), np.eye(8, dtype=np.float32))
    for name, tensor in back.items():
        assert list(tensor.shape) == golden["checkpoint"][name] and np.array_equal(
            tensor.numpy(), fill(name, tensor.shape)
        )
    denoiser, first = ("transformer", "pos_embed.proj.bias") if "transformer" in parts else ("unet", "conv_in.bias")
    del parts[denoiser][first]
    with pytest.raises(ValueError, match=f"the {denoiser} lacks '{first}'"):
        sf._core._to_single_file(kind, {denoiser: parts[denoiser]}, golden["configs"])
    with pytest.raises(ValueError, match="'extra' is no tensor of the vae"):
        sf._core._to_single_file(kind, {"vae": parts["vae"] | {"extra": sf.zeros(1)}}, golden["configs"])
    with pytest.raises(ValueError, match="has no part 'image_encoder'"):
        sf._core._to_single_file(kind, {"image_encoder": {}}, {})


@pytest.mark.parametrize("kind", ["v1", "v2", "xl_base", "xl_refiner", "sd35_medium"])
def test_models_from_a_single_file(kind, tmp_path):
    golden = GOLDEN["tiny"][kind]
    path = save(golden["checkpoint"], tmp_path / "model.ckpt")
    classes = {
        part: class_name
        for part, (_, class_name, _) in sf._core._single_file_kinds()[kind][2].items()
        if part != "scheduler"
    }
    file = open_file(path, golden["configs"])
    for part, class_name in classes.items():
        cls = getattr(sf.models, class_name)
        model = cls.__new__(cls)
        file.load(model, part, None, None, {})
        assert {name: crc(t) for name, t in model.state_dict().items()} == golden["sums"][part] and not model.training
    only = {
        n: s for n, s in golden["checkpoint"].items() if n.startswith(("model.diffusion_model.", "first_stage_model."))
    }
    path = save(only, tmp_path / "some.safetensors") if kind == "v1" else None
    if path:
        unet = sf.models.UNet2DConditionModel.from_single_file(
            path, config=golden["configs"]["unet"], torch_dtype=sf.bfloat16, sample_size=17
        )
        assert (
            unet.dtype is sf.bfloat16 and unet.config.sample_size == 17 and unet.config.block_out_channels == [32, 64]
        )
        assert crc(unet.conv_in.bias.detach().float()) == crc(file.tensor("unet", "conv_in.bias").bfloat16().float())


def test_models_that_are_not_in_a_single_file(v1, tmp_path):
    unet = {n: s for n, s in v1["checkpoint"].items() if n.startswith("model.diffusion_model.")}
    path = save(unet, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="has no CLIPTextModelWithProjection that a config could be for"):
        sf.models.CLIPTextModelWithProjection.from_single_file(path, config=v1["configs"]["text_encoder"])
    with pytest.raises(ValueError, match="is Stable Diffusion 1.x without a vae"):
        sf.models.AutoencoderKL.from_single_file(path)
    with pytest.raises(ValueError, match="is Stable Diffusion 1.x without a text_encoder or text_encoder_2"):
        sf.models.CLIPTextModelWithProjection.from_single_file(path)
    with pytest.raises(TypeError, match="no checkpoint has a AutoencoderTiny"):
        sf.models.AutoencoderTiny.from_single_file(path)
    with pytest.raises(ValueError, match="nowhere' is neither a file nor one of a repository"):
        sf.models.AutoencoderKL.from_single_file(tmp_path / "nowhere")


def config_of(kind):
    return {part: config for part, (_, _, config) in sf._core._single_file_kinds()[kind][2].items()}


def test_configs_of_the_kinds():
    assert (
        config_of("v1")["vae"]["scaling_factor"] == 0.18215 and config_of("xl_base")["vae"]["scaling_factor"] == 0.13025
    )
    assert (
        config_of("v1")["scheduler"]["_class_name"] == "PNDMScheduler"
        and config_of("v2")["scheduler"]["prediction_type"] == "v_prediction"
    )
    assert config_of("v2")["unet"]["upcast_attention"] and config_of("v2")["text_encoder"]["num_hidden_layers"] == 23
    assert [config_of(k)["unet"]["in_channels"] for k in ("inpainting", "inpainting_v2", "xl_inpaint", "xl_base")] == [
        9,
        9,
        9,
        4,
    ]


def test_marks_that_contradict_each_other(tmp_path):
    """A kind is recognised by what it has and the others have not, in whatever order they are asked."""
    first, v2, refiner = (
        "model.diffusion_model.input_blocks.0.0.weight",
        "cond_stage_model.model.token_embedding.weight",
        "conditioner.embedders.0.model.positional_embedding",
    )
    titles = {
        "Stable Diffusion XL's refiner, but": [
            {first: [384, 9, 3, 3]},
            {v2: [2, 2], refiner: [2, 2]},
            {first: [384, 4, 3, 3], v2: [2, 2]},
        ],
        "Stable Diffusion 2.x, but": [{v2: [2, 2]}, {first: [320, 4, 3, 3], v2: [2, 2]}],
        "Stable Diffusion 2.x for inpainting, but": [{first: [320, 9, 3, 3], v2: [2, 2]}],
        "Stable Diffusion 1.x for inpainting, but": [{first: [320, 9, 3, 3]}],
    }
    for title, files in titles.items():
        for shapes in files:
            with pytest.raises(ValueError, match=f"is {title} its"):
                open_file(save(shapes, tmp_path / "a.safetensors"))


def test_tensors_borrow_the_file(tmp_path):
    golden = GOLDEN["full"]["xl_base"]
    path = save_empty(golden["checkpoint"], tmp_path / "model.safetensors")
    code = f"""if True:
        import resource, scaffolding as sf
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        file = sf._core._SingleFile({path!r})
        all = [file.tensor(part, row[0]) for part in file.parts() for row in file.rows(part)]
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, sum(t.nbytes for t in all))"""
    kilobytes, size = map(
        int, subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )
    assert size > 6e9 and kilobytes < 50_000


def test_model_index(tmp_path):
    golden = GOLDEN["tiny"]["xl_refiner"]
    index = open_file(save(golden["checkpoint"], tmp_path / "a.safetensors"), golden["configs"]).model_index()
    assert index["_class_name"] == "StableDiffusionXLImg2ImgPipeline" and index["requires_aesthetics_score"] is True
    assert index["text_encoder_2"] == ["transformers", "CLIPTextModelWithProjection"] and index["scheduler"] == [
        "diffusers",
        "EulerDiscreteScheduler",
    ]
    assert "text_encoder" not in index


# ---- files of other shapes


@pytest.fixture
def v1():
    return GOLDEN["tiny"]["v1"]


def test_a_known_kind_that_brings_its_configs(v1, tmp_path):
    """Other programs know the tensors' names; the configs in the metadata say what unusual sizes they have."""
    rows = {part: [library, cls] for part, (library, cls, _) in sf._core._single_file_kinds()["v1"][2].items()}
    files = {"model_index.json": {"_class_name": "StableDiffusionPipeline", **rows}}
    for part, config in (config_of("v1") | v1["configs"]).items():
        files[f"{part}/{'scheduler_config' if part == 'scheduler' else 'config'}.json"] = config
    metadata = {f"scaffolding:{name}": json.dumps(content) for name, content in files.items()}
    path = str(tmp_path / "a.safetensors")
    sf.safetensors.save_file(tensors_of(v1["checkpoint"]), path, metadata)
    file = open_file(path)
    assert file.kind == "pipeline" and sorted(file.parts()) == ["scheduler", "text_encoder", "unet", "vae"]
    for part, sums in v1["sums"].items():
        assert {name: crc(file.tensor(part, name)) for name in sums} == sums
    assert sf.models.UNet2DConditionModel.from_single_file(path).config.block_out_channels == [32, 64]
    with pytest.raises(ValueError, match="is a StableDiffusionPipeline, but its unet lacks"):
        open_file(path, {"unet": config_of("v1")["unet"]})  # what is passed stands over what the file says


def test_parts_that_are_not_there(v1, tmp_path):
    unet = {n: s for n, s in v1["checkpoint"].items() if n.startswith("model.diffusion_model.")}
    file = open_file(save(unet, tmp_path / "unet.safetensors"), v1["configs"])
    assert sorted(file.parts()) == ["scheduler", "unet"]
    with pytest.raises(ValueError, match="has no vae; it has scheduler, unet"):
        file.tensor("vae", "quant_conv.bias")
    with pytest.raises(ValueError, match="its unet has no tensor 'nothing'"):
        file.tensor("unet", "nothing")
    bare = {
        n.removeprefix("first_stage_model."): s
        for n, s in v1["checkpoint"].items()
        if n.startswith("first_stage_model.")
    }
    file = open_file(save(bare, tmp_path / "vae.ckpt"), v1["configs"])  # as vae-ft-mse-840000-ema-pruned.ckpt
    assert sorted(file.parts()) == ["scheduler", "vae"]
    assert np.array_equal(file.tensor("vae", "encoder.conv_in.bias").numpy(), fill("encoder.conv_in.bias", [32]))


def test_names_of_older_programs(v1, tmp_path):
    old = {
        n.replace("cond_stage_model.transformer.text_model.", "cond_stage_model.transformer."): s
        for n, s in v1["checkpoint"].items()
    }
    file = open_file(save(old, tmp_path / "a.safetensors"), v1["configs"])
    name = "text_model.encoder.layers.1.mlp.fc2.bias"
    assert np.array_equal(
        file.tensor("text_encoder", name).numpy(),
        fill("cond_stage_model.transformer." + name.removeprefix("text_model."), [8]),
    )


def test_averaged_weights(v1, tmp_path):
    unet = [n for n in v1["checkpoint"] if n.startswith("model.diffusion_model.")]
    averaged = {"model_ema." + n.removeprefix("model.").replace(".", ""): v1["checkpoint"][n] for n in unet}
    path = save(v1["checkpoint"] | averaged, tmp_path / "a.safetensors")
    name = "model_ema.diffusion_modelout2bias"
    assert np.array_equal(
        open_file(path, v1["configs"], extract_ema=True).tensor("unet", "conv_out.bias").numpy(), fill(name, [4])
    )
    assert not np.array_equal(open_file(path, v1["configs"]).tensor("unet", "conv_out.bias").numpy(), fill(name, [4]))
    with pytest.raises(ValueError, match="has no averaged weights"):
        open_file(save(v1["checkpoint"], tmp_path / "b.safetensors"), v1["configs"], extract_ema=True)


def test_what_a_v2_predicts(tmp_path):
    golden = GOLDEN["tiny"]["v2"]
    configs = {part: c for part, c in golden["configs"].items() if part != "scheduler"}
    prediction = lambda *a, **k: open_file(*a, **k).parts()["scheduler"][2]["prediction_type"]  # noqa: E731
    path = save(golden["checkpoint"], tmp_path / "a.ckpt")
    assert prediction(path, configs) == "v_prediction"
    assert prediction(path, configs, prediction_type="epsilon") == "epsilon"
    # 512-base-ema.ckpt
    sf.save({"global_step": 875000, "state_dict": tensors_of(golden["checkpoint"])}, tmp_path / "base.ckpt")
    assert prediction(str(tmp_path / "base.ckpt"), configs) == "epsilon"
    with pytest.raises(ValueError, match="prediction_type must be"):
        open_file(path, configs, prediction_type="x")


def test_tensors_that_are_missing_or_have_another_shape(v1, tmp_path):
    for n in (
        "model.diffusion_model.out.2.bias",
        "first_stage_model.decoder.mid.attn_1.q.weight",
        "cond_stage_model.transformer.text_model.final_layer_norm.bias",
    ):
        with pytest.raises(ValueError, match=f"is Stable Diffusion 1.x, but its .* lacks 1 tensor: '{n}'"):
            open_file(
                save({k: s for k, s in v1["checkpoint"].items() if k != n}, tmp_path / "a.safetensors"), v1["configs"]
            )
    wrong = v1["checkpoint"] | {
        "model.diffusion_model.time_embed.0.bias": [5],
        "model.diffusion_model.out.2.weight": [4, 32],
    }
    with pytest.raises(
        ValueError,
        match=r"has 2 tensors of another shape: .*time_embed.0.bias' is \[5\] and should be \[128\].*pass its config",
    ):
        open_file(save(wrong, tmp_path / "b.safetensors"), v1["configs"])
    wide = v1["configs"] | {"text_encoder": v1["configs"]["text_encoder"] | {"hidden_size": 16}}
    with pytest.raises(ValueError, match="its text_encoder has .* of another shape"):
        open_file(save(v1["checkpoint"], tmp_path / "c.safetensors"), wide)
    xl = GOLDEN["tiny"]["xl_base"]
    thirds = xl["checkpoint"] | {"conditioner.embedders.1.model.transformer.resblocks.0.attn.in_proj_bias": [25]}
    with pytest.raises(ValueError, match=r"in_proj_bias' is \[25\] and should be \[24\]"):
        open_file(save(thirds, tmp_path / "d.safetensors"), xl["configs"])


@pytest.mark.parametrize(
    "error, message, names",
    [
        (
            ValueError,
            "is a LoRA \\(2 of its 3",
            {"lora_unet_down_blocks_0.lora_down.weight": [4, 4], "unet.x.lora_A.weight": [4], "alpha": []},
        ),
        (ValueError, "is a textual inversion", {"emb_params": [4, 768]}),
        (
            NotSupported := NotImplementedError,
            "is AuraFlow, which is not supported yet",
            {"double_layers.0.attn.w2q.weight": [128]},
        ),
        (NotSupported, "is AuraFlow", {"model.diffusion_model.double_layers.0.attn.w2q.weight": [128]}),
        (
            ValueError,
            "is Stable Diffusion 3, but its transformer lacks",
            {"model.diffusion_model.joint_blocks.0.context_block.adaLN_modulation.1.bias": [9]},
        ),
        (NotSupported, "is a ControlNet", {"control_model.time_embed.0.weight": [4, 4]}),
        (
            NotSupported,
            "8 input channels \\(InstructPix2Pix\\)",
            {"model.diffusion_model.input_blocks.0.0.weight": [320, 8, 3, 3]},
        ),
        (
            ValueError,
            "one part of a pipeline in diffusers' names",
            {"down_blocks.0.resnets.0.conv1.weight": [4, 4, 3, 3]},
        ),
        (ValueError, "is no Stable Diffusion checkpoint: .* it has 1 tensors such as 'x'", {"x": [1]}),
        (ValueError, "is no Stable Diffusion checkpoint", {}),
        (ValueError, "unet lacks 685 tensors", {"model.diffusion_model.input_blocks.0.0.weight": [320, 4, 3, 3]}),
    ],
)
def test_files_that_are_something_else(error, message, names, tmp_path):
    with pytest.raises(error, match=message):
        open_file(save(names, tmp_path / "a.safetensors"))


@pytest.mark.parametrize("cls", [sf.models.UNet2DConditionModel, sf.models.AutoencoderKL])
def test_a_network_says_what_else_the_file_is(cls, tmp_path):
    lora = {"lora_unet_mid_block_attentions_0_proj_in.lora_down.weight": [4, 8]}
    with pytest.raises(ValueError, match="is a LoRA"):
        cls.from_single_file(save(lora, tmp_path / "a.safetensors"))


OTHERS = json.loads((folders.ROOT / "scaffolding/models/configs/not_supported.json").read_text())["not_supported"]
OTHERS = [other for other in OTHERS if other["title"] != "a ControlNet"]  # which has models of its own


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model.", "state_dict."])
@pytest.mark.parametrize(
    "family, alone, tensor",
    [(other["title"], other.get("model_alone"), mark[0]) for other in OTHERS for mark in other["any"]],
)
def test_other_families_are_refused_by_name(family, alone, tensor, prefix, tmp_path):
    error, message = (
        (ValueError, f"is the transformer of {family} alone; load it by {alone}.from_single_file")
        if alone
        else (
            NotImplementedError,
            f"is {family}, which is not supported yet; supported are Stable Diffusion 1.x, 2.x, XL, 3, 3.5 and "
            "LTX-2",
        )
    )
    with pytest.raises(error, match=message):
        open_file(save({prefix + tensor: [4]}, tmp_path / "a.safetensors"))


@pytest.mark.parametrize(
    "config",
    [
        {"block_out_channels": []},
        {"block_out_channels": [32] * 40},
        {"block_out_channels": [32, -1]},
        {"down_block_types": ["AttnDownBlock2D", "DownBlock2D"]},
        {"down_block_types": ["DownBlock2D"]},
        {"layers_per_block": 10**9},
        {"layers_per_block": "two"},
        {"transformer_layers_per_block": [1, 2, 3]},
        {"transformer_layers_per_block": 10**12},
        {"addition_embed_type": "text_time"},
        {"addition_embed_type": "image"},
    ],
)
def test_configs_that_no_checkpoint_has(v1, config, tmp_path):
    path = save(v1["checkpoint"], tmp_path / "a.safetensors")
    with pytest.raises((ValueError, TypeError, NotImplementedError), match="UNet2DConditionModel"):
        open_file(path, v1["configs"] | {"unet": v1["configs"]["unet"] | config})
    with pytest.raises(ValueError, match="has no part 'controlnet'"):
        open_file(path, {"controlnet": {}})


@pytest.mark.parametrize(
    "part, config",
    [
        ("vae", {"layers_per_block": 10**9}),
        ("vae", {"block_out_channels": [32] * 40}),
        ("vae", {"latent_channels": 10**12}),
        ("text_encoder", {"num_hidden_layers": 10**9}),
        ("text_encoder", {"hidden_size": -1}),
        ("text_encoder", {"vocab_size": 2**60}),
        ("unet", {"cross_attention_dim": 2**62}),
    ],
)
def test_sizes_that_no_model_has(v1, part, config, tmp_path):
    path = save(v1["checkpoint"], tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="AutoencoderKL|CLIPTextModel|more elements than fit"):
        open_file(path, v1["configs"] | {part: v1["configs"][part] | config})


# ---- a denoiser alone, under the names of other programs


@pytest.mark.parametrize("prefix", ["", "diffusion_model."])
def test_a_denoiser_alone(v1, prefix, tmp_path):
    unet = {
        prefix + n.removeprefix("model.diffusion_model."): s
        for n, s in v1["checkpoint"].items()
        if n.startswith("model.diffusion_model.")
    }
    file = open_file(save(unet, tmp_path / "a.safetensors"), v1["configs"])
    assert file.kind == "v1" and sorted(file.parts()) == ["scheduler", "unet"] and file.unused() == []
    assert np.array_equal(file.tensor("unet", "conv_out.bias").numpy(), fill(prefix + "out.2.bias", [4]))


def save_gguf(shapes, path):
    """A GGUF file of version 3 without metadata, all float32."""
    names, at = b"", 0
    for name, shape in shapes.items():
        names += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
        names += struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, at)
        at += -(-4 * int(np.prod(shape)) // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), 0) + names
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        for name, shape in shapes.items():
            data = fill(name, shape).tobytes()
            f.write(data + b"\0" * (-len(data) % 32))
    return str(path)


def test_a_denoiser_in_gguf(v1, tmp_path):
    unet = {
        n.removeprefix("model.diffusion_model."): s
        for n, s in v1["checkpoint"].items()
        if n.startswith("model.diffusion_model.")
    }
    path = save_gguf(unet, tmp_path / "a.gguf")
    file = open_file(path, v1["configs"])
    for name, source, shape in file.rows("unet"):
        assert np.array_equal(file.tensor("unet", name).numpy(), fill(source, unet[source]).reshape(shape))
    model = sf.models.UNet2DConditionModel.from_single_file(path, config=v1["configs"]["unet"])
    assert np.array_equal(model.conv_out.bias.detach().numpy(), fill("out.2.bias", [4]))


def test_a_transformer_in_gguf(tmp_path):
    """As other programs quantise Stable Diffusion 3's: without a prefix, and queries, keys and values as one."""
    golden = GOLDEN["tiny"]["sd35_medium"]
    prefix = "model.diffusion_model."
    bare = {n.removeprefix(prefix): s for n, s in golden["checkpoint"].items() if n.startswith(prefix)}
    path = save_gguf(bare, tmp_path / "a.gguf")
    config = golden["configs"]["transformer"]
    state = sf.models.SD3Transformer2DModel.from_single_file(path, config=config).state_dict()
    for name, source, shape in open_file(path, golden["configs"]).rows("transformer"):
        if ".to_" not in name and "add_" not in name and "norm_out" not in name and "norm1_context" not in name:
            assert np.array_equal(state[name].numpy(), fill(source, bare[source]).reshape(shape)), name
    qkv = fill("joint_blocks.1.x_block.attn2.qkv.weight", [24, 8])
    for i, name in enumerate(("to_q", "to_k", "to_v")):
        assert np.array_equal(state[f"transformer_blocks.1.attn2.{name}.weight"].numpy(), qkv[8 * i : 8 * i + 8])
