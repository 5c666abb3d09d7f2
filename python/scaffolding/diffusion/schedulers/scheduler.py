"""What every scheduler has, and the classes that C++ computes."""

import functools

from ... import _core
from ..._core import _diffusion
from ...models.outputs import BaseOutput
from ..configuration import ConfigMixin
from .methods import METHODS


class SchedulerOutput(BaseOutput):
    """What a step gives: prev_sample, the sample one step less noisy; pred_original_sample, the sample without noise as
    predicted from here, None where the class gives none.

    >>> scheduler = sf.diffusion.DDIMScheduler()
    >>> scheduler.set_timesteps(10)
    >>> scheduler.step(sf.zeros(1, 4, 8, 8), scheduler.timesteps[0], sf.ones(1, 4, 8, 8)).prev_sample.shape
    scaffolding.Size([1, 4, 8, 8])
    """

    _names = ("prev_sample",)
    pred_original_sample = None


class SchedulerMixin:
    """A sampler. One of one's own is `class Mine(SchedulerMixin, ConfigMixin)` with set_timesteps, step, timesteps, and
    what else the pipelines that are to run it ask for: scale_model_input, add_noise, init_noise_sigma, order."""

    config_name = "scheduler_config.json"
    has_compatibles = True
    order = 1
    init_noise_sigma = 1.0

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, subfolder=None, return_unused_kwargs=False, **kwargs):
        """A scheduler from a folder with scheduler_config.json; keywords override its fields."""
        return cls.from_config(
            cls.load_config(pretrained_model_name_or_path, subfolder), return_unused_kwargs, **kwargs
        )

    def save_pretrained(self, save_directory):
        """Writes scheduler_config.json into the folder, which is made where it is not there."""
        self.save_config(save_directory)

    @property
    def compatibles(self):
        """The classes that take this one's config."""
        return self._get_compatibles()


_MODULE = "scaffolding.diffusion.schedulers"
# Classes of one training, whose configs are each other's.
_KARRAS = [
    f"{name}Scheduler"
    for name in (
        "DDIM DDPM PNDM LMSDiscrete EulerDiscrete HeunDiscrete EulerAncestralDiscrete DPMSolverMultistep "
        "DPMSolverSinglestep KDPM2Discrete KDPM2AncestralDiscrete DEISMultistep UniPCMultistep"
    ).split()
]
_ALONE = (
    "LCMScheduler",
    "TCDScheduler",
    "IPNDMScheduler",
    "EDMEulerScheduler",
    "EDMDPMSolverMultistepScheduler",
    "FlowMatchEulerDiscreteScheduler",
)
# Those whose initial noise is the schedule's first noise level, in diffusers a 0-d tensor.
_TENSOR_SIGMA = {
    f"{name}Scheduler"
    for name in (
        "EulerDiscrete EulerAncestralDiscrete HeunDiscrete LMSDiscrete KDPM2Discrete KDPM2AncestralDiscrete".split()
    )
}
# diffusers' names of the second entry of a step's result.
_SECOND = {"LCMScheduler": "denoised", "TCDScheduler": "pred_noised_sample"}
_REQUIRED = ("model_output", "timestep", "sample", "old_pred_original_sample", "timestep_back")
# How the example of every class calls step().
_EXAMPLE = """>>> scheduler = sf.diffusion.{name}()
>>> scheduler.set_timesteps(4)
>>> t, sample, noise = scheduler.timesteps[0], sf.ones(1, 4, 8, 8), sf.zeros(1, 4, 8, 8)
>>> scheduler.step({arguments})[0].shape
scaffolding.Size([1, 4, 8, 8])"""
_GIVEN = {"model_output": "noise", "timestep": "t", "sample": "sample"}
_DEFAULTS = {
    "eta": 0.0,
    "use_clipped_model_output": False,
    "s_churn": 0.0,
    "s_tmin": 0.0,
    "s_tmax": float("inf"),
    "s_noise": 1.0,
    "order": 4,
    "strength": 1.0,
    "return_dict": True,
}
_CLASS_DEFAULTS = {"TCDScheduler": {"eta": 0.3}, "CogVideoXDPMScheduler": {"return_dict": False}}


