"""LoRA in pipelines, by diffusers' calls: load_lora_weights, set_adapters, fuse_lora and the rest. Files and adapters
are C++'s (scaffolding/models/adapters).
"""

import json
import os
from contextlib import contextmanager

from ... import hub, safetensors
from ..._core import _models

_lora = _models._lora
_NAMES = ("pytorch_lora_weights.safetensors", "pytorch_lora_weights.bin", "adapter_model.safetensors")
_HUB = ("revision", "cache_dir", "force_download", "token", "local_files_only", "subfolder")
_IGNORED = ("low_cpu_mem_usage", "use_safetensors", "proxies")


def _file(source, weight_name, options):
    """A LoRA's path: itself, the file of a folder, or of a repository of the hub. Dicts of tensors as they are."""
    if not isinstance(source, (str, os.PathLike)):
        return dict(source)
    path = os.fspath(source)
    if os.path.isdir(path):
        path = os.path.join(path, options.pop("subfolder", None) or "")
        return os.path.join(path, weight_name) if weight_name else path
    if os.path.exists(path) or path.count("/") != 1 or path.endswith((".safetensors", ".bin", ".pt")):
        return path
    return hub.hf_hub_download(path, weight_name or _NAMES[0], **options)


class LoraLoaderMixin:
    """The networks of _lora_loadable_modules may have adapters, which pipelines that share these networks share."""

    _lora_loadable_modules = ()

    def _lora_models(self):
        parts = {name: getattr(self, name, None) for name in self._lora_loadable_modules}
        return {name: model for name, model in parts.items() if model is not None}

    def load_lora_weights(
        self, pretrained_model_name_or_path_or_dict, adapter_name=None, hotswap=False, *, strict=True, **kwargs
    ):
        """Loads a LoRA: a file, a folder with one, a repository of the hub (with weight_name and the keywords of
        scaffolding.hub), or a dict of tensors. Of kohya's scripts, diffusers, PEFT or ComfyUI. It is on afterwards,
        with weight 1 and alone. adapter_name: default_0, default_1, ... where absent. hotswap: it takes the place of
        the adapter of that name, whatever that one's rank and layers. strict=False leaves out keys that fit nothing.

        Returns nothing. ValueError, and nothing changes, for files that are no LoRA, are of another base,
        or are broken.
        """
        weight_name = kwargs.pop("weight_name", None)
        options = {k: kwargs.pop(k) for k in _HUB if k in kwargs}
        for name in _IGNORED:
            kwargs.pop(name, None)
        if kwargs:
            raise TypeError(f"load_lora_weights: unexpected keyword argument '{next(iter(kwargs))}'")
        models = self._lora_models()
        taken = {name for model in models.values() for name in _lora.names(model)}
        if hotswap and adapter_name not in taken:
            raise ValueError(
                f"load_lora_weights: hotswap needs an adapter to replace, and there is none '{adapter_name}'"
            )
        if adapter_name is None:
            adapter_name = next(f"default_{i}" for i in range(len(taken) + 1) if f"default_{i}" not in taken)
        active = self.get_active_adapters()
        source = _file(pretrained_model_name_or_path_or_dict, weight_name, options)
        _lora.load(source, models, adapter_name, strict, hotswap)
        if not (hotswap and adapter_name in active):
            self.set_adapters(adapter_name)

    @classmethod
    def lora_state_dict(cls, pretrained_model_name_or_path_or_dict, **kwargs):
        """(tensors by the file's own names, alphas of kohya's files by name or None)."""
        weight_name = kwargs.pop("weight_name", None)
        source = _file(pretrained_model_name_or_path_or_dict, weight_name, {k: kwargs[k] for k in _HUB if k in kwargs})
        if isinstance(source, str) and os.path.isdir(source):
            source = next((p for p in (os.path.join(source, n) for n in _NAMES) if os.path.exists(p)), source)
        from ...io import load_checkpoint

        state = load_checkpoint(source) if isinstance(source, str) else source
        alphas = {k: float(t) for k, t in state.items() if k.endswith(".alpha")}
        return {k: t for k, t in state.items() if k not in alphas}, alphas or None

    # ---- which are on

    def get_list_adapters(self):
        """{component: names of its adapters}, of components that have any."""
        named = {component: _lora.names(model) for component, model in self._lora_models().items()}
        return {component: names for component, names in named.items() if names}

    def get_active_adapters(self):
        """The names of those that are on, or would be after enable_lora()."""
        for model in self._lora_models().values():
            if active := _lora.active(model):
                return active
        return []

    def set_adapters(self, adapter_names, adapter_weights=None):
        """These are on and no others. adapter_weights: a number, or one for each; or by component, as {"unet": 0.7,
        "text_encoder": 0.3}, and in the UNet by block: {"unet": {"down": 1, "mid": 0.5, "up": {"block_0": [1, 0.5]}}};
        what is not named has 1.

        ValueError naming those there are, for a name or a component that is not there.
        """
        names = [adapter_names] if isinstance(adapter_names, str) else list(adapter_names)
        weights = adapter_weights if isinstance(adapter_weights, list) else [adapter_weights] * len(names)
        if len(weights) != len(names):
            raise ValueError(f"set_adapters: needs a weight for each of {len(names)} adapters, got {len(weights)}")
        models = self._lora_models()
        known = {component: _lora.names(model) for component, model in models.items()}
        everywhere = sorted({n for all_names in known.values() for n in all_names})
        for name in names:
            if name not in everywhere:
                raise ValueError(f"set_adapters: there is no adapter '{name}'; there {_are(everywhere)}")
        plan = {}
        for component, model in models.items():
            plan[component] = []
            for name, weight in zip(names, weights):
                if name in known[component]:
                    mine = _of_component(component, weight, models)
                    modules = _lora.modules(model, name) if isinstance(mine, dict) else ()
                    others = _weights_by_module(mine, model, modules) if modules else {}
                    plan[component].append((name, 1.0 if modules else float(mine), others))
        for component, model in models.items():
            if known[component]:
                _lora.set(model, plan[component])

    def enable_lora(self):
        """All that is on takes part again."""
        for model in self._lora_models().values():
            _lora.enable(model, True)

    def disable_lora(self):
        """Adapters stay where they are and take no part."""
        for model in self._lora_models().values():
            _lora.enable(model, False)

    def delete_adapters(self, adapter_names):
        """Takes them off and forgets them. ValueError naming those there are, for one that is not."""
        names = [adapter_names] if isinstance(adapter_names, str) else list(adapter_names)
        everywhere = sorted({n for all_names in self.get_list_adapters().values() for n in all_names})
        for name in names:
            if name not in everywhere:
                raise ValueError(f"delete_adapters: there is no adapter '{name}'; there {_are(everywhere)}")
        for model in self._lora_models().values():
            for name in set(names) & set(_lora.names(model)):
                _lora.remove(model, name)

    def unload_lora_weights(self):
        """Forgets all adapters. What was fused stays in the weights until unfuse_lora()."""
        for model in self._lora_models().values():
            for name in _lora.names(model):
                _lora.remove(model, name)
            _lora.enable(model, True)

    # ---- fused

    def _fused_components(self, method, components):
        if not components:
            raise ValueError(f"{method}: components must name at least one of {', '.join(self._lora_loadable_modules)}")
        for component in components:
            if component not in self._lora_loadable_modules:
                raise ValueError(
                    f"{method}: '{component}' has no adapters; components are {', '.join(self._lora_loadable_modules)}"
                )
        return {c: m for c, m in self._lora_models().items() if c in components}

    def _fuse(self, components, lora_scale, safe_fusing, adapter_names):
        models = self._fused_components("fuse_lora", components)
        for name in adapter_names or ():
            if not any(name in _lora.names(model) for model in models.values()):
                raise ValueError(f"fuse_lora: there is no adapter '{name}' in {', '.join(models)}")
        done = []
        try:
            for model in models.values():
                names = None if adapter_names is None else [n for n in adapter_names if n in _lora.names(model)]
                _lora.fuse(model, lora_scale, safe_fusing, names)
                done.append(model)
        except Exception:
            for model in done:
                _lora.unfuse(model)
            raise

    def _unfuse(self, components):
        for model in self._fused_components("unfuse_lora", components).values():
            _lora.unfuse(model)

    @property
    def fused_loras(self):
        """Names of the adapters that are in the weights of some network."""
        return {name for model in self._lora_models().values() for name in _lora.fused(model)}

    @property
    def num_fused_loras(self):
        return len(self.fused_loras)

    # ---- saving

    @staticmethod
    def _save_lora(save_directory, parts, metadata, weight_name, safe_serialization):
        """parts: {component: its tensors, by module, lora_A or lora_B and "weight"}."""
        tensors = {f"{c}.{k}": t for c, layers in parts.items() for k, t in (layers or {}).items()}
        if not tensors:
            raise ValueError(f"save_lora_weights: needs at least one of {', '.join(c + '_lora_layers' for c in parts)}")
        if os.path.isfile(save_directory):
            raise ValueError(f"save_lora_weights: save_directory must be a folder, and {save_directory} is a file")
        if not safe_serialization:
            raise NotImplementedError("save_lora_weights: files are safetensors; safe_serialization must be True")
        said = {f"{c}.{k}": v for c, fields in metadata.items() for k, v in (fields or {}).items()}
        about = {"format": "pt"}
        if said:
            about["lora_adapter_metadata"] = json.dumps(said, indent=2, sort_keys=True)
        os.makedirs(save_directory, exist_ok=True)
        safetensors.save_file(tensors, os.path.join(save_directory, weight_name or _NAMES[0]), about)

    # ---- calls

    @contextmanager
    def _lora_scaled(self, given):
        """Takes scale out of cross_attention_kwargs, and holds it for the adapters of all networks."""
        asked = given.get("cross_attention_kwargs")
        scale = 1.0
        if isinstance(asked, dict) and set(asked) == {"scale"}:
            scale = float(asked["scale"])
            given["cross_attention_kwargs"] = None
        models = [m for m in self._lora_models().values() if _lora.names(m)] if scale != 1 else []
        try:
            for model in models:
                _lora.scale(model, scale)
            yield
        finally:
            for model in models:
                _lora.scale(model, 1.0)

    def _call(self, given, kwargs, output_type, return_dict):
        with self._lora_scaled(given):
            return super()._call(given, kwargs, output_type, return_dict)

    def to(self, *args, **kwargs):
        super().to(*args, **kwargs)
        for model in self._lora_models().values():
            _lora.refresh(model)
        return self

    to.__doc__ = None


