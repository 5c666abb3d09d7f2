"""Golden files for tokenizers, from transformers and tokenizers: tests/golden/tokenizers/.

TORCH_PYTHON tests/golden/make_golden_tokenizers.py [folder of shared data]
clip.json.xz: CLIPTokenizer over strings of every kind, with the whole vocabulary of clip/ in the shared data and with
clip_small/, its first merges; <name>.json: small tokenizer.json files of every stage, trained here; cases.json.xz: what
the tokenizers package makes of strings; tests/fuzz_corpus/tokenizer_json: the same with a few tokens each. Training
breaks ties by chance, so that a second run gives other files.
"""

import base64
import json
import os
import pathlib
import random
import shutil
import struct
import sys
import unicodedata

import tokenizers
import transformers
from packed import write_json
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "tokenizers"
FUZZ = HERE.parent / "fuzz_corpus" / "tokenizer_json"
SHARED = pathlib.Path(
    sys.argv[1]
    if len(sys.argv) > 1
    else os.environ.get("SF_SHARED_DATA", HERE.parent.parent.parent / "shared" / "data")
)
MADE_BY = f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}"

TRICKY = [
    "",
    " ",
    "\n\t ",
    "a",
    "A Photo  of a CAT!",
    "a photo of a cat",
    "don't we'll they've I'm it's you're he'd DON'T 'S '",
    "100 apples & 3.14 pears, 4k",
    "supercalifragilisticexpialidocious",
    "  leading and   trailing\t\nspaces  ",
    "&lt;html&gt; &amp;amp;",
    "hello<|endoftext|>world",
    "<|startoftext|>x<|ENDOFTEXT|> y <|endoftext|>",
    "<|endoftext",
    "!",
    "wow!!! really?!",
    "! a !b",
    "x!y",
    "e\u0301tude \u00e9tude \u00c9TUDE",
    "\u212b \u2126 \ufb01 \u00bd \u2460 \u2168",
    "\u0130stanbul I\u0307 \u0131",
    "\u039f\u0394\u039f\u03a3 \u03c3\u03c2",
    "\u00df \u1e9e STRASSE",
    "\u01c5 \u01f1",
    "na\u00efve fa\u00e7ade \u2014 \u201cquoted\u201d \u2026",
    "\u4e00\u53ea\u732b \u65e5\u672c\u8a9e \ud55c\uad6d\uc5b4 \u1100\u1161\u11a8",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f600 \U0001f469\u200d\U0001f4bb \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "a\u00a0b\u2003c\u3000d\u2028e\u200bf\u0085g",
    "\u180e x",
    "a\u0000b\u0001\u007f",
    "\u0660\u0661 \u0967\u0968 12345 \u00b2\u00b3",
    "a_b-c.d/e\\f",
    "https://example.com/a?b=c&d=%20",
    "#tag @name $5 50% 1,000.00",
    "(masterpiece:1.2), [bad]",
    "\ufeffbom \ufffd",
    "Z\u0335\u0321\u033ba\u0337\u030fl\u0334\u0354g\u0336o\u0335",
    "o\u0302\u0323 \u1ed9",
    "\u0f73\u0f75",
    "\u1e9b\u0323",
    "\U0001d400\U0001d7ce",
    "x" * 300,
    "ab " * 60,
    "\u00e9" * 90,
    "'s's'll'",
    "'",
    '"""',
    "I'LL",
    "\u2019s",
    "1st 2nd \u00bcs",
    "__init__",
    "\u200d",
    "\u0301",
    "a\u0301\u0302\u0303",
]


def write_cases(name, cases):
    write_json(OUT / f"{name}.json.xz", json.dumps(cases, separators=(",", ":")))


def random_strings(n, seed, length=24):
    """Characters of Unicode 3.2, on whose properties all libraries agree."""
    rng = random.Random(seed)
    old = unicodedata.ucd_3_2_0

    def character():
        kind = rng.random()
        if kind < 0.35:
            return chr(rng.randrange(32, 127))
        if kind < 0.45:
            return rng.choice(" \t\n\u00a0\u3000'")
        while True:
            c = chr(rng.randrange(0xA0, 0x3000) if kind < 0.85 else rng.randrange(0x3000, 0x30000))
            stable = old.category(c) == unicodedata.category(c) and old.normalize("NFC", c) == unicodedata.normalize(
                "NFC", c
            )
            if (
                old.category(c) not in ("Cn", "Cs", "Co")
                and stable
                and c.lower() == c.swapcase().lower()
                and not 0x10A0 <= ord(c) <= 0x10FF
            ):
                return c

    return ["".join(character() for _ in range(rng.randrange(1, length))) for _ in range(n)]


