"""A pipeline's call: arguments as people give them to those that C++'s loops take, and what comes of it."""

import warnings
from functools import partial

from ... import _core
from ..._core import _pipelines
from ...models.adapters import lora_scaled, scale_of
from .. import schedulers
from .image_processor import VaeImageProcessor, has_pil
from .progress_bar import ProgressBar
from .run import PipelineRun

ENTRIES = _pipelines.entries()  # what C++ registered, by class name
# diffusers' names of what a class's attention is told
_ATTENTION = ("cross_attention_kwargs", "attention_kwargs", "joint_attention_kwargs")
# what nothing here can do
_REFUSED = tuple(f"{sign}ip_adapter_image{what}" for sign in ("", "negative_") for what in ("", "_embeds"))


def texts(name, value):
    """A prompt argument as a list of str, or None. TypeError for another type,
    UnicodeEncodeError for half of a surrogate pair.
    """
    if value is None:
        return None
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(t, str) for t in items):
        raise TypeError(f"{name} must be a str or a list of str, got {type(value).__name__}")
    if not items:
        raise ValueError(f"{name} must not be an empty list")
    for t in items:
        t.encode("utf-8")
    return list(items)


class PipelineCalls:
    """What DiffusionPipeline's calls are made of."""

    def _call(self, given, kwargs, output_type, return_dict):
        self._shape(given)
        try:
            made = self._generate(self._options_of(given, kwargs), self._output_type(output_type))
        finally:
            self.maybe_free_model_hooks()
        return self._result(*made, return_dict)

    def _placed(self):
        """What a run has to know of where the networks are, beside them."""
        room = self._placement.make_room if self._placement else None
        return {"graphs": self._graphs, "savings": self._savings, "make_room": room}

    def _shape(self, given):
        """Arguments as people give them to those that the loops take: pictures to tensors."""
        for name, role in ENTRIES[self._entry_name]["roles"].items():
            if given.get(name) is None:
                raise ValueError(f"{type(self).__name__}: needs an {name}")
            processor = self.image_processor if role == "picture" else self.mask_processor
            given[name] = processor.preprocess(given[name], given.get("height"), given.get("width"))

    def _as_frames(self, output_type):
        """Whether C++ is asked for frames of bytes: of clips, whose decoded parts become bytes one by one."""
        return ENTRIES[self._entry_name]["makes_clips"] and output_type in ("pil", "sf_tensor")

    def _shown(self, images, output_type):
        """Pictures or clips as asked for, of values in [0, 1], or of frames of bytes."""
        if self._as_frames(output_type):
            shown = self.video_processor.frames_from_bytes(images, output_type)
        elif ENTRIES[self._entry_name]["makes_clips"]:
            shown = self.video_processor.frames_from_unit_range(images, output_type)
        else:
            shown = self.image_processor.from_unit_range(images, output_type)
        _pipelines.release_threads()  # the next call may come from another of Python's threads
        return shown

    def _result(self, images, sound, return_dict):
        what = "frames" if ENTRIES[self._entry_name]["makes_clips"] else "images"
        made = {what: images, **({"audio": sound} if self._has_sound else {})}
        return self._output_class(**made) if return_dict else tuple(made.values())

    @property
    def labels(self):
        """{name: number} of the classes that calls take; empty where they take none."""
        return _pipelines.labels(self._entry_name, self._parts())

    def get_label_ids(self, label):
        """The numbers of classes by their names, one or a list.
        ValueError naming the closest one for a name that is not there.
        """
        return _pipelines.get_label_ids(
            self._entry_name, self._parts(), [label] if isinstance(label, str) else list(label)
        )

    @property
    def mask_processor(self):
        """What makes masks [n, 1, H, W] of 0 and 1."""
        return VaeImageProcessor(
            vae_scale_factor=self.vae_scale_factor, do_normalize=False, do_binarize=True, do_convert_grayscale=True
        )

    def _encoded(self, prompts):
        """The C++ class's encode_prompt for these options."""
        given = {k: texts(k, v) if k in ENTRIES[self._entry_name]["texts"] else v for k, v in prompts.items()}
        return _pipelines.encode_prompt(
            self._entry_name, self._parts(), {k: v for k, v in given.items() if v is not None}
        )

    def _output_type(self, asked):
        if asked is None:
            return "pil" if has_pil() else "np"
        if asked not in ("pil", "np", "pt", "sf_tensor", "latent"):
            raise ValueError(
                f"{type(self).__name__}: output_type must be 'pil', 'np', 'pt', 'sf_tensor' or 'latent', got {asked!r}"
            )
        if asked == "pil" and not has_pil():
            raise ImportError(f"{type(self).__name__}: output_type='pil' needs Pillow; ask for 'np' or 'sf_tensor'")
        return asked

    @staticmethod
    def _predicted(scheduler):
        """What the model predicts by the config of a sampler that goes with it; None where it does not say."""
        config = getattr(scheduler, "config", None)
        return config.get("prediction_type") if isinstance(config, dict) else None

    def _check_prediction(self):
        """Flow matching takes what a model predicts for a velocity from noise to signal, and makes noise of any other's
        pictures."""
        if isinstance(self.scheduler, schedulers.FlowMatchEulerDiscreteScheduler):
            said = self._predicted(self.scheduler) or self._predicts
            if said not in (None, "flow_prediction"):
                raise ValueError(
                    f"{type(self).__name__}: {type(self.scheduler).__name__} is for models that predict flow, and "
                    f"this one's scheduler says prediction_type={said!r}"
                )

    def _options_of(self, given, others):
        """A call's arguments as the loops take them; refuses those that nothing here can do."""
        self._check_prediction()
        given = dict(given)
        asked = next((n for n in _ATTENTION if n in given), _ATTENTION[0])
        scale, attention = scale_of(type(self).__name__, given.pop(asked, None))
        if attention:
            raise NotImplementedError(
                f"{type(self).__name__}: {asked} takes scale, and has no use for {', '.join(sorted(attention))}"
            )
        for name in _REFUSED:
            asked = given.pop(name, None)
            if asked is not None and not (isinstance(asked, dict) and not asked):
                raise NotImplementedError(f"{type(self).__name__}: {name} is not supported: there are no IP adapters")
        callback, every = others.pop("callback", None), others.pop("callback_steps", None)
        seed = others.pop("seed", None)
        given["capture"] = bool(others.pop("capture", True)) and self._captures
        if any(name == "cache_prompt" for name, _ in ENTRIES[self._entry_name]["docs"]):
            given["cache_prompt"] = bool(others.pop("cache_prompt", True))
        if others:
            raise TypeError(f"{type(self).__name__}: unexpected keyword argument '{next(iter(others))}'")
        if seed is not None:
            if given.get("generator") is not None:
                raise ValueError(f"{type(self).__name__}: takes seed or generator, not both")
            given["generator"] = _core.Generator().manual_seed(seed)
        for name in ENTRIES[self._entry_name]["texts"]:
            if name in given:
                given[name] = texts(f"{type(self).__name__}: {name}", given[name])
        end = given.get("callback_on_step_end")
        inputs = list(getattr(end, "tensor_inputs", None) or given.get("callback_on_step_end_tensor_inputs") or [])
        strange = [n for n in inputs if n not in self._callback_tensor_inputs]
        if strange:
            known = ", ".join(self._callback_tensor_inputs)
            raise ValueError(
                f"{type(self).__name__}: callback_on_step_end_tensor_inputs must be of {known}, got "
                f"{', '.join(map(str, strange))}"
            )
        given["callback_on_step_end_tensor_inputs"] = inputs
        if callback is not None:
            given["callback_on_step_end"], given["callback_on_step_end_tensor_inputs"] = self._with_callback(
                callback, every, end, inputs
            )
        given["lora_scale"] = scale
        return given

    def _with_callback(self, callback, every, end, inputs):
        """diffusers' older callback(step, timestep, latents) as a callback_on_step_end, with the other one."""
        if every is None:
            every = 1
        if not isinstance(every, int) or every <= 0:
            raise ValueError(f"{type(self).__name__}: callback_steps must be a positive integer, got {every!r}")
        order = self.scheduler.order

        def both(pipe, step, timestep, tensors):
            latents = tensors["latents"]
            changed = end(pipe, step, timestep, {n: tensors[n] for n in inputs}) if end is not None else {}
            if step % every == 0:
                callback(step // order, timestep, (changed or {}).get("latents", latents))
            return changed

        return both, list(dict.fromkeys([*inputs, "latents"]))

    def start(self, *args, **kwargs):
        """A call's arguments to a run between its steps, a PipelineRun: for whoever shows, stops, thins out or
        interleaves runs.

        It has a scheduler of its own, equal to the pipeline's. Raises what a call with these arguments raises.
        """
        given, others, output_type, return_dict = type(self)._arguments_of_call(self, *args, **kwargs)
        self._shape(given)
        output_type = self._output_type(output_type)
        options = self._options_for_run(self._options_of(given, others), output_type)
        scheduler = type(self.scheduler).from_config(self.scheduler.config)
        parts = {**self._parts(), "scheduler": scheduler, **self._placed()}
        scaled = partial(lora_scaled, list(self._lora_models().values()), options.pop("lora_scale"))
        with scaled():
            core = _pipelines.start(self._entry_name, self, parts, options)
        return PipelineRun(self, core, output_type, return_dict, scaled)

    def _options_for_run(self, options, output_type):
        self._interrupt = False
        self._guidance_scale = float(options.get("guidance_scale", 0.0))
        self._guidance_rescale = float(options.get("guidance_rescale") or 0.0)
        bar = ProgressBar(**self._progress_bar_config)

        def progress(done, total):
            self._num_timesteps = total
            bar(done, total)

        options = {**options, "output_latents": output_type == "latent", "progress": progress}
        return {k: v for k, v in options.items() if v is not None}

    def _generate(self, options, output_type):
        """(images as asked for, their sound or None)"""
        options = self._options_for_run(options, output_type)
        with lora_scaled(self._lora_models().values(), options.pop("lora_scale")):
            parts, as_frames = {**self._parts(), **self._placed()}, self._as_frames(output_type)
            images, sound, *lost = _pipelines.generate(self._entry_name, self, parts, options, as_frames)
        self._warn_of(*lost, 4)
        return self._shown(images, output_type), sound

    def _finished(self, images, sound, lost, output_type, return_dict):
        self._warn_of(*lost, 4)
        return self._result(self._shown(images, output_type), sound, return_dict)

    def _warn_of(self, truncated, makeshifts, stacklevel):
        if makeshifts:
            warnings.warn(
                f"{type(self).__name__}: memory did not suffice, so that the call went on with "
                f"{', '.join(makeshifts)}; memory_plan() finds what suits the memory there is",
                stacklevel=stacklevel,
            )
        if truncated:
            lost = "; ".join(t.strip() for t in truncated)
            warnings.warn(
                f"{type(self).__name__}: the text encoder does not take so many tokens, and this part of the prompt "
                f"was cut off: {lost}."
                " prompt_syntax='a1111' takes longer prompts",
                stacklevel=stacklevel,
            )
