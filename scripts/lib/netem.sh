# shellcheck shell=bash
# Cells on a bad path: netem delays, loses, reorders, repeats and damages what the guest sends, and that
# is data in one direction and acknowledgments in the other. Sourced, after wires.sh; uses `line`,
# `passed` and `failed` of scripts/interop.

netem_kinds=("delay 1ms" "loss 1%" "delay 1ms reorder 95% gap 5" "duplicate 2%" "corrupt 1%"
  "delay 1ms 200us loss 1% duplicate 1% corrupt 1%")

# netem [SETTINGS]: of what the guest sends from now on; a good path without.
netem() {
  # shellcheck disable=SC2086 # one word per setting
  if [[ -n ${1:-} ]]; then
    in_guest 10 sh -c "modprobe sch_netem; tc qdisc replace dev eth0 root netem limit 10000 $1"
  else
    in_guest 10 tc qdisc del dev eth0 root
  fi
}

# bad_path SETTINGS NAME COMMAND...
bad_path() {
  local settings=$1 name=$2 began=$SECONDS verdict=passed
  shift 2
  netem "$settings"
  "$@" >"$scratch/cell.log" 2>&1 || verdict=FAILED
  netem
  line "$verdict" $((SECONDS - began)) "$wire: $name, $settings"
  if [[ $verdict == passed ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -n 15 "$scratch/cell.log" | cut -c1-200
  fi
}

# tcp_both_ways SETTINGS: a million octets to our echo and back; check_tcp.py judges the capture.
tcp_both_ways() {
  local options=() status=0
  [[ $1 != *corrupt* ]] || options=(--corrupted)
  start_capture
  in_guest 60 sh -c "
    head -c 1000000 /dev/urandom >/tmp/bulk
    sent=\$(sha256sum </tmp/bulk) echoed=\$(nc $ours4 7 </tmp/bulk | sha256sum)
    [ \"\$sent\" = \"\$echoed\" ] || { echo the echo differs; exit 1; }" || status=1
  stop_capture "$scratch/netem.pcap"
  "$root/scripts/tests/check_tcp.py" "${options[@]}" "$ours4" "$scratch/netem.pcap" || status=1
  return "$status"
}

# tcp_on_a_bad_path: our TCP alone against the guest's; the guest must run, and nothing of ours.
tcp_on_a_bad_path() {
  local kind
  run_ours "$scratch/tcp_peer.log" "$target/release/examples/tcp_peer" "${eal[@]}" -- \
    --address "$ours4/24" --address "$ours6/64"
  reachable || die "the guest cannot ping tcp_peer over $wire"
  for kind in "${netem_kinds[@]}"; do
    bad_path "$kind" "TCP both ways" tcp_both_ways "$kind"
  done
  end "$program" || failed=$((failed + 1))
}

# rping_on_a_bad_path: the guest's rping against our service, which compares the data.
rping_on_a_bad_path() {
  local kind
  for kind in "${netem_kinds[@]}"; do
    bad_path "$kind" "siw pings" their_rping "$port" "$ours4" 20 4000
  done
}
