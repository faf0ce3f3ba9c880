#!/usr/bin/env python3
"""Whether a plan of batch N answers as N runs of the plan of batch 1 do.

    batches.py --one b1.plan --many b8.plan --library build/dist/lib/libcuvil.so \\
               --input b8_input.npy --expected b8_output.npy --limit 1e-2
    batches.py --library build/dist/lib/libcuvil.so --cases CASES.jsonl

Both plans come from exports of one network with one seed (bench/models/
export.py), so they hold the same weights.  Row i of every input goes through
the plan of batch 1 alone; the relative L2 distance of all N rows together, of
the worst row, and of both plans from --expected (PyTorch's own output, on the
CPU in fp32) are printed; the exit status is 1 if any is over --limit.

CASES.jsonl holds a case a line, for one start of Python over many networks:
{"one": ..., "many": ..., "input": [...], "expected": ..., "limit": 1e-2}.  A
case that cannot be run is said, counts as failed, and the others go on.
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


def compare(library, case):
    """Runs one case; returns its distances, whose keys say of what from what."""
    inputs = [torch.from_numpy(np.load(name)).cuda() for name in case["input"]]
    expected = torch.from_numpy(np.load(case["expected"])).float().cuda()
    batch = expected.shape[0]
    stream = torch.cuda.current_stream().cuda_stream

    together = torch.full_like(expected, float("nan"))
    many = Plan(library, case["many"])
    many.bind(inputs, together)
    many.run(stream)

    alone = torch.full_like(expected, float("nan"))
    one = Plan(library, case["one"])
    rows = [torch.empty_like(x[:1]) for x in inputs]
    row = torch.empty_like(expected[:1])
    one.bind(rows, row)
    for i in range(batch):
        for to, x in zip(rows, inputs):
            to.copy_(x[i : i + 1])
        one.run(stream)
        alone[i] = row[0]
    torch.cuda.synchronize()
    many.close()
    one.close()

    return {
        "batch_to_single": distance(together, alone),
        "worst_row": max(distance(together[i], alone[i]) for i in range(batch)),
        "batch_to_pytorch": distance(together, expected),
        "single_to_pytorch": distance(alone, expected),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", required=True, help="libcuvil.so")
    parser.add_argument("--cases", metavar="JSONL", help="many cases, one a line")
    parser.add_argument("--one", metavar="PLAN")
    parser.add_argument("--many", metavar="PLAN")
    parser.add_argument("--input", action="append", metavar="NPY")
    parser.add_argument("--expected", metavar="NPY")
    parser.add_argument("--limit", type=float)
    parser.add_argument("--json")
    arguments = parser.parse_args()

    keys = ("one", "many", "input", "expected", "limit")
    single = {key: getattr(arguments, key) for key in keys}
    if arguments.cases:
        if any(value is not None for value in single.values()):
            parser.error("--cases says everything: no --one, --many, ... beside it")
        with open(arguments.cases) as file:
            cases = [json.loads(line) for line in file if line.strip()]
    else:
        missing = [key for key in keys if single[key] is None]
        if missing:
            parser.error("needs --" + ", --".join(missing) + ", or --cases")
        cases = [single]

    results = []
    for case in cases:
        result = {"one": case["one"], "many": case["many"], "limit": case["limit"]}
        try:
            found = compare(arguments.library, case)
            # "not <=": a NaN must fail.
            passed = not any(not v <= case["limit"] for v in found.values())
            text = ", ".join(f"{name} {value:.2e}" for name, value in found.items())
            result.update(found)
        except (RuntimeError, OSError, ValueError) as error:
            passed, text = False, str(error)
            result["error"] = text
        result["pass"] = passed
        results.append(result)
        print(f"{case['many']}: {text} (limit {case['limit']:g}): "
              f"{'pass' if passed else 'FAIL'}", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"schema": "cuvil-batches/2", "cases": results}, file, indent=1)
    sys.exit(0 if cases and all(result["pass"] for result in results) else 1)


if __name__ == "__main__":
    main()
