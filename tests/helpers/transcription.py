"""The formulas of the paper, one after the other, in plain Python.

Nothing here is fast and nothing here knows the library: the standard library only, each
function short enough to lay next to the paper (sections 2 and 3, appendix "Algorithm overview") and
next to `shared/paper/NOTES.md`. A table of scores is a list of rows, one row a node, one entry a
label. Neighbours are a list of dicts, one dict a node: neighbour -> weight.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

# ---- Graphs ----------------------------------------------------------------------------------


def linked(edges, num_nodes, directed=False, self_loops=False):
    """N_i: the nodes tied to i by an edge. An edge counts once however often it is listed."""
    rows = [{} for _ in range(num_nodes)]
    for source, target in edges:
        if source == target and not self_loops:
            continue
        rows[source][target] = 1.0
        if not directed:
            rows[target][source] = 1.0
    return rows


def dot(x, z):
    return sum(Fraction(a) * Fraction(b) for a, b in zip(x, z, strict=True))


def cosine(product, square_i, square_j):
    """Sim(i, j) = x_i . x_j / (|x_i| |x_j|)."""
    return float(product) / math.sqrt(square_i * square_j)


def similar(features, k, ids=None):
    """Row i of A_s: the k nearest other nodes by cosine, positive cosines only.

    Ties go to the smaller id. Within row i the cosine orders nodes as dot^2 / |x_j|^2 does, a
    rational number, so the order is decided exactly.
    """
    ids = range(len(features)) if ids is None else ids
    squares = [dot(x, x) for x in features]
    rows = []
    for i, x in enumerate(features):
        products = {j: dot(x, z) for j, z in enumerate(features) if j != i}
        positive = [j for j in products if products[j] > 0]
        nearest = sorted(positive, key=lambda j: (-(products[j] ** 2) / squares[j], ids[j]))[:k]
        rows.append({j: cosine(products[j], squares[i], squares[j]) for j in nearest})
    return rows


# ---- Basic scores ----------------------------------------------------------------------------


def softmax(logits):
    """Softmax of one row."""
    powers = [math.exp(z - max(logits)) for z in logits]
    return [power / math.fsum(powers) for power in powers]


def aps(p, y, xi=1.0):
    """sum_i p_i [p_i > p_y] + xi p_y."""
    return math.fsum(q for q in p if q > p[y]) + xi * p[y]


def position(p, y):
    """o(y): the place of y when probabilities are sorted downwards; equals share the best place."""
    return 1 + sum(q > p[y] for q in p)


def raps(p, y, k_reg, penalty, xi=1.0):
    """APS + penalty (o(y) - k_reg)^+."""
    return aps(p, y, xi) + penalty * max(0, position(p, y) - k_reg)


def saps(p, y, weight, xi=1.0):
    """xi p_max for the top label, else p_max + (o(y) - 2 + xi) weight."""
    o = position(p, y)
    return xi * max(p) if o == 1 else max(p) + (o - 2 + xi) * weight


def thr(p, y):
    """1 - p_y."""
    return 1.0 - p[y]


def table(formula, probs, draws=None):
    """S_iy = formula(p_i, y, xi_iy) for every node and label; xi = 1 without draws."""
    if draws is None:
        return [[formula(p, y) for y in range(len(p))] for p in probs]
    return [[formula(p, y, u[y]) for y in range(len(p))] for p, u in zip(probs, draws, strict=True)]


# ---- Aggregation -----------------------------------------------------------------------------


def shared(score):
    """A score as neighbours read it: rounded to single precision."""
    return struct.unpack("f", struct.pack("f", score))[0]


def average(scores, rows):
    """D^-1 A S: the weighted mean of the neighbours' rows; the own row of a node without any."""
    result = []
    for i, row in enumerate(rows):
        if not row:
            result.append(list(scores[i]))
            continue
        total = math.fsum(row.values())
        labels = range(len(scores[i]))
        result.append(
            [math.fsum(w * shared(scores[j][y]) for j, w in row.items()) / total for y in labels]
        )
    return result


def mix(own, similar_part, linked_part, lam, mu):
    """(1 - lam - mu) S + lam A_s S + mu A S."""
    return [
        [(1 - lam - mu) * s + lam * t + mu * u for s, t, u in zip(a, b, c, strict=True)]
        for a, b, c in zip(own, similar_part, linked_part, strict=True)
    ]


def snaps_field(scores, similar_rows, linked_rows):
    """The three tables that the weights mix."""
    return scores, average(scores, similar_rows), average(scores, linked_rows)


def daps(scores, linked_rows, weight):
    """(1 - w) S + w A S."""
    return mix(scores, scores, average(scores, linked_rows), 0.0, weight)


# ---- Conformal prediction --------------------------------------------------------------------


def exact(alpha):
    """The decimal number that was written: 0.18 is 18/100, not the nearest binary float."""
    return Fraction(repr(float(alpha)))


def rank(n, alpha):
    """r = ceil((1 - alpha)(n + 1))."""
    return math.ceil((1 - exact(alpha)) * (n + 1))


def threshold(calibration_scores, alpha):
    """The r-th smallest calibration score; +infinity when r > n."""
    r = rank(len(calibration_scores), alpha)
    return math.inf if r > len(calibration_scores) else sorted(calibration_scores)[r - 1]


def class_thresholds(calibration_scores, calibration_labels, num_labels, alpha):
    """One threshold a label, from the calibration nodes of that label alone."""
    pairs = list(zip(calibration_scores, calibration_labels, strict=True))
    return [threshold([s for s, y in pairs if y == c], alpha) for c in range(num_labels)]


