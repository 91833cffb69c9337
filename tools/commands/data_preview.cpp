// fsdp data preview: the rows of a run's training data as the model gets them, their trained
// tokens, and figures of all rows. Not here: making rows (tools/train/train_data.h).
#include <algorithm>
#include <cstdio>
#include <span>

#include <unistd.h>

#include "comm/local_transport.h"
#include "core/error.h"
#include "core/io/json.h"
#include "core/text/counted.h"
#include "core/text/numbers.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/data/text_format.h"
#include "tools/data/text_stream.h"
#include "tools/launch/launch.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

struct PreviewOptions {
  DataKeys keys;
  std::string file;  // as keys.config
  std::vector<std::string> data;
  std::string tokenizer;
  int64_t limit = 5;
  int64_t row = 0;  // 0: the first ones
  bool json = false;
};

std::vector<bool> trained_of(const LabelledRows& row) {
  std::vector<bool> out;
  for (const int32_t label : row.labels) out.push_back(label != kIgnoreIndex);
  return out;
}

// Where the document of each token begins, in tokens of its sequence.
std::vector<int32_t> documents_of(const LabelledRows& row) {
  return row.first_key.empty() ? std::vector<int32_t>(row.tokens.size()) : row.first_key;
}

void print_row_json(int64_t number, const LabelledRows& row, const data::Tokenizer& tokenizer) {
  Json line = Json::object();
  line["row"] = number;
  line["text"] = tokenizer.decode(row.tokens, data::SpecialTokens::kInclude);
  line["ids"] = row.tokens;
  Json trained = Json::array(), positions = Json::array(), documents = Json::array();
  for (const bool is : trained_of(row)) trained.push_back(is ? 1 : 0);
  const std::vector<int32_t> first = documents_of(row);
  int document = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    document += i > 0 && first[i] != first[i - 1];
    positions.push_back(static_cast<int32_t>(i) - first[i]);
    documents.push_back(document);
  }
  line["trained"] = std::move(trained);
  line["positions"] = std::move(positions);
  line["documents"] = std::move(documents);
  fmt::print("{}\n", line.dump({.replace = true}));
}

// The tokens [first, end), with trained ones between ⟦ and ⟧.
std::string marked_text(const LabelledRows& row, size_t first, size_t end,
                        const data::Tokenizer& tokenizer, bool in_colour) {
  const std::vector<bool> trained = trained_of(row);
  const char* const begins = in_colour ? "\x1b[32m⟦" : "⟦";
  const char* const ends = in_colour ? "⟧\x1b[0m" : "⟧";
  data::TextStream stream(tokenizer, {}, data::SpecialTokens::kInclude);
  bool open = false;
  std::string text;
  for (size_t i = first; i < end; ++i) {
    const std::string next = stream.push(row.tokens[i]);
    if (trained[i] != open) text += trained[i] ? begins : ends;
    open = trained[i];
    text += next;
  }
  return text + stream.finish() + (open ? ends : "");
}

// Whether this is the rest of a sequence of documents: the last one, of one token again and again.
bool is_padding(const LabelledRows& row, size_t first, size_t end) {
  const std::span<const int32_t> tokens(&row.tokens[first], &row.tokens[first] + (end - first));
  const std::vector<bool> trained = trained_of(row);
  return first > 0 && end == row.tokens.size() &&
         std::ranges::count(tokens, tokens.front()) == std::ssize(tokens) &&
         std::find(trained.begin() + static_cast<std::ptrdiff_t>(first), trained.end(), true) ==
             trained.end();
}

// Each document of a sequence that has several begins with a line.
void print_marked(int64_t number, const LabelledRows& row, const data::Tokenizer& tokenizer,
                  bool in_colour) {
  const size_t length = row.tokens.size();
  fmt::print("--- {} {}: {}, {} trained\n", row.first_key.empty() ? "row" : "sequence", number,
             counted(std::ssize(row.tokens), "token"), std::ranges::count(trained_of(row), true));
  const std::vector<int32_t> first = documents_of(row);
  size_t begin = 0, end = 0;
  do {
    while (end < length && first[end] == first[begin]) ++end;
    if (is_padding(row, begin, end)) {
      fmt::print("- padding: {}\n", counted(static_cast<int64_t>(end - begin), "token"));
      break;
    }
    if (!row.first_key.empty()) fmt::print("- document: positions 0 to {}\n", end - begin - 1);
    fmt::print("{}\n", marked_text(row, begin, end, tokenizer, in_colour));
    begin = end;
  } while (begin < length);
}

