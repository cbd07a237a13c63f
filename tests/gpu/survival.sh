#!/usr/bin/env bash
# survival.sh BIN: bad kernels on a real GPU. Each template of tests/data/bad_templates has a good and a bad variant: the
# bad one must be recorded as what it is, the good one must win, and lookups must keep answering. Needs a GPU.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$1
device=cuda:0
# shellcheck source=tests/gpu/daemon.sh
. "$root/tests/gpu/daemon.sh"
start --template-dir "$root/tests/data/bad_templates" || exit 1
failed=0
rooftune tune softmax rows=1024 cols=1024 dtype=bf16 --max-trials 4 >/dev/null 2>&1 || failed=1
for kind in illegal_address spin wrong half_written out_of_bounds; do
  op=$(rooftune templates list --json | python3 -c "
import json, sys
print(next(o['example'] for o in json.load(sys.stdin)['op'] if o['kind'] == '$kind'))")
  begin=$(date +%s.%N)
  # shellcheck disable=SC2086
  sweep=$(rooftune tune $op --strategy exhaustive --run-timeout-ms 5000 --detach)
  lookups=0 errors=0
  while state=$(rooftune sweep show "$sweep" --json | python3 -c "import json,sys; print(json.load(sys.stdin)['state'])") &&
        [[ $state != DONE && $state != FAILED ]]; do
    lookups=$((lookups + 1))
    rooftune best softmax rows=1024 cols=1024 dtype=bf16 --miss fail >/dev/null 2>&1 || errors=$((errors + 1))
    sleep 0.05
  done
  end=$(date +%s.%N)
  echo "== $kind: $state in $(python3 -c "print(f'{$end-$begin:.1f}')") s, $lookups lookups meanwhile, $errors failed"
  rooftune trials "$sweep" --json | python3 -c "
import json, sys
bad = good = 0
for t in json.load(sys.stdin)['trial']:
    fault = int(t['config']['fault'])
    print('  ', t['outcome'], {k: int(v) for k, v in t['config'].items()}, t.get('message', '')[:100])
    good += fault == 0 and t['outcome'] == 'OK'
    bad += fault == 1 and t['outcome'] not in ('OK', 'COMPILE_FAILED')
sys.exit(0 if bad and good else 1)" || { echo "   UNEXPECTED"; failed=1; }
  [ "$errors" -eq 0 ] || failed=1
done
exit $failed
