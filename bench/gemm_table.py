#!/usr/bin/env python3
"""Tables and verdicts of matrix products: our families against cuBLASLt.

    cuvil-tune --l2 cold --force --problems bench/problems/gemm-plain-large.txt \
        --json plain-large.json
    bench/gemm_table.py [--explain] plain-large.json plain-small.json ...

Reads reports of cuvil-tune (schema cuvil-tune/1).  For every shape: the time of
our fastest candidate in the race's final, its share of the roof, the fastest
cuBLASLt candidate's time in the same final, and library time / own time with
its 95 % interval, paired by round (over 1: ours is faster); family and point
with --explain.  Then the geometric mean of each class of shapes, and each bar
with what it asks for, what was reached, and a verdict: pass, miss, or open
where a shape or a report is missing.  Exit status: 0 every bar asked passed,
1 a bar was missed or is open, 2 wrong usage or a file that is no such report.

Python's standard library only.
"""
import argparse
import json
import math
import re
import sys

LARGE = ["2048x2048x2048", "4096x4096x4096", "8192x8192x8192",
         "4096x4096x1024", "8192x28672x4096", "6272x2048x512",
         "4096x1000x2048"]
SMALL = ["512x512x512", "1024x1024x1024", "128x768x768", "1024x768x768",
         "1024x3072x768", "1024x768x3072"]
SKINNY = ["16x4096x4096", "1x4096x4096", "64x50257x768", "100352x64x256",
          "25088x512x128"]
CLASSES = {"large": LARGE, "small": SMALL, "skinny and odd": SKINNY}
THREE = ["6272x2048x512", "100352x64x256", "25088x512x128"]

EPILOGUES = {
    "": "plain",
    "t=add(acc,bias[n]);out=gelu_tanh(t)": "tanh",
    "t=add(acc,bias[n]);out=gelu_erf(t)": "erf",
    "t=add(acc,bias[n]);u=add(t,res[m,n]);out=gelu_tanh(u)": "residual",
}


class Row:
    """One problem of a report: seconds, ratios over 1 where ours is faster."""

    def __init__(self, problem):
        text = problem["problem"]
        self.state, self.reason = problem["state"], problem.get("reason", "")
        self.shape = "x".join(
            re.search(r"\b%s=(\d+)" % d, text).group(1) for d in "mnk")
        dtype = re.search(r"\ba=(\w+)\[", text).group(1)
        self.dtype = "tf32" if dtype == "f32" and "math=tf32" in text else dtype
        epilogue = re.search(r"epi\{(.*)\}", text)
        epilogue = epilogue.group(1).replace(" ", "") if epilogue else ""
        self.set = (self.dtype, EPILOGUES.get(epilogue, epilogue))
        self.own = self.library = self.ratio = None
        self.own_seconds = self.library_seconds = self.roof = None
        self.low = self.high = None
        people, sides = problem["participants"], problem.get("sides")
        winner = problem.get("winner")
        finalists = [p for p in people if p["final"] and p["seconds"]
                     and "control" not in p["flags"]]
        own = [p for p in finalists if not is_library(p)]
        if sides:
            self.own = people[sides["own"]]
            self.library = people[sides["library"]]
            self.ratio = 1 / sides["ratio"]
            self.low, self.high = 1 / sides["ratio_high"], 1 / sides["ratio_low"]
            self.library_seconds = self.library["seconds"]
        elif own:
            self.own = min(own, key=lambda p: p["seconds"])
        if self.own:
            self.own_seconds = self.own["seconds"]
            if winner and winner["of_roof"]:
                self.roof = (winner["of_roof"] * winner["seconds"]
                             / self.own_seconds)


def is_library(participant):
    return participant["family"].endswith(("_cublaslt", "_cudnn"))


def read(paths):
    """All rows, by (set, shape); a later report replaces an earlier one."""
    rows = {}
    for path in paths:
        try:
            with open(path) as file:
                report = json.load(file)
        except (OSError, ValueError) as error:
            exit2(f"{path}: {error}")
        if report.get("schema") != "cuvil-tune/1":
            exit2(f"{path}: not a report of cuvil-tune (schema "
                      f"{report.get('schema')!r}, cuvil-tune/1 expected)")
        if report.get("source") != "measured":
            print(f"note: {path} was replayed, not measured")
        for problem in report["problems"]:
            if problem["problem"].startswith("gemm/1"):
                row = Row(problem)
                rows[row.set, row.shape] = row
    return rows


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def micro(seconds):
    return f"{seconds * 1e6:9.2f}" if seconds else "        -"


def class_of(shape):
    for name, shapes in CLASSES.items():
        if shape in shapes:
            return name
    return "other"


def print_set(rows, key, explain):
    mine = [r for (s, _), r in rows.items() if s == key]
    print(f"\n{key[1]}, {key[0]}")
    print(f"{'m n k':18}{'own us':>9}{'roof':>7}{'library':>9}  "
          f"{'library/own':24}family")
    for name in list(CLASSES) + ["other"]:
        here = [r for r in mine if class_of(r.shape) == name]
        order = CLASSES.get(name, sorted(r.shape for r in here))
        for row in sorted(here, key=lambda r: order.index(r.shape)):
            print_row(row, explain)
        ratios = [r.ratio for r in here if r.ratio]
        if ratios:
            print(f"  {name}: geomean {geomean(ratios):.3f} of {len(ratios)}, "
                  f"least {min(ratios):.3f}")


