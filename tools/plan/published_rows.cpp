// Lines, cells, numbers.
#include "tools/plan/published_rows.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "tools/plan/other_programs.h"
#include "tools/predict/machines.h"
#include "tools/predict/meta_run.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> cells_of(std::string line) {
  if (line.ends_with('\r')) line.pop_back();
  std::vector<std::string> out(1);
  for (const char c : line) {
    if (c == ',') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

void check_columns(const std::vector<std::string>& heads, const std::string& where) {
  for (const std::string& head : heads) {
    FSDP_CHECK(std::find(kRowColumns.begin(), kRowColumns.end(), head) != kRowColumns.end(),
               "{}: unknown column \"{}\"; expected {}", where, head, fmt::join(kRowColumns, ","));
    FSDP_CHECK(std::count(heads.begin(), heads.end(), head) == 1, "{}: column {} appears twice",
               where, head);
  }
  for (const char* const column : kRowColumns) {
    FSDP_CHECK(std::find(heads.begin(), heads.end(), column) != heads.end(),
               "{}: column {} is missing", where, column);
  }
}

// The cells of a line by their column.
class Cells {
 public:
  Cells(const std::vector<std::string>& heads, std::vector<std::string> cells, std::string where)
      : where_(std::move(where)) {
    FSDP_CHECK(cells.size() == heads.size(), "{}: expected {} cells, got {}", where_, heads.size(),
               cells.size());
    for (size_t i = 0; i < heads.size(); ++i) cells_[heads[i]] = std::move(cells[i]);
  }

  // What a row cannot do without; the first column that is empty is noted.
  const std::string& text(const std::string& column) {
    const std::string& cell = cells_.at(column);
    if (cell.empty() && missing_.empty()) missing_ = column;
    return cell;
  }
  template <typename Number>
  Number number(const std::string& column) {
    const std::string& cell = text(column);
    if (cell.empty()) return 0;
    Number value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    FSDP_CHECK(error == std::errc() && end == cell.data() + cell.size() &&
                   (value > 0 || (value == 0 && column == "tied")),
               "{}: {}: expected a number above 0, got \"{}\"", where_, column, cell);
    return value;
  }
  const std::string& missing() const { return missing_; }

 private:
  std::string where_, missing_;
  std::map<std::string, std::string> cells_;
};

PublishedRow row_of(Cells cells, const std::string& file, int line) {
  PublishedRow row = {.set = cells.text("set"),
                      .machine = cells.text("machine"),
                      .gpus = cells.number<int>("gpus"),
                      .gpus_per_node = cells.number<int>("gpus_per_node"),
                      .layers = cells.number<int64_t>("layers"),
                      .hidden = cells.number<int64_t>("hidden"),
                      .heads = cells.number<int64_t>("heads"),
                      .kv_heads = cells.number<int64_t>("kv_heads"),
                      .ffn = cells.number<int64_t>("ffn"),
                      .vocab = cells.number<int64_t>("vocab"),
                      .tied = cells.number<int>("tied") != 0,
                      .seq = cells.number<int64_t>("seq"),
                      .micro_batch = cells.number<int64_t>("micro_batch"),
                      .accumulate = cells.number<int64_t>("accumulate"),
                      .strategy = cells.text("strategy"),
                      .param_dtype = cells.text("param_dtype"),
                      .reduce_dtype = cells.text("reduce_dtype"),
                      .recompute = cells.text("recompute"),
                      .shard_size = cells.number<int>("shard_size"),
                      .step_s = cells.number<double>("step_s"),
                      .file = file,
                      .line = line};
  if (!cells.missing().empty()) row.unusable = cells.missing() + " is not known";
  return row;
}

void read_file(const fs::path& path, std::vector<PublishedRow>& rows) {
  std::ifstream in(path);
  FSDP_CHECK(in.good(), "{}: cannot be read", path.string());
  const std::string file = path.filename().string();
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> heads = cells_of(line);
  check_columns(heads, fmt::format("{}:1", path.string()));
  for (int number = 2; std::getline(in, line); ++number) {
    const std::string where = fmt::format("{}:{}", path.string(), number);
    if (line.empty() || line == "\r") continue;
    FSDP_CHECK(line.find('"') == std::string::npos, "{}: quotes are not read", where);
    rows.push_back(row_of({heads, cells_of(line), where}, file, number));
  }
}

}  // namespace

std::string PublishedRow::place() const { return fmt::format("{}:{}", file, line); }

std::string PublishedRow::size() const {
  return fmt::format("{}, {} + {} heads, {}, {}", hidden, heads, kv_heads, ffn, vocab);
}

std::vector<PublishedRow> read_published_rows(const fs::path& path) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".csv") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    FSDP_CHECK(!files.empty(), "{}: has no .csv file", path.string());
  } else {
    files = {path};
  }
  std::vector<PublishedRow> rows;
  for (const fs::path& file : files) read_file(file, rows);
  FSDP_CHECK(!rows.empty(), "{}: has no rows", path.string());
  return rows;
}
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
