"""What the study of search strategies says: tables and pictures out of lines.

    python study.py [--default surrogate] [--plots DIR] ours.tsv kernel_tuner.tsv

reads what replay_strategies and kernel_tuner_strategies.py wrote, prints for
every table and strategy the median over seeds of the trials until what was
found is within 1 % of the optimum (a strategy that ended before counts as all
configurations of the table), geomeans over the tables, and the two
statements that the default strategy must fulfil: at most half the trials of
Kernel Tuner's best strategy, never more than `random` on any table.  --plots
writes best-so-far against trials and against seconds, gnuplot scripts with
their data beside the pictures.  Needs Python alone, gnuplot for pictures.
"""

import argparse
import collections
import math
import pathlib
import statistics
import subprocess
import sys

WITHIN = 1.01


def read(path):
    """runs[table][strategy][seed] = improvements; evaluated[...] = trials."""
    runs = collections.defaultdict(lambda: collections.defaultdict(dict))
    for line in path.read_text().splitlines():
        table, strategy, seed, trial, value, seconds = line.split("\t")
        run = runs[table][strategy].setdefault(int(seed), {"steps": [], "all": 0})
        if trial == "0":
            run["all"] = int(float(value))
        else:
            run["steps"].append((int(trial), float(value), float(seconds)))
    return runs


def trials_to(run, size):
    for trial, ratio, _ in run["steps"]:
        if ratio <= WITHIN:
            return trial
    return size


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def medians(runs, sizes):
    """by strategy, by table."""
    out = collections.defaultdict(dict)
    for table, strategies in runs.items():
        for strategy, seeds in strategies.items():
            trials = [trials_to(run, sizes[table]) for run in seeds.values()]
            out[strategy][table] = statistics.median(trials)
    return out


def show(title, found, tables):
    print(f"\n{title}: median trials to within 1 % of the optimum")
    width = max(map(len, found), default=0)
    order = sorted(
        (s for s in found if len(found[s]) == len(tables)),
        key=lambda s: geomean(found[s].values()),
    )
    for strategy in order:
        row = " ".join(f"{found[strategy][t]:6g}" for t in tables)
        print(f"  {strategy:{width}} {geomean(found[strategy].values()):7.1f} |{row}")
    for strategy in sorted(set(found) - set(order)):
        print(f"  {strategy:{width}} not on every table")
    return order


def curve(seeds, axis, at):
    """Median over seeds of best / optimum at a trial (1) or a second (2)."""
    values = []
    for run in seeds.values():
        best = float("inf")
        for step in run["steps"]:
            if step[axis] <= at:
                best = step[1]
        values.append(best)
    return statistics.median(values)


def plot(directory, table, strategies):
    for axis, name, label in ((0, "trials", "trials"), (2, "seconds", "seconds of compiling")):
        last = max(s[axis] for seeds in strategies.values() for r in seeds.values() for s in r["steps"])
        points = [last * 1.1 ** (-i) for i in range(60, -1, -1)]
        stem = directory / f"{table}.{name}"
        with open(stem.with_suffix(f".{name}.dat"), "w") as out:
            for strategy, seeds in strategies.items():
                print(f'"{strategy}"', file=out)
                for at in points:
                    value = curve(seeds, axis, at)
                    if math.isfinite(value):
                        print(at, value, file=out)
                print("\n", file=out)
        script = stem.with_suffix(f".{name}.gp")
        data = stem.with_suffix(f".{name}.dat").name
        script.write_text(
            "set terminal svg size 900,560\n"
            f"set output '{table}.{name}.svg'\n"
            f"set title '{table}' noenhanced\nset logscale x\n"
            f"set xlabel '{label}'\nset ylabel 'best so far / optimum, median over seeds'\n"
            "set yrange [1:2]\nset key outside noenhanced\nset grid\n"
            f"plot for [i=0:{len(strategies) - 1}] '{data}' index i using 1:2 with steps lw 2 title columnheader(1)\n"
        )
        subprocess.run(["gnuplot", script.name], cwd=directory, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--default", default="surrogate")
    parser.add_argument("--plots", type=pathlib.Path)
    arguments = parser.parse_args()
    everything = [read(path) for path in arguments.files]
    sizes = collections.defaultdict(int)
    for runs in everything:
        for table, strategies in runs.items():
            for seeds in strategies.values():
                for run in seeds.values():
                    sizes[table] = max(sizes[table], run["all"])
    tables = sorted(sizes)
    for i, table in enumerate(tables):
        print(f"table {i}: {table}")
    ours = medians(everything[0], sizes)
    show("ours", ours, tables)
    good = True
    mine = ours[arguments.default]
    if len(everything) > 1:
        theirs = medians(everything[1], sizes)
        order = show("Kernel Tuner", theirs, tables)
        best = order[0]
        share = geomean(mine.values()) / geomean(theirs[best].values())
        good &= share <= 0.5
        print(
            f"\n{arguments.default} needs {share:.2f} of the trials of Kernel "
            f"Tuner's best, {best} (at most 0.5: {'yes' if share <= 0.5 else 'NO'})"
        )
    if "random" in ours:
        worse = [t for t in tables if mine[t] > ours["random"][t]]
        good &= not worse
        print(f"{arguments.default} is worse than random on: {', '.join(worse) or 'none'}")
    if arguments.plots:
        arguments.plots.mkdir(parents=True, exist_ok=True)
        for table in tables:
            both = dict(everything[0].get(table, {}))
            for runs in everything[1:]:
                for strategy, seeds in runs.get(table, {}).items():
                    both[f"Kernel Tuner {strategy}"] = seeds
            plot(arguments.plots, table, both)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
