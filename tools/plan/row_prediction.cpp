// From a row to a run without bytes.
#include "tools/plan/row_prediction.h"

#include <fmt/format.h>

#include "tools/plan/other_programs.h"
#include "tools/predict/machines.h"
#include "tools/predict/meta_run.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {
namespace {

DType dtype_of(const PublishedRow& row) { return parse_dtype(row.param_dtype); }

// Two matrices of an MLP that is four times as wide, as GPT's; else three, as Llama's.
std::string usual_type(const PublishedRow& row) {
  return row.ffn == 4 * row.hidden && row.kv_heads == row.heads ? "gpt2" : "llama";
}

// torchtitan's selective recompute, which is not this program's.
bool keeps_half(const PublishedRow& row, const ProgramKernels* program) {
  return program && program->selective_keeps_half && row.recompute == "selective";
}

config::TrainConfig config_of(const PublishedRow& row, const ProgramKernels* program) {
  const std::string type = program ? std::string(program->model_type) : usual_type(row);
  std::vector<config::Override> keys;
  const auto set = [&](const std::string& key, const auto& value) {
    keys.emplace_back(fmt::format("{}={}", key, value));
  };
  set("model.model_type", type);
  set("model.layers", row.layers);
  set("model.hidden_size", row.hidden);
  set("model.heads", row.heads);
  if (type != "gpt2") set("model.kv_heads", row.kv_heads);
  set("model.ffn", row.ffn);
  set("model.vocab_size", row.vocab);
  set("model.max_positions", row.seq);
  set("model.tie_embeddings", row.tied);
  set("data.sequence_length", row.seq);
  set("train.batch", row.micro_batch * row.accumulate * row.gpus);
  set("train.micro_steps", row.accumulate);
  set("train.dtype", row.param_dtype);
  set("train.reduce_dtype", row.reduce_dtype);
  set("train.recompute.mode", keeps_half(row, program) ? "full" : row.recompute);
  set("train.logits_chunk_bytes", "1024GiB");  // as few products of the head as there can be
  set("fsdp.strategy", row.strategy);
  if (row.strategy.starts_with("hybrid")) set("fsdp.shard_size", row.shard_size);
  if (program && program->reduces_last && row.accumulate > 1)
    set("fsdp.accumulation", "reduce_last");
  return config::parse_config("", "", keys);
}

// Of the row's machine, with its GPUs per node.
Rates rates_of(const PublishedRow& row, const Constants& constants) {
  const auto [products, attention] = constants;
  Rates rates = machine_rates(row.machine);
  rates.ranks_per_node = row.gpus_per_node;
  FSDP_CHECK(products > 0, "machine {} has no rate of products in {}", row.machine,
             row.param_dtype);
  rates.flops_per_s[dtype_of(row)] = products;
  if (attention > 0) rates.attention.flops_per_s[dtype_of(row)] = attention;
  return rates;
}

}  // namespace

Constants shipped_constants(const PublishedRow& row) {
  const Rates rates = machine_rates(row.machine);
  const auto rate = [&](const std::map<DType, double>& of) {
    const auto found = of.find(dtype_of(row));
    return found == of.end() ? 0 : found->second;
  };
  return {rate(rates.flops_per_s), rate(rates.attention.flops_per_s)};
}

Constants unfitted_constants(const PublishedRow& row) {
  constexpr double kProducts = 0.7, kAttention = 0.25;
  const auto& peaks = machine_rates(row.machine).peak_flops_per_s;
  const auto peak = peaks.find(dtype_of(row));
  if (peak == peaks.end()) return {};
  return {kProducts * peak->second, kAttention * peak->second};
}

double predicted_step_s(const PublishedRow& row, const Constants& constants) {
  const ProgramKernels* const program = program_of(row.set);
  const config::TrainConfig config = config_of(row, program);
  const models::ModelConfig model = model_config(config, 0);
  BackendOptions backend;
  backend.cuda.emplace();
  const PlacedOptions session = session_options(config, model, row.gpus, backend);
  std::shared_ptr<CallRates> rates;
  std::shared_ptr<ProgramRates> of_program;
  if (program) {
    of_program = std::make_shared<ProgramRates>(
        rates_of(row, constants), *program, model,
        ProgramRates::Job{.tokens = row.micro_batch * row.seq,
                          .length = row.seq,
                          .shards = row.strategy == "no_shard" ? 1 : row.shard_size,
                          .reduces_16 = size_of(parse_dtype(row.reduce_dtype)) == 2,
                          .again = keeps_half(row, program) ? Again::kHalf : program->again});
    rates = of_program;
  } else {
    rates = std::make_shared<CallRates>(rates_of(row, constants));
  }
  MetaRun run(session, row.gpus, 0, rates);
  if (of_program) of_program->watch(run.session().tape());
  run.load(models::from_scratch(0));
  run.steps(*config.train.batch, row.seq);
  return 1e-3 * run.step_ms();
}

}  // namespace fsdp::tools
