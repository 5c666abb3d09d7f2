"""ControlNets beside a UNet: what begins as nothing, learns, is saved, and is refused."""

import json

import numpy as np
import pytest
from golden_pipelines import CASES, images_of, one_thread, part, pipeline_of  # noqa: F401 (a fixture)

import scaffolding as sf
from scaffolding import diffusion, models
from scaffolding.diffusion import (
    AutoPipelineForImage2Image,
    AutoPipelineForText2Image,
    DiffusionPipeline,
    StableDiffusionControlNetImg2ImgPipeline,
    StableDiffusionControlNetPipeline,
    StableDiffusionPipeline,
)
from scaffolding.models import ControlNetModel, MultiControlNetModel

PICTURE = sf.rand(1, 3, 16, 24, generator=sf.Generator().manual_seed(3))
CALL = {"prompt": "a photo of the cat", "num_inference_steps": 3, "seed": 1, "output_type": "np"}


def pipe_of(name="control_t2i"):
    return pipeline_of(CASES[name], CASES[name]["family"])


def plain(pipe):
    return StableDiffusionPipeline.from_pipe(pipe)


def net_of(config, **changes):
    """A network of these fields."""
    return ControlNetModel.from_config({**{k: v for k, v in config.items() if not k.startswith("_")}, **changes})


def unet_of(name="unet"):
    return part("controlnet", name)


# ---- from a UNet


@pytest.mark.parametrize("name", ["unet", "xl"])
def test_it_begins_with_the_unets_weights_and_adds_nothing(name):
    unet = unet_of(name)
    net = ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(4, 8))
    own, theirs = net.state_dict(), unet.state_dict()
    copied = [k for k in own if not k.startswith("controlnet_")]
    assert copied and all(sf.equal(own[k], theirs[k]) for k in copied)
    assert all(own[k].data_ptr() != theirs[k].data_ptr() for k in copied)
    zero = [k for k in own if k.startswith(("controlnet_down", "controlnet_mid", "controlnet_cond_embedding.conv_out"))]
    assert len(zero) == 2 * 6 and not any(own[k].any() for k in zero)
    assert net.config["conditioning_embedding_out_channels"] == [4, 8]
    assert net.config["addition_embed_type"] == unet.config["addition_embed_type"]


def test_what_adds_nothing_changes_no_picture():
    pipe = pipe_of()
    net = ControlNetModel.from_unet(pipe.unet, conditioning_embedding_out_channels=(4, 8))
    beside = StableDiffusionControlNetPipeline.from_pipe(pipe, controlnet=net)
    np.testing.assert_array_equal(beside(image=PICTURE, **CALL).images, plain(pipe)(height=16, width=24, **CALL).images)
    assert np.abs(pipe(image=PICTURE, **CALL).images - plain(pipe)(height=16, width=24, **CALL).images).max() > 0.01


def test_without_weights_of_the_unet():
    unet = unet_of()
    net = ControlNetModel.from_unet(unet, load_weights_from_unet=False, conditioning_channels=1)
    assert not sf.equal(net.conv_in.weight, unet.conv_in.weight)
    assert net.controlnet_cond_embedding.conv_in.weight.shape[1] == 1
    with pytest.raises(TypeError, match="unet must be a UNet2DConditionModel"):
        ControlNetModel.from_unet(sf.nn.Linear(1, 1))


# ---- training


def test_it_learns_beside_a_frozen_unet():
    unet = unet_of()
    net = ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(4, 8)).train()
    before = {k: t.clone() for k, t in unet.state_dict().items()}
    for p in unet.parameters():
        p.requires_grad_(False)
    try:
        g = sf.Generator().manual_seed(5)
        latents, target = (sf.randn(2, 4, 8, 12, generator=g) for _ in range(2))
        text, seen = sf.randn(2, 7, 32, generator=g), sf.rand(2, 3, 16, 24, generator=g)
        optimizer = sf.optim.AdamW(net.parameters(), lr=2e-3)
        losses = []
        for _ in range(6):
            down, mid = net(latents, 300, text, seen, return_dict=False)
            out = unet(
                latents, 300, text, down_block_additional_residuals=down, mid_block_additional_residual=mid
            ).sample
            loss = ((out - target) ** 2).mean()
            loss.backward()
            assert all(p.grad is None for p in unet.parameters())
            if not losses:  # behind zero convolutions nothing learns in the first step
                learns = {k for k, p in net.named_parameters() if p.grad is not None and p.grad.any()}
                assert learns and all(k.startswith(("controlnet_down", "controlnet_mid")) for k in learns)
            else:
                assert net.conv_in.weight.grad.any() and net.controlnet_cond_embedding.conv_out.weight.grad.any()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert losses[-1] < losses[0] - 0.01
        assert all(sf.equal(t, before[k]) for k, t in unet.state_dict().items())
    finally:
        for p in unet.parameters():
            p.requires_grad_(True)


