"""Kernel Tuner runs a space that Cuvil exported over evidence that Cuvil
exported, without a GPU, and must find Cuvil's optimum.

Needs PyPI's kernel-tuner and numpy in some virtual environment; no part of
make check.  The evidence may come from a shipped recording:

    bin=build/release/bin
    recording=bench/recordings/resnet50-b1-fp16-exhaustive.t4.json.zst
    $bin/cuvil-tune --device replay:$recording --list-problems
    problem='gemm/1 m=3136 ...'          # one of them
    $bin/cuvil-tune --device replay:$recording --exhaustive --db study.db \\
        --problem "$problem"
    $bin/cuvil-db export --t1 --tried --db study.db --arch sm_90 \\
        --family gemm_mma --problem "$problem" -o space.json
    $bin/cuvil-db export --kernel-tuner --db study.db \\
        --family gemm_mma --problem "$problem" -o cache.json
    python bench/study/kernel_tuner_simulation.py space.json cache.json

--tried limits the space to points with evidence: a simulation stops at a point
that the cache has not.  Kernel Tuner checks the space against its T1 schema
and the cache against the space.  Every configuration of the cache must be
visited by brute force and the fastest found; a strategy named by --strategy
(such as random_sample, simulated_annealing, genetic_algorithm) is run after
it with --fevals evaluations, and what it found is printed.  Exit status 0 when
brute force found the optimum.
"""

import argparse
import json
import pathlib
import sys

from kernel_tuner.interface import tune_kernel_T1


def seconds_of(entry):
    """The time of a cache entry in milliseconds; None: it failed."""
    return entry["time"] if isinstance(entry["time"], float) else None


def simulate(space, cache, strategy, options):
    results, _ = tune_kernel_T1(
        space,
        cache,
        simulation_mode=True,
        output_T4=False,
        strategy=strategy,
        strategy_options=options,
    )
    ran = [r for r in results if "__error__" not in r]
    return results, min(ran, key=lambda r: r["time"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("space", type=pathlib.Path)
    parser.add_argument("cache", type=pathlib.Path)
    parser.add_argument("--strategy")
    parser.add_argument("--fevals", type=int, default=50)
    arguments = parser.parse_args()

    cache = json.loads(arguments.cache.read_text())
    names = cache["tune_params_keys"]
    times = {k: seconds_of(e) for k, e in cache["cache"].items()}
    best = min((t, k) for k, t in times.items() if t is not None)
    print(f"cache: {len(times)} configurations, best {best[0]:.6f} ms {best[1]}")

    results, found = simulate(arguments.space, arguments.cache, "brute_force", {})
    key = ",".join(str(found[n]) for n in names)
    print(f"brute_force: {len(results)} visited, best {found['time']:.6f} ms {key}")
    right = len(results) == len(times) and found["time"] == best[0]
    if arguments.strategy:
        results, found = simulate(
            arguments.space,
            arguments.cache,
            arguments.strategy,
            {"max_fevals": arguments.fevals},
        )
        key = ",".join(str(found[n]) for n in names)
        print(
            f"{arguments.strategy}: {len(results)} visited, "
            f"best {found['time']:.6f} ms {key}"
        )
    print("Cuvil's optimum was found" if right else "NOT Cuvil's optimum")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
