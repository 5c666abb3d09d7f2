"""Frozen layers whose weights take two to eight bits."""

from .. import _core

_FORMATS = ("nf4", "fp4", "int8", "float8_e4m3fn", "float8_e5m2")


def quantize_(
    model,
    dtype="nf4",
    filter_fn=None,
    *,
    compress_statistics=True,
    per_row=True,
    dynamic=False,
    rules=None,
    convolutions=True,
):
    """Replaces layers of a model, in place, by ones whose weights stay in two to eight bits; returns the model.

    dtype: "nf4", "fp4", "int8", or float8_e4m3fn or float8_e5m2 (names or dtypes): linear layers become LinearNF4,
    LinearFP4, LinearInt8 or LinearFP8. Or
    the name of a GGUF format, as "q8_0" or "q4_K": linear layers become LinearGGUF and, with convolutions, Conv2d
    becomes Conv2dGGUF; rows that do not fit its blocks of 256 take the next format of 32 with no fewer bits. What
    models need wide stays so then (time embeddings, first and last layers, modulation, autoencoders), and rules,
    {pattern: format or None}, say otherwise: the last one that fits a layer's name counts, * stands for any text.
    filter_fn(module, name): False keeps a layer as it is; without one all are replaced, but for those whose weight
    another module shares. compress_statistics: NF4's and FP4's magnitudes of blocks in eight bits. per_row: see
    LinearFP8. dynamic: the input is quantised too: of float8 and int8 by rows, of GGUF's formats to int8 by blocks, in
    linear layers; of int8 with convolutions, Conv2d becomes Conv2dInt8 besides, whose samples are quantised, but for
    the first and last.

    The weights are frozen: gradients go to inputs and biases. Convert the model to 16 bits before, not after: what is
    quantised must keep its dtypes. LoRAs of the model stay beside it. `save_pretrained` writes what `from_pretrained`
    reads, NF4 under bitsandbytes' names. TypeError for another dtype, ValueError where no layer is replaced, or where
    one of a part of a model has LoRAs.

    >>> unet = scaffolding.nn.quantize_(unet.to(scaffolding.bfloat16), "nf4")
    """
    format = str(dtype).removeprefix("scaffolding.")
    blocks = {name.lower(): name for name in _core._gguf_blocks()}
    if format.lower() in blocks:
        return _in_blocks(model, blocks[format.lower()], filter_fn, rules or {}, convolutions, dynamic)
    if format not in _FORMATS:
        raise TypeError(f"quantize_: dtype must be one of {', '.join((*_FORMATS, *blocks.values()))}, got {dtype!r}")
    if rules is not None:
        raise ValueError(f"quantize_: rules are for GGUF's formats, got {format}; choose layers by filter_fn")
    linear, fp8 = _core._layer_Linear, _core._layer_LinearFP8
    four = {"nf4": _core._layer_LinearNF4, "fp4": _core._layer_LinearFP4}
    users, parameters = _users(model)
    chosen = [
        (name, module)
        for name, module in model.named_modules()
        if (type(module) is linear or (format == "int8" and dynamic and convolutions and _as_int8(name, module)))
        and name
        and users[id(module.weight)] == 1
        and (filter_fn is None or filter_fn(module, name))
    ]
    if not chosen:
        raise ValueError(f"quantize_: {type(model).__name__} has no Linear to replace")
    put_back = _adapters_of(model, chosen)
    for name, module in chosen:
        if type(module) is not linear:
            replace_layer(model, name, _int8_convolution(module))
            continue
        has_bias, place = module.bias is not None, {"device": module.weight.device, "dtype": module.weight.dtype}
        weight = module.weight.detach()
        sizes = module.in_features, module.out_features, has_bias
        if format in four:
            quantized = four[format](*sizes, compress_statistics, **place, _weight=weight)
        elif format == "int8":
            quantized = _core._layer_LinearInt8(*sizes, dynamic, **place, _weight=weight)
        else:
            quantized = fp8(*sizes, per_row, dynamic, getattr(_core, format), **place, _weight=weight)
        if has_bias:
            quantized.bias = module.bias
        replace_layer(model, name, quantized)
    if put_back is not None:
        put_back()
    return model


