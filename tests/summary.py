#!/usr/bin/env python3
"""Adds up what ./test or a stage of .ci/run ran: summary.py RESULTS [--seconds N].

Reads the GoogleTest reports (*.xml), the report of ctest (ctest.junit) and that of the fuzzers
(fuzz.txt, if there were any) in the folder RESULTS; names the cases that failed, which the logs of
long programs bury, and fails when there are such, or no tests at all.
"""
import argparse
import pathlib
import sys
import xml.etree.ElementTree as ET


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=0, help="how long it all took")
    parser.add_argument("--flaky", action="append", default=[], help="a test that passed when it was run once more")
    args = parser.parse_args()

    junit = args.results / "ctest.junit"
    if not junit.exists():
        sys.exit(f"summary.py: {junit} is missing: ctest did not run")
    suite = ET.parse(junit).getroot()
    programs = int(suite.get("tests"))
    # "program: case" or "program"; the program's report and ctest's still say that it failed.
    passed_later = {name for flaky in args.flaky for name in flaky.split(": ")}
    bad = [case.get("name") for case in suite.iter("testcase") if case.get("status") == "fail"]

    cases = skipped = 0
    for report in sorted(args.results.glob("*.xml")):
        root = ET.parse(report).getroot()
        cases += int(root.get("tests"))
        skipped += int(root.get("disabled", 0)) + sum(1 for c in root.iter("testcase") if c.get("result") == "skipped")
        bad += [f"{c.get('classname')}.{c.get('name')}" for c in root.iter("testcase") if c.find("failure") is not None]

    bad = [name for name in bad if name not in passed_later]

    fuzzers = []
    fuzz = args.results / "fuzz.txt"
    if fuzz.exists():
        for line in fuzz.read_text().splitlines():
            name, state, runs = line.split()
            fuzzers.append((name, int(runs)))
            if state != "ok":
                bad.append(f"{name} ({state})")

    counts = f"\n{programs} test programs with {cases} test cases ({skipped} skipped)"
    if fuzzers:
        counts += f", {len(fuzzers)} fuzzers with {sum(n for _, n in fuzzers):,} inputs"
    print(f"{counts}, in {args.seconds} s")
    total = programs + len(fuzzers)
    failed = min(total, len({b.split('.')[0] for b in bad})) if bad else 0
    for case in suite.iter("testcase"):
        if case.find("skipped") is not None:  # by its exit code (SKIP_RETURN_CODE); what it printed last says why
            said = (case.findtext("system-out") or "").strip().splitlines() or ["no reason was given"]
            print(f"  LEFT OUT {case.get('name')}: {said[-1]}")
    for name in args.flaky:
        print(f"  FLAKY  {name}")
    for name in bad:
        print(f"  FAILED {name}")
    print(f"{100 * (total - failed) // max(total, 1)}% tests passed, {failed} tests failed out of {total}")
    return 1 if bad or total == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
