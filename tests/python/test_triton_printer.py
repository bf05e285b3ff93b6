"""Every Triton candidate of small models' groups, in Triton's interpreter, against the judge's evaluation of the loop IR."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from triton_interpreter import CASES, SCANS

ROOT = Path(__file__).resolve().parent.parent.parent
ALL = [*CASES, *SCANS]


def _dump():
    named = os.environ.get("KERNELOPT_CODEGEN_DUMP")
    found = [Path(named)] if named else list(ROOT.glob("build*/codegen_dump")) + list(ROOT.glob("build/*/codegen_dump"))
    return max((path for path in found if path.exists()), key=lambda path: path.stat().st_mtime, default=None)


@pytest.fixture(scope="session")
def records(tmp_path_factory):
    if importlib.util.find_spec("triton") is None:
        pytest.skip("this Python has no triton")
    dump = _dump()
    if dump is None:
        pytest.skip("codegen_dump is not built; name it in KERNELOPT_CODEGEN_DUMP")
    folder = tmp_path_factory.mktemp("interpreter")
    script = Path(__file__).with_name("triton_interpreter.py")
    # Two processes, so that two cores are busy.
    parts = [
        subprocess.Popen(
            [sys.executable, str(script), str(dump), str(folder), *ALL[start::2]], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=dict(os.environ, TRITON_INTERPRET="1"),
        )
        for start in (0, 1)
    ]
    result = {name: [] for name in ALL}
    for part in parts:
        out, err = part.communicate(timeout=600)
        assert part.returncode == 0, err[-3000:]
        for line in out.splitlines():
            record = json.loads(line)
            result[record["case"]].append(record)
    return result


@pytest.mark.parametrize("name", ALL)
def test_candidates_agree_with_the_loop_ir(records, name):
    ran = [record for record in records[name] if "refused" not in record]
    assert ran, f"no candidate: {[record['refused'] for record in records[name]]}"
    for record in ran:
        text = f"{record.get('what')}\n{record.get('source', '')}"
        assert "error" not in record, f"{record.get('error')}\n{text}"
        assert record["structure"] and record["violations"] == 0, f"off by {record['max_abs']}: {text}"
        assert record["observed"] == [True] * 4, text
