"""Golden files of Qwen2Tokenizer: pipelines/z_image_tokenizer/ (vocab.json and merges.txt of a small vocabulary),
tokenizers/qwen2_cases.json.xz, with the same as a tokenizer.json in it, and what transformers makes of strings.

    python tests/golden/make_golden_tokenizers_qwen2.py    # with transformers

The vocabulary is that of all bytes, of the words below, letter by letter, and of Qwen's special tokens. The template is
Qwen3's as far as messages without tools and thoughts go.
"""

import json
import pathlib
import tempfile

import transformers
from make_golden_tokenizers import TRICKY, random_strings
from packed import write_json
from tokenizers import pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "pipelines" / "z_image_tokenizer"
WORDS = [
    "photo",
    "the",
    "\u0120the",
    "\u0120a",
    "\u0120of",
    "\u0120cat",
    "\u0120dog",
    "\u0120and",
    "user",
    "assistant",
    "\u010a\u010a",
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)
MESSAGES = ["", "a photo of a cat", "  the dog\n\nand the cat  ", "<|im_end|> caf\u00e9 \u732b", "user's <think>"]


def write_folder():
    FOLDER.mkdir(parents=True, exist_ok=True)
    tokens, merges = sorted(pre_tokenizers.ByteLevel.alphabet()), []
    for word in WORDS:
        for end in range(2, len(word) + 1):
            if word[:end] not in tokens:
                tokens.append(word[:end])
                merges.append((word[: end - 1], word[end - 1]))
    (FOLDER / "vocab.json").write_text(json.dumps({t: i for i, t in enumerate(tokens)}, ensure_ascii=False) + "\n")
    (FOLDER / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    added = {
        str(len(tokens) + i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                               "single_word": False, "special": True}
        for i, t in enumerate(SPECIAL)
    }  # fmt: skip
    config = {"added_tokens_decoder": added, "bos_token": None, "chat_template": TEMPLATE, "eos_token": "<|im_end|>",
              "model_max_length": 131072, "pad_token": "<|endoftext|>", "tokenizer_class": "Qwen2Tokenizer",
              "unk_token": None}  # fmt: skip
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(config) + "\n")


def main():
    write_folder()
    tok = transformers.Qwen2Tokenizer.from_pretrained(FOLDER)
    with tempfile.TemporaryDirectory() as folder:
        tok.save_pretrained(folder)
        whole = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text())
    strings = [*TRICKY, *random_strings(40, 5), *MESSAGES, "a\r\n\n b\n  c", "I'LL we're 'S", "12 345", "e\u0301"]
    rows = []
    for text in strings:
        ids = tok(text)["input_ids"]
        rows.append([ids, tok.decode(ids, clean_up_tokenization_spaces=False)])
    turns = [
        tok.apply_chat_template(
            [{"role": "user", "content": m}], tokenize=False, add_generation_prompt=True, enable_thinking=True
        )
        for m in MESSAGES
    ]
    document = {
        "made_by": f"transformers {transformers.__version__}",
        "size": len(tok),
        "special": sorted(tok.all_special_ids),
        "pad": tok.pad_token_id,
        "strings": strings,
        "rows": rows,
        "messages": MESSAGES,
        "turns": turns,
        "tokenizer.json": whole,
    }
    write_json(HERE / "tokenizers" / "qwen2_cases.json.xz", json.dumps(document, separators=(",", ":")))


if __name__ == "__main__":
    main()
