// The command line of fairseq-train. Contract: tools/guides/adopt/programs.h.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "models/config.h"
#include "tools/data/objective.h"
#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_arguments.h"

namespace fsdp::adopt {

const Json& fairseq_json();  // tables/fairseq.json

namespace {

// fairseq writes these as lists, "[0.0001]": a value for each epoch, the last one for all others.
Take first_to(const std::string& our_key, bool count) {
  return [our_key, count](const Given& given, Adoption& adoption) {
    Given value = given;
    std::string& text = value.values[0];
    if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
    if (text.find(',') != std::string::npos) {
      given.refuse("a value for each epoch: expected one, which is that of all epochs here");
    }
    (count ? count_to(our_key) : to(our_key))(value, adoption);
  };
}

// "(0.9, 0.98)"
void take_betas(const Given& given, Adoption& adoption) {
  std::string text = given.text();
  std::erase_if(text,
                [](char c) { return c == '(' || c == ')' || c == '[' || c == ']' || c == ' '; });
  const size_t comma = text.find(',');
  if (comma == std::string::npos) given.fail("two numbers, \"(0.9, 0.98)\"");
  adoption.set("train.optimizer.beta1", text.substr(0, comma), given);
  adoption.set("train.optimizer.beta2", text.substr(comma + 1), given);
}

void take_optimizer(const Given& given, Adoption& adoption) {
  const std::string& name = given.one();
  if (name == "adam" || name == "cpu_adam") {
    adoption.set("train.optimizer.kind", "adamw", given, "fairseq's Adam decays as AdamW");
  } else if (name == "sgd" || name == "nag") {
    adoption.set("train.optimizer.kind", "sgd", given);
    if (name == "sgd") return;
    adoption.set("train.optimizer.nesterov", "true", given);
    adoption.set_default("train.optimizer.momentum", "0.99", "nag's default");
    const Given* decay = adoption.find("--weight-decay");
    if (decay && decay->number() != 0) {
      decay->refuse("nag shrinks parameters by it, and sgd here adds it to the gradient");
    }
  } else if (name == "adamax" || name == "adadelta") {
    adoption.set("train.optimizer.kind", name, given);
  } else {
    given.fail(
        "adam, cpu_adam, adamax, adadelta, sgd or nag: what works on shards, element by element");
  }
}

void take_weight_decay(const Given& given, Adoption& adoption) {
  const Given* optimizer = adoption.find("--optimizer");
  if (optimizer && optimizer->one() == "adamax" && given.number() != 0) {
    given.refuse("fairseq's Adamax shrinks parameters as AdamW does, here decay is a gradient");
  }
  to("train.optimizer.weight_decay")(given, adoption);
}

void take_schedule(const Given& given, Adoption& adoption) {
  constexpr auto kKinds = std::to_array<std::pair<const char*, const char*>>(
      {{"polynomial_decay", "fairseq_polynomial_decay"},
       {"inverse_sqrt", "inverse_sqrt"},
       {"fixed", "constant"}});
  for (const auto& [theirs, ours] : kKinds) {
    if (given.one() == theirs) return adoption.set("train.schedule.kind", ours, given);
  }
  given.fail("polynomial_decay, inverse_sqrt or fixed");
}

// Below 0, which is the default, it is 0.
void take_warmup_start(const Given& given, Adoption& adoption) {
  if (given.number() > 0) given.refuse("a warm-up begins at 0 here");
  adoption.leave(given, "a warm-up begins at 0");
}

void take_backend(const Given& given, Adoption& adoption) {
  constexpr std::array kReplicas = {"c10d", "pytorch_ddp", "legacy_ddp", "no_c10d"};
  const bool replicas =
      std::find(kReplicas.begin(), kReplicas.end(), given.one()) != kReplicas.end();
  if (given.one() != "fully_sharded" && !replicas) given.fail("fully_sharded or pytorch_ddp");
  adoption.set("fsdp.strategy", replicas ? "no_shard" : "full_shard", given);
}

// A folder of fairseq-preprocess: ids of its own dictionary, so no tokenizer takes part.
void take_data(const Given& given, Adoption& adoption) {
  const auto file = [&](const char* name) { return fmt::format("{}/{}", given.one(), name); };
  adoption.set("data.format", "fairseq", given);
  adoption.set("data.train", file("train.bin"), given, "with train.idx beside it");
  if (!adoption.is_on("--disable-validation")) {
    adoption.set("data.validation", file("valid.bin"), given, "without --disable-validation");
  }
}

bool breaks_at_sentences(const Adoption& adoption) {
  const Given* mode = adoption.find("--sample-break-mode");
  return mode && mode->one() != "none";
}

// Blocks of whole sentences: the trainer leaves out what is longer than the model's positions.
void take_break_mode(const Given& given, Adoption& adoption) {
  const auto& modes = data::kBreakModes;
  if (std::none_of(modes.begin(), modes.end(),
                   [&](data::BreakMode mode) { return name_of(mode) == given.one(); })) {
    given.fail("none, complete, complete_doc or eos");
  }
  adoption.set("data.sample_break_mode", given.one(), given);
  if (!breaks_at_sentences(adoption)) return;
  adoption.set("data.bad_rows", "skip", given,
               "sentences of more than --tokens-per-sample are left out and listed; there those of "
               "more than --max-target-positions");
}

void take_invalid_sizes(const Given& given, Adoption& adoption) {
  adoption.leave(given, breaks_at_sentences(adoption)
                            ? "data.bad_rows: skip leaves them out, of both"
                            : "no sequence is longer than the others");
}

void take_log_format(const Given& given, Adoption& adoption) {
  if (given.one() == "json") return adoption.set("train.log_format", "fairseq_json", given);
  adoption.leave(given, "lines are ours; train.log_format: fairseq_json prints fairseq's JSON");
}

void take_arch(const Given& given, Adoption& adoption) {
  const std::vector<std::string> presets = models::preset_names();
  if (!given.one().starts_with("transformer_lm_gpt3_") ||
      std::find(presets.begin(), presets.end(), given.one()) == presets.end()) {
    given.fail("transformer_lm_gpt3_small to transformer_lm_gpt3_175");
  }
  adoption.set("model.preset", given.one(), given,
               "until March 2021 its embeddings were not tied: " + given.one() + "_untied");
}

// Offloading implies it.
void take_checkpointing(const Given& given, Adoption& adoption) {
  on_to("train.recompute.mode", adoption.is_on("--offload-activations") ? "offload" : "full")(
      given, adoption);
}

const Program& fairseq_program() {
  static const Takes own = {{"arch", take_arch},
                            {"backend", take_backend},
                            {"betas", take_betas},
                            {"break_mode", take_break_mode},
                            {"checkpointing", take_checkpointing},
                            {"data", take_data},
                            {"invalid_sizes", take_invalid_sizes},
                            {"log_format", take_log_format},
                            {"optimizer", take_optimizer},
                            {"rates", first_to("train.lr", false)},
                            {"schedule", take_schedule},
                            {"update_freq", first_to("train.micro_steps", true)},
                            {"warmup_start", take_warmup_start},
                            {"weight_decay", take_weight_decay}};
  static const Program program =
      program_of("fairseq", "fairseq-train", {rules_of(fairseq_json()["rules"], own)});
  return program;
}

// ---- options that are read together ----

void take_precision(Adoption& adoption, bool sharded) {
  const Given* f16 = adoption.find("--fp16");
  const Given* bf16 = adoption.find("--bf16");
  if (f16 && bf16) bf16->refuse("expected one of --fp16 and --bf16, got both");
  const Given* dtype = f16 ? f16 : bf16;
  if (dtype) adoption.set("train.dtype", f16 ? "f16" : "bf16", *dtype);
  if (f16) adoption.set("train.loss_scale.rule", "fairseq", *f16);
  if (dtype && sharded && !adoption.has("train.reduce_dtype")) {
    adoption.set("train.reduce_dtype", f16 ? "f16" : "bf16", *dtype,
                 "without --fp32-reduce-scatter; f32 is safer");
  }
  if (const Given* offload = adoption.find("--cpu-offload"); offload && sharded) {
    if (!f16) offload->refuse("expected --fp16 with it, as fairseq does");
    adoption.set("fsdp.offload", "all", *offload);
  }
}

// fairseq fills a pass as long as both limits hold, and from this many rows on to a multiple of
// them (data_utils_fast.pyx, batch_by_size_vec).
void take_rows(Adoption& adoption) {
  const Given* tokens = adoption.find("--max-tokens");
  const Given* batch = adoption.find("--batch-size");
  const Given* length = adoption.find("--tokens-per-sample");
  const Given* multiple = adoption.find("--required-batch-size-multiple");
  const int64_t each = length ? length->whole() : 1024;
  const int64_t step = multiple ? multiple->whole() : 8;
  if (step < 1) multiple->fail("at least 1");
  if (tokens && (each < 1 || tokens->whole() < each)) {
    tokens->fail(fmt::format("at least --tokens-per-sample, {}", each));
  }
  if (multiple) adoption.leave(*multiple, "train.rows_per_pass is such a multiple, or below it");
  if (!tokens && !batch) return;
  const int64_t by_tokens = tokens ? tokens->whole() / each : INT64_MAX;
  const int64_t by_rows = batch ? batch->whole() : INT64_MAX;
  const bool fewer = by_tokens < by_rows;
  const int64_t most = std::min(by_tokens, by_rows);
  const int64_t rows = most < step ? most : most - most % step;
  const Given& counts = fewer ? *tokens : *batch;
  const Given* const unused = fewer ? batch : tokens;
  std::vector<std::string> remarks;
  if (fewer) remarks.push_back(fmt::format("in sequences of {}", each));
  if (rows != most) remarks.push_back(fmt::format("a multiple of {}", step));
  adoption.set("train.rows_per_pass", std::to_string(rows), counts,
               fmt::format("{}", fmt::join(remarks, ", ")));
  if (unused) adoption.leave(*unused, counts.key + " allows as few rows or fewer");
}

// fairseq ends at whichever limit comes first; here there is one. 0: none. Without a limit it does
// not end: from --total-num-update on, the rate is its end value.
void take_length(Adoption& adoption) {
  const Given* updates = adoption.find("--max-update");
  const Given* epochs = adoption.find("--max-epoch");
  for (const Given** each : {&updates, &epochs}) {
    if (*each && (*each)->whole() == 0) adoption.off(*std::exchange(*each, nullptr));
  }
  if (updates) whole_to("train.steps")(*updates, adoption);
  if (epochs && !updates) whole_to("train.epochs")(*epochs, adoption);
  const Given* total = adoption.find("--total-num-update");
  if (!epochs && !updates && total) {
    adoption.set_default("train.steps", std::to_string(total->whole()),
                         "that of --total-num-update; without --max-update and --max-epoch "
                         "fairseq goes on at the end rate for ever");
  }
  if (epochs && updates) {
    adoption.leave(*epochs,
                   "lost: there the run ends at --max-epoch or --max-update, whichever comes "
                   "first, here after train.steps; where epochs come first, set train.epochs "
                   "instead");
  }
}

// There are two values there and one here.
void take_dropout(Adoption& adoption) {
  const Given* dropout = adoption.find("--dropout");
  const Given* attention = adoption.find("--attention-dropout");
  const std::string one = "model.dropout is one value, of attention too";
  if (dropout && attention && dropout->number() != attention->number()) {
    attention->refuse(one + ": expected that of --dropout, " + dropout->text());
  }
  if (dropout) adoption.set("model.dropout", dropout->one(), *dropout, attention ? "" : one);
  if (attention) adoption.set("model.dropout", attention->one(), *attention, dropout ? "" : one);
}

void take_wrap(Adoption& adoption) {
  const Given* size = adoption.find("--min-params-to-wrap");
  adoption.set_default("fsdp.root", "whole", "what no layer holds is one unit there");
  if (!size) {
    return adoption.set_default("fsdp.wrap", "transformer_block",
                                "each layer is a unit, there those of 1e8 parameters, or all with "
                                "--checkpoint-activations");
  }
  adoption.set("fsdp.wrap", "transformer_block", *size,
               "layers of fewer parameters were part of the root there");
}

void set_defaults(Adoption& adoption) {
  const std::string origin = "fairseq's default";
  adoption.set_defaults(fairseq_json()["defaults"]);
  if (adoption.has("checkpoint.every")) {
    adoption.set_default("checkpoint.keep", "0", origin + ": all stay");
  }
  const Given* schedule = adoption.find("--lr-scheduler");
  if (schedule && schedule->one() == "inverse_sqrt") {
    adoption.set_default("train.schedule.warmup", "4000", origin);
  }
  const Given* optimizer = adoption.find("--optimizer");
  if (optimizer && optimizer->one() == "adamax") {
    adoption.set_default("train.optimizer.beta2", "0.999", origin);
  }
  if (!optimizer || optimizer->one().ends_with("adam")) {
    adoption.set_default("train.optimizer.beta2", "0.999", origin);
    adoption.set_default("train.optimizer.decay", "all", "fairseq decays every parameter");
  }
}

// What stands in front of the command.
void take_variables(Adoption& adoption, const std::vector<Given>& variables) {
  for (const Given& each : variables) {
    if (each.name == "OMP_NUM_THREADS") {
      whole_to("runtime.threads")(each, adoption);
    } else if (each.name == "CUDA_VISIBLE_DEVICES") {
      adoption.set_ranks(1 + std::count(each.one().begin(), each.one().end(), ','), each);
    } else {
      adoption.leave(each, "a variable: export it before mpirun where a library reads it");
    }
  }
}

}  // namespace

std::string adopt_fairseq(const std::vector<std::string>& arguments, const AdoptOptions& options) {
  const ForeignCommand command =
      read_command(arguments, {"fairseq-train", "fairseq_cli/train.py"}, fairseq_program());
  FSDP_CHECK(!command.arguments.empty(),
             "adopt fairseq: expected the folder and the options of fairseq-train, got none");
  Adoption adoption("fairseq", command.source, command.arguments, options);
  const Given* backend = adoption.find("--ddp-backend");
  const bool sharded = backend && backend->one() == "fully_sharded";
  std::vector<Ignored> ignored;
  for (const char* name : {"--cpu-offload", "--min-params-to-wrap", "--no-reshard-after-forward",
                           "--fp32-reduce-scatter"}) {
    if (!sharded) ignored.push_back({name, "no effect without --ddp-backend fully_sharded"});
  }
  take_all(fairseq_program(), adoption, ignored);
  take_precision(adoption, sharded);
  take_rows(adoption);
  take_length(adoption);
  take_dropout(adoption);
  if (sharded) take_wrap(adoption);
  take_variables(adoption, command.variables);
  set_defaults(adoption);
  return adoption.yaml();
}

}  // namespace fsdp::adopt
