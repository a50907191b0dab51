"""`snaps demo`: a made graph, a classifier, five methods side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from snaps.cli._options import AlphaOption, JsonOption, SeedOption


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo"),
    nodes: Annotated[int, typer.Option(help="Size of the made graph.")] = 3000,
    alpha: AlphaOption = 0.05,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Make a graph, train a classifier on it, and compare APS, RAPS, DAPS, SNAPS and Pooled.

    Works offline. Writes a report to open in a browser (report.html), a picture (demo.png), the
    sets of SNAPS (sets.parquet) and the graph as a folder that 'snaps predict' reads (graph/).
    """
    from snaps.cli._demo import run
    from snaps.cli._show import bar, print_comparison, provenance

    with bar("Demo", 5) as advance:
        result = run(out, num_nodes=nodes, alpha=alpha, seed=seed, advance=advance)
    about = {**provenance({}), "seed": seed, "splits": result.splits}
    print_comparison(result.rows, about, as_json)
    if not as_json:
        print(f"Classifier accuracy {result.accuracy:.3f} on {result.description}")
        for path in result.files:
            print(f"wrote {path}")
        print(f"Next: snaps predict {out / 'graph'} --alpha {alpha:g} --out sets.parquet")
