"""The attackers, at length: make fuzz CASES=200000 SEED=7, or one of them: ATTACKER=names.

Of sixteen cases twelve are about arguments, two about a file, one is a sequence of verbs, and one
is about names.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.fuzz import arrays as fuzz_arrays
from tests.fuzz import files as fuzz_files
from tests.fuzz import names as fuzz_names
from tests.fuzz import sequences as fuzz_sequences

ATTACKERS = {
    "arrays": fuzz_arrays,
    "files": fuzz_files,
    "names": fuzz_names,
    "sequences": fuzz_sequences,
}
TURNS = {0: "files", 1: "sequences", 5: "names", 8: "files"}  # of sixteen; else arrays


def run(cases: int, seed: int, attacker: str | None = None) -> tuple[list[str], Counter]:
    """Play cases; the findings, and how many cases there were of each callable or kind of file."""
    findings, counts = [], Counter()
    for number in range(cases):
        turn = attacker or TURNS.get(number % 16, "arrays")
        what, fault = ATTACKERS[turn].case(seed, number)
        counts[what.split("(")[0].split(",")[0]] += 1
        if fault:
            findings.append(f"case {number} of seed {seed}: {what}: {fault}")
    return findings, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attacker", choices=ATTACKERS)
    options = parser.parse_args()
    start = time.perf_counter()
    findings, counts = run(options.cases, options.seed, options.attacker)
    print(*findings[:50], sep="\n")
    print(
        f"{options.cases} cases of seed {options.seed} on {len(counts)} callables and kinds of "
        f"file in {time.perf_counter() - start:.0f} s: {len(findings)} findings"
    )
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
