#!/usr/bin/env python3
"""Seeds for the fuzzers from an archive of golden cases and from captured messages: seeds.py CASES.tar.xz MESSAGES.txt OUT.

Writes the small graphs of the cases to OUT/graph, the tensors of their expectations to OUT/tensor, the strings fed to parsers to
OUT/example, and the messages as codec_fuzz takes them to OUT/codec, each once. Does nothing when OUT is newer than the sources and
this program.
"""
import hashlib
import pathlib
import sys
import tarfile

MAX_BYTES = 4096
# In the order of codec_fuzz.
CODEC_TYPES = ("RunStepRequest", "RunStepResponse", "RunCallableRequest", "RunCallableResponse", "RunGraphRequest",
               "RunGraphResponse", "RecvTensorResponse")


# What browsers and others send to a dashboard.
HTTP_REQUESTS = (
    "GET / HTTP/1.1\nHost: localhost:41213\nCookie: c=value; other=1\nSec-Fetch-Site: none\n\n",
    "HEAD /output?task=worker%2F0 HTTP/1.0\nHost: [::1]:1\nAuthorization: Bearer token\nOrigin: http://[::1]:1\n\n",
    "GET /../etc/passwd HTTP/1.1\nHost: evil.example\nConnection: close\n\n",
    "POST /events HTTP/1.1\nHost: localhost\nContent-Length: 3\n\nabc",
)
# What launchers answer, and what they are asked.
NODE_LISTS = ("node1", "a,b[01,03-05],r[0-1]c[1-2]", "gpu[007-012,20]-ib", "2(x3),1", "4(x65536)")
JOB_REPORTS = (
    '{"pid": 7, "state": "running", "seconds": 1.5, "tasks": [{"task": "worker/0", "state": "running", "loss": "NaN", "step": 3}],'
    ' "events": [{"number": 1, "seconds": 0.5, "kind": "start", "task": "worker/0", "text": "runs"}],'
    ' "checkpoint": {"task": "worker/0", "step": 2, "age_seconds": 1}, "outputs": {"worker/0": "text"}, "credentials": {"key": "k"}}',
    "report 17",
    "output worker/0",
    "end",
)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def submessages(data, wanted):
    """The length-delimited fields numbered `wanted` of a serialized message."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        field, kind = tag >> 3, tag & 7
        if kind == 2:
            size, at = varint(data, at)
            if field == wanted:
                yield data[at:at + size]
            at += size
        elif kind == 0:
            _, at = varint(data, at)
        else:
            at += {1: 8, 5: 4}[kind]


def main():
    archive, messages, out = (pathlib.Path(arg) for arg in sys.argv[1:4])
    stamp = out / "stamp"
    sources = (archive, messages, pathlib.Path(__file__))
    if stamp.exists() and all(stamp.stat().st_mtime >= source.stat().st_mtime for source in sources):
        return
    for kind in ("graph", "tensor", "example", "codec", "request", "report", "node_list"):
        (out / kind).mkdir(parents=True, exist_ok=True)

    def keep(kind, data):
        if len(data) <= MAX_BYTES:
            (out / kind / hashlib.sha1(data).hexdigest()).write_bytes(data)

    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.endswith(".graph.pb"):
                keep("graph", tar.extractfile(member).read())
            elif ".expect" in member.name:
                for named in submessages(tar.extractfile(member).read(), 1):  # RunStepResponse.tensor
                    for tensor in submessages(named, 2):  # NamedTensorProto.tensor
                        keep("tensor", tensor)
            elif ".run" in member.name and "arse" in member.name:
                for named in submessages(tar.extractfile(member).read(), 2):  # RunStepRequest.feed
                    for tensor in submessages(named, 2):  # NamedTensorProto.tensor
                        for text in submessages(tensor, 8):  # TensorProto.string_val
                            keep("example", text)
    for line in messages.read_text().splitlines():
        _, kind, data = line.split()
        keep("codec", bytes([CODEC_TYPES.index(kind), 255]) + (b"" if data == "-" else bytes.fromhex(data)))
    for text in HTTP_REQUESTS:
        keep("request", text.replace("\n", "\r\n").encode())
    for text in JOB_REPORTS:
        keep("report", text.encode())
    for text in NODE_LISTS:
        keep("node_list", text.encode())
    stamp.touch()


if __name__ == "__main__":
    main()