# ---- runs


def test_guidance_in_two_calls_gives_the_same_picture():
    for name in ("control_guess", "control_several", "control_xl_guess"):
        pipe = pipe_of(name)
        both = images_of(pipe, CASES[name])
        assert np.abs(images_of(pipe, CASES[name], guidance_mode="sequential") - both).max() < 1e-4, name


def test_samples_that_leave_a_run():
    pipe = pipe_of()
    call = {**CALL, "prompt": ["a photo of the cat", "the red dog"]}
    seeds = [sf.Generator().manual_seed(i) for i in (1, 2)]
    del call["seed"]
    whole = pipe(image=PICTURE, generator=seeds, **call).images
    run = pipe.start(image=PICTURE, generator=[sf.Generator().manual_seed(i) for i in (1, 2)], **call)
    run.step()
    run.keep_samples([1])
    while not run.done:
        run.step()
    assert np.abs(run.finish().images[0] - whole[1]).max() < 1e-4


def test_networks_that_python_hooks_see():
    name = "control_several"
    pipe = pipe_of(name)
    want, seen = images_of(pipe, CASES[name]), []
    hooks = [
        network.register_forward_hook(lambda module, args, output: seen.append(type(module).__name__))
        for network in (pipe.unet, *pipe.controlnet.nets)
    ]
    try:
        assert np.abs(images_of(pipe, CASES[name]) - want).max() < 1e-5
    finally:
        for hook in hooks:
            hook.remove()
    # the second one is asked in the first half of four steps
    assert (seen.count("UNet2DConditionModel"), seen.count("ControlNetModel")) == (4, 4 + 2)


def test_the_memory_plan_counts_the_network():
    pipe = pipe_of("control_several")
    plan = pipe.memory_plan(profile="cpu_only", height=16, width=24)
    assert {"unet", "controlnet", "controlnet_1"} < set(plan.parts)
    size = pipe.controlnet.nets[0].get_memory_footprint()
    assert plan.parts["controlnet"]["bytes"] == size
    alone = plain(pipe).memory_plan(profile="cpu_only", height=16, width=24)
    assert plan.host_peak > alone.host_peak
    want = images_of(pipe, CASES["control_several"])
    # in this plan guidance takes two calls
    assert np.abs(images_of(pipe.apply_memory_plan(plan), CASES["control_several"]) - want).max() < 1e-4
    pipe.remove_all_hooks()


def test_seamless_tiling_is_theirs_too():
    pipe = pipe_of()
    pipe.enable_seamless_tiling()
    try:
        assert pipe.controlnet.conv_in.padding_mode == pipe.unet.conv_in.padding_mode == "circular"
    finally:
        pipe.disable_seamless_tiling()
    assert pipe.controlnet.conv_in.padding_mode == "zeros"


def test_graphs_say_why_not():
    pipe = pipe_of()
    assert "the denoiser is on cpu" in sf._core._pipelines.DenoiserGraphs.why_not(type(pipe).__name__, pipe._parts())


# ---- files


def test_several_networks_in_a_folder(tmp_path):
    name = "control_several"
    pipe = pipe_of(name)
    want = images_of(pipe, CASES[name])
    pipe.save_pretrained(tmp_path / "pipe")
    index = json.loads((tmp_path / "pipe" / "model_index.json").read_text())
    assert index["controlnet"] == ["diffusers", "MultiControlNetModel"] and "controlnet_1" not in index
    assert (tmp_path / "pipe" / "controlnet_1" / "config.json").is_file()
    again = DiffusionPipeline.from_pretrained(tmp_path / "pipe")
    assert isinstance(again.controlnet, MultiControlNetModel) and len(again.controlnet.nets) == 2
    np.testing.assert_array_equal(images_of(again, CASES[name]), want)
    nets = MultiControlNetModel.from_pretrained(tmp_path / "pipe" / "controlnet")
    assert len(nets.nets) == 2
    other = StableDiffusionControlNetPipeline.from_pretrained(tmp_path / "pipe", controlnet=nets)
    np.testing.assert_array_equal(images_of(other, CASES[name]), want)


