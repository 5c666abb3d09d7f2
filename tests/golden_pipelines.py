"""Pipelines as the golden files describe them (tests/golden/pipeline_cases.py):
made of networks with weights by the rule, called, and compared.
"""

import numpy as np
import pytest
from hashed_weights import hashed_weight
from model_cases import away
from packed import LONG_SUFFIX, unpacked
from pipeline_cases import FOLDER, arguments_of, families, sums_off
from signatures import parameters_of

import scaffolding as sf
from scaffolding import diffusion, models

FAMILIES = families()
CASES = {case["name"]: {**case, "family": family} for family, file in FAMILIES.items() for case in file["cases"]}
PICTURES = {
    name: t
    for family in FAMILIES
    for name, t in sf.safetensors.load(unpacked(FOLDER / f"{family}{LONG_SUFFIX}")).items()
}
made_networks = {}  # by family and name: one of each for all tests


def levels_off(pipe, case, want):
    """The most by which a level of the case's pictures by `pipe` differs from those that a golden file holds."""
    got = (images_of(pipe, case) * 255).round().astype(int)
    return np.abs(got - want.numpy().astype(int)).max()


def borrowed(make, undo):
    """A fixture of pipelines, by make(...), whose networks other tests share: undo(pipe) at a test's end."""

    @pytest.fixture
    def pipes():
        made = []

        def make_one(*args, **kwargs):
            made.append(make(*args, **kwargs))
            return made[-1]

        yield make_one
        for pipe in made:
            undo(pipe)

    return pipes


@pytest.fixture(autouse=True)
def one_thread():
    """Networks of this size wait for their threads most of the time."""
    threads = sf.get_num_threads()
    sf.set_num_threads(1)
    yield
    sf.set_num_threads(threads)


def part(family, name):
    """A network, a scheduler or a tokenizer by its name in the family's file."""
    file = FAMILIES[family]
    if name is None:
        return None
    if isinstance(name, list):
        return [part(family, n) for n in name]
    if name in file["schedulers"]:
        cls, config = file["schedulers"][name]
        return getattr(diffusion, cls)(**config)
    if name in file["tokenizers"]:
        return getattr(sf.tokenizers, file["tokenizers"][name]).from_pretrained(str(FOLDER / name))
    if (family, name) not in made_networks:
        cls, config = file["networks"][name]
        model = getattr(models, cls).from_config(config)
        model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
        made_networks[family, name] = model.eval()
    return made_networks[family, name]


def pipeline_of(case, family):
    parts = {component: part(family, name) for component, name in case["components"].items()}
    return getattr(diffusion, case["pipeline"])(**parts, **case.get("options", {}))


def generators(seed):
    made = [sf.Generator().manual_seed(s) for s in (seed if isinstance(seed, list) else [seed])]
    return made if isinstance(seed, list) else made[0]


def argument_of(kind, value):
    """A value of a call, of arguments_of's kinds."""
    if kind == "condition":
        return diffusion.LTX2VideoCondition(value["frames"], value["index"], value["strength"], crf=0)
    return sf.tensor(value) if kind == "tensor" else value


def output_of(pipe, case, call=None, **changes):
    """What the case's call returns, by default with arrays."""
    arguments = arguments_of(case["call"] if call is None else call, argument_of)
    return pipe(generator=generators(case["seed"]), **{"output_type": "np", **arguments, **changes})


def guided_as(pipe, plan):
    """The argument of a call that is guided as a memory plan says, of pipelines that are guided."""
    return {"guidance_mode": plan.guidance_mode} if "guidance_mode" in parameters_of(type(pipe).__call__) else {}


def images_of(pipe, case, call=None, **changes):
    out = output_of(pipe, case, call, **changes)
    return out.frames if hasattr(out, "frames") else out.images


def run(case, make=pipeline_of, **changes):
    """The case's pictures in [0, 1], [B, H, W, 3], its clips, [B, T, H, W, 3], or latents."""
    out = images_of(make(case, case["family"]), case, **changes)
    if "then" in case:
        out = images_of(make(case["then"], case["family"]), case, case["then"]["call"], image=out, **changes)
    return out.numpy() if isinstance(out, sf.Tensor) else out


def assert_is(name, got):
    """Within 1 of 255 of diffusers' picture; latents within 1e-3."""
    want = PICTURES[name].numpy()
    assert list(got.shape) == CASES[name]["shape"]
    if want.dtype == np.int16:
        off = sums_off(got, want)
        assert off <= 1, f"{off:.2f} of 255"
    elif want.dtype == np.uint8:
        difference = np.abs((got * 255).round().astype(int) - want)
        assert difference.max() <= 1, f"{difference.max()} of 255, {(difference > 1).mean():.3%} of the values"
    else:
        assert away(name, got, want, least=1) <= 1e-3
