"""What Z-Image's pipelines have besides others: prompts as turns of a chat, captions of several lengths, guidance that
ends. Their pictures: test_every_pipeline.py.
"""

import numpy as np
import pytest
from golden_pipelines import CASES, assert_is, one_thread, pipeline_of, run  # noqa: F401

import scaffolding as sf
from scaffolding import diffusion

CASE, TWO = CASES["z_image_turbo"], CASES["z_image_two_alone"]
SMALL = {"height": 16, "width": 20, "num_inference_steps": 2, "output_type": "np"}


def make(case=CASE, **components):
    return pipeline_of({**case, "components": {**case["components"], **components}}, "z_image")


def test_auto_pipelines_find_both(tmp_path):
    make().save_pretrained(tmp_path)
    text = diffusion.AutoPipelineForText2Image.from_pretrained(tmp_path)
    assert type(text) is diffusion.ZImagePipeline
    assert_is("z_image_turbo", run(CASE, lambda case, family: text))
    picture = diffusion.AutoPipelineForImage2Image.from_pipe(text)
    assert type(picture) is diffusion.ZImageImg2ImgPipeline
    assert_is("z_image_img2img", run(CASES["z_image_img2img"], lambda case, family: picture))


def test_encoded_prompts_are_embeds_of_their_own_lengths():
    pipe, prompts = make(), TWO["call"]["prompt"]
    embeds, none = pipe.encode_prompt(prompts, do_classifier_free_guidance=False)
    assert none == [] and [e.ndim for e in embeds] == [2, 2] and len({len(e) for e in embeds}) == 2
    assert [len(e) for e in embeds] == [
        len(pipe.tokenizer(f"<|im_start|>user\n{p}<|im_end|>\n<|im_start|>assistant\n").input_ids) for p in prompts
    ]
    # what stands beside a prompt in a batch changes nothing
    np.testing.assert_allclose(pipe.encode_prompt(prompts[0])[0][0].numpy(), embeds[0].numpy(), atol=1e-5)
    both = pipe.encode_prompt(prompts, negative_prompt=["", "a cat"])
    given = {"prompt_embeds": both[0], "negative_prompt_embeds": both[1]}
    want = pipe(prompts, negative_prompt=["", "a cat"], seed=1, **SMALL).images
    np.testing.assert_allclose(pipe(**given, seed=1, **SMALL).images, want, atol=1e-5)
    no_encoder = make(text_encoder=None, tokenizer=None)
    np.testing.assert_allclose(no_encoder(**given, seed=1, **SMALL).images, want, atol=1e-5)
    with pytest.raises(ValueError, match="no text_encoder and tokenizer"):
        no_encoder("a cat", **SMALL)


def test_guidance_that_has_ended_is_not_computed():
    pipe, rows = make(), []
    hook = pipe.transformer.register_forward_hook(lambda m, args, out: rows.append(len(args[0])))
    call = {**SMALL, "num_inference_steps": 4, "seed": 1}
    pipe("a cat", cfg_truncation=0.2, **call)
    assert rows == [2, 2, 1, 1]  # the way is behind by 0, 0.1, 0.25 and 0.5
    rows.clear()
    pipe("a cat", cfg_truncation=None, **call)
    hook.remove()
    assert rows == [2, 2, 2, 2]
    run = pipe.start(["a cat", "a dog"], cfg_truncation=0.2, **call)
    for _ in range(3):
        run.step()
    run.keep_samples([1])
    run.step()
    whole = pipe(["a cat", "a dog"], cfg_truncation=0.2, **call).images
    np.testing.assert_allclose(run.finish().images, whole[1:], atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"cfg_normalization": 1.0}, {"cfg_truncation": 0.2}])
def test_guidance_in_two_calls_gives_the_same(options):
    pipe, call = make(), {**SMALL, "num_inference_steps": 4, "seed": 1, **options}
    want = pipe("a cat", **call).images
    np.testing.assert_allclose(pipe("a cat", guidance_mode="sequential", **call).images, want, atol=1e-4)


def test_latents_stay_wide_beside_networks_that_are_not(monkeypatch):
    monkeypatch.setattr("golden_pipelines.made_networks", {})
    pipe = make().to(sf.bfloat16)
    seen = []
    hook = pipe.transformer.register_forward_hook(lambda m, args, out: seen.append(args[0].dtype))
    latents = pipe("a cat", seed=1, **{**SMALL, "output_type": "latent"}).images
    hook.remove()
    assert seen == [sf.bfloat16] * 2 and latents.dtype is sf.float32


def test_what_was_cut_off_is_told():
    with pytest.warns(UserWarning, match="cut off: .*fox"):
        make()("a quick brown fox", max_sequence_length=14, guidance_scale=0.0, **SMALL)


def test_a_tokenizer_without_chats_is_refused(tmp_path):
    tokenizer = sf.tokenizers.CLIPTokenizer.built_in()
    with pytest.raises(ValueError, match=r"the tokenizer has no '<\|im_start\|>'"):
        make(tokenizer=None).__class__(**{**make().components, "tokenizer": tokenizer})("a cat", **SMALL)


EMBEDS = {"prompt_embeds": [sf.zeros(3, 16)]}


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        ({}, ValueError, "needs prompt or prompt_embeds"),
        ({"prompt": "a", **EMBEDS}, ValueError, "not both"),
        (EMBEDS, ValueError, "guidance_scale above 0 need negative_prompt_embeds"),
        ({"prompt_embeds": [[1.0]]}, TypeError, "must be a list of tensors"),
        ({"prompt": "a", "height": 18}, ValueError, "divisible by 4, got height=18"),
        ({"prompt": "a", "max_sequence_length": 0}, ValueError, "max_sequence_length must be positive"),
        ({"prompt": "a", "latents": sf.zeros(1, 4, 4, 4)}, ValueError, "latents must be"),
        ({"prompt": ["a", "b"], "negative_prompt": ["a", "b", "c"]}, ValueError, "one for each of 2 prompts, got 3"),
        ({"prompt": "a", "num_inference_steps": 0}, ValueError, "num_inference_steps must be positive"),
    ],
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        make()(**{**SMALL, **call})


def test_what_is_refused_of_a_picture():
    pipe = make(CASES["z_image_img2img"])
    picture = sf.zeros(1, 3, 16, 20)
    with pytest.raises(ValueError, match=r"strength must be in \[0, 1\], got 1.5"):
        pipe("a", image=picture, strength=1.5)
    with pytest.raises(ValueError, match="leaves no step of 2"):
        pipe("a", image=picture, strength=0.0, num_inference_steps=2)
    with pytest.raises(ValueError, match="as many images as pictures at most, 1, got 2"):
        pipe("a", image=sf.cat([picture, picture]), num_inference_steps=2)
