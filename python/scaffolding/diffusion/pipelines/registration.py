"""Pipeline classes from what C++ registered: constructor, call,
signatures and docstrings out of the lists of components and options.
"""

from ..._documents import add_to
from .calls import ENTRIES
from .pipeline import DiffusionPipeline

PIPELINE_CLASSES = {}  # by name
ABSENT = object()  # the default of a component for classes that want to know whether it was given
_REQUIRED = object()
# of a call: what only Python has
_SHAPED = {"return_dict": True, "callback_on_step_end_tensor_inputs": ("latents",), "_auto_resize": True}


_OUTPUT_TYPES = {
    False: (
        (
            'output_type: "pil" (the default where Pillow is), "np" [B, H, W, 3] in [0, 1], "pt" a tensor [B, 3, '
            'H, W] in [0, 1], "sf_tensor" a uint8'
        ),
        '    tensor [B, H, W, 3]; both stay on the device of the VAE; or "latent". return_dict: False for a tuple.',
    ),
    True: (
        (
            'output_type: "pil" (the default where Pillow is), "np" [B, T, H, W, 3] in [0, 1], "pt" a tensor [B, T, 3, '
            'H, W] in [0, 1], "sf_tensor" for'
        ),
        (
            "    each clip a list of uint8 tensors [H, W, 3]; both stay on the device of the VAE; or "
            '"latent". return_dict: False for a tuple.'
        ),
    ),
}


def _function(name, defaults, body, rest=""):
    """A method with these parameters and defaults, for signatures that people and tools can read."""
    places = {f"_{i}": default for i, default in enumerate(defaults.values())}
    parameters = ", ".join(n if d is _REQUIRED else f"{n}=_{i}" for i, (n, d) in enumerate(defaults.items()))
    given = ", ".join(f"{n!r}: {n}" for n in defaults)
    made = {"_body": body}
    exec(
        f"def {name}(self, {parameters}{rest and ', **' + rest}): return _body(self, {{{given}}}, {rest or 'None'})",
        {**places, **made},
        made,
    )
    return made[name]


def _constructor(entry, more):
    def body(self, given, _):
        self._look_at(given)
        values = {n: None if v is ABSENT else v for n, v in given.items()}
        self._register({n: values[n] for n in entry["components"]}, {n: values[n] for n in entry["fields"]})

    return _function("__init__", {**dict.fromkeys(entry["components"]), **entry["fields"], **more}, body)


def _call_of(name, entry):
    defaults = {**_SHAPED, **entry["defaults"], **dict.fromkeys(entry["required"], _REQUIRED)}

    def taken(self, given, kwargs):
        return given, kwargs, given.pop("output_type", None), given.pop("return_dict", True)

    def body(self, given, kwargs):
        return self._call(*taken(self, given, kwargs))

    parameters = {n: defaults.get(n) for n in entry["call"]}
    __call__ = _function("__call__", parameters, body, "kwargs")
    docs = dict(entry["docs"])
    lines = [f"{n}: {docs[n]}." for n in entry["call"] if docs.get(n)]
    __call__.__doc__ = "\n        ".join(
        [
            f"{entry['doc']} As diffusers makes them: equal seeds of a CPU generator give equal pictures.",
            "",
            *lines,
            *_OUTPUT_TYPES[entry["makes_clips"]],
            (
                "callback_on_step_end(pipe, step, timestep, tensors) returns tensors that replace those of the run, "
                "and may set pipe._interrupt;"
            ),
            f"    callback_on_step_end_tensor_inputs are of {', '.join(entry['callbacks'])}.",
            (
                "seed=: an int instead of a generator. capture=False: on CUDA, no graphs in this call (see "
                "enable_cuda_graphs). cache_prompt=False: the"
            ),
            "    denoiser projects the text anew in every step, with the same numbers.",
            "",
            (
                "ValueError for arguments that contradict each other or that the components cannot take, "
                "KeyboardInterrupt within a step of Ctrl-C."
            ),
        ]
    )
    return __call__, _function("_arguments_of_call", parameters, taken, "kwargs")


# What a call of the example is given, of what the class's call takes.
_GIVEN = {
    "prompt": '"a red apple"',
    "class_labels": "[207]",
    "image": "picture",
    "conditions": "[condition]",
    "mask_image": "mask",
    "control_image": "edges",
    "video_flow": "flow",
}


def _example(name, entry):
    """From a folder to the first picture; it needs weights, so that no test runs it."""
    given = ", ".join(f"{n}={value}" for n, value in _GIVEN.items() if n in entry["call"])
    made = "frames" if entry["makes_clips"] else "images"
    return (
        f'>>> pipe = sf.diffusion.{name}.from_pretrained("folder")  # doctest: +SKIP\n'
        f">>> pipe({given}).{made}[0]  # doctest: +SKIP"
    )


def registered(name, base=None, more=None):
    """A class that C++ registered under that name: with its components, constructor, call and signatures. base: what a
    family's classes share. more: defaults of the constructor that are others in Python,
    and arguments that only Python has."""
    entry = ENTRIES[name]
    call, arguments_of_call = _call_of(name, entry)

    def of_kind(kind):
        return tuple(n for n, its in entry["components"].items() if its == kind)

    members = {
        "_entry_name": name,
        "_components": tuple(entry["components"]),
        "_optional_components": tuple(entry["optional"]),
        "_denoisers": of_kind("denoiser"),
        "_lora_loadable_modules": of_kind("denoiser") + of_kind("text_encoder") + of_kind("network"),
        "_options": dict(entry["fields"]),
        "_callback_tensor_inputs": tuple(entry["callbacks"]),
        "__init__": _constructor(entry, more or {}),
        "__call__": call,
        "_arguments_of_call": arguments_of_call,
        "__doc__": f"{entry['doc']}\n\n{_example(name, entry)}",
        "__module__": __name__.rpartition(".")[0],
    }
    PIPELINE_CLASSES[name] = type(name, (base or DiffusionPipeline,), members)
    add_to(PIPELINE_CLASSES[name], "pipelines")
    return PIPELINE_CLASSES[name]


def register_the_rest():
    """Classes for those that no module of this package shapes."""
    for name in ENTRIES:
        if name not in PIPELINE_CLASSES:
            registered(name)
