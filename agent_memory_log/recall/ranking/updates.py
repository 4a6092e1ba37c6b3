"""Puts texts that change an earlier statement above it, for a question about what holds now.

"Who is my physio?" finds "my physio is Bronwyn", but "I see some bloke named Idris now" shares no word with it. So
later texts are compared with the best text for the question, by the evidence that they are about the same thing. The
weights are round numbers. Labelled conversations in which a user changes facts, and the half ``dev`` of the corpus in
``benchmarks/recall``, decided them.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from agent_memory_log.recall.changes import CHANGE, CLOCK, DATE, NAME, NUMBER
from agent_memory_log.recall.index.columns import Columns, Flags, Floats, Numbers
from agent_memory_log.recall.index.conversations import ASSISTANT_ROLE, Conversations
from agent_memory_log.recall.index.documents import Documents
from agent_memory_log.recall.index.lexical import LexicalIndex
from agent_memory_log.recall.questions import Question

OWN: Final = 0.6
"""The evidence of a text that matches the question's words as well as the best text."""

SHARED: Final = 3.0
"""The evidence of a text that shares all rare terms with the best text. Half of them count as all."""

CHANGED: Final = 0.6
"""The evidence of words of a change."""

KIND: Final = 1.0
"""The evidence of a value of the kind that the question asks for."""

SAME_KIND: Final = 0.15
"""The evidence of a value of a kind that the best text has, if the question does not ask for a kind."""

NAMED: Final = 0.2
"""The evidence of a name."""

SPEAKER: Final = 0.4
"""The evidence of the same speaker."""

ANOTHER_TALK: Final = 0.3
"""The evidence of another talk: people change facts later, and go into details at once."""

LONG: Final = 1.5
"""The evidence that a text of ``LONGEST`` words or more lacks. A long text shares terms by chance."""

LONGEST: Final = 40

LEAST: Final = 0.5
"""The least evidence of a change."""

LEAST_OF_MANY: Final = 0.3
"""The evidence that a change needs in addition for each factor e in the number of texts that are compared."""

MOST: Final = 2
"""The most texts that one search puts above the best text."""

ABOVE: Final = 0.01
"""The share of the best text's score by which a text that changes it exceeds it. The latest text comes first."""

ANCHOR: Final = 0.5
"""A text with a value of the kind that is asked for counts as the best text if it has this share of the best score."""

RECENT: Final = 1e-4
"""The score of the latest statement that does not match."""

MOST_EQUAL: Final = 10
"""The most texts with the best score. One of more texts that are equally good is no answer that others change."""

_VALUES: Final = DATE | CLOCK | NUMBER


def update_gains(
    question: Question,
    total: Floats,
    own: Floats,
    allowed: Flags,
    conversations: Conversations,
    columns: Columns,
    documents: Documents,
    lexical: LexicalIndex,
) -> Floats | None:
    """Return the gain of each text that changes the best text, by document number, or None if there is no such text.

    Args:
        question: The question.
        total: The score of each document that may be returned, otherwise 0.
        own: The score of each document by its own words and vectors.
        allowed: True for each document that may be returned, even if its score is 0.
        conversations: The conversations of the documents.
        columns: The properties of the documents.
        documents: The documents.
        lexical: The terms of the documents.
    """
    best = _best(question, np.where(columns["question"], 0.0, total), columns, documents) if question.now else None
    if best is None:
        return None
    signs, times, lengths = columns["signs"], columns["time"], columns["length"]
    later: Numbers = np.flatnonzero(allowed & (signs > 0) & (times > times[best])).astype(np.int32)
    later = later[conversations.may_change(best, later)]
    if not len(later):
        return None
    evidence = OWN * np.minimum(own[later] / max(float(own[best]), 1e-9), 1)
    evidence += SHARED * np.minimum(lexical.shared_terms(documents.read(best).terms)[later], 0.5)
    signs_of_later = signs[later]
    evidence += CHANGED * (signs_of_later & CHANGE > 0) + NAMED * (signs_of_later & NAME > 0)
    if question.kinds:
        evidence += KIND * (signs_of_later & question.kinds > 0)
    else:
        evidence += SAME_KIND * (signs_of_later & (int(signs[best]) & _VALUES) > 0)
    evidence += SPEAKER * (columns["speaker"][later] == columns["speaker"][best])
    evidence += ANOTHER_TALK * (columns["talk"][later] != columns["talk"][best])
    evidence -= LONG / LONGEST * np.minimum(lengths[later], LONGEST)
    least = LEAST + LEAST_OF_MANY * math.log(len(later))
    changing = _first(evidence, later, times, columns["position"])
    gains = np.zeros(len(total))
    changing = changing[evidence[np.searchsorted(later, changing)] >= least]
    for place, time in enumerate(np.unique(times[changing]), start=1):
        at_once = changing[times[changing] == time]
        gains[at_once] = np.maximum(total[best] * (1 + ABOVE * place) - total[at_once], 0)
    return gains


def recent_statements(total: Floats, allowed: Flags, columns: Columns) -> Floats:
    """Return a small score for each statement that does not match but may change what others say, the latest most."""
    states = (
        allowed & (total == 0) & (columns["signs"] > 0) & ~columns["question"] & (columns["role"] != ASSISTANT_ROLE)
    )
    places = np.unique(np.nan_to_num(columns["time"]), return_inverse=True)[1] + 1
    return np.where(states, RECENT / places.max() * places, 0.0)


def _first(evidence: Floats, later: Numbers, times: Floats, positions: NDArray[np.int64]) -> Numbers:
    """Return the ``MOST`` documents with the most evidence, then the latest. Equal ones stay or go together."""
    keys = np.stack([np.round(evidence, 9), times[later], positions[later].astype(np.float64)])
    order = np.lexsort(keys[::-1])[::-1]
    count = min(MOST, len(later))
    while 0 < count < len(later) and (keys[:, order[count - 1]] == keys[:, order[count]]).all():
        count -= 1
    return later[order[:count]]


def _best(question: Question, scores: Floats, columns: Columns, documents: Documents) -> int | None:
    """Return the document that answers the question best. Return None if no document matches, or too many are equal."""
    most = float(scores.max(initial=0))
    if not most:
        return None
    of_kind = np.where(columns["signs"] & question.kinds > 0, scores, 0.0)
    if of_kind.max(initial=0) >= ANCHOR * most:
        scores, most = of_kind, float(of_kind.max())
    equal = np.flatnonzero(scores == most)
    if len(equal) > MOST_EQUAL:
        return None
    return int(equal[0]) if len(equal) == 1 else min(equal.tolist(), key=lambda number: documents.read(number).id)
