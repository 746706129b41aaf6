#!/usr/bin/env bash
# One pass on a machine with a GPU. Nothing is installed: what runs here needs torch, triton, numpy and pytest only.
#
#   scripts/gpu.sh OUT [SECONDS] [BUNDLE ...]
#
# PARTS names what is run, in this order; each part gets what is left of SECONDS (default 480) and leaves its log in OUT.
#   tests       the tests marked gpu, PROCESSES files at a time (default 1). TESTS holds more options.
#   bundles     bundles of jobs: OUT/results-NAME.jsonl for each. Copy it back into the bundle as results.jsonl, then
#               `kernelwright jobs import`. A bundle that ran into the time limit goes on when the script is run again.
#   selftest    the adversarial corpus: OUT/selftest.jsonl, rates in OUT/referee.json
#   throughput  candidates a minute beside KernelBench's evaluator: OUT/throughput.json. KERNELBENCH names a checkout of
#               ScalingIntelligence/KernelBench; without it only our side is measured. THROUGHPUT holds more options.
#   aa          the reference beside itself: OUT/aa-cuda.jsonl. AA holds more options.
# Figures are written on the machine that has the repository: `python benchmarks/throughput.py report OUT/throughput.json`
# and `python benchmarks/aa.py report OUT/aa-cuda.jsonl`.
set -uo pipefail
out=${1:?usage: scripts/gpu.sh OUT [SECONDS] [BUNDLE ...]}
limit=${2:-480}
shift $(($# < 2 ? $# : 2))
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "$0")/.." || exit 3
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
began=$SECONDS
status=0

left() { echo $((limit - (SECONDS - began))); }

# Runs a command with its output in a log, for as long as time is left.
part() {
    local name=$1 log=$2
    shift 2
    if [ "$(left)" -lt 10 ]; then
        echo "$name: no time left"
        status=4
        return
    fi
    echo "== $name"
    timeout "$(left)" "$@" 2>&1 | tee "$out/$log.log" || status=$?
}

for wanted in ${PARTS:-tests bundles}; do
    case $wanted in
    tests)
        # Each file in a process of its own: a fault that ends the device's context takes no other file's tests along.
        # shellcheck disable=SC2016  # the inner shell's words
        part "tests marked gpu" tests xargs -P "${PROCESSES:-1}" -I FILE bash -o pipefail -c \
            'python3 -m pytest -q -p no:cacheprovider -m gpu $0 FILE 2>&1 | tail -n 60' "${TESTS:-}" \
            < <(grep -rlE 'mark\.gpu' tests --include='test_*.py' | sort)
        ;;
    bundles)
        for bundle in "$@"; do
            part "$bundle" "bundle-$(basename "$bundle")" \
                python3 -m kernelwright.stages.execute.worker "$bundle" --time "$(left)"
            cp "$bundle/results.jsonl" "$out/results-$(basename "$bundle").jsonl"
        done
        ;;
    selftest)
        part selftest selftest python3 -m kernelwright.stages.execute.selftest --device cuda \
            --json "$out/selftest.jsonl" --results "$out/referee.json"
        ;;
    throughput)
        # shellcheck disable=SC2086  # THROUGHPUT is several words
        part throughput throughput python3 benchmarks/throughput.py run --log "$out/throughput.json" \
            ${KERNELBENCH:+--kernelbench "$KERNELBENCH"} ${THROUGHPUT:-}
        ;;
    aa)
        # shellcheck disable=SC2086  # AA is several words
        part aa aa python3 benchmarks/aa.py run cuda --log "$out/aa-cuda.jsonl" --time "$(left)" ${AA:-}
        ;;
    *)
        echo "unknown part $wanted" >&2
        exit 2
        ;;
    esac
done
exit "$status"