def prediction_set(row, q):
    """{y : s_y <= q}; q is one number or one a label."""
    limits = q if isinstance(q, list) else [q] * len(row)
    return {y for y, s in enumerate(row) if s <= limits[y]}


def p_value(calibration_scores, s):
    """(1 + #{i : s_i >= s}) / (n + 1)."""
    return Fraction(1 + sum(c >= s for c in calibration_scores), len(calibration_scores) + 1)


def smoothed_p_range(calibration_scores, s):
    """Both ends of (#{s_i > s} + u (1 + #{s_i = s})) / (n + 1) as u runs over [0, 1]."""
    n = len(calibration_scores)
    above = sum(c > s for c in calibration_scores)
    return Fraction(above, n + 1), p_value(calibration_scores, s)


def true_scores(scores, labels, nodes):
    """s(x_i, y_i) of the nodes."""
    return [scores[i][labels[i]] for i in nodes]


# ---- Choice of parameters --------------------------------------------------------------------

SNAPS_GRID = [(i, j) for i in range(21) for j in range(21 - i)]
DAPS_GRID = list(range(20))
RAPS_PENALTIES = [0.001, 0.01, 0.1, 0.2, 0.5, 1.0, 1.5]


def total_size(scores, labels, nodes, alpha):
    """Sum of the sizes of the nodes' sets, thresholded by these same nodes' true-label scores."""
    q = threshold(true_scores(scores, labels, nodes), alpha)
    return sum(len(prediction_set(scores[i], q)) for i in nodes)


def snaps_mixes(parts):
    """The mixed scores of every (lam, mu)."""
    return {(i, j): mix(*parts, i / 20, j / 20) for i, j in SNAPS_GRID}


def tune_snaps(parts, labels, nodes, alpha, total_size=total_size):
    """(lam, mu) of smallest mean size; ties to the smaller lam + mu, then to the smaller lam."""
    return best_mix(snaps_mixes(parts), labels, nodes, alpha, total_size)


def best_mix(mixes, labels, nodes, alpha, total_size=total_size):
    sizes = {ij: total_size(scores, labels, nodes, alpha) for ij, scores in mixes.items()}
    i, j = min(SNAPS_GRID, key=lambda ij: (sizes[ij], ij[0] + ij[1], ij[0]))
    return i / 20, j / 20


def average_snaps(parts, labels, nodes, alpha, samples):
    """The mean of the best (lam, mu) of resamples, and of (1/3, 1/3) as if by 50 nodes more."""
    mixes = snaps_mixes(parts)
    best = [
        best_mix(mixes, labels, [nodes[place] for place in sample], alpha) for sample in samples
    ]
    share = len(nodes) / (len(nodes) + 50)
    return tuple(
        share * sum(pair[side] for pair in best) / len(best) + (1 - share) / 3 for side in (0, 1)
    )


def tune_daps(scores, linked_rows, labels, nodes, alpha, total_size=total_size):
    """The weight of smallest mean size; ties to the smaller."""
    sizes = [total_size(daps(scores, linked_rows, i / 20), labels, nodes, alpha) for i in DAPS_GRID]
    return DAPS_GRID[sizes.index(min(sizes))] / 20


def tune_raps(probs, draws, labels, nodes, alpha, total_size=total_size):
    """(k_reg, penalty) of smallest mean size; ties to the smaller penalty, then larger k_reg."""
    best = None
    for penalty in RAPS_PENALTIES:
        for k_reg in reversed(range(len(probs[0]))):
            scores = table(raps_formula(k_reg, penalty), probs, draws)
            size = total_size(scores, labels, nodes, alpha)
            if best is None or size < best[0]:
                best = size, k_reg, penalty
    return best[1:]


def raps_formula(k_reg, penalty):
    return lambda p, y, xi=1.0: raps(p, y, k_reg, penalty, xi)


def saps_formula(weight):
    return lambda p, y, xi=1.0: saps(p, y, weight, xi)


# ---- Metrics: sets and labels are lists of equal length ----------------------------------------


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values) if values else math.nan


def coverage(sets, labels):
    return mean(y in c for c, y in zip(sets, labels, strict=True))


def size(sets):
    return mean(len(c) for c in sets)


def size_nonempty(sets):
    return mean(len(c) for c in sets if c)


def empty(sets):
    return mean(not c for c in sets)


def singleton_hit(sets, labels):
    """Share of all nodes whose set is exactly {y}."""
    return mean(c == {y} for c, y in zip(sets, labels, strict=True))


STRATA = [(0, 1), (2, 3), (4, 10), (11, 100), (101, 1000)]


def sscv(sets, labels, alpha, strata=STRATA):
    """Largest |coverage - (1 - alpha)| over the strata of set size that hold a node."""
    worst = 0.0
    for low, high in strata:
        inside = [(c, y) for c, y in zip(sets, labels, strict=True) if low <= len(c) <= high]
        if inside:
            worst = max(worst, abs(mean(y in c for c, y in inside) - (1 - alpha)))
    return worst


def class_coverage(sets, labels, num_labels):
    """Coverage among the nodes of each label; NaN for a label without nodes."""
    pairs = list(zip(sets, labels, strict=True))
    return [mean(y in c for c, y in pairs if y == label) for label in range(num_labels)]


def hit_probability(hits, n, m, alpha):
    """P(hits of m test nodes) when n of n + m untied nodes, drawn at random, are for calibration.

    The r-th calibration score is the (hits + r)-th smallest of all n + m: choose which of the
    smaller ones calibrate, and which of the larger ones.
    """
    r = rank(n, alpha)
    ways = math.comb(hits + r - 1, r - 1) * math.comb(m - hits + n - r, n - r)
    return Fraction(ways, math.comb(n + m, n))
