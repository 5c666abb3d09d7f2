"""The default generators of CUDA devices."""

from .. import _core
from .devices import device_count, device_index, is_available


def _generator(device):
    return _core._default_generator(_core.device("cuda", device_index(device)))


def manual_seed(seed):
    """Seeds the default generator of the current CUDA device with seed, a whole number; without a GPU nothing happens,
    as in torch."""
    if is_available():
        _generator(None).manual_seed(seed)


def manual_seed_all(seed):
    """Seeds the default generators of all CUDA devices with seed, a whole number."""
    for index in range(device_count()):
        _generator(index).manual_seed(seed)


def get_rng_state(device="cuda"):
    """The state of the default generator of a CUDA device (a number, a name or a device), a uint8 tensor on the CPU.
    Raises the reason where there is no such GPU.
    """
    return _generator(device).get_state()


def set_rng_state(new_state, device="cuda"):
    """Restores new_state, from get_rng_state, of a CUDA device."""
    _generator(device).set_state(new_state)


def get_rng_state_all():
    """The states of the default generators of all CUDA devices, a list."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states):
    """Restores new_states, from get_rng_state_all."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