def small_clip():
    folder = OUT / "clip_small"
    folder.mkdir(parents=True, exist_ok=True)
    merges = (SHARED / "clip/merges.txt").read_text(encoding="utf-8").split("\n")[:501]
    vocab = json.loads((SHARED / "clip/vocab.json").read_text(encoding="utf-8"))
    tokens = [t for t, i in sorted(vocab.items(), key=lambda e: e[1]) if i < 512 + 500] + [
        "<|startoftext|>",
        "<|endoftext|>",
    ]
    (folder / "merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")
    (folder / "vocab.json").write_text(
        json.dumps({t: i for i, t in enumerate(tokens)}, ensure_ascii=False), encoding="utf-8"
    )
    return folder


def token(content):
    return {
        "__type": "AddedToken",
        "content": content,
        "lstrip": False,
        "normalized": True,
        "rstrip": False,
        "single_word": False,
    }


CLIP_CONFIGS = {
    "plain": {},
    "sd15": {
        "bos_token": token("<|startoftext|>"),
        "eos_token": token("<|endoftext|>"),
        "unk_token": token("<|endoftext|>"),
        "pad_token": "<|endoftext|>",
        "model_max_length": 77,
        "tokenizer_class": "CLIPTokenizer",
        "do_lower_case": True,
        "errors": "replace",
    },
    "sdxl2": {
        "bos_token": token("<|startoftext|>"),
        "eos_token": token("<|endoftext|>"),
        "unk_token": token("<|endoftext|>"),
        "pad_token": "!",
        "model_max_length": 77,
        "tokenizer_class": "CLIPTokenizer",
    },
}


def clip():
    work = OUT / "work"
    out = {"made_by": MADE_BY, "configs": CLIP_CONFIGS, "strings": TRICKY + random_strings(150, 7), "results": {}}
    for size, source in (("full", SHARED / "clip"), ("small", small_clip())):
        for name, config in CLIP_CONFIGS.items():
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            for file in ("vocab.json", "merges.txt"):
                shutil.copy(source / file, work / file)
            if config:
                (work / "tokenizer_config.json").write_text(json.dumps(config))
            tok = transformers.CLIPTokenizer.from_pretrained(str(work))
            if not config:
                tok.model_max_length = 77
            rows = []
            for text in out["strings"]:
                fixed = tok(text, padding="max_length", max_length=77, truncation=True)
                ids = tok(text)["input_ids"]
                rows.append(
                    [ids, sum(fixed["attention_mask"]), tok.decode(ids, skip_special_tokens=True), tok.decode(ids)]
                )
                assert fixed["input_ids"][: len(ids)] == (ids if len(ids) <= 77 else ids[:76] + ids[-1:])
                assert all(i == tok.pad_token_id for i in fixed["input_ids"][len(ids) :])
            out["results"][f"{size}/{name}"] = {"pad": tok.pad_token_id, "rows": rows}
    shutil.rmtree(work)
    write_cases("clip", out)


# ---- tokenizer.json files

WORDS = (
    "the quick brown fox jumps over a lazy dog while two painters draw pictures of cats and dogs in oil on canvas "
    "at night with bright stars"
).split()


def corpus(n=400):
    rng = random.Random(3)
    extra = [
        "caf\u00e9",
        "na\u00efve",
        "\u65e5\u672c\u8a9e",
        "don't",
        "it's",
        "1234",
        "\u0434\u043e\u043c",
        "x-y",
        "3.5",
        "\U0001f600",
    ]
    return [
        " ".join(rng.choice(WORDS + extra) for _ in range(rng.randrange(3, 12))).capitalize()
        + rng.choice([".", "!", "", "?"])
        for _ in range(n)
    ]


