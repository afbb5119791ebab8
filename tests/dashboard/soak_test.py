#!/usr/bin/env python3
"""The dashboard for long: soak_test.py MILLRACE CLUSTER_PROBE [unittest's arguments]. ./test --soak runs it; MILLRACE_SOAK_MINUTES (10) says how long.

A page of 1,000 tasks that all move all the time, in a real Chromium, and what Prometheus itself scrapes, where it is installed.
"""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest
import urllib.parse
import urllib.request

import browser
from dashboards import DashboardTest  # makes tests/launch importable
import jobs
from programs import STEPS
from recorded_job import RecordedJob, resident

TASKS = 1000
MINUTES = float(os.environ.get("MILLRACE_SOAK_MINUTES", "10"))


@unittest.skipUnless(browser.find(), "no Chromium: install chromium-headless-shell")
class ThousandTasksTest(DashboardTest):
    def test_neither_the_dashboard_nor_its_page_grows(self):
        RecordedJob(TASKS)
        dashboard = self.dashboard("--job", str(os.getpid()))
        page = browser.Browser({jobs.MARK: self.mark})
        self.addCleanup(page.__exit__)

        def heap():
            page.call("HeapProfiler.collectGarbage")
            return page.call("Runtime.getHeapUsage")["usedSize"] / 1e6

        def megabytes():
            # Who is looked at just then holds more: the least of some looks.
            looks = []
            for _ in range(10):
                looks.append((resident(dashboard.process.pid)["Anonymous"], heap()))
                time.sleep(1)
            return [min(values) for values in zip(*looks)]
        with page:
            page.open(dashboard.url)
            page.until("document.querySelectorAll('#task_table tbody tr').length > 0 && document.documentElement.dataset.ready")
            end = time.monotonic() + 60 * MINUTES
            time.sleep(60 * MINUTES / 5)
            before = megabytes()
            step = int(page.run("document.querySelector('#card_Step b').innerText"))
            while time.monotonic() < end:
                page.messages.clear()  # what it has asked for
                time.sleep(1)
            after = megabytes()
            print("MB of the dashboard and of its page's scripts: %.1f and %.1f after a fifth of the time, %.1f and %.1f at the end" % (*before, *after), flush=True)
            for was, now in zip(before, after):
                self.assertLess(now, 1.25 * was + 2)
            self.assertGreater(int(page.run("document.querySelector('#card_Step b').innerText")), step, "the page stands still")
            self.assertEqual(page.complaints(), [])


@unittest.skipUnless(shutil.which("prometheus"), "no Prometheus: install prometheus")
class PrometheusTest(DashboardTest):
    def ask(self, port, query):
        with urllib.request.urlopen("http://127.0.0.1:%d/api/v1/query?%s" % (port, urllib.parse.urlencode({"query": query})), timeout=10) as answer:
            return json.load(answer)["data"]["result"]

    def test_it_scrapes_a_job(self):
        job, dashboard = self.job_with_dashboard("--ps", "1", "--workers", "2", "--", *self.program(STEPS))
        with jobs.free_port() as port:
            config = {"global": {"scrape_interval": "1s"},
                      "scrape_configs": [{"job_name": "millrace", "honor_labels": True, "authorization": {"credentials": dashboard.token},
                                          "static_configs": [{"targets": ["localhost:%d" % dashboard.port]}]}]}
        with open(os.path.join(self.folder, "prometheus.yml"), "w") as f:
            json.dump(config, f)  # which is YAML too
        log = open(os.path.join(self.folder, "log"), "w+")
        self.addCleanup(log.close)
        process = subprocess.Popen([shutil.which("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:%d" % port],
                                   cwd=self.folder, stdout=log, stderr=log, env={**os.environ, jobs.MARK: self.mark})
        self.addCleanup(lambda: (process.kill(), process.wait()))

        def steps():
            try:
                return {sample["metric"]["task"]: float(sample["value"][1]) for sample in self.ask(port, "rate(millrace_steps_total{job=\"worker\"}[10s]) > 0")}
            except OSError:
                return {}
        self.until(lambda: set(steps()) == {"0", "1"}, 60)
        self.assertEqual([sample["value"][1] for sample in self.ask(port, "up")], ["1"])
        self.assertEqual([sample["value"][1] for sample in self.ask(port, "millrace_tasks{state=\"running\"}")], ["3"])
        job.process.send_signal(signal.SIGINT)
        job.end()


if __name__ == "__main__":
    jobs.main()
