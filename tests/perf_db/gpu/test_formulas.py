"""Formulas of the architecture files: arithmetic over symbols, nothing else."""

from __future__ import annotations

import pytest

from perf_db.gpu.formulas import FormulaError, evaluate

SYMBOLS = {"H": 64, "G": 8, "T": 16, "backend": "vllm"}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        (7, 7),
        ("H // T + 2 * 3", 10),
        ("ceil(G / T)", 1),
        ("max(G // T, 1)", 1),
        ("-G", -8),
        ("G if T > 16 else H", 64),
        ("backend == 'vllm' and T > 1", True),
        ("not (T > 1 or G > 1)", False),
    ],
)
def test_values(formula, value):
    assert evaluate(formula, SYMBOLS) == value


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("H / X", "no symbol 'X'; there are G, H, T, backend"),
        ("H +", "formula 'H +'"),
        ("H.real", "'H.real' is not allowed"),
        ("__import__('os')", "is not allowed"),
        ("[1][0]", "is not allowed"),
        ("open('x')", "is not allowed"),
    ],
)
def test_what_is_no_formula_says_so(formula, said):
    with pytest.raises(FormulaError, match="formula") as caught:
        evaluate(formula, SYMBOLS)
    assert said in str(caught.value)
