"""What Stable Diffusion 3's pipelines have and no other: three text encoders, of which T5 may be absent, skip-layer
guidance, and files with and without text encoders."""

import json

import numpy as np
import pytest
from golden_pipelines import CASES, images_of, one_thread, part, pipeline_of  # noqa: F401 (one_thread: a fixture)

import scaffolding as sf
from scaffolding import diffusion

FAMILY = "stable_diffusion_3"


def made(name):
    case = CASES[name]
    return pipeline_of(case, FAMILY), case


def test_what_the_text_encoders_give():
    pipe, case = made("sd3_t2i_prompts")
    call = {k: v for k, v in case["call"].items() if "prompt" in k or k == "max_sequence_length"}
    embeds = pipe.encode_prompt(**call)
    assert [tuple(e.shape) for e in embeds] == [(1, 77 + 12, 48)] * 2 + [(1, 40)] * 2
    assert not embeds[0][:, :77, 40:].numpy().any()  # both CLIPs have 40 features, T5 has 48
    names = ("prompt_embeds", "negative_prompt_embeds", "pooled_prompt_embeds", "negative_pooled_prompt_embeds")
    rest = {k: v for k, v in case["call"].items() if k not in call}
    given = pipe(**rest, **dict(zip(names, embeds)), generator=sf.Generator().manual_seed(0), output_type="np").images
    np.testing.assert_allclose(given, images_of(pipe, case), atol=1e-6)
    empty = {**case["call"], "prompt_2": "", "negative_prompt_3": ""}
    absent = {k: v for k, v in case["call"].items() if k not in ("prompt_2", "negative_prompt_3")}
    np.testing.assert_array_equal(images_of(pipe, {**case, "call": empty}), images_of(pipe, {**case, "call": absent}))


def test_without_t5():
    pipe, case = made("sd3_t2i_without_t5")
    embeds = pipe.encode_prompt("a cat", max_sequence_length=20)[0]
    assert embeds.shape == (1, 97, 48) and not embeds[:, 77:].numpy().any() and embeds[:, :77].numpy().any()
    pipe.text_encoder_3 = part(FAMILY, "t5")
    with pytest.raises(ValueError, match="pass tokenizer_3, or text_encoder_3=None to go without T5"):
        images_of(pipe, case)
    pipe.text_encoder_3 = pipe.text_encoder_2 = None
    with pytest.raises(ValueError, match="pass prompt_embeds and pooled_prompt_embeds"):
        images_of(pipe, case)


def test_skip_layer_guidance_in_two_calls():
    for name in ("sd3_t2i_skip_layers", "sd3_t2i_skip_layers_two"):
        pipe, case = made(name)
        want = images_of(pipe, case)
        np.testing.assert_allclose(images_of(pipe, case, guidance_mode="sequential"), want, atol=1e-5)
        assert np.abs(images_of(pipe, case, skip_guidance_layers=None) - want).max() > 0.01
        # no step is among those, or nothing is guided
        start = images_of(pipe, case, skip_layer_guidance_start=1.0)
        np.testing.assert_array_equal(start, images_of(pipe, case, skip_guidance_layers=None))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("sd3_t2i", {"height": 20}, "height and width must be divisible by 8"),
        ("sd3_t2i", {"max_sequence_length": 513}, "max_sequence_length must be from 1 to 512, got 513"),
        ("sd3_t2i", {"prompt_2": ["a", "b"]}, "prompt_2 must be one text, or one for each of 1 prompts, got 2"),
        ("sd3_t2i", {"mu": float("nan")}, "mu must be finite"),
        ("sd3_t2i", {"skip_guidance_layers": [3]}, "must be numbers of the denoiser's 3 blocks, got 3"),
        ("sd3_t2i_embeds", {"prompt_3": "a"}, "takes prompt_3 with prompt, not with prompt_embeds"),
        ("sd3_t2i_embeds", {"negative_prompt_2": "a"}, "takes negative_prompt_2 or negative_prompt_embeds, not both"),
        ("sd3_t2i_embeds", {"pooled_prompt_embeds": None}, "prompt_embeds need pooled_prompt_embeds"),
        ("sd3_i2i", {"strength": 1.5}, "strength must be in"),
        ("sd3_i2i", {"image": None}, "needs an image"),
    ],
)
def test_calls_that_are_refused(name, change, message):
    pipe, case = made(name)
    with pytest.raises(ValueError, match=message):
        images_of(pipe, case, **change)


def test_a_picture_of_latents_has_its_own_size():
    pipe, case = made("sd3_i2i_default_size")
    latents = sf.randn(1, 16, 8, 12, generator=sf.Generator().manual_seed(1))
    assert images_of(pipe, case, image=latents).shape == (1, 16, 24, 3)


# ---- files


def written(pipe, path, parts):
    """The pipeline as a checkpoint of Stability AI's names, with these of its networks."""
    networks = {n: pipe.components[n] for n in parts}
    tensors = sf._core._to_single_file(
        "sd3", {n: dict(m.state_dict()) for n, m in networks.items()}, {n: dict(m.config) for n, m in networks.items()}
    )
    sf.safetensors.save_file({k: t.contiguous().clone() for k, t in tensors.items()}, path)
    return tensors


