"""`scaffolding train --device cuda`: all stages of a tiny model, with steps launched op by op and captured.
Needs a GPU or the emulator.
"""

import json

import pytest
from drawn_icons import refused

from scaffolding import cuda
from scaffolding.safetensors.torch import load_file

WEIGHTS = "pipeline/unet/diffusion_pytorch_model.safetensors"


def test_captured_steps_need_a_gpu(program, recipe, tmp_path):
    refused(
        program("train", "--config", recipe, "--output", tmp_path / "run", "--cuda-graph"),
        "--cuda-graph needs --device cuda, got cpu",
    )


@pytest.mark.skipif(not cuda.is_available(), reason=f"unproven here: {cuda.why_not()}")
def test_a_run_on_the_gpu_has_the_same_weights_with_captured_steps(program, recipe, tmp_path):
    weights = {}
    for flags in ([], ["--cuda-graph"]):
        folder = tmp_path / f"run{len(flags)}"
        done = program("train", "--config", recipe, "--output", folder, "--quiet", "--device", "cuda", *flags)
        assert done.returncode == 0, done.stderr
        weights[len(flags)] = load_file(str(folder / WEIGHTS))
        losses = [json.loads(line)["loss"] for line in (folder / "denoiser/metrics.jsonl").read_text().splitlines()]
        assert len(losses) == 6 and all(loss > 0 for loss in losses)
        assert (folder / "denoiser/samples/step-000003.png").stat().st_size > 0
    assert weights[0].keys() == weights[1].keys()
    different = [name for name in weights[0] if not weights[0][name].equal(weights[1][name])]
    assert not different
    # What the program wrote is a pipeline for any device.
    made = program(
        "txt2img", "square", "--model", tmp_path / "run1/pipeline", "--steps", "1", "--output", tmp_path / "a.png"
    )
    assert made.returncode == 0, made.stderr
