"""Exponential moving averages of weights, as diffusers.training_utils.EMAModel."""

import weakref
from copy import deepcopy

from .. import _core
from .._core import Tensor
from ..autograd.grad_mode import no_grad


def _check_decay(name, value):
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")


class _BeforeReplay:
    """Counts a replay, and writes its decay where the graph reads it."""

    def __init__(self, ema):
        self.ema, self.shadow = weakref.ref(ema), list(ema.shadow_params)

    def __call__(self):
        ema = self.ema()
        if ema is None or any(a is not b for a, b in zip(ema.shadow_params, self.shadow)):
            raise RuntimeError(
                "EMAModel: averages were loaded or moved since the graph was captured, which would go on with those "
                "before; capture again"
            )
        ema._advance()
        ema._weight_there.fill_(1 - ema.cur_decay_value)


# Of a state dict, what is no tensor.
_OPTIONS = ("decay", "min_decay", "optimization_step", "update_after_step", "use_ema_warmup", "inv_gamma", "power")


class EMAModel:
    """Shadow parameters that follow a model's: shadow += (1 - decay) * (parameter - shadow) after each step.

    The decay is (1 + step) / (10 + step), or 1 - (1 + step / inv_gamma) ** -power with use_ema_warmup, kept between
    min_decay and decay; 0 until update_after_step. Parameters that require no gradient are copied. foreach changes
    nothing: all tensors are always updated in one pass. model_cls and model_config serve save_pretrained and
    from_pretrained.

    >>> net = nn.Linear(2, 1)
    >>> ema = optim.EMAModel(net.parameters(), decay=0.99)
    >>> ema.step(net.parameters())  # after each optimizer.step()
    >>> ema.store(net.parameters()); ema.copy_to(net.parameters())  # to draw with the averages
    >>> ema.restore(net.parameters())
    """

    def __init__(
        self,
        parameters,
        decay=0.9999,
        min_decay=0.0,
        update_after_step=0,
        use_ema_warmup=False,
        inv_gamma=1.0,
        power=2 / 3,
        foreach=False,
        model_cls=None,
        model_config=None,
    ):
        if isinstance(parameters, Tensor) or hasattr(parameters, "parameters"):
            raise TypeError(
                "EMAModel: parameters must be an iterable of parameters (model.parameters()), got "
                f"{type(parameters).__name__}"
            )
        _check_decay("Decay", decay)
        _check_decay("min_decay", min_decay)
        parameters = list(parameters)
        if not parameters:
            raise ValueError("EMAModel got an empty parameter list")
        self.shadow_params = [p.detach().clone() for p in parameters]
        self.temp_stored_params = None
        self.decay = decay
        self.min_decay = min_decay
        self.update_after_step = update_after_step
        self.use_ema_warmup = use_ema_warmup
        self.inv_gamma = inv_gamma
        self.power = power
        self.optimization_step = 0
        self.cur_decay_value = None
        self._weight_there = None  # 1 - decay where captured steps read it
        self.foreach = foreach
        self.model_cls = model_cls
        self.model_config = model_config

    @classmethod
    def from_pretrained(cls, path, model_cls, foreach=False):
        """The averages saved by save_pretrained: of models, and of classes of one's own that diffusers' would take.

        Args:
            path: the folder
            model_cls: the class of the model in it
            foreach: changes nothing
        """
        if hasattr(model_cls, "_of_config"):
            saved = model_cls.load_config(path)
        else:
            _, saved = model_cls.from_config(path, return_unused_kwargs=True)
        model = model_cls.from_pretrained(path)
        ema_model = cls(model.parameters(), model_cls=model_cls, model_config=model.config, foreach=foreach)
        ema_model.load_state_dict({k: v for k, v in saved.items() if k in _OPTIONS})
        ema_model.model_config = {k: v for k, v in model.config.items() if k not in _OPTIONS}
        return ema_model

    def save_pretrained(self, path):
        """Writes a model that has the averages as its weights, and the options in its configuration, into the folder
        path."""
        if self.model_cls is None:
            raise ValueError("`save_pretrained` can only be used if `model_cls` was defined at __init__.")
        if self.model_config is None:
            raise ValueError("`save_pretrained` can only be used if `model_config` was defined at __init__.")
        options = {name: getattr(self, name) for name in _OPTIONS}
        if hasattr(self.model_cls, "_of_config"):  # a model, whose file keeps entries that are no fields
            model = self.model_cls._of_config(self.model_config, options)
        else:
            model = self.model_cls.from_config(self.model_config)
            model.register_to_config(**options)
        self.copy_to(model.parameters())
        model.save_pretrained(path)

    def get_decay(self, optimization_step):
        """The decay at a step, optimization_step, counting from 1."""
        return _core._ema_decay(
            self.decay,
            self.min_decay,
            self.update_after_step,
            self.use_ema_warmup,
            self.inv_gamma,
            self.power,
            optimization_step,
        )

    def _matched(self, parameters):
        parameters = list(parameters)
        if len(parameters) != len(self.shadow_params):
            raise ValueError(f"EMAModel: made for {len(self.shadow_params)} parameters, got {len(parameters)}")
        for i, (shadow, p) in enumerate(zip(self.shadow_params, parameters)):
            if shadow.shape != p.shape:
                raise ValueError(f"EMAModel: parameter {i} must have shape {tuple(shadow.shape)}, got {tuple(p.shape)}")
        return parameters

    @no_grad()
    def step(self, parameters):
        """After an optimizer step: moves the averages towards the parameters. In a captured step every replay counts,
        and moves them by the decay of its count; a step before the capture makes room for it (RuntimeError)."""
        parameters = self._matched(parameters)
        capturing = _core._cuda_is_capturing()
        if not capturing:
            self._advance()
            if self.shadow_params[0].device.type == "cuda" and self._weight_there is None:
                self._weight_there = _core.full(
                    (), 1 - self.cur_decay_value, dtype=_core.float64, device=self.shadow_params[0].device
                )
        elif self._weight_there is None:
            raise RuntimeError(
                "EMAModel.step: the first step makes what captured ones read; call step() once before the capture"
            )
        averages, values = [], []
        for shadow, p in zip(self.shadow_params, parameters):
            if p.requires_grad:
                averages.append(shadow)
                values.append(p.detach().to(shadow.device))
            else:
                shadow.copy_(p)
        if capturing:
            _core._cuda_before_replay(_BeforeReplay(self))
            _core._ema_lerp_there(averages, values, self._weight_there)
        else:
            _core._ema_lerp(averages, values, 1 - self.cur_decay_value)

    def _advance(self):
        self.optimization_step += 1
        self.cur_decay_value = self.get_decay(self.optimization_step)

    @no_grad()
    def copy_to(self, parameters):
        """The averages become the parameters' values."""
        for shadow, p in zip(self.shadow_params, self._matched(parameters)):
            p.copy_(shadow)

    def store(self, parameters):
        """Keeps the parameters' values in host memory, for restore()."""
        self.temp_stored_params = [p.detach().cpu().clone() for p in self._matched(parameters)]

    @no_grad()
    def restore(self, parameters):
        """Puts the stored values back into parameters. RuntimeError when there are none."""
        if self.temp_stored_params is None:
            raise RuntimeError("This ExponentialMovingAverage has no `store()`ed weights to `restore()`")
        for stored, p in zip(self.temp_stored_params, self._matched(parameters)):
            p.copy_(stored)
        self.temp_stored_params = None

    def to(self, device=None, dtype=None, non_blocking=False):
        """Moves the averages to device; dtype is for the floating ones. non_blocking changes nothing."""
        moved = [p if device is None else p.to(device) for p in self.shadow_params]
        self.shadow_params = [p if dtype is None or not p.is_floating_point() else p.to(dtype) for p in moved]

    def pin_memory(self):
        """Nothing to do: host memory needs no pinning for devices of this build."""

    def state_dict(self):
        """Options, the count of steps and the averages, which are shared with this object."""
        return {**{name: getattr(self, name) for name in _OPTIONS}, "shadow_params": self.shadow_params}

    def load_state_dict(self, state_dict):
        """Takes over a copy of what state_dict() gave. ValueError, before anything changes,
        when it does not read so.
        """
        values = {
            name: state_dict.get(name, getattr(self, name)) for name in self.state_dict() if name != "shadow_params"
        }
        _check_decay("Decay", values["decay"])
        if not isinstance(values["min_decay"], float):
            raise ValueError("Invalid min_decay")
        for name in ("optimization_step", "update_after_step"):
            if not isinstance(values[name], int) or isinstance(values[name], bool):
                raise ValueError(f"Invalid {name}")
        if not isinstance(values["use_ema_warmup"], bool):
            raise ValueError("Invalid use_ema_warmup")
        for name in ("inv_gamma", "power"):
            if not isinstance(values[name], (float, int)):
                raise ValueError(f"Invalid {name}")
        shadow = state_dict.get("shadow_params")
        if shadow is not None:
            if not isinstance(shadow, list):
                raise ValueError("shadow_params must be a list")
            if not all(isinstance(p, Tensor) for p in shadow):
                raise ValueError("shadow_params must all be Tensors")
            shadow = deepcopy(self._matched(shadow))
            self.shadow_params = shadow
        self.__dict__.update(values)
