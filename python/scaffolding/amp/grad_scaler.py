"""GradScaler: scales the loss of float16 training so that small gradients do not vanish."""

import warnings
import weakref

from .. import _core
from .._core import Tensor


def _refuse_capture(method):
    if _core._cuda_is_capturing():
        raise RuntimeError(
            f"GradScaler.{method}: the scale would stay that of the capture in every replay; make the scaler with "
            "capturable=True"
        )


class GradScaler:
    """scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(): torch.amp.GradScaler's rules.

    The scale begins at init_scale, grows by growth_factor after growth_interval steps without overflow and shrinks by
    backoff_factor after one with, which step() skips. unscale_(optimizer) before clipping gradients. enabled=False:
    everything passes through.
    capturable=True: the scale and its count are in device memory and nothing waits for the device, so that a step can
    be part of a CUDA graph; for optimizers with capturable=True.

    >>> layer, scaler = nn.Linear(4, 1), sf.amp.GradScaler("cpu", init_scale=1024.0)
    >>> optimizer = optim.SGD(layer.parameters(), lr=0.1)
    >>> scaler.scale(layer(sf.ones(2, 4)).mean()).backward()
    >>> scaler.step(optimizer); scaler.update()
    """

    def __init__(
        self,
        device="cuda",
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        enabled=True,
        *,
        capturable=False,
    ):
        self._device = device
        self._enabled = bool(enabled)
        if self._enabled and device == "cuda" and not _core._backend_available("cuda")[0]:
            warnings.warn(
                "GradScaler is enabled for cuda, but CUDA is not available.  Disabling; GradScaler('cpu') scales on "
                "the CPU.",
                stacklevel=2,
            )
            self._enabled = False
        if not growth_factor > 1.0:
            raise ValueError(f"The growth factor must be > 1.0, got {growth_factor}")
        if not 0.0 < backoff_factor < 1.0:
            raise ValueError(f"The backoff factor must be < 1.0 and > 0, got {backoff_factor}")
        if not init_scale > 0:
            raise ValueError(f"The initial scale must be positive, got {init_scale}")
        if growth_interval < 1:
            raise ValueError(f"The growth interval must be at least one step, got {growth_interval}")
        self._there = None  # with capturable: scale and growth tracker, float32 on the device of what is scaled first
        self._capturable = bool(capturable)
        self._scale = float(init_scale)
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._stages = {}  # of optimizers since update(), by id: [found_inf, whether it stepped]

    def scale(self, outputs):
        """outputs, a tensor, or tensors in lists and tuples, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._current_scale(outputs)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(map(self.scale, outputs))
        if hasattr(outputs, "__iter__"):
            return map(self.scale, outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _current_scale(self, outputs):
        if not self._capturable:
            _refuse_capture("scale")
            return self._scale
        if outputs.device.type != "cuda":
            raise ValueError(f"GradScaler.scale: capturable=True needs CUDA tensors, got one on {outputs.device}")
        if self._there is None:
            _refuse_capture("scale before the first step outside of a graph")
            self._there = [
                _core.full((), x, dtype=_core.float32, device=outputs.device)
                for x in (self._scale, float(self._growth_tracker))
            ]
        return self._there[0]

    def unscale_(self, optimizer):
        """Divides the optimizer's gradients by the scale and notes whether any is infinite or NaN."""
        if not self._enabled:
            return
        if not self._capturable:
            _refuse_capture("unscale_")
        found, stepped = self._stages.get(id(optimizer), (None, False))
        if stepped:
            raise RuntimeError("unscale_() is being called after step().")
        if found is not None:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        grads = [g for group in optimizer.param_groups for g in (p.grad for p in group["params"]) if g is not None]
        if any(g.dtype is _core.float16 for g in grads):
            raise ValueError("Attempting to unscale FP16 gradients.")
        by_device = {}
        for g in grads:
            by_device.setdefault(str(g.device), []).append(g)
        found = []
        for device, some in by_device.items():
            found.append(_core.zeros((), dtype=_core.float32, device=device))
            if self._capturable:
                _core._unscale_there(some, self._current_scale(some[0]), found[-1])
            else:
                _core._unscale(some, 1.0 / self._scale, found[-1])
        self._stages[id(optimizer)] = [found, False]

    def _also_skip(self, optimizer, flag):
        """With capturable, after unscale_: step() changes nothing either where flag, float32 [] on the device,
        is not 0.
        """
        stage = self._stages[id(optimizer)]
        stage[0] = [_core.maximum(found, flag) for found in stage[0]]

    def step(self, optimizer, *args, **kwargs):
        """optimizer.step(), unless a gradient is infinite or NaN. Unscales first where unscale_ was not called."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        if self._stages.get(id(optimizer), (None, False))[1]:
            raise RuntimeError("step() has already been called since the last update().")
        if id(optimizer) not in self._stages:
            self.unscale_(optimizer)
        stage = self._stages[id(optimizer)]
        if not stage[0]:
            raise RuntimeError("No inf checks were recorded for this optimizer.")
        result = None
        if self._capturable:
            if not getattr(optimizer, "_step_supports_amp_scaling", False) or not all(
                map(optimizer._is_capturable, optimizer.param_groups)
            ):
                raise RuntimeError(
                    "GradScaler.step: capturable=True needs an optimizer with capturable=True: Adam, AdamW, AdamW8bit "
                    "or SGD"
                )
            (optimizer.found_inf,) = stage[0]
            try:
                result = optimizer.step(*args, **kwargs)
            finally:
                del optimizer.found_inf
        elif not any(f.item() for f in stage[0]):
            result = optimizer.step(*args, **kwargs)
        stage[1] = True
        return result

    def update(self, new_scale=None):
        """The scale of the next iteration, by the rules, or new_scale."""
        if not self._enabled:
            return
        if new_scale is not None:
            new_scale = float(new_scale)
            if not new_scale > 0:
                raise ValueError(f"The new scale must be positive, got {new_scale}")
            self._take(new_scale, self._growth_tracker)
        elif self._capturable:
            self._update_there([f for stage in self._stages.values() for f in stage[0]])
        else:
            found = [f for stage in self._stages.values() for f in stage[0]]
            if not found:
                raise RuntimeError("No inf checks were recorded prior to update.")
            self._scale, self._growth_tracker = _core._next_scale(
                self._scale,
                self._growth_tracker,
                any(f.item() != 0 for f in found),
                self._growth_factor,
                self._backoff_factor,
                self._growth_interval,
            )
        self._stages = {}

    def _take(self, scale, tracker):
        self._scale, self._growth_tracker = scale, tracker
        if self._there is not None:
            for there, value in zip(self._there, (scale, float(tracker))):
                there.fill_(value)

    def _update_there(self, found):
        """_core._next_scale on the device."""
        if not found:
            raise RuntimeError("No inf checks were recorded prior to update.")
        rules = self._rules()
        _core._update_scale_there(*self._there, sum(found[1:], found[0]), *rules)
        if _core._cuda_is_capturing():
            scaler = weakref.ref(self)

            def before_replay():
                now = scaler()
                if now is not None and now._rules() != rules:
                    raise RuntimeError(
                        "GradScaler: growth_factor, backoff_factor or growth_interval changed since the graph was "
                        "captured; capture again"
                    )

            _core._cuda_before_replay(before_replay)

    def _rules(self):
        return float(self._growth_factor), float(self._backoff_factor), int(self._growth_interval)

    def get_scale(self):
        """The scale, 1.0 when disabled."""
        if not self._enabled:
            return 1.0
        return self._scale if self._there is None else self._there[0].item()

    def get_growth_factor(self):
        """What the scale is multiplied by after growth_interval good steps."""
        return self._growth_factor

    def set_growth_factor(self, new_factor):
        """Sets get_growth_factor() to new_factor."""
        self._growth_factor = new_factor

    def get_backoff_factor(self):
        """What the scale is multiplied by after a step that was skipped."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor):
        """Sets get_backoff_factor() to new_factor."""
        self._backoff_factor = new_factor

    def get_growth_interval(self):
        """How many good steps in a row let the scale grow."""
        return self._growth_interval

    def set_growth_interval(self, new_interval):
        """Sets get_growth_interval() to new_interval."""
        self._growth_interval = new_interval

    def is_enabled(self):
        """Whether it does anything."""
        return self._enabled

    def state_dict(self):
        """Scale, factors and the count of good steps; empty when disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker if self._there is None else int(self._there[1].item()),
        }

    def load_state_dict(self, state_dict):
        """Takes over what state_dict() gave."""
        if not self._enabled:
            return
        if len(state_dict) == 0:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._take(float(state_dict["scale"]), int(state_dict["_growth_tracker"]))