@pytest.mark.parametrize("name", ["control_several", "control_xl"])
def test_in_one_file(name, tmp_path):
    pipe = pipe_of(name)
    want = images_of(pipe, CASES[name])
    pipe.save_single_file(tmp_path / "all.safetensors")
    for cls in (type(pipe), DiffusionPipeline):
        again = cls.from_single_file(tmp_path / "all.safetensors")
        assert type(again) is type(pipe)
        np.testing.assert_array_equal(images_of(again, CASES[name]), want)
    without = {"control_xl": diffusion.StableDiffusionXLPipeline}.get(name, StableDiffusionPipeline).from_pipe(pipe)
    without.save_single_file(tmp_path / "without.safetensors")
    again = type(pipe).from_single_file(tmp_path / "without.safetensors", controlnet=pipe.controlnet)
    np.testing.assert_array_equal(images_of(again, CASES[name]), want)


def test_beside_the_model_of_a_folder_without_one(tmp_path):
    pipe = pipe_of()
    want = images_of(pipe, CASES["control_t2i"])
    plain(pipe).save_pretrained(tmp_path / "sd")
    pipe.controlnet.save_pretrained(tmp_path / "canny")
    net = ControlNetModel.from_pretrained(tmp_path / "canny")
    for cls in (StableDiffusionControlNetPipeline, AutoPipelineForText2Image):
        made = cls.from_pretrained(tmp_path / "sd", controlnet=net)
        assert type(made) is StableDiffusionControlNetPipeline and made.controlnet is net
        np.testing.assert_array_equal(images_of(made, CASES["control_t2i"]), want)
    beside = AutoPipelineForImage2Image.from_pipe(plain(pipe), controlnet=net)
    assert type(beside) is StableDiffusionControlNetImg2ImgPipeline
    assert type(AutoPipelineForImage2Image.from_pipe(pipe)) is StableDiffusionControlNetImg2ImgPipeline


def original_names(state):
    """A ControlNet's tensors as the first ones' files name them, of one layer a level."""
    resnet = {"norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "norm2": "out_layers.0",
              "conv2": "out_layers.3", "conv_shortcut": "skip_connection"}  # fmt: skip
    starts = {"conv_in.": "input_blocks.0.0.", "time_embedding.linear_1.": "time_embed.0.",
              "time_embedding.linear_2.": "time_embed.2.", "down_blocks.0.resnets.0.": "input_blocks.1.0.",
              "down_blocks.0.downsamplers.0.conv.": "input_blocks.2.0.op.", "down_blocks.1.resnets.0.":
              "input_blocks.3.0.", "down_blocks.1.attentions.0.": "input_blocks.3.1.", "mid_block.resnets.0.":
              "middle_block.0.", "mid_block.attentions.0.": "middle_block.1.", "mid_block.resnets.1.":
              "middle_block.2.", "controlnet_mid_block.": "middle_block_out.0.", "controlnet_cond_embedding.conv_in.":
              "input_hint_block.0.", "controlnet_cond_embedding.blocks.0.": "input_hint_block.2.",
              "controlnet_cond_embedding.blocks.1.": "input_hint_block.4.", "controlnet_cond_embedding.conv_out.":
              "input_hint_block.6.", "add_embedding.linear_1.": "label_emb.0.0.", "add_embedding.linear_2.":
              "label_emb.0.2."}  # fmt: skip
    starts |= {f"controlnet_down_blocks.{i}.": f"zero_convs.{i}.0." for i in range(4)}
    out = {}
    for key, t in state.items():
        ours = next(s for s in starts if key.startswith(s))
        rest = key.removeprefix(ours)
        layer, _, end = rest.partition(".")
        out["control_model." + starts[ours] + (f"{resnet[layer]}.{end}" if ".resnets." in ours else rest)] = t
    return out


@pytest.mark.parametrize("net", ["see", "see_xl"])
@pytest.mark.parametrize("kind", ["original", "diffusers"])
def test_single_files(net, kind, tmp_path):
    model = part("controlnet", net)
    state = {k: t.contiguous() for k, t in model.state_dict().items()}
    named = original_names(state) if kind == "original" else state
    sf.safetensors.save_file(named, tmp_path / "net.safetensors")
    again = ControlNetModel.from_single_file(tmp_path / "net.safetensors", config=dict(model.config))
    assert all(sf.equal(t, state[k]) for k, t in again.state_dict().items())
    if kind == "original":
        sf.save({"state_dict": named}, tmp_path / "net.pth")
        again = ControlNetModel.from_single_file(tmp_path / "net.pth", config=dict(model.config))
        assert all(sf.equal(t, state[k]) for k, t in again.state_dict().items())
    # without a config the tensors tell it; how many heads there are is that of the published networks
    told = ControlNetModel.from_single_file(tmp_path / "net.safetensors").config
    differs = {k for k, v in model.config.items() if k in told and told[k] != v}
    assert differs <= {"attention_head_dim", "norm_num_groups", "addition_time_embed_dim"}, differs


