// The one list of configuration fields: key, member, meaning. Everything that handles the
// configuration is a visitor V over this list:
//   v.section(key, help, struct)   then visits the struct's own fields
//   v.field(key, member, help, OptionField)   values, ranges, flags, aliases: option_field.h
//   v.list(key, help, vector of structs)  each with the struct's own fields
// Not here: defaults (config.h). Visitors: config_reader.cpp, config_writer.cpp, key_values.cpp,
// config.cpp, tools/commands/listed_flags.cpp.
#pragma once

#include "tools/config/config.h"

// Beside its type, where the lists of fields look for it.
namespace fsdp::comm {

template <typename V>
void visit(V& v, UnitOverride& c) {
  v.field(
      "match", c.match,
      "units, as explain lists them, or the class of their module; * for any characters, [0-3]");
  v.field("strategy", c.strategy, "over the same groups of ranks; auto, here and below: as all do");
  v.field("reshard_after_forward", c.reshard_after_forward, "as above");
  v.field("reshard_group_size", c.reshard_group_size, "as above");
  v.field("param_dtype", c.param_dtype,
          "of compute; activations are cast on their way into the unit and back on their way out");
  v.field("reduce_dtype", c.reduce_dtype, "of gradient sums over ranks");
}

}  // namespace fsdp::comm

