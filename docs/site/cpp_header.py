"""Reads a C++ header as its users read it: comments are contracts, and what follows a comment is what it is about.

Understands the headers of this repository (formatted by clang-format, `//` comments before or beside declarations), not
C++ in general. Private members, bodies of functions and namespaces called *internal* are left out.
"""
import dataclasses
import re


@dataclasses.dataclass
class Entry:
    """A comment with the declarations that it is about; for a class, its public members too."""
    comment: list      # lines, without the slashes
    declarations: list  # strings without bodies
    kind: str = ""     # "class", "struct", "enum" or "" for anything else
    name: str = ""     # what it declares, where that is known
    members: list = dataclasses.field(default_factory=list)
    closed: bool = False  # a comment beside a declaration is about that one alone


@dataclasses.dataclass
class Header:
    comment: list
    entries: list


def read_header(text):
    lines = [line for line in _without_preprocessor(text)]
    comment = []
    while lines and lines[0].startswith("//"):
        comment.append(_comment_text(lines.pop(0)))
    return Header(comment, _entries("\n".join(lines), public=True))


def _without_preprocessor(text):
    continued = False
    for line in text.split("\n"):
        directive = continued or line.lstrip().startswith("#")
        continued = directive and line.endswith("\\")
        if not directive:
            yield line


def _comment_text(line):
    text = line.strip()[2:]
    return text[1:] if text.startswith(" ") else text


def _declaration_end(text, start):
    """Where the declaration that begins at `start` ends, and the position of its body's brace or -1."""
    depth, body, i = 0, -1, start
    while i < len(text):
        c = text[i]
        if text.startswith("//", i):
            i = text.find("\n", i)
            if i < 0:
                return len(text), body
            continue
        if c == '"' or (c == "'" and not text[i - 1].isalnum()):
            i += 1
            while text[i] != c:
                i += 2 if text[i] == "\\" else 1
        elif c in "([{":
            if c == "{" and depth == 0 and body < 0 and not _is_initializer(text[start:i]):
                body = i
            depth += 1
        elif c in ")]}":
            depth -= 1
            if c == "}" and depth == 0 and body >= 0:
                rest = re.match(r"\s*;", text[i + 1:])
                return (i + 1 + rest.end() if rest else i + 1), body
        elif c == ";" and depth == 0:
            return i + 1, body
        i += 1
    return len(text), body


def _is_initializer(before):
    """True for the brace of `int x{3}` or `= {}`; false for that of a body or a class."""
    before = _plain(before).strip()
    if re.search(r"\b(class|struct|enum|namespace|union)\b[^=()]*$", before) and not before.endswith("="):
        return False
    return before.endswith("=") or not (before.endswith((")", "const", "override", "noexcept")) or "):" in before.replace(" ", ""))


def _plain(text):
    return re.sub(r"//[^\n]*", "", text)


_CLASS = re.compile(r"^(?:template\s*<[^{;]*>\s*)?(class|struct|enum class|enum)\s+(?:ABSL_\w+(?:\([^)]*\))?\s+|\[\[\w+\]\]\s*)*([\w:]+)")


def _entries(text, public):
    entries, comment, i, blank = [], [], 0, True
    while i < len(text):
        line_end = text.find("\n", i)
        line_end = len(text) if line_end < 0 else line_end
        line = text[i:line_end].strip()
        if not line:
            if comment:  # A comment by itself: a heading for what follows.
                entries.append(Entry(comment, []))
                comment = []
            blank, i = True, line_end + 1
            continue
        if line.startswith("//"):
            if re.match(r"//\s*(namespace|NOLINT|clang-format)", line) is None:
                comment.append(_comment_text(line))
            i = line_end + 1
            continue
        access = re.match(r"(public|private|protected)\s*:", line)
        if access:
            public, comment, i = access.group(1) == "public", [], line_end + 1
            continue
        if line.startswith("}"):
            i = line_end + 1
            continue
        end, body = _declaration_end(text, i)
        declaration = text[i:end]
        namespace = re.match(r"\s*(?:inline\s+)?namespace\s+([\w:]*)\s*{", declaration)
        if namespace and body >= 0:
            if "internal" not in namespace.group(1):
                entries += _entries(text[body + 1:text.rfind("}", body, end)], public=True)
            comment, i, blank = [], end, True
            continue
        # A comment on the same line after the declaration is about it.
        tail = re.match(r"[ \t]*//([^\n]*)", text[end:])
        after = []
        if tail:
            after, end = [tail.group(1).strip()], end + tail.end()
        if public:
            _add(entries, declaration, body - i, comment, after, blank)
        comment, i, blank = [], end, False
        if text[i:i + 1] == "\n":
            i += 1
    return [e for e in entries if e.declarations or e.comment]


def _add(entries, declaration, body, comment, after, blank):
    match = _CLASS.match(declaration.strip())
    inside = re.findall(r"^\s*//\s?(.*)$|[^\n]//\s?(.*)$", declaration, re.M) if body < 0 else []
    if match and body >= 0:
        inner = declaration[body + 1:declaration.rfind("}")]
        kind = "enum" if match.group(1).startswith("enum") else match.group(1)
        if kind == "enum":
            entries.append(Entry(comment, [_dedent(declaration)], kind, match.group(2)))
            return
        head = " ".join(_plain(declaration[:body]).split())
        entries.append(Entry(comment, [head], kind, match.group(2), _entries(inner, public=kind == "struct")))
        return
    if match and "(" not in declaration:
        return  # A forward declaration.
    if re.match(r"\s*(friend|static_assert|using \w+::|namespace \w+ =)", declaration):
        return
    if body >= 0:  # Bodies and initialisers of members are the implementation's.
        declaration = re.sub(r"\s*:\s*\w+_?\(.*$", "", _plain(declaration[:body]).rstrip(), flags=re.S) + ";"
    declaration = _dedent(_plain(declaration))
    if "decltype(auto)" in declaration:
        return  # A detail of a template.
    if re.search(r"=\s*delete;", declaration) or re.match(r"(virtual )?~", declaration):
        return
    comment = comment + [a or b for a, b in inside] + after
    name = _name(declaration)
    last = entries[-1] if entries else None
    if last and not comment and not blank and not last.kind and last.declarations and not last.closed:
        last.declarations.append(declaration)
    else:
        entries.append(Entry(comment, [declaration], "", name, closed=bool(after)))


def _name(declaration):
    """The name that a function, a field or an alias declares."""
    alias = re.match(r"(?:template\s*<.*?>\s*)?using (\w+)", declaration)
    if alias:
        return alias.group(1)
    operator = re.search(r"(operator\s*(?:\(\)|[^\s(]+))\s*\(", declaration)
    if operator:
        return operator.group(1)
    text = re.sub(r"^template\s*<.*?>\n", "", declaration, flags=re.S)
    text = without_template_arguments(text)
    field = re.match(r"[^()]*?(\w+)\s*(?:\[\w*\])?\s*(?:=.*|{.*)?;$", text, re.S)
    if field and "(" not in text.split("=")[0]:
        return field.group(1)
    function = re.match(r"[^()=]*?(\w+)\s*\(", text, re.S)
    return function.group(1) if function else ""


def without_template_arguments(text):
    while re.search(r"<[^<>]*>", text):
        text = re.sub(r"<[^<>]*>", "", text)
    return text


def _dedent(declaration):
    lines = declaration.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] if line[:indent].isspace() else line.lstrip() if not line[:indent].strip() else line
                     for line in lines if line.strip()).strip()
