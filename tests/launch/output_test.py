"""output_test.py MILLRACE CLUSTER_PROBE: what a job prints, into pipes and on terminals."""

import os
import re
import signal

import jobs
from jobs import LaunchTest
from programs import STEPS, TALK
from screen import Screen


class OutputTest(LaunchTest):
    def test_stdout_and_stderr_stay_apart_and_lines_stay_whole(self):
        program = "import sys, time\nfor i in range(200):\n    sys.stdout.write('a' * 50); sys.stdout.flush(); sys.stdout.write('b' * 50 + '\\n')\nsys.stderr.write('bad\\n'); sys.stdout.write('end')"
        job = self.run_job("--workers", "4", "--", *self.program(program))
        lines = job.stdout.splitlines()
        self.assertEqual(len(lines), 4 * 201)
        for line in lines:
            self.assertRegex(line, r"^\[worker/\d\] (a{50}b{50}|end)$")
        self.assertEqual(job.stderr.count("] bad\n"), 4)
        self.assertNotIn("\033", job.stdout + job.stderr)

    def test_a_long_line_comes_in_pieces_and_a_flood_arrives_whole(self):
        job = self.run_job("--workers", "1", "--quiet", "--", *self.program("print('x' * 100000)\nfor i in range(100000): print(i)"))
        text = job.stdout
        self.assertEqual(text.count("x"), 100000)
        self.assertEqual([line for line in text.splitlines() if "x" not in line], ["[worker/0] %d" % i for i in range(100000)])
        self.assertEqual(job.stderr, "")

    def test_logs_keep_what_each_task_said(self):
        logs = os.path.join(self.folder, "logs", "new")
        self.run_job("--workers", "2", "--log_dir", logs, "--", *self.program(TALK + "sys.stderr.write('and more')"))
        for index in (0, 1):
            with open(os.path.join(logs, "worker-%d.log" % index)) as f:
                self.assertEqual(f.read(), "I am worker/%d\nand more" % index)

    def test_a_log_that_cannot_be_written_does_not_stop_the_job(self):
        logs = os.path.join(self.folder, "logs")
        os.mkdir(logs)
        os.symlink("/dev/full", os.path.join(logs, "worker-0.log"))
        job = self.run_job("--workers", "2", "--log_dir", logs, "--", "echo", "said")
        self.assertEqual(job.code, 0, job.stderr)
        self.assertIn("the log of worker/0 ends here: No space left on device", job.stderr)
        with open(os.path.join(logs, "worker-1.log")) as f:
            self.assertEqual(f.read(), "said\n")

    def test_a_log_on_a_stalled_disk_does_not_stop_supervision(self):
        logs = os.path.join(self.folder, "logs")
        os.mkdir(logs)
        path = os.path.join(logs, "worker-0.log")
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # it never reads, so that a write blocks once the pipe is full
        self.addCleanup(os.close, reader)
        job = self.launch("--workers", "1", "--log_dir", logs, "--", *self.program("import sys\nfor i in range(20000): print('x' * 99)\nsys.exit(7)"))
        self.assertEqual(job.end(60), 7, job.stderr)
        self.assertEqual(job.stdout.count("\n"), 20000)
        self.assertIn("the disk stalls", job.stderr)
        for pid in job.keepers("millrace-logs"):  # it still waits for the disk
            os.kill(pid, signal.SIGKILL)

    def test_colour_is_a_matter_of_taste(self):
        self.assertIn("\033[", self.run_job("--workers", "1", "--color", "always", "--", "echo", "x").stdout)
        self.assertNotIn("\033[", self.run_job("--workers", "1", "--", "echo", "x", env={"NO_COLOR": "1"}).stdout)

    def test_a_reader_that_goes_does_not_end_the_job(self):
        job = self.launch("--workers", "1", "--", "sh", "-c", "for i in $(seq 20000); do echo $i; done; touch done")
        job.wait_for("[worker/0] 1")
        job.streams = {}
        job.process.stdout.close()
        job.process.stderr.close()
        self.assertEqual(job.process.wait(30), 0)
        self.assertTrue(os.path.exists(os.path.join(self.folder, "done")))
        job.process.stdout = job.process.stderr = None

    def test_a_terminal_shows_a_line_for_each_task_below_their_output(self):
        # As rude to a terminal as programs are.
        program = STEPS.replace("100000", "60").replace("\n    time.sleep", """
    sys.stderr.write("\\r%d%%\\r%d%% done\\033[2J\\033[5A\\n" % (step, step)); sys.stderr.flush()
    time.sleep""")
        job = self.run_job("--workers", "2", "--", *self.program(program), terminal=(24, 100))
        self.assertEqual(job.code, 0, job.stdout)
        self.assertRegex(re.sub(r"\033\[[0-9;]*m", "", job.stdout), r"worker/0  running +\d+ s  step +\d+  loss \S+  \d+ steps/s")
        screen = Screen(24, 100)
        screen.feed(job.stdout)
        lines = screen.text()
        self.assertRegex(lines[-3], r"^worker/0  succeeded .* step 59  loss 0.01")
        self.assertRegex(lines[-2], r"^worker/1  succeeded .* step 59")
        self.assertRegex(lines[-1], r"^millrace: the job succeeded")
        # Every line of theirs once and whole, and no remains of status lines between them.
        wanted = ["[worker/%d] %s" % (i, text) for i in (0, 1) for step in range(1, 60) for text in ("step %d loss %.3f" % (step, 1.0 / step), "%d%% done" % step)]
        self.assertEqual(sorted(lines[:-3]), sorted(wanted))

    def test_status_lines_follow_the_size_of_the_terminal(self):
        job = self.launch("--workers", "30", "--", *self.program(STEPS), terminal=(30, 100)).wait_for("11 more tasks")
        before = len(job.out)
        jobs.set_size(job.master, 12, 40)
        job.wait_for("23 more tasks")
        block = job.stdout[job.stdout.rindex("\033[J"):]
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.end(20), 143)
        self.assertGreater(len(job.out), before)
        for line in re.sub(r"\033\[[0-9;]*[mJA]", "", block).splitlines():
            if line.startswith("worker/"):
                self.assertLess(len(line), 40, line)

    def test_ctrl_c_at_the_terminal_reaches_the_tasks_once(self):
        job = self.launch("--workers", "2", "--", *self.program(STEPS), terminal=(24, 100)).wait_for("step 20 ")
        os.write(job.master, b"\x03")
        self.assertEqual(job.end(10), 130)
        self.assertEqual(self.left(0), {})

    def test_no_colours_on_a_terminal_where_they_are_not_wanted(self):
        job = self.run_job("--workers", "1", "--", "echo", "x", terminal=(24, 80), env={"NO_COLOR": "1"})
        self.assertNotRegex(job.stdout, r"\033\[[0-9;]*m")


if __name__ == "__main__":
    jobs.main()
