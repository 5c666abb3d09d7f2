"""A header with its comments as Doxygen reads them: `python3 tools/doxygen_filter.py HEADER` writes it to standard
output, as many lines as it has. The comments of the house are plain `//`: above what they speak of, or behind it, and
one at the top of a file about the whole of it.
"""

import re
import sys

BEHIND = re.compile(r"^(?P<code>(?:[^\"/']|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|/(?!/))*\S\s*)//(?!/)(?P<text>.*)$")
ALONE = re.compile(r"^(?P<space>\s*)//(?!/)(?P<text>.*)$")
EXAMPLE = 3  # spaces after the slashes from which on a line is code
RULE = re.compile(r"^\s*----+")  # a heading among declarations, which speaks of none of them alone


def escaped(text):
    """Words as Doxygen shows them: `code` in its type, and nothing taken for a command, a tag or a list's end."""
    parts = re.split(r"`([^`]+)`", text)
    parts = [re.sub(r"([\\@<>#&%\"]|(?<![^\s.])\.)", r"\\\1", part) for part in parts]
    return "".join(f"<tt>{part}</tt>" if i % 2 else part for i, part in enumerate(parts))


def block(lines, space, file_comment):
    """The lines of a comment that stands alone, one for one."""
    made, in_code = [], False
    for i, text in enumerate(lines):
        is_code = len(text) - len(text.lstrip()) >= EXAMPLE and text.strip()
        begin = "@file\n" if file_comment and i == 0 else ""
        if is_code and not in_code:
            begin += "@code{.cpp}\n"
        if in_code and not is_code:
            begin += "@endcode\n"
        in_code = bool(is_code)
        text = text.rstrip() if is_code else escaped(text)
        made.append((begin, text))
    body = "".join(f"{begin}{text.replace('*/', '* /')}\n" for begin, text in made) + ("@endcode\n" if in_code else "")
    return f"{space}/**\n{body}{space}*/\n"


def filtered(text):
    out, lines, at = [], text.splitlines(), 0
    while at < len(lines):
        alone, behind = ALONE.match(lines[at]), BEHIND.match(lines[at])
        if alone and RULE.match(alone["text"]):
            at += 1
        elif alone:
            comment = []
            while at < len(lines) and (more := ALONE.match(lines[at])):
                comment.append(more["text"])
                at += 1
            out.append(block(comment, alone["space"], file_comment=not out))
        elif behind and not lines[at].lstrip().startswith("#") and not behind["code"].rstrip().endswith("\\"):
            # further lines of it stand below the slashes of the first
            column, comment = len(behind["code"]), [behind["text"].strip()]
            at += 1
            while at < len(lines) and (more := ALONE.match(lines[at])) and len(more["space"]) == column:
                comment.append(more["text"].strip())
                at += 1
            out.append(f"{behind['code']}/**< {escaped(' '.join(comment))} */\n")
        else:
            out.append(lines[at] + "\n")
            at += 1
    return "".join(out)


if __name__ == "__main__":
    with open(sys.argv[1]) as header:
        sys.stdout.write(filtered(header.read()))
