"""page_test.py MILLRACE CLUSTER_PROBE MNIST_REPLICA DATA: the page in a real Chromium, beside `millrace status --json`.

MILLRACE_SCREENSHOTS=DIR also leaves pictures of the page there.
"""

import json
import os
import signal
import sys
import unittest

import browser
from browser import Browser
from dashboards import DashboardTest  # makes tests/launch importable
import jobs
from programs import ROLES

MNIST, DATA = "", ""

TABLE = """Object.fromEntries([...document.querySelectorAll('#task_table tbody tr')].map(
  (row) => [row.dataset.key, Object.fromEntries([...row.children].map((cell) => [cell.dataset.column, cell.innerText]))]))"""


@unittest.skipUnless(browser.find(), "no Chromium: install chromium-headless-shell")
class PageTest(DashboardTest):
    def mnist(self, *words):
        return self.job_with_dashboard("--ps", "1", "--workers", "2", *words, "--", MNIST, "--data_dir=" + DATA, "--log_dir=logs",
                                       "--train_steps=100000000", "--save_checkpoint_secs=1")

    def page(self):
        page = Browser({jobs.MARK: self.mark})
        self.addCleanup(page.__exit__)
        page.resize(1400, 1000)
        return page

    def pictures(self, page, name):
        folder = os.environ.get("MILLRACE_SCREENSHOTS")
        if not folder:
            return
        for kind, size in (("desktop", (1400, 1000)), ("phone", (390, 844))):
            for dark in (False, True):
                page.resize(*size, dark=dark)
                page.until("document.documentElement.dataset.ready")
                page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
                page.screenshot(os.path.join(folder, "%s-%s-%s.png" % (name, kind, "dark" if dark else "light")))
        page.resize(1400, 1000)

    def test_each_panel_is_what_status_says(self):
        job, dashboard = self.mnist()
        with self.page() as page:
            page.open(dashboard.url)
            page.until("document.documentElement.dataset.ready")
            page.until("document.querySelectorAll('#links tbody tr').length >= 2 && document.querySelector('#bottleneck b') !== null")
            page.until("document.querySelector('#card_Checkpoint b').innerText !== '–'")
            page.until("document.querySelector('#output_text').innerText.length > 20")
            self.assertEqual(page.run("location.hash"), "", "the token stays in the address")
            launched = json.loads(self.status("--job", str(job.pid), "--json").stdout)["jobs"][0]
            address = next(task["address"] for task in launched["tasks"] if task["task"] == "worker/0")
            cluster = json.loads(self.status("--target", "grpc://" + address, "--rates", "1", "--json").stdout)
            for task in launched["tasks"]:
                if task["step"]:
                    page.until("Number(document.querySelector('#task_table tr[data-key=\"%s\"] [data-column=step]').innerText) >= %d" % (task["task"], task["step"]))
            table = page.run(TABLE)
            later = {task["task"]: task for task in json.loads(self.status("--job", str(job.pid), "--json").stdout)["jobs"][0]["tasks"]}
            self.assertEqual(list(table), [task["task"] for task in launched["tasks"]])
            for task in launched["tasks"]:
                shown = table[task["task"]]
                self.assertEqual(shown["state"], task["state"])
                self.assertEqual(shown["restarts"], str(task["restarts"]))
                if task["step"]:
                    # It trains on meanwhile.
                    self.assertGreaterEqual(int(shown["step"]), task["step"])
                    self.assertLessEqual(int(shown["step"]), later[task["task"]]["step"])
            by_name = {task["task"]: task for task in cluster["tasks"]}
            ps = by_name["/job:ps/replica:0/task:0"]
            shown = page.run("[...document.querySelectorAll('#variable_list tbody tr')].map((row) => row.children[0].textContent)")
            self.assertEqual(shown, [variable["name"] for variable in ps["variables"]])
            self.assertEqual(ps["variables"][0], {"name": "hidden/kernel", "dtype": "float", "shape": [784, 100], "bytes": 313600})
            self.assertEqual(ps["variable_bytes"], sum(variable["bytes"] for variable in ps["variables"]))
            self.assertEqual(page.run("document.querySelector('#variable_list summary span').innerText").split(" ")[0],
                             str(ps["variable_count"]))
            links = page.run("[...document.querySelectorAll('#links tbody tr')].map((row) => [row.children[0].innerText, row.children[1].innerText])")
            expected = [[worker, "ps/0"] for worker in ("worker/0", "worker/1")]
            for link in expected:
                self.assertIn(link, links)
            kinds = {"ps_cores", "ps_link", "host_cores", "workers", "balanced", "nothing_runs"}
            self.assertIn(cluster["bottleneck"]["kind"], kinds)
            self.assertIn("Bottleneck:", page.run("document.querySelector('#bottleneck').innerText"))
            self.assertGreaterEqual(page.run("document.querySelectorAll('#events li').length"), 4)
            self.assertIn("measured now", page.run("document.querySelector('#plan_table').innerText"))
            # A canvas that has been drawn on.
            for chart in ("speed", "loss"):
                self.assertTrue(page.run("[...document.getElementById('%s').getContext('2d').getImageData(0, 0, 600, 150).data].some(Boolean)" % chart))
            self.pictures(page, "mnist")
            self.assertLess(page.run("document.documentElement.scrollWidth"), 1401)
            page.resize(390, 844)
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 390, "a phone has to scroll sideways")
            hosts = {url.split("/")[2] for url in page.requested()}
            self.assertEqual(hosts, {"localhost:%d" % dashboard.port})
            self.assertEqual(page.complaints(), [])
        job.process.send_signal(signal.SIGINT)
        job.end()

    def test_a_stopped_worker_is_on_the_page_in_words(self):
        job, dashboard = self.mnist("--suspend_limit", "0", "--hang_after", "2")
        job.wait_for("worker/1 is running")
        with self.page() as page:
            page.open(dashboard.url)
            page.until("Number(document.querySelector('#card_Step b')?.innerText) > 100")
            pid = job.tasks()["worker/1"]
            os.kill(pid, signal.SIGSTOP)
            page.until("document.querySelector('#verdict').innerText.includes('worker/1 is suspended by SIGSTOP')")
            page.until("document.querySelector('#hang').innerText.includes('worker/1 is suspended by SIGSTOP')")
            page.until("document.querySelector('#task_table tr[data-key=\"worker/1\"] .pill').innerText === 'suspended'")
            self.pictures(page, "hang")
            os.kill(pid, signal.SIGCONT)
            page.until("document.querySelector('#verdict').hidden")
            job.process.send_signal(signal.SIGINT)
            job.end()
            self.assertEqual(page.complaints()[1:], [])

    def test_output_is_text_and_the_saved_page_shows_the_end(self):
        worker = ("print('<script>document.title=\"owned\"</script><img src=x onerror=alert(1)> \\033[31mred\\033[0m')\n"
                  "print('step 3 loss nan', flush=True)\ntime.sleep(1)\nsys.exit('<b>bold</b> reason')")
        job = self.run_job("--workers", "1", "--dashboard_save", "run.html", "--", *self.program(ROLES % worker))
        self.assertEqual(job.code, 1)
        with self.page() as page:
            page.open("file://" + os.path.join(self.folder, "run.html"))
            page.until("document.documentElement.dataset.ready")
            self.assertIn("(<b>bold</b> reason)", page.run("document.querySelector('#verdict').innerText"))
            text = page.until("document.querySelector('#output_text').innerText")
            self.assertIn('<script>document.title="owned"</script><img src=x onerror=alert(1)> red\n', text)
            self.assertNotIn("owned", page.run("document.title"))
            self.assertEqual(page.run("document.querySelectorAll('#output_text *, #verdict b').length"), 0)
            self.assertEqual(page.run(TABLE)["worker/0"]["loss"], "NaN")
            self.assertEqual([url for url in page.requested() if not url.startswith("file://")], [])
            self.pictures(page, "saved")
            self.assertEqual(page.complaints(), [])

    def test_the_keyboard_reaches_everything(self):
        job, dashboard = self.job_with_dashboard("--workers", "2", "--", *self.program(ROLES % "time.sleep(1000)"))
        with self.page() as page:
            page.open(dashboard.url)
            page.until("document.documentElement.dataset.ready")
            def press(key):
                page.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key if len(key) == 1 else "")
                page.call("Input.dispatchKeyEvent", type="keyUp", key=key)
            press("/")
            page.until("document.activeElement.id === 'filter'")
            page.call("Input.insertText", text="worker/1")
            page.until("document.querySelectorAll('#task_table tbody tr').length === 1")
            page.run("document.activeElement.blur()")
            press("o")
            page.until("document.activeElement.id === 'output_task'")
            page.run("document.activeElement.blur()")
            press("t")
            page.until("document.documentElement.dataset.theme === 'dark'")
        job.process.send_signal(signal.SIGINT)
        job.end()


if __name__ == "__main__":
    MNIST, DATA = map(os.path.abspath, sys.argv[3:5])
    del sys.argv[3:5]
    jobs.main()
