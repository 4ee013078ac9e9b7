#!/usr/bin/python3
"""Debian's torchrun, made to run under Python 3.11: `torchrun.py ARGS` is `torchrun ARGS`.

Its Std.from_str compares the type of an enum in a way that 3.11 changed, and fails on its own default. That default is
the only value needed here: workers write where torchrun does.
"""

import sys

import torch.distributed.elastic.multiprocessing.api as api
from torch.distributed.run import main

api.Std.from_str = classmethod(lambda cls, text: cls.NONE)

if __name__ == "__main__":
    sys.exit(main())
