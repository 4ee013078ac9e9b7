"""The command line of the drivers that run one program under `pliant run`, one build of it or two in turn."""

import argparse
import os
import pathlib
import tempfile

from processes import rounds

SYNTHETIC = "examples/synthetic/synthetic"


def parser_of(text, program=SYNTHETIC, **more):
    """A parser with the flags that all of them have. `program` is where the build has it."""
    build = rounds.ROOT / "build" / "dev"
    parser = argparse.ArgumentParser(description=text, **more)
    parser.add_argument("--pliant", type=path, default=str(build / "apps/pliant/pliant"))
    parser.add_argument("--program", type=path, default=str(build / program), help=program)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=pathlib.Path, help="write the report there, too")
    parser.set_defaults(json=False)
    return parser


def path(text):
    """Jobs run in the repository's root, their programs are named from where the driver was started."""
    return os.path.abspath(text)


def add_against(parser, required=False):
    parser.add_argument("--against", nargs=2, metavar=("PLIANT", "PROGRAM"), type=path, required=required,
                        help="another build, run in turn with it")


def builds_of(args):
    """{name: [pliant, program]}"""
    return {"this": [args.pliant, args.program], **({"other": args.against} if args.against else {})}


def folder_in(place):
    return pathlib.Path(tempfile.mkdtemp(dir=place)).resolve()


def drive(args, name, everything):
    """A driver's main: `everything(args, place)` gives its report and its failures; `place` is a folder that is gone
    afterwards."""
    def measure():
        with tempfile.TemporaryDirectory(prefix=f"pliant-{name}-") as place:
            return everything(args, pathlib.Path(place).resolve())
    return rounds.drive(args, measure)
