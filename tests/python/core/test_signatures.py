"""inspect.signature of everything public: editors, notebooks and pipelines of others ask it."""

import importlib
import inspect
import types

import pytest

import scaffolding as sf

MODULES = (
    "scaffolding scaffolding.nn scaffolding.nn.functional scaffolding.nn.init scaffolding.nn.utils "
    "scaffolding.nn.video scaffolding.diffusion scaffolding.diffusion.schedulers scaffolding.diffusion.pipelines "
    "scaffolding.models scaffolding.optim scaffolding.data scaffolding.io scaffolding.tokenizers scaffolding.train "
    "scaffolding.utils scaffolding.autograd scaffolding.cuda scaffolding.hub scaffolding.distributed scaffolding.amp"
).split()


def is_ours(value):
    """Neither Python's own nor a class of Python whose base is one of Python's and tells nothing."""
    where = getattr(value, "__objclass__", value)
    module = getattr(where, "__module__", None)
    return isinstance(module, str) and module.startswith("scaffolding")


def made_by_python_base(cls):
    """A class without a constructor of its own over dict, Exception and the like."""
    made = next(c for c in cls.__mro__ if "__init__" in vars(c) or "__new__" in vars(c))
    return made.__module__ in ("builtins", "collections")


def public(module):
    for name in dir(module):
        value = getattr(module, name)
        if name.startswith("_") or isinstance(value, types.ModuleType) or not callable(value) or not is_ours(value):
            continue
        if not isinstance(value, type):
            yield f"{module.__name__}.{name}", value
            continue
        if not made_by_python_base(value):
            yield f"{module.__name__}.{name}", value
        for member in dir(value):
            found = inspect.getattr_static(value, member)
            if member.startswith("_") or isinstance(found, property) or not callable(getattr(value, member, None)):
                continue
            if is_ours(found) or isinstance(found, (classmethod, staticmethod)):
                yield f"{module.__name__}.{name}.{member}", getattr(value, member)


@pytest.mark.parametrize("module", MODULES)
def test_everything_public_has_a_signature(module):
    count, without = 0, []
    for name, value in public(importlib.import_module(module)):
        count += 1
        try:
            inspect.signature(value)
        except (ValueError, TypeError):
            without.append(name)
    assert not without and count > 0


def names(function):
    return list(inspect.signature(function).parameters)


def test_signatures_say_what_is_taken():
    generator = sf.Generator()
    assert names(generator.manual_seed) == ["seed"] and names(sf.Generator.manual_seed) == ["self", "seed"]
    assert names(sf.set_num_threads) == ["num"]
    assert inspect.signature(sf.zeros).parameters["requires_grad"].default is False
    assert names(sf.softmax)[:2] == ["input", "dim"] and names(sf.nn.Linear)[:2] == ["in_features", "out_features"]
    assert names(sf.nn.Linear(2, 3).forward) == ["input"]

    class Own(sf.Generator):
        def __init__(self, name, device="cpu"):
            super().__init__(device)

    assert names(Own) == ["name", "device"]


def test_models_and_pipelines_say_their_fields_and_components():
    unet = inspect.signature(sf.diffusion.UNet2DConditionModel).parameters
    assert list(unet)[:3] == ["sample_size", "in_channels", "out_channels"] and "cross_attention_dim" in unet
    assert unet["cross_attention_dim"].default == 1280 and unet["act_fn"].default == "silu"
    own = inspect.signature(sf.diffusion.UNet2DConditionModel.__init__).parameters
    assert list(own) == ["self", *unet] and own["sample_size"].default is None
    assert inspect.signature(sf.models.T5EncoderModel.__init__).parameters["num_layers"].default == 6
    assert "self" not in unet and names(sf.diffusion.UNet2DConditionModel.forward)[1] == "sample"
    pipeline = inspect.signature(sf.diffusion.StableDiffusionPipeline)
    assert list(pipeline.parameters)[:5] == ["vae", "text_encoder", "tokenizer", "unet", "scheduler"]
    call = inspect.signature(sf.diffusion.StableDiffusionPipeline.__call__).parameters
    assert {"prompt", "negative_prompt", "guidance_scale", "generator"} < set(call)
    assert call["num_inference_steps"].default == 50
