"""Every registered model with its weights streamed, on a GPU or its emulator: what it computes where all of it is on
the device, bit for bit, by blocks, by leaves, and as a whole that comes and goes."""

import ctypes
import os
import subprocess
import sys

import pytest
from test_every_model import CASES, FIRST, call, filled, published

import scaffolding as sf
from scaffolding import cuda
from scaffolding.nn import streaming

pytestmark = pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
WAYS = {"blocks": {}, "leaves": {"leaves": True}, "whole": {"resident_bytes": 2**62, "load_now": False}}


def on_cuda(tensor, by_rule):
    return tensor.to("cuda")


def values(model, case):
    outputs, _ = call(model, case, on_cuda)
    return {name: y.cpu().tolist() for name, y in outputs.items()}


@pytest.mark.parametrize("name", FIRST.values())
def test_it_computes_the_same(name):
    case = CASES[name]
    model = filled(case)
    with sf.no_grad():
        want = values(model.to("cuda"), case)
        model.to("cpu")
        for way, options in WAYS.items():
            streamer = streaming.attach(model, way, device="cuda", **options)
            if way == "whole":
                assert not streamer.is_loaded
            for _ in range(2):
                assert values(model, case) == want, way
            streamer.offload()
            assert values(model, case) == want, way
            streaming.detach(model)


@pytest.mark.parametrize("how", ["nf4", "fp4", "int8", "q8_0", "q4_K", "q6_K"])
def test_quantised_weights_come_and_go(how):
    sf.manual_seed(0)
    model = sf.nn.Sequential(*[sf.nn.Linear(256, 256) for _ in range(3)])
    sf.nn.quantize_(model, how, lambda module, name: True)
    assert type(model[0]) is not sf.nn.Linear
    x = sf.randn(5, 256, device="cuda")
    with sf.no_grad():
        want = model.to("cuda")(x).cpu()
        model.to("cpu")
        for way in ("leaves", "whole"):
            streaming.attach(model, way, device="cuda", **WAYS[way])
            for _ in range(2):
                assert sf.equal(model(x).cpu(), want), way
            streaming.detach(model)


def full_size_sdxl():
    """In a process of its own, whose emulator runs nothing: SDXL's denoiser on GPUs of 2 to 24 GB, what calls copy."""
    library = ctypes.CDLL(os.environ["SF_CUDA_LIBRARY"])
    library.sf_cuda_emulator_set_memory.argtypes = [ctypes.c_size_t]
    library.sf_cuda_emulator_count.restype = ctypes.c_int64
    class_name, config, _ = published("sdxl_unet")
    with sf.device("meta"):
        unet = getattr(sf.models, class_name)(**config)
    unet = unet.to(sf.float16).to_empty(device="cpu").eval()
    half = {"dtype": sf.float16, "device": "cuda"}
    conditions = {"text_embeds": sf.empty(2, 1280, **half), "time_ids": sf.empty(2, 6, **half)}
    arguments = (sf.empty(2, 4, 128, 128, **half), sf.tensor(5, device="cuda"), sf.empty(2, 77, 2048, **half))

    def step():
        with sf.no_grad():
            unet(*arguments, added_cond_kwargs=conditions, return_dict=False)

    for gigabytes in (2, 4, 24):
        library.sf_cuda_emulator_set_memory(gigabytes << 30)
        streamer = streaming.attach(
            unet, "test", device="cuda", resident_bytes=(gigabytes << 30) - (3 << 29), pin_weights=False
        )
        for _ in range(2):
            step()
        before = streamer.statistics()
        step()
        now = streamer.statistics()
        away = now["weight_bytes"] - now["resident_bytes"]
        assert now["copied_bytes"] - before["copied_bytes"] == away, (gigabytes, away)
        assert now["misses"] == before["misses"] and now["waits"] == before["waits"]
        assert now["slot_bytes"] < 300 << 20 and now["pinned_bytes"] < 200 << 20
        assert (away == 0) == (gigabytes == 24)
        graph = streaming._streaming.StreamedGraph(streamer, step)
        graph.replay()
        launched = [library.sf_cuda_emulator_count(i) for i in (0, 3, 4)]
        before = streamer.statistics()
        graph.replay()
        # No wait of the host, no kernel and no library's call.
        assert [library.sf_cuda_emulator_count(i) for i in (0, 3, 4)] == launched
        assert streamer.statistics()["copied_bytes"] - before["copied_bytes"] == away
        groups = streamer.statistics()["groups"] - streamer.statistics()["resident_groups"]
        assert groups < graph.graphs <= 2 * groups + 1 or graph.graphs == 1
        print(f"{gigabytes} GB: {graph.graphs} graphs of {graph.nodes} nodes, {groups} groups come and go")
        del graph
        streaming.detach(unet)
        cuda.empty_cache()


def test_sdxl_on_small_gpus_without_running_it():
    if not hasattr(ctypes.CDLL(os.environ.get("SF_CUDA_LIBRARY") or None), "sf_cuda_emulator_set_memory"):
        pytest.skip("only the emulator counts without running")
    command = [sys.executable, "-c", "import test_cuda_streaming; test_cuda_streaming.full_size_sdxl()"]
    paths = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    done = subprocess.run(
        command, env={**os.environ, "SF_CUDA_EMULATOR_DRY": "1", "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
