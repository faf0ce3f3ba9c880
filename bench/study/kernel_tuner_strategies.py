"""Kernel Tuner's strategies, in simulation mode, on tables of results.

Needs PyPI's kernel-tuner; no part of make check.  study.sh calls it on the
tables that replay_strategies --tables writes (Kernel Tuner's own cache
format), which are those that our strategies are replayed on:

    python kernel_tuner_strategies.py --seeds 50 --trials 150 TABLE.json ... \\
        > kernel_tuner.tsv

One line an improvement, as replay_strategies writes them:
    table strategy seed trial best/optimum seconds
trial counts configurations evaluated for the first time, failed ones too;
seconds are their recorded compiling and running times.  A line of trial 0 tells
how many were evaluated in all.

The space is the cache's configurations and nothing else: it is built once a
table and handed to every run, so that a run costs its strategy only.
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import random
import sys
import warnings

import numpy
from kernel_tuner import interface
from kernel_tuner.searchspace import Searchspace

STRATEGIES = [
    "random_sample",
    "genetic_algorithm",
    "simulated_annealing",
    "greedy_ils",
    "greedy_mls",
    "mls",
    "pso",
    "firefly_algorithm",
    "diff_evo",
    "dual_annealing",
    "basinhopping",
    "hybrid_vndx",
    "adaptive_tabu_greywolf",
    "bayes_opt",
]


def follow(results, names, cache, optimum):
    """(trial, best / optimum, seconds) of every improvement; the last: all."""
    seen, best, seconds, rows = set(), float("inf"), 0.0, []
    for result in results:
        if result is None:
            continue
        key = ",".join(str(result[n]) for n in names)
        if key in seen or key not in cache:
            continue
        seen.add(key)
        entry = cache[key]
        seconds += (entry["compile_time"] + entry["benchmark_time"]) / 1e3
        if isinstance(entry["time"], float) and entry["time"] < best:
            best = entry["time"]
            rows.append((len(seen), best / optimum, seconds))
    rows.append((0, len(seen), seconds))
    return rows


def run(table, space, strategy, seed, trials):
    random.seed(seed)
    numpy.random.seed(seed)
    cache = json.loads(table.read_text())
    interface.Searchspace = lambda *_, **__: space
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results, _ = interface.tune_kernel(
            cache["kernel_name"],
            "__global__ void %s() {}" % cache["kernel_name"],
            cache["problem_size"],
            [],
            cache["tune_params"],
            cache=str(table),
            simulation_mode=True,
            strategy=strategy,
            strategy_options={"max_fevals": trials},
            lang="CUDA",
            quiet=True,
        )
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("tables", nargs="+", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--trials", type=int, default=150)
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    arguments = parser.parse_args()
    for table in arguments.tables:
        file = json.loads(table.read_text())
        names, cache = file["tune_params_keys"], file["cache"]
        times = [e["time"] for e in cache.values() if isinstance(e["time"], float)]
        space = Searchspace(None, None, None, from_cache=file)
        trials = min(arguments.trials, len(cache))
        for strategy in arguments.strategies.split(","):
            for seed in range(arguments.seeds):
                try:
                    results = run(table, space, strategy, seed, trials)
                except Exception as error:  # a strategy that fails is said
                    print(f"{table.stem}: {strategy}: {error}", file=sys.stderr)
                    break
                for trial, ratio, seconds in follow(results, names, cache, min(times)):
                    print(table.stem, strategy, seed, trial, f"{ratio:.6f}", f"{seconds:.4f}", sep="\t")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
