#!/usr/bin/env bash
# winner_agreement.sh OUT [BIN]: does tuning the same thing again give the same answer? Each of four operators is tuned
# ten times, by a fresh daemon with an empty store each time, over the same candidates in another order; then the
# distinct winners are raced jointly. Also: the smallest kernel, and kernels that fault and hang. What the command line
# answers is kept below OUT; `tools/measuring.py OUT` makes docs/evidence/measuring.json of it. Needs a GPU that nobody
# else uses, and 16 cores; about five minutes. Exit code 1 if a sweep was left out or served
# nothing.
#   ROOFTUNE_REPEATS      sweeps an operator (10)
#   ROOFTUNE_CANDIDATES   candidates a sweep (64)
#   ROOFTUNE_SECONDS      no further sweep starts after so long (600)
#   ROOFTUNE_DEVICE       device (cuda:0)
#   ROOFTUNE_CALIBRATE    1 = also calibrate (half a minute more)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
bin=${2:-$root/build/release/bin}
repeats=${ROOFTUNE_REPEATS:-10}
candidates=${ROOFTUNE_CANDIDATES:-64}
budget=${ROOFTUNE_SECONDS:-600}
device=${ROOFTUNE_DEVICE:-cuda:0}
# shellcheck source=tests/gpu/daemon.sh
. "$root/tests/gpu/daemon.sh"

left_out=0
names=(gemm_64_576_7168 softmax_16384_8192 rmsnorm_16384_8192 gemm_4096)
ops=("gemm m=64 n=576 k=7168 dtype=bf16" "softmax rows=16384 cols=8192 dtype=bf16"
     "rmsnorm rows=16384 cols=8192 dtype=bf16" "gemm m=4096 n=4096 k=4096 dtype=bf16")
for i in "${!names[@]}"; do
  folder=$out/${names[$i]}
  mkdir -p "$folder"
  for run in $(seq -w "$repeats"); do
    [ "$SECONDS" -lt "$budget" ] || break
    mkdir -p "$folder/run$run"
    start
    # shellcheck disable=SC2086
    sweep=$(rooftune tune ${ops[$i]} --strategy random --seed "1$run" --top-predicted "$candidates" \
            --max-trials "$candidates" --no-baselines --no-vendor --detach) || { rm -r "$folder/run$run"; continue; }
    rooftune sweep watch "$sweep" >/dev/null 2>&1 || true
    rooftune sweep show "$sweep" --json >"$folder/run$run/sweep.json"
    rooftune trials "$sweep" --limit 1000 --json >"$folder/run$run/trials.json"
    # Only what a sweep published counts as served.
    rooftune records list --min-evidence measured --json >"$folder/run$run/records.json"
    echo "${names[$i]} run $run: $(rooftune best ${ops[$i]} --miss fail 2>/dev/null | grep -m1 -i time || true) ($SECONDS s)"
  done
  mapfile -t configs < <(python3 - "$folder" <<'END'
import json, pathlib, sys
winners = set()
for file in sorted(pathlib.Path(sys.argv[1]).glob("run*/records.json")):
    records = json.loads(file.read_text()).get("record", [])
    if not records:
        file.unlink()  # this sweep served nothing
        continue
    first = min(records, key=lambda r: r.get("rank", 0))
    winners.add(first["template_id"] + ":" + ",".join(f"{k}={v}" for k, v in sorted(first["config"].items())))
print("\n".join(sorted(winners)))
END
)
  left_out=$((left_out + repeats - $(find "$folder" -name records.json | wc -l)))
  start
  # shellcheck disable=SC2086
  rooftune try ${ops[$i]} "${configs[@]/#/--config=}" --json >"$folder/race.json" || true
  echo "${names[$i]}: ${#configs[@]} distinct winners raced ($SECONDS s)"
done

start --template-dir "$root/tests/data/bad_templates"
rooftune try elementwise n=32 dtype=fp32 'chain=relu(a)' --l2 warm --json >"$out/smallest.json" || true
[ -z "${ROOFTUNE_CALIBRATE:-}" ] || rooftune devices calibrate --json >"$out/calibration.json"
for kind in illegal_address spin; do
  sweep=$(rooftune tune $kind n=1000000 --strategy exhaustive --run-timeout-ms 1000 --detach)
  rooftune sweep watch "$sweep" >/dev/null 2>&1 || true
  rooftune trials "$sweep" --limit 1000 --json >"$out/fault_$kind.json"
done
python3 - "$out" "${names[@]}" -- "${ops[@]}" <<'END'
import json, pathlib, sys
out, rest = pathlib.Path(sys.argv[1]), sys.argv[2:]
at = rest.index("--")
meta = {"op": [{"name": n, "op": o} for n, o in zip(rest[:at], rest[at + 1:])],
        "fault": [{"kind": "illegal_address"}, {"kind": "spin", "limit_ms": 1000}]}
(out / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
END
echo "done in $SECONDS s: tools/measuring.py $out"
[ "$left_out" -eq 0 ] || { echo "$left_out sweeps were left out, or served nothing" >&2; exit 1; }
