"""Every public name of diffusers' pipelines is here, or says what does the same
(tests/golden/make_golden_pipeline_names.py).
"""

import pathlib
import warnings

import pytest
from packed import read_json

import scaffolding as sf

ROOT = pathlib.Path(__file__).parents[3]
NAMES = read_json(ROOT / "tests/golden/pipeline_names.json.xz")["names"]


@pytest.fixture(scope="module")
def pipe():
    return sf.diffusion.StableDiffusionPipeline.from_pretrained(str(ROOT / "models/emoji-128"))


@pytest.mark.parametrize("cls", [c for c in NAMES if c != "DiffusionPipeline"])
def test_names_are_here_or_answered(cls):
    made = object.__new__(getattr(sf.diffusion, cls))  # its components, which are attributes too, do not matter
    for name in NAMES["DiffusionPipeline"] + NAMES[cls]:
        if hasattr(type(made), name):
            continue
        with pytest.raises(AttributeError, match=f"'{name}'; (for diffusers': .|did you mean )"):
            getattr(made, name)


def test_what_means_nothing_here_is_taken(pipe):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe.enable_xformers_memory_efficient_attention()
        pipe.fuse_qkv_projections(unet=True, vae=False)
        pipe.unfuse_qkv_projections()
        pipe.unet.enable_xformers_memory_efficient_attention()
        pipe.unet.set_default_attn_processor()
    assert pipe.unet.get_memory_footprint() == 2 * pipe.unet.num_parameters()  # stored in float16
    assert pipe.numpy_to_pil(sf.zeros(1, 8, 8, 3).numpy())[0].size == (8, 8)


def test_names_that_are_missed(pipe):
    with pytest.raises(AttributeError, match="did you mean 'enable_model_cpu_offload'"):
        pipe.enable_model_cpu_offlod()
    with pytest.raises(AttributeError, match="'load_ip_adapter'; for diffusers': IP adapters are not here yet"):
        pipe.load_ip_adapter("h94/IP-Adapter")
    assert getattr(pipe, "nothing", None) is None


def test_what_a_property_raises_is_told():
    class Broken(sf.diffusion.StableDiffusionPipeline):
        @property
        def broken(self):
            return None.field

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'field'"):
        _ = object.__new__(Broken).broken