def _as_int8(name, module):
    """Whether a layer is a convolution that int8 is for, and not of those that models need wide."""
    return (
        type(module) is _core._layer_Conv2d
        and module.groups == 1
        and module.padding_mode == "zeros"
        and bool(_core._quantized_format(name, module.weight.numel(), "int8", []))
    )


def _int8_convolution(module):
    made = _core._layer_Conv2dInt8(
        module.in_channels, module.out_channels, module.kernel_size, module.stride, module.padding, module.dilation,
        module.groups, module.bias is not None, module.padding_mode, True, device=module.weight.device,
        dtype=module.weight.dtype, _weight=module.weight.detach(),
    )  # fmt: skip
    if module.bias is not None:
        made.bias = module.bias
    return made


def _users(model):
    """How often each parameter is one of the model, by id; and the parameters: who is not held gives its id away."""
    users, parameters = {}, list(model.named_parameters(remove_duplicate=False))
    for _, parameter in parameters:
        users[id(parameter)] = users.get(id(parameter), 0) + 1
    return users, parameters


def _adapters_of(model, chosen):
    """What puts LoRAs back beside a model's layers, or None."""
    put_back = getattr(model, "_refresh_adapters", None)
    adapted = [name for name, module in chosen if _core._has_adapter(module)]
    if adapted and put_back is None:
        raise ValueError(f"quantize_: {adapted[0]} has LoRAs beside it; quantise the whole model, or before they come")
    return put_back


def _in_blocks(model, format, filter_fn, rules, convolutions, dynamic):
    """quantize_ for GGUF's formats."""
    own = [(pattern, f or "") for pattern, f in rules.items()]
    users, parameters = _users(model)
    chosen = []
    for name, module in model.named_modules():
        kind = type(module)
        if kind is not _core._layer_Linear and not (convolutions and kind is _core._layer_Conv2d):
            continue
        if not name or users[id(module.weight)] != 1 or (filter_fn is not None and not filter_fn(module, name)):
            continue
        wanted = _core._quantized_format(name, module.weight.numel(), format, own)
        row = module.in_features if kind is _core._layer_Linear else module.weight.numel()
        fit = _core._fitting_gguf_blocks(wanted, row) if wanted else None
        if fit is not None:
            chosen.append((name, module, fit))
    if not chosen:
        raise ValueError(f"quantize_: {type(model).__name__} has no Linear or Conv2d to replace")
    put_back = _adapters_of(model, [(name, module) for name, module, _ in chosen])
    for name, module, fit in chosen:
        replace_layer(model, name, gguf_layer(module, fit, module.weight.detach(), dynamic))
    if put_back is not None:
        put_back()
    return model


def gguf_layer(module, format, weight, dynamic):
    """The layer that stands for a Linear or Conv2d, with its bias and this weight."""
    place = {"device": module.weight.device, "dtype": module.weight.dtype, "_weight": weight}
    if type(module) is _core._layer_Linear:
        made = _core._layer_LinearGGUF(
            module.in_features, module.out_features, module.bias is not None, format, dynamic, **place
        )
    else:
        made = _core._layer_Conv2dGGUF(
            module.in_channels, module.out_channels, module.kernel_size, module.stride, module.padding,
            module.dilation, module.groups, module.bias is not None, module.padding_mode, format, **place,
        )  # fmt: skip
    if module.bias is not None:
        made.bias = module.bias
    return made


def replace_layer(model, name, quantized):
    """Puts a quantised layer in the place of the Linear of that name, whose weight is given up."""
    module = model.get_submodule(name)
    quantized.train(module.training)
    _core._take_adapter_off(module)
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, quantized)
    # A C++ model keeps its own layer beneath the one that is called now.
    module.weight.data = _core.empty(0, device=module.weight.device, dtype=module.weight.dtype)
