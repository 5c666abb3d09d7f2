"""Writes the files of a new model, and of a pipeline around it, with tests that fail until they are finished.

    python tools/new_model.py T5EncoderModel --like transformers.T5EncoderModel --folder text_encoders --file t5
    python tools/new_model.py FluxTransformer2DModel --layout bfl    # what another program calls its tensors
    python tools/new_model.py PixArtTransformer2DModel --pipeline PixArtSigmaPipeline --family pixart
    python tools/new_model.py DiTTransformer2DModel --pipeline DiTPipeline --family dit --task class-to-image

Run it in the repository. The model that it writes is one convolution: a config, a class that is registered, its Python
class, and a script that records what the class of --like computes. test_every_model.py fails for it by name until that
script was run and the numbers agree; docs/extending.md, "A model", goes on from there.

The pipeline of --pipeline is a call of that model in each step, with prompts, guidance and noise as others have them: a
struct of options, a class that is registered (its Python class follows from that), and a script that records what
diffusers' class makes. test_every_pipeline.py fails for it by name; docs/extending.md, "A pipeline", goes on from
there. Around a model that is registered already, the pipeline alone is written.
"""

import argparse
import pathlib
import re
import sys

import pipeline_templates as templates

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
  Tensor forward(@PARAMETERS@) const;
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
    SF_CHECK(value > 0 && value <= kMostChannels, who, ": ", name, " must be between 1 and ", kMostChannels, ", got ",
             value);
  return c;
}

}  // namespace

@NAME@::@NAME@(Config config)
    : ConfiguredModel(checked(std::move(config))),
      conv_in(options.in_channels, options.out_channels.value_or(options.in_channels), nn::Ints(1)) {}

Tensor @NAME@::forward(@PARAMETERS@) const {
@DEFINED@  const bool fits = sample.ndim() == 4 && sample.size(1) == options.in_channels;
  SF_CHECK(fits, kName, ": sample must be [B, ", options.in_channels, ", H, W], got ", sample.shape());
  return conv_in(sample);
}

SF_MODEL(@NAME@)
    .doc("@LIKE@: sample [B, in_channels, H, W] to [B, out_channels, H, W].")
    .forward<&@NAME@::forward>("@ARGUMENTS@");

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

    def forward(self, @ARGUMENTS@, return_dict=True):
        """sample [B, in_channels, H, W] to [B, out_channels, H, W]."""
        sample = self.native_forward(@ARGUMENTS@)
        return Transformer2DModelOutput(sample=sample) if return_dict else (sample,)
'''
SCRIPT = '''"""Golden files of @NAME@: what @LIBRARY@' computes.

Usage: /path/to/python-with-torch tests/golden/make_golden_models_@FILE@.py
Writes models/@FILE@.json, models/@FILE@.safetensors and keys.tar.xz: see model_fixture.py.
"""

@IMPORTS@


def main():
    fixture = ModelFixture("@FILE@")
    # full_size: what the published model's config has besides the defaults. differences: arguments and fields that ours
    # takes otherwise, each with the reason.
    fixture.model(@CLASS@, full_size={"@FILE@": {}}, differences={"forward": {}, "config": {}}@AS@)
    # Fields that make it small (two layers, few channels), and the arguments of a call. A case for each branch.
    small = {"in_channels": 4}
    fixture.case("plain", @CLASS@, small, {@EXAMPLE@})
    fixture.write()


if __name__ == "__main__":
    main()