class NativeScheduler(SchedulerMixin, ConfigMixin):
    """A scheduler of C++, kept in `_core`; its arguments are the fields of its config."""

    _core_class = None

    @property
    def timesteps(self):
        """What the model is called with in this run, noisiest first."""
        return self._core.timesteps

    @timesteps.setter
    def timesteps(self, value):
        self._core.take_timesteps(value)

    num_inference_steps = property(
        lambda self: self._core.num_inference_steps, lambda self, n: self._core.set_num_inference_steps(n)
    )
    step_index = property(lambda self: self._core.step_index, doc="Where in the schedule this run is.")
    begin_index = property(lambda self: self._core.begin_index, doc="Where in the schedule this run began.")
    _step_index = property(lambda self: self._core.step_index, lambda self, i: self._core.set_step_index(i))
    _begin_index = property(lambda self: self._core.begin_index, lambda self, i: self._core.reset_begin_index(i))
    order = property(lambda self: self._core.order, doc="Calls of the model for each step.")

    @property
    def init_noise_sigma(self):
        """What unit noise is multiplied by before the first step."""
        sigma = self._core.init_noise_sigma
        tensor = self._core_class.__name__ in _TENSOR_SIGMA
        return _core.tensor(sigma, dtype=_core.float32, device="cpu") if tensor else sigma

    def set_begin_index(self, begin_index=0):
        """Where in the schedule a run begins."""
        self._core.set_begin_index(begin_index)

    def scale_model_input(self, sample, timestep=None):
        """The sample as the model is trained on it."""
        return self._core.scale_model_input(sample, timestep)

    def add_noise(self, original_samples, noise, timesteps):
        """original_samples[B, ...] with the noise of timesteps[B]."""
        return self._core.add_noise(original_samples, noise, timesteps)

    def get_velocity(self, sample, noise, timesteps):
        """What a model with prediction_type v_prediction is trained on, for timesteps[B]."""
        return self._core.get_velocity(sample, noise, timesteps)

    def index_for_timestep(self, timestep, schedule_timesteps=None):
        """Where in the schedule a run from this timestep begins: its second place where it has two."""
        schedule = self.timesteps if schedule_timesteps is None else schedule_timesteps
        places = [i for i, t in enumerate(schedule.tolist()) if t == float(timestep)]
        if not places:
            raise ValueError(f"{type(self).__name__}: timestep must be one of scheduler.timesteps, got {timestep}")
        return places[min(1, len(places) - 1)]

    def previous_timestep(self, timestep):
        """The timestep after this one in the run's order; before set_timesteps, of the training's."""
        if self.num_inference_steps is None:
            return _core.tensor(int(timestep) - 1)
        at = self.index_for_timestep(timestep) + 1
        return self.timesteps[at] if at < len(self.timesteps) else _core.tensor(-1)

    def __len__(self):
        return self._core.num_train_timesteps

    def __getattr__(self, name):
        core = self.__dict__.get("_core")
        if core is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        if name in core.state_names():
            return core.state(name)
        if name in ("betas", "alphas", "alphas_cumprod", "final_alpha_cumprod", "sigmas"):
            table = getattr(core, name)
            if table is not None:
                return table
        return super().__getattr__(name)

    def __setattr__(self, name, value):
        core = self.__dict__.get("_core")
        if core is not None and name in core.state_names():
            core.set_state(name, value)
        elif core is not None and name == "sigmas":
            core.take_sigmas(value)
        else:
            object.__setattr__(self, name, value)

    def _saved_config(self):
        # of a subclass the class that others know, as its pipeline's model_index.json says
        return {**super()._saved_config(), "_class_name": self._core_class.__name__}

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "_core"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        fields = self._core_class.field_names()
        self.__dict__["_core"] = self._core_class({k: v for k, v in self.config.items() if k in fields})

    @classmethod
    def _overridden(cls):
        """Whether a subclass gives one of the methods by which pipelines call a scheduler."""
        native = next(c for c in cls.__mro__ if "_core_class" in vars(c))
        called = ("step", "set_timesteps", "scale_model_input", "add_noise", "set_begin_index", "timesteps", "order",
                  "init_noise_sigma")  # fmt: skip
        return any(_found(cls, name) is not _found(native, name) for name in called)


def core_of(who, scheduler):
    """The scheduler of C++ behind one of Python. TypeError for one that has none."""
    core = getattr(scheduler, "_core", None)
    if not isinstance(core, _diffusion.Scheduler):
        raise TypeError(f"{who}: scheduler must be one of scaffolding.diffusion, got {type(scheduler).__name__}")
    return core


def _found(cls, name):
    return next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), None)


