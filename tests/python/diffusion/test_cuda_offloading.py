"""diffusers' offloading calls on a GPU or its emulator (SF_CUDA_LIBRARY): the pictures of resident networks, and what
leaves the device."""

import gc
import resource
import signal

import golden_pipelines
import pytest
from golden_pipelines import output_of
from test_cuda_pipelines import counts, emulated, numbers, on_cuda
from test_memory_plans import half
from test_pipelines import make, one_thread  # noqa: F401

import scaffolding as sf
from scaffolding import cuda, nn
from scaffolding.nn import streaming

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
NAMES = ["StableDiffusionPipeline", "StableDiffusionXLPipeline"]
GROUPS = {
    "blocks": {"offload_type": "block_level", "num_blocks_per_group": 1, "use_stream": True},
    "pairs": {"offload_type": "block_level", "num_blocks_per_group": 2, "use_stream": True, "record_stream": True},
    "leaves": {"offload_type": "leaf_level", "use_stream": True},
    "no_stream": {"offload_type": "leaf_level"},
    "little_host_memory": {"offload_type": "leaf_level", "use_stream": True, "low_cpu_mem_usage": True},
}


@pytest.fixture(autouse=True)
def own_networks(monkeypatch):
    """Networks that move are not those of other tests."""
    monkeypatch.setattr(golden_pipelines, "made_networks", {})


def statistics(module):
    return streaming.streamer_of(module).statistics()


@pytest.mark.parametrize("name", NAMES)
def test_sequential_and_model_offload_give_the_bits_of_resident_networks(name):
    pipe = on_cuda(name)
    want = numbers(pipe)
    pipe.enable_sequential_cpu_offload()
    assert pipe._execution_device.type == "cuda"
    assert numbers(pipe) == want and numbers(pipe) == want
    assert statistics(pipe.unet)["copied_bytes"] > 0
    graphs = pipe.cuda_graphs
    assert graphs["why_not"] == "" and graphs["captures"] == 2  # of the resident denoiser, and of the streamed one
    assert graphs["replays"] == 1 + 1 + 2
    pipe.enable_model_cpu_offload()  # takes the other's place, as in diffusers
    assert numbers(pipe) == want and numbers(pipe) == want
    assert statistics(pipe.unet)["copied_bytes"] == 0
    assert not any(streaming.streamer_of(m).is_loaded for m in pipe._modules())
    pipe.remove_all_hooks()
    assert all(p.device.type == "cpu" for m in pipe._modules() for p in m.parameters())
    assert numbers(pipe.to("cuda")) == want


def test_an_autoencoder_that_overflows_decodes_wide_while_it_comes_and_goes(tmp_path):
    pipe, case = half(tmp_path)

    def picture():
        return output_of(pipe, case)[0].tolist()

    want = (pipe.to("cuda"), picture())[1]
    pipe.enable_model_cpu_offload()
    assert picture() == want
    pipe.enable_sequential_cpu_offload()
    assert picture() == want and statistics(pipe.vae)["copied_bytes"] > 0
    pipe.remove_all_hooks()
    pipe.vae.enable_group_offload("cuda", "cpu", **GROUPS["blocks"])
    pipe.unet.to("cuda"), pipe.text_encoder.to("cuda"), pipe.text_encoder_2.to("cuda")
    assert picture() == want
    pipe.remove_all_hooks()
    assert pipe.vae.dtype == sf.float16 and (pipe.to("cuda"), picture())[1] == want


def test_model_offload_keeps_one_network_on_the_device():
    pipe = make("StableDiffusionXLPipeline")
    pipe.enable_model_cpu_offload(gpu_id=0)
    seen = []

    def look(module, args):
        seen.append(
            [n for n, m in pipe.components.items() if isinstance(m, nn.Module) and streaming.streamer_of(m).is_loaded]
        )

    handles = [pipe.unet.conv_in.register_forward_pre_hook(look)]
    handles.append(pipe.text_encoder.text_model.encoder.layers[0].register_forward_pre_hook(look))
    numbers(pipe)
    assert ["unet"] in seen and ["text_encoder"] in seen and all(len(names) == 1 for names in seen)
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("how", GROUPS)
def test_group_offload_gives_the_bits_of_resident_networks(how):
    pipe = on_cuda("StableDiffusionPipeline")
    want = numbers(pipe)
    pipe.to("cpu").enable_group_offload("cuda", **GROUPS[how])
    assert numbers(pipe) == want and numbers(pipe) == want
    now = statistics(pipe.unet)
    assert now["copied_bytes"] > 0 and now["written_back"] == 0
    assert (now["pinned_bytes"] > 0) == (how != "no_stream")
    if how == "little_host_memory":
        assert now["pinned_bytes"] <= now["slot_bytes"]
    pipe.remove_all_hooks()


