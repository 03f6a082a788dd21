"""Features of texts against the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nodes import check, refused


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_counts_of_grams(mode: str) -> None:
    x = np.array([[1, 2, 1, 1, 3, 2], [2, 2, 2, 1, 2, 9]], np.int32)
    common: dict[str, Any] = {
        "pool_int64s": [1, 2, 1, 1, 2, 2, 9, 2], "ngram_counts": [0, 2], "min_gram_length": 1, "max_gram_length": 2,
        "max_skip_count": 2, "mode": mode, "weights": [0.5, 1.5, 2.0, 3.0, 4.0],
    }  # fmt: skip
    check("TfIdfVectorizer", x, ngram_indexes=[0, 1, 2, 3, 4], **common)
    check("TfIdfVectorizer", x[0], ngram_indexes=[0, 1, 2, 3, 4], **common)
    if mode != "TF":
        refused("TfIdfVectorizer", x, match="another order", ngram_indexes=[4, 3, 2, 1, 0], **common)
