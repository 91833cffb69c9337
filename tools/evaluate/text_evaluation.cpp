// From folder and files to the loss.
#include "tools/evaluate/text_evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numbers>

#include "core/error.h"
#include "core/text/numbers.h"
#include "models/config.h"
#include "tools/config/step_shape.h"
#include "tools/data/beyond_vocabulary.h"
#include "tools/data/text_source.h"
#include "tools/data/token_cache.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/predict/model_use.h"
#include "tools/predict/predicted_run.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

struct OpenedModel {
  ModelSource source;
  models::ModelConfig config;
  std::string tokenizer_name;
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::string note;  // on its vocabulary; "": none
};

OpenedModel open_model(const TextEvaluationOptions& options) {
  OpenedModel out;
  out.source = find_model(options.model.folder, options.model.base);
  out.config = out.source.config();
  out.tokenizer_name =
      options.model.tokenizer.empty() ? out.source.default_tokenizer() : options.model.tokenizer;
  if (options.config && options.config->data.is_tokens()) return out;  // none takes part
  out.tokenizer = data::make_tokenizer(out.tokenizer_name);
  out.note = check_vocabulary(options.model.folder, out.tokenizer_name, *out.tokenizer,
                              out.config.vocabulary);
  return out;
}

TextSequences sequences_of(const TextEvaluationOptions& options, const models::ModelConfig& model) {
  TextSequences text;
  text.length =
      options.length > 0 ? options.length : std::min(model.max_positions, kLongestByDefault);
  text.stride = options.stride > 0 ? options.stride : text.length;
  text.batch = options.batch;
  text.rules = models::input_rules(model);
  FSDP_CHECK(text.length <= most_tokens(model),
             "--sequence-length: the model has {} positions, got {}", model.max_positions,
             text.length);
  return text;
}

int64_t bytes_of_documents(const data::TokenSource& source) {
  int64_t bytes = 0;
  data::for_each_document(source.files, source.text, [&](const data::Document& document) {
    bytes += static_cast<int64_t>(document.text.size());
  });
  return bytes;
}

}  // namespace

double TextFigures::perplexity() const { return std::exp(loss.mean()); }

double TextFigures::bits_per_token() const { return loss.mean() / std::numbers::ln2; }

double TextFigures::bits_per_byte() const {
  return bits_per_token() * static_cast<double>(tokens) / static_cast<double>(bytes);
}

