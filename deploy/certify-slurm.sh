#!/bin/sh
# Splits the battery of nrun certify over the machines of a Slurm cluster. Each
# task of the array runs one of COUNT parts against the same pack directory and
# writes part-N.json into PARTS; the second job joins them, if all went well:
#
#   parts=$(sbatch --parsable --array=0-7 certify-slurm.sh /data/pack /data/parts 8)
#   sbatch --dependency=afterok:$parts --kill-on-invalid-dep=yes \
#     --wrap 'nrun certify merge /data/parts/part-*.json -o /data/certificate.json --sign KEY'
#
# A part that failed is run again with --array=N. Options of nrun certify may follow
# COUNT. Processors and memory are those for an 8B; sbatch's own options change them.
#SBATCH --job-name=nrun-certify
#SBATCH --cpus-per-task=4
#SBATCH --mem=7G
#SBATCH --output=nrun-certify-%A_%a.log
set -eu
pack=$1 parts=$2 count=$3
shift 3

# Not every cluster binds a task to its processors; nrun would then use all that the
# machine has. 512 MiB are for what nrun's plan does not count.
exec nrun certify "$pack" --shard "$SLURM_ARRAY_TASK_ID/$count" --output "$parts/part-$SLURM_ARRAY_TASK_ID.json" --force \
	--threads "$SLURM_CPUS_PER_TASK" --memory-limit "$((SLURM_MEM_PER_NODE - 512))MiB" "$@"
