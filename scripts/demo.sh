#!/usr/bin/env bash
# Optimizes one example and ends with the outcome table and the path of the report. DEMO_MODEL and DEMO_MINUTES override.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$ROOT"
model=${DEMO_MODEL:-examples/group_norm.py}
minutes=${DEMO_MINUTES:-4}
out=runs/demo-$(date +%Y%m%d-%H%M%S)
say "kernelopt optimize $model --minutes $minutes --out $out"
"$VENV/bin/kernelopt" optimize "$model" --minutes "$minutes" --seed 0 --out "$out"
echo
"$VENV/bin/kernelopt" report "$out"
printf '\nreport: %s\n' "$ROOT/$out/report.json"