def _are(names):
    return f"are {', '.join(names)}" if names else "are none"


def _of_component(component, weight, models):
    """A weight of set_adapters for one component: a number, or the UNet's by block."""
    if not isinstance(weight, dict):
        return 1.0 if weight is None else weight
    unknown = [c for c in weight if c not in models]
    if unknown:
        raise ValueError(
            f"set_adapters: there is no component '{unknown[0]}' with adapters; there {_are(list(models))}"
        )
    mine = weight.get(component)
    return 1.0 if mine is None else mine


def _weights_by_module(weight, model, modules):
    """{module: weight}. Of a dict by block the attention's number is that of the whole of its place in the block."""
    blocks = _weights_of_blocks(weight, model)

    def of(module):
        for place, value in blocks.items():
            if place in module:
                return value
        parts = module.split(".")
        return blocks.get(f"{parts[0]}.{parts[1]}.attentions.{parts[3]}", 1.0) if len(parts) > 3 else 1.0

    return {module: float(of(module)) for module in modules}


def _weights_of_blocks(weights, unet):
    """{"down_blocks.1.attentions.0": weight}, as diffusers reads {"down": ..., "mid": ..., "up": ...}."""
    for name in weights:
        if name not in ("down", "mid", "up"):
            raise ValueError(f"set_adapters: weights by block are of down, mid and up, got '{name}'")
    mid = weights.get("mid", 1.0)
    if isinstance(mid, list):
        if len(mid) != 1:
            raise ValueError(f"set_adapters: mid has 1 place for a weight, got {len(mid)}")
        mid = mid[0]
    out = {"mid_block.attentions.0": mid}
    layers = unet.config.layers_per_block
    for side, blocks, types in (
        ("down", "down_blocks", unet.config.down_block_types),
        ("up", "up_blocks", unet.config.up_block_types),
    ):
        places = {f"block_{i}": i for i, kind in enumerate(types) if "CrossAttn" in kind}
        given = weights.get(side, 1.0)
        given = given if isinstance(given, dict) else dict.fromkeys(places, given)
        for name in given:
            if name not in places:
                raise ValueError(f"set_adapters: {side} has no attention in '{name}'; there {_are(list(places))}")
        for name, i in places.items():
            count = (layers[i] if isinstance(layers, (list, tuple)) else layers) + (side == "up")
            values = given.get(name, 1.0)
            values = values if isinstance(values, list) else [values] * count
            if len(values) != count:
                raise ValueError(f"set_adapters: {side}.{name} has {count} places for weights, got {len(values)}")
            out.update({f"{blocks}.{i}.attentions.{k}": v for k, v in enumerate(values)})
    return out


