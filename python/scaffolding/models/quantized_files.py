"""Folders of models whose linear layers are quantised. NF4 has the names and the metadata that bitsandbytes gives a
Linear4bit and diffusers and transformers save: X.weight, X.weight.absmax, .quant_map, .nested_absmax, .nested_quant_map
and a JSON text as bytes, .quant_state.bitsandbytes__nf4. Of float8 and of GGUF's formats,
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
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_tables = {}


def tables():
    """The numbers of NF4's 16 codes and of the 256 that magnitudes are compressed to."""
    if not _tables:
        codes = _core.arange(0, 256, dtype=_core.uint8)
        _tables["nested"] = _core.dequantize_blockwise(codes, _core.ones(1), blocksize=256)
        pairs = _core.tensor([(2 * i) << 4 | (2 * i + 1) for i in range(8)], dtype=_core.uint8)
        _tables["nf4"] = _core.dequantize_nf4(pairs, _core.ones(1), (16,), dtype=_core.float32)
    return _tables["nf4"], _tables["nested"]


def layers_of(model):
    """The quantised layers by name."""
    kinds = _core._layer_LinearNF4, _core._layer_LinearFP8, _core._layer_LinearGGUF, _core._layer_Conv2dGGUF
    return {name: m for name, m in model.named_modules() if name and isinstance(m, kinds)}


# ---- writing


def save(model, folder, variant, safe_serialization, max_shard_size):
    if not safe_serialization:
        raise ValueError("save_pretrained: quantised weights are saved as safetensors; pass safe_serialization=True")
    layers = layers_of(model)
    tables = [name for name, m in model.named_modules() if isinstance(m, _core._layer_EmbeddingGGUF)]
    if tables:
        raise NotImplementedError(f"save_pretrained: {tables[0]!r} is a table in blocks, which no folder's format has")
    of_nf4 = {name for name, m in layers.items() if isinstance(m, _core._layer_LinearNF4)}
    if of_nf4 and len(of_nf4) < len(layers):
        raise ValueError(
            f"save_pretrained: layers in NF4 and others have no common file format, got {len(of_nf4)} of "
            f"{len(layers)} layers in NF4"
        )
    state = dict(model.state_dict())
    for name in of_nf4:
        state |= nf4_entries(state, name, layers[name], model.dtype)
    config = json.loads(model.to_json_string())
    config["quantization_config"] = _nf4_config(model, layers) if of_nf4 else _float8_config(layers)
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
    table, nested_table = tables()
    facts = {
        "quant_type": "nf4",
        "blocksize": BLOCK,
        "dtype": str(dtype).removeprefix("scaffolding."),
        "shape": [layer.out_features, layer.in_features],
    }
    entries = {f"{name}.weight.absmax": absmax, f"{name}.weight.quant_map": table}
    if nested is not None:
        facts |= {"nested_blocksize": NESTED_BLOCK, "nested_dtype": "float32", "nested_offset": offset.item()}
        entries |= {f"{name}.weight.nested_absmax": nested, f"{name}.weight.nested_quant_map": nested_table}
    return entries | {name + STATE: _core.tensor(list(json.dumps(facts).encode()), dtype=_core.uint8)}


def _nf4_config(model, layers):
    nested = any(m.compress_statistics for m in layers.values())
    kept = [name for name, m in model.named_modules() if type(m) is _core._layer_Linear]
    return {
        "_load_in_4bit": True, "_load_in_8bit": False, "load_in_4bit": True, "load_in_8bit": False,
        "quant_method": "bitsandbytes", "bnb_4bit_compute_dtype": str(model.dtype).removeprefix("scaffolding."),
        "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": nested,
        "llm_int8_enable_fp32_cpu_offload": False, "llm_int8_has_fp16_weight": False,
        "llm_int8_skip_modules": kept or None, "llm_int8_threshold": 6.0,
    }  # fmt: skip


def _float8_config(layers):
    def facts(layer):
        return (
            {"dynamic": bool(layer.dynamic)} if isinstance(layer, _core._layer_LinearFP8) else {"format": layer.format}
        )

    return {"quant_method": "scaffolding", "layers": {name: facts(m) for name, m in sorted(layers.items())}}


# ---- reading


