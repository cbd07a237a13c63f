#!/usr/bin/env bash
# collect_sweeps.sh OUT [BIN]: random sweeps of bf16 GEMMs over the layers of several models, every trial with its
# registers, spills and time: what the cost model is fitted to and judged by. Layers are the distinct n × k of
# tests/bench/peers/gemm_shapes.csv, each with the m of ROOFTUNE_M. One evidence file, OUT/gemm_space/DATE-PART.jsonl.xz:
# many trials, so packed as small as can be. tools/sweep_space.py makes the table of them.
# Needs a GPU that nobody else uses; several cards share the work by ROOFTUNE_PART.
#   ROOFTUNE_TRIALS   compiled candidates a shape (240)
#   ROOFTUNE_M        rows (16 256 2048)
#   ROOFTUNE_PART     i/n: only every n-th shape, from the i-th on (1/1)
#   ROOFTUNE_SECONDS  no further sweep starts after so long
#   ROOFTUNE_DEVICE   device (cuda:0)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)/gemm_space
bin=${2:-$root/build/release/bin}
part=${ROOFTUNE_PART:-1/1}
device=${ROOFTUNE_DEVICE:-cuda:0}
# shellcheck source=tests/gpu/daemon.sh
. "$root/tests/gpu/daemon.sh"
start

layers=$(grep -v '^#' "$root/tests/bench/peers/gemm_shapes.csv" | tail -n +2 | awk -F, '{print $4, $5}' | sort -u)
number=0
sweeps=()
for m in ${ROOFTUNE_M:-16 256 2048}; do
  while read -r n k; do
    number=$((number + 1))
    [ $(((number - ${part%/*}) % ${part#*/})) -eq 0 ] || continue
    [ "$SECONDS" -lt "${ROOFTUNE_SECONDS:-86400}" ] || { echo "left out: m=$m n=$n k=$k"; continue; }
    # The same seed: shapes share configurations, and so their compiles.
    sweep=$(rooftune tune gemm m="$m" n="$n" k="$k" dtype=bf16 --strategy random --seed 7 --detach --no-baselines --no-vendor \
            --max-trials "${ROOFTUNE_TRIALS:-240}")
    rooftune sweep watch "$sweep" >"$work/last" 2>/dev/null || true
    echo "m=$m n=$n k=$k: $(sed -n 's/^best *//p' "$work/last" | head -n 1) ($SECONDS s)"
    sweeps+=("$sweep")
  done <<<"$layers"
done
[ ${#sweeps[@]} -gt 0 ] || { echo "nothing was swept" >&2; exit 1; }
mkdir -p "$out"
rooftune export "${sweeps[@]}" --suite gemm_space -o "$work/sweeps.jsonl"
xz -9e <"$work/sweeps.jsonl" >"$out/$(date -u +%Y%m%d)-${part/\//of}.jsonl.xz"
