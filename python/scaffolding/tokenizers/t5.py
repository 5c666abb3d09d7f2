"""T5's tokenizer, under transformers' name."""

import operator
import os

from .. import _core
from .tokenizer import Tokenizer, _existing


class T5Tokenizer(Tokenizer):
    """The tokenizer of T5's encoders (PixArt, SD 3, FLUX): SentencePiece's Unigram over words with "\u2581" before
    them, and "</s>" behind a text.

    T5Tokenizer.from_pretrained(folder) reads tokenizer.json, or spiece.model where there is none, and what
    tokenizer_config.json and special_tokens_map.json say; T5Tokenizer(vocab_file) reads a spiece.model. extra_ids:
    tokens "<extra_id_0>", ... behind the vocabulary.

    >>> sf.tokenizers.train_words(["a red apple", "a red car"]).save_pretrained("folder")
    >>> sf.tokenizers.T5Tokenizer.from_pretrained("folder")("a red car").input_ids
    [3, 4, 6, 1]
    """

    def __init__(self, vocab_file, *, extra_ids=100):
        if not isinstance(vocab_file, _core._T5Tokenizer):
            vocab_file = _core._T5Tokenizer.from_file(_existing(vocab_file), operator.index(extra_ids))
        super().__init__(vocab_file)

    @classmethod
    def from_pretrained(cls, folder, *, subfolder=None):
        """Reads a folder as save_pretrained of transformers writes it."""
        return cls(
            _core._T5Tokenizer.from_pretrained(_existing(os.path.join(folder, subfolder) if subfolder else folder))
        )

    @classmethod
    def from_file(cls, path):
        """Reads a spiece.model."""
        return cls(path)

    def save_pretrained(self, save_directory):
        """Writes the spiece.model or tokenizer.json that was read, tokenizer_config.json and special_tokens_map.json,
        as transformers reads them.
        """
        self._core.save_pretrained(os.fspath(save_directory))


def train_words(texts, vocab_size=4096, model_max_length=226):
    """A T5Tokenizer with a vocabulary of its own, from an iterable of str: the texts' words in lower case, the most
    frequent ones first, up to vocab_size tokens with the three special ones, marks of punctuation, and every character,
    by which other words are spelled. Equal texts in any order give equal files.

    ValueError for texts without words, and where their characters alone are more than vocab_size.

    >>> tokenizer = sf.tokenizers.train_words(["a red apple", "a red car"], vocab_size=100)
    >>> tokenizer.tokenize("a red cap")
    ['▁a', '▁red', '▁', 'c', 'a', 'p']
    """
    return T5Tokenizer(_core._train_words(list(texts), vocab_size, model_max_length))
