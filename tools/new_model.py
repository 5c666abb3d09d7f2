"""Writes the files of a new model, with a test that fails until the model is finished.

    python tools/new_model.py PixArtTransformer2DModel --like diffusers.PixArtTransformer2DModel --file pixart_transformer_2d
    python tools/new_model.py T5EncoderModel --like transformers.T5EncoderModel --folder text_encoders --file t5
    python tools/new_model.py FluxTransformer2DModel --layout bfl    # its tensors have other names in checkpoints of that program

Run it in the repository. The model that it writes is one convolution: a config, a class that is registered, its Python class, and a script that records what
the class of --like computes. test_every_model.py fails for it by name until that script was run and the numbers agree; docs/extending.md,
"A model", goes on from there.
"""

import argparse
import pathlib
import re
import sys

HEADER = """// @NAME@: one sentence that says what it makes of what.
#pragma once
#include "scaffolding/models/model.h"
#include "scaffolding/nn/conv.h"

namespace sf::models {

struct @CONFIG@ {
  int64_t in_channels = 4;
  std::optional<int64_t> out_channels;  // absent: in_channels
  io::Fields fields();
};

struct @NAME@ : ConfiguredModel<@CONFIG@> {
  static constexpr const char* kName = "@NAME@";
  nn::Conv2d conv_in;
  SF_MODULE(@NAME@, conv_in)
  explicit @NAME@(Config config = {});
@TRANSFORMERS@  // sample[B, in_channels, H, W] -> [B, out_channels, H, W].
  Tensor forward(const Tensor& sample) const;
};

}  // namespace sf::models
"""
TRANSFORMERS = """  const char* library() const override { return "transformers"; }
  const char* model_type() const override { return "@MODEL_TYPE@"; }

"""
SOURCE = """#include "scaffolding/models/@FOLDER@/@FILE@.h"

#include "scaffolding/core/error.h"
#include "scaffolding/core/tensor.h"

namespace sf::models {

io::Fields @CONFIG@::fields() {
  return {{"in_channels", &in_channels}, {"out_channels", &out_channels}};
}

namespace {

@CONFIG@ checked(@CONFIG@ c) {
  const char* who = @NAME@::kName;
  const int64_t out = c.out_channels.value_or(c.in_channels);
  for (auto& [name, value] : {std::pair{"in_channels", c.in_channels}, {"out_channels", out}})
    SF_CHECK(value > 0 && value <= kMostChannels, who, ": ", name, " must be between 1 and ", kMostChannels, ", got ", value);
  return c;
}

}  // namespace

@NAME@::@NAME@(Config config)
    : ConfiguredModel(checked(std::move(config))),
      conv_in(options.in_channels, options.out_channels.value_or(options.in_channels), nn::Ints(1)) {}

Tensor @NAME@::forward(const Tensor& sample) const {
  check_defined(kName, "sample", sample);
  const bool fits = sample.ndim() == 4 && sample.size(1) == options.in_channels;
  SF_CHECK(fits, kName, ": sample must be [B, ", options.in_channels, ", H, W], got ", sample.shape());
  return conv_in(sample);
}

SF_MODEL(@NAME@)
    .doc("@LIKE@: sample [B, in_channels, H, W] to [B, out_channels, H, W].")
    .forward<&@NAME@::forward>("sample");

}  // namespace sf::models
"""
LAYOUT = """#include "scaffolding/models/names/name_rules.h"

namespace sf::models {

// What the tensors are called in @LAYOUT@'s checkpoints: our name, theirs. See models/names/name_rules.h.
SF_NAMES(@NAME@, "@LAYOUT@").rename("conv_in", "conv_in");

}  // namespace sf::models
"""
PYTHON = '''"""@NAME@, under @LIBRARY@' name."""

from .modeling import ModelMixin, model_class
from .outputs import Transformer2DModelOutput


@model_class
class @NAME@(ModelMixin):
    """One sentence that says what it makes of what, with @LIBRARY@' config fields and keys."""

    def forward(self, sample, return_dict=True):
        """sample [B, in_channels, H, W] to [B, out_channels, H, W]."""
        sample = self.native_forward(sample)
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)
'''
SCRIPT = '''"""Golden files of @NAME@: what @LIBRARY@' computes.

Usage: /path/to/python-with-torch tests/golden/make_golden_models_@FILE@.py
Writes models/@FILE@.json, models/@FILE@.safetensors and keys/: see model_fixture.py.
"""

@IMPORTS@


def main():
    fixture = ModelFixture("@FILE@")
    # What the published model's config has besides the defaults. Arguments and fields that ours takes otherwise: differences, each with the reason.
    fixture.model(@CLASS@, full_size={"@FILE@": {}}, differences={"forward": {}, "config": {}}@AS@)
    # Fields that make it small (two layers, few channels), and the arguments of a call. A case for each branch of the model.
    small = {"in_channels": 4}
    fixture.case("plain", @CLASS@, small, {"sample": floats(2, 4, 8, 8)})
    fixture.write()


if __name__ == "__main__":
    main()
'''


