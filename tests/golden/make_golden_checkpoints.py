#!/usr/bin/env python3
"""Writes checkpoints/: small files by PyTorch, NumPy and gguf-py, and what each holds as <file>.expected.safetensors.

Needs torch, numpy, safetensors and gguf (python -m pip install gguf); tests read the files only. torch 2.15,
numpy 2.4, gguf 0.19.
The expected tensors have the names that named_tensors gives them: keys joined with dots.
"""

import argparse
import pathlib
import pickle
from collections import Counter, OrderedDict

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

FOLDER = pathlib.Path(__file__).resolve().parent / "checkpoints"
DTYPES = (
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bool",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
)


def named(tree, prefix=""):
    if isinstance(tree, np.ndarray):
        tree = torch.from_numpy(np.array(tree, order="C"))
    if isinstance(tree, torch.Tensor):
        return {prefix: tree.detach().clone(memory_format=torch.contiguous_format)}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else ()
    out = {}
    for key, value in items:
        out |= named(value, f"{prefix}.{key}" if prefix else str(key))
    return out


def expect(file, tree):
    save_file(named(tree), FOLDER / f"{file}.expected.safetensors", {"torch": torch.__version__})


def torch_tree():
    torch.manual_seed(0)
    base = torch.randn(12)
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    module(torch.randn(2, 2, 4, 4)).sum().backward()
    optimizer.step()
    noted = [torch.nn.Parameter(torch.ones(2)), torch.ones(2)]
    for tensor in noted:
        tensor.note = "kept"
    return {
        "noted": noted,
        "dtypes": {t: torch.tensor([0.0, 1.0, 1.0]).to(getattr(torch, t)) for t in DTYPES},
        "strided": [torch.arange(24).reshape(2, 3, 4).transpose(0, 2), base[2:8], base[::3], base[4].expand(2, 3)],
        "channels_last": torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(2.5),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "leaf": torch.ones(2, requires_grad=True),
        "model": module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "others": [
            "text é",
            b"\x00\xff",
            bytearray(b"ab"),
            1,
            -1,
            300,
            70000,
            2**40,
            2**80,
            -(2**80),
            1.5,
            True,
            None,
            (),
            {1, 2},
            1 + 2j,
        ],
        "torch": (torch.float16, torch.device("cpu"), torch.Size([2, 3])),
        "collections": [OrderedDict(a=1), Counter("aab")],
    }


def gguf_blocks(rng, kind):
    """Random blocks of a quantised type whose scales are small numbers."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (2, 256 // block, size), dtype=np.uint8)
    halves = {
        "Q4_0": [0],
        "Q4_1": [0, 2],
        "Q5_0": [0],
        "Q5_1": [0, 2],
        "Q8_0": [0],
        "Q2_K": [80, 82],
        "Q3_K": [108],
        "Q4_K": [0, 2],
        "Q5_K": [0, 2],
        "Q6_K": [208],
    }
    for at in halves[kind.name]:
        scales = rng.uniform(-0.1, 0.1, data.shape[:2]).astype(np.float16)
        data[..., at : at + 2] = scales[..., None].view(np.uint8)
    return data.reshape(2, -1)


def write_gguf():
    rng = np.random.default_rng(0)
    path = FOLDER / "types.gguf"
    writer = gguf.GGUFWriter(path, "test")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -100)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -30000)
    writer.add_uint32("u32", 4000000000)
    writer.add_int32("i32", -2000000000)
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**62))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "é")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("words", ["a", "", "bc"])
    expected = {}
    plain = {
        "F32": np.float32,
        "F16": np.float16,
        "F64": np.float64,
        "I8": np.int8,
        "I16": np.int16,
        "I32": np.int32,
        "I64": np.int64,
    }
    for name, kind in plain.items():
        values = np.arange(6).reshape(2, 3).astype(kind)
        writer.add_tensor(name, values)
        expected[name] = values
    bf16 = torch.arange(6).reshape(2, 3).to(torch.bfloat16)
    writer.add_tensor("BF16", bf16.view(torch.uint8).numpy(), raw_dtype=gguf.GGMLQuantizationType.BF16)
    expected["BF16"] = bf16
    for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"):
        kind = gguf.GGMLQuantizationType[name]
        data = gguf_blocks(rng, kind)
        writer.add_tensor(name, data, raw_dtype=kind)
        expected[name] = gguf.quants.dequantize(data, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expect("types.gguf", expected)


def main():
    FOLDER.mkdir(exist_ok=True)
    tree = torch_tree()
    torch.save(tree, FOLDER / "zip.pt")
    expect("zip.pt", tree)
    torch.save(tree, FOLDER / "legacy.pt", _use_new_zipfile_serialization=False)
    expect("legacy.pt", tree)
    small = {"weight": torch.arange(6.0).reshape(2, 3), "epoch": 3, "t": torch.ones(3).to(torch.float8_e5m2)}
    torch.save(small, FOLDER / "protocol4.pt", pickle_protocol=4)
    expect("protocol4.pt", small)
    arrays = {
        "array": np.arange(6.0).reshape(2, 3),
        "column": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "flags": np.array([True, False]),
    }
    with_numpy = {
        **arrays,
        "scalar": np.float32(1.5),
        "count": np.int64(7),
        "args": argparse.Namespace(lr=0.1, name="run"),
    }
    torch.save(with_numpy, FOLDER / "numpy.pt")
    expect("numpy.pt", with_numpy)
    for protocol in (3, 4, 5):  # 3 has bytes of its own, 4 short names and frames, 5 bytearrays
        (FOLDER / f"plain{protocol}.pkl").write_bytes(pickle.dumps(with_numpy, protocol=protocol))
        expect(f"plain{protocol}.pkl", with_numpy)
    more = {
        **arrays,
        "big_endian": np.arange(3, dtype=">f4"),
        "wide": np.array([1, 65535], dtype=np.uint16),
        "scalar": np.array(2.5),
        "empty": np.zeros((0, 4)),
    }
    np.savez(FOLDER / "stored.npz", **more)
    np.savez_compressed(FOLDER / "deflated.npz", **more)
    more |= {"big_endian": more["big_endian"].astype("<f4"), "wide": more["wide"].astype(np.int32)}
    expect("stored.npz", more)
    expect("deflated.npz", more)
    np.save(FOLDER / "column.npy", arrays["column"])
    expect("column.npy", {"array": arrays["column"]})
    write_gguf()


if __name__ == "__main__":
    main()
