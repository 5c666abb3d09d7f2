"""Golden files of T5Tokenizer: tests/golden/tokenizers/t5_*.model and t5_cases.json.xz, and
tests/fuzz_corpus/sentencepiece.

    python tests/golden/make_golden_tokenizers_t5.py [folder of shared data]    # with transformers and sentencepiece

Small SentencePiece models are trained here, with few rules of normalization, since the published ones alone are 240 KB;
ids are those of transformers' T5Tokenizer, and of the one with bytes for unknown characters, which it does not know,
SentencePiece's. test_model.model in the shared data has all of NFKC's rules; its unknown piece is 0, where transformers
takes 2 whatever the file says.
"""

import io
import json
import os
import pathlib
import shutil
import sys
import tempfile

import sentencepiece
import transformers
from make_golden_tokenizers import TRICKY, corpus, random_strings
from packed import write_json
from transformers.convert_slow_tokenizer import import_protobuf

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "tokenizers"
FUZZ = HERE.parent / "fuzz_corpus" / "sentencepiece"
SHARED = pathlib.Path(
    sys.argv[1]
    if len(sys.argv) > 1
    else os.environ.get("SF_SHARED_DATA", HERE.parent.parent.parent / "shared" / "data")
)
MADE_BY = f"transformers {transformers.__version__}, sentencepiece {sentencepiece.__version__}"
RULES = {
    "\uff21": "A",
    "\u00bd": "1\u20442",
    "\u3000": " ",
    "\t": " ",
    "\n": " ",
    "e\u0301": "\u00e9",
    "\u00ad": "",
    "\u2126": "\u03a9",
    "\ufb01": "fi",
}
TOKENS = [
    "</s> in <extra_id_3>  the <extra_id_99>middle<pad>",
    "<unk> <extra_id_100> a </S>",
    "a photo of <extra_id_0>, twice<extra_id_0>",
]
PLAIN = [
    "A photo of a cat.",
    "the quick brown fox jumps over a lazy dog",
    "  two   painters  ",
    "It's 3.5 o'clock, don't!",
    "",
    "dogs\nand\tcats",
]


def trained(**options):
    """The bytes of a model."""
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.tsv"
        rules.write_text(
            "".join(
                f"{' '.join(f'{ord(c):X}' for c in k)}\t{' '.join(f'{ord(c):X}' for c in v)}\n"
                for k, v in RULES.items()
            )
        )
        normalization = (
            {"normalization_rule_name": "identity"}
            if options.pop("identity", False)
            else {"normalization_rule_tsv": str(rules)}
        )
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()), model_writer=out, model_type=options.pop("model_type", "unigram"),
            hard_vocab_limit=False, num_threads=1, minloglevel=2, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
            **normalization, **options,
        )  # fmt: skip
    model = import_protobuf().ModelProto()
    model.ParseFromString(out.getvalue())
    model.normalizer_spec.ClearField("normalization_rule_tsv")  # a path of this machine
    return model.SerializeToString()


def models():
    return {
        "t5_small": trained(vocab_size=200),
        "t5_identity": trained(
            vocab_size=120, identity=True, user_defined_symbols=["<cat>", "dog"], control_symbols=["<mask>"]
        ),
        "t5_bytes": trained(vocab_size=400, byte_fallback=True, character_coverage=0.98),
        "t5_bpe": trained(vocab_size=150, model_type="bpe"),
    }


def transformers_rows(model, config, strings):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "spiece.model").write_bytes(model)
        (pathlib.Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
        tok = transformers.T5Tokenizer.from_pretrained(folder)
        rows = []
        for text in strings:
            ids = tok(text)["input_ids"]
            cut = tok(text, padding="max_length", max_length=12, truncation=True)
            assert cut["input_ids"] == (ids if len(ids) <= 12 else ids[:11] + ids[-1:]) + [tok.pad_token_id] * (
                12 - len(ids)
            ), text
            assert sum(cut["attention_mask"]) == min(12, len(ids))
            rows.append([ids, tok.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)])
        return {"size": len(tok), "special": sorted(tok.all_special_ids), "rows": rows}


def sentencepiece_rows(model, strings, eos):
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    return {"rows": [[sp.encode(text) + [eos], sp.decode(sp.encode(text))] for text in strings]}


CONFIGS = {
    "plain": {},
    "pixart": {
        "tokenizer_class": "T5Tokenizer", "model_max_length": 512, "extra_ids": 100, "legacy": True,
        "sp_model_kwargs": {}, "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
        "clean_up_tokenization_spaces": True, "additional_special_tokens": [f"<extra_id_{i}>" for i in range(100)],
    },
    "few": {"extra_ids": 4},
}  # fmt: skip


def main():
    made = models()
    for name, data in made.items():
        (OUT / f"{name}.model").write_bytes(data)
    strings = PLAIN + TOKENS + TRICKY + random_strings(60, 11)
    document = {"made_by": MADE_BY, "configs": CONFIGS, "strings": strings, "results": {}}
    for name, config in CONFIGS.items():
        document["results"][f"t5_small/{name}"] = transformers_rows(made["t5_small"], config, strings)
    document["results"]["t5_identity/plain"] = transformers_rows(
        made["t5_identity"], {}, [*strings, "a <cat> and<mask> dogs"]
    )
    document["strings"].append("a <cat> and<mask> dogs")
    plain = [s for s in strings if "<" not in s and "\0" not in s]
    document["plain"] = plain
    # transformers splits words by other white space too
    spaced = [s for s in plain if all(c == " " or not c.isspace() for c in s)]
    document["spaced"] = spaced
    document["results"]["t5_bytes"] = sentencepiece_rows(made["t5_bytes"], spaced, 1)
    shared = transformers_rows((SHARED / "sentencepiece/test_model.model").read_bytes(), {}, plain)
    shared["rows"] = [[[0 if i == 2 else i for i in ids[:-1]] + ids[-1:], text] for ids, text in shared["rows"]]
    document["results"]["test_model"] = shared
    write_json(OUT / "t5_cases.json.xz", json.dumps(document, separators=(",", ":")))
    shutil.rmtree(FUZZ, ignore_errors=True)
    FUZZ.mkdir(parents=True)
    for name in ("t5_identity", "t5_bytes"):
        (FUZZ / f"{name}.model").write_bytes(made[name])
    (FUZZ / "charsmap.model").write_bytes(made["t5_small"])


if __name__ == "__main__":
    main()