def print_row(row, explain):
    share = f"{row.roof * 100:5.0f} %" if row.roof else "      -"
    ratio = (f"{row.ratio:5.3f} [{row.low:5.3f}, {row.high:5.3f}]"
             if row.ratio else f"({row.state})")
    family = row.own["family"] if row.own else row.reason
    print(f"{row.shape:18}{micro(row.own_seconds)}{share}"
          f"{micro(row.library_seconds)}  {ratio:24}{family}")
    if not explain:
        return
    if row.own:
        print(f"    {row.own['config']}")
    if row.library:
        print(f"    {row.library['family']} {short_config(row.library)}")


def short_config(participant):
    """A library's point without its opaque bytes."""
    return ",".join(p for p in participant["config"].split(",")
                    if not p.startswith("data"))


class Bars:
    def __init__(self, rows):
        self.rows, self.good = rows, True

    def ratios(self, key, shapes):
        """None where one is missing."""
        found = [self.rows.get((key, s)) for s in shapes]
        if any(r is None or not r.ratio for r in found):
            return None
        return [r.ratio for r in found]

    def say(self, name, asked, values, good):
        if values is None:
            verdict, reached = "open", "not measured"
        else:
            verdict, reached = "pass" if good(values) else "miss", values
        if not isinstance(reached, str):
            reached = f"{reached:.3f}"
        self.good &= verdict == "pass"
        print(f"  {verdict:5} {name:52} asked {asked:12} {reached}")

    def mean(self, name, key, shapes, least):
        ratios = self.ratios(key, shapes)
        self.say(name, f">= {least:.2f}",
                 geomean(ratios) if ratios else None, lambda v: v >= least)

    def floor(self, name, key, shapes, least):
        ratios = self.ratios(key, shapes)
        self.say(name, f">= {least:.2f}", min(ratios) if ratios else None,
                 lambda v: v >= least)

    def cost(self, name, key, other, shapes, most):
        """Own times of `key` against those of `other`: each shape."""
        pairs = [(self.rows.get((key, s)), self.rows.get((other, s)))
                 for s in shapes]
        if any(not a or not b or not a.own_seconds or not b.own_seconds
               for a, b in pairs):
            self.say(name, f"<= {most:.2f}", None, None)
            return
        costs = [a.own_seconds / b.own_seconds for a, b in pairs]
        self.say(name + " (geomean)", f"<= {most:.2f}", geomean(costs),
                 lambda v: v <= most)
        worst = max(range(len(costs)), key=costs.__getitem__)
        print(f"        the most: {costs[worst]:.3f} at {shapes[worst]}")


def bars(rows):
    b = Bars(rows)
    everything = LARGE + SMALL + SKINNY
    plain, tanh = ("f16", "plain"), ("f16", "tanh")
    residual = ("f16", "residual")
    print("\nbars (library time / own time)")
    print(" 1 plain")
    b.mean("large, geomean", plain, LARGE, 1.00)
    b.mean("small, geomean", plain, SMALL, 1.10)
    b.mean("skinny and odd, geomean", plain, SKINNY, 1.30)
    b.floor("each", plain, everything, 0.95)
    print(" 2 bias + GELU(tanh)")
    b.mean("large, geomean", tanh, LARGE, 1.05)
    b.mean("the rest, geomean", tanh, SMALL + SKINNY, 1.15)
    b.floor("each", tanh, everything, 0.98)
    b.cost("GELU(erf) / GELU(tanh), own times", ("f16", "erf"), tanh,
           everything, 1.03)
    print(" 3 bias + residual + GELU against the library's beta form")
    b.mean("large, geomean", residual, LARGE, 1.05)
    b.mean("small, geomean", residual, SMALL, 1.20)
    for shape in THREE:
        b.floor(shape, residual, [shape], 1.25)
    print(" 4 other types")
    b.cost("bf16 / fp16, own times", ("bf16", "plain"), plain, everything, 1.03)
    b.mean("tf32, large, geomean", ("tf32", "plain"), LARGE, 1.00)
    return b.good


def exit2(message):
    print(f"gemm_table.py: {message}", file=sys.stderr)
    raise SystemExit(2)


def main():
    parser = argparse.ArgumentParser(
        description="Matrix products: our families against cuBLASLt, from "
        "reports of cuvil-tune --l2 cold --json.")
    parser.add_argument("report", nargs="+", help="a report of cuvil-tune")
    parser.add_argument("--explain", action="store_true",
                        help="print the points of both sides, too")
    parser.add_argument("--no-bars", action="store_true",
                        help="tables only; the exit status is 0")
    args = parser.parse_args()
    rows = read(args.report)
    if not rows:
        exit2("no gemm stands in these reports")
    for key in sorted({s for s, _ in rows}, key=lambda s: (s[1], s[0])):
        print_set(rows, key, args.explain)
    if args.no_bars:
        return 0
    return 0 if bars(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