class StableDiffusionLoraLoaderMixin(LoraLoaderMixin):
    _lora_loadable_modules = ("unet", "text_encoder")

    def fuse_lora(self, components=["unet", "text_encoder"], lora_scale=1.0, safe_fusing=False, adapter_names=None):
        """Adds what is on (or adapter_names of it) to the weights, lora_scale times: summed in float32, rounded once.
        The old weights are kept for unfuse_lora(). safe_fusing: ValueError where a sum is not finite.
        """
        self._fuse(components, lora_scale, safe_fusing, adapter_names)

    def unfuse_lora(self, components=["unet", "text_encoder"]):
        """Puts back the weights that there were before fuse_lora(), to the byte; adapters are beside them again."""
        self._unfuse(components)

    @classmethod
    def save_lora_weights(
        cls,
        save_directory,
        unet_lora_layers=None,
        text_encoder_lora_layers=None,
        is_main_process=True,
        weight_name=None,
        save_function=None,
        safe_serialization=True,
        unet_lora_adapter_metadata=None,
        text_encoder_lora_adapter_metadata=None,
    ):
        """Writes pytorch_lora_weights.safetensors into the folder, from tensors by module."""
        cls._save_lora(
            save_directory,
            {"unet": unet_lora_layers, "text_encoder": text_encoder_lora_layers},
            {"unet": unet_lora_adapter_metadata, "text_encoder": text_encoder_lora_adapter_metadata},
            weight_name,
            safe_serialization,
        )


