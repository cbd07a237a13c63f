#!/usr/bin/env bash
# collect_evidence.sh OUT [BIN]: runs the documented suites on the GPU of this machine by a private daemon and writes one
# evidence file a suite to OUT/<suite>/<date>.jsonl.gz, and one of a suite's less usual variants to
# OUT/<suite>/<date>-variants.jsonl.gz. BIN holds the binaries (build/release/bin). Needs a GPU; takes a
# few minutes. `tools/summarize.py` makes docs/evidence/summary.json and the tables from such files.
#   ROOFTUNE_SUITES   only these suites ("gemm_fp8 rows rows-variants"), so that they can be split over several cards
#   ROOFTUNE_ONLY     only operators that match this extended regular expression
#   ROOFTUNE_TRIALS   trials a sweep (160)
#   ROOFTUNE_SECONDS  no further sweep starts after so long
#   ROOFTUNE_AFTER    a command to run last, beside the daemon
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
bin=${2:-$root/build/release/bin}
trials=${ROOFTUNE_TRIALS:-160}
device=cuda:0
# shellcheck source=tests/gpu/daemon.sh
. "$root/tests/gpu/daemon.sh"
start --template-dir "$root/examples/declared_op"

rooftune devices calibrate
# suite NAME [PART]: reads operators from stdin, tunes each and exports the suite's sweeps.
suite() {
  local name=$1 part=${2:+-$2} sweeps=() op sweep
  [[ " ${ROOFTUNE_SUITES:-$name$part} " == *" $name$part "* ]] || return 0
  while read -r op; do
    [[ -n $op && $op =~ ${ROOFTUNE_ONLY:-.} ]] || continue
    [ "$SECONDS" -lt "${ROOFTUNE_SECONDS:-86400}" ] || { echo "left out: $op"; continue; }
    # shellcheck disable=SC2086
    sweep=$(rooftune tune $op --max-trials "$trials" --seed 7 --detach)
    rooftune sweep watch "$sweep" >"$work/last" 2>/dev/null || true
    sed -n 's/^\(operator\|best\|baseline\|note\|time spent\) */&/p' "$work/last"
    sweeps+=("$sweep")
  done
  [ ${#sweeps[@]} -gt 0 ] || return 0
  mkdir -p "$out/$name"
  rooftune export "${sweeps[@]}" --suite "$name" -o "$out/$name/$(date -u +%Y%m%d)$part.jsonl.gz"
}

suite gemm_bf16 <<'END'
gemm m=4096 n=4096 k=4096 dtype=bf16
gemm m=2048 n=6144 k=4096 dtype=bf16
gemm m=8192 n=8192 k=8192 dtype=bf16
gemm m=512 n=28672 k=4096 dtype=bf16
gemm m=128 n=4096 k=4096 dtype=bf16
gemm m=64 n=576 k=7168 dtype=bf16
gemm m=16 n=28672 k=4096 dtype=bf16
gemm m=1 n=4096 k=4096 dtype=bf16
gemm m=1000 n=3333 k=777 dtype=bf16
END
suite gemm_fp32 <<'END'
gemm m=2048 n=2048 k=2048 dtype=fp32
gemm m=512 n=4096 k=1024 dtype=fp32
gemm m=16 n=4096 k=4096 dtype=fp32
END
suite gemm_fp8 <<'END'
gemm m=16 n=28672 k=4096 dtype=fp8_e4m3 out=bf16
gemm m=64 n=8192 k=28672 dtype=fp8_e4m3 out=bf16
gemm m=2048 n=8192 k=8192 dtype=fp8_e4m3 out=bf16 scale=tensor
gemm m=4096 n=4096 k=14336 dtype=fp8_e4m3 out=bf16 scale=row
gemm m=4096 n=4096 k=4096 dtype=fp8_e4m3 out=bf16 scale=block128
END
suite gemm_int <<'END'
gemm m=4096 n=4096 k=4096 dtype=int8 out=bf16 scale=row
gemm m=64 n=8192 k=8192 dtype=int8 out=bf16 scale=row
END
suite gemm_wq <<'END'
gemm_wq m=1 n=28672 k=4096 dtype=bf16
gemm_wq m=16 n=28672 k=4096 dtype=bf16
gemm_wq m=16 n=8192 k=28672 dtype=bf16
gemm_wq m=16 n=28672 k=4096 dtype=bf16 weight=int8 group=0
gemm_wq m=32 n=28672 k=4096 dtype=bf16
gemm_wq m=64 n=28672 k=4096 dtype=bf16
gemm_wq m=256 n=28672 k=4096 dtype=bf16
gemm_wq m=256 n=28672 k=4096 dtype=fp16 zero=1
gemm_wq m=256 n=28672 k=4096 dtype=bf16 weight=int8 group=0
END
suite moe <<'END'
moe_gemm m=128 n=28672 k=4096 experts=8 dtype=bf16
moe_gemm m=128 n=4096 k=14336 experts=8 dtype=bf16
moe_gemm m=8192 n=28672 k=4096 experts=8 dtype=bf16
moe_gemm m=8192 n=4096 k=14336 experts=8 dtype=bf16 scatter=1 weighted=1
moe_gemm m=512 n=1536 k=2048 experts=128 dtype=bf16
moe_gemm m=32768 n=1536 k=2048 experts=128 topk=8 dtype=bf16 gather=1
moe_gemm m=32768 n=2048 k=768 experts=128 dtype=bf16
moe_gemm m=4096 n=4096 k=7168 experts=32 rows_max=1024 dtype=bf16 layout=masked
moe_gemm m=4096 n=4096 k=7168 experts=32 dtype=fp8_e4m3
moe_gemm m=4096 n=7168 k=2048 experts=32 rows_max=1024 dtype=fp8_e4m3 layout=masked
moe_gemm m=4096 n=4096 k=7168 experts=32 topk=8 dtype=fp8_e4m3 gather=1
moe_gemm m=4096 n=7168 k=2048 experts=32 dtype=fp8_e4m3 scatter=1 weighted=1
END
suite rows <<'END'
softmax rows=333 cols=777 dtype=fp32
rmsnorm rows=32768 cols=4096 dtype=bf16
rmsnorm rows=16384 cols=8192 dtype=bf16 quant=fp8_e4m3
layernorm rows=32768 cols=4096 dtype=bf16
layernorm rows=16384 cols=8192 dtype=bf16 residual=1 bias=1
softmax rows=16384 cols=8192 dtype=bf16 log=1
softmax rows=16384 cols=16384 dtype=bf16 causal=1
rope tokens=16384 heads_q=32 heads_kv=8 head_dim=128 dtype=bf16
rope tokens=16384 heads_q=32 heads_kv=8 head_dim=128 blocks=1024 dtype=bf16 inplace=1 kv_cache=1
glu rows=16384 cols=14336 dtype=bf16 quant=fp8_e4m3
quantize rows=16384 cols=8192 dtype=bf16 qtype=fp8_e4m3
quantize rows=16384 cols=8192 dtype=bf16 qtype=fp8_e4m3 granularity=group128 scale_layout=col
quantize rows=16384 cols=8192 dtype=bf16 qtype=fp8_e4m3 granularity=block128
quantize rows=16384 cols=8192 dtype=bf16 qtype=int8 granularity=tensor
quantize rows=16384 cols=8192 dtype=bf16 qtype=int4 granularity=group32
quantize rows=64 cols=4096 dtype=bf16 qtype=fp8_e4m3
dequantize rows=16384 cols=8192 dtype=bf16 qtype=fp8_e4m3 granularity=group128
dequantize rows=16384 cols=8192 dtype=bf16 qtype=int4 granularity=group32
reduce rows=16384 cols=16384 dtype=bf16
layernorm rows=32768 cols=4096 dtype=bf16 quant=int8
layernorm rows=16384 cols=8192 dtype=bf16 residual=1 pre=relu bias=1
layernorm rows=8192 cols=32768 dtype=bf16
rmsnorm rows=8192 cols=32768 dtype=bf16
softmax rows=64 cols=1048576 dtype=bf16
rmsnorm rows=16384 cols=8192 dtype=bf16 act=silu
softmax rows=8192 cols=32768 dtype=bf16 mask=1
reduce rows=16384 cols=16384 dtype=bf16 axis=full kind=argmax
permute d0=16 d1=16 d2=32 d3=1 d4=64 d5=2 d6=64 d7=2 dtype=bf16 perm=2461357
permute d0=1 d1=3 d2=32 d3=2 d4=45 d5=16 d6=80 d7=16 dtype=bf16 perm=2461357
contiguous d0=4096 d1=16384 dtype=bf16 s0=32768 s1=1
contiguous d0=12288 d1=12288 dtype=bf16 s0=1 s1=12352
elementwise n=65536 d1=4096 dtype=bf16 chain=add(a,b:1)
elementwise n=134217728 dtype=bf16 chain=add(a,b) inplace=1
elementwise n=134217728 dtype=bf16 chain=relu(add(a,b)) out=fp32
elementwise n=134217728 dtype=bf16 chain=relu(add(a,b))
elementwise n=134217728 dtype=fp32 chain=fma(a,b,c)
elementwise n=1000003 dtype=fp16 chain=gelu(a)
swiglu rows=16384 cols=14336 dtype=bf16
softmax rows=65536 cols=1024 dtype=bf16
softmax rows=16384 cols=8192 dtype=bf16
softmax rows=4096 cols=131072 dtype=bf16
rmsnorm rows=16384 cols=8192 dtype=bf16 residual=1
rmsnorm rows=64 cols=4096 dtype=bf16
glu rows=16384 cols=14336 dtype=bf16
cross_entropy rows=8192 vocab=128256 dtype=bf16
permute d0=16384 d1=16384 dtype=bf16 perm=10
END
suite gemm_bf16 variants <<'END'
gemm m=2048 n=4096 k=4096 dtype=bf16 layout=nn
gemm m=2048 n=4096 k=4096 dtype=bf16 layout=tn
gemm m=2048 n=4096 k=4096 dtype=bf16 layout=tt
gemm m=512 n=512 k=1024 batch=64 dtype=bf16
gemm m=2048 n=4096 k=4096 dtype=bf16 lda=12288 ldb=4352
gemm m=2048 n=4096 k=4096 dtype=bf16 out=fp32
gemm m=2048 n=4096 k=4096 dtype=bf16 bias=1 act=gelu
gemm m=2048 n=4096 k=4096 dtype=bf16 bias=1 act=silu beta=1
gemm m=64 n=4096 k=14336 dtype=bf16 bias=1 act=relu
gemm m=2048 n=4096 k=4096 dtype=bf16 out=fp8_e4m3 bias=1 act=gelu
END
suite gemm_fp16 variants <<'END'
gemm m=2048 n=4096 k=4096 dtype=fp16
gemm m=16 n=28672 k=4096 dtype=fp16
END
suite gemm_fp8 variants <<'END'
gemm m=2048 n=4096 k=4096 dtype=fp8_e5m2 out=bf16
gemm m=2048 n=4096 k=4096 dtype=fp8_e4m3 out=bf16 scale=tensor bias=1 act=gelu
gemm m=2048 n=4096 k=4096 dtype=fp8_e4m3 out=fp8_e4m3 scale=tensor
gemm m=64 n=7168 k=8192 dtype=fp8_e4m3 out=bf16 scale=block128
gemm m=64 n=7168 k=8192 dtype=fp8_e4m3 out=bf16 scale=row
END
suite gemm_int variants <<'END'
gemm m=2048 n=4096 k=4096 dtype=int8 out=int8 scale=row bias=1 act=relu
gemm m=2048 n=4096 k=4096 dtype=int8 out=fp16 scale=tensor
gemm m=2048 n=4100 k=4096 dtype=int8 out=fp16 scale=row
END
suite gemm_wq variants <<'END'
gemm_wq m=1 n=28672 k=4096 dtype=bf16 weight=int8 group=0
gemm_wq m=16 n=28672 k=4096 dtype=fp16 zero=1
gemm_wq m=2048 n=4096 k=4096 dtype=bf16
gemm_wq m=16 n=28672 k=4096 dtype=bf16 group=64 bias=1 act=silu
END
suite rows variants <<'END'
elementwise n=67108864 dtype=bf16 chain=silu(mul(a:fp32,b)) out=fp16
softmax rows=1048576 cols=128 dtype=bf16
softmax rows=16384 cols=8192 dtype=fp16 scaled=1
softmax rows=16384 cols=8192 dtype=fp32
rmsnorm rows=16384 cols=8192 dtype=bf16 quant=int8
rmsnorm rows=16384 cols=8192 dtype=fp16 act=gelu
rmsnorm rows=16384 cols=8192 dtype=fp32
layernorm rows=16384 cols=8192 dtype=bf16 bias=1 quant=fp8_e4m3
layernorm rows=16384 cols=8192 dtype=fp32 bias=1
layernorm rows=16384 cols=8192 dtype=bf16 residual=1 pre=gelu bias=1
rmsnorm rows=16384 cols=8192 dtype=bf16 pre=silu quant=int8
glu rows=16384 cols=14336 dtype=bf16 packed=0 act=gelu
glu rows=16384 cols=14336 dtype=fp16 packed=0 quant=int8
rope tokens=16384 heads_q=32 heads_kv=8 head_dim=128 dtype=bf16 style=interleaved
rope tokens=16384 heads_q=32 heads_kv=8 head_dim=128 dtype=fp32
cross_entropy rows=4096 vocab=128256 dtype=bf16 grad=1
cross_entropy rows=4096 vocab=32000 dtype=fp32
reduce rows=16384 cols=8192 dtype=bf16 kind=mean
reduce rows=16384 cols=8192 dtype=fp32 kind=var
reduce rows=16384 cols=8192 dtype=bf16 axis=col kind=max
reduce rows=16384 cols=8192 dtype=bf16 axis=col kind=argmax
quantize rows=16384 cols=8192 dtype=bf16 qtype=fp8_e5m2
quantize rows=16384 cols=8192 dtype=bf16 qtype=int8
quantize rows=16384 cols=8192 dtype=bf16 qtype=int4 granularity=group64
quantize rows=16384 cols=8192 dtype=bf16 qtype=int4 granularity=group128
quantize rows=16384 cols=8192 dtype=bf16 qtype=fp8_e4m3 granularity=group128 scale_pow2=1
dequantize rows=16384 cols=8192 dtype=bf16 qtype=fp8_e5m2 granularity=tensor
dequantize rows=16384 cols=8192 dtype=bf16 qtype=int8 granularity=token
dequantize rows=16384 cols=8192 dtype=bf16 qtype=fp8_e4m3 granularity=block128
dequantize rows=16384 cols=8192 dtype=bf16 qtype=int4 granularity=group128
permute d0=16384 d1=16384 dtype=int8 perm=10
permute d0=8192 d1=8192 dtype=fp32 perm=10
contiguous d0=64 d1=112 d2=112 d3=64 dtype=bf16 s0=802816 s1=112 s2=1 s3=12544
contiguous d0=8 d1=16 d2=32 d3=64 d4=128 dtype=bf16 s0=4194304 s1=128 s2=131072 s3=2048 s4=1
END
if [ -n "${ROOFTUNE_AFTER:-}" ]; then bash -c "$ROOFTUNE_AFTER"; fi
