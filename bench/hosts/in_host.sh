#!/bin/sh
# in_host.sh RANKS NAMESPACE,… PROGRAM ARGS: runs a rank of OpenMPI's in the network namespace of its host.
ranks=$1
hosts=$(echo "$2" | tr ',' ' ')
shift 2
count=$(echo "$hosts" | wc -w)
at=$((OMPI_COMM_WORLD_RANK * count / ranks + 1))
exec ip netns exec "$(echo "$hosts" | cut -d ' ' -f "$at")" "$@"
