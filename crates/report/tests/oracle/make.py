"""Makes statistics.json: what scipy and statsmodels say, for the tests of `report::stats`.

Run with numpy, scipy and statsmodels installed: python3 make.py > statistics.json
"""

import json

import numpy as np
import scipy
import statsmodels
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

rng = np.random.default_rng(7)


def clusters():
    for problems, most, kind in [(2, 1, "01"), (5, 4, "01"), (30, 16, "01"), (40, 3, "part"), (100, 1, "part"), (12, 9, "01")]:
        rows = []
        for _ in range(problems):
            n = int(rng.integers(1, most + 1))
            ease = rng.random()
            rows.append([float(rng.random() < ease) if kind == "01" else round(float(rng.random()), 3) for _ in range(n)])
        means = [np.mean(r) for r in rows]
        yield {"problems": rows, "mean": float(np.mean(means)), "se": float(stats.sem(means))}


def discordant():
    for better, worse in [(0, 1), (3, 1), (5, 0), (10, 10), (12, 3), (40, 22), (200, 150), (333, 301), (1000, 900)]:
        yield {"better": better, "worse": worse, "p": float(mcnemar([[7, better], [worse, 9]], exact=True).pvalue)}


def differences(n, shift):
    return [round(float(v), 2) for v in np.clip(rng.normal(shift, 0.4, n), -1, 1)]


def flips():
    for n, shift in [(4, 0.5), (8, 0.2), (12, 0.1), (14, 0.3), (40, 0.1), (80, 0.05)]:
        d = differences(n, shift)
        exact = n <= 14
        result = stats.permutation_test(
            (np.array(d),), np.sum, permutation_type="samples", n_resamples=np.inf if exact else 400_000,
            alternative="two-sided", rng=rng, batch=10_000)
        # The two-sided rule of scipy doubles the smaller tail; the distribution is symmetric, so both agree.
        yield {"differences": d, "exact": exact, "p": float(result.pvalue)}


def intervals():
    for n, shift in [(10, 0.2), (30, 0.1), (100, 0.05), (400, 0.0)]:
        d = differences(n, shift)
        low, high = stats.bootstrap((np.array(d),), np.mean, n_resamples=200_000, method="percentile", rng=rng, batch=5_000).confidence_interval
        mean, se = float(np.mean(d)), float(stats.sem(d))
        normal = [float(v) for v in stats.norm.interval(0.95, loc=mean, scale=se)]
        mde = float((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * se)
        yield {"differences": d, "mean": mean, "se": se, "normal": normal, "bootstrap": [float(low), float(high)], "detectable": mde}


def adjusted():
    for n in [1, 2, 6, 12]:
        p = [round(float(v), 6) for v in rng.random(n) ** 3]
        yield {"p": p, "holm": [float(v) for v in multipletests(p, method="holm")[1]]}


def passes():
    for n, c, k in [(16, 3, 1), (16, 3, 8), (16, 0, 4), (16, 15, 2), (64, 5, 32), (200, 7, 100), (10, 2, 9)]:
        yield {"n": n, "c": c, "k": k, "pass": float(stats.hypergeom.sf(0, n, c, k))}


print(json.dumps({
    "made_with": {"scipy": scipy.__version__, "statsmodels": statsmodels.__version__, "numpy": np.__version__},
    "clusters": list(clusters()),
    "mcnemar": list(discordant()),
    "sign_flips": list(flips()),
    "intervals": list(intervals()),
    "holm": list(adjusted()),
    "pass_at_k": list(passes()),
}, indent=None, separators=(",", ":")))
