"""Frozen linear layers in four or eight bits."""

from .. import _core

_FORMATS = ("nf4", "float8_e4m3fn", "float8_e5m2")


def quantize_(model, dtype="nf4", filter_fn=None, *, compress_statistics=True, per_row=True, dynamic=False):
    """Replaces the linear layers of a model, in place, by LinearNF4 or LinearFP8, whose weights take a quarter or half
    of 16 bits; returns the model.

    dtype: "nf4", or float8_e4m3fn or float8_e5m2 (names or dtypes). filter_fn(module, name): False keeps a layer as it
    is; without one all are replaced, but for those whose weight another module shares. compress_statistics: NF4's
    magnitudes of blocks in eight bits. per_row, dynamic: see LinearFP8.

    The weights are frozen: gradients go to inputs and biases. Convert the model to 16 bits before, not after: what is
    quantised must keep its dtypes. LoRAs of the model stay beside it. `save_pretrained` writes what `from_pretrained`
    reads, NF4 under bitsandbytes' names. TypeError for another dtype, ValueError where no layer is replaced, or where
    one of a part of a model has LoRAs.

    >>> unet = scaffolding.nn.quantize_(unet.to(scaffolding.bfloat16), "nf4")
    """
    format = str(dtype).removeprefix("scaffolding.")
    if format not in _FORMATS:
        raise TypeError(f"quantize_: dtype must be one of {', '.join(_FORMATS)}, got {dtype!r}")
    linear, nf4, fp8 = _core._layer_Linear, _core._layer_LinearNF4, _core._layer_LinearFP8
    # held: an object that nobody holds gives its id away
    users, parameters = {}, list(model.named_parameters(remove_duplicate=False))
    for _, parameter in parameters:
        users[id(parameter)] = users.get(id(parameter), 0) + 1
    chosen = [
        (name, module)
        for name, module in model.named_modules()
        if type(module) is linear
        and name
        and users[id(module.weight)] == 1
        and (filter_fn is None or filter_fn(module, name))
    ]
    if not chosen:
        raise ValueError(f"quantize_: {type(model).__name__} has no Linear to replace")
    put_back = getattr(model, "_refresh_adapters", None)
    adapted = [name for name, module in chosen if _core._has_adapter(module)]
    if adapted and put_back is None:
        raise ValueError(f"quantize_: {adapted[0]} has LoRAs beside it; quantise the whole model, or before they come")
    for name, module in chosen:
        has_bias, place = module.bias is not None, {"device": module.weight.device, "dtype": module.weight.dtype}
        weight = module.weight.detach()
        sizes = module.in_features, module.out_features, has_bias
        if format == "nf4":
            quantized = nf4(*sizes, compress_statistics, **place, _weight=weight)
        else:
            quantized = fp8(*sizes, per_row, dynamic, getattr(_core, format), **place, _weight=weight)
        if has_bias:
            quantized.bias = module.bias
        replace_layer(model, name, quantized)
    if put_back is not None:
        put_back()
    return model


def replace_layer(model, name, quantized):
    """Puts a quantised layer in the place of the Linear of that name, whose weight is given up."""
    module = model.get_submodule(name)
    quantized.train(module.training)
    _core._take_adapter_off(module)
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, quantized)
    # A C++ model keeps its own layer beneath the one that is called now.
    module.weight.data = _core.empty(0, device=module.weight.device, dtype=module.weight.dtype)
