"""The repository's Markdown files: which there are, and the anchors that their headings get."""
import os
import pathlib
import re

_LEFT_OUT = {"build", "shared", "third_party", "node_modules"}


def markdown_files(root):
    """All Markdown files below `root`, relative to it; build trees and hidden folders are left out."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _LEFT_OUT)
        found += [pathlib.Path(folder, f).relative_to(root) for f in sorted(files) if f.endswith(".md")]
    return found


def slug(heading, taken):
    """The anchor of a heading, made as GitHub makes it; `taken` counts those of the page so far."""
    text = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
    number = taken.get(text, -1) + 1
    taken[text] = number
    return text if number == 0 else f"{text}-{number}"
