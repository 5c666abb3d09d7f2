"""Parameters that are computed from others. A layer written in C++ reads its own tensors: the value stands there only
while forward runs, so that walks of the module (parameters, state_dict) do not see it."""

from ... import _core


def take_out(module, name):
    """Takes a parameter or buffer away from its module and returns it."""
    tensor = getattr(module, name)
    if module._is_native and name in (
        *_core._member_names(module, "parameters"),
        *_core._member_names(module, "buffers"),
    ):
        _core._place_tensor(module, name, None)
        module._computed_members = (*module.__dict__.get("_computed_members", ()), name)
    else:
        delattr(module, name)
    return tensor


def put_back(module, name, tensor):
    """Gives a module its parameter (or buffer) again."""
    computed = module.__dict__.get("_computed_members", ())
    if name in computed:
        module._computed_members = tuple(n for n in computed if n != name)
        if not module._computed_members:
            del module._computed_members
        setattr(module, name, tensor)
    else:
        module.register_parameter(name, tensor)


def show(module, name, value):
    """The value as an attribute, and for a layer's forward."""
    module.__dict__[name] = value
    if name in module.__dict__.get("_computed_members", ()):
        _core._place_tensor(module, name, value)


def hide(module, name):
    """Takes the value from the layer again; the attribute stays."""
    if name in module.__dict__.get("_computed_members", ()):
        _core._place_tensor(module, name, None)


class ComputedBefore:
    """A pair of hooks that computes a member before each forward: compute(module) -> value."""

    def __init__(self, module, name, compute):
        self.name, self.compute = name, compute
        self.handles = [
            module.register_forward_pre_hook(self.before),
            module.register_forward_hook(self.after, always_call=True),
        ]

    def before(self, module, args):
        show(module, self.name, self.compute(module))

    def after(self, module, args, output):
        hide(module, self.name)

    def remove(self, module):
        """Takes the hooks and the attribute off."""
        for handle in self.handles:
            handle.remove()
        module.__dict__.pop(self.name, None)
