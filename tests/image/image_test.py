"""image_test.py BUILD: the image that deploy/image/build makes: its structure, and what runs in it alone."""

import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = ""


def can_unshare():
    return os.geteuid() == 0 and subprocess.run(["unshare", "--pid", "--fork", "--mount", "true"], capture_output=True).returncode == 0


class ImageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.image = os.path.join(cls.folder, "image.tar")
        cls.build = [sys.executable, os.path.join(HERE, "../../deploy/image/build"), "--build", BUILD, "--add", os.path.join(BUILD, "examples/mnist_replica")]
        subprocess.run([*cls.build, "--output", cls.image, "--name", "millrace:test"], check=True, capture_output=True)
        with tarfile.open(cls.image) as archive:
            cls.files = {entry.name: archive.extractfile(entry).read() for entry in archive}
        cls.root = os.path.join(cls.folder, "root")
        for blob in cls.manifest()["layers"]:
            path = os.path.join(cls.folder, "layer.tar.gz")
            with open(path, "wb") as f:
                f.write(cls.blob(blob))
            with tarfile.open(path) as layer:
                layer.extractall(cls.root, filter="fully_trusted") if hasattr(tarfile, "data_filter") else layer.extractall(cls.root)

    @classmethod
    def blob(cls, descriptor):
        return cls.files["blobs/sha256/" + descriptor["digest"].split(":")[1]]

    @classmethod
    def manifest(cls):
        return json.loads(cls.blob(json.loads(cls.files["index.json"])["manifests"][0]))

    def test_the_archive_is_an_oci_layout(self):
        self.assertEqual(json.loads(self.files["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        manifest = self.manifest()
        config = json.loads(self.blob(manifest["config"]))
        for descriptor in (json.loads(self.files["index.json"])["manifests"][0], manifest["config"], *manifest["layers"]):
            data = self.blob(descriptor)
            self.assertEqual(descriptor["digest"], "sha256:" + hashlib.sha256(data).hexdigest())
            self.assertEqual(descriptor["size"], len(data))
        self.assertEqual(config["rootfs"]["diff_ids"], ["sha256:" + hashlib.sha256(gzip.decompress(self.blob(layer))).hexdigest() for layer in manifest["layers"]])
        self.assertEqual(config["config"]["Entrypoint"], ["millrace"])
        self.assertEqual(config["config"]["User"], "65532:65532")

    def test_it_has_neither_a_shell_nor_headers_nor_set_user_programs(self):
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                self.assertFalse(name in ("sh", "bash") or name.endswith(".h"), path)
                self.assertFalse(os.lstat(path).st_mode & 0o6000, path)

    def test_the_same_inputs_give_the_same_bytes(self):
        again = os.path.join(self.folder, "again.tar")
        subprocess.run([*self.build, "--output", again, "--name", "millrace:test"], check=True, capture_output=True)
        with open(self.image, "rb") as a, open(again, "rb") as b:
            self.assertEqual(hashlib.sha256(a.read()).digest(), hashlib.sha256(b.read()).digest())

    def inside(self, *words, **kwargs):
        """Runs a program of the image as PID 1, with nothing but the image's files."""
        if not can_unshare():
            self.skipTest("needs root, for a process namespace and chroot")
        config = json.loads(self.blob(self.manifest()["config"]))["config"]
        environment = dict(variable.split("=", 1) for variable in config["Env"])
        environment["PATH"] += ":/usr/bin:/bin:/usr/sbin"  # for unshare and chroot, outside
        return subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "--mount", "chroot", "--userspec=65532:65532", self.root, *words],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, **kwargs)

    def test_the_command_and_the_program_have_all_their_libraries(self):
        for program in ("/usr/local/bin/millrace", "/app/mnist_replica"):
            out, _ = (process := self.inside(program, "--help")).communicate(timeout=60)
            self.assertEqual(process.returncode, 0, out)

    def test_as_pid_1_it_passes_signals_on_and_exits_as_its_child(self):
        server = self.inside("/usr/local/bin/millrace", "serve", "--cluster_spec=worker|localhost:0", "--job_name=worker")
        self.addCleanup(lambda: (server.kill(), server.communicate()))
        self.assertIn("serves at", server.stdout.readline())
        # `unshare` is the parent of PID 1 of the namespace.
        with open("/proc/%d/task/%d/children" % (server.pid, server.pid)) as f:
            init = int(f.read().split()[0])
        with open("/proc/%d/comm" % init) as f:
            self.assertEqual(f.read().strip(), "millrace-init")
        os.kill(init, signal.SIGTERM)
        out, _ = server.communicate(timeout=60)
        self.assertIn("ends (SIGTERM)", out)
        self.assertEqual(server.returncode, 0)
        code = self.inside("/usr/local/bin/millrace", "serve", "--no_such_flag")
        code.communicate(timeout=60)
        self.assertEqual(code.returncode, 2)

    def test_runc_runs_it_as_a_pod_does(self):
        """Read-only, without privileges, with DNS names off: a job of three processes that trains, and a notice to PID 1."""
        if os.geteuid() != 0 or shutil.which("runc") is None:
            self.skipTest("needs root and runc")
        bundle, state = os.path.join(self.folder, "bundle"), os.path.join(self.folder, "state")
        os.makedirs(bundle)
        subprocess.run(["runc", "spec", "--bundle", bundle], check=True)
        with open(os.path.join(bundle, "config.json")) as f:
            spec = json.load(f)
        config = json.loads(self.blob(self.manifest()["config"]))["config"]
        uid, gid = map(int, config["User"].split(":"))
        spec["root"] = {"path": self.root, "readonly": True}
        program = ["mnist_replica", "--data_dir=/data", "--train_steps=100000000", "--log_dir=/tmp/train", "--save_checkpoint_secs=600"]
        spec["process"].update(terminal=False, user={"uid": uid, "gid": gid}, env=config["Env"], cwd="/", rlimits=[], noNewPrivileges=True, capabilities={},
                               args=[*config["Entrypoint"], "launch", "--grace", "60", "--ps", "1", "--workers", "1", "--", *program])
        data = os.path.join(HERE, "../../examples/data/mnist")
        os.makedirs(os.path.join(self.root, "data"), exist_ok=True)
        spec["mounts"] += [{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
                           {"destination": "/data", "type": "bind", "source": os.path.realpath(data), "options": ["rbind", "ro"]}]
        with open(os.path.join(bundle, "config.json"), "w") as f:
            json.dump(spec, f)
        name = "millrace-test-%d" % os.getpid()
        container = subprocess.Popen(["runc", "--root", state, "run", "--bundle", bundle, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(lambda: (subprocess.run(["runc", "--root", state, "delete", "--force", name], capture_output=True), container.kill(), container.communicate()))
        said = ""
        while "(global step" not in said:
            line = container.stdout.readline()
            self.assertTrue(line, said)
            said += line
        subprocess.run(["runc", "--root", state, "kill", name, "TERM"], check=True)
        said += container.communicate(timeout=60)[0]
        self.assertEqual(container.returncode, 143, said)
        self.assertRegex(said, r"millrace: stopped by SIGTERM at step (\d+); model\.ckpt-\1 is whole\n$")

    def test_what_is_missing_is_named(self):
        result = subprocess.run([*self.build[:2], "--prefix", self.folder], capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("has no bin/millrace", result.stderr)
        result = subprocess.run([*self.build[:4], "--add", "no_such_file"], capture_output=True, text=True, cwd=self.folder)
        self.assertIn("--add no_such_file: no such file", result.stderr)


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
