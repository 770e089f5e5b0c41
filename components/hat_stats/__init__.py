"""Statistics for evaluations, judges and canaries. Torch-free; numpy, scipy and krippendorff do the arithmetic.

    bootstrap      paired contrasts and means with percentile intervals; strata, clusters, training seeds
    significance   McNemar, Wilcoxon, Holm, Benjamini-Hochberg
    power          how many items, and what difference they can show
    moments        what an arm is summarised by: per-unit means and ratios
    sequential     intervals and p-values that stay valid under peeking
    betting        the same for bounded metrics, without asymptotics
    cuped          variance reduction by what was known before
    srm            sample-ratio mismatch, once and sequentially
    agreement      kappa, alpha, sensitivity, specificity, proportions
    correction     scores corrected for a judge's errors; prediction-powered means
    drift          has tonight's distribution moved?
    verdict        words that never say more than the interval

Always holds: in every contrast of (a, b) the difference is a − b, a being the candidate and b what it is held against.
NaN is a value that could not be judged: it is counted, it widens the interval, it is never zero. An undefined quantity
is None beside a state that says why, never a silent NaN. The same input and seed give the same result, and the order
of the items does not matter. Not here: reading evaluations (hat_components), drawing pages (hat_console).
Nothing is imported at this level, so that a caller loads scipy only when it computes.
"""
