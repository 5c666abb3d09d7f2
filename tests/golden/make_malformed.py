#!/usr/bin/env python3
"""Writes tests/malformed/: small checkpoint files that must be refused, with MANIFEST.jsonl, which says why, and
tests/fuzz_corpus/: what the fuzz targets start from. Needs the standard library only.

Each line of the manifest: file, kind (torch, npy, gguf, index, any) and a part of the error's text.
"""

import io
import json
import math
import pathlib
import pickle
import shutil
import struct
import zipfile

from store_messages import store_messages
from wav_files import wav_files

HERE = pathlib.Path(__file__).resolve().parent
MALFORMED = HERE.parent / "malformed"
CORPUS = HERE.parent / "fuzz_corpus"
CHECKPOINTS = HERE / "checkpoints"
manifest = []


def bad(name, data, text):
    (MALFORMED / name).write_bytes(data)
    manifest.append({"file": name, "error": text})


# ---- pickles, byte by byte


def text(s):
    s = s.encode()
    return b"X" + struct.pack("<I", len(s)) + s


def number(n):
    return b"K" + bytes([n]) if 0 <= n < 256 else b"\x8a\x08" + struct.pack("<q", n)


def tuple_of(*items):
    return b"(" + b"".join(items) + b"t"


def call(name, *arguments):
    module, _, function = name.rpartition(".")
    return b"c" + module.encode() + b"\n" + function.encode() + b"\n" + tuple_of(*arguments) + b"R"


def storage(key="0", kind="FloatStorage", numel=4, location="cpu"):
    return (
        tuple_of(text("storage"), b"ctorch\n" + kind.encode() + b"\n", text(key), text(location), number(numel)) + b"Q"
    )


def tensor(offset=0, size=(4,), stride=(1,), **of):
    return call(
        "torch._utils._rebuild_tensor_v2",
        storage(**of),
        number(offset),
        tuple_of(*map(number, size)),
        tuple_of(*map(number, stride)),
        b"\x89",
        call("collections.OrderedDict"),
    )


def pickled(program):
    return b"\x80\x02" + program + b"."


# Sizes whose product in 64 bits is another number.
OVERFLOWING = {"zero": (2**32, 2**32), "four": (2**62 + 1, 4), "minus_one": (2**32 - 1, 2**32 + 1)}


def archive(program, data=b"\0" * 16, root="archive", compression=zipfile.ZIP_STORED, extra=()):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as z:
        for name, content in [
            ("data.pkl", pickled(program)),
            ("byteorder", b"little"),
            *extra,
            ("data/0", data),
            ("version", b"3\n"),
        ]:
            z.writestr(zipfile.ZipInfo(f"{root}/{name}", (1980, 1, 1, 0, 0, 0)), content, compression)
    return out.getvalue()


