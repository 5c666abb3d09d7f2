"""Checks the rules of the house that a compiler does not: format, names, sizes, includes.

python tools/lint.py          # lists what is wrong; exit status 1 when something is
python tools/lint.py --fix    # formats C++ (clang-format) and Python (ruff) first
"""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPP = (".cpp", ".h", ".cu", ".cuh", ".def")
MAX_LINES = 600  # of a file in scaffolding/; longer ones are split by concept
MAX_COLUMNS = 120
FORBIDDEN_FOLDERS = {"utils", "common", "misc", "helpers"}
ALLOWED_FOLDERS = {"python/scaffolding/utils", "python/scaffolding/nn/utils"}  # paths that the Python API promises
# may include what it likes
TEST_CODE = re.compile(r"(_test|_bench|_fuzz)\.cpp$|/(op_test|op_check|test_\w+)\.(h|cpp)$")
# Of other projects, which comments name:
FOREIGN_FILES = """_tensor_str.py avx_mathfun.h CUDAApplyUtils.cuh cublas_api.h curand_kernel.h
    DistributionTemplates.h file_download.py ggml-common.h ggml.h jerror.h jpeglib.h llama.cpp MultinomialKernel.cu
    pickletools.py pipelines/pipeline_loading_utils.py Randperm.cu scaffoldingConfig.cmake simple_tokenizer.py
    stable-diffusion.cpp tokenization.py train_text_to_image_sdxl.py""".split()
# An instruction set's object files may share no symbol with another's; these headers bring templates that do.
NOT_IN_CPU_FILES = {
    "algorithm",
    "functional",
    "map",
    "memory",
    "optional",
    "span",
    "string",
    "tuple",
    "unordered_map",
    "variant",
    "vector",
}

# What a source file pays for each of these is more than for a hundred of our headers: they belong into .cpp files.
NOT_IN_PUBLIC_HEADERS = """any chrono complex condition_variable filesystem format fstream future iomanip iostream
    istream ostream random ranges regex shared_mutex sstream syncstream thread valarray nlohmann/json.hpp""".split()
PUBLIC = "cmake/public_headers.txt"  # what users include


def tracked():
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    names = (
        listing.stdout.split("\n") if listing.returncode == 0 else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")]
    )
    skip = ("build/", "dist/", ".venv", ".git/")
    return sorted(pathlib.PurePosixPath(n) for n in names if n and not n.startswith(skip) and (ROOT / n).is_file())


def is_wrapped(path, line):
    """Whether the line has to end at MAX_COLUMNS: code and prose, not rows of tables and .def files, nor links."""
    if path.suffix == ".md":
        return not line.startswith("|") and len(re.sub(r"\]\([^)]*\)|<[^>]*>", "", line)) > MAX_COLUMNS
    if path.suffix == ".def":
        return line.lstrip().startswith("//")
    return path.suffix != ".txt" or path.name == "CMakeLists.txt"


def check_text(path, text, complain):
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", line) and path.name != "lint.py" and path.suffix != ".md":
            complain(path, number, "an unfinished thought: finish it or describe the limit in the documentation")
        if line.rstrip() != line and path.suffix != ".md" and path.parts[:2] != ("tests", "golden"):
            complain(path, number, "trailing space")
        if "\t" in line and path.name != "Makefile":
            complain(path, number, "a tab")
        if len(line) > MAX_COLUMNS and is_wrapped(path, line):
            complain(path, number, f"{len(line)} columns, at most {MAX_COLUMNS}")
    if text and not text.endswith("\n"):
        complain(path, len(lines), "no newline at the end of the file")
    if path.parts[0] == "scaffolding" and len(lines) - 1 > MAX_LINES:
        complain(path, MAX_LINES, f"{len(lines) - 1} lines, at most {MAX_LINES}: split it by concept")


