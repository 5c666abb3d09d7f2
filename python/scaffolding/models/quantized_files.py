"""Folders of models whose linear layers are quantised. NF4 and FP4 have the names and the metadata that bitsandbytes
gives a Linear4bit and diffusers and transformers save: X.weight, X.weight.absmax, .quant_map, .nested_absmax,
.nested_quant_map and a JSON text as bytes, .quant_state.bitsandbytes__nf4; int8 has those of a Linear8bitLt: X.weight,
X.SCB, X.weight_format. Of float8 and of GGUF's formats,
for which there is no such custom, the layer's own: X.weight and X.scale; X.weight in blocks.

What a file says of a layer is checked against the model before it is used: sizes, block sizes, tables, dtypes.
"""

import json
import math
import os

from .. import _core
from .._core import _models
from ..nn.quantize import gguf_layer, replace_layer

BLOCK, NESTED_BLOCK = 64, 256
STATE = ".weight.quant_state.bitsandbytes__nf4"
STATES = {"nf4": STATE, "fp4": ".weight.quant_state.bitsandbytes__fp4"}
SCALE, LAYOUT = ".SCB", ".weight_format"  # of a layer of eight bits: its rows' magnitudes, and a 0 for "row by row"
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
INT8_UNIT = 0.007874015718698502  # what a code is of its row's magnitude, as bitsandbytes has it
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
        _core._layer_LinearGGUF, _core._layer_Conv2dGGUF,
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
        if isinstance(layer, _core._layer_LinearFP8):
            return {"dynamic": bool(layer.dynamic)}
        return {"format": layer.format}

    return {"quant_method": "scaffolding", "layers": {name: facts(m) for name, m in sorted(layers.items())}}


# ---- reading


def load(model, config, folder, subfolder, variant, torch_dtype, use_safetensors, device, overrides):
    """Makes `model`, of a folder whose config.json, `config`, has a quantization_config, in eval mode."""
    config = dict(config)
    how = config.pop("quantization_config")
    config.pop("_use_default_values", None)
    where = os.path.join(folder, subfolder, "config.json")
    dynamic = _own_layers(how, where)
    _models.make(model, model._class_name, {**config, **overrides}, empty=True)
    path = _models.find_weights(model, folder, subfolder, variant, use_safetensors)
    file = _core._open_checkpoint(path)
    entries = {}
    for name in file.keys():
        if key := _models.current_key(model, name):
            entries[key] = name
    layers = {name: m for name, m in model.named_modules() if type(m) in (_core._layer_Linear, _core._layer_Conv2d)}
    state = {}
    part_of = lambda name: lambda part: _tensor(file, entries, path, name + part)  # noqa: E731
    for name, facts in (_bitsandbytes_layers(how, where, entries) if dynamic is None else dynamic).items():
        if isinstance(facts, dict):
            read = _int8_layer
        elif facts in STATES:
            read = _nf4_layer
        else:
            read = _float8_layer if isinstance(facts, bool) else _gguf_layer
        state |= read(model, layers, name, facts, part_of(name))
    used = {".weight.absmax", ".weight.quant_map", ".weight.nested_absmax", ".weight.nested_quant_map", LAYOUT}
    taken = {name + part for name in layers_of(model) for part in (*used, *STATES.values())}
    for key in entries.keys() - state.keys() - taken:
        state[key] = file.get(entries[key])
    kept = {f"{name}.{buffer}" for name, m in layers_of(model).items() for buffer, _ in m.named_buffers()}
    ring = _core._upload_ring(device) if device is not None else None
    for key, tensor in state.items():
        placed = ring.upload(tensor) if ring else tensor if device is None else tensor.to(device)
        state[key] = (
            placed.to(torch_dtype)
            if torch_dtype is not None and placed.is_floating_point() and key not in kept
            else placed
        )
    if ring:
        ring.finish()
    try:
        model.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise type(error)(f"{path}: {error}") from None
    model.eval()


