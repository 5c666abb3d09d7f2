"""What is measured: rows in order of importance, with sizes, small sizes to try them with, and goals on an H200.

Goals are of three tracks that no table mixes: lossless (bfloat16), quantised (float8, NF4), cached (steps left out:
no row yet).
"""

import dataclasses
from typing import Any

import networks
import operators


@dataclasses.dataclass
class Row:
    function: Any
    sizes: tuple
    tiny: tuple
    goal: tuple = ()  # (value, unit): a time in us, ms or s, or a rate in TFLOP/s, TB/s or img/s
    goal_gb: float = 0  # peak memory
    unit: str = "ms"  # of the time, where there is no goal
    rate: str = ""  # TFLOP/s, TB/s, img/s
    track: str = "lossless"
    ours: tuple = ("graph",)
    peer: tuple = ("eager", "graph")  # "compile" where torch.compile takes seconds, not minutes
    clock: str = ""  # host or wall instead of the way that it runs
    options: dict = dataclasses.field(default_factory=dict)
    peer_of: str = ""  # the row whose figures of PyTorch count here too
    network: bool = False  # whether the maker takes tiny=

    def make(self, lib, tiny, how):
        options = dict(self.options)
        if self.network:
            options["tiny"] = tiny
        if self.function is networks.picture:
            options["capture"] = how == "graph"
        return self.function(lib, *(self.tiny if tiny else self.sizes), **options)


FUSED = ("eager", "graph", "compile")
BOTH = ("graph", "eager")
own = {"cudnn": False}
COPY, GEMM = "copy, 2 GiB", "matmul 8192"

ROWS = {
    COPY: Row(operators.copy, (1 << 30,), (1000,), rate="TB/s"),
    GEMM: Row(operators.matmul, (8192,), (16,), rate="TFLOP/s"),
    "UNet SD2.1 b2 64x64": Row(networks.unet, ("sd21", 2, 64), ("sd21", 1, 4), (4.5, "ms"), ours=BOTH, network=True),
    "UNet SDXL b2 128x128": Row(networks.unet, ("sdxl", 2, 128), ("sdxl", 1, 4), (26, "ms"), ours=BOTH, network=True),
    "group_norm + SiLU [2,320,128,128] NHWC": Row(
        operators.group_norm_silu, (2, 320, 128), (1, 8, 4), (3, "TB/s"), unit="us", peer=FUSED
    ),
    "attention d64 n4096, cuDNN": Row(
        operators.attention, (2, 10, 4096, 64), (1, 2, 16, 16), (450, "TFLOP/s"), unit="us"
    ),
    "attention d128 n4096, cuDNN": Row(
        operators.attention, (1, 24, 4096, 128), (1, 2, 16, 16), (690, "TFLOP/s"), unit="us"
    ),
    "VAE decode 512x512": Row(networks.vae_decode, (64,), (4,), (5, "ms"), ours=BOTH, network=True),
    "VAE decode 1024x1024": Row(networks.vae_decode, (128,), (4,), (20, "ms"), ours=BOTH, network=True),
    "training SD2.1 b16 64x64": Row(
        networks.training, ("sd21", 16, 64), ("sd21", 1, 4), (180, "img/s"), goal_gb=20, ours=BOTH, network=True
    ),
    "CogVideoX-2B b2, 49x480x720": Row(
        networks.video, ("2b", 2, 13, 60, 90), ("2b", 1, 2, 4, 4), (500, "ms"), ours=BOTH, peer=("eager",), network=True
    ),
    "CogVideoX-5B b2, 49x480x720": Row(
        networks.video,
        ("5b", 2, 13, 60, 90),
        ("5b", 1, 2, 4, 4),
        (1.3, "s"),
        ours=("eager",),
        peer=("eager",),
        network=True,
    ),
    "CogVideoX decode, 49x480x720": Row(
        networks.video_decode, (13, 60, 90), (2, 4, 4), (2.5, "s"), ours=("eager",), peer=("eager",), network=True
    ),
    "SDXL 1024x1024, 30 steps": Row(
        networks.picture,
        (1024, 30),
        (16, 2),
        (0.82, "s"),
        unit="ms",
        clock="wall",
        ours=BOTH,
        peer=("eager", "graph"),
        network=True,
    ),
    "layer_norm [8192,640]": Row(operators.layer_norm, (8192, 640), (4, 8), (3, "TB/s"), unit="us", peer=FUSED),
    "softmax [20,1024,1024]": Row(
        operators.unary, ("softmax", 20, 1024, 1024), ("softmax", 2, 3, 8), (3, "TB/s"), unit="us", peer=FUSED
    ),
    "gelu [8192,2560]": Row(operators.unary, ("gelu", 8192, 2560), ("gelu", 4, 8), (3, "TB/s"), unit="us", peer=FUSED),
    "AdamW, 839 million in float32": Row(operators.adamw, (839_000_000, 686), (100, 3), (4, "TB/s")),
    "one small eager op, from Python": Row(
        operators.small_add, (1000,), (3,), (3, "us"), clock="host", ours=("eager",), peer=("eager",)
    ),
    "a graph node": Row(operators.chain, (1000,), (3,), (1.3, "us"), peer=("graph",)),
    "train step 256-512-10 batch 32": Row(operators.mlp_step, (), (), (25, "us"), ours=BOTH),
    "training SDXL b4 128x128": Row(
        networks.training, ("sdxl", 4, 128), ("sdxl", 1, 4), (22, "img/s"), goal_gb=50, ours=BOTH, network=True
    ),
    "attention d64 n4096, own": Row(
        operators.attention,
        (2, 10, 4096, 64),
        (1, 2, 16, 16),
        (450, "TFLOP/s"),
        unit="us",
        options=own,
        peer_of="attention d64 n4096, cuDNN",
    ),
    "attention d128 n4096, own": Row(
        operators.attention,
        (1, 24, 4096, 128),
        (1, 2, 16, 16),
        (690, "TFLOP/s"),
        unit="us",
        options=own,
        peer_of="attention d128 n4096, cuDNN",
    ),
}
for name, sizes in (("320@128 b2", (2, 320, 128, 320)), ("320@64 b2", (2, 320, 64, 320)),
                    ("640@32 b2", (2, 640, 32, 640)), ("1280@16 b2", (2, 1280, 16, 1280)),
                    ("512@128 b1", (1, 512, 128, 512)), ("128@1024 b1", (1, 128, 1024, 128)),
                    ("4 to 320@64 b2", (2, 4, 64, 320))):  # fmt: skip
    ROWS[f"conv 3x3 NHWC {name}"] = Row(operators.conv, sizes, (1, 8, 6, 8), rate="TFLOP/s", unit="us")