def charsmap(rules):
    """A darts-clone double array of {utf-8 prefix: replacement} with SentencePiece's framing."""
    trie, text = {}, b""
    for key, value in rules.items():
        node = trie
        for b in key.encode():
            node = node.setdefault(b, {})
        node[None] = len(text)
        text += value.encode() + b"\0"
    units, used, taken = [0] * 4096, {0}, set()

    def place(at, node):  # children of the unit `at`, at (at ^ offset) ^ label
        labels = [0 if k is None else k for k in node]
        offset = 1
        while (at ^ offset) in taken or any((at ^ offset ^ c) in used for c in labels):
            offset += 1
        base = at ^ offset
        taken.add(base)
        used.update(base ^ c for c in labels)
        assert offset < 1 << 21
        units[at] |= offset << 10 | (1 << 8 if None in node else 0)
        for k, child in node.items():
            if k is None:
                units[base] = child | 1 << 31
            else:
                units[base ^ k] |= k
                place(base ^ k, child)

    place(0, trie)
    size = -(-(max(used) + 1) // 256) * 256
    blob = struct.pack(f"<{size}I", *units[:size])
    return base64.b64encode(struct.pack("<I", len(blob)) + blob + text).decode()


def build():
    """name -> Tokenizer, or the JSON of one."""
    texts, made = corpus(), {}

    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    t.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    t.add_tokens([AddedToken(" cat", single_word=True), AddedToken("Dog", lstrip=True, rstrip=True, normalized=True)])
    made["gpt2"] = t

    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=450, special_tokens=special, limit_alphabet=40, max_token_length=8, show_progress=False
        ),
    )
    t.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    t.enable_padding(direction="left", pad_id=2, pad_token="</s>", pad_to_multiple_of=8)
    t.enable_truncation(20, direction="left")
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    made["llama"] = j

    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, ignore_merges=True))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=350, special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"], show_progress=False),
    )
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    t.enable_padding(length=32, pad_id=0, pad_token="<pad>", direction="left")
    made["gemma"] = t

    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(prepend_scheme="always"), decoders.Metaspace()
    t.train_from_iterator(
        texts,
        trainers.UnigramTrainer(
            vocab_size=200, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
        ),
    )
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    made["t5"] = t
    j = json.loads(t.to_str())
    rules = {
        "\uff21": "A",
        "\uff22": "B",
        "\u00bd": "1\u20442",
        "\u3000": " ",
        "\t": " ",
        "\n": " ",
        "e\u0301": "\u00e9",
        "\u00ad": "",
        "\u2126": "\u03a9",
        "\ufb01": "fi",
    }
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    j["normalizer"] = {
        "type": "Sequence",
        "normalizers": [{"type": "Precompiled", "precompiled_charsmap": charsmap(rules)}, strip],
    }
    j["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, j["pre_tokenizer"]]}
    made["t5_charsmap"] = j
    j = json.loads(t.to_str())
    j["model"]["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
    j["model"]["byte_fallback"] = True
    j["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    j["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "ByteFallback"},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False},
        ],
    }
    made["unigram_bytes"] = j

    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False))
    t.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    )
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation()]
    )
    t.decoder = decoders.BPEDecoder()
    special = ["<unk>", "<s>", "</s>"]
    t.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=200, special_tokens=special, end_of_word_suffix="</w>", limit_alphabet=30, show_progress=False
        ),
    )
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    made["suffix"] = t

    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer, t.decoder = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
        decoders.WordPiece(),
    )
    t.train_from_iterator(
        texts,
        trainers.WordPieceTrainer(
            vocab_size=150, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
        ),
    )
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made["bert"] = t

    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| "
        r"?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.normalizer, t.decoder = normalizers.NFC(), decoders.ByteLevel()
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    t.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False),
    )
    t.add_special_tokens(["<|begin|>", "<|end|>"])
    t.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin|> $A", special_tokens=[("<|begin|>", t.token_to_id("<|begin|>"))]
            ),
        ]
    )
    made["llama3"] = t

    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        words = Tokenizer(models.BPE())
        words.normalizer = normalizers.NFKD()
        words.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(r"[\s\d]|-"), behavior), pre_tokenizers.Digits(individual_digits=False)]
        )
        alphabet = [chr(c) for c in range(32, 127)] + ["\n", "\t"]
        words.train_from_iterator(
            texts, trainers.BpeTrainer(vocab_size=160, initial_alphabet=alphabet, show_progress=False)
        )
        made[f"split_{behavior}"] = words
    return made


def general():
    strings = TRICKY + corpus(20) + random_strings(60, 11)
    strings += [
        "the  cat cats Dog  dogs DogDog a cat.",
        "quick Dog cat Dog   cat",
        "Hello <|im_start|>user<|im_end|> x",
        "tabs\tand\nnew lines\r\n",
        "10-20--30 4 5",
        "\uff21\uff22\u00bd\u00ad\ufb01 x",
        "<s> a </s>",
    ]
    out = {"made_by": MADE_BY, "strings": strings, "results": {}}
    for name, t in build().items():
        text = t.to_str() if isinstance(t, Tokenizer) else json.dumps(t)
        tok = Tokenizer.from_str(text)
        (OUT / f"{name}.json").write_text(
            json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) + "\n", encoding="utf-8"
        )
        rows = []
        for s in strings:
            e = tok.encode(s)
            rows.append(
                [
                    e.ids,
                    "".join(map(str, e.attention_mask)) if 0 in e.attention_mask else "",
                    tok.decode(e.ids, skip_special_tokens=True),
                    tok.decode(e.ids, skip_special_tokens=False),
                ]
            )
        out["results"][name] = rows
    write_cases("cases", out)


def fuzz_corpus():
    """The same files with a few tokens each."""
    for name in (
        "bert",
        "gemma",
        "gpt2",
        "llama",
        "llama3",
        "suffix",
        "t5",
        "t5_charsmap",
        "unigram_bytes",
        "split_merged_with_next",
    ):
        j = json.loads((OUT / f"{name}.json").read_text(encoding="utf-8"))
        model = j["model"]
        if model["type"] == "Unigram":
            model["vocab"] = model["vocab"][:40]
        else:
            keep = {model.get("unk_token")} | {a["content"] for a in j["added_tokens"]}
            merges = model.get("merges", [])[:12]
            keep |= {t for a, b in merges for t in (a, b, a + b)}
            model["vocab"] = {t: i for t, i in model["vocab"].items() if t in keep or (len(t) == 1 and i % 3 == 0)}
            if merges:
                model["merges"] = merges
        (FUZZ / f"{name}.json").write_text(json.dumps(j, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    clip()
    general()
    fuzz_corpus()
