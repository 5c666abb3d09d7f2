"""Gemma's tokenizer, under transformers' name."""

import os

from .. import _core
from .tokenizer import Tokenizer, _existing


class GemmaTokenizer(Tokenizer):
    """The tokenizer of Gemma 1 to 3 (LTX-2's prompts): BPE over a text whose spaces are "\u2581", bytes for unknown
    characters, "<bos>" before a text, and padding at the left.

    GemmaTokenizer.from_pretrained(folder) reads tokenizer.json, and what tokenizer_config.json and
    special_tokens_map.json say. A chat_template is kept for those who read the files, and not run.

    >>> ids = sf.tokenizers.GemmaTokenizer.from_pretrained("folder")("a red apple").input_ids  # doctest: +SKIP
    """

    @classmethod
    def from_pretrained(cls, folder, *, subfolder=None):
        """Reads a folder as save_pretrained of transformers writes it."""
        return cls(
            _core._GemmaTokenizer.from_pretrained(_existing(os.path.join(folder, subfolder) if subfolder else folder))
        )

    @classmethod
    def from_file(cls, path):
        raise NotImplementedError(
            "GemmaTokenizer: from_pretrained reads a folder with tokenizer.json; Tokenizer.from_file reads the file "
            "alone"
        )

    def save_pretrained(self, save_directory):
        """Writes the files that were read, tokenizer_config.json and special_tokens_map.json, as transformers reads
        them.
        """
        self._core.save_pretrained(os.fspath(save_directory))