namespace {

// What is evaluated, and what must outlive its batches.
struct EvaluatedData {
  BatchSource batches;
  std::vector<std::pair<std::string, BatchSource>> by_role = {};
  ModelUse use = {};
  std::unique_ptr<data::TokenCache> cache = nullptr;
  std::unique_ptr<TrainData> of_run = nullptr;
};

// A text in overlapping sequences.
EvaluatedData open_text(const TextEvaluationOptions& options, const OpenedModel& model,
                        comm::Communicator& world, const EvaluationListener& listener,
                        TextFigures& figures) {
  TextSequences text;
  agree(world, [&] { text = sequences_of(options, model.config); });
  data::TokenSource source;
  source.files.assign(options.files.begin(), options.files.end());
  source.text.field = options.field;
  source.text.progress = world.rings()->progress().get();
  source.document_separator = model.tokenizer->end_of_text() >= 0;
  EvaluatedData out;
  std::string of_cache;
  try {
    out.cache = open_token_cache(world, options.cache, source, *model.tokenizer, {}, &of_cache);
  } catch (const AgreedError& error) {  // names the key of a run
    std::string message = error.what();
    const std::string_view key = "data.cache_dir: ";
    if (const size_t at = message.find(key); at != message.npos) {
      message.replace(at, key.size(), "--cache-dir: ");
    }
    throw AgreedError(message, error.status(), error.cause());
  }
  for (const std::string& note : {of_cache, note_on_files(out.cache->skipped_rows())}) {
    if (world.rank() == 0 && !note.empty()) listener.note(note);
  }
  agree(world, [&] {
    text.tokens = out.cache->tokens();
    if (world.rank() == 0) {
      data::check_tokens_below(model.config.vocabulary, *out.cache, source, *model.tokenizer);
      const data::RowEncoder encoder(*model.tokenizer, source.form, source.document_separator);
      const std::string note =
          encoder.note_on_doubled(text.tokens.first(std::min(text.tokens.size(), size_t{1} << 16)));
      if (!note.empty()) listener.note(fmt::format("{}: {}", options.files.front(), note));
      figures.bytes = bytes_of_documents(source);
    }
    out.batches = batches_of(text, world.rank(), world.size());
    out.use = use_of_batches({{.rows = std::min(text.batch, text.count()),
                               .length = std::min(text.length, std::ssize(text.tokens))}});
  });
  figures.tokens = static_cast<int64_t>(text.tokens.size());
  figures.sequences = text.count();
  figures.length = text.length;
  figures.stride = text.stride;
  return out;
}

// The validation data of a run.
EvaluatedData open_validation(config::TrainConfig config, const OpenedModel& model,
                              comm::Communicator& world, const EvaluationListener& listener,
                              TextFigures& figures) {
  agree(world, [&] {
    FSDP_CHECK(config.data.sequence_length <= most_tokens(model.config),
               "data.sequence_length: the model has {} positions, got {}",
               model.config.max_positions, config.data.sequence_length);
  });
  EvaluatedData out;
  config.model = {.path = model.source.folder.string()};  // which token may be padding
  out.of_run = std::make_unique<TrainData>(world, config, nullptr, DataUse::kValidation);
  out.of_run->check_trained(world, models::input_rules(model.config));
  agree(world, [&] {
    if (!config.data.is_tokens()) out.of_run->check_tokens(model.config.vocabulary);
    FSDP_CHECK(out.of_run->validation_sequences() > 0, "data.validation: expected files, got none");
    if (world.rank() == 0) {
      for (const std::string& remark : out.of_run->remarks()) {
        listener.note(remark.starts_with("note: ") ? remark.substr(6) : remark);
      }
    }
  });
  out.batches = out.of_run->validation(models::input_rules(model.config));
  out.use = use_of_batches(out.of_run->largest_validation_batches(),
                           config::step_shape(config, world.size()).rows_per_pass,
                           kind_of_rows(config.data));
  for (const data::Role role : out.of_run->validation_roles()) {
    out.by_role.emplace_back(name_of(role),
                             out.of_run->validation_of(role, models::input_rules(model.config)));
  }
  figures.sequences = out.batches.sequences;
  figures.length = figures.stride = config.data.sequence_length;
  return out;
}

}  // namespace

TextFigures evaluate_text(const TextEvaluationOptions& options, RankContext& rank,
                          const EvaluationListener& listener) {
  const bool speaks = rank.world.rank() == 0;
  OpenedModel model;
  agree(rank.world, [&] {
    model = open_model(options);
    // With a configuration its data says what is to be said of the files.
    const std::string of_files = model.tokenizer && !options.config ? model.tokenizer->note() : "";
    for (const std::string& note : {of_files, model.note}) {
      if (speaks && !note.empty()) listener.note(note);
    }
  });
  TextFigures figures;
  const EvaluatedData data =
      options.config ? open_validation(*options.config, model, rank.world, listener, figures)
                     : open_text(options, model, rank.world, listener, figures);
  const PlacedOptions placed = options_for_use(model.config, figures.length, options.model, rank);
  check_fits(rank, placed, data.use);
  Session session = place_session(rank.world, placed);
  with_session(rank, [&] {
    load_model(session, model.source, listener.note);
    const auto started = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    };
    figures.loss =
        loss_of_batches(session, data.batches, [&](int64_t done, const TextLoss& so_far) {
          if (speaks) listener.progress(done, data.batches.batches, so_far, seconds());
          return true;
        });
    for (const auto& [role, batches] : data.by_role) {
      figures.by_role.emplace_back(
          role, loss_of_batches(session, batches, [](int64_t, const TextLoss&) { return true; }));
    }
    // Every rank has the same sum. Another start would find the same.
    if (!std::isfinite(figures.loss.mean())) {
      const std::string why =
          figures.loss.tokens == 0
              ? "no token is predicted"
              : fmt::format("the loss is not finite ({}) in {}", format_value(figures.loss.nats),
                            options.model.dtype);
      throw AgreedError(fmt::format("{}: {}", options.model.folder, why), status::kGaveUp);
    }
    figures.seconds = seconds();
  });
  const bool is_tokens = options.config && options.config->data.is_tokens();
  figures.tokenizer = is_tokens ? "none" : model.tokenizer_name;
  return figures;
}

}  // namespace fsdp::tools
