#!/usr/bin/env python3
"""Checks that no room of millrace/ includes a header of a room that it may not use, and that none but base/ asks for the time of day
except for time stamps: headers.py BUILD.

The linker sees to the symbols (millrace_layer in cmake/MillraceBuild.cmake); what a header gives inline leaves none. BUILD is a
tree of Ninja, which knows from the compiler what each object included; BUILD/layers.txt says which rooms each room may use.
The #include lines are read too, since the compiler does not report a header that a precompiled one has brought already.
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
            match = re.match(r"\S*/millrace_(\w+?)(?:_light)?\.dir/\S*: #deps .*\(VALID\)", line)
            room = match.group(1) if match and match.group(1) in layers else None
        elif room:
            match = re.match(r".*[\s/](millrace/(\w+)/\S+\.h)$", line)
            if match and match.group(2) in layers and match.group(2) not in layers[room]:
                found.add(f"millrace/{room} may not use {match.group(1)}: it may use "
                          f"{' '.join(sorted(layers[room] - {room})) or 'no other room'}")
    return sorted(found)


def read_uses(text):
    """Room -> the rooms that it names, and itself."""
    return {room: {room, *uses.split()} for room, _, uses in (line.partition(":") for line in text.splitlines())}


def include_faults(uses, room, path, text):
    """What the #include lines of one file of `room` use beyond what the room names."""
    return [f"millrace/{room} may not use {match.group(1)}, which {path} includes: it may use "
            f"{' '.join(sorted(uses[room] - {room})) or 'no other room'}"
            for match in re.finditer(r'^#include "(millrace/(\w+)/\S+)"', text, re.M)
            if match.group(2) in uses and match.group(2) not in uses[room]]


def source_faults(uses, sources):
    """Of all files but the tests, which may use the whole library."""
    found = []
    for path in sorted(sources.rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu") or re.search(r"(_test|_fuzz|_main|_testing)\.(h|cc)$", path.name):
            continue
        relative = path.relative_to(sources)
        if relative.parts[0] in uses:
            found += include_faults(uses, relative.parts[0], f"millrace/{relative}", path.read_text())
    return found


# Where time stamps are made: files that outlive the process, and an op whose value is the time of day.
TIME_STAMPS = ("millrace/io/event_writer.h", "millrace/train/file_writer.h", "millrace/train/checkpoint/saver.h",
               "millrace/estimator/serving.h", "millrace/ops/control_flow/timestamp.cc", "millrace/dashboard/watcher.cc")
TIME_OF_DAY = re.compile(r"absl::Now\(|system_clock|gettimeofday|CLOCK_REALTIME|[^_\w.]time\((nullptr|NULL|0)\)|WallClock::Real\(")


def clock_faults(path, text):
    """The time of day may be set to anything at any moment, so only time stamps come from it (millrace/base/clock.h)."""
    if path.startswith("millrace/base/"):
        return []
    return [f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match.group().strip(' (')} is the time of day, which may jump: "
            "use Clock for durations; WallClock is for the time stamps that tests/layering/headers.py names"
            for match in TIME_OF_DAY.finditer(text)
            if not (match.group().startswith("WallClock") and path in TIME_STAMPS)]


def time_faults(root):
    found = []
    for path in sorted((root / "millrace").rglob("*")):
        if path.suffix in (".h", ".cc", ".cu"):
            found += clock_faults(str(path.relative_to(root)), path.read_text())
    return found


def main():
    build = pathlib.Path(sys.argv[1])
    layers = read_layers((build / "layers.txt").read_text())
    deps = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    if "millrace_base.dir" not in deps:
        sys.exit("FAILED: Ninja knows of no object of millrace/base: build first")
    uses = read_uses((build / "layers.txt").read_text())
    root = pathlib.Path(__file__).resolve().parents[2]
    found = faults(layers, deps) + source_faults(uses, root / "millrace") + time_faults(root)
    print("\n".join(f"FAILED: {fault}" for fault in found) or f"{len(layers)} rooms include only what they may use")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
