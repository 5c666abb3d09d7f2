"""Golden files of GemmaTokenizer: tokenizers/gemma_cases.json.xz, with a tokenizer.json of a small trained vocabulary
and its tokenizer_config.json in it, and what transformers makes of strings.

    python tests/golden/make_golden_tokenizers_gemma.py    # with transformers

The vocabulary is laid out as Gemma's: special tokens, bytes, then what is trained on words without any split, so that
tokens hold marks of spaces; lines and runs of spaces are added tokens.
"""

import json
import pathlib
import tempfile

import transformers
from make_golden_tokenizers import TRICKY, corpus, random_strings
from packed import write_json
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]
ADDED = ["\n\n", "\n\n\n", "\u2581\u2581", "\u2581\u2581\u2581", "<table>", "</b>"]
TURNS = ["<start_of_turn>", "<end_of_turn>"]
PROMPTS = [
    "  A cat walks on the grass, realistic style.  ",
    "two\n\ndogs\n\n\nrun  fast   </b>",
    "<start_of_turn>user\nsay <eos> twice<end_of_turn>\n",
    "caf\u00e9 \u732b \U0001f680 \u2581\u2581 x",
    "",
]


def trained():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=[*SPECIAL, *TURNS, *BYTES], max_token_length=12, show_progress=False
    )
    t.train_from_iterator(corpus(1000), trainer)
    t.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    t.add_tokens([AddedToken(token, normalized=False) for token in ADDED])
    # bytes are tokens of the model alone
    whole = json.loads(t.to_str())
    whole["added_tokens"] = [a for a in whole["added_tokens"] if a["content"] not in BYTES]
    return whole


def write_folder(folder, whole):
    added = {str(a.pop("id")): a for a in json.loads(json.dumps(whole["added_tokens"]))}
    config = {"add_bos_token": True, "add_eos_token": False, "added_tokens_decoder": added, "bos_token": "<bos>",
              "chat_template": "{{ bos_token }}{{ messages }}", "clean_up_tokenization_spaces": False,
              "eos_token": "<eos>", "model_max_length": 1000000000000000019884624838656, "pad_token": "<pad>",
              "sp_model_kwargs": None, "spaces_between_special_tokens": False, "tokenizer_class": "GemmaTokenizer",
              "unk_token": "<unk>", "use_default_system_prompt": False}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return config


def main():
    whole = trained()
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        config = write_folder(folder, whole)
        tok = transformers.GemmaTokenizer.from_pretrained(folder)
    strings = [*TRICKY, *random_strings(30, 7), *PROMPTS, "<bos>a<pad> b", "a <mask> b", "\r\n \t", "dom\u0304"]
    rows = []
    for text in strings:
        ids = tok(text)["input_ids"]
        rows.append([ids, tok.decode(ids), tok.decode(ids, skip_special_tokens=True)])
    asked = dict(padding="max_length", max_length=24, truncation=True)
    sides = {}
    for side in ("left", "right"):
        tok.padding_side = side
        sides[side] = [[tok(p, **asked)[key] for key in ("input_ids", "attention_mask")] for p in PROMPTS]
    document = {
        "made_by": f"transformers {transformers.__version__}",
        "size": len(tok),
        "side": transformers.GemmaTokenizer.padding_side,
        "strings": strings,
        "rows": rows,
        "prompts": PROMPTS,
        "padded": sides,
        "tokenizer.json": whole,
        "tokenizer_config.json": config,
    }
    write_json(HERE / "tokenizers" / "gemma_cases.json.xz", json.dumps(document, separators=(",", ":")))


if __name__ == "__main__":
    main()
