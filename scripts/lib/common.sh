# shellcheck shell=bash
# What every script shares: messages, the project's folders, children ended by pid.
# Sourced, after `set -euo pipefail`.

# shellcheck disable=SC2034 # used by those who source this
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck disable=SC2034
cache=${IRONWARP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ironwarp}
export PATH=$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin

say() { echo "${0##*/}: $*" >&2; }
die() { say "$*"; exit 1; }

# Exit status of a part that could not run here; its last line on stdout says why.
readonly SKIPPED=77
skip() { echo "skipped: $*"; exit "$SKIPPED"; }

is_root() { [[ $(id -u) == 0 ]]; }

# --- children and clean-up ----------------------------------------------------

declare -A children=()
cleanups=()

# track PID: end this child when the script ends, unless it was finished before.
track() { children[$1]=1; }

# at_exit COMMAND: run it when the script ends, the latest first.
at_exit() { cleanups=("$1" "${cleanups[@]}"); }

# finish PID: wait for the child; its exit status.
finish() {
  local status=0
  wait "$1" 2>/dev/null || status=$?
  unset "children[$1]"
  return "$status"
}

# end PID [SIGNAL]: ask the child to end, insist after 10 seconds; its exit status.
end() {
  local i
  kill "-${2:-TERM}" "$1" 2>/dev/null || true
  for ((i = 0; i < 100; i++)); do
    kill -0 "$1" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$1" 2>/dev/null || true
  finish "$1"
}

# shellcheck disable=SC2317 # called by the traps
clean_up() {
  local status=$? pid command
  trap - EXIT INT TERM
  set +e
  for pid in "${!children[@]}"; do end "$pid"; done
  for command in "${cleanups[@]}"; do eval "$command"; done
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# scratch: sets `scratch` to a new folder that goes with the script.
make_scratch() {
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/ironwarp.XXXXXX")
  at_exit "rm -rf '$scratch'"
}

# wait_for SECONDS COMMAND...: until the command succeeds; 1 when it never did.
wait_for() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}
