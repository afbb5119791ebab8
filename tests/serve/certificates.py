"""Certificates for one test, made by openssl."""

import os
import subprocess


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


class Authority:
    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.certificate = os.path.join(folder, name + ".pem")
        self.key = os.path.join(folder, name + ".key")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", "/CN=" + name, "-keyout", self.key, "-out", self.certificate)

    def flags(self, name, authority=None, usage=None):
        """--tls_cert, --tls_key and --tls_ca of a new certificate for localhost; `authority` is believed, this one by default.
        `usage` is its extended key usage: clientAuth for a client's."""
        key, request, certificate, extensions = (os.path.join(self.folder, name + end) for end in (".key", ".csr", ".pem", ".ext"))
        with open(extensions, "w") as f:
            f.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
            if usage:
                f.write("extendedKeyUsage=%s\n" % usage)
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=" + name, "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key, "-CAcreateserial", "-days", "2",
                "-extfile", extensions, "-out", certificate)
        return ["--tls_cert=" + certificate, "--tls_key=" + key, "--tls_ca=" + (authority or self).certificate]
