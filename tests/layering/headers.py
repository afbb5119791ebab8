#!/usr/bin/env python3
"""Checks that no room of millrace/ includes a header of a room that it may not use: headers.py BUILD.

The linker sees to the symbols (millrace_layer in cmake/MillraceBuild.cmake); what a header gives inline leaves none. BUILD is a
tree of Ninja, which knows from the compiler what each object included; BUILD/layers.txt says which rooms each room may use.
"""
import pathlib
import re
import subprocess
import sys


def read_layers(text):
    """Room -> the rooms whose headers it may see: those it uses, what they use, and itself."""
    seen = {}
    for line in text.splitlines():
        room, _, uses = line.partition(":")
        seen[room] = {room}.union(*(seen[used] for used in uses.split()))
    return seen


def faults(layers, deps):
    """`deps` is what `ninja -t deps` prints: an object, then its headers, indented."""
    found, room = set(), None
    for line in deps.splitlines():
        if not line.startswith(" "):
            match = re.match(r"\S*/millrace_(\w+)\.dir/\S*: #deps .*\(VALID\)", line)
            room = match.group(1) if match and match.group(1) in layers else None
        elif room:
            match = re.match(r".*[\s/](millrace/(\w+)/\S+\.h)$", line)
            if match and match.group(2) in layers and match.group(2) not in layers[room]:
                found.add(f"millrace/{room} may not use {match.group(1)}: it may use "
                          f"{' '.join(sorted(layers[room] - {room})) or 'no other room'}")
    return sorted(found)


def main():
    build = pathlib.Path(sys.argv[1])
    layers = read_layers((build / "layers.txt").read_text())
    deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    if "millrace_base.dir" not in deps:
        sys.exit("FAILED: Ninja knows of no object of millrace/base: build first")
    found = faults(layers, deps)
    print("\n".join(f"FAILED: {fault}" for fault in found) or f"{len(layers)} rooms include only what they may use")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
