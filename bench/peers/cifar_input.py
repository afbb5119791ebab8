"""The input pipeline of CIFAR-10 for a training: records of the binary files, shuffled, padded by 4, cropped at random, mirrored, scaled, in batches
of 128 on the given number of threads. Millrace's side is bench/input.cc."""
import tempfile

import common

BATCH = 128


def tensorflow(args, tf, tf1, config):
    """tf.data with what TensorFlow's own program for CIFAR-10 does; it is run and not fetched, which would copy."""

    def augmented(record):
        record = tf.io.decode_raw(record, tf.uint8)
        image = tf.cast(tf.transpose(tf.reshape(record[1:], [3, 32, 32]), [1, 2, 0]), tf.float32)
        image = tf.image.random_crop(tf.image.resize_with_crop_or_pad(image, 40, 40), [32, 32, 3])
        return tf.image.per_image_standardization(tf.image.random_flip_left_right(image)), tf.cast(record[0], tf.int32)

    with tempfile.TemporaryDirectory() as folder, tf1.Graph().as_default():
        dataset = tf.data.FixedLengthRecordDataset(common.cifar_files(folder), 3073).shuffle(50000).repeat()
        dataset = dataset.map(augmented, num_parallel_calls=args.threads).batch(BATCH, drop_remainder=True).prefetch(2)
        options = tf.data.Options()
        options.threading.private_threadpool_size = args.threads
        options.threading.max_intra_op_parallelism = 1
        options.deterministic = False
        step = tf.group(*tf1.data.make_one_shot_iterator(dataset.with_options(options)).get_next())
        with tf1.Session(config=config) as session:
            common.emit(args, "cifar_input", "images/s", BATCH * common.rate(session.make_callable(step), args.seconds))


def torch(args):
    """torchvision's transforms as its datasets call them: on PIL's images (v1) and on tensors (v2)."""
    import numpy as np
    import torch
    from PIL import Image
    from torchvision import transforms
    from torchvision.transforms import v2

    if args.setting != "eager":
        return
    mean, deviation = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
    classic = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize(mean, deviation)])
    new = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, deviation)])

    class Records(torch.utils.data.Dataset):
        """Holds all images in memory, as torchvision.datasets.CIFAR10."""

        def __init__(self, files, transform, pil):
            raw = np.concatenate([np.fromfile(path, np.uint8).reshape(-1, 3073) for path in files])
            planes = raw[:, 1:].reshape(-1, 3, 32, 32)
            self.images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1)) if pil else torch.from_numpy(planes.copy())
            self.labels, self.transform, self.pil = raw[:, 0].tolist(), transform, pil

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, i):
            return self.transform(Image.fromarray(self.images[i]) if self.pil else self.images[i]), self.labels[i]

    with tempfile.TemporaryDirectory() as folder:
        files = common.cifar_files(folder)
        for note, transform, pil in (("v1", classic, True), ("v2", new, False)):
            workers = args.threads if args.threads > 1 else 0
            loader = torch.utils.data.DataLoader(Records(files, transform, pil), BATCH, shuffle=True, num_workers=workers, drop_last=True)

            def batches():
                while True:
                    yield from loader

            endless = batches()
            common.emit(args, "cifar_input", "images/s", BATCH * common.rate(lambda: next(endless), args.seconds, warm=5, chunk=2), note=note)
