# What tests/e2e/fixed_order*.sh share: runs of one tiny configuration, and what must be equal of them.
# text_and_config STEPS: dropout, a short last batch in every epoch (31 sequences), evaluation.
text_and_config() {
  for i in {1..20}; do echo "a line of text, number $i"; done >text.txt
  cat >config.yaml <<YAML
model: {model_type: llama, hidden_size: 16, layers: 2, heads: 2, ffn: 20, dropout: 0.1}
data: {train: text.txt, validation: text.txt, sequence_length: 16}
train: {steps: $1, batch: 12, rows_per_pass: 1, log_every: 1, eval_every: 6, lr: 1e-2, save: false}
fsdp: {fixed_order: true}
YAML
}
# run_quietly RUN RANKS key=value...: keeps the output in RUN.log
run_quietly() {
  local run=$1 ranks=$2 launch=("$FSDP" train --local-ranks "$2"); shift 2
  # shellcheck disable=SC2206
  [ -n "${use_mpi:-}" ] && launch=($MPIRUN -n "$ranks" "$FSDP" train)
  "${launch[@]}" --config config.yaml --set "runtime.run_dir=$run" "$@" >"$run.log" 2>&1
}
run() { run_quietly "$@" || { fail "train $*: status $?"; cat "$1.log"; }; }
result() { for key in weights_hash optimizer_hash steps train_loss mean_train_loss validation_loss; do summary "$1" $key; done | paste -sd' '; }
# same RUN OTHER RANKS key=value...: makes OTHER, which must do what RUN did
same() {
  local expected=$1 run=$2
  shift; run "$@"
  [ -n "$(result "$expected")" ] && [ "$(result "$run")" = "$(result "$expected")" ] ||
    fail "$*: $(result "$run"), not $(result "$expected")"
  diff <(lines "$run") <(lines "$expected") >lines.diff || { fail "$*: other losses or norms"; head -4 lines.diff; }
}
