"""swap_in_optimizer_params_and_state: an optimizer works on other tensors for a while."""

from collections import defaultdict
from contextlib import contextmanager

from .._core import Tensor


def _wrong(what):
    return RuntimeError(f"swap_in_optimizer_params_and_state: {what}")


def _checked_groups(optimizer, parameters, saved):
    """[(group, saved group, its tensors)]; RuntimeError where saved is not this optimizer's state_dict()."""
    if not optimizer.state:
        raise _wrong("the optimizer has no state yet; take a step or load one")
    if not (isinstance(saved, dict) and isinstance(saved.get("state"), dict)):
        raise _wrong("swapin_optim_state must be a state_dict() with a dict as 'state'")
    groups = saved.get("param_groups")
    if not isinstance(groups, list) or len(groups) != len(optimizer.param_groups):
        raise _wrong(f"'param_groups' must be a list of the optimizer's {len(optimizer.param_groups)} groups")
    tensors, at, numbers, checked = list(parameters.values()), 0, set(), []
    for i, (group, other) in enumerate(zip(optimizer.param_groups, groups)):
        ids = other.get("params") if isinstance(other, dict) else None
        if not (isinstance(ids, list) and all(type(n) is int for n in ids)):
            raise _wrong(f"'params' of group {i} must be a list of numbers, as state_dict() gives it")
        if len(ids) != len(group["params"]):
            raise _wrong(f"group {i} has {len(ids)} params, the optimizer's {len(group['params'])}")
        if set(other) != set(group):
            raise _wrong(f"group {i} has other options than the optimizer's: {sorted(set(other) ^ set(group))}")
        its = tensors[at : at + len(ids)]
        if len(its) != len(ids) or not all(isinstance(t, Tensor) for t in its):
            raise _wrong(f"swapin_parameters must be tensors in the groups' order; group {i} needs {len(ids)} of them")
        at += len(ids)
        numbers.update(ids)
        checked.append((group, other, its))
    if at != len(tensors):
        raise _wrong(f"swapin_parameters has {len(tensors)} tensors, the groups {at}")
    for key, value in saved["state"].items():
        if key not in numbers or not isinstance(value, dict):
            raise _wrong(f"'state' must have dicts by the numbers in 'params', found {key!r}: {type(value).__name__}")
    return checked


@contextmanager
def swap_in_optimizer_params_and_state(optimizer, swapin_parameters, swapin_optim_state):
    """Inside the block the optimizer, its hooks included, works on other parameters, options and state; afterwards it
    is as it was, also after an error.

    swapin_parameters: {name: tensor} in the order of the optimizer's parameters. swapin_optim_state: what its
    state_dict() gives, for these tensors; tensors in it change in place, anything else that the block does to the
    optimizer is forgotten. RuntimeError, before anything is swapped, where it is not of this optimizer's form.

    >>> w = sf.ones(2, requires_grad=True)
    >>> optimizer = optim.SGD([w], lr=0.1, momentum=0.9)
    >>> w.sum().backward()
    >>> optimizer.step()
    >>> copy = sf.zeros(2, requires_grad=True)
    >>> with optim.swap_in_optimizer_params_and_state(optimizer, {"w": copy}, optimizer.state_dict()):
    ...     copy.sum().backward()
    ...     optimizer.step()
    >>> copy.data, w.data
    (tensor([-0.1900, -0.1900]), tensor([0.9000, 0.9000]))
    """
    checked = _checked_groups(optimizer, swapin_parameters, swapin_optim_state)
    before = optimizer.param_groups, optimizer.state
    options = [dict(group) for group in optimizer.param_groups]
    try:
        state = defaultdict(dict)
        for group, saved, tensors in checked:
            group.update(saved, params=tensors)
            for number, tensor in zip(saved["params"], tensors):
                state[tensor] = dict(swapin_optim_state["state"].get(number, {}))
        optimizer.state = state
        yield
    finally:
        optimizer.param_groups, optimizer.state = before
        for group, its in zip(optimizer.param_groups, options):
            group.clear()
            group.update(its)
