# SPDX-License-Identifier: MIT
"""What was measured, and the arithmetic on it: ratios of values of one round, which rounds count,
and whether a goal is met. No process is started here."""
import operator
import statistics
from dataclasses import dataclass, field
from typing import Optional

PROBE_LIMIT_NS = 100    # of neighbouring cores; where the nearest are never so near, what is
PROBE_TOLERANCE = 1.5   # a little over the lowest tenth of the run is as good
LEAST_GOOD_ROUNDS = 3
OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
             "=": operator.eq}


@dataclass(frozen=True)
class Goal:
    """`>= 0.85` and the like; what it is compared with is a median."""
    text: str

    def met_by(self, value):
        sign, limit = self.text.split()[:2]
        return OPERATORS[sign](value, float(limit))


@dataclass
class Sample:
    value: float
    probe_ns: float  # the worse of the probes before and after


@dataclass
class Line:
    """One line of the table: a contender beside another, or alone (no peer: the goal is for the
    value itself)."""
    name: str
    product: str  # key of a contender
    unit: str
    peer: Optional[str] = None
    goal: Optional[Goal] = None


@dataclass
class Result:
    """A line with its figures. `why` is set instead when there are none."""
    line: Line
    product: list = field(default_factory=list)
    peer: list = field(default_factory=list)
    ratios: list = field(default_factory=list)
    rounds: int = 0
    all_counted: bool = False  # too few good rounds, so the bad ones are counted too
    why: str = ""

    def met(self):
        if self.why or self.line.goal is None:
            return None
        return self.line.goal.met_by(statistics.median(self.ratios or self.product))


def probe_limit(probes):
    """Above this many ns the two processors were far apart."""
    if not probes:
        return PROBE_LIMIT_NS
    # Not the least: a ping-pong that the scheduler put on one core for a while reads too little.
    lowest_tenth = sorted(probes)[len(probes) // 10]
    return max(PROBE_LIMIT_NS, PROBE_TOLERANCE * lowest_tenth)


def spread(values):
    """Median, least and greatest, with three significant digits."""
    texts = [short(f(values)) for f in (statistics.median, min, max)]
    return texts[0] if len(values) == 1 else f"{texts[0]} ({texts[1]}-{texts[2]})"


def short(value):
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def evaluate(line, rounds, limit, missing):
    """The result of `line`. `rounds` are dictionaries from a contender's key to its sample,
    `missing` one from a key to why it never ran."""
    for key in (line.product, line.peer):
        if key in missing:
            return Result(line, why=missing[key])
    wanted = [key for key in (line.product, line.peer) if key]
    whole = [r for r in rounds if all(key in r for key in wanted)]
    if not whole:
        return Result(line, why="no round was whole")
    good = [r for r in whole if all(r[key].probe_ns <= limit for key in wanted)]
    enough = len(good) >= min(LEAST_GOOD_ROUNDS, len(whole))
    counted = good if enough else whole
    result = Result(line, rounds=len(whole), all_counted=not enough)
    result.product = [r[line.product].value for r in counted]
    if line.peer:
        result.peer = [r[line.peer].value for r in counted]
        result.ratios = [r[line.product].value / r[line.peer].value for r in counted]
    return result