def test_files_with_and_without_text_encoders(tmp_path):
    pipe, case = made("sd3_t2i")
    pipe.save_pretrained(tmp_path / "folder")
    want, path = images_of(pipe, case), tmp_path / "one.safetensors"
    encoders = {n: getattr(pipe, n) for n in ("text_encoder", "text_encoder_2", "text_encoder_3")}
    for inside in ([], ["text_encoder", "text_encoder_2"], list(encoders)):
        names = written(pipe, path, ["transformer", "vae", *inside])
        assert "model.diffusion_model.joint_blocks.2.context_block.attn.qkv.weight" in names
        given = {n: model for n, model in encoders.items() if n not in inside}
        again = diffusion.StableDiffusion3Pipeline.from_single_file(path, config=tmp_path / "folder", **given)
        np.testing.assert_allclose(images_of(again, case), want, atol=1e-5)
        assert type(again.scheduler).__name__ == "FlowMatchEulerDiscreteScheduler"
    with pytest.raises(ValueError, match="has no tokenizer_3; pass tokenizer_3= or config=folder"):
        configs = {n: dict(m.config) for n, m in pipe.components.items() if hasattr(m, "state_dict")}
        for name in configs:
            (tmp_path / "sizes" / name).mkdir(parents=True)
            (tmp_path / "sizes" / name / "config.json").write_text(json.dumps(configs[name]))
        clips = {n: getattr(pipe, n) for n in ("tokenizer", "tokenizer_2")}
        diffusion.StableDiffusion3Pipeline.from_single_file(path, config=tmp_path / "sizes", **clips)


def test_a_file_without_clips_projection_has_an_identity(tmp_path):
    pipe, _ = made("sd3_t2i")
    path = tmp_path / "one.safetensors"
    names = written(pipe, path, ["transformer", "vae", "text_encoder", "text_encoder_2"])
    names.pop("text_encoders.clip_l.transformer.text_projection.weight")
    half = {k: t.bfloat16().contiguous() for k, t in names.items()}
    sf.safetensors.save_file(half, path)
    config = dict(pipe.text_encoder.config)
    file = sf._core._SingleFile(str(path), {n: dict(pipe.components[n].config) for n in ("transformer", "vae",
                                            "text_encoder", "text_encoder_2")})  # fmt: skip
    projection = file.tensor("text_encoder", "text_projection.weight")
    assert projection.dtype is sf.bfloat16
    np.testing.assert_array_equal(projection.float().numpy(), np.eye(config["projection_dim"], dtype=np.float32))
    names.pop("text_encoders.clip_g.transformer.text_projection.weight")
    sf.safetensors.save_file({k: t.contiguous().clone() for k, t in names.items()}, path)
    with pytest.raises(ValueError, match="its text_encoder_2 lacks 1 tensor: .*clip_g.transformer.text_projection"):
        sf._core._SingleFile(str(path), {n: dict(pipe.components[n].config) for n in ("transformer", "vae",
                                         "text_encoder", "text_encoder_2")})  # fmt: skip


@pytest.mark.parametrize("network", ["sd3", "sd35"])
def test_a_transformer_alone_under_other_programs_names(network, tmp_path):
    model = part(FAMILY, network)
    kind = {"sd3": "sd3", "sd35": "sd35_medium"}[network]
    tensors = sf._core._to_single_file(
        kind, {"transformer": dict(model.state_dict())}, {"transformer": dict(model.config)}
    )
    for prefix in ("", "model.diffusion_model.", "diffusion_model."):
        bare = {prefix + k.removeprefix("model.diffusion_model."): t.contiguous().clone() for k, t in tensors.items()}
        sf.safetensors.save_file(bare, tmp_path / "one.safetensors")
        again = sf.models.SD3Transformer2DModel.from_single_file(
            tmp_path / "one.safetensors", config=dict(model.config)
        )
        for name, tensor in model.state_dict().items():
            assert sf.equal(again.state_dict()[name], tensor), name


def test_loras_of_other_programs_are_those_of_ours():
    """kohya's and ComfyUI's have queries, keys and values as one; in PEFT's names they are three with the same down."""
    pipe, case = made("sd3_t2i")
    draw = np.random.default_rng(0)
    down, up = (draw.normal(size=shape).astype(np.float32) for shape in ((2, 16), (48, 2)))
    bare, pictures = images_of(pipe, case), []
    layers = {"x_block": ("to_q", "to_k", "to_v"), "context_block": ("add_q_proj", "add_k_proj", "add_v_proj")}
    for before, dot, ends in (
        ("lora_unet_", "_", (".lora_down.weight", ".lora_up.weight")),
        ("diffusion_model.", ".", (".lora_A.weight", ".lora_B.weight")),
        ("transformer.", "", (".lora_A.weight", ".lora_B.weight")),
    ):
        state = {}
        for block, names in layers.items():
            stems = (
                {dot.join(("joint_blocks", "1", block, "attn", "qkv")): up}
                if dot
                else {f"transformer_blocks.1.attn.{name}": up[16 * i : 16 * i + 16] for i, name in enumerate(names)}
            )
            for stem, rows in stems.items():
                state |= {before + stem + ends[0]: sf.tensor(down), before + stem + ends[1]: sf.tensor(rows)}
        pipe.load_lora_weights(state, adapter_name="one")
        pictures.append(images_of(pipe, case))
        pipe.delete_adapters("one")
    assert np.abs(pictures[0] - bare).max() > 0.01
    for picture in pictures[1:]:
        np.testing.assert_allclose(picture, pictures[0], atol=1e-4)
