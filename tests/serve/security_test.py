"""security_test.py MILLRACE CLUSTER_PROBE: who may use a server, and what for (docs/security.md)."""

import os
import sys
import unittest

import processes
from certificates import Authority
from processes import ServeTest, clean_environment

WORKER = "/job:worker/task:0"
OPEN = ("--cluster_spec=worker|0.0.0.0:0", "--job_name=worker")


class BeyondLoopbackTest(ServeTest):
    def local(self, server):
        """The same server, by a name that certificates have."""
        server.target = "grpc://localhost:%d" % server.port
        return server

    def test_a_server_without_tls_is_refused_and_says_what_to_type(self):
        for address in ("0.0.0.0:0", "10.0.0.7:2222", "node7:2222", "[::]:0"):
            result = self.millrace("serve", "--cluster_spec=worker|" + address, "--job_name=worker")
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(result.stdout, "")
            self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
            for words in (address, "anyone who can reach", "--tls_cert", "--tls_key", "--tls_ca", "--insecure", "MILLRACE_INSECURE=1", "millrace launch"):
                self.assertIn(words, result.stderr)

    def test_it_serves_when_told_to_be_insecure(self):
        for flags, env in ((["--insecure"], {}), ([], {"MILLRACE_INSECURE": "1"})):
            server = self.local(self.serve(*OPEN, *flags, env=clean_environment(**env)))
            self.assertIn("all interfaces", server.line)
            self.assertEqual(self.probe(server, "multiply", WORKER, WORKER).stdout, "15\n")
        result = self.millrace("serve", *OPEN, env=clean_environment(MILLRACE_INSECURE="0"))
        self.assertEqual(result.returncode, 2)

    def test_it_serves_with_tls(self):
        authority = Authority(self.folder, "authority")
        server = self.local(self.serve(*OPEN, *authority.flags("task")))
        self.assertIn("TLS", server.line)
        self.assertEqual(self.probe(server, "multiply", WORKER, WORKER, tls=authority.flags("client")).stdout, "15\n")
        result = self.millrace("serve", *OPEN, "--insecure", *authority.flags("task"))
        self.assertEqual(result.returncode, 2)
        self.assertIn("both TLS and --insecure", result.stderr)

    def test_graphs_have_no_files_without_a_file_root(self):
        path = os.path.join(self.folder, "file")
        with open(path, "w") as f:
            f.write("contents")
        authority = Authority(self.folder, "authority")
        tls, client = authority.flags("task"), authority.flags("client")
        for flags, asks in ((["--insecure"], ()), (tls, client)):
            server = self.local(self.serve(*OPEN, *flags))
            self.assertIn("no files (--file_root)", server.line)
            denied = self.probe(server, "read", path, tls=asks)
            self.assertIn("PERMISSION_DENIED", denied.stderr)
            self.assertIn("--file_root", denied.stderr)
            allowed = self.local(self.serve(*OPEN, *flags, "--file_root=" + self.folder))
            self.assertEqual(self.probe(allowed, "read", path, tls=asks).stdout, "contents\n")
            self.assertIn("PERMISSION_DENIED", self.probe(allowed, "read", "/etc/hostname", tls=asks).stderr)

    def test_roots_and_certificates_come_from_the_environment_too(self):
        path = os.path.join(self.folder, "file")
        with open(path, "w") as f:
            f.write("contents")
        authority = Authority(self.folder, "authority")
        credentials = os.path.join(self.folder, "credentials")
        os.mkdir(credentials)
        for flag, name in zip(authority.flags("task"), ("cert.pem", "key.pem", "ca.pem")):
            os.link(flag.split("=")[1], os.path.join(credentials, name))
        env = clean_environment(MILLRACE_TLS_DIR=credentials, MILLRACE_FILE_ROOT="/nowhere:" + self.folder)
        server = self.local(self.serve(*OPEN, env=env))
        self.assertIn("TLS", server.line)
        self.assertEqual(self.probe(server, "read", path, env=env).stdout, "contents\n")
        self.assertIn("PERMISSION_DENIED", self.probe(server, "read", "/etc/hostname", env=env).stderr)
        self.assertEqual(self.millrace("status", "--target", server.target, env=env).returncode, 0)
        self.assertEqual(self.probe(server, "read", path).returncode, 1)
        everything = self.local(self.serve(*OPEN, env=dict(env, MILLRACE_FILE_ROOT="/")))
        self.assertEqual(self.probe(everything, "read", path, env=env).stdout, "contents\n")
        broken = self.millrace("serve", *OPEN, env=clean_environment(MILLRACE_TLS_DIR="/no/such/folder"))
        self.assertEqual(broken.returncode, 2)
        self.assertIn("MILLRACE_TLS_DIR", broken.stderr)


class PlainClientTest(ServeTest):
    def test_the_log_says_what_a_client_without_tls_needs(self):
        server = self.alone(*Authority(self.folder, "authority").flags("task"))
        self.assertEqual(self.probe(server, "multiply", WORKER, WORKER).returncode, 1)
        self.assertRegex(server.error_text(), r"disconnected \S+, which does not use TLS .* --insecure")


class RoleTest(ServeTest):
    def test_a_client_with_a_clients_certificate_runs_graphs_and_asks_for_the_status(self):
        authority = Authority(self.folder, "authority")
        ps, worker = self.cluster(*authority.flags("task"))
        client = authority.flags("client", usage="clientAuth")
        self.assertEqual(self.probe(worker, "multiply", "/job:ps/task:0", WORKER, tls=client).stdout, "15\n")
        self.assertEqual(self.millrace("status", "--target", worker.target, *client).returncode, 0)

    def test_a_clients_certificate_does_not_serve(self):
        authority = Authority(self.folder, "authority")
        server = self.alone(*authority.flags("client", usage="clientAuth"))
        self.assertEqual(self.probe(server, "multiply", WORKER, WORKER, tls=authority.flags("task")).returncode, 1)


if __name__ == "__main__":
    processes.MILLRACE, processes.PROBE = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
