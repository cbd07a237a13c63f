#!/usr/bin/env bash
# sanitize.sh BIN [REPORT]: compute-sanitizer's memcheck, racecheck, synccheck and initcheck over every template's
# smallest and ragged shapes, then racecheck over kernels with planted races, which it must find. racecheck gets kernels
# of which every lane arrives at barriers (common/tma.cuh says why), the others those that are served. BIN holds
# rooftune-worker and make_batch (build/release/bin). REPORT.json gets a row a run, REPORT.d the tools' logs. Needs a GPU.
# Several runs go side by side: nothing is timed, and each has a lease and ports of its own.
#   COMPUTE_SANITIZER   the tool, if it is not where it is usually installed
#   SANITIZE_JOBS       runs side by side (cores, 6 at most)
#   SANITIZE_LIMIT_S    seconds of one run (240; racecheck of kernels with many barriers takes long)
#   SANITIZE_ONLY       only runs whose "TOOL NAME" matches this extended regular expression
#   SANITIZE_TOTAL_S    no run starts after so long, and those that are left are reported as not run (300)
# Exit code 0: clean; 1: something was found, or not all was run; 77: there is no compute-sanitizer.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(cd "$1" && pwd)
report=${2:-sanitize}
logs=$report.d
limit=${SANITIZE_LIMIT_S:-240}
total=${SANITIZE_TOTAL_S:-300}
cores=$(nproc)
jobs=${SANITIZE_JOBS:-$((cores < 6 ? cores : 6))}
export ROOFTUNE_SOURCE_DIR=$root ROOFTUNE_BIN_DIR=$bin
sanitizer=
for candidate in "${COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer)" "${CUDA_PATH:-/usr/local/cuda}"/bin/compute-sanitizer \
                 "${CUDA_PATH:-/usr/local/cuda}"/compute-sanitizer/compute-sanitizer \
                 /usr/local/cuda-*/bin/compute-sanitizer /usr/local/cuda-*/compute-sanitizer/compute-sanitizer; do
  if [ -n "$candidate" ] && [ -x "$candidate" ]; then sanitizer=$candidate; break; fi
done
if [ -z "$sanitizer" ]; then
  echo "no compute-sanitizer on this machine (it comes with the CUDA toolkit)"
  echo '{"problem": "no compute-sanitizer on this machine"}' >"$report.json"
  exit 77
fi
rm -rf "$logs" && mkdir -p "$logs"
logs=$(cd "$logs" && pwd)
version=$("$sanitizer" --version | tail -n 1)
ports=; "$sanitizer" --help 2>/dev/null | grep -q -- --base-port && ports=yes
{ "$bin/make_batch" "$logs/served" && "$bin/make_batch" "$logs/every-lane" --racecheck; } >"$logs/make_batch.txt" 2>&1 ||
  { cat "$logs/make_batch.txt"; exit 1; }
echo "$version; frames made in $SECONDS s; $jobs runs side by side"

# check TOOL NAME FRAMES NUMBER: one batch under one tool, its row to rows/TOOL-NAME.
check() {
  local tool=$1 name=$2 frames=$3 number=$4 start code summary answers
  local log=$logs/$tool-$name
  if [ "$SECONDS" -ge "$total" ]; then
    printf '%s\t%s\t-1\t0\tnot run\t\n' "$tool" "$name" >"$logs/rows/$tool-$name"
    return
  fi
  start=${EPOCHREALTIME/[.,]/}
  mkdir -p "$log.run"
  # The lease on the GPU is a file below XDG_RUNTIME_DIR.
  XDG_RUNTIME_DIR=$log.run timeout -k 5 "$limit" "$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 \
    --target-processes all ${ports:+--base-port $((49200 + number * 16)) --max-connections 16} \
    --log-file "$log.txt" "$bin/rooftune-worker" run --device 0 --batch "$frames" \
    >"$log.answers" 2>"$log.stderr"
  code=$?
  rm -rf "$log.run"
  summary=$(grep -h SUMMARY "$log.txt" 2>/dev/null | sed 's/^=* *//' | tail -n 1)
  answers=$("$bin/make_batch" --show "$log.answers" | tr '\t\n' '  ')
  printf '%s\t%s\t%d\t%d.%03d\t%s\t%s\n' "$tool" "$name" "$code" \
    $(((${EPOCHREALTIME/[.,]/} - start) / 1000000)) $(((${EPOCHREALTIME/[.,]/} - start) / 1000 % 1000)) \
    "${summary:-no summary}" "$answers" >"$logs/rows/$tool-$name"
}

mkdir -p "$logs/rows"
number=0
# run TOOL FRAMES: as soon as there is room for it.
run() {
  local name
  name=$(basename "$2" .frames)
  [[ "$1 $name" =~ ${SANITIZE_ONLY:-.} ]] || return 0
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  check "$1" "$name" "$2" "$number" &
  number=$((number + 1))
}
# The quick tools first (a second each), racecheck last: it takes ten, and several at once share one GPU.
for tool in memcheck synccheck initcheck; do
  for frames in "$logs"/served/*.frames; do run "$tool" "$frames"; done
done
# Planted races behind everything else.
for frames in "$logs"/every-lane/*.frames; do
  [[ $frames == */race-* ]] || run racecheck "$frames"
done
for frames in "$logs"/every-lane/race-*.frames; do
  [ -e "$frames" ] && run racecheck "$frames"
done
wait
python3 "$root/tools/sanitize_report.py" "$logs/rows" --version "$version" --seconds "$SECONDS" --out "$report.json"
