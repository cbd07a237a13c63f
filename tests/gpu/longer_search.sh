#!/usr/bin/env bash
# longer_search.sh OUT [BIN]: is the default budget enough? Each operator is tuned by a fresh daemon with an empty store as
# `rooftune tune` does it unasked, then over ten times as many candidates; the two best templates are raced. What the command
# line answers is kept below OUT; `tools/measuring.py --longer OUT` adds it to docs/evidence/measuring.json. Needs a GPU that
# nobody else uses; one to two minutes an operator on 16 cores.
#   ROOFTUNE_SECONDS   no further operator starts after so long (300)
#   ROOFTUNE_LONGER    candidates of the longer search (640)
#   ROOFTUNE_DEVICE    device (cuda:0)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
bin=${2:-$root/build/release/bin}
device=${ROOFTUNE_DEVICE:-cuda:0}
# shellcheck source=tests/gpu/daemon.sh
. "$root/tests/gpu/daemon.sh"

# search NAME OPTION…: one sweep of $op; its progress and what is served after it go to $folder/NAME*.json.
search() {
  local name=$1 sweep
  shift
  # shellcheck disable=SC2086
  sweep=$(rooftune tune $op "$@" --detach)
  rooftune sweep watch "$sweep" >/dev/null 2>&1 || true
  rooftune sweep show "$sweep" --json >"$folder/$name.json"
  rooftune records list --min-evidence measured --json >"$folder/$name-records.json"
}

while read -r op; do
  [ "$SECONDS" -lt "${ROOFTUNE_SECONDS:-300}" ] || { echo "left out: $op"; continue; }
  folder=$out/$(tr -c 'a-z0-9\n' _ <<<"$op")
  mkdir -p "$folder"
  start
  search default
  search longer --max-trials "${ROOFTUNE_LONGER:-640}"
  mapfile -t configs < <(python3 - "$folder" <<'END'
import json, pathlib, sys
for name in ("default", "longer"):
    records = json.loads((pathlib.Path(sys.argv[1]) / f"{name}-records.json").read_text())["record"]
    first = min((r for r in records if r.get("provider", "TEMPLATE") == "TEMPLATE"), key=lambda r: r.get("rank", 0))
    print(first["template_id"] + ":" + ",".join(f"{k}={v}" for k, v in sorted(first["config"].items())))
END
)
  mapfile -t distinct < <(printf '%s\n' "${configs[@]}" | sort -u)
  # shellcheck disable=SC2086
  rooftune try $op "${distinct[@]/#/--config=}" --json >"$folder/race.json"
  printf '{"op": "%s", "default": "%s", "longer": "%s"}\n' "$op" "${configs[@]}" >"$folder/meta.json"
  echo "$op: ${configs[*]} ($SECONDS s)"
done <<'END'
gemm m=4096 n=4096 k=4096 dtype=bf16
gemm m=64 n=7168 k=8192 dtype=bf16
gemm m=512 n=28672 k=4096 dtype=bf16
softmax rows=16384 cols=8192 dtype=bf16
END
echo "done in $SECONDS s: tools/measuring.py --longer $out"