def _own_layers(how, where):
    """Of a config of this library's: {layer: whether it quantises its input} in float8, {layer: its format} in GGUF's
    formats, {layer: dict of facts} in int8. None for bitsandbytes', NotImplementedError for others.
    """
    method = how.get("quant_method") if isinstance(how, dict) else None
    if method == "bitsandbytes":
        return None
    if method != "scaffolding":
        raise NotImplementedError(
            f"from_pretrained: {where}: quant_method must be bitsandbytes or scaffolding, got {method!r}"
        )
    layers = how.get("layers")
    blocks = _core._gguf_blocks()

    def known(facts):
        if not isinstance(facts, dict):
            return False
        if facts.get("format") == "int8":
            unit = facts.get("unit", INT8_UNIT)
            return isinstance(facts.get("dynamic", False), bool) and unit in (1, INT8_UNIT) and unit is not True
        return facts["format"] in blocks if "format" in facts else isinstance(facts.get("dynamic"), bool)

    if not isinstance(layers, dict) or not all(known(facts) for facts in layers.values()):
        raise ValueError(
            f'from_pretrained: {where}: quantization_config.layers must be {{name: {{"dynamic": bool}}}} or '
            f'{{name: {{"format": int8 or {" or ".join(blocks)}}}}}'
        )
    return {
        name: v if v.get("format") == "int8" else v["format"] if "format" in v else v["dynamic"]
        for name, v in layers.items()
    }


def _bitsandbytes_layers(how, where, entries):
    """{layer: "nf4", "fp4" or facts of int8} of a config of bitsandbytes' and a file's entries."""
    eight = how.get("load_in_8bit", how.get("_load_in_8bit")) is True
    four = how.get("load_in_4bit", how.get("_load_in_4bit")) is True
    if eight == four:
        raise ValueError(f"from_pretrained: {where}: one of load_in_4bit and load_in_8bit must be true, got {four}")
    if eight:
        if how.get("llm_int8_has_fp16_weight"):
            raise NotImplementedError(
                f"from_pretrained: {where}: llm_int8_has_fp16_weight: weights in 16 bits are no quantised ones"
            )
        return {key.removesuffix(SCALE): {} for key in entries if key.endswith(SCALE)}
    kind = how.get("bnb_4bit_quant_type")
    if kind not in STATES:
        raise NotImplementedError(f"from_pretrained: {where}: bnb_4bit_quant_type must be nf4 or fp4, got {kind!r}")
    if how.get("bnb_4bit_quant_storage", "uint8") != "uint8":
        raise NotImplementedError(
            f"from_pretrained: {where}: bnb_4bit_quant_storage must be uint8, got {how['bnb_4bit_quant_storage']!r}"
        )
    other = "fp4" if kind == "nf4" else "nf4"
    if any(key.endswith(STATES[other]) for key in entries):
        raise ValueError(
            f"from_pretrained: {where}: bnb_4bit_quant_type is {kind!r}, and layers of the file are {other}"
        )
    return {key.removesuffix(STATES[kind]): kind for key in entries if key.endswith(STATES[kind])}


def _tensor(file, entries, path, key):
    if key not in entries:
        raise ValueError(f"from_pretrained: {path}: a quantised layer lacks {key!r}")
    return file.get(entries[key])


def _checked(what, tensor, dtypes, shape):
    names = [str(t).removeprefix("scaffolding.") for t in dtypes]
    if tensor.dtype not in dtypes or list(tensor.shape) != list(shape):
        raise ValueError(
            f"from_pretrained: {what} must be {' or '.join(names)} {list(shape)}, got {tensor.dtype} "
            f"{list(tensor.shape)}"
        )
    return tensor


def _layer(layers, name):
    if name not in layers:
        raise ValueError(
            f"from_pretrained: the weights of {name!r} are quantised, but the model has no Linear of that name"
        )
    return layers[name]


def nf4_facts(name, text, out_features, in_features, kind="nf4"):
    """What a layer's JSON says, checked against the layer: {nested, offset}."""
    try:
        facts = json.loads(bytes(text.tolist()))
    except (ValueError, RecursionError):
        facts = None
    where = f"from_pretrained: {name}{STATES[kind]}"
    if not isinstance(facts, dict):
        raise ValueError(f"{where} is no JSON object")
    for key, want in {"quant_type": kind, "blocksize": BLOCK, "shape": [out_features, in_features]}.items():
        if facts.get(key) != want:
            raise ValueError(f"{where}: {key} must be {want!r}, got {facts.get(key)!r}")
    if "nested_blocksize" not in facts and "nested_offset" not in facts:
        return False, 0.0
    offset = facts.get("nested_offset")
    if (
        facts.get("nested_blocksize") != NESTED_BLOCK
        or isinstance(offset, bool)
        or not isinstance(offset, (int, float))
        or not math.isfinite(offset)
    ):
        raise ValueError(
            f"{where}: nested_blocksize must be {NESTED_BLOCK} and nested_offset a number, got "
            f"{facts.get('nested_blocksize')!r} and {offset!r}"
        )
    return True, float(offset)


