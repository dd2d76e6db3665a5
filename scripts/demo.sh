#!/bin/bash
# SPDX-License-Identifier: MIT
# demo.sh: Debian's own rping, unmodified, as server and client over airdma on 127.0.0.1. Shows the
# devices, both sides' connection events in order and the bytes moved; ends with "demo passed".
# Starts nothing that outlives it and leaves no file behind. AIRDMA names another command to try.
set -u
cd "$(dirname "$0")/.." || exit 1

airdma=${AIRDMA:-build/bin/airdma}
address=127.0.0.1
iterations=10
limit_s=30 # for one program; it takes well under a second

work=$(mktemp -d) || exit 1
server=

cleanup() {
  if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
    kill "$server" 2>/dev/null
    wait "$server" 2>/dev/null
  fi
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  echo "demo FAILED: $*" >&2
  for file in server client; do
    for kind in out log; do
      [ -s "$work/$file.$kind" ] && tail -n 40 "$work/$file.$kind" | sed "s/^/  $file: /" >&2
    done
  done
  exit 1
}

# Somebody serves the port: a RoCEv2 service of rdma_cm (docs/decisions/0010), or TCP, IPv4 or IPv6,
# as the kernel tells it (state 0A).
listening() {
  local hex
  grep -q "@airdma/cm/[0-9a-f]*/$1/" /proc/net/unix 2>/dev/null && return 0
  hex=$(printf '%04X' "$1")
  cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
    awk -v port=":$hex\$" '$2 ~ port && $4 == "0A" { found = 1 } END { exit !found }'
}

free_port() {
  local port
  for _ in $(seq 50); do
    port=$((20000 + RANDOM % 10000))
    listening "$port" || { echo "$port"; return; }
  done
  return 1
}

# run NAME ARG...: rping with its output and airdma's own notes in files.
run() {
  local name=$1
  shift
  AIRDMA_LOG="info:$work/$name.log" timeout -k 2 "$limit_s" \
    "$airdma" run -- rping "$@" >"$work/$name.out" 2>&1 </dev/null
}

events() {
  grep -o 'RDMA_CM_EVENT_[A-Z_]*' "$work/$1.out" | sed 's/RDMA_CM_EVENT_//' | tr '\n' ' ' |
    sed 's/ $//'
}

# The note that airdma makes when a queue pair closes: bytes on the wire, then payload.
bytes_of() {
  sed -n "s/.* closed: .*\b$2 \([0-9]*\).*/\1/p" "$work/$1.log" 2>/dev/null | head -n 1
}

echo "Devices that RDMA programs find here:"
"$airdma" devices || fail "airdma devices"

port=$(free_port) || fail "no free port"
server_arguments=(-s -a "$address" -p "$port" -v -d -C "$iterations")
client_arguments=(-c -a "$address" -p "$port" -v -d -C "$iterations")
echo
echo "airdma run -- rping ${server_arguments[*]}"
run server "${server_arguments[@]}" &
server=$!
for _ in $(seq 200); do
  listening "$port" && break
  kill -0 "$server" 2>/dev/null || fail "the server ended before it listened"
  sleep 0.05
done
listening "$port" || fail "the server does not listen"

echo "airdma run -- rping ${client_arguments[*]}"
run client "${client_arguments[@]}"
client_status=$?
wait "$server"
server_status=$?
server=

[ "$client_status" = 0 ] || fail "the client ended with status $client_status"
[ "$server_status" = 0 ] || fail "the server ended with status $server_status"

echo
echo "What the server saw:"
grep '^server ping data' "$work/server.out" | cut -c1-72 | sed 's/^/  /'
echo "What the client got back:"
grep '^ping data' "$work/client.out" | cut -c1-72 | sed 's/^/  /'
echo "Connection events:"
echo "  server: $(events server)"
echo "  client: $(events client)"

for name in server client; do
  got=$(grep -c 'ping data: rdma-ping-' "$work/$name.out")
  [ "$got" = "$iterations" ] || fail "$name: $got of $iterations pings"
done
# Each side closes when it has all its pings, so the last event may come too late to be printed.
[[ "$(events server)" =~ ^"CONNECT_REQUEST ESTABLISHED"( DISCONNECTED( TIMEWAIT_EXIT)?)?$ ]] ||
  fail "unexpected events at the server"
[[ "$(events client)" =~ \
  ^"ADDR_RESOLVED ROUTE_RESOLVED ESTABLISHED"( DISCONNECTED( TIMEWAIT_EXIT)?)?$ ]] ||
  fail "unexpected events at the client"

client_sent=$(bytes_of client sent)
client_received=$(bytes_of client received)
server_sent=$(bytes_of server sent)
server_received=$(bytes_of server received)
echo "Bytes moved:"
echo "  client to server: ${client_sent:-none} sent, ${server_received:-none} received"
echo "  server to client: ${server_sent:-none} sent, ${client_received:-none} received"
[ "${client_sent:-0}" -gt 0 ] && [ "${server_sent:-0}" -gt 0 ] || fail "no bytes moved"
[ "$client_sent" = "$server_received" ] && [ "$server_sent" = "$client_received" ] ||
  fail "the two sides disagree on the bytes"

echo
echo "demo passed"
