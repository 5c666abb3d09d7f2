"""The C++ part of the site: Doxygen's pages of the public headers below cpp/, and a page that lists the headers. Needs
Doxygen (Debian: doxygen).
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What its parser says of C++20 that it does not know; all else fails the site.
UNKNOWN_TO_DOXYGEN = re.compile(
    r"potential recursive class relation|while parsing initializer list|no matching file member found|"
    r"^Possible candidates:|^\s*'.*' at line \d+ of file |^[\w:<>, ]+ sf::detail::unbox<"
)
OUTPUT = tempfile.TemporaryDirectory(prefix="scaffolding_doxygen_")  # gone when the site is written, or is not
TAGS = "names.tag"  # which page each file has
STYLE = ROOT / "tools" / "doxygen_site.css"


def public_headers():
    """By path from the root."""
    found, waiting = set(), (ROOT / "cmake" / "public_headers.txt").read_text().split()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += re.findall(r'(?m)^#include "(scaffolding/[^"]+)"', (ROOT / path).read_text())
    return sorted(p for p in found if p.endswith(".h"))


def about(header):
    """The first sentence of the comment that a header begins with."""
    comment = re.match(r"((?://.*\n)+)", header)
    text = " ".join(line[2:].strip() for line in comment[1].splitlines()) if comment else ""
    return (
        re.split(r"(?<=\.)\s", text)[0].replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
    )


def settings(headers, output):
    python, tool = sys.executable, ROOT / "tools" / "doxygen_filter.py"
    return {
        "PROJECT_NAME": "Scaffolding",
        "PROJECT_BRIEF": '"The C++ library"',
        "OUTPUT_DIRECTORY": f'"{output}"',
        "INPUT": " ".join(headers),
        "STRIP_FROM_PATH": f'"{ROOT}"',
        "FULL_PATH_NAMES": "YES",
        "INPUT_FILTER": f'"{python} {tool}"',
        "EXTRACT_ALL": "YES",
        "EXTRACT_STATIC": "YES",
        "JAVADOC_AUTOBRIEF": "YES",
        "MARKDOWN_SUPPORT": "NO",
        "BUILTIN_STL_SUPPORT": "YES",
        "EXCLUDE_SYMBOLS": "detail *::detail",
        "SOURCE_BROWSER": "YES",
        "FILTER_SOURCE_FILES": "NO",  # sources are shown as they are installed
        "MACRO_EXPANSION": "YES",
        "EXPAND_ONLY_PREDEF": "NO",
        "PREDEFINED": '"SF_MODULE(...)="',  # what it adds to each module is the same
        "GENERATE_LATEX": "NO",
        "HTML_OUTPUT": "cpp",
        "HTML_EXTRA_STYLESHEET": f'"{STYLE}"',
        "HTML_TIMESTAMP": "NO",
        "GENERATE_TAGFILE": f'"{output}/{TAGS}"',
        "HAVE_DOT": "NO",
        "CLASS_GRAPH": "NO",
        "QUIET": "YES",
        "WARN_IF_UNDOCUMENTED": "NO",
        "WARN_IF_DOC_ERROR": "YES",
        "WARN_IF_INCOMPLETE_DOC": "NO",
        "WARN_NO_PARAMDOC": "NO",
    }


def run_doxygen(headers, output):
    if not shutil.which("doxygen"):
        raise PluginError("the C++ pages are Doxygen's, which is missing: apt install doxygen")
    text = "".join(f"{name} = {value}\n" for name, value in settings(headers, output).items())
    done = subprocess.run(["doxygen", "-"], input=text, cwd=ROOT, capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if line.strip() and not UNKNOWN_TO_DOXYGEN.search(line)]
    if done.returncode or complaints:
        raise PluginError("doxygen: " + "\n".join(complaints[:20] or [f"exit status {done.returncode}"]))


def header_pages(output):
    """The name of the page of each header."""
    files = ElementTree.parse(output / TAGS).findall("compound[@kind='file']")
    named = ((f.findtext("path") or "", f.findtext("name"), f.findtext("filename")) for f in files)
    return {
        pathlib.PurePosixPath(path, name).as_posix().removeprefix(f"{ROOT}/"): page.removesuffix(".html") + ".html"
        for path, name, page in named
    }


def pages(config, output):
    """The files of the site, and what the navigation says of them."""
    headers, files, folders = public_headers(), [], {}
    run_doxygen(headers, output)
    for made in sorted((output / "cpp").rglob("*")):
        inner = made.relative_to(output).as_posix()
        if made.is_file() and inner != "cpp/index.html":  # Doxygen's "Main Page" leads to ours
            files.append(File.generated(config, inner, abs_src_path=str(made)))
    page_of = header_pages(output)
    for path in headers:
        inner = path.removeprefix("scaffolding/")
        folder = inner.partition("/")[0] if "/" in inner else "the root"
        if path not in page_of:
            raise PluginError(f"doxygen has made no page of {path}")
        folders.setdefault(folder, []).append((inner, page_of[path], about((ROOT / path).read_text())))
    lines = [
        "# The C++ library",
        "",
        "The headers that are installed, in Doxygen's pages: `scaffolding/scaffolding.h` is the framework,",
        "`scaffolding/models/models.h` networks, `scaffolding/diffusion/diffusion.h` pipelines and schedulers. They",
        "can be searched by name and list [classes](annotated.html), [namespaces](namespaces.html) and",
        "[files](files.html) too.",
        "",
    ]
    for folder, members in sorted(folders.items()):
        lines += [f"## {folder}", "", "| Header | What it has |", "|---|---|"]
        lines += [f"| [{inner}]({page}) | {what} |" for inner, page, what in members] + [""]
    files.append(File.generated(config, "cpp/index.md", content="\n".join(lines)))
    return files, ["cpp/index.md"]


def on_files(files, config):
    made, navigation = pages(config, pathlib.Path(OUTPUT.name))
    for file in made:
        files.append(file)
    next(entry["C++"] for entry in config.nav if isinstance(entry, dict) and "C++" in entry).extend(navigation)
    return files
