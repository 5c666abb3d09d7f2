"""LoRA in pipelines, by diffusers' calls: load_lora_weights, set_adapters, fuse_lora and the rest, for all networks at
once. Those of one network are its own (models/adapters.py).
"""

from ..._core import _models
from ...models import lora_files
from ...models.adapters import are, check_names, listed, name_for, number, weight_row, weights_for, write
from ...models.modeling import ModelMixin

_lora = _models._lora


class LoraLoaderMixin:
    """The networks of _lora_loadable_modules, all but autoencoders, may have adapters, which pipelines that share
    these networks share.
    """

    _lora_loadable_modules = ()

    def _lora_models(self):
        parts = {name: getattr(self, name, None) for name in self._lora_loadable_modules}
        return {name: model for name, model in parts.items() if isinstance(model, ModelMixin)}

    def _lora_names(self):
        return list(dict.fromkeys(name for names in self.get_list_adapters().values() for name in names))

    def load_lora_weights(
        self, pretrained_model_name_or_path_or_dict, adapter_name=None, hotswap=False, *, strict=True, **kwargs
    ):
        """Loads a LoRA: a file, a folder with one (or with PEFT's folders for each component), a repository of the hub
        (with weight_name and the keywords of scaffolding.hub), or a dict of tensors. Of kohya's scripts, diffusers,
        PEFT or ComfyUI. It is on afterwards, with weight 1 and alone. adapter_name: default_0, default_1, ... where
        absent. hotswap: it takes the place of the adapter of that name, whatever that one's rank and layers.
        strict=False leaves out keys that fit nothing. metadata: of a dict of tensors, PEFT's fields behind a
        component's name ("unet.lora_alpha").

        Returns nothing. ValueError, and nothing changes, for files that are no LoRA, are of another base,
        or are broken.
        """
        metadata = lora_files.metadata("load_lora_weights", kwargs)
        source = lora_files.source("load_lora_weights", pretrained_model_name_or_path_or_dict, kwargs)
        taken = self._lora_names()
        if hotswap and adapter_name not in taken:
            raise ValueError(
                f"load_lora_weights: hotswap needs an adapter to replace, and there is none '{adapter_name}'; there "
                f"{are(taken)}"
            )
        name, active = name_for("load_lora_weights", adapter_name, taken), self.get_active_adapters()
        _lora.load(source, metadata, self._lora_models(), name, strict, hotswap)
        if not (hotswap and name in active):
            self.set_adapters(name)

    @classmethod
    def lora_state_dict(cls, pretrained_model_name_or_path_or_dict, **kwargs):
        """(tensors by the file's own names, alphas of kohya's files by name or None)."""
        source = lora_files.source("lora_state_dict", pretrained_model_name_or_path_or_dict, kwargs)
        state = _lora.tensors(source)
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
        names = listed(adapter_names)
        weights = weights_for("set_adapters", names, adapter_weights)
        models = self._lora_models()
        check_names("set_adapters", names, self._lora_names())
        plan = {}
        for component, model in models.items():
            known = _lora.names(model)
            plan[component] = [
                weight_row(model, name, _of_component(component, weight, models))
                for name, weight in zip(names, weights)
                if name in known
            ]
        for component, model in models.items():
            if _lora.names(model):
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
        names = listed(adapter_names)
        check_names("delete_adapters", names, self._lora_names())
        for model in self._lora_models().values():
            model.delete_adapters(set(names) & set(_lora.names(model)))

    def unload_lora_weights(self):
        """Forgets all adapters. What was fused stays in the weights until unfuse_lora()."""
        for model in self._lora_models().values():
            model.unload_lora()

    def set_lora_device(self, adapter_names, device):
        """Does nothing but look for the names: adapters go where their network is, by to()."""
        check_names("set_lora_device", listed(adapter_names), self._lora_names())

    def enable_lora_hotswap(self, target_rank=128, check_compiled="error"):
        """On a GPU: the denoiser's CUDA graphs go on whichever LoRAs of up to so many ranks in all come; see the
        model's enable_lora_hotswap. Text encoders are not captured.
        """
        for name, model in self._lora_models().items():
            if not name.startswith("text_encoder"):
                model.enable_lora_hotswap(target_rank, check_compiled)

    # ---- fused

    def _fused_components(self, method, components):
        there = self._lora_loadable_modules
        components = listed(components) if components is not None else list(there)
        if not components:
            raise ValueError(f"{method}: components must name at least one of {', '.join(there)}")
        for component in components:
            if component not in there:
                raise ValueError(f"{method}: '{component}' has no adapters; components are {', '.join(there)}")
        return {c: m for c, m in self._lora_models().items() if c in components}

    def fuse_lora(self, components=None, lora_scale=1.0, safe_fusing=False, adapter_names=None):
        """Adds what is on (or adapter_names of it) to the weights, lora_scale times: summed in float32, rounded once.
        The old weights are kept for unfuse_lora(). components: all, unless some are named. safe_fusing: ValueError
        where a sum is not finite.
        """
        models, scale = self._fused_components("fuse_lora", components), number("fuse_lora: lora_scale", lora_scale)
        names = None if adapter_names is None else listed(adapter_names)
        known = {component: _lora.names(model) for component, model in models.items()}
        check_names("fuse_lora", names or (), {n for here in known.values() for n in here})
        done = []
        try:
            for component, model in models.items():
                here = None if names is None else [n for n in names if n in known[component]]
                _lora.fuse(model, scale, safe_fusing, here)
                done.append(model)
        except Exception:
            for model in done:
                _lora.unfuse(model)
            raise

    def unfuse_lora(self, components=None):
        """Puts back the weights that there were before fuse_lora(), to the byte; adapters are beside them again."""
        for model in self._fused_components("unfuse_lora", components).values():
            model.unfuse_lora()

    @property
    def fused_loras(self):
        """Names of the adapters that are in the weights of some network."""
        return {name for model in self._lora_models().values() for name in _lora.fused(model)}

    @property
    def num_fused_loras(self):
        return len(self.fused_loras)

    # ---- saving

    @classmethod
    def save_lora_weights(
        cls,
        save_directory,
        is_main_process=True,
        weight_name=None,
        save_function=None,
        safe_serialization=True,
        **parts,
    ):
        """Writes pytorch_lora_weights.safetensors into the folder, from tensors by module
        (models.get_peft_model_state_dict): transformer_lora_layers=, text_encoder_lora_layers= and so on, after the
        names of the components; transformer_lora_adapter_metadata= and so on have their ranks and alphas.
        """
        layers, metadata = {}, {}
        for keyword, given in parts.items():
            for end, where in (("_lora_layers", layers), ("_lora_adapter_metadata", metadata)):
                component = keyword.removesuffix(end)
                if component != keyword and component in cls._lora_loadable_modules:
                    where[component] = given
                    break
            else:
                raise TypeError(f"save_lora_weights: unexpected keyword argument '{keyword}'")
        tensors = {f"{c}.{k}": t for c, here in layers.items() for k, t in (here or {}).items()}
        if not tensors:
            names = ", ".join(f"{c}_lora_layers" for c in cls._lora_loadable_modules)
            raise ValueError(f"save_lora_weights: needs at least one of {names}")
        said = {f"{c}.{k}": v for c, fields in metadata.items() for k, v in (fields or {}).items()}
        write("save_lora_weights", save_directory, tensors, said, weight_name, safe_serialization)