def file_name(class_name):
    """pix_art_transformer_2d of PixArtTransformer2DModel"""
    class_name = class_name.replace("UNet", "Unet")
    words = re.sub(r"(?<=\dD)(?=[A-Z])|(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[A-Z][a-z])", "_", class_name.removesuffix("Model"))
    return words.lower()


def with_row(text, row):
    """A document with a row after the last one of its table of models, or None where it has no such table."""
    lines = text.split("\n")
    rows = [i for i, line in enumerate(lines) if re.match(r"\| `\w+(Model|KL|Tiny)\w*` \|", line)]
    if not rows:
        return None
    last = rows[0]
    while last + 1 < len(lines) and lines[last + 1].startswith("|"):
        last += 1
    return "\n".join([*lines[: last + 1], row + " |" * (lines[last].count("|") - row.count("|") - 1) + " |", *lines[last + 1 :]])


def files_of(options):
    """{path: text} of the files that are new."""
    place, script = f"scaffolding/models/{options.folder}/{options.file}", f"tests/golden/make_golden_models_{options.file}.py"
    files = {f"{place}.h": HEADER, f"{place}.cpp": SOURCE, f"python/scaffolding/models/{options.file}.py": PYTHON, script: SCRIPT}
    if options.layout:
        files[f"{place}_names.cpp"] = LAYOUT
    module, _, cls = options.like.rpartition(".")
    library = module.split(".")[0]
    config = options.name.removesuffix("Model") + "Config"
    imports = sorted([f"from {module} import {cls}", "from model_fixture import ModelFixture, floats"])
    values = {
        "TRANSFORMERS": TRANSFORMERS if library == "transformers" else "", "MODEL_TYPE": options.file, "CONFIG": config, "LAYOUT": options.layout,
        "FOLDER": options.folder, "FILE": options.file, "LIBRARY": library, "IMPORTS": "\n".join(imports), "CLASS": cls, "LIKE": options.like,
        "NAME": options.name, "AS": "" if cls == options.name else f', name="{options.name}"',
    }  # fmt: skip

    def filled(text):
        for word, value in values.items():
            text = text.replace(f"@{word}@", value)
        return text

    return {path: filled(text) for path, text in files.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the class's name, as diffusers or transformers have it where they do")
    parser.add_argument("--like", help="the class whose numbers it must give; diffusers.<name> without it")
    parser.add_argument("--folder", default="transformers", help="of scaffolding/models/: transformers, unets, autoencoders, text_encoders")
    parser.add_argument("--file", help="the files' name; made from the class's without it")
    parser.add_argument("--layout", default="", help="a program whose checkpoints call the tensors otherwise: a file of names for it")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.like = options.like or f"diffusers.{options.name}"
    options.file = options.file or file_name(options.name)
    models = options.root / "scaffolding/models/models.h"
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", options.name):
        sys.exit(f"new_model: a model's name is a class name, got '{options.name}'")
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", options.like):
        sys.exit(f"new_model: --like takes a module and a class such as diffusers.{options.name}, got '{options.like}'")
    for what in ("file", "folder"):
        if not re.fullmatch(r"[a-z][a-z0-9_]*", getattr(options, what)):
            sys.exit(f"new_model: a {what}'s name is snake_case, got '{getattr(options, what)}'")
    if not re.fullmatch(r"\w*", options.layout):
        sys.exit(f"new_model: a layout is one word, got '{options.layout}'")
    if not models.exists():
        sys.exit(f"new_model: run it in the repository: there is no {models}")
    files = files_of(options)
    there = [path for path in files if (options.root / path).exists()]
    if there:
        sys.exit(f"new_model: {there[0]} exists already")

    for path, text in files.items():
        (options.root / path).parent.mkdir(parents=True, exist_ok=True)
        (options.root / path).write_text(text)
        print(f"wrote {path}")
    lines = models.read_text().splitlines()
    includes = sorted({line for line in lines if line.startswith("#include")} | {f'#include "scaffolding/models/{options.folder}/{options.file}.h"'})
    models.write_text("\n".join([line for line in lines if not line.startswith("#include")] + includes) + "\n")
    print("a line in scaffolding/models/models.h")
    for document in (options.root / "README.md", *sorted((options.root / "docs").rglob("*.md"))):
        text = with_row(document.read_text(), f"| `{options.name}` | what it is | {options.like.split('.')[0]}") if document.exists() else None
        if text is not None:
            document.write_text(text)
            print(f"a row in {document.relative_to(options.root)}")
            break
    print(f"next: build, run pytest tests -k 'every_model and {options.name}', and see docs/extending.md, \"A model\"")


if __name__ == "__main__":
    main()
