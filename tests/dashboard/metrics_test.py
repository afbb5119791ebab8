"""metrics_test.py MILLRACE CLUSTER_PROBE: /metrics as Prometheus' own parser reads it, and the Grafana file beside it."""

import json
import os
import re
import signal
import urllib.request

from dashboards import DashboardTest  # makes tests/launch importable
import jobs
from programs import STEPS
from prometheus_client.parser import text_string_to_metric_families

HERE = os.path.dirname(os.path.abspath(__file__))
GRAFANA = os.path.join(HERE, "..", "..", "deploy", "grafana", "millrace.json")


class MetricsTest(DashboardTest):
    def test_prometheus_reads_all_of_it(self):
        job, dashboard = self.job_with_dashboard("--ps", "1", "--workers", "2", "--", *self.program(STEPS))
        self.until_state(dashboard, lambda s: all("step" in t for t in s["tasks"].values()))
        request = urllib.request.Request("http://localhost:%d/metrics" % dashboard.port, headers={"Authorization": "Bearer " + dashboard.token})
        with urllib.request.urlopen(request, timeout=30) as answer:
            self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
            families = {family.name: family for family in text_string_to_metric_families(answer.read().decode())}
        steps = {(s.labels["job"], s.labels["task"]): s.value for s in families["millrace_steps"].samples}
        self.assertEqual(set(steps), {("ps", "0"), ("worker", "0"), ("worker", "1")})
        self.assertTrue(all(value > 0 for value in steps.values()))
        self.assertEqual(families["millrace_steps"].type, "counter")
        running = [s.value for s in families["millrace_tasks"].samples if s.labels["state"] == "running"]
        self.assertEqual(running, [3])
        for name, family in families.items():
            self.assertTrue(family.documentation, name)
            self.assertRegex(name, r"^(millrace|process)_[a-z_]+$")
            for sample in family.samples:
                # Labels have a fixed set of values, or are those of the tasks.
                self.assertLessEqual(set(sample.labels), {"job", "task"} if "task" in sample.labels else {"state"}, sample)
                self.assertEqual(sample.name.endswith("_total"), family.type == "counter", sample)
        job.process.send_signal(signal.SIGINT)
        job.end()

    def test_the_grafana_file_names_only_metrics_that_exist(self):
        source = os.path.join(HERE, "..", "..", "millrace", "dashboard", "metrics.cc")
        with open(source) as f:
            known = set(re.findall(r'"((?:millrace|process)_[a-z_]+)"', f.read()))
        with open(GRAFANA) as f:
            board = json.load(f)
        expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
        self.assertGreater(len(expressions), 8)
        for expression in expressions:
            used = set(re.findall(r"\b(?:millrace|process)_[a-z_]+", expression))
            self.assertTrue(used, expression)
            self.assertLessEqual(used, known, expression)
        self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]))


if __name__ == "__main__":
    jobs.main()
