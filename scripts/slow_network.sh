#!/usr/bin/env bash
# What the wire's dtype and the hierarchy are worth on a slow network: all-reduces between two "hosts"
# of two ranks each, which are network namespaces joined by a veth pair that tc's tbf slows down. As
# root; needs ip and tc (iproute2) and a kernel with sch_tbf. Nothing outside the two namespaces is
# touched, and both go away at the end.
#
# usage: slow_network.sh [RATE] [BYTES] [SECONDS]     1gbit 1048576,16777216 0.5
#
# The model: S bytes of gradient, rate R. Flat Gloo with 4 ranks sends 2 S 3/4 of each rank, of which 2/3
# cross: 2 S over the wire of each host in each direction. The chain of two hosts sends S each way. A narrow
# wire dtype halves either.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly RATE=${1:-1gbit} BYTES=${2:-1048576,16777216} SECONDS_EACH=${3:-0.5}
readonly PROGRAM=${TUTTI_BENCH_BINARIES:-build/bench/bin}/all_reduce_bench
readonly CONTENDERS=c10d_gloo,gloo,gloo_bfloat16,hierarchical,hierarchical_bfloat16

fail() { printf 'slow_network: %s\n' "$*" >&2; exit 1; }
[ -x "$PROGRAM" ] || fail "$PROGRAM is missing; ./dev bench builds it"
command -v ip >/dev/null && command -v tc >/dev/null || fail "ip or tc is missing; apt-get install iproute2"

readonly A=tutti-a-$$ B=tutti-b-$$
folder=$(mktemp -d)
cleanup() {
  ip netns del "$A" 2>/dev/null || true
  ip netns del "$B" 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT

ip netns add "$A"
ip netns add "$B"
ip link add tutti0 netns "$A" type veth peer name tutti0 netns "$B"
host=1
for namespace in "$A" "$B"; do
  ip -n "$namespace" addr add "10.213.0.$host/24" dev tutti0
  ip -n "$namespace" link set tutti0 up
  ip -n "$namespace" link set lo up
  ip netns exec "$namespace" tc qdisc add dev tutti0 root tbf rate "$RATE" burst 256kb latency 50ms ||
    fail "tc cannot add tbf, expected a kernel with sch_tbf"
  host=$((host + 1))
done

processes=()
for rank in 0 1 2 3; do
  namespace=$A host=1
  [ "$rank" -lt 2 ] || { namespace=$B host=2; }
  ip netns exec "$namespace" "$PROGRAM" --ranks 4 --rank "$rank" --folder "$folder" --address "10.213.0.$host" \
    --contenders "$CONTENDERS" --bytes "$BYTES" --seconds "$SECONDS_EACH" &
  processes+=($!)
done
for process in "${processes[@]}"; do wait "$process" || fail "a rank has failed"; done