def torch_files():
    good = archive(tensor())
    bad("zip_cut.pt", good[: len(good) // 2], "end of the zip archive is missing")
    bad("zip_empty.pt", zipfile_bytes({}), "no data.pkl")
    bad("zip_other.pt", zipfile_bytes({"readme.txt": b"hello"}), "no data.pkl")
    bad("zip_script.pt", archive(tensor(), extra=[("constants.pkl", b"")]), "TorchScript")
    bad("zip_big_endian.pt", archive(tensor()).replace(b"little", b"bigend"), "CRC")
    central = good.rindex(b"PK\x05\x06")
    directory = struct.unpack_from("<I", good, central + 16)[0]

    def patched(at, form, *values):
        data = bytearray(good)
        struct.pack_into(form, data, at, *values)
        return bytes(data)

    bad("zip_directory_outside.pt", patched(central + 16, "<I", 0x7FFFFFFF), "lies outside")
    bad("zip_many_entries.pt", patched(central + 8, "<HH", 5000, 5000), "do not fit")
    bad("zip_size_huge.pt", patched(directory + 20, "<II", 0x7FFFFFF0, 0x7FFFFFF0), "reaches beyond")
    bad("zip_sizes_differ.pt", patched(directory + 24, "<I", 5), "its two sizes")
    bad("zip_offset_outside.pt", patched(directory + 42, "<I", 0x7FFFFFF0), "outside of the data")
    bad("zip_method.pt", patched(directory + 10, "<H", 14), "method 14")
    bad("zip_encrypted.pt", patched(directory + 8, "<H", 1), "encrypted")
    second = good.index(b"PK\x01\x02", directory + 4)
    bad("zip_overlap.pt", overlapping(good, directory, second), "overlap")
    bad("zip_twice.pt", zipfile_bytes([("a/data.pkl", b""), ("a/data.pkl", b"")]), "appears twice")
    deflated = bytearray(archive(tensor(), b"\0" * 4096, compression=zipfile.ZIP_DEFLATED))
    at = bytes(deflated).rindex(b"PK\x01\x02", 0, bytes(deflated).rindex(b"PK\x01\x02"))  # data/0
    bomb = deflated.copy()
    struct.pack_into("<I", bomb, at + 24, 0xF0000000)
    bad("zip_bomb.pt", bytes(bomb), "cannot hold")
    longer = deflated.copy()
    struct.pack_into("<I", longer, at + 24, 4097)
    bad("zip_inflates_short.pt", bytes(longer), "needs 16 bytes")

    bad("storage_missing.pt", archive(tensor(key="7")), "'7' is missing")
    bad("storage_short.pt", archive(tensor(), data=b"\0" * 12), "needs 16 bytes")
    bad("storage_kind.pt", archive(tensor(kind="QInt8Storage")), "QInt8Storage")
    bad("storage_complex.pt", archive(tensor(kind="ComplexFloatStorage", numel=2)), "ComplexFloatStorage")
    bad("storage_numel_huge.pt", archive(tensor(numel=2**62)), "more bytes than fit")
    bad("storage_id.pt", archive(tuple_of(text("module")) + b"Q"), "not named as PyTorch")
    bad("tensor_outside.pt", archive(tensor(size=(5,))), "lies outside of its storage")
    bad("tensor_offset.pt", archive(tensor(offset=1)), "lies outside of its storage")
    bad("tensor_offset_negative.pt", archive(tensor(offset=-1, size=(1,))), "lies outside of its storage")
    bad("tensor_stride_negative.pt", archive(tensor(size=(2,), stride=(-1,))), "lies outside of its storage")
    bad("tensor_stride_overflow.pt", archive(tensor(size=(2**40, 2), stride=(2**40, 1))), "lies outside of its storage")
    bad("tensor_size_negative.pt", archive(tensor(size=(-4,))), "lies outside of its storage")
    for what, size in OVERFLOWING.items():
        bad(f"tensor_overflow_{what}.pt", archive(tensor(size=size, stride=(0, 0))), "more bytes than fit")
    bad("tensor_strides_missing.pt", archive(tensor(size=(2, 2))), "sizes [2, 2] and strides [1]")
    bad("tensor_dims.pt", archive(tensor(size=(1,) * 13, stride=(1,) * 13)), "13 dimensions")
    bad("tensor_bool.pt", archive(tensor(kind="BoolStorage", numel=16), data=b"\2" * 16), "other than 0 and 1")

    bad("pickle_system.pt", archive(call("os.system", text("echo"))), "os.system")
    bad("pickle_eval.pt", archive(call("builtins.eval", text("1"))), "builtins.eval")
    bad("pickle_import.pkl", pickled(call("builtins.__import__", text("os"))), "builtins.__import__")
    bad("pickle_getattr.pkl", pickled(call("torch.serialization.getattr", text("os"))), "torch.serialization.getattr")
    bad("pickle_empty.pkl", b"\x80\x02.", "takes more from its stack")
    bad("pickle_cut.pkl", pickled(text("hello"))[:-3], "is cut short")
    bad("pickle_protocol0.pkl", b"(lp0\n.", "begins neither")
    bad("pickle_protocol9.pkl", b"\x80\x09N.", "no checkpoint|begins neither")
    bad("pickle_opcode.pkl", pickled(b"\xff"), "0xff is no operation")
    bad("pickle_text_length.pkl", pickled(b"X\xff\xff\xff\xffhello"), "is cut short")
    bad("pickle_text_length8.pkl", b"\x80\x04\x8d" + b"\xff" * 8 + b"x.", "is cut short")
    bad("pickle_long_length.pkl", pickled(b"\x8b\xff\xff\xff\x7f"), "is cut short")
    bad("pickle_memo.pkl", pickled(b"h\x05"), "memo 5")
    bad("pickle_mark.pkl", pickled(b"t"), "mark that it did not set")
    bad("pickle_ring.pkl", pickled(b"]q\x00h\x00a"), "contains itself")
    bad("pickle_ring_lost.pkl", pickled(b"]q\x00h\x00a0" + b"h\x09"), "memo 9")
    bad("pickle_deep.pkl", pickled(b"]" * 4000 + b"a" * 3999), "nested more than")
    bad("pickle_deep_tuple.pkl", pickled(b")" + b"\x85" * 4000), "nested more than")
    bad("pickle_append_dict.pkl", pickled(b"}Na"), "appends to a dict")
    bad("pickle_set_list.pkl", pickled(b"]NNs"), "sets items of a list")
    bad("pickle_key_list.pkl", pickled(b"}]Ns"), "a list is a key")
    bad("pickle_odd.pkl", pickled(b"}(Nu"), "has no value")
    bad("pickle_call_text.pkl", pickled(text("f") + b")R"), "calls a string")
    bad("pickle_call_list.pkl", pickled(b"ccollections\nOrderedDict\n]R"), "arguments of a call")
    bad("pickle_state.pkl", pickled(b"]}b"), "a state")
    bad("pickle_persistent.pkl", pickled(text("x") + b"Q"), "storages outside")
    bad("pickle_global_line.pkl", pickled(b"c" + b"a" * 3000), "does not end")
    bad("pickle_latin1.pkl", pickled(call("_codecs.encode", text("é€"), text("latin1"))), "character over 255")
    bad(
        "pickle_numpy_object.pkl",
        pickled(call("numpy.core.multiarray.scalar", call("numpy.dtype", text("O8"), b"\x89", b"\x88"), text("x"))),
        "O8",
    )
    legacy = (CHECKPOINTS / "legacy.pt").read_bytes()
    bad("legacy_cut.pt", legacy[:-20], "is cut short")
    bad("legacy_version.pt", legacy.replace(b"M\xe9\x03.", b"M\xea\x03.", 1), "unknown version")
    bad("legacy_header.pt", legacy[:40], "is cut short")


def zipfile_bytes(entries):
    out = io.BytesIO()
    import warnings

    with zipfile.ZipFile(out, "w") as z, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in entries.items() if isinstance(entries, dict) else entries:
            z.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return out.getvalue()


def overlapping(good, first, second):
    """The second entry becomes the first one under a name of the same length: both claim its bytes."""
    data = bytearray(zipfile_bytes([("a/data.pkl", b"x" * 8), ("a/data.pkk", b"y" * 8)]))
    at = bytes(data).rindex(b"PK\x01\x02")
    local = struct.unpack_from("<I", data, at + 42)[0]
    # A local header inside the first entry's data would need its name too:
    # make the first entry's data reach over the second.
    one = bytes(data).index(b"PK\x01\x02")
    struct.pack_into("<II", data, one + 20, local + 8, local + 8)
    return bytes(data)


# ---- .npy


def npy(header, data=b"\0" * 16, version=(1, 0), length=None):
    header = header.encode("latin1")
    size = struct.pack("<H" if version[0] == 1 else "<I", len(header) if length is None else length)
    return b"\x93NUMPY" + bytes(version) + size + header + data


def npy_files():
    def of(descr="'<f4'", fortran="False", shape="(4,)"):
        return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"

    bad("npy_cut.npy", npy(of())[:30], "is cut short")
    bad("npy_data_short.npy", npy(of(), b"\0" * 15), "the file has 15")
    bad("npy_data_long.npy", npy(of(), b"\0" * 17), "the file has 17")
    bad("npy_version.npy", npy(of(), version=(4, 0)), "version 4")
    bad("npy_length.npy", npy(of(), length=60000), "is cut short")
    bad("npy_length_huge.npy", npy(of(), version=(2, 0), length=0xFFFFFFF0), "cannot have")
    bad("npy_object.npy", npy(of("'|O'")), "type 'O'")
    bad("npy_structured.npy", npy(of("[('a', '<f4')]")), "structured")
    bad("npy_text.npy", npy(of("'<U4'")), "type 'U4'")
    bad("npy_complex.npy", npy(of("'<c8'")), "type 'c8'")
    bad("npy_date.npy", npy(of("'<M8[ns]'")), "type 'M8[ns]'")
    bad("npy_code.npy", npy(of(shape="__import__('os').system('echo')")), "lacks a '('")
    bad("npy_shape_negative.npy", npy(of(shape="(-4,)")), "no number")
    bad("npy_shape_huge.npy", npy(of(shape="(99999999999999999999,)")), "over 2^63")
    bad("npy_shape_product.npy", npy(of(shape="(4294967296, 4294967296)")), "more bytes than fit")
    bad("npy_shape_zero_product.npy", npy(of(shape="(0, 4294967296, 4294967296)"), b""), "more bytes than fit")
    bad("npy_dims.npy", npy(of(shape="(" + "1, " * 13 + ")")), "dimensions")
    bad(
        "npy_key_twice.npy", npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n"), "twice"
    )
    bad(
        "npy_key_unknown.npy",
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'x': 1}\n"),
        "none of NumPy's",
    )
    bad("npy_key_missing.npy", npy("{'descr': '<f4', 'shape': (4,), }\n"), "needs descr")
    bad("npy_rest.npy", npy(of() + "x"), "goes on")
    bad("npy_fortran.npy", npy(of(fortran="None")), "True or False")
    bad("npz_crc.npz", zipfile_bytes({"a.npy": npy(of())}).replace(b"\0" * 16, b"\0" * 15 + b"\1", 1), "CRC")
    bad("npz_object.npz", zipfile_bytes({"a.npy": npy(of("'|O'"))}), "type 'O'")


# ---- GGUF


def string(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def gguf(values=(), tensors=(), data=b"", version=3, counts=None):
    out = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(values))))
    for key, kind, value in values:
        out += string(key) + struct.pack("<I", kind) + value
    for name, dims, kind, offset in tensors:
        out += (
            string(name)
            + struct.pack("<I", len(dims))
            + b"".join(struct.pack("<Q", d) for d in dims)
            + struct.pack("<IQ", kind, offset)
        )
    return out + b"\0" * (-len(out) % 32) + data


