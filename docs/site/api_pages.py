"""Pages of the public C++ API, one for each header that a program may include, from the headers themselves."""
import html
import re

import cpp_header
from highlight import code_html

# Headers that the umbrella does not name itself, but whose types its users hold in their hands.
_FOUNDATION = ("tensor/tensor.h", "tensor/shape.h", "tensor/dtype.h", "base/status.h", "session/session.h", "api/optimizer.h",
               "cluster/cluster_spec.h")
# Installed because others include them; no program uses them by name.
_BENEATH = ("base/ref.h", "tensor/half.h", "train/hooks/cadence.h", "api/variable_slice.h")
_GROUPS = (("api", "Building graphs"), ("tensor", "Tensors"), ("session", "Sessions"), ("data", "Input pipelines"),
           ("train", "Training"), ("cluster", "Clusters"), ("graph", "Graphs and schemas"), ("base", "Errors, time and files"),
           ("executor", "Statistics"))


def public_headers(root):
    """Paths below millrace/, without those that the build generates."""
    umbrella = (root / "millrace" / "millrace.h").read_text()
    named = re.findall(r'#include "millrace/([^"]+)"', umbrella)
    # What is installed, where that is a list of its own.
    installed = re.search(r"set\(MILLRACE_PUBLIC_HEADERS([^)]*)\)", (root / "cmake" / "MillraceInstall.cmake").read_text())
    listed = installed.group(1).split() if installed else _FOUNDATION
    found = [h for h in dict.fromkeys([*named, *listed])
             if (root / "millrace" / h).exists() and h not in ("millrace.h", *_BENEATH)]
    order = [g for g, _ in _GROUPS]
    return sorted(found, key=lambda h: (order.index(h.split("/")[0]) if h.split("/")[0] in order else len(order), h))


def page_path(header):
    return "api/" + header[:-2] + ".html"


