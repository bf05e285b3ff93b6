"""Every model of the shared cases through the executable; optimized.py is then compared with eager in another process."""
import json
from pathlib import Path

import pytest

from harness import ROOT, SMALL, check_optimized, optimize

FOLDER = ROOT.parent / "shared" / "cases"
CASES = sorted(FOLDER.glob("[0-9]*.py")) if FOLDER.is_dir() else []
# The short form: one of each kind (NaN, integers, mutation, structure, buffers, tied weights, no function of the inputs).
SHORT = ("01_", "03_", "13_", "15_", "17_", "25_", "35_")
OUTCOMES = ("optimized", "matched", "fallback", "eager")


def marks(path):
    return [] if path.name.startswith(SHORT) else [pytest.mark.long]


@pytest.mark.skipif(not CASES, reason=f"{FOLDER} is not there: the shared cases cannot be run")
def test_all_cases_are_here():
    assert len(CASES) >= 18


@pytest.mark.parametrize("case", [pytest.param(c, id=c.stem, marks=marks(c)) for c in CASES])
def test_case(case, tmp_path, long_form):
    budget = ["--minutes", "2"] if long_form else [*SMALL, "--minutes", "1"]
    run = optimize(case, tmp_path / "out", "--seed", "3", *budget)
    assert run.status == 0, run.explain()
    assert "Traceback" not in run.stdout + run.stderr, run.explain()
    assert run.left_behind == []
    report = run.report
    assert report["outcome"] in OUTCOMES
    found = check_optimized(case, run.out, "--case", case.stem)
    assert found["failures"] == [], json.dumps(report.get("notes", report["outcome"]))[:2000]


@pytest.mark.skipif(not CASES, reason=f"{FOLDER} is not there")
def test_all_extra_demands_have_their_case():
    import cases_extra
    assert set(cases_extra.CASES) <= {Path(c).stem for c in CASES}
