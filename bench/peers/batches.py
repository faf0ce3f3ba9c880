#!/usr/bin/env python3
"""Whether a plan of batch N answers as N runs of the plan of batch 1 do.

    batches.py --one b1.plan --many b8.plan --library build/dist/lib/libcuvil.so \\
               --input b8_input.npy --expected b8_output.npy --limit 1e-2

Both plans come from exports of one network with one seed (bench/models/
export.py), so they hold the same weights.  Row i of every input goes through
the plan of batch 1 alone; the relative L2 distance of all N rows together, of
the worst row, and of the large plan from --expected (PyTorch's own output, on
the CPU in fp32) are printed; the exit status is 1 if any is over --limit.
"""

import argparse
import json
import sys

import numpy as np
import torch

from plan import Plan


def distance(got, reference):
    """Relative L2, accumulated in double precision; NaN stays NaN."""
    got, reference = got.double(), reference.double()
    return float((got - reference).norm() / reference.norm())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--one", required=True, metavar="PLAN")
    parser.add_argument("--many", required=True, metavar="PLAN")
    parser.add_argument("--library", required=True, help="libcuvil.so")
    parser.add_argument("--input", required=True, action="append", metavar="NPY")
    parser.add_argument("--expected", required=True, metavar="NPY")
    parser.add_argument("--limit", required=True, type=float)
    parser.add_argument("--json")
    arguments = parser.parse_args()

    inputs = [torch.from_numpy(np.load(name)).cuda() for name in arguments.input]
    expected = torch.from_numpy(np.load(arguments.expected)).float().cuda()
    batch = expected.shape[0]
    stream = torch.cuda.current_stream().cuda_stream

    together = torch.full_like(expected, float("nan"))
    many = Plan(arguments.library, arguments.many)
    many.bind(inputs, together)
    many.run(stream)

    alone = torch.full_like(expected, float("nan"))
    one = Plan(arguments.library, arguments.one)
    rows = [torch.empty_like(x[:1]) for x in inputs]
    row = torch.empty_like(expected[:1])
    one.bind(rows, row)
    for i in range(batch):
        for to, x in zip(rows, inputs):
            to.copy_(x[i : i + 1])
        one.run(stream)
        alone[i] = row[0]
    torch.cuda.synchronize()

    found = {
        "batch_to_single": distance(together, alone),
        "worst_row": max(distance(together[i], alone[i]) for i in range(batch)),
        "batch_to_pytorch": distance(together, expected),
        "single_to_pytorch": distance(alone, expected),
    }
    # "not <=": a NaN must fail.
    passed = not any(not value <= arguments.limit for value in found.values())
    text = ", ".join(f"{name} {value:.2e}" for name, value in found.items())
    print(f"{arguments.many}: {text} (limit {arguments.limit:g}): "
          f"{'pass' if passed else 'FAIL'}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"schema": "cuvil-batches/1", "one": arguments.one,
                       "many": arguments.many, "batch": batch,
                       "limit": arguments.limit, "pass": passed, **found}, file)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
