"""An ssh server on loopback with keys and a configuration of its own, as an ordinary process."""

import fcntl
import os
import shutil
import socket
import subprocess
import time
import unittest

from jobs import MARK


def find_sshd():
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


class PrivilegeSeparationFolder:
    """/run/sshd, without which sshd does not start as root. Test programs that run at once share it: each holds a shared
    lock while it needs the folder, and the last one removes it if a test made it."""

    PATH = "/run/sshd"
    MARK = "/run/sshd/made_by_a_test"

    def __init__(self):
        self.lock = os.open("/run", os.O_RDONLY)
        fcntl.flock(self.lock, fcntl.LOCK_SH)
        try:
            os.mkdir(self.PATH, mode=0o755)
        except FileExistsError:
            return
        open(self.MARK, "w").close()

    def end(self):
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(self.MARK):
                os.remove(self.MARK)
                os.rmdir(self.PATH)
        except BlockingIOError:
            pass  # another test program uses it
        finally:
            os.close(self.lock)


class SshServer:
    def __init__(self, folder, accept_env):
        self.folder = folder
        for name in ("host_key", "client_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)], check=True)
        shutil.copy(self.path("client_key.pub"), self.path("authorized_keys"))
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        with open(self.path("sshd_config"), "w") as f:
            f.write("Port %d\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
                    "PasswordAuthentication no\nKbdInteractiveAuthentication no\nAcceptEnv %s\nMaxStartups 100\nPrintMotd no\n"
                    % (self.port, self.path("host_key"), self.path("authorized_keys"), accept_env))
        self.separation = PrivilegeSeparationFolder() if os.getuid() == 0 else None
        self.log = open(self.path("sshd.log"), "w")
        self.process = subprocess.Popen([find_sshd(), "-D", "-e", "-f", self.path("sshd_config")], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env={"PATH": os.environ["PATH"]})
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.end()
                    raise AssertionError("sshd does not listen: " + self.log_text())
                time.sleep(0.02)

    def path(self, name):
        return os.path.join(self.folder, name)

    def log_text(self):
        with open(self.path("sshd.log")) as f:
            return f.read()

    def command(self, send_env, key="client_key"):
        """The value of --ssh."""
        return ("ssh -F none -p %d -i %s -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=%s -o LogLevel=ERROR -o SendEnv=%s"
                % (self.port, self.path(key), self.path("known_hosts"), send_env))

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        if self.separation:
            self.separation.end()


@unittest.skipUnless(find_sshd(), "there is no sshd here (Debian: openssh-server)")
class OverSsh:
    """For a LaunchTest: jobs over ssh, on a server of the test's own."""

    def setUp(self):
        super().setUp()
        os.mkdir(os.path.join(self.folder, "ssh"))
        self.server = SshServer(os.path.join(self.folder, "ssh"), MARK)
        self.addCleanup(self.server.end)
        self.addCleanup(self.check_nothing_left)  # before the server ends

    def host_words(self, hosts, key="client_key"):
        """The flags of a job on these hosts, lines of a hosts file."""
        with open(os.path.join(self.folder, "hosts"), "w") as f:
            f.write(hosts)
        return ["--hosts", "hosts", "--ssh", self.server.command(MARK, key)]
