#!/usr/bin/env python3
"""No link is dead: neither in the Markdown files nor in the site that docs/build makes of them, files and anchors both. Source
files that the Markdown names exist. The site loads nothing from elsewhere. Lines of Markdown have 120 columns at most.

  tests/docs/links_test.py               # also tests that the checks find faults
  tests/docs/links_test.py --wrap        # wraps the Markdown files instead
"""
import fnmatch
import html.parser
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "docs" / "site"))
from markdown_files import markdown_files, slug  # noqa: E402

COLUMNS = 120
# Written by the build, and of gRPC.
ELSEWHERE = {"all_ops.h", "grpc/grpc.h"}
GENERATED = pathlib.Path("docs/ops.md")


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M))


def anchors(text):
    taken = {}
    headings = re.findall(r"^#{1,6} +(.+?)\s*$", re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M), re.M)
    return {slug(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", h).replace("`", ""), taken) for h in headings}


def dead_markdown_links(root):
    """'FILE: LINK: why' for each dead link of a Markdown file."""
    files = markdown_files(root)
    known = {f: anchors((root / f).read_text()) for f in files}
    dead = []
    for file in files:
        for link in re.findall(r"\]\(([^)\s]+)\)", without_code((root / file).read_text())):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = pathlib.Path(os.path.normpath(file.parent / path)) if path else file
            if not (root / target).exists():
                dead.append(f"{file}: {link}: there is no {target}")
            elif anchor:
                page = target / "README.md" if (root / target).is_dir() else target
                if page in known and anchor not in known[page]:
                    dead.append(f"{file}: {link}: {page} has no heading #{anchor}")
    return dead


def missing_files(root):
    """'FILE: NAME' for each source file that inline code of a Markdown file names and that is nowhere in the repository."""
    sources = set()
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in ("build", "shared")]
        sources |= {"/" + str(pathlib.Path(folder, f).relative_to(root)) for f in files}
    missing = []
    for file in markdown_files(root):
        text = re.sub(r"^ *```.*?^ *```", "", (root / file).read_text(), flags=re.S | re.M)
        for name in re.findall(r"`((?:\.\./)*[\w/*-]+\.(?:h|cc|cu|py|proto|md))`", text):
            name = re.sub(r"^(\.\./)+", "", name)
            if not any(fnmatch.fnmatchcase(s, "*/" + name) for s in sources) and name not in ELSEWHERE:
                missing.append(f"{file}: {name}")
    return missing


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.twice = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            if attrs["id"] in self.ids:
                self.twice.append(attrs["id"])
            self.ids.add(attrs["id"])
        if tag == "a" and "href" in attrs:
            self.links.append(attrs["href"])
        elif "href" in attrs or "src" in attrs:
            self.loads.append(attrs.get("src") or attrs["href"])


def dead_site_links(site):
    pages = {p.relative_to(site): Page(p.read_text()) for p in site.rglob("*.html")}
    dead = []
    for path, page in pages.items():
        dead += [f"{path}: two elements have the id {i}" for i in page.twice]
        for link in page.links + page.loads:
            if link.startswith("data:"):
                continue
            if re.match(r"[a-z]+:|//", link):
                if link in page.loads:
                    dead.append(f"{path}: {link} is loaded from elsewhere")
                continue
            target, _, anchor = link.partition("#")
            file = pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(target))) if target else path
            if not (site / file).is_file():
                dead.append(f"{path}: {link}: there is no {file}")
            elif anchor and file in pages and urllib.parse.unquote(anchor) not in pages[file].ids:
                dead.append(f"{path}: {link}: {file} has no element #{anchor}")
    style = (site / "site.css").read_text() if (site / "site.css").exists() else ""
    dead += [f"site.css: loads {u}" for u in re.findall(r"url\(([^)]*)\)|@import (.*)", style)]
    return dead


def blocks(text):
    """Lines of a Markdown file, each with whether it may be wrapped."""
    code = False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        fixed = code or fence or line.lstrip().startswith(("|", "#", "<")) or line.startswith("    ")
        code ^= fence
        yield line, not fixed


def too_long(root):
    return [f"{file}:{number}: {len(line)} columns"
            for file in markdown_files(root) if file != GENERATED
            for number, (line, may_wrap) in enumerate(blocks((root / file).read_text()), 1)
            if may_wrap and len(line) > COLUMNS and " " in line.strip()[:COLUMNS]]


def wrapped(text):
    """Paragraphs and list items filled to the column; code, tables and headings as they are."""
    out, words, first, rest = [], [], "", ""

    def flush():
        if not words:
            return
        line, empty = first, True
        for word in words:
            if not empty and len(line) + 1 + len(word) > COLUMNS:
                out.append(line)
                line, empty = rest, True
            line, empty = line + ("" if empty else " ") + word, False
        out.append(line)
        words.clear()

    for line, may_wrap in blocks(text):
        item = re.match(r"( *)(- |\d+\. )(?=\S)", line) if may_wrap else None
        if not may_wrap and not (words and line.startswith("    ") and rest):
            flush()
            out.append(line)
        elif not line.strip():
            flush()
            out.append("")
        elif item:
            flush()
            first, rest = item.group(0), " " * len(item.group(0))
            words += _atoms(line[item.end():])
        else:
            if not words:
                first = rest = re.match(r" *", line).group(0)
            words += _atoms(line)
    flush()
    return "\n".join(out)


def _atoms(line):
    """Words; a piece of inline code with spaces stays on one line."""
    return re.findall(r"(?:`[^`]*`|\S)+", line)


class Documentation(unittest.TestCase):
    def test_no_link_of_the_markdown_is_dead(self):
        self.assertEqual(dead_markdown_links(ROOT), [])

    def test_every_source_file_that_the_markdown_names_exists(self):
        self.assertEqual(missing_files(ROOT), [])

    def test_no_line_of_the_markdown_is_too_long(self):
        self.assertEqual(too_long(ROOT), [], "tests/docs/links_test.py --wrap wraps them")

    def test_no_link_of_the_site_is_dead(self):
        with tempfile.TemporaryDirectory() as folder:
            site = pathlib.Path(folder, "site")
            subprocess.run([ROOT / "docs" / "build", f"--out={site}"], check=True)
            self.assertEqual(dead_site_links(site), [])
            self.assertGreater(len(list(site.rglob("*.html"))), 100)
            index = (site / "search-index.js").read_text()
            for what in ("MonitoredTrainingSession", "MatMul", "When things fail"):
                self.assertIn(what, index)

    def test_a_wrong_argument_of_the_build_is_a_usage_error(self):
        for args in (["--no_such_flag"], ["extra"], [f"--out={ROOT / 'docs'}"]):
            result = subprocess.run([ROOT / "docs" / "build", *args], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2, result.stderr)
        result = subprocess.run([ROOT / "docs" / "build", "--help"], capture_output=True, text=True)
        self.assertEqual((result.returncode, "--out" in result.stdout), (0, True))


class ChecksFindFaults(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_markdown(self):
        self.write("a.md", "# A title: `x`\n[b](b.md) [here](#a-title-x) [far](docs/c.md#two-1) [web](https://example.org/x)\n`[no](link.md)`\n")
        self.write("b.md", "```\n[no](link.md)\n```\n")
        self.write("docs/c.md", "# Two\n## Two\n[up](../a.md)\n")
        self.assertEqual(dead_markdown_links(self.root), [])
        self.write("b.md", "[gone](gone.md)\n")
        self.write("docs/c.md", "# Two\n## Three\n[up](../a.md#b)\n")
        self.assertEqual(dead_markdown_links(self.root), [
            "a.md: docs/c.md#two-1: docs/c.md has no heading #two-1", "b.md: gone.md: there is no gone.md",
            "docs/c.md: ../a.md#b: a.md has no heading #b"])

    def test_names_of_files(self):
        self.write("a.md", "`b.h` `b/c.cc` `../b/*.cc` `not a file.h` `x = y.h`\n```\n`d.h`\n```\n")
        self.write("b/c.cc", "")
        self.write("b/b.h", "")
        self.assertEqual(missing_files(self.root), [])
        self.write("a.md", "`b.h` `c/c.cc`\n")
        self.assertEqual(missing_files(self.root), ["a.md: c/c.cc"])

    def test_site(self):
        self.write("a.html", '<a href="s/b.html#x">b</a><a href="https://example.org">web</a><link href="site.css">')
        self.write("s/b.html", '<p id="x"><a href="../a.html">a</a>')
        self.write("site.css", "")
        self.assertEqual(dead_site_links(self.root), [])
        self.write("s/b.html", '<p id="y"><a href="a.html">a</a><script src="https://example.org/x.js"></script>')
        self.assertEqual(len(dead_site_links(self.root)), 3)

    def test_width(self):
        self.write("a.md", "| " + "x " * 100 + "|\n```\n" + "x " * 100 + "\n```\n" + "word " * 20 + "\n")
        self.assertEqual(too_long(self.root), [])
        self.write("a.md", "- " + "word " * 40 + "\n  goes on `with a span of code that stays whole`\n\n" + "x" * 150 + "\n")
        self.assertEqual(len(too_long(self.root)), 1)
        self.write("a.md", wrapped((self.root / "a.md").read_text()))
        self.assertEqual(too_long(self.root), [])
        self.assertIn("\n  word", (self.root / "a.md").read_text())


if __name__ == "__main__":
    if sys.argv[1:] == ["--wrap"]:
        for file in markdown_files(ROOT):
            text = (ROOT / file).read_text()
            if file != GENERATED and wrapped(text) != text:
                (ROOT / file).write_text(wrapped(text))
                print(file)
    else:
        unittest.main()
