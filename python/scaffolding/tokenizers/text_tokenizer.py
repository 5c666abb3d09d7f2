"""TextTokenizer: words as ids without a vocabulary."""

import operator
import os

from .. import _core
from .tokenizer import BatchEncoding, _existing


class TextTokenizer:
    """Words as ids by a hash of their letters: the same in every process and on every machine, with no vocabulary to
    train or to keep. Two words may share an id.

    vocab_size: ids there are, three of which are no words: pad_token_id 0, bos_token_id 1, eos_token_id 2. max_length:
    tokens of a text, with its two ends; what does not fit is cut off. ValueError for sizes without room for a word.

    >>> tokenizer = sf.tokenizers.TextTokenizer(vocab_size=8192, max_length=8)
    >>> tokenizer(["a red ball"]).input_ids
    [[1, 4510, 6835, 5117, 2, 0, 0, 0]]
    """

    model_input_names = ["input_ids", "attention_mask"]
    pad_token_id, bos_token_id, eos_token_id = 0, 1, 2

    def __init__(self, vocab_size=8192, max_length=77):
        self._core = _core._TextTokenizer(operator.index(vocab_size), operator.index(max_length))

    @classmethod
    def from_pretrained(cls, folder, *, subfolder=None):
        """Reads the tokenizer_config.json of a folder. ValueError naming the file and what is wrong with it."""
        folder = _existing(os.path.join(folder, subfolder) if subfolder else folder)
        _existing(os.path.join(folder, "tokenizer_config.json"))
        made = cls.__new__(cls)
        made._core = _core._TextTokenizer.from_pretrained(folder)
        return made

    def save_pretrained(self, save_directory):
        """Writes tokenizer_config.json into a folder, which is made where it is not there."""
        self._core.save_pretrained(os.fspath(save_directory))

    vocab_size = property(lambda self: self._core.vocab_size, doc="Ids there are.")
    max_length = property(lambda self: self._core.max_length, doc="Tokens of every text.")
    model_max_length = max_length

    def __len__(self):
        return self.vocab_size

    def tokenize(self, text):
        """The words of a text, all of them: in lower case, runs of letters, digits and underscores, and every other
        character that is no white space by itself."""
        return _core._TextTokenizer.words(text)

    def __call__(self, text, *, return_tensors=None):
        """A text, or a list of texts, as max_length ids each: bos_token_id, the words', eos_token_id, and pad_token_id
        behind them.

        return_tensors: None for lists (flat for one text), "sf" or "pt" for tensors, "np" for arrays: int64 [texts,
        max_length]. Returns a BatchEncoding of input_ids and attention_mask (1 for a token, 0 for padding).
        """
        single = isinstance(text, str)
        texts = [text] if single else list(text)
        for i, t in enumerate(texts):
            if not isinstance(t, str):
                raise TypeError(f"tokenizer: text must be a str or a list of str, got {type(t).__name__} at {i}")
            t.encode("utf-8")  # UnicodeEncodeError for half of a surrogate pair
        if return_tensors not in (None, "sf", "pt", "np"):
            raise ValueError(f"tokenizer: return_tensors must be None, 'sf', 'pt' or 'np', got {return_tensors!r}")
        rows = [self._core.encode(t) for t in texts]
        out = BatchEncoding(zip(self.model_input_names, ([row[i] for row in rows] for i in range(2))))
        for key, values in out.items():
            if return_tensors is not None:
                tensor = _core.tensor(values, dtype=_core.int64).reshape(len(rows), self.max_length)
                out[key] = tensor.numpy() if return_tensors == "np" else tensor
            elif single:
                out[key] = values[0]
        return out

    def encode(self, text):
        """The ids of one text."""
        return self(text)["input_ids"]

    def __repr__(self):
        return f"TextTokenizer(vocab_size={self.vocab_size}, max_length={self.max_length})"
