#!/usr/bin/env python3
"""Checks that every folder of millrace/ includes only itself and folders before it: check.py ROOT.

The order is the list of rooms in ROOT/millrace/CMakeLists.txt, and nowhere else. Tests and fuzzers
may use everything. Prints each offending include as FILE:LINE and fails when there is one.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]millrace/([\w/.]+)[">]')


def rooms(root):
    text = (root / "millrace" / "CMakeLists.txt").read_text()
    found = re.search(r"foreach\(room ([^)]*)\)", text)
    if not found:
        sys.exit(f"{root}/millrace/CMakeLists.txt has no foreach(room ...)")
    return found.group(1).split()


def faults(root):
    order = rooms(root)
    rank = {room: i for i, room in enumerate(order)}
    # Headers right in millrace/ are the front door, and stand where the last room does.
    last = len(order) - 1
    found = []
    for path in sorted((root / "millrace").rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu") or re.search(r"(_(test|fuzz)\.cc|_testing\.h)$", path.name):
            continue
        parts = path.relative_to(root / "millrace").parts
        room = parts[0] if len(parts) > 1 else None
        if room is not None and room not in rank:
            found.append(f"{path}: millrace/{room} is not in the list of rooms in millrace/CMakeLists.txt")
            continue
        mine = rank[room] if room else last
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1).split("/")
            other = target[0] if len(target) > 1 else None
            if (rank.get(other, last) if other else last) > mine or (other is None and room is not None and mine < last):
                found.append(f"{path}:{number}: {room or 'millrace'} may not use {match.group(1)}: "
                             f"{other or 'the front door'} comes after it")
    return found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = faults(root)
    print("\n".join(found) or f"the includes follow the order: {' '.join(rooms(root))}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
