#!/usr/bin/env python3
"""An Estimator's job whose evaluator and chief are killed: mnist_estimator_test.py PROGRAM --millrace COMMAND --data_dir DIR.

Both are started again by the launcher. The other worker trains meanwhile; the chief goes on from the parameter server's
values, and the last checkpoint is evaluated. The evaluator dies between its first evaluation and the end of the exports
that follow: what is there at the end is whole.
"""
import argparse
import os
import re
import signal
import subprocess
import tempfile

STEPS = 4000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--data_dir", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mnist_estimator_test") as run:
        command = [args.millrace, "launch", "--ps", "1", "--workers", "2", "--side_job", "evaluator=1",
                   "--restart", "worker=on-failure:2", "--restart", "evaluator=on-failure:2", "--", args.program,
                   "--data_dir=" + args.data_dir, "--model_dir=" + run + "/model", "--max_steps=%d" % STEPS,
                   "--save_checkpoints_steps=200", "--min_accuracy=0.95"]
        pids, victims, output = {}, ["evaluator/0", "worker/0"], []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
            for line in job.stdout:
                output.append(line)
                if match := re.match(r"millrace: (\S+) is running: pid (\d+)", line):
                    pids[match.group(1)] = int(match.group(2))
                # The first evaluation: the training has begun, and has thousands of steps before it.
                while victims and re.match(r"\[evaluator/0\] .*evaluated ", line):
                    os.kill(pids[victims.pop(0)], signal.SIGKILL)
            code = job.wait()
        text = "".join(output)
        evaluated = [int(step) for step in re.findall(r"Test accuracy .* at step (\d+)", text)]
        assert code == 0, text
        assert not victims, text
        for victim in "evaluator/0", "worker/0":
            assert len(re.findall(r"millrace: %s is running" % victim, text)) == 2, text
        assert evaluated and evaluated[-1] >= STEPS, text
        exports = run + "/model/export"
        for name, most in ("latest", 2), ("best", 5):
            found = os.listdir(os.path.join(exports, name))
            assert 1 <= len(found) <= most and all(f.isdigit() for f in found), (name, found)
            for f in found:
                shown = subprocess.run([args.millrace, "saved_model", os.path.join(exports, name, f), "--inputs",
                                        "x=[[%s]]" % ", ".join(["0"] * 784)], capture_output=True, text=True)
                assert shown.returncode == 0 and "probabilities" in shown.stdout, shown.stderr
        print("the evaluator and the chief were killed; the last evaluation is of step %d" % evaluated[-1])


if __name__ == "__main__":
    main()