for width, sizes in ((64, (2, 10, 4096, 64)), (128, (1, 24, 4096, 128))):
    whole = f"attention backward d{width} n4096, cuDNN"
    ROWS[whole] = Row(operators.attention, (*sizes, True), (1, 2, 16, 16, True), rate="TFLOP/s", unit="us")
    ROWS[whole.replace("cuDNN", "own")] = Row(
        operators.attention, (*sizes, True), (1, 2, 16, 16, True), rate="TFLOP/s", unit="us", options=own, peer_of=whole
    )
for name, sizes in (("d40 n4096 h8 b2", (2, 8, 4096, 40)), ("d512 n4096 h1", (1, 1, 4096, 512))):
    ROWS[f"attention {name}"] = Row(operators.attention, sizes, (1, 2, 16, 16), rate="TFLOP/s", unit="us")

fp8, quantised = {"fp8": True}, {"track": "quantised", "peer": ()}
ROWS |= {
    "UNet SD2.1 b2 64x64, float8": Row(
        networks.unet, ("sd21", 2, 64), ("sd21", 1, 4), (3.6, "ms"), options=fp8, network=True, **quantised
    ),
    "UNet SDXL b2 128x128, float8": Row(
        networks.unet, ("sdxl", 2, 128), ("sdxl", 1, 4), (16, "ms"), options=fp8, network=True, **quantised
    ),
    "scaled_mm 8192, float8": Row(operators.scaled_mm, (8192,), (16,), rate="TFLOP/s", track="quantised"),
    "quantize_fp8 [8192,8192] by rows": Row(
        operators.quantize_fp8, (8192, 8192), (16, 16), rate="TB/s", unit="us", **quantised
    ),
    "dequantize_fp8 [8192,8192] by rows": Row(
        operators.dequantize_fp8, (8192, 8192), (16, 16), rate="TB/s", unit="us", **quantised
    ),
    "dequantize_nf4 [8192,8192]": Row(
        operators.dequantize_nf4, (8192, 8192), (32, 32), rate="TB/s", unit="us", **quantised
    ),
    "dequantize_gguf Q4_K [8192,8192]": Row(
        operators.dequantize_gguf, (8192, 8192), (32, 256), rate="TB/s", unit="us", **quantised
    ),
    "linear_int8 4096, int8 activations": Row(
        operators.linear_int8, (4096, 4096), (20, 32), rate="TFLOP/s", **quantised
    ),
}
ROWS |= {
    f"linear_gguf Q4_K {rows} x 8192": Row(
        operators.linear_gguf, (rows, 8192), (min(rows, 20), 256), rate=rate, unit="us", **quantised
    )
    for rows, rate in ((1, "TB/s"), (8, "TB/s"), (16, "TB/s"), (128, "TFLOP/s"), (2048, "TFLOP/s"))
}
