# SPDX-License-Identifier: MIT
"""Prints results as one table, aligned for a terminal or as Markdown."""
from samples import spread

TITLES = ("", "airdma", "peer", "", "ratio", "goal", "met", "rounds")


def cells(result):
    line = result.line
    goal = line.goal.text if line.goal else ""
    if result.why:
        return (line.name, f"not run: {result.why}", "", "", "", goal, "", "")
    counted = f"{len(result.product)}/{result.rounds}{'*' if result.all_counted else ''}"
    met = {None: "", True: "yes", False: "no"}[result.met()]
    return (line.name, spread(result.product), spread(result.peer) if result.peer else "",
            line.unit, spread(result.ratios) if result.ratios else "", goal, met, counted)


def text(rows):
    # A reason is longer than any figure: it runs over the columns behind it.
    figures = [row for row in rows if not row[1].startswith("not run")]
    widths = [max(len(row[i]) for row in figures) for i in range(len(TITLES))]
    widths[0] = max(len(row[0]) for row in rows)
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
                     for row in rows)


def markdown(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(TITLES))
    return "\n".join(lines)


def render(results, as_markdown=False):
    rows = [TITLES] + [cells(result) for result in results]
    out = markdown(rows) if as_markdown else text(rows)
    if any(result.all_counted for result in results):
        out += "\n* too few good rounds: all are counted"
    return out
