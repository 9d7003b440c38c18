#!/bin/bash
# One run on the nodes of a Slurm job: the first is the chief, the others are
# servers. Start it in the repository's root:
#   sbatch --nodes=4 launch/cluster/slurm.sh --flagfile=launch/relations.flags
# --run_dir must be on a disk that outlives the job. The same command resumes.
#SBATCH --job-name=agile
#SBATCH --ntasks-per-node=1
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
# Servers end with the chief. If it fails, they would wait for its return.
((status == 0)) || kill %1 2> /dev/null
wait
exit $status
