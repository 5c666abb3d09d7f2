"""LoRAs of one model, by diffusers' calls: load_lora_adapter, set_adapters, fuse_lora and the rest. Files and adapters
are C++'s (scaffolding/models/adapters).
"""

import json
import math
import os
from contextlib import contextmanager

from .. import _core, safetensors
from .._core import _models
from ..autograd.grad_mode import no_grad
from . import lora_files
from .lora_config import fields_of

_lora = _models._lora
# What begins the keys of a pipeline's networks, in files that hold several.
_COMPONENTS = ("unet", "transformer", "text_encoder", "text_encoder_2", "text_encoder_3")


def are(names):
    """ "are a, b", for errors that say which there are."""
    return f"are {', '.join(names)}" if names else "are none"


def listed(names):
    return [names] if isinstance(names, str) else list(names)


def name_for(who, asked, taken):
    """The name of a new adapter: default_0, default_1, ... where none is asked for."""
    if asked is None:
        return next(f"default_{i}" for i in range(len(taken) + 1) if f"default_{i}" not in taken)
    if not isinstance(asked, str):
        raise TypeError(f"{who}: adapter_name must be a str, got {type(asked).__name__}")
    if not asked:
        raise ValueError(f"{who}: adapter_name must not be empty")
    return asked


def check_names(who, names, known):
    """ValueError naming those there are, for one that is not."""
    for name in names:
        if name not in known:
            raise ValueError(f"{who}: there is no adapter '{name}'; there {are(sorted(known))}")


def weights_for(who, names, weights):
    """One weight for each name, of a list or of one for all."""
    if not isinstance(weights, (list, tuple)):
        return [weights] * len(names)
    if len(weights) != len(names):
        raise ValueError(f"{who}: needs a weight for each of {len(names)} adapters, got {len(weights)}")
    return list(weights)


# ---- the factor of a call


def number(what, value):
    """A finite float. TypeError, ValueError."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{what} must be a number, got {type(value).__name__}")
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"{what} must be finite, got {value}")
    return value


def scale_of(who, attention_kwargs):
    """(scale, the other entries) of a call's cross_attention_kwargs."""
    others = {k: v for k, v in (attention_kwargs or {}).items() if v is not None}
    return number(f"{who}: the scale of cross_attention_kwargs", others.pop("scale", 1.0)), others


def only_scale_of(who, name, attention_kwargs):
    """The scale of a model's argument `name`; NotImplementedError for other entries."""
    scale, others = scale_of(who, attention_kwargs)
    if others:
        raise NotImplementedError(f"{who}: {name} has no use for {', '.join(sorted(others))}")
    return scale


@contextmanager
def lora_scaled(models, scale):
    """Everything that is on in these models is `scale` times as strong within; afterwards it is as before, whatever
    happens. A call within another's callback has its own.
    """
    before = []
    try:
        for model in models:
            if model._lora_scale != scale and _lora.names(model):
                before.append((model, model._lora_scale))
                _lora.scale(model, scale)
                model._lora_scale = scale
        yield
    finally:
        for model, old in before:
            _lora.scale(model, old)
            model._lora_scale = old


# ---- weights by block


def weight_row(model, name, weight):
    """(name, weight, {module: weight}) as C++ takes it: of a number, None or a UNet's weights by block."""
    if not isinstance(weight, dict):
        return name, 1.0 if weight is None else number(f"set_adapters: the weight of '{name}'", weight), {}
    blocks = _weights_of_blocks(weight, model)

    def of(module):  # the attention's number is that of the whole of its place in the block
        for place, value in blocks.items():
            if place in module:
                return value
        parts = module.split(".")
        return blocks.get(f"{parts[0]}.{parts[1]}.attentions.{parts[3]}", 1.0) if len(parts) > 3 else 1.0

    return name, 1.0, {module: of(module) for module in _lora.modules(model, name)}


