"""Configs of schedulers and models, as diffusers' classes keep them."""

import functools
import os
import sys
import warnings

from .._core import _diffusion
from ..models.frozen_dict import FrozenDict


def _init_keys(cls):
    """The names of a class's arguments."""
    import inspect

    return [name for name in inspect.signature(cls.__init__).parameters if name not in ("self", "kwargs")]


def _logger():
    import logging

    return logging.getLogger(__name__)


def _class_of(name):
    """The class of this name among those of scaffolding.diffusion, or None."""
    return getattr(sys.modules[__package__], name, None) if isinstance(name, str) else None


class ConfigMixin:
    """For classes of one's own whose arguments are a config: `__init__` under `@register_to_config`, and `config_name`,
    the name of the file.

    `_compatibles` of a scheduler: names of classes whose fields a config may have too.

    >>> class Mine(sf.diffusion.ConfigMixin):
    ...     config_name = "mine.json"
    ...     @sf.diffusion.register_to_config
    ...     def __init__(self, steps=50): pass
    >>> Mine(steps=20).config.steps
    20
    """

    config_name = None
    ignore_for_config = []
    has_compatibles = False
    _deprecated_kwargs = []
    _compatibles = []

    def register_to_config(self, **kwargs):
        """Puts entries into `config`."""
        if self.config_name is None:
            raise NotImplementedError(f"{type(self).__name__}: a class with a config needs a config_name")
        kwargs.pop("kwargs", None)
        before = self.__dict__.get("_internal_dict", {})
        self.__dict__["_internal_dict"] = FrozenDict({**before, **kwargs})

    @property
    def config(self):
        """The arguments, as a dict whose entries are attributes too."""
        return self._internal_dict

    def __getattr__(self, name):
        config = self.__dict__.get("_internal_dict", {})
        if name not in config:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        warnings.warn(
            f"'{type(self).__name__}' object: {name} is an entry of its config; take config.{name}",
            FutureWarning,
            stacklevel=2,
        )
        return config[name]

    def to_json_string(self):
        """The config as save_config writes it."""
        return _diffusion.format_config(self._saved_config())

    def _saved_config(self):
        entries = {k: v for k, v in self.config.items() if k not in ("_class_name", "_use_default_values")}
        plain = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in entries.items()}
        return {"_class_name": type(self).__name__, **plain}

    def to_json_file(self, json_file_path):
        """Writes the config into this file."""
        _diffusion.write_config_file(self._saved_config(), os.fspath(json_file_path))

    def save_config(self, save_directory):
        """Writes the config into a file named config_name in the folder, which is made where it is not there."""
        os.makedirs(save_directory, exist_ok=True)
        self.to_json_file(os.path.join(save_directory, self.config_name))

    @classmethod
    def load_config(cls, pretrained_model_name_or_path, subfolder=None):
        """The entries of the config's file in a folder, or of the file itself."""
        path = os.fspath(pretrained_model_name_or_path)
        if subfolder:
            path = os.path.join(path, subfolder)
        if not os.path.isfile(path):
            path = os.path.join(path, cls.config_name)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"{cls.__name__}: no file {path}")
        return _diffusion.read_config_file(path)

    @classmethod
    def from_config(cls, config=None, return_unused_kwargs=False, **kwargs):
        """An object of this class with the entries of a config: a dict, or another object's `.config`; keywords
        override.

        Entries that are no arguments are kept in `.config`; the log tells of those that no compatible class has.
        TypeError for a field of another type, ValueError for an impossible value.
        """
        if isinstance(config, ConfigMixin):
            config = config.config
        if not isinstance(config, dict):
            raise TypeError(f"{cls.__name__}.from_config: config must be a dict, got {type(config).__name__}")
        arguments, unused, hidden = cls.extract_init_dict(config, **kwargs)
        made = cls(**arguments)
        made.register_to_config(**hidden, _class_name=cls.__name__)
        return (made, {**unused, **hidden}) if return_unused_kwargs else made

    @classmethod
    def extract_init_dict(cls, config_dict, **kwargs):
        """(arguments of this class, keywords and entries that are none, entries to keep for other classes) of a
        config, whose entries of other classes' defaults are left out."""
        defaults = (*config_dict.get("_use_default_values", ()), "_use_default_values", "_class_name")
        given = {k: v for k, v in config_dict.items() if k not in defaults}
        expected = [k for k in _init_keys(cls) if k not in cls.ignore_for_config]
        chosen = {**given, **kwargs}
        arguments = {k: chosen[k] for k in expected if k in chosen}
        hidden = {k: v for k, v in given.items() if k not in arguments}

        origin = _class_of(config_dict.get("_class_name"))
        relatives = [*(cls._get_compatibles() if cls.has_compatibles else ()), *([origin] if origin else ())]
        known = {key for relative in relatives for key in _init_keys(relative)}
        strange = {k: v for k, v in hidden.items() if k not in known and k[0] != "_" and k != "quantization_config"}
        if strange:
            _logger().warning(
                f"The config attributes {strange} were passed to {cls.__name__}, but are not expected and will be "
                f"ignored. Please verify your {cls.config_name} configuration file."
            )
        missing = {k for k in expected if k not in arguments}
        if missing:
            _logger().info(f"{missing} was not found in config. Values will be initialized to default values.")
        return arguments, {**strange, **{k: v for k, v in kwargs.items() if k not in arguments}}, hidden

    @classmethod
    def _get_compatibles(cls):
        names = dict.fromkeys([cls.__name__, *cls._compatibles])
        return [found for found in map(_class_of, names) if found]

    def __repr__(self):
        return f"{type(self).__name__} {self.to_json_string()}"


def register_to_config(init):
    """Of an `__init__`: its arguments become the object's config before it runs, those that a call leaves out by their
    defaults."""

    @functools.wraps(init)
    def registering(self, *args, **kwargs):
        import inspect

        if not isinstance(self, ConfigMixin):
            raise RuntimeError(f"register_to_config: {type(self).__name__} is no ConfigMixin")
        private = {k: v for k, v in kwargs.items() if k.startswith("_")}
        public = {k: v for k, v in kwargs.items() if k not in private}
        parameters = inspect.signature(init).parameters
        names = [n for n in parameters if n not in ("self", "args", "kwargs") and n not in self.ignore_for_config]
        given = {**dict(zip(list(parameters)[1:], args)), **public}
        entries = {name: given.get(name, parameters[name].default) for name in names}
        unsaid = [name for name in names if name not in given]
        if unsaid:
            private["_use_default_values"] = unsaid
        self.register_to_config(**private, **entries, _class_name=type(self).__name__)
        init(self, *args, **public)

    return registering
