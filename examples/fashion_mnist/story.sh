#!/usr/bin/env bash
# The demo: a job that starts with two workers, grows to four, loses one to kill -9, one to a preemption notice and its
# coordinator to another kill -9, and finishes its training as if nothing had happened. Then what each event cost, and
# the proof from the records that no step is missing and every sample was used once per epoch.
#
#   story.sh PLIANT TRAINER [TRAINER ARGS]
set -euo pipefail

pliant=$1 trainer=$2
shift 2
job=story-$$
records=$(mktemp -d)
run=

finish() {
  if [[ -n $run ]] && kill -0 "$run" 2>/dev/null; then kill -INT "$run" && wait "$run" || true; fi
  rm -rf -- "$records"
}
trap finish EXIT
trap 'exit 130' INT TERM

say() { printf '\n== %s\n' "$*"; }

# What the job's status says about a number: field NAME, of the first object it is found in.
field() { "$pliant" status "$job" --json 2>/dev/null | sed -n "s/^ *\"$1\": \([0-9]*\),*$/\1/p" | head -1; }
pids() { "$pliant" status "$job" 2>/dev/null | sed -n 's/^ *worker [0-9]* *process \([0-9]*\) *runs as rank.*/\1/p'; }
coordinator() { "$pliant" status "$job" 2>/dev/null | sed -n 's/^coordinator *process \([0-9]*\).*/\1/p'; }

# Waits until the job is at step N; fails if it ended before.
reach() {
  local step
  while kill -0 "$run" 2>/dev/null; do
    step=$(field step || true)
    if [[ -n $step && $step -ge $1 ]]; then return; fi
    sleep 0.2
  done
  wait "$run" || true
  echo "the job ended before step $1" >&2
  exit 1
}
workers_are() { [[ $(pids | wc -l) -eq $1 ]]; }
await_workers() { while kill -0 "$run" 2>/dev/null && ! workers_are "$1"; do sleep 0.2; done; }

say 'two workers'
"$pliant" run -n 2 --name "$job" --record "$records" -- "$trainer" "$@" &
run=$!
reach 60

say 'four workers, please'
"$pliant" resize "$job" 4
await_workers 4
reach $(($(field step) + 40))

victim=$(pids | sed -n 2p)
say "kill -9 of a worker (process $victim)"
kill -9 "$victim"
await_workers 4
reach $(($(field step) + 40))

victim=$(pids | sed -n 3p)
say "notice to leave for another (process $victim)"
kill -TERM "$victim"
await_workers 3
reach $(($(field step) + 40))

victim=$(coordinator)
say "kill -9 of the coordinator (process $victim)"
kill -9 "$victim"

wait "$run"
run=

say 'what each change of workers cost'
"$pliant" verify --changes "$records"
