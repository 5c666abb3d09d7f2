"""What DiTPipeline has besides other pipelines: names of classes, folders that name Transformer2DModel. Its pictures:
test_every_pipeline.py.
"""

import json

import numpy as np
import pytest
from golden_pipelines import CASES, images_of, one_thread, pipeline_of  # noqa: F401

import scaffolding as sf
from scaffolding import diffusion

CASE = CASES["dit_ddim"]
ID2LABEL = {"0": "tench, Tinca tinca", "207": "golden retriever", "2": "great white shark, white shark, man-eater"}


def make(**options):
    return pipeline_of({**CASE, "options": options}, "dit")


def test_guidance_in_two_calls_is_guidance_in_one():
    one, two = (images_of(make(), CASE, guidance_mode=mode) for mode in ("batched", "sequential"))
    np.testing.assert_allclose(one, two, atol=1e-3)


def test_labels_by_name(tmp_path):
    pipe = make(id2label=ID2LABEL)
    names = {
        "Tinca tinca": 0,
        "golden retriever": 207,
        "great white shark": 2,
        "man-eater": 2,
        "tench": 0,
        "white shark": 2,
    }
    assert (
        pipe.labels == names
        and list(pipe.labels) == sorted(names)
        and pipe.get_label_ids(["white shark", "tench"]) == [2, 0]
    )
    assert make().labels == {}
    with pytest.raises(ValueError, match="there is no label 'white sharks'.*white shark"):
        pipe.get_label_ids(["white sharks"])
    with pytest.raises(ValueError, match="numbers of classes for keys, got 'a'"):
        make(id2label={"a": "tench"}).labels
    pipe.save_pretrained(tmp_path)
    assert diffusion.DiTPipeline.from_pretrained(tmp_path).labels == names


def test_a_folder_as_it_is_published(tmp_path):
    """The index and the config name Transformer2DModel, as facebook/DiT-XL-2-256 does."""
    pipe = make(id2label=ID2LABEL)
    pipe.save_pretrained(tmp_path)
    index = json.loads((tmp_path / "model_index.json").read_text())
    (tmp_path / "model_index.json").write_text(
        json.dumps({**index, "transformer": ["diffusers", "Transformer2DModel"]})
    )
    config = tmp_path / "transformer/config.json"
    old = {
        "_class_name": "Transformer2DModel",
        "num_vector_embeds": None,
        "only_cross_attention": False,
        "use_linear_projection": False,
    }
    config.write_text(json.dumps({**json.loads(config.read_text()), **old}))
    for cls in (diffusion.DiTPipeline, diffusion.DiffusionPipeline):
        again = cls.from_pretrained(tmp_path)
        assert isinstance(again, diffusion.DiTPipeline) and isinstance(
            again.transformer, sf.models.DiTTransformer2DModel
        )
        np.testing.assert_array_equal(images_of(again, CASE), images_of(pipe, CASE))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"class_labels": []}, "needs class_labels"),
        ({"class_labels": [1001]}, "class_labels must be between 0 and 1000, which is no class, got 1001"),
        ({"class_labels": [-1]}, "class_labels must be between 0 and 1000"),
        ({"class_labels": [1], "guidance_scale": float("nan")}, "guidance_scale must be finite"),
        (
            {"class_labels": [1, 2, 3], "generator": [sf.Generator(), sf.Generator()]},
            "must have one for each picture, got 2 for 3",
        ),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        make()(**call)
