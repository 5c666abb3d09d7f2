"""A checkpoint of Stable Diffusion's sizes with random weights: what benchmarks beside other programs read, which
know no other sizes than published ones."""

import json
import lzma
import math
import pathlib

import numpy as np

NAMES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "single_file.json.xz"


def write_model(path, kind="v1"):
    """The tensors of a kind (1.5 is "v1", XL "xl_base") by their published names in bfloat16: the same few random
    numbers over and over, scaled by the fan-in so that they neither vanish nor grow on their way."""
    shapes = json.loads(lzma.decompress(NAMES.read_bytes()))["full"][kind]["checkpoint"]
    shapes = {n: s for n, s in shapes.items() if "." in n and "ema" not in n and not n.endswith("position_ids")}
    entries, at = {}, 0
    for name, shape in shapes.items():
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at := at + 2 * math.prod(shape)]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    noise = np.random.default_rng(0).standard_normal(1 << 22, dtype=np.float32)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            number = math.prod(shape)
            values = noise[:number] * np.float32((number / shape[0]) ** -0.5 if len(shape) > 1 else 0.1)
            if len(shape) == 1 and name.endswith("weight"):
                values += 1
            upper = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
            for begin in range(0, 2 * number, len(upper)):
                file.write(upper[: 2 * number - begin])
