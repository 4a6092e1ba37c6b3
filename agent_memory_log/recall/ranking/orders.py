"""Orders the best documents by time if the question wants the latest or the first."""

from __future__ import annotations

from typing import Final

import numpy as np

from agent_memory_log.recall.index.columns import Columns, Floats
from agent_memory_log.recall.questions import FIRST, LATEST, Question

RELEVANT: Final = {LATEST: 0.5, FIRST: 0.8}
"""The share of the best score that a text needs to be ordered by its time. Words such as "first" have other uses."""

STEP: Final = 1e-6
"""The share by which each next text has a lower score, so that equal scores get an order too."""

MOST: Final = 50
"""The most texts that are ordered by time."""


def ordered(question: Question, total: Floats, columns: Columns) -> Floats | None:
    """Return scores in the order of time that the question wants, or None if it wants the best text first.

    Relevant documents exchange their scores.

    Args:
        question: The question.
        total: The score of each document that may be returned, otherwise 0.
        columns: The properties of the documents.
    """
    order = next((order for order in RELEVANT if order in question.wants), None)
    if order is None or not total.any():
        return None
    best = np.argsort(-total, kind="stable")[:MOST]
    relevant = best[(total[best] >= RELEVANT[order] * total[best[0]]) & ~columns["question"][best]]
    times = np.nan_to_num(columns["time"][relevant])
    in_order = relevant[np.argsort(-times if order == LATEST else times, kind="stable")]
    scores = total.copy()
    scores[in_order] = total[relevant] * (1 - STEP * np.arange(len(relevant)))
    return scores