def test_a_run_copies_what_is_away_once_a_step_and_waits_no_more_than_a_resident_one():
    library = emulated()
    pipe = on_cuda("StableDiffusionPipeline")
    resident = {}
    for steps in (3, 6):
        numbers(pipe, num_inference_steps=steps, capture=False)
        before = counts(library)
        numbers(pipe, num_inference_steps=steps, capture=False)
        resident[steps] = counts(library)["waits"] - before["waits"]
    pipe.unet.to("cpu").enable_group_offload("cuda", num_blocks_per_group=1, use_stream=True)
    numbers(pipe, num_inference_steps=3)
    missed = statistics(pipe.unet)["misses"]  # until the order of calls was learned
    copied = {}
    for steps in (3, 6):
        before, bytes_before = counts(library), statistics(pipe.unet)["copied_bytes"]
        numbers(pipe, num_inference_steps=steps)
        assert counts(library)["waits"] - before["waits"] <= resident[steps]
        copied[steps] = statistics(pipe.unet)["copied_bytes"] - bytes_before
    now = statistics(pipe.unet)
    assert copied[6] - copied[3] == 3 * (now["weight_bytes"] - now["resident_bytes"])
    assert now["misses"] == missed


def test_on_disk(tmp_path):
    pipe = on_cuda("StableDiffusionPipeline")
    want = numbers(pipe)
    pipe.unet.to("cpu").enable_group_offload(
        "cuda", num_blocks_per_group=1, use_stream=True, low_cpu_mem_usage=True, offload_to_disk_path=tmp_path / "away"
    )
    assert numbers(pipe) == want
    assert [f.suffix for f in (tmp_path / "away").iterdir()] == [".safetensors"]


def test_hooks_and_saving_while_weights_are_away(tmp_path):
    pipe = on_cuda("StableDiffusionPipeline")
    want = {k: v.cpu().tolist() for k, v in pipe.unet.state_dict().items()}
    plain = numbers(pipe, capture=False)
    pipe.enable_sequential_cpu_offload()
    calls = []
    part = next(m for name, m in pipe.unet.named_modules() if name.endswith("attn1"))
    handle = part.register_forward_hook(lambda m, args, y: calls.append(m.to_q.weight.device.type))
    numbers(pipe)
    handle.remove()
    assert calls and numbers(pipe) == plain
    assert {k: v.cpu().tolist() for k, v in pipe.unet.state_dict().items()} == want
    pipe.unet.save_pretrained(tmp_path)
    again = sf.models.UNet2DConditionModel.from_pretrained(tmp_path)
    assert {k: v.tolist() for k, v in again.state_dict().items()} == want


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, scale=1.0):
        assert self.a.weight.device.type == x.device.type
        return x + self.b(self.a(x).tanh()) * scale


class Stack(nn.Module):
    def __init__(self, width=16, depth=6):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.blocks = nn.ModuleList([Residual(width) for _ in range(depth)])

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x, scale=0.5)
        return x


def test_modules_written_in_python_stream_too():
    model = Stack()
    x = sf.randn(3, 16)
    with sf.no_grad():
        want = model.to("cuda")(x.cuda()).tolist()
        model.to("cpu")
        streamer = streaming.attach(model, "test", device="cuda")
        for _ in range(3):
            assert model(x.cuda()).tolist() == want
        before = streamer.statistics()
        model(x.cuda())
        now = streamer.statistics()
        assert now["copied_bytes"] - before["copied_bytes"] == now["weight_bytes"] - now["resident_bytes"]
        assert now["misses"] == 0
        assert model.blocks[0].a.weight.device.type == "cpu"
        streaming.detach(model)
        assert model.blocks[0]._hooks is None


