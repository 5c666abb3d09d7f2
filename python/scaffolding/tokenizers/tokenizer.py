"""Tokenizer and CLIPTokenizer: transformers' call around the library's tokenizers."""

import operator
import os

from .. import _core

_UNLIMITED = 2**63 - 1
_LARGE = int(1e30)  # what transformers says where a model has no limit


class BatchEncoding(dict):
    """What a tokenizer returns: input_ids and attention_mask, as items and as attributes. Lists,
    arrays or tensors [texts, tokens].
    """

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"BatchEncoding has no '{name}', it has {', '.join(self)}") from None

    def to(self, device):
        """Moves tensors to a device; returns itself."""
        for key, value in self.items():
            if hasattr(value, "to"):
                self[key] = value.to(device)
        return self


def _existing(path):
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(2, "no such file or folder", path)
    return path


class Tokenizer:
    """A tokenizer.json: BPE, Unigram, WordPiece or WordLevel, with the normalizers, pre-tokenizers, post-processors,
    decoders and added tokens of the tokenizers package, and its results.

    Tokenizer.from_file(path), or Tokenizer.from_pretrained(folder), which also reads tokenizer_config.json and
    special_tokens_map.json.
    Single texts only: pairs are not encoded.

    bos_token, eos_token, unk_token, pad_token (str or None) and their ids; model_max_length: tokens that the model
    takes, 1e30 without a limit; padding_side, truncation_side: "right" or "left".

    >>> sf.tokenizers.train_words(["a red apple", "a red car"]).save_pretrained("folder")
    >>> tokenizer = sf.tokenizers.Tokenizer.from_file("folder/tokenizer.json")
    >>> tokenizer("a red apple").input_ids
    [3, 4, 5, 1]
    """

    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, core):
        self._core = core
        for name, value in core.config().items():
            setattr(self, name, value)
        if self.model_max_length == _UNLIMITED:
            self.model_max_length = _LARGE

    @classmethod
    def from_file(cls, path):
        """Reads a tokenizer.json."""
        return cls(_core._Tokenizer.from_file(_existing(path)))

    @classmethod
    def from_pretrained(cls, folder, *, subfolder=None):
        """Reads a folder as save_pretrained of transformers writes it."""
        folder = _existing(os.path.join(folder, subfolder) if subfolder else folder)
        _existing(os.path.join(folder, "tokenizer.json"))
        return cls(_core._Tokenizer.from_pretrained(folder))

    # ---- special tokens

    def _special_id(self, name):
        token = getattr(self, name)
        return None if token is None else self._core.token_to_id(token)

    bos_token_id = property(lambda self: self._special_id("bos_token"))
    eos_token_id = property(lambda self: self._special_id("eos_token"))
    unk_token_id = property(lambda self: self._special_id("unk_token"))
    pad_token_id = property(lambda self: self._special_id("pad_token"))

    @property
    def all_special_tokens(self):
        return [token for _, token in self._core.special_tokens()]

    @property
    def all_special_ids(self):
        return [i for i, _ in self._core.special_tokens()]

    # ---- text to ids

    def __call__(
        self,
        text,
        *,
        add_special_tokens=True,
        padding=False,
        truncation=None,
        max_length=None,
        pad_to_multiple_of=None,
        padding_side=None,
        truncation_side=None,
        return_tensors=None,
        return_attention_mask=True,
    ):
        """Encodes a text, or a list of texts.

        padding: False, True or "longest" (of the list), or "max_length"; truncation: False or True. max_length: tokens,
        with the special ones, or None for model_max_length; given alone, it cuts. return_tensors: None for lists (flat
        for one text), "sf" or "pt" for Scaffolding's tensors, "np" for arrays: int64 [texts, tokens].

        Returns a BatchEncoding of input_ids and attention_mask (1 for a token, 0 for padding). ValueError for padding
        without a pad token or length, for a max_length without room for the special tokens,
        and for tensors of texts that differ in length.
        """
        single = isinstance(text, str)
        texts = [text] if single else list(text)
        for i, t in enumerate(texts):
            if not isinstance(t, str):
                raise TypeError(f"tokenizer: text must be a str or a list of str, got {type(t).__name__} at {i}")
            if not t.isascii():
                t.encode("utf-8")  # UnicodeEncodeError for half of a surrogate pair
        if return_tensors not in (None, "sf", "pt", "np"):
            raise ValueError(f"tokenizer: return_tensors must be None, 'sf', 'pt' or 'np', got {return_tensors!r}")
        limit, padded = self._lengths(padding, truncation, max_length)
        if padded is not None and self.pad_token is None:
            raise ValueError("tokenizer: padding needs a pad token: set tokenizer.pad_token to one of the vocabulary")
        ids, mask = self._core.encode(
            texts,
            add_special_tokens,
            limit,
            truncation_side or self.truncation_side,
            padded,
            pad_to_multiple_of or 0,
            padding_side or self.padding_side,
            self.pad_token_id or 0,
        )
        out = BatchEncoding(input_ids=ids)
        if return_attention_mask:
            out["attention_mask"] = mask
        for key, rows in out.items():
            if return_tensors is not None:
                if len({len(row) for row in rows}) > 1:
                    raise ValueError(
                        "tokenizer: texts of different lengths make no tensor: pass padding=True or "
                        "padding='max_length', truncation=True"
                    )
                tensor = _core.tensor(rows, dtype=_core.int64).reshape(len(rows), len(rows[0]) if rows else 0)
                out[key] = tensor.numpy() if return_tensors == "np" else tensor
            elif single:
                out[key] = rows[0]
        return out

    def _lengths(self, padding, truncation, max_length):
        """(tokens to cut to or None, tokens to pad to, 0 for the longest, or None)"""
        if truncation not in (None, False, True, "longest_first", "do_not_truncate", "only_first"):
            raise ValueError(f"tokenizer: truncation must be False, True or 'longest_first', got {truncation!r}")
        if padding not in (None, False, True, "longest", "max_length", "do_not_pad"):
            raise ValueError(f"tokenizer: padding must be False, True, 'longest' or 'max_length', got {padding!r}")
        known = self.model_max_length if self.model_max_length < _LARGE else None
        length = known if max_length is None else operator.index(max_length)
        cut = truncation in (True, "longest_first", "only_first") or (
            truncation is None and max_length is not None and padding in (None, False)
        )
        padded = 0 if padding in (True, "longest") else length if padding == "max_length" else None
        if padding == "max_length" and length is None:
            raise ValueError("tokenizer: padding='max_length' needs max_length: this tokenizer has no model_max_length")
        return length if cut else None, padded

    def encode(self, text, **options):
        """The ids of one text, with the arguments of a call."""
        return self(text, **options)["input_ids"]

    def tokenize(self, text):
        """The tokens of one text as the vocabulary writes them, without special ones around it."""
        return self.convert_ids_to_tokens(self(text, add_special_tokens=False)["input_ids"])

    # ---- ids to text

    def decode(self, token_ids, skip_special_tokens=False):
        """The text of ids: a list, array or tensor of one dimension. Ids without a token are left out."""
        if hasattr(token_ids, "tolist"):
            token_ids = token_ids.tolist()
        return self._core.decode([token_ids] if isinstance(token_ids, int) else list(token_ids), skip_special_tokens)

    def batch_decode(self, sequences, skip_special_tokens=False):
        """The texts of several sequences of ids."""
        return [self.decode(ids, skip_special_tokens) for ids in sequences]

    # ---- vocabulary

    def convert_tokens_to_ids(self, tokens):
        """A token's id, that of unk_token for an unknown one; of a list, a list."""
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(t) for t in tokens]
        found = self._core.token_to_id(tokens)
        return self.unk_token_id if found is None else found

    def convert_ids_to_tokens(self, ids):
        """The token of an id, None for an unknown one; of a list, a list."""
        if hasattr(ids, "tolist"):
            ids = ids.tolist()
        return self._core.id_to_token(ids) if isinstance(ids, int) else [self._core.id_to_token(i) for i in ids]

    def get_vocab(self):
        """{token: id}, with added tokens."""
        return {token: i for i, token in self._core.vocabulary(True)}

    @property
    def vocab_size(self):
        """Tokens without added ones."""
        return len(self._core.vocabulary(False))

    def __len__(self):
        return self._core.size()

    def add_tokens(self, new_tokens, special_tokens=False):
        """Tokens to be found as they are in texts, with the next free ids. Returns how many are new."""
        return self._core.add_tokens([new_tokens] if isinstance(new_tokens, str) else list(new_tokens), special_tokens)

    def __repr__(self):
        specials = ", ".join(f"{n}={getattr(self, n)!r}" for n in ("bos_token", "eos_token", "unk_token", "pad_token"))
        return f"{type(self).__name__}(vocab_size={len(self)}, model_max_length={self.model_max_length}, {specials})"


