#!/usr/bin/env bash
# A Slurm cluster of several nodes on this machine, for as long as a command runs:
#
#   cluster.sh FOLDER NODES COMMAND ARGS...
#
# Everything is in FOLDER and on loopback; nothing is left behind but FOLDER, with the daemons' logs. The command finds
# the cluster by SLURM_CONF and ends with its own status; 77: there is no Slurm to be had here, and FOLDER/why says why.
#
# The nodes are in four partitions:
#   all       takes part of a node, and keeps it
#   urgent    whole nodes, which it takes from the next two if no others are free
#   spot      whole nodes; a job that they are taken from has GRACE seconds (5) after SIGTERM, and is over
#   requeue   the same, but the job is pending again
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
folder=$1 nodes=$2
shift 2
mkdir -p "$folder/state"
folder=$(cd "$folder" && pwd)
chmod 755 "$folder"
me=$(id -un)
daemons=()

give_up() {
  echo "$1" >"$folder/why"
  exit 77
}

stop() {
  local status=$?
  trap '' INT TERM
  if [[ ${#daemons[@]} -gt 1 ]]; then timeout 10 scancel --full --user="$me" >/dev/null 2>&1 || true; fi
  local at
  for ((at = ${#daemons[@]} - 1; at >= 0; --at)); do  # munged last: the others need it to part in peace
    kill "${daemons[at]}" 2>/dev/null || true
    wait "${daemons[at]}" 2>/dev/null || true
  done
  exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start() { # NAME COMMAND...; ends with this script, even if that is killed
  local name=$1
  shift
  setpriv --pdeathsig KILL "$@" >"$folder/$name.out" 2>&1 &
  daemons+=($!)
}

until_it_holds() { # COMMAND...
  local tries
  for ((tries = 0; tries < 300; ++tries)); do
    if "$@" 2>/dev/null; then return; fi
    sleep 0.1
  done
  give_up "not within 30 s: $*"
}

is_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
free_port() { # below those that the kernel gives to callers
  local port
  while port=$((20000 + RANDOM % 12000)) && is_taken "$port"; do :; done
  echo "$port"
}

for program in munged slurmctld slurmd srun setpriv; do
  command -v "$program" >/dev/null || give_up "$program is not installed"
done

{
  cat <<TEXT
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort=$(free_port)
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE PreemptMode=OFF
PartitionName=urgent Nodes=ALL State=UP OverSubscribe=EXCLUSIVE PriorityTier=10 PreemptMode=OFF
PartitionName=spot Nodes=ALL State=UP OverSubscribe=EXCLUSIVE PriorityTier=1 PreemptMode=CANCEL GraceTime=${GRACE:-5}
PartitionName=requeue Nodes=ALL State=UP OverSubscribe=EXCLUSIVE PriorityTier=1 PreemptMode=REQUEUE GraceTime=${GRACE:-5}
TEXT
  for ((node = 1; node <= nodes; ++node)); do
    mkdir -p "$folder/spool-n$node"
    echo "NodeName=n$node NodeHostname=$(uname -n) NodeAddr=127.0.0.1 Port=$(free_port) CPUs=8"
  done
} >"$folder/slurm.conf"
export SLURM_CONF=$folder/slurm.conf

head -c 64 /dev/urandom >"$folder/munge.key"
chmod 400 "$folder/munge.key"
start munged munged --foreground --num-threads=2 --key-file="$folder/munge.key" --socket="$folder/munge.socket" \
  --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge.seed"
until_it_holds test -S "$folder/munge.socket"
start slurmctld slurmctld -D -i
for ((node = 1; node <= nodes; ++node)); do start "slurmd-n$node" slurmd -D -N "n$node"; done

all_idle() { [[ $(timeout 5 sinfo -h -N -p all -t idle -o %N | wc -l) -eq $nodes ]]; }
until_it_holds all_idle

# Not in place of this shell, which has to clean up; and not before it, so that signals are not kept waiting.
"$@" &
command=$!
trap 'kill "$command"; wait "$command"; exit 143' INT TERM
wait "$command"
