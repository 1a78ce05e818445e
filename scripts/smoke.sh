#!/bin/sh
# Check that an installed wheel works: scripts/smoke.sh, with the environment's bin folder first in PATH.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_STATE_HOME="$folder/state"
cd "$folder"
taciturn doctor --json > doctor.json
python - << 'CHECK'
import json
from pathlib import Path

compiled = next(each for each in json.loads(Path("doctor.json").read_text())["findings"] if each["name"] == "compiled")
if compiled["state"] != "good":
    raise SystemExit(f"the compiled kernels do not work in this wheel: {compiled}")
CHECK
taciturn run --features none --rounds 2 --out run
test -s run/model.npz
test -s run/report.html
echo "the wheel works"