namespace fsdp::config {

template <typename V>
void visit(V& v, ModelSection& c) {
  v.field("path", c.path, "Hugging Face folder to start from; empty: from scratch");
  v.field("preset", c.preset, "sizes by name, such as gpt2-124m; empty: the sizes below");
  v.field("model_type", c.model_type, "family, such as gpt2 or llama; empty: from path or preset");
  v.field("vocab_size", c.vocab_size, "0: from path, preset or the data's tokenizer",
          OptionField().from(0));
  v.field("hidden_size", c.hidden_size, "0: from path or preset; so are the next ones",
          OptionField().from(0));
  v.field("layers", c.layers, "transformer blocks", OptionField().from(0));
  v.field("heads", c.heads, "query heads", OptionField().from(0));
  v.field("kv_heads", c.kv_heads, "key-value heads; 0: as many as heads", OptionField().from(0));
  v.field("head_dim", c.head_dim, "0: hidden_size / heads", OptionField().from(0));
  v.field("ffn", c.ffn, "inner width of the MLP; 0: the family's rule", OptionField().from(0));
  v.field("max_positions", c.max_positions, "0: data.sequence_length", OptionField().from(0));
  v.field("activation", c.activation, "Hugging Face's name, such as gelu_new; empty: the family's");
  v.field("tie_embeddings", c.tie_embeddings, "head = embedding; auto: the family's");
  v.field("shift_labels", c.shift_labels,
          "position t predicts token t + 1; false: token t, as workshop_gpt's single-GPU script; "
          "auto: the family's");
  v.field("rope_theta", c.rope_theta, "auto: the family's");
  v.field("norm_epsilon", c.norm_epsilon, "auto: the family's");
  v.field("init_deviation", c.init_deviation, "of the initial weights; auto: the family's");
  v.field("dropout", c.dropout,
          "probability, on attention weights and (not llama) embeddings and residuals; auto: the "
          "folder's, 0 from scratch");
}

template <typename V>
void visit(V& v, LoraSection& c) {
  v.field("r", c.r, "rank of the terms; 0: no LoRA, or that of path", OptionField().from(0));
  v.field("alpha", c.alpha, "a term counts alpha / r", {"lora_alpha"});
  v.field("dropout", c.dropout,
          "dropout on the input of the low-rank terms; auto: 0, or the value in lora.path",
          {"lora_dropout"});
  v.field(
      "targets", c.targets,
      "linear layers: Hugging Face names or how they end, such as q_proj, or all-linear; empty: "
      "attention's query and value, as PEFT",
      {"target_modules"});
  v.field("rslora", c.rslora, "a term counts alpha / sqrt(r)", {"use_rslora"});
  v.field("path", c.path,
          "folder of a PEFT adapter to start from; its model is model.path, if that is given");
}

template <typename V>
void visit(V& v, SubsetSection& c) {
  v.field("n", c.n, "rows of data.train; auto: all, in the order of the files",
          OptionField().from(1));
  v.field("seed", c.seed, "of the choice and the order of these rows", OptionField().from(0));
}

template <typename V>
void visit(V& v, SourceSection& c) {
  v.field("path", c.path, "file, folder, pattern, or list of these, as train");
  v.field("weight", c.weight, "its share of the sequences, beside the weights of the others");
}

// How texts become the sequences of steps.
template <typename V>
void visit_sequences(V& v, DataSection& c) {
  v.field("tokenizer", c.tokenizer,
          "bytes, or a tokenizer.json or a folder with one; empty: that of model.path, or bytes");
  v.field(
      "objective", c.objective,
      "which tokens are trained; lm: all; sft: the answer and its end-of-text; mask_pad: all but "
      "the padding token; compat_all, kaust_compat: the labels of two published scripts");
  v.field(
      "pack", c.pack,
      "stream: texts follow one another; examples: a row is a sequence, cut or padded; "
      "wikitext_rows: rows cut, then joined 1,000 at a time; auto: stream for lm, else examples");
  v.field("document_separator", c.document_separator,
          "end-of-text after every row or file; auto: true, but not with wikitext_rows");
  v.field("pad", c.pad, "the side of a short row that is filled up with pack: examples");
  v.field("pad_to", c.pad_to,
          "longest: row of the batch; length: sequence_length; auto: longest, but length with "
          "compat_all and kaust_compat");
  v.field("sequence_length", c.sequence_length,
          "tokens; with pack: examples a longer row is cut to it",
          OptionField({"max_seq_length", "max_length", "MAX_LENGTH"}).from(2));
  v.field("cache_dir", c.cache_dir, "of token files; empty: .cache/tokens",
          OptionField().own_of_rank());
  v.field("shuffle", c.shuffle, "in every epoch another order, by train.seed");
  v.field("shuffle_rule", c.shuffle_rule,
          "torch: the order of torch.randperm, and ranks filled up as by its DistributedSampler");
  v.field("set_epoch", c.set_epoch,
          "false: every epoch in the order of the first, as scripts that never call set_epoch");
  v.field("last_batch", c.last_batch,
          "an incomplete last batch of an epoch: train it short, pad or drop it");
  v.field("prefetch", c.prefetch,
          "batches that a thread makes ahead of the steps; 0: each when its step begins",
          OptionField().from_to(0, 1024));
}

template <typename V>
void visit(V& v, DataSection& c) {
  v.field(
      "train", c.train,
      "file, folder, pattern like texts/*.jsonl, or list of these; looked for here, then beside "
      "this file");
  v.list("sources",
         "instead of train, several with weights: [{path: a.jsonl, weight: 2}, {path: b.txt}]; an "
         "epoch has as many sequences as all of them together, dealt by weight; a source begins "
         "again, in another order, where it is used up",
         c.sources);
  v.field("validation", c.validation,
          "as train, or a share of the training data, such as 5%, which is not trained; empty: no "
          "evaluation");
  v.field(
      "format", c.format,
      "auto: jsonl for .jsonl and .json, text for others; alpaca: rows of instruction, input "
      "and output, in a JSON array or one a line; squad: the questions of a file of SQuAD v1.1; "
      "fairseq: NAME.bin of fairseq-preprocess, with NAME.idx beside it; synthetic: random tokens "
      "by train.seed, without files");
  v.field("field", c.field, "of a JSONL row, holds the text");
  v.field("template", c.row_template,
          "how a row's fields become a text: alpaca, alpaca_short, squad, chess, or a file with "
          "{names of fields}; empty: the format's, or data.field");
  v.field("bad_rows", c.bad_rows,
          "a JSONL row that is malformed or has no text: end with an error, or skip the row and "
          "list it in skipped_rows.jsonl of the run directory; so is a sentence of fairseq that is "
          "longer than sequence_length");
  v.field("synthetic_rows", c.synthetic_rows,
          "of format: synthetic, sequences; auto: as many as train.steps takes",
          OptionField().from(1));
  v.field(
      "sample_break_mode", c.sample_break_mode,
      "of format: fairseq, where sequences end; none: at every sequence_length tokens; complete: "
      "at the end of the last sentence that fits; complete_doc: there and at an empty sentence; "
      "eos: at every sentence",
      {"break_mode"});
  v.section("subset", "some rows of data.train, those of datasets' shuffle(seed).select(range(n))",
            c.subset);
  visit_sequences(v, c);
}

template <typename V>
void visit(V& v, ScheduleSection& c) {
  v.field("kind", c.kind, "as in Hugging Face's get_scheduler", {"name"});
  v.field("warmup", c.warmup, "steps", OptionField({"warmup_steps"}).from(0));
  v.field("total", c.total, "steps until the end value; 0: train.steps", OptionField().from(0));
  v.field("min_lr", c.min_lr, "end value of polynomial, *_min_lr, warmup_stable_decay, fairseq_*");
  v.field("power", c.power, "of polynomial, fairseq_polynomial_decay");
  v.field("cycles", c.cycles, "waves of cosine (0: half a one), descents of restarts (0: one)");
  v.field("timescale", c.timescale, "of inverse_sqrt; 0: warmup, or 10000 without one",
          OptionField().from(0));
  v.field("decay_steps", c.decay_steps, "of warmup_stable_decay", OptionField().from(0));
  v.field("warmup_shape", c.warmup_shape, "of warmup_stable_decay");
  v.field("decay_shape", c.decay_shape, "of warmup_stable_decay");
  v.field("zero_warmup", c.zero_warmup, "fairseq_*: steps with rate 0 before the warm-up",
          OptionField().from(0));
}

template <typename V>
void visit(V& v, OptimizerSection& c) {
  v.field("kind", c.kind, "the update rule, as in torch.optim", {"name"});
  v.field("beta1", c.beta1, "of adamw, adam, adamax");
  v.field("beta2", c.beta2, "of adamw, adam, adamax");
  v.field("rho", c.rho, "of adadelta: what its averages keep");
  v.field("epsilon", c.epsilon, "of all but sgd; auto: 1e-8, 1e-6 (adadelta)", {"eps"});
  v.field("momentum", c.momentum, "of sgd");
  v.field("dampening", c.dampening, "of sgd: of what a gradient adds to the momentum");
  v.field("nesterov", c.nesterov, "of sgd: Nesterov's momentum");
  v.field("weight_decay", c.weight_decay,
          "adamw: shrinks parameters by the learning rate times this; the others: times "
          "the parameter, added to the gradient; auto: 0.1 (adamw), 0 (the others)");
  v.field("decay", c.decay, "which parameters decay; matrices: those of two or more dimensions");
  v.field(
      "state_dtype", c.state_dtype,
      "of what is kept for every element; bf16: rounded at random (seeded by train.seed); auto: "
      "f32 (f64 for f64)");
}

template <typename V>
void visit(V& v, LossScaleSection& c) {
  v.field("rule", c.rule,
          "where the defaults of the keys below come from; auto: torch for f16, else none");
  v.field("initial", c.initial, "auto: 65536 (torch), 128 (fairseq)");
  v.field("growth", c.growth, "factor after `interval` steps without overflow; auto: 2");
  v.field("backoff", c.backoff, "factor after an overflow; 1: the scale stays; auto: 0.5");
  v.field("interval", c.interval, "auto: 2000 (torch), 2^14 / ranks / micro_steps (fairseq)",
          OptionField().from(1));
  v.field("tolerance", c.tolerance, "share of steps that may overflow before a backoff; auto: 0");
  v.field("floor", c.floor, "never below; auto: 0");
  v.field("minimum", c.minimum, "end the run when the scale falls to it; auto: 1e-4");
}

template <typename V>
void visit(V& v, RecomputeSection& c) {
  v.field(
      "mode", c.mode,
      "full: keep the inputs of blocks only, compute the rest again in backward; offload: the "
      "same, "
      "and the inputs wait in the host's memory; selective: keep results of matrix products and "
      "attention, compute norms and activations again");
  v.field("every", c.every, "only in every k-th block", OptionField().from(1));
}

template <typename V>
void visit(V& v, TrainSection& c) {
  v.field("steps", c.steps, "optimizer updates",
          OptionField({"max_steps"}).from(1).flag(FlagOf::kConfigured));
  v.field("epochs", c.epochs, "of the training text, instead of steps; 0: as many as steps take",
          OptionField({"num_train_epochs"}).from(0));
  v.field("batch", c.batch,
          "sequences per step, over all ranks and micro-steps; auto: 8, or rows_per_pass x ranks x "
          "micro_steps",
          OptionField().from(1).flag(FlagOf::kConfigured));
  v.field("rows_per_pass", c.rows_per_pass,
          "sequences of one forward and backward, dealt to the ranks in turn; 0: a rank splits its "
          "sequences between micro_steps",
          OptionField({"per_device_train_batch_size"}).from(0));
  v.field("micro_steps", c.micro_steps,
          "forward and backward passes of a rank per step; auto: 1, or as many as rows_per_pass "
          "makes of batch",
          OptionField({"gradient_accumulation_steps"}).from(1));
  v.field("seed", c.seed, "of initial weights, order of the data, dropout, samples",
          OptionField().from(0));
  v.field("lr", c.lr, "peak learning rate",
          OptionField({"learning_rate"}).flag(FlagOf::kConfigured));
  v.section("schedule", "of the learning rate", c.schedule);
  v.section("optimizer", "the optimizer", c.optimizer);
  v.field("loss_mean", c.loss_mean,
          "over all tokens of a step; ranks: over the ranks' own means, as PyTorch does");
  v.field("clip_norm", c.clip_norm, "of the global gradient; 0: no clipping", {"max_grad_norm"});
  v.field("clip_type", c.clip_type, "order p of the norm used for clipping", {"norm_type"});
  v.field("log_every", c.log_every, "steps", OptionField().from(1));
  v.field("log_format", c.log_format, "whose lines are printed: ours, fairseq_json, hf, chess");
  v.field("eval_every", c.eval_every, "steps, or epoch; 0: only at the end", {"eval_steps"});
  v.field("eval_batches", c.eval_batches, "of the validation data; 0: all", OptionField().from(0));
  v.field("dtype", c.dtype, "of compute");
  v.field(
      "master_dtype", c.master_dtype,
      "of master weights, which the optimizer updates: f32, bf16 (with stochastic_rounding), f16 "
      "(with dtype: f16); auto: f32 (f64 for f64)");
  v.field(
      "stochastic_rounding", c.stochastic_rounding,
      "master weights are rounded to bf16 at random (seeded by train.seed), so that small "
      "updates count on average; else to nearest. With master_dtype: bf16 the update is rounded, "
      "else what the model computes with");
  v.field("reduce_dtype", c.reduce_dtype, "of gradient sums over ranks; auto: f32 (f64 for f64)");
  v.field("buffer_dtype", c.buffer_dtype,
          "that rotary and ALiBi values are rounded to; auto: f32 (f64 for f64)");
  v.field("freeze", c.freeze,
          "parameters that are not trained: Hugging Face names, * for any characters");
  v.section("loss_scale", "for f16", c.loss_scale);
  v.section("recompute", "of activations", c.recompute);
  v.field("save_dtype", c.save_dtype,
          "of the saved weights; auto: that of the tensors in model.path, else f32 (f64 for f64)");
  v.field("save", c.save, "the trained model at the end");
  v.field("max_shard_size", c.max_shard_size, "of one file of the saved model: 5GB, 300MB, 2GiB");
}

template <typename V>
void visit(V& v, CheckpointSection& c) {
  v.field("every", c.every,
          "steps between checkpoints, from which --resume goes on; epoch: at the end of each; 0: "
          "none",
          {"save_steps", "save_strategy"});
  v.field("keep", c.keep, "the last ones, and the best one; 0: all",
          OptionField({"save_total_limit"}).from(0));
  v.field("best", c.best, "the value by which one of them is the best: the smallest is",
          {"metric_for_best_model"});
  v.field("load_best", c.load_best, "the saved model is that of the best checkpoint",
          {"load_best_model_at_end"});
  v.field("folder", c.folder, "empty: checkpoints in the run directory");
  v.field("async", c.async,
          "a thread writes a copy of the state while training goes on; takes memory for the copy");
  v.field("required", c.required,
          "one that cannot be written ends the run; false: the run says so and goes on");
  v.field("verify", c.verify, "what is read of a checkpoint is compared with its checksums");
}

template <typename V>
void visit_offload(V& v, FsdpSection& c) {
  v.field("offload", c.options.offload,
          "what lies in the host's memory; optimizer: master weights and the optimizer's state, "
          "which the CPU updates; all: parameters and gradients too; nvme: the same in a file of "
          "offload_folder",
          {"cpu_offload", "fsdp_offload_params"});
  v.field("offload_folder", c.offload_folder,
          "of offload: nvme: a folder of the disk that has room for masters, gradients and the "
          "optimizer's state; the file has no name, and nothing of it is left");
}

template <typename V>
void visit(V& v, FsdpSection& c) {
  v.field("strategy", c.options.strategy,
          "full_shard: everything is sharded; shard_grad_op: parameters stay gathered in a step; "
          "shard_optimizer: only its state; no_shard: nothing (DDP); hybrid_*: inside groups of "
          "shard_size ranks",
          {"sharding_strategy", "fsdp_sharding_strategy"});
  v.field("shard_size", c.shard_size, "ranks of a shard group of a hybrid strategy",
          OptionField().from(0));
  v.field("wrap", c.wrap, "what is gathered together besides the root",
          {"auto_wrap_policy", "fsdp_auto_wrap_policy"});
  v.field("wrap_classes", c.wrap_classes,
          "of wrap: class; instead of the family's block for transformer_block",
          {"transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap"});
  v.field("min_num_params", c.min_num_params,
          "of wrap: size; a larger one: fewer, larger units; auto: 100000000, as in PyTorch",
          OptionField({"fsdp_min_num_params"}).from(1));
  v.field("reshard_after_forward", c.options.reshard_after_forward,
          "give parameters back between forward and backward; auto: as the strategy says",
          {"fsdp_reshard_after_forward"});
  v.field("reshard_group_size", c.reshard_group_size,
          "ranks that keep the parameters between them after forward (ZeRO++ hpZ); 0: none do",
          OptionField().from(0));
  v.field("forward_prefetch", c.forward_prefetch, "gather the next unit during a forward",
          {"fsdp_forward_prefetch"});
  v.field("prefetch_depth", c.prefetch_depth, "units that forward_prefetch gathers ahead",
          OptionField().from(1));
  v.field("backward_prefetch", c.options.backward_prefetch,
          "gather the next unit before (pre) or after (post) a backward",
          {"fsdp_backward_prefetch"});
  v.field("units_in_flight", c.units_in_flight, "units unsharded at a time, besides the root",
          OptionField().from(1));
  v.field("separate_reduce", c.options.separate_reduce,
          "reduces have a stream and a communicator of their own");
  v.field("release_arena", c.options.release_arena,
          "give unsharded memory and gradients back when a step needs them no more, and allocate "
          "them again in the next");
  visit_offload(v, c);
  v.field("accumulation", c.options.accumulation,
          "what micro-steps before the last communicate: reduce_each; reduce_scatter_each: the "
          "all-reduce across replicas waits; reduce_last: nothing (no_sync)");
  v.field("divide_factor", c.options.divide_factor, "of gradient sums; auto: the number of ranks");
  v.field("force_sum", c.options.force_sum, "divide after the sum over ranks, never inside it");
  v.field("split_division", c.options.split_division,
          "divide by about the square root of the divisor before the sum and by the rest after it, "
          "as FSDP1; f16 always does");
  v.field("absent_is_zero", c.options.absent_is_zero,
          "a parameter without gradient has a zero one; else it stands still");
  v.field("fixed_order", c.options.fixed_order,
          "the same bits on any ranks and under every strategy; needs train.rows_per_pass");
  v.field("sync_module_states", c.sync_module_states,
          "only rank 0 reads or makes the initial weights; the others get them from it",
          {"fsdp_sync_module_states"});
  v.list("units",
         "units that differ: [{match: ..., ...}, ...]; later entries override earlier ones",
         c.options.units);
}

template <typename V>
void visit(V& v, RuntimeSection& c) {
  visit(v, c.launch);  // tools/launch/launch_options.h
  v.field("synchronous", c.synchronous, "every operation inline, for debugging");
  v.field("trace", c.trace,
          "write a Perfetto timeline to the run folder; its memory grows with the steps",
          OptionField().flag(FlagOf::kTrain));
  v.field("memory_limit", c.memory_limit,
          "what a rank may take: 300MB, 2GiB; auto: what the host has, divided by its ranks",
          OptionField().size_or_auto().flag(FlagOf::kTrain));
  v.field("monitor_s", c.monitor_s,
          "seconds between two samples of CPU, memory and GPU in monitor.rank<r>.csv; 0: none");
  v.field("name", c.name, "of the run", OptionField().own_of_rank());
  v.field("run_dir", c.run_dir, "empty: runs/<name>-<time>", OptionField().own_of_rank());
}

template <typename V>
void visit(V& v, SampleSection& c) {
  v.field("prompt", c.prompt, "text that the trained model continues");
  v.field("tokens", c.tokens, "how many; 0: no sample", OptionField().from(0));
  v.field("temperature", c.temperature, "0: greedy");
  v.field("top_k", c.top_k, "0: all tokens", OptionField().from(0));
}

template <typename V>
void visit(V& v, TrainConfig& c) {
  v.section("model", "what is trained", c.model);
  v.section("lora", "low-rank terms that are trained instead of the model (LoRA)", c.lora);
  v.section("data", "what it is trained on", c.data);
  v.section("train", "how", c.train);
  v.section("checkpoint", "what a run can go on from", c.checkpoint);
  v.section("fsdp", "how it is sharded", c.fsdp);
  v.section("runtime", "where it runs", c.runtime);
  v.section("sample", "a continuation at the end", c.sample);
}

}  // namespace fsdp::config
