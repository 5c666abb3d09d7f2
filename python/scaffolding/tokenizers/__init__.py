"""Tokenizers: text to token ids and back, with transformers' classes, call and files.

>>> tokenizer = sf.tokenizers.CLIPTokenizer.from_pretrained("stable-diffusion-v1-5/tokenizer")
>>> tokenizer("a photo", padding="max_length", truncation=True, return_tensors="sf").input_ids.shape
Size([1, 77])

Texts that are not Unicode are a UnicodeEncodeError, wrong files a ValueError that names file and rule,
missing ones FileNotFoundError.
"""

from .._documents import describe as _describe
from .._missing import help_modules
from .gemma import GemmaTokenizer
from .qwen2 import Qwen2Tokenizer
from .t5 import T5Tokenizer, train_words
from .text_tokenizer import TextTokenizer
from .tokenizer import BatchEncoding, CLIPTokenizer, Tokenizer, train_bpe

__all__ = [
    "BatchEncoding",
    "CLIPTokenizer",
    "GemmaTokenizer",
    "Qwen2Tokenizer",
    "T5Tokenizer",
    "TextTokenizer",
    "Tokenizer",
    "train_bpe",
    "train_words",
]

_describe(globals())
help_modules()  # this one is imported after the others
