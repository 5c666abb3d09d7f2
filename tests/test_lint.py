"""The rules of tools/lint.py that read several files: layers, circles of includes, files that comments name."""

import importlib.util
import pathlib

import folders
import pytest

TABLE = (
    "# A map\n\n## Layers\n| Folder | What it is |\n|---|---|\n| `scaffolding/core/` | below |\n| "
    "`scaffolding/nn/` | above |\n\n## Next\n"
)


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """What a check says of files given as {path: text}."""
    spec = importlib.util.spec_from_file_location("lint", folders.ROOT / "tools" / "lint.py")
    lint = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lint)
    monkeypatch.setattr(lint, "ROOT", tmp_path)

    def run(check, files):
        for path, text in {"ARCHITECTURE.md": TABLE, **files}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        paths, said = {pathlib.PurePosixPath(path) for path in files}, []
        check(lint, paths, lambda path, line, what: said.append(f"{path}:{line}: {what}"))
        return said

    return run


def layers(lint, paths, complain):
    lint.check_layers(paths, complain)


def includes(*paths):
    return "".join(f'#include "{path}"\n' for path in paths)


def test_a_layer_knows_those_before_it_only(checked):
    low, high, test = "scaffolding/core/a.cpp", "scaffolding/nn/b.h", "scaffolding/core/a_test.cpp"
    assert checked(layers, {low: "", high: includes(low), test: includes(high)}) == []
    (said,) = checked(layers, {low: "\n" + includes(high), high: ""})
    assert said.startswith(f"{low}:2: core/ may not know {high}: nn/ comes after it")


def test_every_folder_of_the_library_is_a_layer(checked):
    assert checked(layers, {"scaffolding/odd/a.h": ""}) == [
        "scaffolding/odd/a.h:1: scaffolding/odd/ is not in ARCHITECTURE.md's table of layers"
    ]


def test_the_library_includes_neither_tests_nor_its_own_summary(checked):
    files = {
        "scaffolding/scaffolding.h": "",
        "scaffolding/core/test_rows.h": "",
        "scaffolding/core/a.h": includes("scaffolding/scaffolding.h", "scaffolding/core/test_rows.h"),
    }
    assert [said.rpartition(" ")[2] for said in checked(layers, files)] == [
        "scaffolding/scaffolding.h",
        "scaffolding/core/test_rows.h",
    ]


def test_circles_of_includes(checked):
    a, b, c = (f"scaffolding/core/{name}.h" for name in "abc")
    assert checked(layers, {a: includes(b, c), b: includes(c), c: ""}) == []
    assert checked(layers, {a: includes(b), b: includes(c), c: includes(a)}) == [
        f"{c}:1: includes go round: {a} -> {b} -> {c} -> {a}"
    ]
    assert checked(layers, {a: includes(a), b: "", c: ""}) == [f"{a}:1: includes go round: {a} -> {a}"]


def test_heavy_headers_stay_out_of_the_public_ones(checked):
    def public(lint, paths, complain):
        lint.check_public_headers(paths, complain)

    inner, apart = "scaffolding/core/a.h", "scaffolding/core/b.h"
    files = {
        "scaffolding/scaffolding.h": includes(inner),
        "cmake/public_headers.txt": "scaffolding/scaffolding.h\n",
        inner: "#include <map>\n#include <regex>\n",
        apart: "#include <regex>\n",
    }
    (said,) = checked(public, files)
    assert said.startswith(f"{inner}:2: <regex> in a public header")


@pytest.mark.parametrize(
    "comment, missing",
    [
        ("see core/a.h and a.h", None),
        ("see core/b.h", "core/b.h"),
        ("made in b.cpp", "b.cpp"),
        ("numpy/lib/format.py has it", None),  # no folder of ours
        ("after x_fuzz.cpp, <name>.cpp and ggml.h", None),
    ],
)
def test_files_that_comments_name(checked, comment, missing):
    path = pathlib.PurePosixPath("scaffolding/core/a.h")

    def names(lint, paths, complain):
        lint.check_named_files(path, f"// {comment}\n", {"a.h", "core/a.h", "core", "scaffolding"}, complain)

    said = checked(names, {str(path): ""})
    assert len(said) == bool(missing) and all(f"names {missing}, which" in text for text in said)


def test_arguments_of_a_kernel_are_held(checked):
    def calls(lint, paths, complain):
        for path in paths:
            lint.check_kernel_calls(path, (lint.ROOT / path).read_text(), complain)

    held = "  const Tensor x = input.reshape({1, 2});\n  LinearAdd args{x, y.view({1, 2})};\n"
    assert checked(calls, {"scaffolding/ops/a.cpp": held}) == []
    loose = "\n  LinearAdd args{weight.t(),\n                 bias ? contiguous(bias) : bias};\n"
    (said,) = checked(calls, {"scaffolding/ops/a.cpp": loose, "scaffolding/ops/a_test.cpp": loose})
    assert said.startswith("scaffolding/ops/a.cpp:3: a kernel's arguments are views that own nothing")
