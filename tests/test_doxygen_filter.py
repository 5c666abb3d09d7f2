"""The site's C++ pages: comments of headers as Doxygen reads them (tools/doxygen_filter.py)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))

from doxygen_filter import filtered  # noqa: E402


def test_the_first_comment_is_about_the_file_and_examples_are_code():
    made = filtered("// Thing: a thing.\n//   Thing t;\n//   t.run();\n// Done.\n#pragma once\n")
    assert made == (
        "/**\n@file\n Thing: a thing.\n@code{.cpp}\n   Thing t;\n   t.run();\n@endcode\n Done.\n*/\n#pragma once\n"
    )


def test_comments_behind_a_declaration_belong_to_it_with_their_further_lines():
    made = filtered("#pragma once\nint a;   // in pixels,\n         // from 0\nint b;\n")
    assert made == "#pragma once\nint a;   /**< in pixels, from 0 */\nint b;\n"


def test_a_comment_above_belongs_to_what_follows():
    assert filtered("int a;\n  // Of `b`, a <T> at 50 %.\n  int b;\n") == (
        "int a;\n  /**\n Of <tt>b</tt>, a \\<T\\> at 50 \\%.\n  */\n  int b;\n"
    )


def test_headings_among_declarations_are_left_out():
    assert filtered("int a;\n// ---- more\nint b;\n") == "int a;\nint b;\n"


def test_slashes_within_texts_are_no_comments():
    text = 'const char* a = "http://x";\nchar c = \'"\';\n'
    assert filtered(text) == text
    assert filtered('f("a//b");  // why\n') == 'f("a//b");  /**< why */\n'