def _of_component(component, weight, models):
    """A weight of set_adapters for one component: a number, or the UNet's by block."""
    if not isinstance(weight, dict):
        return weight
    unknown = [c for c in weight if c not in models]
    if unknown:
        raise ValueError(f"set_adapters: there is no component '{unknown[0]}' with adapters; there {are(list(models))}")
    return weight.get(component)


# ---- diffusers' classes, which name their components in signatures


class StableDiffusionLoraLoaderMixin(LoraLoaderMixin):
    def fuse_lora(self, components=["unet", "text_encoder"], lora_scale=1.0, safe_fusing=False, adapter_names=None):
        super().fuse_lora(components, lora_scale, safe_fusing, adapter_names)

    def unfuse_lora(self, components=["unet", "text_encoder"]):
        super().unfuse_lora(components)

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
        """Writes pytorch_lora_weights.safetensors into the folder, from tensors by module
        (models.get_peft_model_state_dict).
        """
        super().save_lora_weights(
            save_directory,
            is_main_process,
            weight_name,
            save_function,
            safe_serialization,
            unet_lora_layers=unet_lora_layers,
            text_encoder_lora_layers=text_encoder_lora_layers,
            unet_lora_adapter_metadata=unet_lora_adapter_metadata,
            text_encoder_lora_adapter_metadata=text_encoder_lora_adapter_metadata,
        )


class StableDiffusionXLLoraLoaderMixin(LoraLoaderMixin):
    def fuse_lora(
        self,
        components=["unet", "text_encoder", "text_encoder_2"],
        lora_scale=1.0,
        safe_fusing=False,
        adapter_names=None,
    ):
        super().fuse_lora(components, lora_scale, safe_fusing, adapter_names)

    def unfuse_lora(self, components=["unet", "text_encoder", "text_encoder_2"]):
        super().unfuse_lora(components)

    fuse_lora.__doc__ = LoraLoaderMixin.fuse_lora.__doc__
    unfuse_lora.__doc__ = LoraLoaderMixin.unfuse_lora.__doc__

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
        """Writes pytorch_lora_weights.safetensors into the folder, from tensors by module
        (models.get_peft_model_state_dict).
        """
        super().save_lora_weights(
            save_directory,
            is_main_process,
            weight_name,
            save_function,
            safe_serialization,
            unet_lora_layers=unet_lora_layers,
            text_encoder_lora_layers=text_encoder_lora_layers,
            text_encoder_2_lora_layers=text_encoder_2_lora_layers,
            unet_lora_adapter_metadata=unet_lora_adapter_metadata,
            text_encoder_lora_adapter_metadata=text_encoder_lora_adapter_metadata,
            text_encoder_2_lora_adapter_metadata=text_encoder_2_lora_adapter_metadata,
        )
