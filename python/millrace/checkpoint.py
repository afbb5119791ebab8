"""Checkpoints in TensorFlow's format, as NumPy arrays, without TensorFlow.

    import millrace.checkpoint as checkpoint

    values = checkpoint.load("train/model.ckpt-1000")     # a prefix, or a folder with a `checkpoint` file
    checkpoint.save("copy/model.ckpt", values)
"""

import ctypes
import os
import re
from typing import Dict, Iterator, Mapping, Optional, Tuple

import numpy as np

from millrace import _native

_STRING = 7
_BFLOAT16 = 14
# By the number of TensorFlow's type. Quantized numbers are those beneath them; bfloat16 needs ml_dtypes to be more than its bits.
_TYPES = {1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8, 8: np.complex64, 9: np.int64, 10: np.bool_,
          11: np.int8, 12: np.uint8, 13: np.int32, 15: np.int16, 16: np.uint16, 17: np.uint16, 18: np.complex128, 19: np.float16,
          22: np.uint32, 23: np.uint64}
_NUMBERS = {np.dtype(_TYPES[number]): number for number in (1, 2, 3, 4, 5, 6, 8, 9, 10, 17, 18, 19, 22, 23)}


def _bfloat16():
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    return np.dtype(ml_dtypes.bfloat16)


def _type_of(number, name):
    if number == _BFLOAT16:
        return _bfloat16()
    if number == _STRING:
        return np.dtype(object)
    if number not in _TYPES:
        raise _native.Error("UNIMPLEMENTED", "%s has a type that NumPy has not (%d)" % (name, number))
    return np.dtype(_TYPES[number])


def latest(directory: str) -> Optional[str]:
    """The prefix of the newest checkpoint that the folder's `checkpoint` file names; None if there is no such file."""
    try:
        with open(os.path.join(directory, "checkpoint"), encoding="utf-8") as f:
            found = re.search(r'^model_checkpoint_path:\s*"((?:[^"\\]|\\.)*)"', f.read(), re.MULTILINE)
    except FileNotFoundError:
        return None
    if not found:
        raise _native.Error("DATA_LOSS", "%s/checkpoint names no checkpoint" % directory)
    return os.path.join(directory, re.sub(r"\\(.)", r"\1", found.group(1)))


class Reader(Mapping):
    """A checkpoint as a dictionary of arrays by name; each is read, and compared with its checksum, when it is asked for."""

    def __init__(self, path: str):
        """`path` is a prefix ("model.ckpt-1000") or a folder, of which it is the newest checkpoint. Raises NOT_FOUND or DATA_LOSS."""
        path = os.fspath(path)
        if os.path.isdir(path):
            path, directory = latest(path), path
            if path is None:
                raise _native.Error("NOT_FOUND", "%s has no file `checkpoint`" % directory)
        self.prefix = path
        self._handle = _native.Handle("checkpoint_reader", "checkpoint_open", path.encode())
        self._tensors: Dict[str, Tuple[int, Tuple[int, ...]]] = {}
        visitor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int64))

        def visit(_, name, dtype, rank, dims):
            self._tensors[name.decode()] = (dtype, tuple(dims[i] for i in range(rank)))

        _native.call("checkpoint_list", self._handle.pointer, visitor(visit), None)

    def shape(self, name: str) -> Tuple[int, ...]:
        return self._entry(name)[1]

    def dtype(self, name: str) -> np.dtype:
        """Of strings it is `object`: their elements are `bytes`."""
        return _type_of(self._entry(name)[0], name)

    def __getitem__(self, name: str) -> np.ndarray:
        number, shape = self._entry(name)
        values = np.empty(shape, _type_of(number, name))
        if number == _STRING:
            strings = []
            visitor = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)
            _native.call("checkpoint_read_strings", self._handle.pointer, name.encode(),
                         visitor(lambda _, text, size: strings.append(ctypes.string_at(text, size))), None)
            values.reshape(-1)[:] = strings
        else:
            _native.call("checkpoint_read", self._handle.pointer, name.encode(), ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes))
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def _entry(self, name):
        if name not in self._tensors:
            raise KeyError("%s has no tensor %r" % (self.prefix, name))
        return self._tensors[name]


def load(path: str) -> Dict[str, np.ndarray]:
    """All tensors of a checkpoint."""
    return dict(Reader(path))


def save(prefix: str, values: Mapping[str, np.ndarray]) -> None:
    """Writes a checkpoint, whole or not at all. Strings are arrays of `bytes` or `str`; bfloat16 is that of ml_dtypes."""
    handle = _native.Handle("checkpoint_writer", "checkpoint_create", os.fspath(prefix).encode())
    for name, value in values.items():
        value = np.asarray(value)
        dims = (ctypes.c_int64 * value.ndim)(*value.shape)
        if value.dtype.kind in "OSU":
            _add_strings(handle, name, value, dims)
            continue
        number = _BFLOAT16 if value.dtype == _bfloat16() and value.dtype != np.uint16 else _NUMBERS.get(value.dtype.newbyteorder("="))
        if number is None:
            raise TypeError("%s has the type %s, which checkpoints have not" % (name, value.dtype))
        value = np.asarray(value.astype(value.dtype.newbyteorder("="), copy=False), order="C")
        _native.call("checkpoint_add", handle.pointer, name.encode(), ctypes.c_int(number), ctypes.c_int(value.ndim), dims,
                     ctypes.c_void_p(value.ctypes.data), ctypes.c_size_t(value.nbytes))
    _native.call("checkpoint_finish", handle.pointer)
    handle.close()


def _add_strings(handle, name, value, dims):
    strings = [text.encode() if isinstance(text, str) else text for text in value.reshape(-1).tolist()]
    for text in strings:
        if not isinstance(text, bytes):
            raise TypeError("%s has a %s among its strings" % (name, type(text).__name__))
    pointers = (ctypes.c_char_p * len(strings))(*strings)
    sizes = (ctypes.c_size_t * len(strings))(*map(len, strings))
    _native.call("checkpoint_add_strings", handle.pointer, name.encode(), ctypes.c_int(value.ndim), dims, pointers, sizes)
