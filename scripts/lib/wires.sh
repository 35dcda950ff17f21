# shellcheck shell=bash
# The two wires between a program of ours and the siw guest, and captures of them.
# Sourced, after common.sh and network.sh, with `scratch` made.
#
#   tap     our net_tap - bridge in a namespace - the guest's tap; captured on the bridge's port
#   vhost   our net_vhost - the guest's virtio NIC, no kernel between; captured in the guest
#
# Sets: wire, config (a copy of configs/rping-WIRE.conf for this run), ours4 ours6 guest4 guest6,
# namespace, eal (that file's EAL options).

guest=siw$$
siw_guest() { "$root/scripts/guest/siw-guest" "$@"; }
in_guest() { siw_guest exec --timeout "$1" "$guest" -- "${@:2}"; }

# open_wire tap|vhost
open_wire() {
  wire=$1
  config=$scratch/rping-$wire.conf
  namespace=iw$wire$$
  make_namespace "$namespace"
  at_exit "'$root/scripts/guest/siw-guest' stop '$guest'"
  cp "$root/configs/rping-$wire.conf" "$config"
  if [[ $wire == vhost ]]; then
    socket=$scratch/vhost.sock
    sed -i -E "s#iface=[^, ]+#iface=$socket#" "$config"
  else
    tap=$(sed -nE 's/^eal .*net_tap.*iface=([^, ]+).*/\1/p' "$config" | head -1)
    [[ -n $tap ]] || die "configs/rping-tap.conf names no iface= of its net_tap"
    ip -n "$namespace" link add dev bridge0 type bridge forward_delay 0 mcast_snooping 0
    ip -n "$namespace" link set bridge0 up
    ip -n "$namespace" tuntap add guest0 mode tap
    ip -n "$namespace" link set guest0 master bridge0 up
  fi
  # Not in the way of an appliance that already runs here.
  sed -i -E "s#--file-prefix=[^ ]+#--file-prefix=$namespace#" "$config"
  mapfile -t eal < <(sed -nE 's/^eal //p' "$config" | sed 's/#.*//' | xargs -n 1)
  read -r ours4 ours6 < <(sed -nE 's/^set port 0 address ([^ /]+).*/\1/p' "$config" | sort | xargs)
  [[ -n $ours4 && $ours6 == *:* ]] || die "configs/rping-$wire.conf lacks an IPv4 or IPv6 address"
  guest4=${ours4%.*}.99 guest6=${ours6%:*}:99
}

# run_ours LOG COMMAND...: starts a program of ours on the wire and waits for its port; sets `program`.
run_ours() {
  local log=$1
  shift
  [[ $wire != vhost ]] || rm -f "$socket"
  ip netns exec "$namespace" "$@" >"$log" 2>&1 &
  program=$!
  track "$program"
  wait_for 20 port_is_there || { cat "$log"; die "${1##*/} did not open its port"; }
  [[ $wire != tap ]] || join_bridge
}

port_is_there() {
  kill -0 "$program" || return 0 # ended early: no use to wait
  if [[ $wire == vhost ]]; then
    [[ -S $socket ]]
  else
    ip -n "$namespace" link show dev "$tap" up | grep -q LOWER_UP
  fi
}

# The kernel's end of our tap has the MAC address of our port; a bridge takes frames to it for its
# own, so that end gets another.
join_bridge() {
  ip -n "$namespace" link set dev "$tap" address 02:00:00:00:00:77 2>/dev/null || return 0
  ip -n "$namespace" link set dev "$tap" master bridge0
}

# boot_guest [SIW OPTIONS]: a fresh guest on the wire; a program of ours must run.
boot_guest() {
  local nic=(--netns "$namespace" --tap guest0)
  [[ $wire != vhost ]] || nic=(--vhost-user "$socket")
  siw_guest stop "$guest"
  siw_guest start "$guest" "${nic[@]}" --ip "$guest4/24" --ip6 "$guest6/64" --siw "${1:-}"
}

# reachable: the guest can ping us, so addresses are resolved and no retry is in the captures.
reachable() {
  in_guest 30 sh -c "for i in 1 2 3 4 5 6 7 8 9 10; do ping -c 1 -W 1 $ours4 && ping -6 -c 1 -W 1 $ours6 && exit; done; exit 1" >/dev/null
}

# start_capture: of TCP, until stop_capture FILE.
start_capture() {
  if [[ $wire == tap ]]; then
    rm -f "$scratch/cell.pcap"
    ip netns exec "$namespace" dumpcap -q -P -i guest0 -f tcp -B 32 -w "$scratch/cell.pcap" 2>/dev/null &
    capturing=$!
    track "$capturing"
    wait_for 10 test -s "$scratch/cell.pcap"
  else
    in_guest 10 rm -f /tmp/cell.pcap
    siw_guest exec "$guest" -- tcpdump -Z root --immediate-mode -U -B 16384 -i eth0 -w /tmp/cell.pcap tcp >/dev/null 2>&1 &
    capturing=$!
    track "$capturing"
    in_guest 10 sh -c 'until [ -s /tmp/cell.pcap ]; do sleep 0.1; done'
  fi
}

stop_capture() {
  sleep 0.5 # for the last frames
  if [[ $wire == tap ]]; then
    end "$capturing" INT || true
    mv "$scratch/cell.pcap" "$1"
  else
    # shellcheck disable=SC2016 # the guest's
    in_guest 10 sh -c 'kill -INT $(pidof tcpdump); while pidof tcpdump >/dev/null; do sleep 0.1; done'
    finish "$capturing" || true
    in_guest 60 sh -c 'gzip -c /tmp/cell.pcap | base64' | base64 -d | gunzip >"$1"
  fi
}
