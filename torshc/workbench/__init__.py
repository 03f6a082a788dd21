"""Tools over compilations and bundles: verify, bench, tune, bisect, eject and what they share."""