double share(int64_t part, int64_t of) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(of, 1));
}

void print_figures(const DataFigures& of, const config::DataSection& c) {
  fmt::print("{}: {} rows, {} tokens, {:.1f} % trained", of.name, format_count(of.rows),
             format_count(of.tokens), share(of.trained, of.tokens));
  if (c.pads()) {
    const int64_t length = c.sequence_length;
    fmt::print(
        "; {} cut to {} tokens, the longest has {}; padded to {} tokens, rows are {:.1f} % filled",
        format_count(of.cut), length, format_count(of.longest), length,
        share(of.tokens, of.rows * length));
  }
  fmt::print("\n");
  constexpr int64_t kWidth = 40;
  int64_t most = 1;
  for (const auto& [bound, rows] : of.lengths) most = std::max(most, rows);
  for (const auto& [bound, rows] : of.lengths) {
    fmt::print("  up to {:>9} tokens {:>9}  {}\n", format_count(bound), format_count(rows),
               std::string(static_cast<size_t>((rows * kWidth + most - 1) / most), '#'));
  }
}

void preview(const PreviewOptions& options, comm::Communicator& world) {
  config::TrainConfig config = read_data_to_look_at(options.keys, options.data, options.tokenizer);
  if (config.data.held_out()) config.data.validation.clear();  // rows as the files number them
  FSDP_CHECK(!config.data.is_tokens(), "data.format: {}: these are tokens without a text",
             name_of(config.data.format));
  TrainData data(world, config, nullptr, DataUse::kTraining);
  data.check_trained(world, {}, true);
  for (const std::string& remark : data.remarks()) {
    const std::string_view text = remark;
    const size_t kind = text.starts_with("note: ") ? 6 : text.starts_with("warning: ") ? 9 : 0;
    print_note(std::string(text.substr(kind)));
  }
  const int64_t all = data.sequences();
  FSDP_CHECK(options.row <= all, "--row {}: the data has {}", options.row,
             counted(all, config.data.packs_documents() ? "sequence" : "row"));
  const int64_t first = options.row > 0 ? options.row - 1 : 0;
  const int64_t last = options.row > 0 ? options.row : std::min(options.limit, all);
  const bool in_colour = ::isatty(STDOUT_FILENO) != 0;
  for (int64_t i = first; i < last; ++i) {
    const LabelledRows row = data.labelled_rows(i);
    if (options.json) {
      print_row_json(i + 1, row, data.tokenizer());
    } else {
      print_marked(i + 1, row, data.tokenizer(), in_colour);
    }
  }
  if (options.json) return;
  for (const DataFigures& of : data.figures()) print_figures(of, config.data);
}

int run_preview(const PreviewOptions& given) {
  check_one_process("data preview");
  PreviewOptions options = given;
  FSDP_CHECK(!data::has_data_ending(options.file), "{0}: expected a configuration; --data {0}",
             options.file);
  if (!options.file.empty()) options.keys.config = options.file;
  FSDP_CHECK(options.keys.given() || !options.data.empty(),
             "data preview: expected a configuration, or --data with --tokenizer");
  comm::run_local_ranks(1, [&](comm::Communicator& world) { preview(options, world); });
  std::fflush(stdout);
  return 0;
}

}  // namespace

void add_data_command(const Command& app) {
  const Command data = app.add_command("data");
  data.require_command();
  const auto options = std::make_shared<PreviewOptions>();
  const Command command = data.add_command("preview");
  command.add({{"config", &options->file}, {"--data", &options->data}});
  add_data_key_options(command, "data.train", options->keys);
  command.add({{"--tokenizer", &options->tokenizer},
               {"--limit", &options->limit},
               {"--row", &options->row},
               {"--json", &options->json}});
  command.runs(options, run_preview);
}

}  // namespace fsdp::tools