def gguf_files():
    one = ("a", (4,), 0, 0)
    bad("gguf_cut.gguf", gguf(tensors=[one])[:20], "is cut short")
    bad("gguf_version.gguf", gguf(version=1), "version 1")
    bad("gguf_big_endian.gguf", gguf(version=0x03000000), "version 50331648")
    bad("gguf_counts.gguf", gguf(counts=(2**60, 0)), "do not fit")
    bad("gguf_values.gguf", gguf(counts=(0, 2**60)), "do not fit")
    bad(
        "gguf_key_length.gguf",
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63) + b"x" * 40,
        "is cut short",
    )
    bad("gguf_value_type.gguf", gguf([("k", 13, b"\0" * 16)]), "unknown type 13")
    bad("gguf_array_count.gguf", gguf([("k", 9, struct.pack("<IQ", 0, 2**62))]), "does not fit")
    bad("gguf_array_deep.gguf", gguf([("k", 9, struct.pack("<IQ", 9, 1) * 20)]), "nested")
    bad("gguf_key_twice.gguf", gguf([("k", 0, b"\0"), ("k", 0, b"\0")]), "twice")
    bad("gguf_alignment_zero.gguf", gguf([("general.alignment", 4, struct.pack("<I", 0))]), "general.alignment")
    bad("gguf_alignment_odd.gguf", gguf([("general.alignment", 4, struct.pack("<I", 33))]), "general.alignment")
    bad("gguf_alignment_type.gguf", gguf([("general.alignment", 8, string("32"))]), "general.alignment")
    bad("gguf_dims.gguf", gguf(tensors=[("a", (1,) * 13, 0, 0)], data=b"\0" * 32), "13 dimensions")
    bad("gguf_type.gguf", gguf(tensors=[("a", (4,), 77, 0)], data=b"\0" * 32), "unknown type 77")
    bad("gguf_rows.gguf", gguf(tensors=[("a", (100,), 8, 0)], data=b"\0" * 320), "multiple of 32")
    bad("gguf_offset.gguf", gguf(tensors=[("a", (4,), 0, 2**40)], data=b"\0" * 32), "reaches beyond")
    bad("gguf_offset_odd.gguf", gguf(tensors=[("a", (4,), 0, 4)], data=b"\0" * 32), "no multiple of 32")
    bad("gguf_data_short.gguf", gguf(tensors=[one], data=b"\0" * 12), "reaches beyond")
    bad("gguf_overflow.gguf", gguf(tensors=[("a", (2**32, 2**32), 0, 0)], data=b"\0" * 32), "more bytes than fit")
    bad("gguf_size_huge.gguf", gguf(tensors=[("a", (2**63,), 0, 0)], data=b"\0" * 32), "over 2^63")
    bad("gguf_overlap.gguf", gguf(tensors=[one, ("b", (4,), 0, 0)], data=b"\0" * 32), "overlap")
    for name, sizes in (("count", (2, 3)), ("sign", (-2, -2)), ("overflow", (2**31 - 1,) * 3)):
        before = ("comfy.gguf.orig_shape.a", 9, struct.pack(f"<IQ{len(sizes)}i", 5, len(sizes), *sizes))
        bad(f"gguf_shape_before_{name}.gguf", gguf([before], [one], b"\0" * 32), "cannot have had the shape")
    many = ("comfy.gguf.orig_shape.a", 9, struct.pack("<IQ13i", 5, 13, *(1,) * 13))
    bad("gguf_shape_before_dims.gguf", gguf([many], [one], b"\0" * 32), "cannot have had the shape")
    bad("gguf_name_twice.gguf", gguf(tensors=[one, ("a", (4,), 0, 32)], data=b"\0" * 64), "two tensors called")