def load(model, config, folder, subfolder, variant, torch_dtype, use_safetensors, device, overrides):
    """Makes `model`, of a folder whose config.json, `config`, has a quantization_config, in eval mode."""
    config = dict(config)
    how = config.pop("quantization_config")
    config.pop("_use_default_values", None)
    where = os.path.join(folder, subfolder, "config.json")
    dynamic = _float8_layers(how, where)
    _models.make(model, model._class_name, {**config, **overrides}, empty=True)
    path = _models.find_weights(model, folder, subfolder, variant, use_safetensors)
    file = _core._open_checkpoint(path)
    entries = {}
    for name in file.keys():
        if key := _models.current_key(model, name):
            entries[key] = name
    layers = {name: m for name, m in model.named_modules() if type(m) in (_core._layer_Linear, _core._layer_Conv2d)}
    state = {}
    if dynamic is None:
        for key in [key for key in entries if key.endswith(STATE)]:
            name = key.removesuffix(STATE)
            state |= _nf4_layer(model, layers, name, lambda part, name=name: _tensor(file, entries, path, name + part))
    else:
        for name in dynamic:
            read = _float8_layer if isinstance(dynamic[name], bool) else _gguf_layer
            state |= read(
                model, layers, name, dynamic[name], lambda part, name=name: _tensor(file, entries, path, name + part)
            )
    used = {".weight.absmax", ".weight.quant_map", ".weight.nested_absmax", ".weight.nested_quant_map", STATE}
    taken = {
        name + part for name, m in layers_of(model).items() if isinstance(m, _core._layer_LinearNF4) for part in used
    }
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


def _float8_layers(how, where):
    """{layer: whether it quantises its input} of a config that says float8, {layer: its format} of GGUF's formats; None
    for one of NF4.
    NotImplementedError for others.
    """
    method = how.get("quant_method") if isinstance(how, dict) else None
    if method == "bitsandbytes":
        if how.get("load_in_4bit", how.get("_load_in_4bit")) is not True or how.get("bnb_4bit_quant_type") != "nf4":
            raise NotImplementedError(
                f"from_pretrained: {where}: of bitsandbytes' formats NF4 is read, not "
                f"{how.get('bnb_4bit_quant_type', 'eight bits')}"
            )
        if how.get("bnb_4bit_quant_storage", "uint8") != "uint8":
            raise NotImplementedError(
                f"from_pretrained: {where}: bnb_4bit_quant_storage must be uint8, got {how['bnb_4bit_quant_storage']!r}"
            )
        return None
    if method != "scaffolding":
        raise NotImplementedError(
            f"from_pretrained: {where}: quant_method must be bitsandbytes or scaffolding, got {method!r}"
        )
    layers = how.get("layers")
    if not isinstance(layers, dict) or not all(
        isinstance(v, dict) and (isinstance(v.get("dynamic"), bool) or v.get("format") in _core._gguf_blocks())
        for v in layers.values()
    ):
        raise ValueError(
            f'from_pretrained: {where}: quantization_config.layers must be {{name: {{"dynamic": bool}}}} or '
            f'{{name: {{"format": {" or ".join(_core._gguf_blocks())}}}}}'
        )
    return {name: v["format"] if "format" in v else v["dynamic"] for name, v in layers.items()}


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


def nf4_facts(name, text, out_features, in_features):
    """What a layer's JSON says, checked against the layer: {nested, offset}."""
    try:
        facts = json.loads(bytes(text.tolist()))
    except (ValueError, RecursionError):
        facts = None
    where = f"from_pretrained: {name}{STATE}"
    if not isinstance(facts, dict):
        raise ValueError(f"{where} is no JSON object")
    for key, want in {"quant_type": "nf4", "blocksize": BLOCK, "shape": [out_features, in_features]}.items():
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


def _nf4_layer(model, layers, name, part):
    """Replaces a Linear by LinearNF4; returns its buffers as entries of a state dict, and marks the file's as used."""
    linear = _layer(layers, name)
    out, inside = linear.out_features, linear.in_features
    text = part(STATE)
    if text.dtype != _core.uint8 or text.ndim != 1 or text.numel() > 1 << 16:
        raise ValueError(
            f"from_pretrained: {name}{STATE} must be bytes of a JSON text, got {text.dtype} {list(text.shape)}"
        )
    nested, offset = nf4_facts(name, text, out, inside)
    blocks = -(-out * inside // BLOCK)
    table, nested_table = tables()
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
        _with_bias(linear, _core._layer_LinearNF4(inside, out, linear.bias is not None, nested, device="meta")),
    )
    return state


def _same_table(what, tensor, table):
    _checked(what, tensor, [_core.float32], table.shape)
    if max(abs(a - b) for a, b in zip(tensor.tolist(), table.tolist(), strict=True)) > 1e-6:
        raise ValueError(
            f"from_pretrained: {what} is another table than NF4's, which is the only one that is computed with"
        )


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
