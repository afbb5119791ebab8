"""The MNIST images in batches, as the tutorials of TensorFlow 1 had them: read_data_sets(folder).train.next_batch(100)."""

import collections
import gzip
import os

import numpy as np

Datasets = collections.namedtuple("Datasets", ["train", "test"])


def _read_idx(path):
    with gzip.open(path, "rb") as f:
        data = f.read()
    rank = data[3]
    shape = np.frombuffer(data, ">i4", rank, offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


class DataSet:
    """Images of 784 numbers between 0 and 1, and their labels, one-hot."""

    def __init__(self, folder, name, seed):
        self._images = _read_idx(os.path.join(folder, name + "-images-idx3-ubyte.gz")).reshape(-1, 784)
        self._labels = np.eye(10, dtype=np.float32)[_read_idx(os.path.join(folder, name + "-labels-idx1-ubyte.gz"))]
        self._random = np.random.RandomState(seed)
        self._order, self._next = self._random.permutation(len(self._labels)), 0

    @property
    def images(self):
        return self._images * np.float32(1 / 255)

    @property
    def labels(self):
        return self._labels

    def next_batch(self, size):
        if self._next + size > len(self._order):
            self._order, self._next = self._random.permutation(len(self._labels)), 0
        rows = self._order[self._next:self._next + size]
        self._next += size
        return self._images[rows] * np.float32(1 / 255), self._labels[rows]


def read_data_sets(folder, seed=0):
    return Datasets(DataSet(folder, "train", seed), DataSet(folder, "t10k", seed))
