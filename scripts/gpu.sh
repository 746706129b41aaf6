#!/usr/bin/env bash
# One pass on a machine with a GPU: the tests marked `gpu`, then bundles of jobs. Nothing is installed: what runs here
# needs torch, triton, numpy and pytest only.
#
#   scripts/gpu.sh OUT [SECONDS] [BUNDLE ...]
#
# OUT gets gpu-tests.log, and results-NAME.jsonl for each bundle; a bundle that ran into the time limit goes on when the
# script is run again. Copy each results-NAME.jsonl back into its bundle as results.jsonl, then `kernelwright jobs import`.
set -uo pipefail
out=${1:?usage: scripts/gpu.sh OUT [SECONDS] [BUNDLE ...]}
limit=${2:-480}
shift $(($# < 2 ? $# : 2))
cd "$(dirname "$0")/.." || exit 3
mkdir -p "$out"
export PYTHONPATH=src PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
began=$SECONDS
status=0
mapfile -t files < <(grep -rlE 'mark\.gpu' tests --include='test_*.py')
python3 -m pytest -q -p no:cacheprovider -m gpu "${files[@]}" 2>&1 | tee "$out/gpu-tests.log" || status=$?
for bundle in "$@"; do
    left=$((limit - (SECONDS - began)))
    [ "$left" -gt 10 ] || { echo "no time left for $bundle"; status=4; break; }
    python3 -m kernelwright.stages.execute.worker "$bundle" --time "$left" || status=$?
    cp "$bundle/results.jsonl" "$out/results-$(basename "$bundle").jsonl"
done
exit "$status"
