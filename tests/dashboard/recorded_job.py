"""A job of many tasks that are not there: this process answers the dashboard as their launcher would."""

import json
import os
import socket
import threading
import time


def resident(pid):
    with open("/proc/%d/smaps_rollup" % pid) as f:
        return {line.split(":")[0]: int(line.split()[1]) / 1e3 for line in f if line.startswith(("Rss", "Anonymous"))}


class RecordedJob(threading.Thread):
    """Answers a dashboard as the launcher of a job of so many tasks."""

    def __init__(self, tasks):
        super().__init__(daemon=True)
        self.tasks, self.began = tasks, time.monotonic()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0millrace-launch-%d-%d" % (os.getuid(), os.getpid()))
        self.listener.listen()
        self.held = []
        self.start()

    def report(self):
        now = time.monotonic() - self.began
        tasks = []
        for i in range(self.tasks):
            ps = i < self.tasks // 20
            task = {"task": "ps/%d" % i if ps else "worker/%d" % (i - self.tasks // 20), "state": "running", "host": "node%d" % (i // 8), "address": "",
                    "pid": 1000 + i, "restarts": 0, "seconds_in_state": now - 1, "phase": "training"}
            if not ps:
                task.update(step=int(now * 100 + i), loss=2.0 / (1 + now) + i * 1e-4, steps_per_second=100 + (i * 37 % 11) + now % 3)
            tasks.append(task)
        return json.dumps({"pid": os.getpid(), "command": "recorded", "state": "running", "seconds": now, "tasks": tasks, "events": []}).encode()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            if connection.recv(256).startswith(b"report"):
                connection.sendall(self.report())
                connection.close()
            else:
                self.held.append(connection)
