"""Textual inversion in pipelines, by diffusers' calls: concepts of files as tokens of the tokenizer and rows of the
text encoder's table.
"""

import os
from collections.abc import Mapping

from ... import hub, serialization
from ..._core import Tensor, _pipelines

_SAVED_AS = ("learned_embeds.safetensors", "learned_embeds.bin")  # by diffusers' scripts
_IGNORED = ("use_safetensors", "proxies", "mirror", "resume_download")


def _file_of(given, options, weight_name):
    """The path of a file, a folder's or a repository's."""
    names = (weight_name,) if weight_name else _SAVED_AS
    path = os.fspath(given)
    if os.path.isdir(path):
        folder = os.path.join(path, options.get("subfolder") or "")
        return next((p for n in names if os.path.exists(p := os.path.join(folder, n))), os.path.join(folder, names[0]))
    if os.path.exists(path) or path.count("/") != 1 or path.endswith((".safetensors", ".bin", ".pt")):
        return path
    error = None
    for name in names:
        try:
            return hub.hf_hub_download(path, name, **options)
        except RuntimeError as e:
            error = error or e
    raise error


def _of_webui(given):
    """Of what the web UI saves by torch.save: the concept's name and its vectors; (None, None) of other dicts."""
    params = given.get("string_to_param")
    if not isinstance(params, Mapping) or len(params) != 1:
        return None, None
    return given.get("name"), next(iter(params.values()))


def _name_of(found):
    """A concept's, where its vectors are one encoder's: those of several have the encoders' names."""
    return found[0][0] if len(found) == 1 else None


def _read(given, options, weight_name):
    """(name or None, [vectors]) of a path, a dict or a tensor."""
    if isinstance(given, Tensor):
        return None, [given]
    if isinstance(given, Mapping):
        name, vectors = _of_webui(given)
        found = list(given.items()) if vectors is None else [(name, vectors)]
        if not found or not all(isinstance(t, Tensor) for _, t in found):
            raise ValueError(
                "load_textual_inversion: the dict must have tensors, of one concept or of each text encoder, or be the "
                "web UI's with string_to_param"
            )
        return _name_of(found), [t for _, t in found]
    path = _file_of(given, options, weight_name)
    found = _pipelines.read_concepts(path)
    name = _name_of(found)
    if not name and not path.endswith(".safetensors"):
        name, _ = _of_webui(serialization.load(path))
    return name or os.path.splitext(os.path.basename(path))[0], [t for _, t in found]


class TextualInversionLoaderMixin:
    """Concepts that were learned as vectors of a text encoder, by name in prompts. Tokenizers and text encoders that
    pipelines share change for all of them.
    """

    def _text_parts(self, tokenizer, text_encoder):
        """The (tokenizer, text encoder) that a call is about; all of the pipeline's where it names none."""
        if tokenizer is not None or text_encoder is not None:
            return [(tokenizer or self.tokenizer, text_encoder or self.text_encoder)]
        names = [n for n in self._components if n.startswith("text_encoder")]
        pairs = [(getattr(self, "tokenizer" + n[len("text_encoder") :], None), getattr(self, n)) for n in names]
        pairs = [(t, e) for t, e in pairs if t is not None and e is not None]
        if not pairs:
            raise ValueError(f"{type(self).__name__}: textual inversion needs a tokenizer and a text encoder")
        return pairs

    def load_textual_inversion(
        self, pretrained_model_name_or_path, token=None, tokenizer=None, text_encoder=None, **kwargs
    ):
        """Loads a concept: a file of diffusers' or the web UI's (.safetensors, .pt, .bin), a folder or a repository of
        the hub with one (weight_name, subfolder and the keywords of scaffolding.hub), a dict of tensors, or a tensor
        [vectors, features]. A list of them loads several.

        token: how prompts call it; a list with a list of files, or with one tensor that has a vector for each. None:
        what the file says, or its name without the suffix. A concept of several vectors takes the tokens `token`,
        `token_1`, ..., and prompts need the first alone. Stable Diffusion XL's files have vectors for both text
        encoders, which get theirs by their size; tokenizer and text_encoder: for these alone.

        ValueError, and nothing changes, for a file that is no textual inversion or is for another model, and for a
        token that the tokenizer has already.
        """
        weight_name = kwargs.pop("weight_name", None)
        options = {k: kwargs.pop(k) for k in (*hub.KEYWORDS, "subfolder") if k in kwargs}
        if "hf_token" in kwargs:  # token is the concept's
            options["token"] = kwargs.pop("hf_token")
        for name in _IGNORED:
            kwargs.pop(name, None)
        if kwargs:
            raise TypeError(f"load_textual_inversion: unexpected keyword argument '{next(iter(kwargs))}'")
        given = pretrained_model_name_or_path
        given = list(given) if isinstance(given, (list, tuple)) else [given]
        tokens = list(token) if isinstance(token, (list, tuple)) else [token] * len(given)
        if len(given) == 1 and len(tokens) > 1 and isinstance(given[0], Tensor):
            if given[0].dim() != 2 or given[0].size(0) != len(tokens):
                raise ValueError(
                    f"load_textual_inversion: needs a vector for each of {len(tokens)} tokens, got "
                    f"{tuple(given[0].shape)}"
                )
            given = list(given[0])
        if len(tokens) != len(given):
            raise ValueError(f"load_textual_inversion: {len(given)} concepts and {len(tokens)} tokens were given")
        concepts = []
        for one, name in zip(given, tokens):
            said, found = _read(one, options, weight_name)
            if not (name or said):
                raise ValueError("load_textual_inversion: pass token=, which says how prompts call the tensor")
            concepts.append((name or said, found))
        parts = self._text_parts(tokenizer, text_encoder)
        _pipelines.add_concepts([(t._core, encoder) for t, encoder in parts], concepts)

    def unload_textual_inversion(self, tokens=None, tokenizer=None, text_encoder=None):
        """Takes concepts out again: those of these tokens, or all. ValueError for a token that was not added."""
        tokens = [tokens] if isinstance(tokens, str) else list(tokens or [])
        parts = [
            (core := t._core, encoder, {word for _, word in core.added_words()})
            for t, encoder in self._text_parts(tokenizer, text_encoder)
        ]
        for token in tokens:
            if not any(token in words for _, _, words in parts):
                raise ValueError(f"unload_textual_inversion: '{token}' is no token that was added")
        for core, encoder, words in parts:
            mine = [t for t in tokens if t in words]
            if mine or not tokens:
                _pipelines.remove_concepts(core, encoder, mine)

    def maybe_convert_prompt(self, prompt, tokenizer):
        """The prompt, or each of a list, with all tokens of concepts of several vectors; calls do it by themselves."""
        if not isinstance(prompt, str):
            return [self.maybe_convert_prompt(p, tokenizer) for p in prompt]
        return _pipelines.with_all_vectors(tokenizer._core, prompt)