def layers():
    """The folders of ARCHITECTURE.md's table, lowest first."""
    table = (ROOT / "ARCHITECTURE.md").read_text().split("## Layers", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `scaffolding/(\w+)/` \|", table, re.MULTILINE)


def includes_of(path, files):
    """(line, file) for each of the repository's files that path includes."""
    for number, line in enumerate((ROOT / path).read_text().split("\n"), 1):
        if include := re.match(r'\s*#\s*include "([^"]+)"', line):
            beside, target = path.parent / include[1], pathlib.PurePosixPath(include[1])
            if target in files or beside in files:
                yield number, target if target in files else beside


def check_layers(files, complain):
    """A file of scaffolding/ includes files of its own folder and of those above it in ARCHITECTURE.md's table,
    and no file itself.
    """
    place = {folder: i for i, folder in enumerate(layers())}
    included = {}
    for path in sorted(files):
        if path.suffix not in CPP or TEST_CODE.search(str(path)):
            continue
        # scaffolding.h is for those who use the library
        folder = path.parts[1] if path.parts[0] == "scaffolding" and len(path.parts) > 2 else None
        if folder and folder not in place:
            complain(path, 1, f"scaffolding/{folder}/ is not in ARCHITECTURE.md's table of layers")
            continue
        included[path] = []
        for number, target in includes_of(path, files):
            if folder and (target.parts[0] != "scaffolding" or len(target.parts) == 2 or TEST_CODE.search(str(target))):
                complain(path, number, f"the library does not include {target}")
            elif folder and place.get(target.parts[1], -1) > place[folder]:
                rule = "move the file to its layer, or declare here what is defined there"
                complain(
                    path,
                    number,
                    f"{folder}/ may not know {target}: {target.parts[1]}/ comes after it in ARCHITECTURE.md's table "
                    f"of layers; {rule}",
                )
            else:
                included[path].append((number, target))
    check_circles(included, complain)


def public_headers(files, starts=None):
    """Those that PUBLIC's, or those given, reach, themselves included."""
    starts = starts or (ROOT / PUBLIC).read_text().split()
    found, waiting = set(), [path for path in map(pathlib.PurePosixPath, starts) if path in files]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [target for _, target in includes_of(path, files) if target.suffix == ".h"]
    return sorted(found)


def check_public_headers(files, complain):
    for path in public_headers(files):
        for number, line in enumerate((ROOT / path).read_text().split("\n"), 1):
            include = re.match(r"\s*#\s*include <([^>]+)>", line)
            if include and include[1] in NOT_IN_PUBLIC_HEADERS:
                complain(
                    path,
                    number,
                    f"<{include[1]}> in a public header: every source file of every user compiles "
                    "it. Declare here, and include it in the .cpp",
                )


def check_circles(included, complain):
    done, way = set(), []

    def visit(path):
        way.append(path)
        for number, target in included.get(path, ()):
            if target in way:
                circle = " -> ".join(str(f) for f in [*way[way.index(target) :], target])
                complain(path, number, f"includes go round: {circle}")
            elif target not in done:
                visit(target)
        done.add(way.pop())

    for path in included:
        if path not in done:
            visit(path)


def check_named_files(path, text, endings, complain):
    """Files that comments and documents name are there.
    A name with a folder is looked for when that folder is one of ours.
    """
    is_cpp, is_document = path.suffix in CPP, path.suffix == ".md"
    for number, line in enumerate((without_programs(text) if is_document else text).split("\n"), 1):
        comment = line if is_document else line.partition("//" if is_cpp else "#")[2]
        for name in re.findall(
            r"(?<![\w/.<*{}-])((?:[\w-]+/)*[\w-]+(?:\.[a-z]+)?\.(?:h|cpp|cu|cuh|def|py|cmake|sh|md))(?![\w*(])", comment
        ):
            if name in endings or name in FOREIGN_FILES or re.match(r"x[._]|.*NAME", name):
                continue
            folder = name.rpartition("/")[0]
            if folder in endings if folder else is_cpp and path.parts[0] != "tests":
                complain(
                    path,
                    number,
                    f"names {name}, which is not there (a file of another project stands in FOREIGN_FILES of "
                    "tools/lint.py)",
                )


FAMILIES = re.compile(r"StableDiffusion|UNet2D|CLIP|\bT5|PixArt|\bDiT|Flux|CogVideo")


def check_families(path, text, complain):
    """What all families of pipelines share knows none of them: comments, tests and the list of all headers apart."""
    shared = path.parts[:3] == ("scaffolding", "diffusion", "pipelines") and len(path.parts) == 4
    if not shared or path.name == "pipelines.h" or path.stem.endswith(("_test", "_fuzz")):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if name := FAMILIES.search(line.partition("//")[0]):
            complain(
                path,
                number,
                f"names {name[0]}: what belongs to one family stands in its folder, and all share only what they "
                "register",
            )


GENERATED = {"scaffolding/core/source_dir.h"}  # headers that CMake writes


def check_cpp(path, text, files, complain):
    header = path.suffix in (".h", ".cuh")
    if header and "#pragma once" not in text and "No include guard" not in text:
        complain(path, 1, "a header needs #pragma once, or a comment that says why there is no include guard")
    if header and not text.startswith("//"):
        complain(path, 1, "a header opens with a comment: what it is, who owns it, which threads may use it")
    for number, line in enumerate(text.split("\n"), 1):
        if header and re.match(r"\s*using namespace\b", line):
            complain(path, number, "no `using namespace` in a header")
        if include := re.match(r'#include "([^"]+)"', line):
            target = pathlib.PurePosixPath(include[1])
            if include[1] in GENERATED:
                continue
            if target not in files and path.parent / target not in files and not str(target).startswith("cuda"):
                complain(path, number, f"there is no file {target}")
            elif target not in files and path.parts[0] == "scaffolding":
                complain(path, number, "includes are written from the root: scaffolding/...")
        if (
            re.match(r"#include <(cub|thrust)/", line)
            and str(path) != "scaffolding/backend/cuda/cub.cu"
            and path.parts[0] == "scaffolding"
        ):
            complain(
                path,
                number,
                "CUB takes seconds to compile and is included by backend/cuda/cub.cu alone, Thrust by nothing: call "
                "what cub.h offers",
            )
        if (
            (include := re.match(r"#include <([^>]+)>", line))
            and path.name.endswith(".cpu.cpp")
            and include[1] in NOT_IN_CPU_FILES
        ):
            complain(
                path,
                number,
                f"<{include[1]}> in a file that is compiled per instruction set: its templates would be shared "
                "between them",
            )


# Arguments of a kernel that are made of a tensor which nobody holds.
ARGUMENT_OF_A_COPY = re.compile(r"^ +(?!Tensors? |Shape )[A-Z]\w+ \w+\{[^;]*?\b(?:reshape|contiguous)\(", re.M)


def check_kernel_calls(path, text, complain):
    if path.parts[:2] != ("scaffolding", "ops") or TEST_CODE.search(str(path)):
        return
    for match in ARGUMENT_OF_A_COPY.finditer(text):
        complain(
            path,
            text.count("\n", 0, match.end()) + 1,
            "a kernel's arguments are views that own nothing: hold what reshape or contiguous may have copied in a "
            "Tensor until the kernel has run",
        )


def check_python(path, text, complain):
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*(import|from)\s+torch\b", line) and path.parts[:2] != ("tests", "golden"):
            # Benchmarks print PyTorch's times where it is installed;
            # programs of the conformance tests are read with their imports renamed.
            if path.parts[0] != "benchmarks" and (
                path.parts[:2] != ("tests", "conformance") or path.name.startswith(("test_", "conftest"))
            ):
                complain(
                    path, number, "only tests/golden, benchmarks and programs in tests/conformance may import torch"
                )


# How fast a layer is computed is decided once for all models, in models/parts.
DECIDED_IN_PARTS = re.compile(
    r"\b(is_looked_at|is_cuda|autocast)\b|[Ff]loat8|LinearFP8|_fp8\b|looked_at\.h|nn/joined\.h"
)
# They name what files hold, and compute nothing.
READS_FORMATS = {"quantized_folder.h", "quantized_folder.cpp", "quantized_writer.h", "quantized_writer.cpp"}


def check_models(path, text, complain):
    """Models say what is computed; on which device, past whose calls and in which dtype is decided by their parts."""
    if (
        path.parts[:2] != ("scaffolding", "models")
        or path.parts[2] == "parts"
        or path.name.endswith(("_test.cpp", "_bench.cpp"))
        or path.name in READS_FORMATS
    ):
        return
    for number, line in enumerate(text.split("\n"), 1):
        if found := DECIDED_IN_PARTS.search(line):
            complain(
                path,
                number,
                f"{found[0]} in a model: who looks on, devices, autocast and float8 are decided in "
                "scaffolding/models/parts",
            )


def check_folders(files, complain):
    for folder in sorted({p for f in files for p in f.parents}):
        if folder.name in FORBIDDEN_FOLDERS and str(folder) not in ALLOWED_FOLDERS:
            complain(folder, 0, f"no folder is called {folder.name}: name what it holds")
    for f in files:
        if f.stem in FORBIDDEN_FOLDERS and f.suffix in (*CPP, ".py") and str(f.parent) not in ALLOWED_FOLDERS:
            complain(f, 0, f"no file is called {f.stem}: name what it holds")


def check_op_list(files, complain):
    """ops/ops.h includes every op's header."""
    listing = pathlib.PurePosixPath("scaffolding/ops/ops.h")
    text = (ROOT / listing).read_text()
    for f in files:
        if (
            f.parts[:2] == ("scaffolding", "ops")
            and f.suffix == ".h"
            and f.stem == f.parts[-2]
            and f != listing
            and f'#include "{f}"' not in text
        ):
            complain(listing, 1, f"misses {f}")


def without_programs(text):
    """A document's text; in place of programs empty lines."""
    return re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", without_programs(text))


def anchors(text):
    """What a renderer calls the headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def check_links(path, text, complain):
    for number, line in enumerate(without_code(text).split("\n"), 1):
        for link in re.findall(r"\]\(([^)\s]+)[^)]*\)", line) + re.findall(r"<img [^>]*src=\"([^\"]+)", line):
            target, _, anchor = link.partition("#")
            place = ROOT / path.parent / target if target else ROOT / path
            if re.match(r"[a-z]+:", target):
                continue
            if not place.exists():
                complain(path, number, f"the link to {target} leads nowhere")
            elif anchor and anchor not in anchors(place.read_text()):
                complain(path, number, f"the link to #{anchor} leads nowhere: {place.name} has no such heading")


def formatters(files, fix, complain):
    cpp = [str(f) for f in files if f.suffix in (".cpp", ".h", ".cu", ".cuh")]
    python = [str(f) for f in files if f.suffix == ".py"]
    environment = pathlib.Path(sys.executable).parent  # not resolved: .venv/bin
    clang_format, ruff = environment / "clang-format", environment / "ruff"
    if not clang_format.exists() or not ruff.exists():
        sys.exit('lint: clang-format and ruff are not installed here; run tools/setup.sh or pip install ".[dev]"')
    commands = (
        [[clang_format, "-i", *cpp], [ruff, "check", "--fix", "-q", *python], [ruff, "format", "-q", *python]]
        if fix
        else []
    )
    for command in commands:
        subprocess.run(command, cwd=ROOT)
    for command in (
        [clang_format, "--dry-run", *cpp],
        [ruff, "check", "--output-format=concise", "-q", *python],
        [ruff, "format", "--check", "-q", *python],
    ):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        output = done.stdout + done.stderr
        if command[0] == clang_format:
            where = sorted({line.split(":")[0] for line in output.split("\n") if "[-Wclang-format-violations]" in line})
            for f in where:
                complain(f, 0, "is not formatted: run `make format`")
        elif done.returncode:
            for line in (
                output.strip().split("\n") if output.strip() else ["Python files are not formatted: run `make format`"]
            ):
                complain(line, 0, "ruff")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="format before checking")
    options = parser.parse_args()
    problems = []

    def complain(path, line, what):
        problems.append(f"{path}:{line}: {what}" if line else f"{path}: {what}")

    files = tracked()
    known = set(files)
    formatters(files, options.fix, complain)
    check_folders(files, complain)
    check_op_list(files, complain)
    check_layers(known, complain)
    check_public_headers(known, complain)
    # of files' and folders' paths
    endings = {"/".join(p.parts[i:]) for f in files for p in (f, *f.parents) for i in range(len(p.parts))}
    for path in files:
        if path.suffix not in (*CPP, ".py", ".md", ".cmake", ".sh", ".txt", ".toml", "") or path.name == "LICENSE":
            continue
        text = (ROOT / path).read_text(errors="replace")
        check_text(path, text, complain)
        if path.name != "CHANGELOG.md":  # tells of files that went
            check_named_files(path, text, endings, complain)
        if path.suffix in CPP:
            check_cpp(path, text, known, complain)
            check_kernel_calls(path, text, complain)
            check_families(path, text, complain)
            check_models(path, text, complain)
        elif path.suffix == ".py":
            check_python(path, text, complain)
        elif path.suffix == ".md":
            check_links(path, text, complain)
    print("\n".join(problems))
    print(f"lint: {len(problems)} problems in {len(files)} files" if problems else f"lint: {len(files)} files are fine")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