def _function(name, parameters, defaults, body, doc):
    """A method with these parameters; those without a default are required."""
    given = ", ".join(f"{p}=_default_{p}" if p in defaults else p for p in parameters)
    namespace = {"__name__": _MODULE, **{f"_default_{p}": v for p, v in defaults.items()}}
    exec(f"def {name}(self, {given}):\n    return self.{body}({', '.join(parameters)})", namespace)
    namespace[name].__doc__ = doc
    return namespace[name]


_VARIANCES = ("fixed_small", "fixed_small_log", "fixed_large", "fixed_large_log", "learned", "learned_range")


def _warn_of_what_makes_no_sense(who, config):
    """Logs values that are computed with, as by diffusers, and are hardly meant."""
    said = []
    for name in ("beta_start", "beta_end"):
        if config.get(name, 0) >= 1:
            said.append(f"{name}={config[name]} leaves no signal, steps give NaN; it must be below 1")
    kind = config.get("variance_type")
    if kind is not None and kind not in _VARIANCES:
        said.append(f"variance_type={kind!r} is none, and taken as 'fixed_small'; there are {', '.join(_VARIANCES)}")
    if said:
        import logging

        for text in said:
            logging.getLogger(_MODULE).warning("%s: %s", who, text)


def _constructor(core_class):
    """__init__ with the fields of the config as its parameters."""
    fields = core_class.defaults()
    signature = _function("__init__", list(fields), fields, "_", f"Its arguments are the config's fields: {fields}.")

    @functools.wraps(signature)
    def construct(self, *args, **kwargs):
        if len(args) > len(fields):
            raise TypeError(f"{core_class.__name__}: takes at most {len(fields)} arguments, got {len(args)}")
        private = {k: kwargs.pop(k) for k in list(kwargs) if k.startswith("_")}
        given = dict(zip(fields, args))
        for name, value in kwargs.items():
            if name not in fields:
                raise TypeError(f"{core_class.__name__}: unexpected keyword argument '{name}'")
            if name in given:
                raise TypeError(f"{core_class.__name__}: got several values for '{name}'")
            given[name] = value
        core = core_class({k: v._core if isinstance(v, NativeScheduler) else v for k, v in given.items()})
        self.__dict__["_core"] = core
        _warn_of_what_makes_no_sense(core_class.__name__, core.config())
        self.register_to_config(**private, **core.config(), _class_name=type(self).__name__)

    return construct


def native_class(name):
    """The class of Python over one of C++'s; its step and set_timesteps have the parameters of diffusers' class."""
    core_class = getattr(_diffusion, name)
    own = {**_DEFAULTS, **_CLASS_DEFAULTS.get(name, {})}
    second = _SECOND.get(name, "pred_original_sample")
    output = type(
        f"{name}Output",
        (SchedulerOutput,),
        {"_names": ("prev_sample", second), "__module__": _MODULE, "__doc__": SchedulerOutput.__doc__},
    )
    if second == "denoised":
        output.pred_original_sample = property(lambda self: self.denoised)

    steps = core_class.step_parameters()
    at = steps.index("return_dict")

    def _step(self, *arguments):
        prev_sample, other = self._core.step(*arguments)
        if other is None:
            return SchedulerOutput(prev_sample) if arguments[at] else (prev_sample,)
        return output(prev_sample, other) if arguments[at] else (prev_sample, other)

    timesteps = core_class.timestep_parameters()
    members = {
        "__module__": _MODULE,
        "__doc__": f"diffusers' {name}. Its arguments are the config's fields: {' '.join(core_class.field_names())}\n\n"
        + _EXAMPLE.format(name=name, arguments=", ".join(_GIVEN.get(p, "None") for p in steps if p in _REQUIRED)),
        "__init__": _constructor(core_class),
        "_core_class": core_class,
        "_compatibles": [] if name in _ALONE else _KARRAS,
        "_step": _step,
        "step": _function(
            "step",
            steps,
            {p: own.get(p) for p in steps if p not in _REQUIRED},
            "_step",
            "The sample with one step's noise less. model_output, sample: [B, C, ...]. ValueError before set_timesteps "
            "where the class needs a run.",
        ),
        "set_timesteps": _function(
            "set_timesteps",
            timesteps,
            {p: own.get(p) for p in timesteps},
            "_core.set_timesteps",
            "Makes the schedule of a run. ValueError for no steps, or more than num_train_timesteps.",
        ),
    }
    own_methods = (METHODS[name],) if name in METHODS else ()
    return type(name, (*own_methods, NativeScheduler), members), output
