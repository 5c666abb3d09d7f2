"""MkDocs knows nothing outside of docs/: what the documents link to elsewhere in the repository (examples, recipes)
becomes a file of the site.
"""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\((\.\./[^)#\s]+)")


def outside(page_uri, link):
    """The path from the root of the repository, or None for what is in docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page_uri), link))
    return None if path.startswith("docs/") or not (ROOT / path).is_file() else path


def on_files(files, config):
    for page in list(files.documentation_pages()):
        for link in LINK.findall(page.content_string):
            path = outside(page.src_uri, link)
            if path and not files.get_file_from_path(f"source/{path}.txt"):
                files.append(File.generated(config, f"source/{path}.txt", content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown, page, config, files):
    def inside(match):
        path = outside(page.file.src_uri, match[1])
        return (
            match[0]
            if path is None
            else "](" + posixpath.relpath(f"source/{path}.txt", posixpath.dirname(page.file.src_uri) or ".")
        )

    return LINK.sub(inside, markdown)
