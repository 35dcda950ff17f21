# shellcheck shell=bash
# Network namespaces, veth pairs and taps of tests; CPUs. Sourced, after common.sh.

# need_network: ends the part as skipped where namespaces cannot be made.
need_network() {
  is_root || skip "needs root for network namespaces"
  [[ -e /dev/net/tun ]] || skip "there is no /dev/net/tun"
  local name=iwprobe$$
  ip netns add "$name" 2>/dev/null || skip "network namespaces cannot be made here"
  ip netns del "$name"
}

# make_namespace NAME: goes with the script.
make_namespace() {
  ip netns add "$1"
  at_exit "ip netns del '$1'"
  ip -n "$1" link set lo up
}

# plain_wire NAMESPACE IFACE: no offloads, so that every frame is within the MTU and has its
# checksums, as on a wire; up.
plain_wire() {
  ip netns exec "$1" ethtool -K "$2" tx off rx off tso off gso off gro off >/dev/null 2>&1 || true
  ip -n "$1" link set "$2" up
}

# lcores: EAL option that puts the main lcore on the first CPU of this process and a poll core on
# its last.
lcores() {
  local list first last
  list=$(taskset -cp $$ | sed 's/.*: //')
  first=${list%%[-,]*} last=${list##*[-,]}
  echo "--lcores 0@$first,1@$last"
}
