"""Pipelines: diffusers' pictures (tests/golden/make_golden_pipelines.py), arguments, callbacks and refusals."""

import inspect
import json

import numpy as np
import pytest
from folders import GOLDEN
from hashed_weights import hashed_weight
from pipeline_inputs import CALLBACKS, embeds, mask, picture

import scaffolding as sf
from scaffolding import diffusion

DOCUMENT = json.loads((GOLDEN / "pipelines" / "cases.json").read_text())
CASES = {c["name"]: c for c in DOCUMENT["cases"]}
PICTURES = sf.io.load_checkpoint(GOLDEN / "pipelines" / "pictures.safetensors")
_made = {}


@pytest.fixture(autouse=True)
def one_thread():
    """Networks of this size wait for their threads most of the time."""
    threads = sf.get_num_threads()
    sf.set_num_threads(1)
    yield
    sf.set_num_threads(threads)


def filled(cls, config):
    """A network whose weights are the golden files' rule; one for all tests."""
    if (cls, config) not in _made:
        fields = DOCUMENT["configs"][config]
        model = cls.from_config(fields)
        model.load_state_dict({k: sf.tensor(hashed_weight(k, tuple(t.shape))) for k, t in model.state_dict().items()})
        _made[cls, config] = model.eval()
    return _made[cls, config]


def tokenizer(which="tokenizer"):
    return sf.tokenizers.CLIPTokenizer.from_pretrained(str(GOLDEN / "pipelines" / which))


def scheduler(name="ddim"):
    cls, config = DOCUMENT["schedulers"][name]
    return getattr(diffusion, cls)(**config)


def make(name="StableDiffusionPipeline", unet=None, schedule="ddim", **others):
    xl = "XL" in name
    unet = unet or ("xl" if xl else "unet")
    parts = {
        "unet": filled(diffusion.UNet2DConditionModel, unet),
        "vae": filled(diffusion.AutoencoderKL, "xl_vae" if xl else "vae"),
        "scheduler": scheduler(schedule),
        "tokenizer": tokenizer(),
        "text_encoder": filled(diffusion.CLIPTextModel, "text"),
    }
    if xl:
        parts |= {"text_encoder_2": filled(diffusion.CLIPTextModelWithProjection, "text"), "tokenizer_2": tokenizer("tokenizer_2")}
        if unet == "refiner":
            parts |= {"text_encoder": None, "tokenizer": None}
        if name == "StableDiffusionXLImg2ImgPipeline":
            parts["requires_aesthetics_score"] = unet == "refiner"
    return getattr(diffusion, name)(**{**parts, **others})


def generators(seed):
    made = [sf.Generator().manual_seed(s) for s in (seed if isinstance(seed, list) else [seed])]
    return made if isinstance(seed, list) else made[0]


def pil(array):
    return pytest.importorskip("PIL.Image").fromarray(array)


def run(c, **changes):
    pipe = make(c["pipeline"], c["unet"], c["scheduler"])
    call = {**c["call"], **changes}
    call.setdefault("output_type", "np")
    if "image" in c:
        call["image"] = picture(*c["image"])
    if "mask" in c:
        call["mask_image"] = mask(*c["mask"])
    if "latents" in c:
        call["latents"] = sf.tensor(embeds("latents", c["latents"]))
    for name, shape in c.get("embeds", {}).items():
        call[name] = sf.tensor(embeds(name, shape))
    if "callback" in c:
        call["callback_on_step_end"] = CALLBACKS[c["callback"]]
        call["callback_on_step_end_tensor_inputs"] = ["latents", "prompt_embeds"]
    out = pipe(generator=generators(c["seed"]), **call).images
    if "then" in c:
        second = c["then"]
        pipe = make(second["pipeline"], second["unet"], c["scheduler"])
        out = pipe(image=out, generator=generators(c["seed"]), output_type="np", **{**second["call"], **changes}).images
    return out.numpy() if isinstance(out, sf.Tensor) else (out * 255).round().astype("uint8")


def assert_is(name, got):
    want = PICTURES[name].numpy()
    assert got.shape == want.shape
    if got.dtype == np.uint8:
        difference = np.abs(got.astype(int) - want.astype(int))
        assert difference.max() <= 1, f"{difference.max()} of 255, {(difference > 1).mean():.3%} of the values"
    else:
        assert np.abs(got - want).max() <= 1e-3 * max(1, np.abs(want).max())


@pytest.mark.filterwarnings("ignore:.*was cut off")
@pytest.mark.parametrize("name", CASES)
def test_the_picture_is_diffusers(name):
    assert_is(name, run(CASES[name]))


@pytest.mark.parametrize("name", DOCUMENT["signatures"])
def test_every_argument_of_diffusers_is_taken(name):
    """With its default, and in its order where it may be given without its name."""
    ours = inspect.signature(getattr(diffusion, name).__call__).parameters
    theirs = DOCUMENT["signatures"][name]
    assert set(theirs) <= set(ours) and [n for n in ours if n in theirs] == list(theirs)
    for argument, default in theirs.items():
        if argument not in ("self", "output_type"):  # which is "pil" where Pillow is
            got = ours[argument].default
            assert (list(got) if isinstance(got, tuple) else got) == default, argument
