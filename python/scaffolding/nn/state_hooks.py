"""Hooks around state_dict and load_state_dict, in torch's order.

They are in module._hooks with the others (hooks.py); a model without any is walked in C++ alone.
"""

from collections import OrderedDict

from .. import _core

SAVING = ("state_dict_pre", "state_dict")
LOADING = ("load_state_dict_pre", "load_state_dict_post")


def of(module, kind):
    """The hooks of a kind that one module has, itself."""
    return [hook for hook, *_ in (module._hooks or {}).get(kind, {}).values()]


def any_below(module, kinds):
    """Whether the module or one below it has hooks of these kinds."""
    return any(kind in m._hooks for m in module.modules() if m._hooks for kind in kinds)


def save(module, state, prefix, keep_vars):
    """Adds the module's tensors and those below it to `state`; returns what its hooks make of it."""
    for hook in of(module, "state_dict_pre"):
        hook(module, prefix, keep_vars)
    if not any_below(module, SAVING):
        state.update(_core._state_dict(module, prefix, keep_vars))
        return state
    own = _core._state_dict(module, prefix, keep_vars)
    state.update((name, t) for name, t in own.items() if "." not in name[len(prefix) :])
    for name, child in module._modules.items():
        if child is not None:
            state = save(child, state, f"{prefix}{name}.", keep_vars)
    for hook in of(module, "state_dict"):
        changed = hook(module, state, prefix, {"version": module._version})
        if changed is not None:
            if getattr(hook, "_from_public_api", False):
                raise RuntimeError("state_dict post-hook must return None")
            state = changed
    return state


def before_loading(module, state_dict, strict):
    """A copy of `state_dict` as the hooks before loading leave it; a module's hooks see the keys that begin with its
    path. RuntimeError for what they list as errors."""
    state, errors = OrderedDict(state_dict), []
    for path, m in module.named_modules(remove_duplicate=False):
        prefix = path + "." if path else ""
        for hook in of(m, "load_state_dict_pre"):
            part = OrderedDict((k, v) for k, v in state.items() if k.startswith(prefix))
            for name in part:
                del state[name]
            hook(m, part, prefix, {"version": m._version}, strict, [], [], errors)
            state.update(part)
    if errors:
        raise RuntimeError(f"Error(s) in loading state_dict for {module._get_name()}:\n\t" + "\n\t".join(errors))
    return state


def after_loading(module, keys, strict):
    """Hooks after loading may take names off keys.missing_keys and keys.unexpected_keys;
    what is left is an error where strict.
    """
    for m in reversed(list(module.modules())):  # children before their parents
        for hook in of(m, "load_state_dict_post"):
            if hook(m, keys) is not None:
                raise RuntimeError(
                    "Hooks registered with `register_load_state_dict_post_hook` are not expected to return new values"
                )
    if strict and (keys.missing_keys or keys.unexpected_keys):
        raise RuntimeError(_core._state_dict_errors(module, keys.missing_keys, keys.unexpected_keys))
