"""How much memory of the host a call takes: networks' pages of files, streamed models in a memory cgroup."""

import json
import os
import pathlib
import subprocess
import sys

import folders
import pytest
from memory_group import MemoryGroup

import scaffolding as sf
from scaffolding.diffusion import DiffusionPipeline
from scaffolding.safetensors import save_file

MB = 1 << 20


def resident(path):
    """Bytes of the file that are in this process's memory."""
    taken, here = 0, False
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            here = line.endswith(str(path))
        elif here and words[0] == "Rss:":
            taken += int(words[1]) << 10
    return taken


@pytest.mark.skipif(not os.access("/proc/self/smaps", os.R_OK), reason="unproven here: no /proc/self/smaps")
def test_networks_of_other_phases_have_no_pages_in_memory():
    folder = (folders.ROOT / "models" / "emoji-128").resolve()
    pipe = DiffusionPipeline.from_pretrained(folder, torch_dtype=sf.float16)
    pipe.set_progress_bar_config(disable=True)
    files = {name: next((folder / name).glob("*.safetensors")) for name in ("unet", "vae", "text_encoder")}
    seen = []

    def look(pipe, i, t, tensors):
        seen.append({name: resident(file) for name, file in files.items()})
        return {}

    call = dict(num_inference_steps=2, output_type="np", callback_on_step_end=look)
    first = pipe("a red fox", generator=sf.Generator().manual_seed(1), **call).images
    sizes = {name: file.stat().st_size for name, file in files.items()}
    for now in seen:
        assert now["unet"] > sizes["unet"] // 2 and now["text_encoder"] < sizes["text_encoder"] // 8 + MB, now
    assert resident(files["unet"]) < sizes["unet"] // 8
    assert (pipe("a red fox", generator=sf.Generator().manual_seed(1), **call).images == first).all()


STREAMED = """
import json, sys
import scaffolding as sf
from scaffolding.nn import streaming
from scaffolding.safetensors import load_file

def status(name):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name))

class Block(sf.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = sf.nn.Linear(1024, 4096, bias=False), sf.nn.Linear(4096, 1024, bias=False)

    def forward(self, x):
        return x + self.b(self.a(x).relu())

sf.set_num_threads(2)
with sf.device("meta"):
    net = sf.nn.Sequential(*[Block() for _ in range(20)]).half()
net.load_state_dict(load_file(sys.argv[1]), assign=True)
x = sf.ones(8, 1024).half()
before = status("VmRSS")
if sys.argv[2] == "streamed":
    streamer = streaming.attach(net, "test", device=sf.device("cpu"), resident_bytes=64 << 20)
with sf.no_grad():
    for _ in range(3):
        y = net(x)
print(json.dumps({"y": y.float().sum(1).tolist(), "peak": status("VmHWM") - before}))
"""


def test_a_model_larger_than_memory_is_streamed_in_a_cgroup(tmp_path):
    path = tmp_path / "net.safetensors"
    sf.manual_seed(0)
    one = {f"{i}.a.weight": sf.randn(4096, 1024).mul_(0.01).half() for i in range(20)}
    save_file(one | {f"{i}.b.weight": sf.randn(1024, 4096).mul_(0.01).half() for i in range(20)}, path)  # 336 MB

    def run(how, group=None):
        command = [sys.executable, "-c", STREAMED, str(path), how]
        enter = group.enter if group else None
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, preexec_fn=enter)
        assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    whole = run("whole")
    assert whole["peak"] > 320 * MB
    try:
        with MemoryGroup(200 * MB) as group:
            streamed = run("streamed", group)
    except NotImplementedError as error:
        pytest.skip(f"unproven here: {error}")
    assert streamed["y"] == whole["y"]
    # What stays, three slots of 16 MiB, and what kernels take.
    assert streamed["peak"] < (64 + 3 * 16 + 40) * MB, streamed["peak"] / MB