class StableDiffusionXLLoraLoaderMixin(LoraLoaderMixin):
    _lora_loadable_modules = ("unet", "text_encoder", "text_encoder_2")

    def fuse_lora(
        self,
        components=["unet", "text_encoder", "text_encoder_2"],
        lora_scale=1.0,
        safe_fusing=False,
        adapter_names=None,
    ):
        self._fuse(components, lora_scale, safe_fusing, adapter_names)

    def unfuse_lora(self, components=["unet", "text_encoder", "text_encoder_2"]):
        self._unfuse(components)

    fuse_lora.__doc__ = StableDiffusionLoraLoaderMixin.fuse_lora.__doc__
    unfuse_lora.__doc__ = StableDiffusionLoraLoaderMixin.unfuse_lora.__doc__

    @classmethod
    def save_lora_weights(
        cls,
        save_directory,
        unet_lora_layers=None,
        text_encoder_lora_layers=None,
        text_encoder_2_lora_layers=None,
        is_main_process=True,
        weight_name=None,
        save_function=None,
        safe_serialization=True,
        unet_lora_adapter_metadata=None,
        text_encoder_lora_adapter_metadata=None,
        text_encoder_2_lora_adapter_metadata=None,
    ):
        """Writes pytorch_lora_weights.safetensors into the folder, from tensors by module."""
        parts = {
            "unet": (unet_lora_layers, unet_lora_adapter_metadata),
            "text_encoder": (text_encoder_lora_layers, text_encoder_lora_adapter_metadata),
            "text_encoder_2": (text_encoder_2_lora_layers, text_encoder_2_lora_adapter_metadata),
        }
        cls._save_lora(
            save_directory,
            {c: layers for c, (layers, _) in parts.items()},
            {c: fields for c, (_, fields) in parts.items()},
            weight_name,
            safe_serialization,
        )
