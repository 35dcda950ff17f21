# shellcheck shell=bash
# The binaries that scripts run. Sourced, after common.sh.

target=${CARGO_TARGET_DIR:-$root/target}
# shellcheck disable=SC2034 # used by those who source this
ironwarp=$target/release/ironwarp
# shellcheck disable=SC2034
bench=$target/release/ironwarp-bench

# Cargo prints its progress, and does nothing where nothing changed.
build_release() {
  (cd "$root" && cargo build --locked --release -p control -p bench) || die "the build failed"
}
