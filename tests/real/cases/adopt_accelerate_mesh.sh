# accelerate's parallelism_config with copies of shards
# why: copies of groups that shard a model are hybrid_shard
# source: https://github.com/huggingface/accelerate/blob/v1.11.0/src/accelerate/parallelism_config.py
# before: there is no tensor, sequence or pipeline parallelism here
# expect: mpirun -n 8
# expect: strategy: hybrid_shard
# expect: shard_size: 4
cat >a.yaml <<'YAML'
distributed_type: FSDP
num_processes: 8
fsdp_config:
  fsdp_version: 2
parallelism_config:
  parallelism_config_cp_size: 1
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 4
  parallelism_config_tp_size: 1
YAML
"$FSDP" adopt accelerate a.yaml
