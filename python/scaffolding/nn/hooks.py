"""Hooks of modules. Those of a module are in one dict by kind, module._hooks; a module without hooks has none and is called without this file."""

from collections import OrderedDict

from .. import _core


class RemovableHandle:
    """Takes a hook off again: handle.remove(), or the end of a with block."""

    _last_id = 0

    def __init__(self, hooks, on_removed=None):
        RemovableHandle._last_id += 1
        self.id = RemovableHandle._last_id
        self._hooks = hooks
        self._on_removed = on_removed

    def remove(self):
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.pop(self.id, None)
            if self._on_removed:
                self._on_removed()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


_global = {}  # hooks of every module, by kind


def _add(table, kind, entry, prepend, on_removed=None):
    hooks = table.setdefault(kind, OrderedDict())
    handle = RemovableHandle(hooks, on_removed)
    hooks[handle.id] = entry
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register(module, kind, hook, prepend=False, with_kwargs=False, always_call=False):
    if not callable(hook):
        raise TypeError(f"register_{kind}_hook: hook must be callable, got {type(hook).__name__}")
    table = module._hooks
    if table is None:
        table = module._hooks = {}
    return _add(table, kind, (hook, with_kwargs, always_call), prepend)


def register_global(kind, hook, always_call=False):
    def removed():
        _core._set_global_module_hooks(any(_global.values()))

    handle = _add(_global, kind, (hook, False, always_call), False, removed)
    _core._set_global_module_hooks(True)
    return handle


def _entries(module, kind):
    own = module._hooks
    entries = list(_global.get(kind, {}).values())
    if own and own.get(kind):
        entries += own[kind].values()
    return entries


def _run_forward_hooks(module, entries, args, kwargs, output):
    for hook, with_kwargs, _ in entries:
        changed = hook(module, args, kwargs, output) if with_kwargs else hook(module, args, output)
        if changed is not None:
            output = changed
    return output


def call(module, *args, **kwargs):
    """module(*args, **kwargs) with its hooks."""
    for hook, with_kwargs, _ in _entries(module, "forward_pre"):
        if with_kwargs:
            changed = hook(module, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
                args, kwargs = changed
        else:
            changed = hook(module, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
    entries = _entries(module, "forward")
    try:
        output = _core._call_forward(module, args, kwargs)
        return _run_forward_hooks(module, entries, args, kwargs, output)
    except Exception:
        for entry in entries:
            if entry[2]:
                _run_forward_hooks(module, [entry], args, kwargs, None)
        raise


_core._set_hooked_call(call)