def test_a_model_that_goes_takes_its_streamer_along():
    gc.collect()
    before = cuda.memory_allocated()
    model = Stack().to("cpu")
    streaming.attach(model, "test", device="cuda")
    assert cuda.memory_allocated() > before
    del model
    gc.collect()
    assert cuda.memory_allocated() == before and not streaming._attached


def test_layerwise_casting_alone_and_with_offloading_loras_hooks_and_guidance():
    pipe = on_cuda("StableDiffusionPipeline")
    plain = numbers(pipe)
    with pytest.raises(ValueError, match="'\\(' is no regular expression"):
        pipe.unet.enable_layerwise_casting(sf.float16, skip_modules_pattern=("norm", "("))
    assert numbers(pipe) == plain
    skipped = pipe.unet.down_blocks[0].resnets[0].conv2
    pipe.unet.enable_layerwise_casting(
        sf.float16, sf.float32, skip_modules_pattern="^down_blocks.0.resnets.0$", skip_modules_classes=(nn.Embedding,)
    )
    got = numbers(pipe)
    assert got != plain and sf.tensor(got).allclose(sf.tensor(plain), atol=0.1)
    unet = pipe.unet
    assert unet.conv_in.weight.dtype == unet.mid_block.resnets[0].conv1.weight.dtype == sf.float16
    assert skipped.weight.dtype == unet.conv_norm_out.weight.dtype == sf.float32
    with pytest.raises(ValueError, match="are cast already"):
        unet.enable_layerwise_casting(storage_dtype=sf.float16)
    with pytest.raises(RuntimeError, match="cannot be moved or converted"):
        unet.to(sf.bfloat16)

    q = next(name for name, m in unet.named_modules() if name.endswith("attn1.to_q"))
    width = unet.get_submodule(q).weight.shape
    sf.manual_seed(3)
    lora = {f"unet.{q}.lora_A.weight": sf.randn(2, width[1]), f"unet.{q}.lora_B.weight": sf.randn(width[0], 2)}
    seen = []

    def everything():
        out = {mode: numbers(pipe, guidance_mode=mode) for mode in ("batched", "sequential")}
        handle = unet.mid_block.register_forward_hook(lambda m, args, y: seen.append(1))
        out["hook"] = numbers(pipe)
        handle.remove()
        pipe.load_lora_weights(lora, adapter_name="one")
        out["lora"] = numbers(pipe)
        pipe.unload_lora_weights()
        return out

    want = everything()
    assert want["batched"] == got and want["lora"] != got
    for offload in (
        pipe.enable_sequential_cpu_offload,
        pipe.enable_model_cpu_offload,
        lambda: pipe.enable_group_offload("cuda", **GROUPS["blocks"]),
    ):
        pipe.remove_all_hooks()
        offload()
        assert everything() == want
    assert len(seen) == 4 * 2
    bytes_of = statistics(unet)
    assert bytes_of["copied_bytes"] > 0 and bytes_of["weight_bytes"] < 0.6 * sum(
        p.numel() * 4 for p in unet.parameters()
    )


def test_modules_written_in_python_are_cast_too():
    model = Stack().to("cuda")
    x = sf.randn(3, 16).cuda()
    with sf.no_grad():
        for p in model.parameters():
            p.copy_(p.to(sf.float16).to(sf.float32))
        want = model(x).tolist()
        streaming.cast(model, sf.float16, sf.float32, [])
        assert model.blocks[0].a.weight.dtype == sf.float16
        assert model(x).tolist() == want
        with pytest.raises(ValueError, match="must be on one device"):
            model(x.cpu())
        assert model.blocks[0].a.weight.dtype == sf.float16
        model.to("cpu")
        streaming.attach(model, "test", device="cuda")
        assert model(x).tolist() == want and model(x).tolist() == want


def test_only_blocks_of_these_modules_come_and_go():
    pipe = on_cuda("StableDiffusionPipeline")
    want = numbers(pipe)
    unet = pipe.unet.to("cpu")
    unet.enable_group_offload(
        "cuda", num_blocks_per_group=1, use_stream=True, block_modules=["up_blocks", "conv_in"], exclude_kwargs=["x"]
    )
    assert numbers(pipe) == want
    names = streaming.streamer_of(unet).streamed_names()
    assert "conv_in" in names and all(n == "conv_in" or n.startswith("up_blocks") for n in names)
    unet.remove_all_hooks()
    for wrong, text in [(["nobody"], "has no module 'nobody'"), ([3], "block_modules must be names of modules")]:
        with pytest.raises(ValueError, match=text):
            unet.enable_group_offload("cuda", num_blocks_per_group=1, block_modules=wrong)


