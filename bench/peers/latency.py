#!/usr/bin/env python3
"""Latency of a Cuvil plan beside PyTorch, interleaved in one process.

    latency.py --model resnet50 --batch 1 --plan resnet50.plan \\
               --library build/dist/lib/libcuvil.so --json out.json

The network is made as bench/models/export.py makes it (same seed, same
weights), so the plan compiled from its export must give the same answer; the
relative L2 distance to PyTorch in fp32 is printed for every peer.  Peers:

    eager      fp16, captured into a CUDA graph
    compiled   torch.compile(mode="reduce-overhead"), fp16

each with contiguous and channels_last tensors, the faster of the two counts.
Every round times a block of runs of each, in random order, between CUDA events
on one stream; the ratio Cuvil/peer is taken within rounds, and its median is
given with an order-statistic interval (95 %).

Cuvil's plan takes and returns what the file says (fp32 for activations) and
converts inside; the PyTorch peers are handed fp16.
"""

import argparse
import copy
import json
import os
import random
import statistics
import sys
import time

import numpy as np
import torch

sys.path.insert(
    0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models")
)
import export  # noqa: E402
from plan import Plan  # noqa: E402


def graphed(call, inputs):
    """`call(*inputs)` captured; returns (replay, output tensor)."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            call(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = call(*inputs)
    return graph.replay, y


def block(run, stream, runs):
    """Seconds of one run, over `runs` runs between two events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record(stream)
    for _ in range(runs):
        run()
    end.record(stream)
    end.synchronize()
    return start.elapsed_time(end) * 1e-3 / runs


def median_interval(samples, confidence=0.95):
    """Median with the binomial order-statistic interval."""
    n = len(samples)
    ordered = sorted(samples)
    # P(B <= k) for B ~ Binomial(n, 1/2)
    total, k, mass = 2.0**-n, 0, 2.0**-n
    tail = (1 - confidence) / 2
    while True:
        following = mass * (n - k) / (k + 1)
        if total + following > tail or k + 1 >= n // 2:
            break
        k += 1
        mass = following
        total += mass
    return statistics.median(ordered), ordered[k], ordered[n - 1 - k]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=sorted(export.MODELS), default="resnet50")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plan", action="append", default=[], metavar="[NAME=]FILE")
    parser.add_argument("--library", help="libcuvil.so")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--runs", type=int, default=50, help="of one block")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument(
        "--compile-only",
        action="store_true",
        help="fill TorchInductor's cache for a later call, time nothing",
    )
    parser.add_argument("--json")
    # As export.py has them: they say which network the plan was made from.
    parser.add_argument("--layers", type=int)
    parser.add_argument("--seq", type=int)
    parser.add_argument("--mask", action="store_true")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa")
    arguments = parser.parse_args()
    if not arguments.compile_only and not (arguments.plan and arguments.library):
        parser.error("needs --plan and --library, or --compile-only")

    family = export.MODELS[arguments.model]
    model = export.make_model(arguments.model, arguments)
    rng = np.random.default_rng(arguments.seed + arguments.batch)
    data = family.inputs(arguments, arguments.batch, rng)
    inputs = [torch.from_numpy(array).cuda() for array in data]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model = model.cuda()
    with torch.no_grad():
        reference = model(*inputs)
    half = model.half()
    stream = torch.cuda.current_stream()
    torch.backends.cudnn.benchmark = True

    runs, outputs, seconds_to_compile = {}, {}, {}
    forms = {"contiguous": torch.contiguous_format}
    if any(x.dim() == 4 for x in inputs):
        forms["channels_last"] = torch.channels_last
    for layout, form in forms.items():
        # A copy: captured graphs hold the addresses of their weights.
        net = copy.deepcopy(half).to(memory_format=form)
        xs = [
            x.half().to(memory_format=form) if x.is_floating_point() and x.dim() == 4
            else x.half() if x.is_floating_point() else x
            for x in inputs
        ]
        runs["eager " + layout], outputs["eager " + layout] = graphed(net, xs)
        if arguments.no_compile:
            continue
        begin = time.monotonic()
        torch._dynamo.reset()
        fast = torch.compile(net, mode="reduce-overhead")
        with torch.no_grad():
            for _ in range(3):
                y = fast(*xs)
            torch.cuda.synchronize()
        name = "compiled " + layout
        seconds_to_compile[name] = time.monotonic() - begin
        outputs[name] = y.clone()

        def call(fast=fast, xs=xs):
            with torch.no_grad():
                fast(*xs)

        runs[name] = call
    if arguments.compile_only:
        for name, seconds in seconds_to_compile.items():
            print(f"{arguments.model} batch {arguments.batch}: {name} "
                  f"in {seconds:.1f} s")
        return
    plans = {}
    for text in arguments.plan:
        name, _, path = text.rpartition("=")
        name = name or "cuvil"
        plan = Plan(arguments.library, path)
        y = torch.empty_like(reference)
        plan.bind(inputs, y)
        handle = stream.cuda_stream
        runs[name] = lambda plan=plan, handle=handle: plan.run(handle)
        outputs[name] = y
        plans[name] = plan

    for run in runs.values():
        for _ in range(10):
            run()
    torch.cuda.synchronize()
    distance = {}
    for name, y in outputs.items():
        d = (y.float() - reference).norm() / reference.norm()
        distance[name] = float(d)

    order = list(runs)
    times = {name: [] for name in order}
    shuffler = random.Random(arguments.seed)
    for _ in range(arguments.rounds):
        shuffler.shuffle(order)
        for name in order:
            times[name].append(block(runs[name], stream, arguments.runs))

    medians = {name: statistics.median(t) for name, t in times.items()}
    peers = [name for name in runs if name not in plans]
    best = min(peers, key=medians.get)
    result = {
        "schema": "cuvil-peers/1",
        "model": arguments.model,
        "batch": arguments.batch,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rounds": arguments.rounds,
        "runs": arguments.runs,
        "best_peer": best,
        "compile_seconds": seconds_to_compile,
        "entries": [],
    }
    print(f"{arguments.model} batch {arguments.batch} on {result['gpu']}, "
          f"PyTorch {torch.__version__}, {arguments.rounds} rounds")
    print(f"{'':24} {'median':>10}   95 % interval        to fp32   / best peer")
    for name in sorted(runs, key=medians.get):
        middle, low, high = median_interval(times[name])
        ratio = median_interval(
            [a / b for a, b in zip(times[name], times[best])]
        )
        print(f"{name:24} {middle * 1e6:8.1f} us [{low * 1e6:8.1f}, "
              f"{high * 1e6:8.1f}]  {distance[name]:.1e}  "
              f"{ratio[0]:.3f} [{ratio[1]:.3f}, {ratio[2]:.3f}]")
        result["entries"].append({
            "name": name,
            "seconds": middle,
            "low": low,
            "high": high,
            "ratio_to_best_peer": ratio,
            "relative_l2_to_fp32": distance[name],
            "blocks": times[name],
        })
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