'''

# What forward takes, by the task of the pipeline that calls it, with an example for the golden script.
ARGUMENTS = {
    None: {"sample": "floats(2, 4, 8, 8)"},
    "text": {"sample": "floats(2, 4, 8, 8)", "timestep": "[17, 903]", "encoder_hidden_states": "floats(2, 5, 32)"},
    "class-to-image": {"sample": "floats(2, 4, 8, 8)", "timestep": "[17, 903]", "class_labels": "[3, 7]"},
}
TASKS = {
    "text-to-image": "TextToImage",
    "image-to-image": "ImageToImage",
    "inpainting": "Inpainting",
    "class-to-image": "ClassToImage",
}


def file_name(class_name, family=None):
    """pix_art_transformer_2d of PixArtTransformer2DModel; of the family pixart, pixart_transformer_2d."""
    flat = (family or "").replace("_", "")
    if flat and class_name.lower().startswith(flat):
        return "_".join(filter(None, [family, file_name(class_name[len(flat) :])]))
    class_name = class_name.replace("UNet", "Unet").replace("Img2Img", "Img2img")
    words = re.sub(
        r"(?<=\dD)(?=[A-Z])|(?<=[a-z])(?=[A-Z]|\d(?!img))|(?<=[A-Z])(?=[A-Z][a-z])",
        "_",
        class_name.removesuffix("Model").removesuffix("Pipeline"),
    )
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
    return "\n".join(
        [*lines[: last + 1], row + " |" * (lines[last].count("|") - row.count("|") - 1) + " |", *lines[last + 1 :]]
    )


def filled(files, values):
    """{path: text} with the @WORDS@ replaced, those inside of values too."""

    def text_of(text):
        for word, value in values.items():
            text = text.replace(f"@{word}@", value)
        return text

    return {path: text_of(text_of(text)) for path, text in files.items()}


def imports_of(names):
    """The lines that import {module: names}."""
    return "\n".join(f"from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names))


def model_files(options):
    """{path: text} of a model's files."""
    place = f"scaffolding/models/{options.folder}/{options.file}"
    script = f"tests/golden/make_golden_models_{options.file}.py"
    files = {
        f"{place}.h": HEADER,
        f"{place}.cpp": SOURCE,
        f"python/scaffolding/models/{options.file}.py": PYTHON,
        script: SCRIPT,
    }
    if options.layout:
        files[f"{place}_names.cpp"] = LAYOUT
    module, _, cls = options.like.rpartition(".")
    library = module.split(".")[0]
    takes = ARGUMENTS[options.task if not options.task or options.task in ARGUMENTS else "text"]
    values = {
        "TRANSFORMERS": TRANSFORMERS if library == "transformers" else "", "MODEL_TYPE": options.file,
        "LAYOUT": options.layout, "CONFIG": options.name.removesuffix("Model") + "Config", "FOLDER": options.folder,
        "FILE": options.file, "LIBRARY": library, "CLASS": cls, "LIKE": options.like, "NAME": options.name,
        "IMPORTS": imports_of({module: [cls], "model_fixture": ["ModelFixture", "floats"]}),
        "AS": "" if cls == options.name else f', name="{options.name}"', "ARGUMENTS": ", ".join(takes),
        "PARAMETERS": ", ".join(f"const Tensor& {name}" for name in takes),
        "DEFINED": "".join(f'  check_defined(kName, "{name}", {name});\n' for name in takes),
        "EXAMPLE": ", ".join(f'"{name}": {value}' for name, value in takes.items()),
    }  # fmt: skip
    return filled(files, values)


def pipeline_files(options):
    """{path: text} of a pipeline's files."""
    with_text = options.task in templates.TEXT_TASKS
    file = "pipeline_" + file_name(options.pipeline, options.family)
    place, script = (
        f"scaffolding/diffusion/pipelines/{options.family}/{file}",
        f"make_golden_pipelines_{options.family}.py",
    )
    files = {
        f"{place}.h": templates.PIPELINE_HEADER if with_text else templates.CLASS_HEADER,
        f"{place}.cpp": templates.PIPELINE_SOURCE if with_text else templates.CLASS_SOURCE,
    }
    if not (options.root / "tests/golden" / script).exists():  # of a family's first pipeline
        files[f"tests/golden/{script}"] = templates.PIPELINE_SCRIPT
    module, _, cls = options.like.rpartition(".")
    denoiser = "unet" if options.folder == "unets" else "transformer"
    parts = {denoiser: denoiser, "vae": "vae", "scheduler": "ddim"} | (
        {"tokenizer": "tokenizer", "text_encoder": "text"} if with_text else {}
    )
    imports = {
        "diffusers": {"AutoencoderKL", "DDIMScheduler", options.pipeline},
        "pipeline_fixture": {"PipelineFixture"},
    }
    imports.setdefault(module, set()).add(cls)
    if with_text:
        imports.setdefault("transformers", set()).update({"CLIPTextModel", "CLIPTokenizer"})
    values = {
        **templates.TEXT_TASKS.get(options.task, {}), "PIPELINE": options.pipeline,
        "OPTIONS": options.pipeline.removesuffix("Pipeline") + "Options", "DENOISER": denoiser, "NAME": options.name,
        "FAMILY": options.family, "FAMILY_NAME": options.family.replace("_", "-"), "PIPELINE_FILE": file,
        "TASK": TASKS[options.task], "PIPELINE_SCRIPT_FILE": script, "CLASS": cls, "IMPORTS": imports_of(imports),
        "TEXT": templates.TEXT_CONFIG if with_text else "", "TEXT_PARTS": templates.TEXT_PARTS if with_text else "",
        "CALL": templates.EXAMPLE_CALL[options.task], "SMALL": templates.SMALL[denoiser],
        "PARTS": ", ".join(f'"{name}": "{part}"' for name, part in parts.items()),
    }  # fmt: skip
    return filled(files, values)


def there_is(options):
    """Whether a model of that name is registered; its folder is that one's then."""
    for source in sorted((options.root / "scaffolding/models").glob("*/*.cpp")):
        if f"SF_MODEL({options.name})" in source.read_text():
            options.folder = source.parent.name
            return True
    return False


def include(document, path):
    """Adds the line to a header of includes, in their order."""
    lines = document.read_text().splitlines()
    includes = sorted({line for line in lines if line.startswith("#include")} | {f'#include "{path}"'})
    document.write_text("\n".join([line for line in lines if not line.startswith("#include")] + includes) + "\n")


def checked(options):
    """Completes the options, or says what is wrong with them."""
    options.like = options.like or f"diffusers.{options.name}"
    options.file = options.file or file_name(options.name, options.family)
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", options.name):
        sys.exit(f"new_model: a model's name is a class name, got '{options.name}'")
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", options.like):
        sys.exit(f"new_model: --like takes a module and a class such as diffusers.{options.name}, got '{options.like}'")
    for what in ("file", "folder", "family"):
        value = getattr(options, what)
        if value is not None and not re.fullmatch(r"[a-z][a-z0-9_]*", value):
            sys.exit(f"new_model: a {what}'s name is snake_case, got '{value}'")
    if not re.fullmatch(r"\w*", options.layout):
        sys.exit(f"new_model: a layout is one word, got '{options.layout}'")
    if (options.pipeline is None) != (options.family is None) or (options.task and not options.pipeline):
        sys.exit("new_model: --pipeline and --family go together, and --task with them")
    if options.pipeline:
        options.task = options.task or "text-to-image"
        if not re.fullmatch(r"[A-Z][A-Za-z0-9]*Pipeline", options.pipeline):
            sys.exit(f"new_model: a pipeline's name is a class name such as DiTPipeline, got '{options.pipeline}'")
        if options.folder not in ("transformers", "unets"):
            sys.exit(
                f"new_model: --pipeline goes with its denoiser, of transformers or unets, got --folder {options.folder}"
            )
    if not (options.root / "scaffolding/models/models.h").exists():
        sys.exit(f"new_model: run it in the repository: there is no {options.root / 'scaffolding/models/models.h'}")
    return options


def files_of(options):
    """{path: text} of the files that are new."""
    files = {}
    if not (options.pipeline and there_is(options)):
        files |= model_files(options)
    if options.pipeline:
        files |= pipeline_files(options)
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the class's name, as diffusers or transformers have it where they do")
    parser.add_argument("--like", help="the class whose numbers it must give; diffusers.<name> without it")
    parser.add_argument(
        "--folder",
        default="transformers",
        help="of scaffolding/models/: transformers, unets, autoencoders, text_encoders",
    )
    parser.add_argument("--file", help="the files' name; made from the class's without it")
    parser.add_argument(
        "--layout", default="", help="a program whose checkpoints call the tensors otherwise: a file of names for it"
    )
    parser.add_argument("--pipeline", help="diffusers' class of a pipeline that calls the model in its steps")
    parser.add_argument("--family", help="the pipeline's folder, in scaffolding/diffusion/pipelines/")
    parser.add_argument("--task", choices=TASKS, help="what the pipeline makes of what; text-to-image without it")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(), help=argparse.SUPPRESS)
    options = checked(parser.parse_args())
    files = files_of(options)
    there = [path for path in files if (options.root / path).exists()]
    if there:
        sys.exit(f"new_model: {there[0]} exists already")

    for path, text in files.items():
        (options.root / path).parent.mkdir(parents=True, exist_ok=True)
        (options.root / path).write_text(text)
        print(f"wrote {path}")
    for document, folder in (
        ("models/models.h", "scaffolding/models"),
        ("diffusion/pipelines/pipelines.h", "scaffolding/diffusion"),
    ):
        for path in files:
            if path.startswith(folder) and path.endswith(".h"):
                include(options.root / "scaffolding" / document, path)
                print(f"a line in scaffolding/{document}")
    if any(path.startswith("scaffolding/models") for path in files):
        add_row(options)
    made = [name for name in (options.name, options.pipeline) if name]
    chosen = f"'every_model and {options.name}'" if len(made) == 1 else f"'every and ({' or '.join(made)})'"
    section = "A pipeline" if options.pipeline else "A model"
    print(f'next: build, run pytest tests -k {chosen}, and see docs/extending.md, "{section}"')


def add_row(options):
    """A row for the model in the document that has the table of them."""
    for document in (options.root / "README.md", *sorted((options.root / "docs").rglob("*.md"))):
        text = (
            with_row(document.read_text(), f"| `{options.name}` | what it is | {options.like.split('.')[0]}")
            if document.exists()
            else None
        )
        if text is not None:
            document.write_text(text)
            print(f"a row in {document.relative_to(options.root)}")
            break


if __name__ == "__main__":
    main()
