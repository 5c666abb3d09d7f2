"""Folders of models whose linear layers are quantised. NF4 and FP4 have the names and the metadata that bitsandbytes
gives a Linear4bit and diffusers and transformers save: X.weight, X.weight.absmax, .quant_map, .nested_absmax,
.nested_quant_map and a JSON text as bytes, .quant_state.bitsandbytes__nf4; int8 has those of a Linear8bitLt: X.weight,
X.SCB, X.weight_format. Of float8 and of GGUF's formats,
for which there is no such custom, the layer's own: X.weight and X.scale; X.weight in blocks.
They are read by scaffolding/models/quantized_folder.cpp.
"""

import json
import os

from .. import _core
from .._core import _models

BLOCK, NESTED_BLOCK = 64, 256
STATE = ".weight.quant_state.bitsandbytes__nf4"
STATES = {"nf4": STATE, "fp4": ".weight.quant_state.bitsandbytes__fp4"}
SCALE, LAYOUT = ".SCB", ".weight_format"  # of a layer of eight bits: its rows' magnitudes, and a 0 for "row by row"
_tables = {}


def tables():
    """The numbers of NF4's 16 codes and of the 256 that magnitudes are compressed to."""
    if not _tables:
        codes = _core.arange(0, 256, dtype=_core.uint8)
        _tables["nested"] = _core.dequantize_blockwise(codes, _core.ones(1), blocksize=256)
        pairs = _core.tensor([(2 * i) << 4 | (2 * i + 1) for i in range(8)], dtype=_core.uint8)
        _tables["nf4"] = _core.dequantize_nf4(pairs, _core.ones(1), (16,), dtype=_core.float32)
        _tables["fp4"] = _core.dequantize_fp4(pairs, _core.ones(1), (16,), dtype=_core.float32)
    return _tables["nf4"], _tables["nested"]


def kind_of(layer):
    """ "nf4", "fp4" or "int8" of a layer of bitsandbytes' formats, "" of others."""
    kinds = {"nf4": _core._layer_LinearNF4, "fp4": _core._layer_LinearFP4, "int8": _core._layer_LinearInt8}
    found = next((name for name, kind in kinds.items() if isinstance(layer, kind)), "")
    return "" if found == "int8" and (layer.dynamic or layer.unit == 1) else found


def layers_of(model):
    """The quantised layers by name."""
    kinds = (
        _core._layer_LinearNF4, _core._layer_LinearFP4, _core._layer_LinearInt8, _core._layer_LinearFP8,
        _core._layer_LinearGGUF, _core._layer_Conv2dGGUF, _core._layer_Conv2dInt8,
    )  # fmt: skip
    return {name: m for name, m in model.named_modules() if name and isinstance(m, kinds)}


# ---- writing


def save(model, folder, variant, safe_serialization, max_shard_size):
    if not safe_serialization:
        raise ValueError("save_pretrained: quantised weights are saved as safetensors; pass safe_serialization=True")
    layers = layers_of(model)
    tables = [name for name, m in model.named_modules() if isinstance(m, _core._layer_EmbeddingGGUF)]
    if tables:
        raise NotImplementedError(f"save_pretrained: {tables[0]!r} is a table in blocks, which no folder's format has")
    kinds = {name: kind_of(m) for name, m in layers.items()}
    common = next(iter(kinds.values()))
    if any(kind != common for kind in kinds.values()) and set(kinds.values()) & {"nf4", "fp4"}:
        raise ValueError(
            f"save_pretrained: layers in {' and '.join(sorted(set(k or 'others' for k in kinds.values())))} have no "
            "common file format"
        )
    state = dict(model.state_dict())
    config = json.loads(model.to_json_string())
    if any(kind != common for kind in kinds.values()) or not common:
        config["quantization_config"] = _own_config(layers)
    elif common == "int8":
        config["quantization_config"] = _int8_config(model)
        state |= {name + LAYOUT: _core.zeros((), dtype=_core.uint8) for name in layers}
    else:
        config["quantization_config"] = _nf4_config(model, layers)
        for name in layers:
            state |= nf4_entries(state, name, layers[name], model.dtype)
    stem = _models.weights_stem(model)
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    with _core._ReplacingFolder(folder, "config.json"):
        os.makedirs(folder, exist_ok=True)
        _core._save_sharded(
            state,
            os.path.join(folder, f"{stem}.{variant}.safetensors" if variant else f"{stem}.safetensors"),
            max_shard_size,
            {"format": "pt"},
        )
        _core._save_bytes(text.encode(), os.path.join(folder, "config.json"))


def nf4_entries(state, name, layer, dtype):
    """Takes a layer's buffers out of a state dict; returns bitsandbytes' entries for them."""
    absmax, nested, offset = (state.pop(f"{name}.{part}", None) for part in ("absmax", "nested_absmax", "offset"))
    _, nested_table = tables()
    kind = kind_of(layer)
    table = _tables[kind]
    facts = {
        "quant_type": kind,
        "blocksize": BLOCK,
        "dtype": str(dtype).removeprefix("scaffolding."),
        "shape": [layer.out_features, layer.in_features],
    }
    entries = {f"{name}.weight.absmax": absmax, f"{name}.weight.quant_map": table}
    if nested is not None:
        facts |= {"nested_blocksize": NESTED_BLOCK, "nested_dtype": "float32", "nested_offset": offset.item()}
        entries |= {f"{name}.weight.nested_absmax": nested, f"{name}.weight.nested_quant_map": nested_table}
    return entries | {name + STATES[kind]: _core.tensor(list(json.dumps(facts).encode()), dtype=_core.uint8)}


def _nf4_config(model, layers):
    nested = any(m.compress_statistics for m in layers.values())
    kept = [name for name, m in model.named_modules() if type(m) is _core._layer_Linear]
    return {
        "_load_in_4bit": True, "_load_in_8bit": False, "load_in_4bit": True, "load_in_8bit": False,
        "quant_method": "bitsandbytes", "bnb_4bit_compute_dtype": str(model.dtype).removeprefix("scaffolding."),
        "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": kind_of(next(iter(layers.values()))),
        "bnb_4bit_use_double_quant": nested,
        "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False,
        "llm_int8_skip_modules": kept or None, "llm_int8_threshold": 6.0,
    }  # fmt: skip


def _int8_config(model):
    kept = [name for name, m in model.named_modules() if type(m) is _core._layer_Linear]
    return {
        "_load_in_4bit": False, "_load_in_8bit": True, "load_in_4bit": False, "load_in_8bit": True,
        "quant_method": "bitsandbytes", "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False,
        "llm_int8_skip_modules": kept or None, "llm_int8_threshold": 6.0,
    }  # fmt: skip


def _own_config(layers):
    def facts(layer):
        if isinstance(layer, _core._layer_LinearInt8):
            return {"format": "int8", "dynamic": bool(layer.dynamic), "unit": layer.unit}
        if isinstance(layer, _core._layer_Conv2dInt8):
            return {"format": "int8", "dynamic": bool(layer.dynamic)}
        if isinstance(layer, _core._layer_LinearFP8):
            return {"dynamic": bool(layer.dynamic)}
        return {"format": layer.format}

    return {"quant_method": "scaffolding", "layers": {name: facts(m) for name, m in sorted(layers.items())}}
