"""Puts the site together: pages from Markdown, from headers and from the table of ops, one sidebar, one search index."""
import html
import json
import pathlib
import posixpath
import re
import shutil

from markdown_it import MarkdownIt

from api_pages import ApiPages, page_path
from highlight import code_html
from markdown_files import markdown_files, slug
from ops_pages import OpsPages

_HERE = pathlib.Path(__file__).parent
_LANGUAGES = {".cc": "cpp", ".h": "cpp", ".py": "python", ".md": "markdown", ".json": "json", ".txt": "text", ".cmake": "cmake"}


def page_of(markdown_path):
    """Where the page of a Markdown file is: folders' READMEs are their index pages."""
    path = pathlib.PurePosixPath(markdown_path)
    return str(path.with_name("index.html") if path.name == "README.md" else path.with_suffix(".html"))


class Site:
    def __init__(self, root, out):
        self.root, self.out = root, out
        self.search = []       # [page, anchor, title, heading, text, weight]
        self.sources = set()   # source files that pages link to
        self.images = set()    # files that pages show
        self.count = 0
        self.markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
        self.markdown.add_render_rule("fence", lambda _, tokens, i, *rest: code_html(
            tokens[i].content.rstrip("\n"), tokens[i].info.strip()) + "\n")
        self.markdown.add_render_rule("table_open", lambda *_: '<div class="table"><table>')
        self.markdown.add_render_rule("table_close", lambda *_: "</table></div>\n")
        self.pages = {str(p): page_of(p) for p in markdown_files(root)}
        self.api = ApiPages(root)
        self.ops = OpsPages((root / "docs" / "ops.md").read_text())
        for family in self.ops.families:
            self.pages[f"docs/ops/{family}.md"] = f"docs/ops/{family}.html"
        self.template = (_HERE / "page.html").read_text()
        self.sidebar = self._read_sidebar()

    # The sidebar is the list of docs/README.md: its headings and the links at the start of each item.
    def _read_sidebar(self):
        groups = []
        for line in (self.root / "docs" / "README.md").read_text().split("\n"):
            heading = re.match(r"## (.+)", line)
            item = re.match(r"- \[([^]]+)\]\(([^)]+)\)", line)
            if heading:
                groups.append((heading.group(1), []))
            elif item and groups:
                groups[-1][1].append((item.group(1).replace("`", ""), self._target(item.group(2), "docs/README.md")))
        return groups

    def _sidebar_html(self, page):
        out = []
        for title, items in self.sidebar:
            out.append(f"<h2>{html.escape(title)}</h2><ul>")
            for text, target in items:
                here = ' aria-current="page"' if target == page else ""
                out.append(f'<li><a href="{{root}}{target}"{here}>{html.escape(text)}</a></li>')
            out.append("</ul>")
        return "".join(out)

    def _target(self, link, source):
        """Where a link of a Markdown file leads in the site, relative to its root; None when it should be no link."""
        if re.match(r"[a-z]+:", link):
            return link
        path, _, anchor = link.partition("#")
        anchor = "#" + anchor if anchor else ""
        if not path:
            return self.pages[source] + anchor
        full = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if full in self.pages:
            return self.pages[full] + anchor
        if full == "millrace/millrace.h":
            return "api/index.html" + anchor
        if f"{full}/README.md" in self.pages:
            return self.pages[f"{full}/README.md"] + anchor
        header = full[len("millrace/"):] if full.startswith("millrace/") else ""
        if header in self.api.headers:
            return page_path(header) + anchor
        if (self.root / full).is_file():
            self.sources.add(full)
            return f"source/{full}.html"
        return None if (self.root / full).is_dir() else path + anchor

    def _render(self, text, source, headings=None):
        tokens = self.markdown.parse(text)
        taken = {}
        for i, token in enumerate(tokens):
            if token.type == "heading_open":
                plain = "".join(c.content for c in tokens[i + 1].children if c.type in ("text", "code_inline"))
                token.attrSet("id", slug(plain, taken))
                if headings is not None:
                    headings.append((int(token.tag[1]), token.attrGet("id"), plain))
            if token.type == "inline":
                self._links(token.children, source)
        return _protect(self.markdown.renderer.render(tokens, self.markdown.options, {})).replace("@@root@@", "{root}")

    def _links(self, children, source):
        inside = 0
        for i, child in enumerate(children):
            if child.type == "link_open":
                inside += 1
                target = self._target(child.attrGet("href"), source)
                if target is None:
                    child.type, child.tag = "text", ""
                    child.content, child.nesting = "", 0
                    closing = next(c for c in children[i:] if c.type == "link_close")
                    closing.type, closing.tag, closing.content, closing.nesting = "text", "", "", 0
                    inside -= 1
                else:
                    child.attrSet("href", target if re.match(r"[a-z]+:", target) else "@@root@@" + target)
            elif child.type == "link_close":
                inside -= 1
            elif child.type == "image":
                image = posixpath.normpath(posixpath.join(posixpath.dirname(source), child.attrGet("src")))
                self.images.add(image)
                child.attrSet("src", "@@root@@" + image)
            elif child.type == "code_inline" and not inside and source != "docs/ops.md":
                target = self._symbol(child.content)
                if target and not (source.startswith("docs/ops/")):
                    child.type = "html_inline"
                    child.content = f'<a class="symbol" href="@@root@@{target}"><code>{html.escape(child.content)}</code></a>'

    def _symbol(self, text):
        """The page of an API symbol or an op that a piece of inline code names exactly."""
        name = re.sub(r"^(ops|layers|losses|optimizers|init|schedules)::", "", text)
        name = re.sub(r"\(\)$", "", name)
        if name in self.api.symbols and (name[0].isupper()):
            return self.api.symbols[name]
        return self.ops.symbols.get(name) if name[:1].isupper() and len(name) > 3 else None

    def write(self, page, title, body, headings=(), wide=False):
        depth = page.count("/")
        toc = [(level, anchor, text) for level, anchor, text in headings if level in (2, 3)]
        toc_html = "" if len(toc) < 3 else "<h2>On this page</h2><ul>" + "".join(
            f'<li class="l{level}"><a href="#{anchor}">{html.escape(text)}</a></li>' for level, anchor, text in toc) + "</ul>"
        text = self.template
        for name, value in (("sidebar", self._sidebar_html(page)), ("toc", toc_html), ("body", body)):
            text = text.replace("{%s}" % name, value)
        text = text.replace("{title}", html.escape(title)).replace("{wide}", " wide" if wide else "")
        text = text.replace("{columns}", "" if toc_html else " no-toc")
        text = text.replace("{root}", "../" * depth).replace("@@brace@@", "{")
        target = self.out / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        self.count += 1

    def add_markdown(self, source, text, weight, wide=False):
        headings = []
        body = self._render(text, source, headings)
        title = headings[0][2] if headings else source
        self.write(self.pages[source], title, body, headings, wide)
        sections = re.split(r"^#{1,3} .+$", re.sub(r"```.*?```", "", text, flags=re.S), flags=re.M)[1:]
        marks = [h for h in headings if h[0] <= 3]
        for (_, anchor, heading), section in zip(marks, sections):
            self.search.append([self.pages[source], anchor, title, heading, _words(section), weight])

    def add_api(self):
        for header in self.api.headers:
            body, sections = self.api.body(header, lambda text: self._render(text, "millrace/" + header))
            headings = [(2, a, t) for a, t, _ in sections[1:] if "." not in a]
            self.write(page_path(header), header, body, headings)
            for anchor, heading, text in sections:
                self.search.append([page_path(header), anchor, header, heading, _words(text), 3])
        self.write("api/index.html", "C++ API", self.api.index_body())

    def add_ops(self):
        for family in self.ops.families:
            source = f"docs/ops/{family}.md"
            headings = []
            body = self._render(self.ops.family_markdown(family), source, headings)
            body = re.sub(r"<tr>\s*<td><code>(\w+)</code>", r'<tr id="\1"><td><code>\1</code>', body)
            self.write(self.pages[source], f"{family} ops", body, headings, wide=True)
            for op, about in self.ops.ops(family):
                self.search.append([self.pages[source], op, "Ops: " + family, op, about, 2])

    def add_sources(self):
        for source in sorted(self.sources):
            path = self.root / source
            language = _LANGUAGES.get(path.suffix, "text")
            if path.suffix == "" and path.read_bytes()[:2] == b"#!":
                language = "python" if b"python" in path.read_bytes()[:40] else "bash"
            body = f'<h1 id="top">{html.escape(source)}</h1>' + _protect(code_html(path.read_text(), language))
            self.write(f"source/{source}.html", source, body, wide=True)


def _protect(text):
    """Keeps braces of the contents out of the template's way."""
    return text.replace("{", "@@brace@@").replace("@@brace@@root}", "{root}")


def _words(text):
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\s+", " ", re.sub(r"[`*|]+|-{3,}", " ", text)).strip()


def build(root, out):
    site = Site(root, out)
    for source in list(site.pages):
        if source == "docs/ops.md":
            site.add_markdown(source, site.ops.overview(), 1, wide=True)
        elif not source.startswith("docs/ops/"):
            weight = 3 if source.startswith("docs/") or "/" not in source else 1
            site.add_markdown(source, (root / source).read_text(), weight)
    site.add_api()
    site.add_ops()
    site.add_sources()
    for image in site.images:
        (out / image).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / image, out / image)
    for name in ("site.css", "site.js"):
        shutil.copy(_HERE / name, out / name)
    (out / "search-index.js").write_text("window.searchIndex = " + json.dumps(site.search, ensure_ascii=False, separators=(",", ":")) + ";\n")
    return site.count
