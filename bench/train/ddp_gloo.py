#!/usr/bin/python3
"""Step times of PyTorch's DistributedDataParallel on Gloo: the peer of pliant_train, with the same models.

Prints one JSON line. A step is zero_grad, forward, backward (with the reduction in it) and the optimizer's update; its
time is the maximum over ranks. With --no-reduce the same replicas run side by side and never exchange a byte after
their common start: the difference between the two is the communication that compute did not hide.
"""

import argparse
import json
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

POOL = 16  # different batches, in turn: more than the caches hold, few enough to be made before the clock starts


class Cnn(nn.Sequential):
    """1x28x28. 421,642 parameters."""
    inputs = (1, 28, 28)

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10))


class BasicBlock(nn.Module):
    def __init__(self, fan_in, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride != 1 or fan_in != width:
            self.shortcut = nn.Sequential(nn.Conv2d(fan_in, width, 1, stride=stride, bias=False),
                                          nn.BatchNorm2d(width))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class Resnet(nn.Sequential):
    """1x28x28. Three stages of two basic blocks, 16, 32 and 64 wide. 174,970 parameters in 47 tensors."""
    inputs = (1, 28, 28)

    def __init__(self):
        layers = [nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        fan_in = 16
        for width, stride in ((16, 1), (32, 2), (64, 2)):
            layers += [BasicBlock(fan_in, width, stride), BasicBlock(width, width, 1)]
            fan_in = width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Mlp(nn.Sequential):
    """784 -> 4096 -> 4096 -> 1216 -> 10. 24,990,794 parameters: much to send, little to compute."""
    inputs = (784,)

    def __init__(self):
        super().__init__(
            nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Linear(4096, 1216), nn.ReLU(), nn.Linear(1216, 10))


MODELS = {"cnn": Cnn, "resnet": Resnet, "mlp": Mlp}


def replicate(model, args):
    if not args.reduce:
        return model
    # Gradients as views of the buckets save a copy each way; a static graph lets DDP skip its search for unused
    # parameters. Buffers follow rank 0 by default, which only costs where there are any (resnet).
    return DistributedDataParallel(model, bucket_cap_mb=args.bucket_mb, gradient_as_bucket_view=True,
                                   static_graph=args.static_graph)


def batches(model, batch, rank):
    generator = torch.Generator().manual_seed(1000 + rank)
    return [(torch.randn(batch, *model.inputs, generator=generator),
             torch.randint(10, (batch,), generator=generator)) for _ in range(POOL)]


def train(model, pool, args):
    """Milliseconds of every step after the warm-up."""
    optimizer = torch.optim.SGD(model.parameters(), lr=args.rate, momentum=0.9, foreach=args.foreach)
    criterion = nn.CrossEntropyLoss()
    times = []
    dist.barrier()
    for step in range(args.warmup + args.steps):
        images, labels = pool[step % POOL]
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=args.set_to_none)
        criterion(model(images), labels).backward()
        optimizer.step()
        times.append((time.perf_counter() - start) * 1e3)
    return times[args.warmup:]


def same_everywhere(model):
    """Whether all ranks hold the same parameters, bit for bit."""
    mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    first = mine.clone()
    dist.broadcast(first, src=0)
    equal = torch.tensor([int(torch.equal(mine, first) and bool(torch.isfinite(mine).all()))])
    dist.all_reduce(equal, op=dist.ReduceOp.MIN)
    return bool(equal.item())


def result(args, ranks, times):
    slowest = [max(of_step) for of_step in zip(*times)]
    return {"system": "ddp-gloo", "model": args.model, "batch": args.batch, "ranks": ranks, "threads": args.threads,
            "reduce": args.reduce, "p50_ms": round(statistics.median(slowest), 4), "min_ms": round(min(slowest), 4),
            "mean_ms": round(statistics.fmean(slowest), 4), "steps": args.steps, "version": torch.__version__}


def rank_main(rank, ranks, port, args):
    torch.set_num_threads(args.threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(7)  # the same weights on every rank, with and without DDP
    plain = MODELS[args.model]()
    model = replicate(plain, args)
    times = torch.tensor(train(model, batches(plain, args.batch, rank), args), dtype=torch.float64)
    gathered = [torch.zeros_like(times) for _ in range(ranks)]
    dist.all_gather(gathered, times)
    if args.reduce and not same_everywhere(plain):
        sys.exit("replicas differ after training")
    if rank == 0:
        print(json.dumps(result(args, ranks, [t.tolist() for t in gathered])), flush=True)
    dist.barrier()
    # DDP's reducer joins Gloo's threads while it holds the interpreter's lock that one of them may be waiting for: now
    # and then a rank would hang here for ever. There is nothing left to clean up.
    os._exit(0)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--batch", type=int, default=64, help="per process")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1, help="per process")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--no-reduce", dest="reduce", action="store_false")
    parser.add_argument("--rate", type=float, default=0.001, help="small: the labels are noise")
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--static-graph", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--set-to-none", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--foreach", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--json", action="store_true", help="accepted for symmetry: the output is always JSON")
    parser.add_argument("--count", action="store_true", help="print the parameters of each model and end")
    return parser.parse_args()


def main():
    args = parse()
    if args.count:
        for name, model in MODELS.items():
            tensors = list(model().parameters())
            print(f"{name}: {sum(t.numel() for t in tensors)} parameters in {len(tensors)} tensors")
        return
    # Threads of the two processes would otherwise be counted from the cores before set_num_threads is heard.
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    mp.spawn(rank_main, args=(args.ranks, free_port(), args), nprocs=args.ranks)


if __name__ == "__main__":
    main()
