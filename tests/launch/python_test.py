"""python_test.py MILLRACE CLUSTER_PROBE: `millrace launch --python`, without TensorFlow: a package of its name stands for it."""

import os
import shutil

import jobs
from jobs import LaunchTest

# What of TensorFlow the servers are replaced in; its public names come from this module.
SERVER_LIB = """
import sys
class Server:
    pass
"""
TELL = """
import os, sys
assert not any(name.split(".")[0] in ("tensorflow", "millrace") for name in sys.modules), "imported before the program did"
from tensorflow.python.training.server_lib import Server
print(sys.argv[1:], Server.__module__, os.environ.get("CUSTOMISED"))
import gc
assert gc.isenabled()
"""


class PythonTest(LaunchTest):
    def setUp(self):
        super().setUp()
        module = os.path.join(self.folder, "libraries", "tensorflow", "python", "training")
        os.makedirs(module)
        for package in (module, os.path.dirname(module), os.path.dirname(os.path.dirname(module))):
            open(os.path.join(package, "__init__.py"), "w").close()
        with open(os.path.join(module, "server_lib.py"), "w") as f:
            f.write(SERVER_LIB)
        self.libraries = os.path.join(self.folder, "libraries")
        self.env = {"PYTHONPATH": self.libraries, "PYTHONDONTWRITEBYTECODE": "1"}

    def lines(self, *words, **kwargs):
        job = self.run_job("--quiet", *words, env={**self.env, **kwargs})
        self.assertEqual(job.code, 0, job.stdout + job.stderr)
        return sorted(job.stdout.splitlines())

    def test_servers_are_millraces_in_every_task(self):
        lines = self.lines("--python", "--workers", "2", "--host_flags", "--", *self.program(TELL), "--mine")
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertIn("'--mine', '--worker_hosts=", line)
            self.assertIn("] millrace._tensorflow_server None", line)

    def test_without_the_flag_they_are_tensorflows(self):
        self.assertEqual(self.lines("--workers", "1", "--", *self.program(TELL)),
                         ["[worker/0] [] tensorflow.python.training.server_lib None"])

    def test_the_users_sitecustomize_runs_too_and_its_errors_are_its_own(self):
        path = os.path.join(self.libraries, "sitecustomize.py")
        with open(path, "w") as f:
            f.write("import os, sys\nos.environ['CUSTOMISED'] = 'by ' + os.path.basename(os.path.dirname(__file__))\n")
        self.assertEqual(self.lines("--python", "--workers", "1", "--", *self.program(TELL)),
                         ["[worker/0] [] millrace._tensorflow_server by libraries"])
        with open(path, "w") as f:
            f.write("import no_such_module\n")
        job = self.run_job("--python", "--workers", "1", "--", *self.program(TELL), env=self.env)
        self.assertIn("no_such_module", job.stderr)
        self.assertIn("millrace._tensorflow_server", job.stdout)

    def test_pythons_that_a_program_starts_load_it_too_unless_told_not_to(self):
        program = self.program("""
import os, subprocess, sys
for servers in ("1", ""):
    subprocess.run([sys.executable, sys.argv[1]], check=True, env={**os.environ, "MILLRACE_PYTHON_SERVERS": servers})
""", "starter.py")
        tell = self.program(TELL)[1]
        self.assertEqual(self.lines("--python", "--workers", "1", "--", *program, tell),
                         ["[worker/0] [] millrace._tensorflow_server None", "[worker/0] [] tensorflow.python.training.server_lib None"])

    def test_a_script_is_run_by_python(self):
        script = self.program("import os, sys; print(os.path.basename(sys.executable), sys.argv[1])")[1]
        self.assertIn("[worker/0] python3", self.lines("--python", "--workers", "1", "--", script, "x")[0])
        shim = os.path.join(self.folder, "my_python")
        with open(shim, "w") as f:
            f.write("#!/bin/sh\necho mine \"$2\"\n")
        os.chmod(shim, 0o755)
        self.assertEqual(self.lines("--python", "--workers", "1", "--", script, "x", MILLRACE_PYTHON=shim), ["[worker/0] mine x"])

    def test_given_python_path_follows(self):
        program = self.program("import os; print(os.environ['PYTHONPATH'].split(':')[1:])")
        self.assertEqual(self.lines("--python", "--workers", "1", "--env", "PYTHONPATH=/a:/b", "--", *program), ["[worker/0] ['/a', '/b']"])

    def test_programs_get_no_certificates(self):
        program = self.program("import os; print(repr(os.environ.get('MILLRACE_TLS_DIR')), os.environ['MILLRACE_INSECURE'])")
        self.assertEqual(self.lines("--python", "--workers", "1", "--", *program), ["[worker/0] '' 1"])

    def test_what_is_missing_is_named_before_anything_starts(self):
        alone = os.path.join(self.folder, "bin", "millrace")
        os.mkdir(os.path.dirname(alone))
        shutil.copy(jobs.MILLRACE, alone)
        job = self.job_of(alone)
        self.assertEqual(job.code, 2)
        self.assertIn("no Python package beside it", job.stderr)
        self.assertIn(os.path.join(self.folder, "launch_site"), job.stderr)
        self.assertIn("pip install", job.stderr)
        os.mkdir(os.path.join(self.folder, "launch_site"))
        open(os.path.join(self.folder, "launch_site", "sitecustomize.py"), "w").close()
        job = self.job_of(alone)
        self.assertEqual(job.code, 2)
        self.assertIn("there is no %s/lib/libmillrace_c.so" % self.folder, job.stderr)

    def job_of(self, millrace):
        job = jobs.Job([millrace, "launch", "--python", "--workers", "1", "--", "true"], self.mark, self.folder)
        job.code = job.end()
        job.process.stdout.close()
        job.process.stderr.close()
        return job

    def test_other_hosts_need_a_word(self):
        hosts = os.path.join(self.folder, "hosts")
        with open(hosts, "w") as f:
            f.write("one\n")
        job = self.run_job("--python", "--workers", "1", "--hosts", hosts, "--", "true")
        self.assertEqual(job.code, 2)
        self.assertIn("--insecure", job.stderr)


if __name__ == "__main__":
    jobs.main()
