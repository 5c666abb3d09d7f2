"""Configs of models, schedulers and pipelines."""


class FrozenDict(dict):
    """A config: a dict whose entries are attributes too and cannot be changed.

    >>> config = sf.models.AutoencoderTiny().config
    >>> config.latent_channels, config["scaling_factor"]
    (4, 1.0)
    """

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"config: has no '{name}'") from None

    def _refuse(self, *args, **kwargs):
        raise TypeError("config: cannot be changed; make a new object by from_config(config, name=value)")

    __setitem__ = __delitem__ = __setattr__ = __delattr__ = _refuse
    pop = popitem = update = setdefault = clear = __ior__ = _refuse

    def __reduce__(self):
        return FrozenDict, (dict(self),)