def _weights_of_blocks(weights, unet):
    """{"down_blocks.1.attentions.0": weight}, as diffusers reads {"down": ..., "mid": ..., "up": ...}."""
    for name in weights:
        if name not in ("down", "mid", "up"):
            raise ValueError(f"set_adapters: weights by block are of down, mid and up, got '{name}'")
    config = unet.config
    if "down_block_types" not in config or "up_block_types" not in config:
        raise ValueError(
            f"set_adapters: weights by block are for UNets, and a {type(unet).__name__} has no such blocks; give it "
            "one number"
        )
    mid = weights.get("mid", 1.0)
    if isinstance(mid, list):
        if len(mid) != 1:
            raise ValueError(f"set_adapters: mid has 1 place for a weight, got {len(mid)}")
        mid = mid[0]
    out = {"mid_block.attentions.0": mid}
    layers = config.layers_per_block
    for side, blocks, types in (
        ("down", "down_blocks", config.down_block_types),
        ("up", "up_blocks", config.up_block_types),
    ):
        places = {f"block_{i}": i for i, kind in enumerate(types) if "CrossAttn" in kind}
        given = weights.get(side, 1.0)
        given = given if isinstance(given, dict) else dict.fromkeys(places, given)
        for name in given:
            if name not in places:
                raise ValueError(f"set_adapters: {side} has no attention in '{name}'; there {are(list(places))}")
        for name, i in places.items():
            count = (layers[i] if isinstance(layers, (list, tuple)) else layers) + (side == "up")
            values = given.get(name, 1.0)
            values = values if isinstance(values, list) else [values] * count
            if len(values) != count:
                raise ValueError(f"set_adapters: {side}.{name} has {count} places for weights, got {len(values)}")
            out.update({f"{blocks}.{i}.attentions.{k}": v for k, v in enumerate(values)})
    return {place: number(f"set_adapters: the weight of {place}", v) for place, v in out.items()}


# ---- tensors of an adapter


def get_peft_model_state_dict(model, adapter_name="default"):
    """A model's adapter as PEFT has it, {"mid_block....to_q.lora_A.weight": tensor}: what save_lora_weights() takes.
    Alphas are not in it, as in PEFT: peft_config_of(model, adapter_name) has them.

    >>> model = sf.models.DiTTransformer2DModel(2, 8, num_layers=1)
    >>> model.add_adapter(sf.models.LoraConfig(r=4, target_modules=["to_q"]))
    >>> sorted(sf.models.get_peft_model_state_dict(model))[0]
    'transformer_blocks.0.attn1.to_q.lora_A.weight'
    """
    check_names("get_peft_model_state_dict", [adapter_name], _lora.names(model))
    return _lora.state(model, adapter_name)


def peft_config_of(model, adapter_name="default"):
    """The fields of PEFT's LoraConfig that say an adapter's ranks and alphas: what save_lora_weights() takes as
    metadata.
    """
    check_names("peft_config_of", [adapter_name], _lora.names(model))
    return _lora.config(model, adapter_name)


def set_peft_model_state_dict(model, peft_model_state_dict, adapter_name="default"):
    """Copies such a state into an adapter of the same layers and ranks, as a training that goes on does. Returns
    (missing keys, unexpected keys). ValueError, and nothing changes, for other shapes.

    >>> model = sf.models.DiTTransformer2DModel(2, 8, num_layers=1)
    >>> model.add_adapter(sf.models.LoraConfig(r=4, target_modules=["to_q"]))
    >>> sf.models.set_peft_model_state_dict(model, sf.models.get_peft_model_state_dict(model))
    ([], [])
    """
    who = "set_peft_model_state_dict"
    check_names(who, [adapter_name], _lora.names(model))
    own = _lora.state(model, adapter_name)
    for key, value in peft_model_state_dict.items():
        if key in own and tuple(value.shape) != tuple(own[key].shape):
            raise ValueError(f"{who}: {key} must be of shape {tuple(own[key].shape)}, got {tuple(value.shape)}")
    trained = _lora.trains(model, adapter_name)
    _lora.train(model, adapter_name, True)  # in memory of its own
    with no_grad():
        for key, value in _lora.state(model, adapter_name).items():
            if key in peft_model_state_dict:
                value.copy_(peft_model_state_dict[key])
    _lora.train(model, adapter_name, trained)
    return [k for k in own if k not in peft_model_state_dict], [k for k in peft_model_state_dict if k not in own]


def write(who, save_directory, tensors, metadata, weight_name, safe_serialization):
    """A file of diffusers' kind into a folder, which is made where it is not there."""
    if os.path.isfile(save_directory):
        raise ValueError(f"{who}: save_directory must be a folder, and {save_directory} is a file")
    if not safe_serialization:
        raise NotImplementedError(f"{who}: files are safetensors; safe_serialization must be True")
    about = {"format": "pt"}
    if metadata:
        about["lora_adapter_metadata"] = json.dumps(metadata, indent=2, sort_keys=True)
    os.makedirs(save_directory, exist_ok=True)
    safetensors.save_file(tensors, os.path.join(save_directory, weight_name or lora_files.SAVED_AS), about)


# ---- a model