class CLIPTokenizer(Tokenizer):
    """The tokenizer of CLIP's text encoders (Stable Diffusion 1, 2, XL): lower case, NFC, byte-level BPE with "</w>",
    77 tokens.

    CLIPTokenizer.from_pretrained(folder) reads vocab.json and merges.txt, or tokenizer.json, and what
    tokenizer_config.json and special_tokens_map.json say (a pad_token of "!" is how SD 2 and SDXL's second encoder
    pad); CLIPTokenizer(vocab_file, merges_file). CLIPTokenizer.built_in() needs no file: CLIP's own vocabulary, with
    which all of Stable Diffusion's text encoders were trained, is part of the library.

    text_cleaning: "transformers" (NFC; its ids), or "openai": that of OpenAI's and OpenCLIP's own tokenizers, which
    turn HTML's character references (&lt;) into characters and know no NFC. It is saved with the tokenizer.

    >>> tokenizer = sf.tokenizers.CLIPTokenizer.built_in()
    >>> tokenizer("a red apple").input_ids
    [49406, 320, 736, 3055, 49407]
    >>> tokenizer.decode([320, 736, 3055])
    'a red apple'
    """

    def __init__(self, vocab_file, merges_file=None, *, text_cleaning=None):
        if isinstance(vocab_file, _core._CLIPTokenizer):
            super().__init__(vocab_file)
        else:
            super().__init__(
                _core._CLIPTokenizer.from_files(_existing(vocab_file), _existing(merges_file), text_cleaning)
            )

    @classmethod
    def from_pretrained(cls, folder, *, subfolder=None, text_cleaning=None):
        """Reads a folder as save_pretrained of transformers writes it; text_cleaning stands over what was saved."""
        return cls(
            _core._CLIPTokenizer.from_pretrained(
                _existing(os.path.join(folder, subfolder) if subfolder else folder), text_cleaning
            )
        )

    @classmethod
    def built_in(cls, *, pad_token=None, text_cleaning=None):
        """CLIP's own vocabulary, 49408 tokens. pad_token: "!" for SD 2 and SDXL's second encoder; None for
        "<|endoftext|>".
        """
        return cls(_core._CLIPTokenizer.built_in(pad_token, text_cleaning))

    @classmethod
    def from_file(cls, path):
        raise NotImplementedError(
            "CLIPTokenizer: from_pretrained reads a folder with tokenizer.json; Tokenizer.from_file reads the file "
            "alone"
        )

    def save_pretrained(self, save_directory):
        """Writes vocab.json, merges.txt, tokenizer_config.json and special_tokens_map.json,
        as transformers reads them.
        """
        self._core.save_pretrained(os.fspath(save_directory))


def train_bpe(texts, vocab_size=4096, min_frequency=2):
    """A CLIPTokenizer with a vocabulary of its own, from an iterable of str: the most frequent pair of tokens is merged
    until there are vocab_size tokens (at least 514: the bytes, at a word's end or not, and the two special tokens) or
    no pair occurs min_frequency times.
    Equal texts in any order give equal files.

    >>> tokenizer = sf.tokenizers.train_bpe(["a red apple", "a red car"] * 10, vocab_size=520)
    >>> tokenizer.tokenize("red")
    ['red</w>']
    """
    return CLIPTokenizer(_core._train_bpe(list(texts), vocab_size, min_frequency))
