"""What PixArtSigmaPipeline has besides other pipelines: T5's prompts and masks, sizes, folders as they are published.
Its pictures: test_every_pipeline.py.
"""

import json

import numpy as np
import pytest
from golden_pipelines import CASES, assert_is, one_thread, pipeline_of, run  # noqa: F401

import scaffolding as sf
from scaffolding import diffusion

CASE = CASES["pixart_dpm"]


def make(**components):
    return pipeline_of({**CASE, "components": {**CASE["components"], **components}}, "pixart")


def test_a_folder_as_it_is_published(tmp_path):
    """A spiece.model and no tokenizer.json, and an index that names Transformer2DModel."""
    make().save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer/spiece.model").exists() and not (tmp_path / "tokenizer/tokenizer.json").exists()
    index = json.loads((tmp_path / "model_index.json").read_text())
    (tmp_path / "model_index.json").write_text(
        json.dumps({**index, "transformer": ["diffusers", "Transformer2DModel"]})
    )
    config = tmp_path / "transformer/config.json"
    config.write_text(
        json.dumps(
            {**json.loads(config.read_text()), "_class_name": "Transformer2DModel", "only_cross_attention": False}
        )
    )
    pipe = diffusion.DiffusionPipeline.from_pretrained(tmp_path)
    assert isinstance(pipe, diffusion.PixArtSigmaPipeline) and isinstance(
        pipe.transformer, sf.models.PixArtTransformer2DModel
    )
    assert_is("pixart_dpm", run(CASE, lambda case, family: pipe))


def test_embeds_need_no_encoder():
    pipe = make(text_encoder=None, tokenizer=None)
    assert_is("pixart_embeds", run(CASES["pixart_embeds"], lambda case, family: pipe))
    with pytest.raises(ValueError, match="no text_encoder and tokenizer"):
        pipe("a cat")


def test_what_was_cut_off_is_told():
    with pytest.warns(UserWarning, match="cut off.*lazy dog"):
        make()(
            "the quick brown fox jumps over a lazy dog " * 5,
            max_sequence_length=24,
            num_inference_steps=1,
            height=32,
            width=32,
            use_resolution_binning=False,
        )


def test_a_size_of_ones_own_is_not_rounded_where_bins_are_used():
    out = make()("a cat", num_inference_steps=1, height=45, width=61, output_type="np").images
    assert out.shape == (1, 45, 61, 3) and np.isfinite(out).all()
    small = sf.models.PixArtTransformer2DModel.from_config({**make().transformer.config, "sample_size": 16})
    pipe = make()
    pipe.transformer = small
    with pytest.raises(ValueError, match="32, 64, 128 or 256, got 16"):
        pipe("a cat")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({}, "needs prompt or prompt_embeds"),
        ({"prompt": "a", "prompt_embeds": sf.zeros(1, 3, 24)}, "not both"),
        ({"prompt_embeds": sf.zeros(1, 3, 24)}, "prompt_embeds and prompt_attention_mask go together"),
        ({"prompt_embeds": sf.zeros(1, 3, 24), "prompt_attention_mask": sf.ones(1, 4)}, "attention mask"),
        ({"prompt": "a", "height": 20, "width": 24, "use_resolution_binning": False}, "divisible by 8"),
        ({"prompt": "a", "max_sequence_length": 0}, "max_sequence_length must be positive"),
        ({"prompt": ["a", "b"], "negative_prompt": ["a", "b", "c"]}, "one for each of 2 prompts, got 3"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        make()(**call)