@pytest.mark.parametrize("name", ["sd15_controlnet", "sd21_controlnet", "sdxl_controlnet"])
def test_configs_of_the_published_files(name, tmp_path):
    """The config that a file's shapes tell is the published one."""
    from model_cases import published

    _, config, _ = published(name)
    with sf.device("meta"):
        model = ControlNetModel(**config)
    shapes = {k: list(t.shape) for k, t in model.state_dict().items()}
    told = sf._core._models.config_of_shapes("ControlNetModel", shapes)
    assert {k: told[k] for k in config} == config
    assert told == {k: v for k, v in model.config.items() if k in told}


# ---- refused


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model.", "state_dict."])
@pytest.mark.parametrize("name", ["control_model.time_embed.0.weight", "input_hint_block.0.weight"])
def test_a_file_that_is_no_model(name, prefix, tmp_path):
    sf.safetensors.save_file({prefix + name: sf.zeros(4)}, tmp_path / "a.safetensors")
    with pytest.raises(NotImplementedError, match="is a ControlNet, which stands beside a model and is none"):
        DiffusionPipeline.from_single_file(tmp_path / "a.safetensors")


def test_networks_of_another_family():
    pipe, xl = pipe_of(), part("controlnet", "see_xl")
    wrong = StableDiffusionControlNetPipeline.from_pipe(pipe, controlnet=xl)
    with pytest.raises(ValueError, match="its controlnet is of another family than the unet: it reads text of 64"):
        wrong(image=PICTURE, **CALL)
    wide = net_of(pipe.controlnet.config, block_out_channels=[16, 48])
    wrong = StableDiffusionControlNetPipeline.from_pipe(pipe, controlnet=wide)
    with pytest.raises(ValueError, match="its levels have 16, 48 channels, the unet's 16, 32"):
        wrong(image=PICTURE, **CALL)
    half = net_of(pipe.controlnet.config).to(sf.float16)
    wrong = StableDiffusionControlNetPipeline.from_pipe(pipe, controlnet=half)
    with pytest.raises(ValueError, match="computes in float16, the unet in float32"):
        wrong(image=PICTURE, **CALL)
    with pytest.raises(TypeError, match="controlnet: must be a ControlNetModel, got UNet2DConditionModel"):
        StableDiffusionControlNetPipeline.from_pipe(pipe, controlnet=pipe.unet)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": None}, "needs an image"),
        ({"control_guidance_start": 0.5, "control_guidance_end": 0.5}, "must be below control_guidance_end"),
        ({"controlnet_conditioning_scale": [0.5, 0.5]}, "must be one number, or one for each of 1 ControlNets"),
        ({"controlnet_conditioning_scale": float("inf")}, "controlnet_conditioning_scale must be finite"),
        ({"image": [PICTURE[0]] * 3}, "needs one picture for the ControlNet, or one for each of 1 prompts, got 3"),
    ],
)
def test_calls_that_contradict_themselves(change, message):
    with pytest.raises(ValueError, match=message):
        pipe_of()(**{"image": PICTURE, **CALL, **change})


def test_pictures_for_several_networks():
    pipe = pipe_of("control_several")
    with pytest.raises(TypeError, match="of several ControlNets the pictures must be a list"):
        pipe(image=PICTURE, **CALL)
    with pytest.raises(ValueError, match="needs a picture for each of its 2 ControlNets, got 1"):
        pipe(image=[PICTURE], **CALL)
    with pytest.raises(ValueError, match="needs at least one ControlNetModel"):
        MultiControlNetModel([])


def test_configs_that_cannot_be():
    for field, value, error, message in (
        ("mid_block_type", None, ValueError, "mid_block_type must be"),
        ("encoder_hid_dim", 8, NotImplementedError, "encoder_hid_dim"),
        ("controlnet_conditioning_channel_order", "grb", ValueError, "must be 'rgb' or 'bgr', got 'grb'"),
        ("conditioning_embedding_out_channels", [], ValueError, "conditioning_embedding_out_channels must have"),
        ("class_embed_type", "simple_projection", NotImplementedError, "simple_projection"),
    ):
        with pytest.raises(error, match=f"ControlNetModel: .*{message}"):
            net_of(part("controlnet", "see").config, **{field: value})


def test_a_grey_picture_is_seen_in_all_channels():
    pipe = pipe_of()
    grey = np.random.default_rng(0).integers(0, 256, (16, 24), dtype=np.uint8)
    both = [pipe(image=i, **CALL).images for i in (grey, np.stack([grey] * 3, -1))]
    np.testing.assert_array_equal(*both)
    assert models.ControlNetModel is ControlNetModel and diffusion.StableDiffusionControlNetPipeline
