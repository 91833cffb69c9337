// fsdp tokenize: text to token ids and back, comparison with another implementation's results, and
// speed. Exit status of --verify: 0 when all is equal, 1 otherwise.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/local_transport.h"
#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/data/tokenizer/encoding_speed.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/data/tokenizer/tokenizer_check.h"
#include "tools/launch/launch.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

using data::SpecialTokens;

struct TokenizeOptions {
  std::string tokenizer;
  std::vector<std::string> texts;
  std::vector<std::string> files;
  std::vector<std::string> vectors;
  bool decode = false;
  bool pieces = false;
  bool omit_special = false;
  bool speed = false;
  std::string compare;  // a file of other programs' speeds
  DataKeys keys;        // given, or data: rows as fsdp train has them
  std::vector<std::string> data;
  int64_t limit = 0;  // sequences; 0: all
};

SpecialTokens special_of(const TokenizeOptions& options) {
  return options.omit_special ? SpecialTokens::kOmit : SpecialTokens::kInclude;
}

void print_encoded(const TokenizeOptions& options, const data::Tokenizer& tokenizer,
                   std::string_view text) {
  bool first = true;
  tokenizer.encode_to(text, special_of(options), [&](std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      std::string shown = fmt::format("{}", id);
      if (options.pieces) {
        const std::string piece = tokenizer.decode({&id, 1}, SpecialTokens::kInclude);
        shown += Json(piece).dump({.replace = true});
      }
      fmt::print("{}{}", first ? "" : " ", shown);
      first = false;
    }
  });
  fmt::print("\n");
}

void print_decoded(const TokenizeOptions& options, const data::Tokenizer& tokenizer,
                   const std::string& text) {
  std::vector<int32_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    size_t used = 0;
    int id = -1;
    try {
      id = std::stoi(word, &used);
    } catch (const std::exception&) {
    }
    FSDP_CHECK(used == word.size() && id >= 0, "--decode: expected token ids, got \"{}\"", word);
    ids.push_back(id);
  }
  const std::string decoded = tokenizer.decode(ids, special_of(options));
  if (const std::string note = data::note_on_unknown_ids(tokenizer, ids); !note.empty()) {
    print_note(note);
  }
  fmt::print("{}\n", decoded);
}

int verify(const TokenizeOptions& options, const data::Tokenizer* tokenizer) {
  constexpr size_t kShown = 10;
  bool equal = true;
  for (const std::string& file : options.vectors) {
    const TokenizerCheck check = check_tokenizer(tokenizer, file);
    const size_t differences = check.differences.size();
    fmt::print("{}: {} cases, {} differences\n", file, check.cases, differences);
    for (size_t i = 0; i < std::min(differences, kShown); ++i) {
      fmt::print("  {}\n", check.differences[i]);
    }
    if (differences > kShown) fmt::print("  and {} more\n", differences - kShown);
    equal = equal && differences == 0;
  }
  return equal ? 0 : 1;
}

void print_speeds(const std::string& tokenizer, const std::string& file, const Json& others) {
  for (const EncodingSpeed& mine : measure_encoding(tokenizer, file)) {
    fmt::print("{}, {}: {} bytes, {} tokens, {:.2f} MB/s, first pass {:.2f}\n", file, mine.way,
               mine.bytes, mine.tokens, mine.fastest, mine.first);
    for (const OtherSpeed& other : others_like(mine, others)) {
      fmt::print("  {}: {:.2f} MB/s where it was measured, ratio {:.2f}\n", other.library,
                 other.fastest, mine.fastest / other.fastest);
    }
  }
}

// One epoch of the training data of a run, a sequence a line, in the order of the files.
void print_sequences(const TokenizeOptions& options, comm::Communicator& world) {
  const config::TrainConfig config =
      read_data_to_look_at(options.keys, options.data, options.tokenizer);
  TrainData data(world, config, nullptr, DataUse::kTraining);
  data.check_trained(world, {}, true);
  for (const std::string& remark : data.remarks()) {
    print_note(remark.starts_with("note: ") ? remark.substr(6) : remark);
  }
  const int64_t all = data.sequences();
  for (int64_t i = 0; i < (options.limit > 0 ? std::min(options.limit, all) : all); ++i) {
    const LabelledRows rows = data.labelled_rows(i);
    Json line = {
        {"sequence", rows.samples.at(0)}, {"tokens", rows.tokens}, {"labels", rows.labels}};
    if (!rows.mask.empty()) line["mask"] = rows.mask;
    if (!rows.first_key.empty()) line["first_key"] = rows.first_key;
    if (rows.labels_are_targets) line["labels_are_targets"] = true;
    if (options.pieces) {
      Json pieces = Json::array();
      for (const int32_t id : rows.tokens) {
        pieces.push_back(data.tokenizer().decode({&id, 1}, SpecialTokens::kInclude));
      }
      line["pieces"] = pieces;
    }
    fmt::print("{}\n", line.dump({.replace = true}));
  }
}

int run_tokenize(const TokenizeOptions& options) {
  check_one_process("tokenize");
  if (options.keys.given() || !options.data.empty()) {
    comm::run_local_ranks(1, [&](comm::Communicator& world) { print_sequences(options, world); });
    return 0;
  }
  FSDP_CHECK(options.limit == 0, "--limit: expected --data, --config or --set with it");
  std::unique_ptr<data::Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer = data::make_tokenizer(options.tokenizer);
  if (tokenizer && !tokenizer->note().empty()) print_note(tokenizer->note());
  if (!options.vectors.empty()) return verify(options, tokenizer.get());
  FSDP_CHECK(tokenizer, "--tokenizer: expected bytes or the path of a tokenizer.json");
  const auto handle = [&](std::string_view text) {
    if (options.decode) {
      print_decoded(options, *tokenizer, std::string(text));
    } else {
      print_encoded(options, *tokenizer, text);
    }
  };
  for (const std::string& text : options.texts) handle(text);
  const Json others = read_speeds(options.compare);
  for (const std::string& file : options.files) {
    if (options.speed) {
      print_speeds(options.tokenizer, file, others);
    } else {
      const MappedFile mapped(file);
      try {
        handle(mapped.text());
      } catch (const Error& error) {
        fail("{}: {}", file, error.what());
      }
    }
  }
  if (options.texts.empty() && options.files.empty()) {
    const std::string text{std::istreambuf_iterator<char>(std::cin),
                           std::istreambuf_iterator<char>()};
    handle(text);
  }
  std::fflush(stdout);
  return 0;
}

}  // namespace

void add_tokenize_command(const Command& app) {
  const auto options = std::make_shared<TokenizeOptions>();
  const Command command = app.add_command("tokenize");
  command.add({{"text", &options->texts},
               {"--tokenizer", &options->tokenizer},
               {"--file", &options->files},
               {"--decode", &options->decode},
               {"--pieces", &options->pieces},
               {"--no-special", &options->omit_special},
               {"--speed", &options->speed},
               {"--compare", &options->compare},
               {"--verify", &options->vectors},
               {"--data", &options->data}});
  add_data_key_options(command, "data.train", options->keys);
  command.add({{"--limit", &options->limit}});
  command.runs(options, run_tokenize);
}

}  // namespace fsdp::tools
