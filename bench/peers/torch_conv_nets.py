"""The convolutional cases for PyTorch: channels_last, eager and compiled, fused optimizers."""
import torch
from torch import nn

import common


class Block(nn.Module):
    def __init__(self, channels, filters, stride):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, filters, 3, stride, 1, bias=False), nn.BatchNorm2d(filters), nn.ReLU(),
            nn.Conv2d(filters, filters, 3, 1, 1, bias=False), nn.BatchNorm2d(filters))
        self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters))

    def forward(self, x):
        return torch.relu(self.inner(x) + self.shortcut(x))


class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
        for filters in (16, 32, 64):
            for i in range(3):
                layers.append(Block(channels, filters, 2 if i == 0 and filters > 16 else 1))
                channels = filters
        self.layers, self.last = nn.Sequential(*layers), nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.layers(x).mean((2, 3)))


def conv_mnist():
    return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 10))


def steps_per_second(args, shape, model, make_optimizer):
    torch.manual_seed(0)
    model = model.to(memory_format=torch.channels_last)
    optimizer = make_optimizer(model.parameters())

    def loss_of(x, labels):
        return nn.functional.cross_entropy(model(x), labels)

    if args.setting == "compiled":
        loss_of = torch.compile(loss_of)
    images, classes = common.images(shape)

    def step():
        # The same bytes, seen as [batch, channels, height, width] with channels last.
        x, labels = torch.from_numpy(images).permute(0, 3, 1, 2), torch.from_numpy(classes).long()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return common.rate(step, args.seconds, warm=4, chunk=1)


def run_resnet20(args):
    rate = steps_per_second(args, common.CIFAR, ResNet20(),
                            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True))
    common.emit(args, "resnet20", "images/s", rate * common.CIFAR[0])


def run_conv_mnist(args):
    rate = steps_per_second(args, common.MNIST, conv_mnist(), lambda p: torch.optim.SGD(p, lr=0.01, fused=True))
    common.emit(args, "conv_mnist", "steps/s", rate)