def _is_of_another(key, prefix):
    """Whether a key begins as those of another network do."""
    if prefix is None:
        return False
    text = prefix.startswith("text_encoder")
    if key.startswith("lora_"):
        number = prefix.removeprefix("text_encoder").removeprefix("_") or "1"
        mine = ("lora_te_", f"lora_te{number}_") if text else ("lora_unet_", f"lora_{prefix}_")
        return not key.startswith(mine if number == "1" or not text else mine[1:])
    first = key.partition(".")[0]
    return first != prefix and first in _COMPONENTS


def _check_prefix(who, source, prefix):
    """ValueError where a file's keys are of networks, and of none with this prefix."""
    begin = {key.partition(".")[0] for key in _lora.tensors(source)} & set(_COMPONENTS)
    if begin and prefix is not None and prefix not in begin:
        raise ValueError(
            f"{who}: no key begins with '{prefix}.', and there are keys of {', '.join(sorted(begin))}; pass the one "
            "that is meant as prefix="
        ) from None


class PeftAdapterMixin:
    """LoRAs of a model by name. They lie beside its weights, are in no state dict, and pipelines that share the model
    share them. See also the pipelines' load_lora_weights(), for all networks at once.
    """

    _lora_scale = 1.0  # of the call under way

    def add_adapter(self, adapter_config, adapter_name="default"):
        """A new LoRA beside the layers that adapter_config (a LoraConfig, or PEFT's) names, to be trained: its factors
        are among parameters(), in float32, and it is on, alone. The model's own weights stay as they are; say
        requires_grad_(False) before, so that they get no gradients. save_lora_adapter(), or the pipelines'
        save_lora_weights() with get_peft_model_state_dict(), write it. ValueError, and nothing changes, for a name
        that is taken and for layers that are not there.
        """
        fields = fields_of("add_adapter", adapter_config)
        _lora.create(self, name_for("add_adapter", adapter_name, ()), fields)

    def set_requires_grad(self, adapter_names, requires_grad=True):
        """Whether these adapters are trained. A loaded one then has factors of its own, in float32, among parameters();
        turned off again it is what inference takes, which is faster. ValueError naming those there are, for a name
        that is not there, and for one that is fused.
        """
        names = listed(adapter_names)
        check_names("set_requires_grad", names, _lora.names(self))
        for name in names:
            _lora.train(self, name, requires_grad)

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """Iterates over (dotted name, parameter): the model's own, then those of adapters that are trained."""
        yield from super().named_parameters(prefix, recurse, remove_duplicate)
        if recurse:
            for name, parameter in _lora.parameters(self).items():
                yield (f"{prefix}.{name}" if prefix else name), parameter

    def parameters(self, recurse=True):
        """Iterates over the parameters, those of adapters that are trained included; each once."""
        yield from super().parameters(recurse)
        if recurse:
            yield from _lora.parameters(self).values()

    def requires_grad_(self, requires_grad=True):
        """Whether all parameters, those of adapters that are trained included, get gradients."""
        super().requires_grad_(requires_grad)
        for parameter in _lora.parameters(self).values():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Gradients of all parameters become None, or zeros."""
        super().zero_grad(set_to_none)
        for parameter in _lora.parameters(self).values():
            if parameter.grad is not None:
                parameter.grad = None if set_to_none else _core.zeros_like(parameter.grad)

    def load_lora_adapter(
        self, pretrained_model_name_or_path_or_dict, prefix="transformer", hotswap=False, *, strict=True, **kwargs
    ):
        """Loads this model's part of a LoRA: a file, a folder, a repository of the hub (with weight_name and the
        keywords of scaffolding.hub), or a dict of tensors. It is on afterwards, with weight 1 and alone.

        prefix: what its keys begin with, "unet" of a UNet's; keys of other networks are left out. None: all keys are
        this model's. adapter_name: default_0, default_1, ... where absent. hotswap: it takes the place of the adapter
        of that name. metadata: PEFT's fields ("r", "lora_alpha", "alpha_pattern") of a dict of tensors.
        strict=False leaves out keys that fit nothing. ValueError, and nothing changes, for what does not fit.
        """
        who = "load_lora_adapter"
        name, metadata = kwargs.pop("adapter_name", None), lora_files.metadata(who, kwargs)
        source = lora_files.source(who, pretrained_model_name_or_path_or_dict, kwargs)
        if metadata is not None:
            inside = "" if prefix is None else f"{prefix}."
            metadata = {k.removeprefix(inside): v for k, v in metadata.items()}
        name = name_for(who, name, _lora.names(self))
        active, components = self.active_adapters(), {prefix or "model": self}
        if hotswap:
            check_names(f"{who}: hotswap", [name], _lora.names(self))
        try:
            keys = _lora.look(source, metadata, components)
        except ValueError:
            _check_prefix(who, source, prefix)
            raise
        for key, (use, _, _, why) in keys.items():
            if strict and use != "applied" and not _is_of_another(key, prefix):
                raise ValueError(f"{who}: '{key}' {why}; strict=False leaves it out")
        _lora.load(source, metadata, components, name, False, hotswap)
        if not (hotswap and name in active):
            self.set_adapters(name)

    def save_lora_adapter(
        self,
        save_directory,
        adapter_name="default",
        upcast_before_saving=False,
        safe_serialization=True,
        weight_name=None,
    ):
        """Writes an adapter into pytorch_lora_weights.safetensors (or weight_name) of a folder: keys without a prefix,
        ranks and alphas in the file's metadata. upcast_before_saving: in float32. load_lora_adapter(folder,
        prefix=None) and diffusers read it.
        """
        check_names("save_lora_adapter", [adapter_name], _lora.names(self))
        tensors = get_peft_model_state_dict(self, adapter_name)
        if upcast_before_saving:
            tensors = {k: t.to(_core.float32) for k, t in tensors.items()}
        said = peft_config_of(self, adapter_name)
        write("save_lora_adapter", save_directory, tensors, said, weight_name, safe_serialization)

    def set_adapters(self, adapter_names, weights=None):
        """These are on and no others. weights: a number, or one for each; of a UNet by block too: {"down": 1, "mid":
        0.5, "up": {"block_0": [1, 0.5]}}. ValueError naming those there are, for a name that is not there.
        """
        names = listed(adapter_names)
        check_names("set_adapters", names, _lora.names(self))
        _lora.set(self, [weight_row(self, n, w) for n, w in zip(names, weights_for("set_adapters", names, weights))])

    def set_adapter(self, adapter_name):
        """This one is on, or these are, with weight 1, and no others."""
        self.set_adapters(adapter_name)

    def active_adapters(self):
        """The names of those that are on, or would be after enable_adapters()."""
        return _lora.active(self)

    def disable_adapters(self):
        """Adapters stay where they are and take no part."""
        _lora.enable(self, False)

    def enable_adapters(self):
        """All that is on takes part again."""
        _lora.enable(self, True)

    def disable_lora(self):
        """disable_adapters()."""
        self.disable_adapters()

    def enable_lora(self):
        """enable_adapters()."""
        self.enable_adapters()

    def delete_adapters(self, adapter_names):
        """Takes them off and forgets them. ValueError naming those there are, for one that is not."""
        names = listed(adapter_names)
        check_names("delete_adapters", names, _lora.names(self))
        for name in dict.fromkeys(names):
            _lora.remove(self, name)

    def unload_lora(self):
        """Forgets all adapters. What was fused stays in the weights until unfuse_lora()."""
        for name in _lora.names(self):
            _lora.remove(self, name)
        _lora.enable(self, True)

    def enable_lora_hotswap(self, target_rank=128, check_compiled="error"):
        """On a GPU: memory for ranks of so many in all beside every linear layer and convolution, so that CUDA graphs
        of the model go on whichever LoRAs come. Without it they go on while the layers are the same and ranks, rounded
        up to 16, too. 0 gives the memory back. check_compiled: as in diffusers; nothing is compiled here.
        """
        if check_compiled not in ("error", "warn", "ignore"):
            raise ValueError(
                f"enable_lora_hotswap: check_compiled must be error, warn or ignore, got {check_compiled!r}"
            )
        _lora.reserve(self, target_rank)

    def fuse_lora(self, lora_scale=1.0, safe_fusing=False, adapter_names=None):
        """Adds what is on (or adapter_names of it) to the weights, lora_scale times: summed in float32, rounded once.
        The old weights are kept for unfuse_lora(). safe_fusing: ValueError where a sum is not finite.
        """
        scale = number("fuse_lora: lora_scale", lora_scale)
        check_names("fuse_lora", adapter_names or (), _lora.names(self))
        _lora.fuse(self, scale, safe_fusing, None if adapter_names is None else listed(adapter_names))

    def unfuse_lora(self):
        """Puts back the weights that there were before fuse_lora(), to the byte; adapters are beside them again."""
        _lora.unfuse(self)

    def to(self, *args, **kwargs):
        super().to(*args, **kwargs)
        self._refresh_adapters()
        return self

    to.__doc__ = None

    def _refresh_adapters(self):
        """Puts them beside layers that are others now, or of another dtype."""
        _lora.refresh(self)
