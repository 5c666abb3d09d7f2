"""LoraConfig, with PEFT's fields: which layers of a model get a LoRA that is to be trained, and how it begins."""

from dataclasses import dataclass, field


@dataclass
class LoraConfig:
    """What `model.add_adapter(config)` makes: y + lora_alpha / r * B(A(dropout(x))) beside each layer that
    target_modules names (Hu et al. 2021).

    Args:
        r: the rank, from 1 to 16384.
        lora_alpha: the side product is multiplied by lora_alpha / r (by lora_alpha / sqrt(r) with use_rslora).
        target_modules: names of linear layers and 2-D convolutions, or ends of names behind a dot; "all-linear"; or
            another str, a regular expression of whole names.
        exclude_modules: names and ends that are left out.
        lora_dropout: of the side path's input, while the model is in train().
        init_lora_weights: True: A as a linear layer begins and B zeros, the model stays as it was; "gaussian": A normal
            with a deviation of 1 / r; False: both random, for tests.
        rank_pattern, alpha_pattern: {name, end of a name or regular expression: another rank or alpha}.

    The numbers are PEFT's for the same seed. ValueError from add_adapter for what makes no sense; NotImplementedError
    for PEFT's fields that are not here (use_dora, bias, modules_to_save, layers_to_transform).

    >>> model = sf.models.DiTTransformer2DModel(2, 8, num_layers=1).requires_grad_(False)
    >>> model.add_adapter(sf.models.LoraConfig(r=4, target_modules=["to_q", "to_k"]))
    >>> optimizer = optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    >>> model.num_parameters(only_trainable=True)
    256
    """

    r: int = 8
    target_modules: object = None
    exclude_modules: object = None
    lora_alpha: float = 8
    lora_dropout: float = 0.0
    use_rslora: bool = False
    init_lora_weights: object = True
    rank_pattern: dict = field(default_factory=dict)
    alpha_pattern: dict = field(default_factory=dict)

    def to_dict(self):
        """The fields by name."""
        return dict(self.__dict__)


# Of PEFT's LoraConfig: what changes nothing where it has this value, and is refused with another.
_ABSENT = {
    "use_dora": (False, None),
    "bias": ("none", None),
    "lora_bias": (False, None),
    "modules_to_save": (None, [], ()),
    "layers_to_transform": (None, [], ()),
    "layers_pattern": (None, [], ()),
    "megatron_config": (None,),
    "trainable_token_indices": (None,),
    "layer_replication": (None,),
    "target_parameters": (None, [], ()),
}


def fields_of(who, config):
    """What C++ takes, of a LoraConfig or of PEFT's own. TypeError, ValueError, NotImplementedError."""
    if not hasattr(config, "to_dict") or not hasattr(config, "r"):
        raise TypeError(f"{who}: adapter_config must be a LoraConfig, got {type(config).__name__}")
    given = config.to_dict()
    for name, harmless in _ABSENT.items():
        if name in given and given[name] not in harmless:
            raise NotImplementedError(f"{who}: {name}={given[name]!r} of the LoraConfig is not supported")
    targets, init = given.get("target_modules") or [], given.get("init_lora_weights", True)
    if init not in (True, False, "gaussian"):
        raise NotImplementedError(f"{who}: init_lora_weights must be True, False or 'gaussian', got {init!r}")
    if not isinstance(targets, str):
        targets = sorted(targets) if isinstance(targets, (set, frozenset)) else list(targets)
    elif targets == "all-linear":
        targets = [targets]
    excluded = given.get("exclude_modules") or []
    return {
        "r": int(given["r"]),
        "lora_alpha": float(given["lora_alpha"]),
        "target_modules": targets,
        "exclude_modules": [excluded] if isinstance(excluded, str) else list(excluded),
        "lora_dropout": float(given.get("lora_dropout") or 0.0),
        "use_rslora": bool(given.get("use_rslora", False)),
        "init_lora_weights": "gaussian" if init == "gaussian" else "default" if init else "random",
        "rank_pattern": {k: int(v) for k, v in (given.get("rank_pattern") or {}).items()},
        "alpha_pattern": {k: float(v) for k, v in (given.get("alpha_pattern") or {}).items()},
    }