def _nf4_layer(model, layers, name, kind, part):
    """Replaces a Linear by LinearNF4 or LinearFP4; returns its buffers as entries of a state dict."""
    linear = _layer(layers, name)
    out, inside = linear.out_features, linear.in_features
    text = part(STATES[kind])
    if text.dtype != _core.uint8 or text.ndim != 1 or text.numel() > 1 << 16:
        raise ValueError(
            f"from_pretrained: {name}{STATES[kind]} must be bytes of a JSON text, got {text.dtype} {list(text.shape)}"
        )
    nested, offset = nf4_facts(name, text, out, inside, kind)
    blocks = -(-out * inside // BLOCK)
    _, nested_table = tables()
    table = _tables[kind]
    made = {"nf4": _core._layer_LinearNF4, "fp4": _core._layer_LinearFP4}[kind]
    _same_table(name + ".weight.quant_map", part(".weight.quant_map"), table)
    state = {f"{name}.weight": _checked(f"{name}.weight", part(".weight"), [_core.uint8], [-(-out * inside // 2), 1])}
    absmax = _checked(
        f"{name}.weight.absmax", part(".weight.absmax"), [_core.uint8 if nested else _core.float32], [blocks]
    )
    state[f"{name}.absmax"] = absmax
    if nested:
        _same_table(name + ".weight.nested_quant_map", part(".weight.nested_quant_map"), nested_table)
        sizes = [-(-blocks // NESTED_BLOCK)]
        state[f"{name}.nested_absmax"] = _checked(
            f"{name}.weight.nested_absmax", part(".weight.nested_absmax"), [_core.float32], sizes
        )
        state[f"{name}.offset"] = _core.tensor(offset, dtype=_core.float32)
    replace_layer(
        model,
        name,
        _with_bias(linear, made(inside, out, linear.bias is not None, nested, device="meta")),
    )
    return state


def _same_table(what, tensor, table):
    _checked(what, tensor, [_core.float32], table.shape)
    if max(abs(a - b) for a, b in zip(tensor.tolist(), table.tolist(), strict=True)) > 1e-6:
        raise ValueError(
            f"from_pretrained: {what} is another table than bitsandbytes', which is the only one that is computed with"
        )


def _int8_layer(model, layers, name, facts, part):
    """LinearInt8 as bitsandbytes' Linear8bitLt is stored: rows of int8, and SCB."""
    linear = _layer(layers, name)
    out, inside = linear.out_features, linear.in_features
    weight = _checked(f"{name}.weight", part(".weight"), [_core.int8], [out, inside])
    scale = _checked(f"{name}{SCALE}", part(SCALE), [_core.float32], [out])
    if not bool(_core.isfinite(scale).all().item()) or bool((scale < 0).any().item()):
        raise ValueError(f"from_pretrained: {name}{SCALE} must be magnitudes of rows, got numbers that are none")
    made = _core._layer_LinearInt8(
        inside, out, linear.bias is not None, facts.get("dynamic", False), facts.get("unit", INT8_UNIT), device="meta"
    )
    replace_layer(model, name, _with_bias(linear, made))
    return {f"{name}.weight": weight, f"{name}{SCALE}": scale}


def _float8_layer(model, layers, name, dynamic, part):
    linear = _layer(layers, name)
    out, inside = linear.out_features, linear.in_features
    weight = _checked(f"{name}.weight", part(".weight"), [getattr(_core, t) for t in FLOAT8], [out, inside])
    scale = part(".scale")
    per_row = scale.ndim > 0
    _checked(f"{name}.scale", scale, [_core.float32], [out, 1] if per_row else [])
    made = _core._layer_LinearFP8(inside, out, linear.bias is not None, per_row, dynamic, weight.dtype, device="meta")
    replace_layer(model, name, _with_bias(linear, made))
    return {f"{name}.weight": weight, f"{name}.scale": scale}


def _gguf_layer(model, layers, name, format, part):
    layer = _layer(layers, name)
    row = layer.in_features if type(layer) is _core._layer_Linear else layer.weight.numel()
    if _core._fitting_gguf_blocks(format, row) != format:
        raise ValueError(f"from_pretrained: {name}: rows of {row} numbers are no whole blocks of {format}")
    made = gguf_layer(layer, format, device="meta")
    shape = list(made.weight.shape)
    replace_layer(model, name, made)
    return {f"{name}.weight": _checked(f"{name}.weight", part(".weight"), [_core.uint8], shape)}


def _with_bias(linear, quantized):
    if linear.bias is not None:
        quantized.bias = linear.bias
    return quantized
