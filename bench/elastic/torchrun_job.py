#!/usr/bin/python3
"""A worker under torchrun: the demo's network on DDP and Gloo, with a checkpoint every so many steps.

Writes DIR/rank-R.jsonl: a line with its process when it starts, then one per step. Its data is noise made on the spot,
so that a restart reads nothing but the checkpoint: less than a real program would have to do.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "train"))
from ddp_gloo import Cnn, batches  # noqa: E402  (found through the line above)


class Log:
    """One write per line: a kill leaves at most one torn line, at the end."""

    def __init__(self, folder, rank):
        self.file = open(folder / f"rank-{rank}.jsonl", "a", buffering=1)
        self.who = {"rank": rank, "restart": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}

    def write(self, kind, **more):
        self.file.write(json.dumps({"kind": kind, "t": time.time(), **self.who, **more}) + "\n")


def save(path, step, model, optimizer):
    fresh = path.with_suffix(".new")
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, fresh)
    fresh.rename(path)


def restore(path, model, optimizer):
    """The first step to make."""
    if not path.exists():
        return 0
    kept = torch.load(path)
    model.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    return kept["step"]


def train(args, rank, log):
    torch.manual_seed(7)
    plain = Cnn()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.001, momentum=0.9)  # slow: the labels are noise
    first = restore(args.checkpoint, plain, optimizer)
    model = DistributedDataParallel(plain, gradient_as_bucket_view=True, static_graph=True)
    criterion = nn.CrossEntropyLoss()
    pool = batches(plain, args.batch, rank)
    for step in range(first, args.steps):
        images, labels = pool[step % len(pool)]
        optimizer.zero_grad(set_to_none=True)
        criterion(model(images), labels).backward()
        optimizer.step()
        log.write("step", step=step)
        if rank == 0 and (step + 1) % args.every == 0:
            save(args.checkpoint, step + 1, plain, optimizer)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=pathlib.Path, required=True)
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True)
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--batch", type=int, default=64, help="per process")
    parser.add_argument("--steps", type=int, default=1_000_000)
    args = parser.parse_args()
    rank = int(os.environ["RANK"])
    log = Log(args.records, rank)
    log.write("start", pid=os.getpid())
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(args, rank, log)


if __name__ == "__main__":
    main()
