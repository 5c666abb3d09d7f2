"""Hooks of modules. Those of a module are in one dict by kind, module._hooks;
a module without hooks has none and is called without this file.
"""

import weakref
from collections import OrderedDict

from .. import _core
from ..autograd.function import Function


class RemovableHandle:
    """Takes a hook off again: handle.remove(), or the end of a with block. Does not keep the module."""

    _last_id = 0

    def __init__(self, module, kind, hooks):
        RemovableHandle._last_id += 1
        self.id = RemovableHandle._last_id
        self._at = (weakref.ref(module), kind, hooks)

    def remove(self):
        """Takes the hook off; does nothing the second time."""
        if self._at is None:
            return
        (module, kind, hooks), self._at = self._at, None
        hooks.pop(self.id, None)
        table = getattr(module(), "_hooks", None)
        if not hooks and table is not None and table.get(kind) is hooks:
            del table[kind]
            if not table:
                module()._hooks = None  # it is called directly again

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


def register(module, kind, hook, prepend=False, with_kwargs=False, always_call=False):
    """Adds a hook of a kind: forward_pre, forward, backward_pre or backward."""
    if not callable(hook):
        raise TypeError(f"register_{kind}_hook: hook must be callable, got {type(hook).__name__}")
    table = module._hooks
    if table is None:
        table = module._hooks = {}
    hooks = table.setdefault(kind, OrderedDict())
    handle = RemovableHandle(module, kind, hooks)
    hooks[handle.id] = (hook, with_kwargs, always_call)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _entries(module, kind):
    hooks = (module._hooks or {}).get(kind)
    return list(hooks.values()) if hooks else []


def call(module, *args, **kwargs):
    """module(*args, **kwargs) with its hooks."""
    done = set()
    try:
        args, kwargs = _before(module, args, kwargs)
        boundary = None
        if module._hooks and ("backward" in module._hooks or "backward_pre" in module._hooks):
            boundary = _Boundary(module)
            args = boundary.watch_inputs(args)
        output = _core._call_forward(module, args, kwargs)
        for entry in _entries(module, "forward"):
            done.add(id(entry))
            output = _run(module, entry, args, kwargs, output)
        return output if boundary is None else boundary.watch_outputs(output)
    except Exception:
        for entry in _entries(module, "forward"):
            if entry[2] and id(entry) not in done:
                _run(module, entry, args, kwargs, None)
        raise


def _before(module, args, kwargs):
    for hook, with_kwargs, _ in _entries(module, "forward_pre"):
        if with_kwargs:
            changed = hook(module, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(
                        f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                    )
                args, kwargs = changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


def _run(module, entry, args, kwargs, output):
    hook, with_kwargs, _ = entry
    changed = hook(module, args, kwargs, output) if with_kwargs else hook(module, args, output)
    return output if changed is None else changed


_core._set_hooked_call(call)


# ---- full backward hooks: an identity on each side of the module tells when its gradients pass


class _Watch(Function):
    @staticmethod
    def forward(ctx, passing, *tensors):
        ctx.passing = passing
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        return (None, *ctx.passing(grads))


class _Boundary:
    """Collects the gradients of one call of a module and runs its backward hooks."""

    def __init__(self, module):
        self.module = module
        self.inputs = None  # where tensors with gradients stand among the arguments, and how many arguments there are
        self.outputs = None
        self.grad_output = None

    def _watch(self, items, passing):
        places = [i for i, x in enumerate(items) if isinstance(x, _core.Tensor) and x.requires_grad]
        items = list(items)
        if places:
            for i, tensor in zip(places, _Watch.apply(passing, *[items[i] for i in places])):
                items[i] = tensor
        return items, (places, len(items))

    def watch_inputs(self, args):
        args, self.inputs = self._watch(args, self._at_inputs)
        return tuple(args)

    def watch_outputs(self, output):
        several = isinstance(output, (tuple, list))
        items, self.outputs = self._watch(output if several else (output,), self._at_outputs)
        return type(output)(items) if several else items[0]

    @staticmethod
    def _spread(places, grads):
        indices, count = places
        row = [None] * count
        for i, g in zip(indices, grads):
            row[i] = g
        return tuple(row)

    def _replaced(self, grads, changed, what):
        changed = changed if isinstance(changed, tuple) else (changed,)
        if len(changed) != len(grads):
            raise RuntimeError(
                f"Backward hook returned an invalid number of {what}, got {len(changed)}, but expected {len(grads)}"
            )
        return changed

    def _at_outputs(self, grads):
        grad_output = self._spread(self.outputs, grads)
        for hook, _, _ in _entries(self.module, "backward_pre"):
            changed = hook(self.module, grad_output)
            if changed is not None:
                grad_output = self._replaced(grad_output, changed, "grad_output")
        self.grad_output = grad_output
        if not self.inputs[0]:  # no input needs a gradient: there is nothing later to wait for
            self._run((None,) * self.inputs[1])
        return [grad_output[i] for i in self.outputs[0]]

    def _at_inputs(self, grads):
        grad_input = self._run(self._spread(self.inputs, grads))
        return [grad_input[i] for i in self.inputs[0]]

    def _run(self, grad_input):
        for hook, _, _ in _entries(self.module, "backward"):
            changed = hook(self.module, grad_input, self.grad_output)
            if changed is not None:
                grad_input = self._replaced(grad_input, changed, "grad_input")
        return grad_input