# ---- indices of shards, and what is nothing at all


def index_files():
    def index(body, name):
        return bad(f"{name}.index.json", body.encode(), "")

    index('{"weight_map": {"a": "x.safetensors"}', "json_cut")
    index('{"weight_map": []}', "json_map_list")
    index('{"weight_map": {"a": 1}}', "json_map_number")
    index('{"weight_map": {"a": {"b": "c"}}}', "json_map_object")
    index('{"weight_map": {"a": "x", "a": "x"}}', "json_name_twice")
    index('{"weight_map": {"a": "../../etc/passwd"}}', "json_path_up")
    index('{"weight_map": {"a": "/etc/passwd"}}', "json_path_root")
    index('{"weight_map": {"a": ".."}}', "json_path_dots")
    index('{"weight_map": {"a": ""}}', "json_path_empty")
    index('{"weight_map": {"a": "not_there.safetensors"}}', "json_shard_missing")
    index('{"weight_map": {"a": "json_self.index.json"}}', "json_self")
    index('{"a": ' + "[" * 3000 + ', "weight_map"', "json_deep")
    bad("nothing.bin", b"", "no checkpoint")
    bad("text.bin", b"hello, this is no checkpoint at all\n", "no checkpoint")


# ---- LoRA, for the layers of lora_fuzz.cpp


