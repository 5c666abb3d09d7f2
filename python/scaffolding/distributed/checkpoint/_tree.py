"""A state dict as named leaves and back: nested dicts and lists of tensors, of Rows, and of plain values."""

from ... import _core


class Rows:
    """The rows of a tensor that this process holds: `tensor` is rows `first`, first + 1, ... of one with `total` rows.

    tensor: [n, ...] with n of 0 to total - first; the other processes hold the other rows, each row in one of them.

    >>> rows = sf.distributed.checkpoint.Rows(sf.ones(2, 4), first=0, total=2)
    >>> path = sf.distributed.checkpoint.save({"table": rows}, "checkpoint")
    """

    def __init__(self, tensor, first, total):
        if not isinstance(tensor, _core.Tensor) or tensor.dim() < 1:
            raise TypeError(f"Rows: tensor must be a Tensor of one dimension or more, got {tensor!r}")
        if not 0 <= first <= first + tensor.shape[0] <= total:
            raise ValueError(
                f"Rows: {tensor.shape[0]} rows from {first} on must lie within the {total} rows of the whole tensor"
            )
        self.tensor, self.first, self.total = tensor, int(first), int(total)

    def __repr__(self):
        return f"Rows({self.first} to {self.first + self.tensor.shape[0]} of {self.total}, {self.tensor.dtype})"


def is_tensor(value):
    return isinstance(value, (_core.Tensor, Rows))


def _has_tensor(value):
    if isinstance(value, dict):
        return any(map(_has_tensor, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_has_tensor, value))
    return is_tensor(value)


def leaves(state):
    """{name: (path, value)}, names being the path's keys with dots between. A path has str and int keys of dicts, and
    [i] for the places of lists. Lists without a tensor are values, as are empty dicts.
    """
    out = {}

    def add(path, value):
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                if type(key) not in (str, int):
                    raise TypeError(
                        f"checkpoint: keys must be str or int, got {key!r} in {name_of(path) or 'the dict'}"
                    )
                add((*path, key), inner)
        elif isinstance(value, (list, tuple)) and _has_tensor(value):
            for i, inner in enumerate(value):
                add((*path, [i]), inner)
        else:
            name = name_of(path)
            if name in out:
                raise ValueError(f"checkpoint: two entries have the name {name!r}; keys must differ without dots too")
            out[name] = (path, value)

    if not isinstance(state, dict):
        raise TypeError(f"checkpoint: state_dict must be a dict, got {type(state).__name__}")
    for key, value in state.items():
        if type(key) not in (str, int):
            raise TypeError(f"checkpoint: keys must be str or int, got {key!r}")
        add((key,), value)
    return out


def name_of(path):
    return ".".join(str(key[0] if isinstance(key, list) else key) for key in path)


def put(state, path, value):
    """Sets a leaf of the dict that leaves() was given."""
    for key in path[:-1]:
        state = state[key[0] if isinstance(key, list) else key]
    last = path[-1][0] if isinstance(path[-1], list) else path[-1]
    if isinstance(state, tuple):
        raise TypeError(f"checkpoint: {name_of(path)!r} is in a tuple, which cannot be changed; use a list")
    state[last] = value


def built(entries):
    """A new state dict of (path, value); places of lists come in any order, and are all there."""
    root = {}
    for path, value in entries:
        at = root
        for key in path[:-1]:
            at = at.setdefault(tuple(key) if isinstance(key, list) else key, {})
        at[tuple(path[-1]) if isinstance(path[-1], list) else path[-1]] = value

    def finish(node, is_root=False):
        if type(node) is not dict or (not is_root and not node):
            return node
        if node and all(isinstance(key, tuple) for key in node):
            return [finish(node[key]) for key in sorted(node)]
        return {key: finish(value) for key, value in node.items()}

    return finish(root, True)
