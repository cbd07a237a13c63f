#!/usr/bin/env bash
# sanitize.sh BIN [REPORT]: compute-sanitizer's memcheck, racecheck, synccheck and initcheck over every template's
# smallest and ragged shapes, then racecheck over kernels with planted races, which it must find. BIN holds
# rooftune-worker and make_batch (build/release/bin). REPORT gets the summary, REPORT.d the tools' logs. Needs a GPU.
# COMPUTE_SANITIZER may name the tool.
# Exit code 0: clean; 1: something was found; 77: there is no compute-sanitizer.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(cd "$1" && pwd)
report=${2:-sanitize.txt}
logs=$report.d
limit=${SANITIZE_LIMIT_S:-40}
export ROOFTUNE_SOURCE_DIR=$root ROOFTUNE_BIN_DIR=$bin
sanitizer=
for candidate in "${COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer)" "${CUDA_PATH:-/usr/local/cuda}"/bin/compute-sanitizer \
                 "${CUDA_PATH:-/usr/local/cuda}"/compute-sanitizer/compute-sanitizer \
                 /usr/local/cuda-*/bin/compute-sanitizer /usr/local/cuda-*/compute-sanitizer/compute-sanitizer; do
  if [ -n "$candidate" ] && [ -x "$candidate" ]; then sanitizer=$candidate; break; fi
done
if [ -z "$sanitizer" ]; then
  echo "no compute-sanitizer on this machine (it comes with the CUDA toolkit)" | tee "$report"
  exit 77
fi
rm -rf "$logs" && mkdir -p "$logs"
exec > >(tee "$report") 2>&1
begin=$(date +%s)
"$sanitizer" --version | tail -n 2
"$bin/make_batch" "$logs/frames" >"$logs/make_batch.txt" || { cat "$logs/make_batch.txt"; exit 1; }
echo "frames made in $(($(date +%s) - begin)) s"

# check TOOL NAME: one batch under one tool; prints a line and leaves the tool's own summary in $summary.
check() {
  local tool=$1 name=$2 start code
  start=$(date +%s.%N)
  timeout -k 5 "$limit" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 --target-processes all \
    --log-file "$logs/$tool-$name.txt" "$bin/rooftune-worker" run --device 0 --batch "$logs/frames/$name.frames" \
    >"$logs/answers" 2>"$logs/$tool-$name.stderr"
  code=$?
  summary=$(grep -h SUMMARY "$logs/$tool-$name.txt" 2>/dev/null | sed 's/^=* *//' | tail -n 1)
  printf '%-10s %-38s exit %3d  %5.1f s  %s\n' "$tool" "$name" "$code" \
    "$(python3 -c "import time; print(time.time() - $start)")" "${summary:-no summary}"
  return $code
}

failed=0
for tool in memcheck racecheck synccheck initcheck; do
  for frames in "$logs"/frames/*.frames; do
    name=$(basename "$frames" .frames)
    [[ $name == race-* ]] && continue
    check "$tool" "$name" || failed=1
    "$bin/make_batch" --show "$logs/answers" || failed=1
  done
done
found=0 planted=0
for frames in "$logs"/frames/race-*.frames; do
  name=$(basename "$frames" .frames)
  planted=$((planted + 1))
  check racecheck "$name"
  if [ $? -eq 9 ]; then found=$((found + 1)); else echo "  not found by racecheck"; fi
  "$bin/make_batch" --show "$logs/answers" >"$logs/answers.txt"
  grep -qE '^  (WRONG_RESULT|OUT_OF_BOUNDS)' "$logs/answers.txt" && echo "  found by verification"
done
rm -f "$logs/answers" "$logs/answers.txt"
echo "planted races: racecheck finds $found of $planted"
echo "templates: $([ $failed -eq 0 ] && echo clean || echo NOT CLEAN); $(($(date +%s) - begin)) s in all"
exit $failed
