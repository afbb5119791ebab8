"""A pretend API server of Kubernetes: one Job, which runs until `ended` names its condition, and one StatefulSet, which can be deleted."""

import http.server
import json
import os
import ssl
import subprocess
import threading


class ApiServer:
    """Serves over TLS until close. `requests` are (method, path, Authorization)."""
    token = "a token\n"

    def __init__(self, folder, listening, name=None):
        """Its files are in `folder`; it serves at the socket `listening`, which it then owns. The certificate is for that address, or for `name`."""
        self.address, self.port = listening.getsockname()[:2]
        self.ended, self.refuse, self.requests, self.deleted = None, 0, [], threading.Event()
        os.makedirs(folder, exist_ok=True)
        certificate, key = (os.path.join(folder, name) for name in ("cert.pem", "key.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", certificate,
                        "-days", "2", "-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:" + (name or self.address)], check=True, capture_output=True)
        with open(certificate) as f:
            self.authority = f.read()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server = http.server.ThreadingHTTPServer((self.address, self.port), self._handler(), bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = context.wrap_socket(listening, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def _handler(self):
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, code, body):
                self.send_response(code)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def do_GET(self):
                server.requests.append(("GET", self.path, self.headers["Authorization"]))
                conditions = [{"type": server.ended, "status": "True"}] if server.ended else []
                self.answer(200, {"kind": "Job", "status": {"conditions": conditions}})

            def do_DELETE(self):
                server.requests.append(("DELETE", self.path, self.headers["Authorization"]))
                if server.refuse:
                    server.refuse -= 1
                    return self.answer(503, {"kind": "Status"})
                self.answer(200, {"kind": "Status"})
                server.deleted.set()

            def log_message(self, *args):
                pass

        return Handler

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
