"""Ctrl-C keeps the best so far; a killed run resumes to the same outcome and loses no finished candidate."""
import os
import random
import signal
import sqlite3
import time

import pytest

from harness import ROOT, check_optimized, finish, run, start, wait_gone

MODEL = ROOT / "examples" / "softmax_strided.py"  # of the fixture `finished`
SEARCH = ["--rounds", "2", "--plans", "3", "--chains", "2", "--beam", "2", "--seed", "5", "--minutes", "4"]  # the same


def journal_rows(out):
    """Rows of every table of the journal, as sets; {} while there is none. Nothing here knows the journal's columns."""
    path = out / "journal.sqlite"
    if not path.exists():
        return {}
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        names = [n for (n,) in db.execute("select name from sqlite_master where type = 'table' and name not like 'sqlite_%'")]
        return {name: set(map(repr, db.execute(f'select * from "{name}"'))) for name in names}
    finally:
        db.close()


def candidates(report):
    """Digest of every candidate in the report."""
    found = set()

    def walk(value, key=""):
        if isinstance(value, dict):
            if "digest" in value and "gates" in value:
                found.add(value["digest"])
            for name, item in value.items():
                walk(item, name)
        elif isinstance(value, list):
            for item in value:
                walk(item, key)

    walk(report.get("candidates", report))
    return found


def wait_for(condition, process, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        if condition():
            return True
        time.sleep(0.1)
    return False


def test_interrupt_keeps_the_best(tmp_path):
    out = tmp_path / "out"
    began = time.monotonic()
    process, mark = start(["optimize", MODEL, "--out", out, "--rounds", "20", "--minutes", "20", "--seed", "5"])
    # Some rows after the search began, then Ctrl-C to the whole foreground group, as a terminal does.
    assert wait_for(lambda: sum(map(len, journal_rows(out).values())) >= 20, process, 400), "no search began"
    os.killpg(process.pid, signal.SIGINT)
    result = finish(process, mark, began, 120, out)
    assert result.status == 130, result.explain()
    assert "resume" in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert result.left_behind == []
    assert (out / "journal.sqlite").exists()


def near_threshold(report):
    """Whether the interval of the speed-up touches 1 or the margin, where a rerun may fairly end otherwise."""
    speedup = report.get("speedup") or {}
    low, high = (speedup.get("interval") or [0, 10])[:2]
    return any(low <= t <= high for t in (1.0, 1.03))


def killed_run(out, kills, rng, longest):
    """Runs the search, killing it `kills` times at random moments; checks the journal each time; returns the report."""
    arguments = ["optimize", MODEL, "--out", out, *SEARCH]
    kept = {}
    for _ in range(kills):
        process, mark = start(arguments)
        moment = rng.uniform(0.5, longest)
        try:
            process.communicate(timeout=moment)
            alive = False
        except Exception:
            alive = True
        if alive:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        assert wait_gone(mark, 10) == [], f"children outlived the engine killed after {moment:.2f} s"
        now = journal_rows(out)
        for table, rows in kept.items():
            assert rows <= now.get(table, set()), f"table {table} lost rows after a kill at {moment:.2f} s"
        kept = now
        if kept:
            arguments = ["resume", out]
    result = run(arguments, timeout=900, out=out)
    assert result.status == 0, result.explain()
    now = journal_rows(out)
    for table, rows in kept.items():
        assert rows <= now[table], f"table {table} lost rows in the last resume"
    return result


def test_killed_and_resumed(finished, tmp_path, long_form):
    whole = finished
    seed = int(os.environ.get("KERNELOPT_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    print(f"seed of the kills: {seed} (KERNELOPT_TEST_SEED repeats it)")
    killed = killed_run(tmp_path / "killed", 20 if long_form else 3, random.Random(seed), whole.seconds * 0.7)
    if not near_threshold(whole.report) and not near_threshold(killed.report):
        assert killed.report["outcome"] == whole.report["outcome"]
    assert check_optimized(MODEL, killed.out)["failures"] == []
    assert candidates(killed.report), "the report names no candidate"
