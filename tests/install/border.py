#!/usr/bin/env python3
"""The border of the installed package: border.py INCLUDE SOURCE.

INCLUDE is where `cmake --install` put the headers. They must be exactly what millrace/millrace.h includes, directly or not;
none may be internal, and none may show a library to programs other than the standard one, Abseil and Protobuf. Prints what is
wrong, with the header that includes it, and fails then.
"""
import pathlib
import re
import sys

UMBRELLA = "millrace/millrace.h"
# Rooms and folders that programs know nothing of, whatever the list in cmake/MillraceInstall.cmake says.
INTERNAL = re.compile(
    r"millrace/((device|executor|io|launch|net|ops|runtime|task|tools)/"
    r"|cluster/(client|codec|master|sim|step|worker)/|graph/passes/|.*(_testing|_internal|_state)\.h$)")
EXCEPT = {"millrace/train/checkpoint/checkpoint_state.h",  # the file `checkpoint`, not the state of an object
          "millrace/runtime/run_identity.h"}  # a plain struct of RunOptions, which kernels see too
SHOWN = {"absl", "google", "millrace"}
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def closure(root):
    """Header -> the one that includes it (None for the umbrella), for all that the umbrella reaches; and faults."""
    by, faults, todo = {UMBRELLA: None}, [], [UMBRELLA]
    while todo:
        header = todo.pop()
        path = root / header
        if not path.is_file():
            faults.append(f"{header} is not installed, but {by[header]} includes it" if by[header] else f"{header} is not installed")
            continue
        for included in INCLUDE.findall(path.read_text()):
            library = included.split("/")[0]
            if "/" in included and library not in SHOWN:
                faults.append(f"{header} includes <{included}>: programs would need {library} too")
            if library == "millrace" and included not in by:
                by[included] = header
                todo.append(included)
    return by, faults


def way(by, header):
    chain = [header]
    while by[chain[-1]]:
        chain.append(by[chain[-1]])
    return ", which is included by ".join(chain[1:])


def faults(root):
    by, found = closure(root)
    installed = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    for header in sorted(installed):
        if header not in by:
            found.append(f"{header} is installed, but {UMBRELLA} does not reach it")
    for header in sorted(by):
        if INTERNAL.match(header) and header not in EXCEPT:
            found.append(f"{header} is internal, but is included by {way(by, header)}")
    return found, installed


def main():
    root, source = (pathlib.Path(arg).resolve() for arg in sys.argv[1:])
    found, installed = faults(root)
    print("\n".join(f"FAILED: {fault}" for fault in found) or
          f"{len(installed)} headers are public, of {len(list((source / 'millrace').rglob('*.h')))} in the source tree")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
