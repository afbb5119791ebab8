#!/usr/bin/env python3
"""Runs a program of examples/cluster as a whole cluster on this machine, and checks that it learns.

    run_cluster.py build/release/examples/in_graph --serve build/release/bin/millrace --data_dir examples/data/mnist

Two parameter servers and two workers on ports that are free; all of them have ended when this does.  In between_graph worker 1 starts
first and must say what it waits for; in the others the tasks that only serve are `millrace serve`.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import threading


class Task:
    """A process of the cluster, with its output as it comes."""

    def __init__(self, name, argv, more_env=None):
        self.name, self.lines, self.changed = name, [], threading.Condition()
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != "TF_CONFIG"}
        env.update(more_env or {})
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, env=env)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip())
                self.changed.notify_all()
        with self.changed:
            self.lines.append(None)  # the end
            self.changed.notify_all()

    def wait_for(self, pattern, seconds=60):
        def found():
            return next((m for m in (re.search(pattern, line) for line in self.lines if line is not None) if m), None)

        with self.changed:
            self.changed.wait_for(lambda: found() or None in self.lines, seconds)
            match = found()
        assert match, "%s did not print '%s'" % (self.name, pattern)
        return match

    def finish(self, seconds=90):
        code = self.process.wait(seconds)
        self.reader.join()
        assert code == 0, "%s ended with %d" % (self.name, code)

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        self.process.stdout.close()


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    addresses = ["127.0.0.1:%d" % s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return addresses


def run(args, tasks):
    between = os.path.basename(args.program) == "between_graph"
    addresses = free_addresses(4)
    cluster = ["--ps_hosts=" + ",".join(addresses[:2]), "--worker_hosts=" + ",".join(addresses[2:])]

    def start(job, index, serve=False):
        flags = cluster + ["--job_name=" + job, "--task_index=%d" % index]
        command = [args.serve, "serve"] + flags if serve else [args.program, "--data_dir=" + args.data_dir, "--steps=%d" % args.steps] + flags
        tasks.append(Task("%s %d" % (job, index), command))
        tasks[-1].wait_for(" serves at ")
        return tasks[-1]

    for i in range(2):
        start("ps", i, serve=not between)
    second = start("worker", 1, serve=not between)
    if between:
        second.wait_for("Waiting for worker 0 to initialize .*dense/kernel")
    first = start("worker", 0)
    for client in [first, second] if between else [first]:
        accuracy = float(client.wait_for(r"Test accuracy ([0-9.]+) %").group(1))
        client.finish()
        print("%s: test accuracy %.2f %%" % (client.name, accuracy))
        assert accuracy >= 90, "%s has learned too little" % client.name
    for task in tasks:
        assert task in (first, second) or task.process.poll() is None, "%s ended by itself" % task.name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--serve", required=True)
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--steps", type=int, default=1000)  # with any share of them at either worker it is far beyond what is asked for
    args, tasks = parser.parse_args(), []
    try:
        run(args, tasks)
    except AssertionError as failure:
        for task in tasks:
            task.stop()
            print("--- %s\n%s" % (task.name, "\n".join(line for line in task.lines if line is not None)))
        sys.exit("FAILED: %s" % failure)
    finally:
        for task in tasks:
            task.stop()


if __name__ == "__main__":
    main()
