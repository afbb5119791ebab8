#!/usr/bin/env python3
"""PyTorch, eager and compiled (settings `eager` and `compiled`), with its fused optimizers."""
import chains
import cifar_input
import common
import sequence_nets

CASES = ("chain", "mlp_sgd", "mlp_adam", "mlp_large", "conv_mnist", "resnet20", "lstm", "transformer", "cifar_input", *chains.SIZES)


def chain(args):
    x = torch.tensor(0.001)

    def call():
        y = x
        for _ in range(1000):
            y = y + x
        return y

    assert abs(call().item() - 1.001) < 1e-3
    with torch.no_grad():
        common.emit(args, "chain", "us", common.median_seconds(call, args.seconds, warm=3) * 1e6)


def mlp(args, case, sizes, rows, make_optimizer):
    before = common.rss_mb()
    layers = []
    for i, (w, b) in enumerate(common.initial_weights(sizes)):
        linear = torch.nn.Linear(*w.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(w.T.copy()))
            linear.bias.copy_(torch.from_numpy(b))
        layers += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = make_optimizer(model.parameters())

    def loss_of(x, labels):
        return torch.nn.functional.cross_entropy(model(x), labels)

    if args.setting == "compiled":
        loss_of = torch.compile(loss_of)
    features, classes = common.batch(sizes, rows)

    def step():
        x, labels = torch.from_numpy(features), torch.from_numpy(classes).long()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    value = common.rate(step, args.seconds)
    more = dict(peak_mb=round(common.peak_mb() - before, 1)) if case == "mlp_large" else {}
    common.emit(args, case, "steps/s", value, **more)


if __name__ == "__main__":
    arguments = common.parse("torch", CASES, ("eager", "compiled"))
    import torch
    torch.set_num_threads(arguments.threads)
    RUN = {
        "chain": chain,
        "mlp_sgd": lambda a: mlp(a, "mlp_sgd", common.MLP_SMALL, common.BATCH_SMALL, lambda p: torch.optim.SGD(p, lr=0.01, fused=True)),
        "mlp_adam": lambda a: mlp(a, "mlp_adam", common.MLP_SMALL, common.BATCH_SMALL, lambda p: torch.optim.Adam(p, lr=0.001, fused=True)),
        "mlp_large": lambda a: mlp(a, "mlp_large", common.MLP_LARGE, common.BATCH_LARGE, lambda p: torch.optim.SGD(p, lr=0.01, fused=True)),
    }
    import torch_conv_nets as conv_nets
    RUN.update(conv_mnist=conv_nets.run_conv_mnist, resnet20=conv_nets.run_resnet20, cifar_input=cifar_input.torch)
    for net in ("lstm", "transformer"):
        RUN[net] = lambda a, net=net: sequence_nets.torch(a, net)
    for size in chains.SIZES:
        RUN[size] = lambda a, size=size: chains.torch(a, size)
    for name in arguments.cases:
        RUN[name](arguments)
