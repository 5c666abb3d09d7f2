"""Every registered model with its weights streamed, on a GPU or its emulator: what it computes where all of it is on
the device, bit for bit, by blocks, by leaves, and as a whole that comes and goes."""

import pytest
from test_every_model import CASES, FIRST, call, filled

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
