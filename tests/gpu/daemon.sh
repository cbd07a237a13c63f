# shellcheck shell=bash
# For scripts to source: a private daemon with an empty store, which `start` begins anew and the script's end stops.
# Reads $bin, the folder of the binaries, and $device.
work=$(mktemp -d)
export ROOFTUNE_ADDRESS=unix:$work/s
daemon=
stop() {
  [ -z "$daemon" ] || { kill -TERM "$daemon" 2>/dev/null || true; wait "$daemon" 2>/dev/null || true; }
  daemon=
  rm -rf "$work/data" "$work/s"
}
# start OPTION…: options of rooftuned beyond those here.
start() {
  stop
  "$bin/rooftuned" --listen "$ROOFTUNE_ADDRESS" --data-dir "$work/data" --device "$device" --log-level error "$@" >/dev/null &
  daemon=$!
  for _ in $(seq 100); do [ -S "$work/s" ] && return 0; sleep 0.1; done
  echo "the daemon does not answer" >&2
  return 1
}
trap 'stop; rm -rf "$work"' EXIT
rooftune() { "$bin/rooftune" "$@"; }
