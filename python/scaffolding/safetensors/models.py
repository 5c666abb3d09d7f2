"""Modules in safetensors files, and tensors that several names of a module share."""

from . import safe_open, save_file


def save_model(model, filename, metadata=None, force_contiguous=True):
    """Writes a module's state_dict. Of tensors that are one (tied weights) the first name is written; the others are
    named in the metadata with it. force_contiguous is the other package's: tensors are always written row-major.

    >>> sf.safetensors.save_model(nn.Linear(4, 2), "layer.safetensors")
    >>> sorted(sf.safetensors.load_file("layer.safetensors"))
    ['bias', 'weight']
    """
    names, kept, metadata = {}, {}, dict(metadata or {})
    for name, tensor in sorted(model.state_dict().items()):
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if tensor.numel() and place in names:
            metadata[name] = names[place]
        else:
            names[place] = name
            kept[name] = tensor
    save_file(kept, filename, metadata)


def load_model(model, filename, strict=True, device="cpu"):
    """Loads what save_model wrote into a module. Returns the names that the file lacks and those that the module lacks;
    with strict, RuntimeError names them instead.

    >>> sf.safetensors.save_model(nn.Linear(4, 2), "layer.safetensors")
    >>> sf.safetensors.load_model(nn.Linear(4, 2), "layer.safetensors")
    ([], [])
    """
    with safe_open(filename, framework="pt", device=device) as f:
        state = {name: f.get_tensor(name) for name in f.keys()}
        tied = {name for name, kept in (f.metadata() or {}).items() if kept in state}
    result = model.load_state_dict(state, strict=False)
    missing, unexpected = sorted(set(result.missing_keys) - tied), sorted(result.unexpected_keys)
    if strict and (missing or unexpected):
        raise RuntimeError(
            f"load_model: {filename} lacks {missing} and has {unexpected}, which the module does not have; pass "
            "strict=False to accept that"
        )
    return missing, unexpected
