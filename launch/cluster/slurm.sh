#!/bin/bash
# One run on the nodes of a Slurm job: the first is the chief, the others are
# servers. Start it in the repository's root:
#   sbatch --nodes=4 launch/cluster/slurm.sh --flagfile=launch/relations.flags
# --run_dir must be on a disk that outlives the job. The same command resumes.
# The servers listen on port 2222, or on the PORT of the environment.
#SBATCH --job-name=agile
#SBATCH --ntasks-per-node=1
# All cores of each node. Other jobs there could also reach the servers.
#SBATCH --exclusive
# Two minutes before the time limit the chief saves, and all tasks end.
#SBATCH --signal=TERM@120
set -uo pipefail

port=${PORT:-2222}
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
servers=("${nodes[@]:1}")
CLUSTER=$(IFS=,; echo "${servers[*]/%/:$port}")
export CLUSTER

if ((${#servers[@]})); then
  # A server that fails must not end the others: --kill-on-bad-exit=0.
  # shellcheck disable=SC2016  # Each task expands its own number.
  srun --relative=1 --nodes=${#servers[@]} --ntasks=${#servers[@]} \
    --distribution=block --kill-on-bad-exit=0 bash -c \
    'exec .venv/bin/python -m agile_tf.launch "$@" \
       --cluster="$CLUSTER" --task="$((SLURM_PROCID + 1))"' agile "$@" &
fi
srun --relative=0 --nodes=1 --ntasks=1 \
  .venv/bin/python -m agile_tf.launch "$@" --cluster="$CLUSTER"
status=$?
# The servers end with the chief. One that it did not reach, or that waits for
# the return of a chief that has failed, would hold the nodes.
if ((${#servers[@]})); then
  ((status)) || for _ in {1..30}; do
    kill -0 $! 2> /dev/null || break
    sleep 1
  done
  kill $! 2> /dev/null
  wait
fi
exit $status