class ApiPages:
    def __init__(self, root):
        self.headers = {h: cpp_header.read_header((root / "millrace" / h).read_text()) for h in public_headers(root)}
        self.symbols = {}  # name -> "page#anchor"
        for header, content in self.headers.items():
            for entry in content.entries:
                if entry.name:
                    self.symbols.setdefault(entry.name, f"{page_path(header)}#{entry.name}")
                for member in entry.members if entry.kind in ("class", "struct") else ():
                    if member.name:
                        self.symbols.setdefault(f"{entry.name}::{member.name}", f"{page_path(header)}#{entry.name}.{member.name}")

    def index_body(self):
        out = ['<h1 id="c-api">C++ API</h1>',
               "<p>What a program gets by <code>#include &quot;millrace/millrace.h&quot;</code>, header by header. The builders of the ops "
               '(<code>ops::MatMul</code> and so on) are generated from their schemas: see the <a href="{root}docs/ops.html">table of '
               "ops</a>.</p>"]
        for group, title in _GROUPS:
            rows = [h for h in self.headers if h.split("/")[0] == group]
            if not rows:
                continue
            out.append(f'<h2 id="{group}">{title}</h2><div class="table"><table><tbody>')
            for header in rows:
                names = [e for e in self.headers[header].entries if e.name]
                links = ", ".join(f'<a href="{{root}}{page_path(header)}#{e.name}"><code>{html.escape(e.name)}</code></a>'
                                  for e in {e.name: e for e in names}.values())
                first = _first_sentence(self.headers[header].comment)
                out.append(f'<tr><td><a href="{{root}}{page_path(header)}">{header}</a></td><td>{html.escape(first)}'
                           f'<div class="names">{links}</div></td></tr>')
            out.append("</tbody></table></div>")
        return "".join(out)

    def body(self, header, render):
        """The page's HTML and its sections for the search: (anchor, heading, text). `render` makes HTML of Markdown."""
        content = self.headers[header]
        out = [f'<h1 id="top">{header}</h1>', f'<p class="include"><code>#include &quot;millrace/{header}&quot;</code></p>',
               render(_as_markdown(content.comment))]
        sections, taken = [("top", header, " ".join(content.comment))], set()
        for entry in content.entries:
            self._entry(entry, "", out, sections, taken, render)
        return "".join(out), sections

    def _entry(self, entry, owner, out, sections, taken, render):
        anchor = f"{owner}.{entry.name}" if owner else entry.name
        fresh = bool(entry.name) and anchor not in taken
        taken.add(anchor)
        attr = f' id="{html.escape(anchor)}"' if fresh else ""
        if fresh:
            sections.append((anchor, f"{owner}::{entry.name}" if owner else entry.name, " ".join(entry.comment)))
        if entry.kind in ("class", "struct"):
            tag = "h3" if owner else "h2"
            out.append(f'<{tag}{attr}><span class="kind">{entry.kind}</span> {html.escape(entry.name)}</{tag}>')
            if ":" in entry.declarations[0].replace("::", "") or entry.declarations[0].startswith("template"):
                out.append(self._code(entry.declarations[0]))
            out.append(render(_as_markdown(entry.comment)))
            if entry.members and all(_is_field(d) for m in entry.members for d in m.declarations if not m.kind) and not any(
                    m.kind in ("class", "struct") for m in entry.members):
                out.append(self._fields(entry, sections, taken, render))
            else:
                for member in entry.members:
                    self._entry(member, anchor if not owner else owner, out, sections, taken, render)
            return
        out.append(f'<div class="entry"{attr}>')
        if entry.declarations:
            out.append(self._code("\n".join(entry.declarations)))
        out.append(f'<div class="about">{render(_as_markdown(entry.comment))}</div></div>')

    def _fields(self, entry, sections, taken, render):
        rows = []
        for member in entry.members:
            for i, declaration in enumerate(member.declarations):
                if member.kind == "enum":
                    rows.append(f'<tr><td colspan="3">{self._code(declaration)}</td></tr>')
                    continue
                left, _, default = declaration.rstrip(";").partition("=")
                type_, _, name = left.strip().rpartition(" ")
                anchor = f"{entry.name}.{name}"
                taken.add(anchor)
                sections.append((anchor, f"{entry.name}::{name}", " ".join(member.comment)))
                about = render(_as_markdown(member.comment)) if i == 0 else ""
                rows.append(f'<tr id="{anchor}"><td><code>{html.escape(name)}</code><div class="type">{html.escape(type_)}</div></td>'
                            f"<td><code>{html.escape(default.strip())}</code></td><td>{about}</td></tr>")
            if not member.declarations:
                rows.append(f'<tr><td colspan="3">{render(_as_markdown(member.comment))}</td></tr>')
        return ('<div class="table"><table class="fields"><thead><tr><th>field</th><th>default</th><th>meaning</th></tr></thead><tbody>'
                + "".join(rows) + "</tbody></table></div>")

    def _code(self, text):
        def link(match):
            target = self.symbols.get(match.group(2))
            return match.group(0) if not target else f'<a class="{match.group(1)}" href="{{root}}{target}">{match.group(2)}</a>'
        return re.sub(r'<span class="(n|nc|nf)">(\w+)</span>', link, code_html(text, "cpp"))


def _is_field(declaration):
    return "(" not in cpp_header.without_template_arguments(declaration.split("=")[0]) and not declaration.startswith(("using", "template", "static"))


def _first_sentence(comment):
    text = " ".join(line for line in comment if not line.startswith("  ")).strip()
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def _as_markdown(comment):
    """A comment as Markdown: indented lines are code, all else is text in which only back quotes and lists mean something."""
    out, code = [], False
    for line in comment:
        starts_code = line.startswith("  ") and not (out and re.match(r"\s*[-*] |\d\. ", out[-1]) and not code)
        if starts_code != code and (starts_code or line.strip()):
            out.append("\n```cpp" if starts_code else "```")
            code = starts_code
        if code:
            out.append(line[2:])
        else:
            parts = line.split("`")
            for i in range(0, len(parts), 2):
                parts[i] = re.sub(r"([<*_\[\]#|\\])", r"\\\1", parts[i])
            out.append("`".join(parts))
    return "\n".join(out + (["```"] if code else []))