def safetensors(tensors, metadata=None):
    """tensors: {name: (dtype, shape)}, of ones."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape) in tensors.items():
        ones = {"F16": b"\0\x3c", "F32": b"\0\0\x80\x3f", "F8_E4M3": b"\x38", "F8_E5M2": b"\x3c", "I8": b"\1"}
        values = ones[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def lora_files(add):
    kohya = {
        "lora_unet_attn_to_q.lora_down.weight": ("F16", [2, 4]),
        "lora_unet_attn_to_q.lora_up.weight": ("F16", [4, 2]),
        "lora_unet_attn_to_q.alpha": ("F16", []),
        "lora_unet_conv.lora_down.weight": ("F16", [2, 3, 1, 1]),
        "lora_unet_conv.lora_mid.weight": ("F16", [2, 2, 3, 3]),
        "lora_unet_conv.lora_up.weight": ("F16", [4, 2, 1, 1]),
    }
    add("lora", "kohya.safetensors", safetensors(kohya, {"ss_network_dim": "2"}))
    joined = {"diffusion_model.qk.lora_A.weight": ("F32", [1, 4]), "diffusion_model.qk.lora_B.weight": ("F32", [8, 1])}
    config = {
        "unet.r": 1,
        "unet.lora_alpha": 2,
        "unet.rank_pattern": {},
        "unet.alpha_pattern": {"to_[qv]": 3, "attn.to_k": 0.5},
        "unet.use_rslora": True,
    }
    add("lora", "joined.safetensors", safetensors(joined, {"lora_adapter_metadata": json.dumps(config)}))
    old = {
        "unet.attn.processor.to_k_lora.down.weight": ("F16", [1, 4]),
        "unet.attn.processor.to_k_lora.up.weight": ("F16", [4, 1]),
        "unet.proj_in.lora.down.weight": ("F16", [1, 4, 1, 1]),
        "unet.proj_in.lora.up.weight": ("F16", [4, 1, 1, 1]),
        "unet.proj_in.hada_w1_a": ("F16", [1]),
        "unet.nowhere.lora_A.default.weight": ("F16", [1, 4]),
        "unet.nowhere.lora_B.default.weight": ("F16", [4, 1]),
    }
    add("lora", "old.safetensors", safetensors(old))


def packed_files(add):
    """A pipeline's files in the metadata, with a tokenizer of two bytes."""
    index = {
        "_class_name": "StableDiffusionPipeline",
        "_guidance_scale": 2.5,
        "unet": ["diffusers", "UNet2DConditionModel"],
        "scheduler": ["diffusers", "DDIMScheduler"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "safety_checker": [None, None],
    }
    tokens = ["a", "b", "a</w>", "b</w>", "ab</w>", "<|startoftext|>", "<|endoftext|>"]
    files = {
        "model_index.json": json.dumps(index),
        "unet/config.json": '{"_class_name": "UNet2DConditionModel", "in_channels": 4}',
        "scheduler/scheduler_config.json": '{"_class_name": "DDIMScheduler"}',
        "tokenizer/vocab.json": json.dumps({token: i for i, token in enumerate(tokens)}),
        "tokenizer/merges.txt": "#version: 0.2\na b</w>\n",
        "tokenizer/tokenizer_config.json": '{"pad_token": "a", "model_max_length": 8}',
    }
    metadata = {"format": "pt", **{f"scaffolding:{path}": text for path, text in files.items()}}
    add("packed_files", "text.safetensors", safetensors({"unet.conv_in.bias": ("F16", [2])}, metadata))
    metadata["scaffolding-base64:tokenizer/added_tokens.bin"] = "AAEC/w=="
    add("packed_files", "bytes.safetensors", safetensors({"unet.conv_in.bias": ("F16", [2])}, metadata))


def scaled_files(add):
    """float8 and int8 with scales, as ComfyUI's tools write them."""
    few = {"a.weight": ("F8_E4M3", [2, 4]), "a.scale_weight": ("F32", []), "scaled_fp8": ("F8_E4M3", [2])}
    add("scaled_checkpoint", "scaled.safetensors", safetensors(few))
    said = json.dumps({"layers": {"a": {"format": "float8_e5m2"}, "b": {"format": "int8_tensorwise"}}})
    more = {
        "a.weight": ("F8_E5M2", [2, 4]),
        "a.weight_scale": ("F32", [2]),
        "b.weight": ("I8", [3, 2]),
        "b.weight_scale": ("F32", [1]),
        "b.bias": ("F16", [3]),
    }
    add("scaled_checkpoint", "rows.safetensors", safetensors(more, {"_quantization_metadata": said}))
    for name, text, codes in (
        ("said", b'{"format": "int8_tensorwise"}', b"\1\2"),
        ("turned", b'{"format": "int8_tensorwise", "convrot": true, "convrot_groupsize": 4}', bytes(range(8))),
    ):
        ends = [len(text), len(text) + len(codes), len(text) + len(codes) + 4]
        header = json.dumps({
            "a.comfy_quant": {"dtype": "U8", "shape": [len(text)], "data_offsets": [0, ends[0]]},
            "a.weight": {"dtype": "I8", "shape": [1, len(codes)], "data_offsets": ends[:2]},
            "a.weight_scale": {"dtype": "F32", "shape": [], "data_offsets": ends[1:]},
        })  # fmt: skip
        data = struct.pack("<Q", len(header)) + header.encode() + text + codes + struct.pack("<f", 0.5)
        add("scaled_checkpoint", f"{name}.safetensors", data)


def models(add):
    """A few tensors' names of what a listing of models tells apart."""
    unet, vae = "model.diffusion_model.input_blocks.0.0.weight", "first_stage_model.decoder.conv_in.weight"
    for name, tensors in {
        "checkpoint": {unet: [1, 4, 1, 1], vae: [1, 4, 1, 1], "cond_stage_model.x": [1]},
        "rrdb": {"conv_first.weight": [1, 3, 1, 1], "body.0.rdb1.conv1.weight": [1, 1, 1, 1]},
    }.items():
        add(
            "model_description", f"{name}.safetensors", safetensors({n: ("F16", shape) for n, shape in tensors.items()})
        )
    add("model_description", "small.pt", archive(tensor()))
    add("model_description", "small.gguf", gguf([], [("a", (2, 2), 0, 0)], b"\0" * 16))


def upscaler_files(add):
    """What tells networks that enlarge pictures: of old ESRGAN's by 2, and a whole compact one."""
    kernels = {"0": (1, 3), "1.sub.0.RDB1.conv1.0": (1, 1), "3": (1, 1), "7": (3, 1)}
    rrdb = {f"model.{name}.weight": ("F16", [*sizes, 3, 3]) for name, sizes in kernels.items()}
    add("upscaler_file", "esrgan.safetensors", safetensors(rrdb))
    compact = {"params.body.0.weight": ("F16", [2, 1, 3, 3]), "params.body.0.bias": ("F16", [2])}
    compact |= {"params.body.1.weight": ("F16", [2]), "params.body.2.weight": ("F16", [4, 2, 3, 3])}
    add("upscaler_file", "compact.safetensors", safetensors(compact | {"params.body.2.bias": ("F16", [4])}))


def corpus():
    def add(target, name, data):
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        (CORPUS / target / name).write_bytes(data)

    for target, files in {
        "torch_file": ["protocol4.pt", "numpy.pt", "legacy.pt", "plain4.pkl"],
        "pickle": ["plain3.pkl", "plain4.pkl", "plain5.pkl"],
        "npy": ["column.npy", "deflated.npz", "stored.npz"],
        "zip": ["deflated.npz"],
    }.items():
        for name in files:
            add(target, name, (CHECKPOINTS / name).read_bytes())
    with zipfile.ZipFile(CHECKPOINTS / "zip.pt") as z:
        add("pickle", "everything.pkl", z.read("zip/data.pkl"))
    add("torch_file", "small.pt", archive(tensor()))
    add("torch_file", "broadcast.pt", archive(tensor(size=(3, 4), stride=(0, 1))))
    for what, size in OVERFLOWING.items():
        add("torch_file", f"overflow_{what}.pt", archive(tensor(size=size, stride=(0, 0))))
    add("torch_file", "deflated.pt", archive(tensor(), compression=zipfile.ZIP_DEFLATED))
    add("zip", "stored.zip", zipfile_bytes({"a": b"hello", "b/c": b""}))
    add("pickle", "small.pkl", pickled(b"}(" + text("a") + b"](K\x01N\x88e" + text("b") + tensor() + b"u"))
    add("pickle", "sets.pkl", pickle.dumps({"s": {1, 2}, "b": b"\xff", "c": 1 + 2j, "n": 2**100}, protocol=4))
    add("npy", "scalar.npy", npy("{'descr': '>f8', 'fortran_order': True, 'shape': (), }\n", b"\0" * 8))
    q8 = struct.pack("<e", 0.5) + bytes(range(32))
    values = [
        ("general.alignment", 4, struct.pack("<I", 32)),
        ("s", 8, string("text")),
        ("l", 9, struct.pack("<IQ", 8, 2) + string("a") + string("b")),
        ("n", 10, b"\xff" * 8),
    ]
    add("gguf", "small.gguf", gguf(values, [("a", (2, 2), 0, 0), ("b", (32, 1), 8, 32)], b"\0" * 32 + q8))
    before = ("comfy.gguf.orig_shape.a", 9, struct.pack("<IQ4i", 5, 4, 2, 16, 1, 1))
    add("gguf", "reshaped.gguf", gguf([before], [("a", (32, 1), 8, 0)], q8))
    sizes = (2, 18), (3, 20), (6, 22), (7, 24), (10, 84), (11, 110), (12, 144), (13, 176), (14, 210), (20, 18)
    for kind, size in sizes:
        add(
            "gguf",
            f"type{kind}.gguf",
            gguf(
                [],
                [("a", (32 if size < 84 else 256,), kind, 0)],
                bytes(i * 37 % 251 for i in range(size)),
            ),
        )
    header = json.dumps(
        {
            "__metadata__": {"k": "v"},
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "BOOL", "shape": [1, 1], "data_offsets": [8, 9]},
        }
    )
    add("safetensors", "two.safetensors", struct.pack("<Q", len(header)) + header.encode() + b"\0" * 9)
    lora_files(add)
    packed_files(add)
    scaled_files(add)
    models(add)
    upscaler_files(add)
    wav_files(add)
    header = json.dumps({"w": {"dtype": "U16", "shape": [], "data_offsets": [0, 2]}})
    add("safetensors", "wide.safetensors", struct.pack("<Q", len(header)) + header.encode() + b"\1\2")
    add(
        "shard_index",
        "two.json",
        json.dumps(
            {
                "metadata": {"total_size": 12, "x": "y", "z": [1.5, {"a": None}]},
                "weight_map": {"a": "m-00001-of-00002.safetensors", "b": "m-00002-of-00002.safetensors"},
            },
            indent=2,
        ).encode(),
    )
    ddim = {
        "_class_name": "DDIMScheduler",
        "beta_schedule": "scaled_linear",
        "clip_sample": False,
        "trained_betas": None,
        "steps_offset": 1,
    }
    add("scheduler_config", "ddim.json", json.dumps(ddim, indent=2).encode())
    unipc = {
        "_class_name": "UniPCMultistepScheduler",
        "disable_corrector": [0, 1],
        "use_karras_sigmas": True,
        "sigma_max": 9.5,
        "other": {"a": [None]},
    }
    add("scheduler_config", "unipc.json", json.dumps(unipc).encode())
    dpm = {
        "_class_name": "DPMSolverMultistepScheduler",
        "lambda_min_clipped": -math.inf,
        "trained_betas": [0.01] * 8,
        "num_train_timesteps": 8,
    }
    add("scheduler_config", "dpm.json", json.dumps(dpm).encode())
    large = {
        "rfilename": "unet/model.safetensors",
        "size": 400,
        "blobId": "b" * 40,
        "lfs": {"sha256": "c" * 64, "size": 400, "pointerSize": 134},
    }
    small = {"rfilename": ".gitattributes", "size": 3, "blobId": "d" * 40}
    add(
        "repo_listing",
        "blobs.json",
        json.dumps({"id": "org/name", "sha": "a" * 40, "private": False, "siblings": [small, large]}).encode(),
    )
    add(
        "repo_listing",
        "names.json",
        json.dumps({"sha": "0123456789" * 4, "siblings": [{"rfilename": "a/b/c"}, {"rfilename": "..d"}]}).encode(),
    )
    part = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    form = b"multipart/form-data; boundary=x\n"
    parts = part % (b"prompt", b"", b"red apple") + part % (b"image[]", b'; filename="a \\"b\\".png"', b"\x89PNG\r\n")
    add("multipart", "fields.form", form + parts + b"--x--\r\n")
    add("multipart", "quoted.form", b'multipart/form-data; charset=utf-8; boundary="a b"\n' + b"--a b--")
    add("multipart", "unclosed.form", form + parts)
    add("request_target", "query.target", b"/api/v1/jobs/a%20b?state=done&words=red+apple&x=%C3%A9#end")
    add("request_target", "host.target", b"[::1]:7860")
    add("fields", "all.json", rb'{"prompt": "red apple", "steps": 20.0, "scale": 1e1, "stream": true, '
        rb'"images": ["a", "b"], "options": {"eta": [0.5, null, -1]}, "size": "small", '
        rb'"anything": {"a": [[[]]]}}')  # fmt: skip
    add("fields", "wrong.json", rb'{"prompt": "\u00e9\ud83c\udf4e", "stepps": 3, "size": "huge", "stream": null}')
    add("guard", "bearer.headers", b"host:pictures.example:7860\norigin:https://page.example\n"
        b"access-control-request-method:POST\nauthorization:Bearer a-token\n")  # fmt: skip
    add("guard", "basic.headers", b"host:[::1]:7860\nauthorization:Basic dXNlcjpwYXNz\nx-requested-with:a\n")
    add("guard", "session.headers",
        b"host:localhost\ncookie:a=b; scaffolding_session=0123456789abcdef.1900000000.00ff\n")  # fmt: skip
    store_messages(add)
    add("shard_index", "escapes.json", rb'{"weight_map":{"\u00e9\ud83d\ude00\n":"a b"},"other":[true,false,-1e5]}')


def main():
    shutil.rmtree(MALFORMED, ignore_errors=True)
    MALFORMED.mkdir()
    torch_files()
    npy_files()
    gguf_files()
    index_files()
    corpus()
    (MALFORMED / "MANIFEST.jsonl").write_text("".join(json.dumps(m, ensure_ascii=False) + "\n" for m in manifest))


if __name__ == "__main__":
    main()