def test_contradictory_calls_are_refused_by_name():
    pipe = on_cuda("StableDiffusionPipeline")
    unet = pipe.unet
    for options, text in [
        ({}, "offload_type 'block_level' needs num_blocks_per_group"),
        ({"offload_type": "layers"}, "must be 'block_level' or 'leaf_level', got 'layers'"),
        ({"offload_type": "leaf_level", "record_stream": True}, "record_stream needs use_stream=True"),
        ({"offload_type": "leaf_level", "low_cpu_mem_usage": True}, "low_cpu_mem_usage is about pinned memory"),
        ({"offload_type": "leaf_level", "offload_device": "cuda"}, "offload_device must be the CPU, got cuda"),
        ({"num_blocks_per_group": 0}, "num_blocks_per_group must be at least 1, got 0"),
    ]:
        with pytest.raises(ValueError, match=text):
            unet.enable_group_offload("cuda", **options)
    with pytest.raises(ValueError, match="use_stream needs a GPU as onload_device, got cpu"):
        unet.enable_group_offload("cpu", offload_type="leaf_level", use_stream=True)
    with pytest.raises(ValueError, match="there are vae, text_encoder"):
        pipe.enable_group_offload("cuda", offload_type="leaf_level", exclude_modules="net")
    pipe.enable_group_offload("cuda", offload_type="leaf_level", use_stream=True)
    for call in (pipe.enable_model_cpu_offload, pipe.enable_sequential_cpu_offload):
        with pytest.raises(ValueError, match="enable_group_offload is on; call remove_all_hooks"):
            call()
    with pytest.raises(ValueError, match="come and go already, by enable_group_offload"):
        unet.enable_group_offload("cuda", offload_type="leaf_level")
    with pytest.raises(RuntimeError, match="come and go with its calls, and cannot be moved"):
        pipe.to("cuda")
    with pytest.raises(ValueError, match="cast first, then offload"):
        unet.enable_layerwise_casting()
    pipe.remove_all_hooks()
    with pytest.raises(ValueError, match="name the GPU twice"):
        pipe.enable_model_cpu_offload(gpu_id=0, device="cuda:1")
    with pytest.raises(ValueError, match="needs a GPU to compute on, got device=cpu"):
        pipe.enable_sequential_cpu_offload(device="cpu")


def test_a_full_disk_changes_nothing(tmp_path):
    unet = make("StableDiffusionPipeline").unet
    want = {k: v.tolist() for k, v in unet.state_dict().items()}
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(RuntimeError, match="away"):
            unet.enable_group_offload("cuda", offload_type="leaf_level", offload_to_disk_path=tmp_path / "away")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert list((tmp_path / "away").iterdir()) == []
    assert streaming.streamer_of(unet) is None
    assert {k: v.tolist() for k, v in unet.state_dict().items()} == want


def test_loras_go_on_while_weights_are_away():
    pipe = make("StableDiffusionPipeline")
    q = next(name for name, m in pipe.unet.named_modules() if name.endswith("attn1.to_q"))
    width = pipe.unet.get_submodule(q).weight.shape
    sf.manual_seed(3)
    lora = {f"unet.{q}.lora_A.weight": sf.randn(2, width[1]), f"unet.{q}.lora_B.weight": sf.randn(width[0], 2)}
    pipe.to("cuda")
    plain = numbers(pipe)
    pipe.load_lora_weights(lora, adapter_name="one")
    want = numbers(pipe)
    assert want != plain
    pipe.unload_lora_weights()
    for offload in (pipe.enable_sequential_cpu_offload, pipe.enable_model_cpu_offload):
        offload()
        pipe.load_lora_weights(lora, adapter_name="one")  # while weights are away
        assert numbers(pipe) == want
        pipe.set_adapters("one", 0.0)
        assert numbers(pipe) == plain
        pipe.unload_lora_weights()
        assert numbers(pipe) == plain
