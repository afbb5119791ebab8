"""TensorBoard's event files, without TensorFlow.

    import millrace.events as events

    with events.Writer("logs") as writer:
        writer.scalar("loss", 0.25, step=100)
    for event in events.read("logs"):
        print(event.step, event.tag, event.value)
"""

import ctypes
import glob
import os
import struct
from typing import Any, Iterator, NamedTuple, Optional

import numpy as np

from millrace import _native


class Event(NamedTuple):
    """One value of a summary. `value` is a float, or an array for a tensor; None for other kinds, whose serialized Summary.Value is `raw`."""
    wall_time: float
    step: int
    tag: str
    value: Any
    raw: bytes


def read(path: str) -> Iterator[Event]:
    """The values in an event file, or in all event files of a folder in the order of their names. Raises DATA_LOSS for a damaged record; what a writer that
    still runs has not written yet is missing."""
    path = os.fspath(path)
    paths = sorted(glob.glob(os.path.join(glob.escape(path), "events.out.tfevents.*"))) if os.path.isdir(path) else [path]
    for file in paths:
        handle = _native.Handle("event_reader", "events_open", file.encode())
        more, data, size = ctypes.c_int(), ctypes.POINTER(ctypes.c_char)(), ctypes.c_size_t()
        while True:
            _native.call("events_next", handle.pointer, ctypes.byref(more), ctypes.byref(data), ctypes.byref(size))
            if not more.value:
                break
            yield from _values(ctypes.string_at(data, size.value))
        handle.close()


class Writer:
    """Writes an event file into a folder, which TensorBoard shows."""

    def __init__(self, directory: str, suffix: str = ""):
        self._handle = _native.Handle("event_writer", "events_create", os.fspath(directory).encode(), suffix.encode())
        self.path: str = _native.library().millrace_events_path(self._handle.pointer).decode()

    def scalar(self, tag: str, value: float, step: int) -> None:
        name = tag.encode()
        self.summary(_field(1, _field(1, name) + struct.pack("<Bf", 2 << 3 | 5, value)), step)

    def summary(self, summary: bytes, step: int) -> None:
        """Adds a serialized Summary, as TensorFlow's summary ops return it."""
        _native.call("events_add", self._handle.pointer, summary, ctypes.c_size_t(len(summary)), ctypes.c_int64(step))

    def flush(self) -> None:
        _native.call("events_flush", self._handle.pointer)

    def close(self) -> None:
        if self._handle is not None:
            handle, self._handle = self._handle, None
            _native.call("events_close", handle.pointer)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_):
        self.close()


def _varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes([number]))


def _field(number, data):
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _fields(data):
    """The fields of a protobuf message: numbers and values, which are ints or bytes."""
    at = 0

    def varint():
        nonlocal at
        number = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise _native.Error("DATA_LOSS", "an event is no valid message")
            number |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return number

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) if kind != 2 else varint()
            if size is None or at + size > len(data):
                raise _native.Error("DATA_LOSS", "an event is no valid message")
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def _values(event):
    wall_time, step, summary = 0.0, 0, None
    for number, value in _fields(event):
        if number == 1:
            wall_time = struct.unpack("<d", value)[0]
        elif number == 2:
            step = value - (1 << 64) if value >> 63 else value
        elif number == 5:
            summary = value
    for number, value in _fields(summary or b""):
        if number == 1:
            yield _event(wall_time, step, value)


def _event(wall_time, step, raw):
    tag, value = "", None
    for number, field in _fields(raw):
        if number == 1:
            tag = field.decode(errors="replace")
        elif number == 2:
            value = struct.unpack("<f", field)[0]
        elif number == 8:
            value = _tensor(field)
    return Event(wall_time, step, tag, value, raw)


_TYPES = {1: (np.float32, 5, "f"), 2: (np.float64, 6, "d"), 3: (np.int32, 7, None), 9: (np.int64, 10, None)}


def _tensor(proto) -> Optional[Any]:
    """A TensorProto of numbers: a float if it is a scalar, else an array; None for other types."""
    dtype, dims, content, typed = 0, [], b"", []
    for number, value in _fields(proto):
        if number == 1:
            dtype = value
        elif number == 2:
            dims = [dict(_fields(dim)).get(1, 0) for kind, dim in _fields(value) if kind == 2]
        elif number == 4:
            content = value
        elif dtype in _TYPES and number == _TYPES[dtype][1]:
            typed.append(value)
    if dtype not in _TYPES:
        return None
    numpy_type, _, code = _TYPES[dtype]
    if content:
        values = np.frombuffer(content, numpy_type)
    elif code is not None:
        values = np.frombuffer(b"".join(typed), numpy_type)
    else:
        return None
    count = int(np.prod(dims, dtype=np.int64))
    if len(values) not in (1, count):
        raise _native.Error("DATA_LOSS", "a tensor of %d values has %d" % (count, len(values)))
    values = np.broadcast_to(values, (count,)).reshape(dims)
    return float(values) if not dims else values
