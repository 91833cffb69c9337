// A rank's rows through the model, and the loop over tokens that all ranks share.
#include "tools/generate/generation.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>

#include "comm/exchange.h"
#include "core/kv_cache.h"
#include "models/input_rules.h"
#include "models/key_bias.h"
#include "tools/engine/batch.h"

namespace fsdp::tools {
namespace {

using Ids = std::vector<int32_t>;

// The texts of one rank as a batch: padded in front to the longest, then a column a pass.
class BatchDecoder {
 public:
  // At least one text, none empty.
  BatchDecoder(Session& session, bool with_cache, std::vector<Ids> texts)
      : session_(session), texts_(std::move(texts)), pads_(texts_.size()) {
    const models::ModelConfig& model = session_.model().config();
    if (!with_cache) return;
    cache_.emplace(session_.backend(), KvCache::Spec{.layers = model.layers,
                                                     .rows = rows(),
                                                     .capacity = session_.max_length(),
                                                     .kv_heads = model.kv_heads,
                                                     .head_dim = model.head_dim});
  }

  size_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }
  const Ids& text(size_t row) const { return texts_[row]; }
  void push(size_t row, int32_t token) { texts_[row].push_back(token); }

  // (rows, V) after the last token of every text. Between calls each text grows by one token.
  std::vector<double> next_logits() {
    if (cache_ && cache_->length() > 0 && cache_->length() < cache_->capacity()) return feed_last();
    return feed_all();
  }

 private:
  int64_t rows() const { return static_cast<int64_t>(texts_.size()); }

  // The end of every text, as much as the model has room for; what the cache held is computed
  // again.
  std::vector<double> feed_all() {
    const auto room = static_cast<size_t>(session_.max_length());
    size_t columns = 0;
    for (const Ids& text : texts_) columns = std::max(columns, std::min(room, text.size()));
    const models::ModelConfig& model = session_.model().config();
    Ids tokens, mask;
    for (const Ids& text : texts_) {
      const size_t seen = std::min(room, text.size()), pads = columns - seen;
      tokens.insert(tokens.end(), pads, 0);
      tokens.insert(tokens.end(), text.end() - static_cast<std::ptrdiff_t>(seen), text.end());
      mask.insert(mask.end(), pads, 0);
      mask.insert(mask.end(), seen, 1);
    }
    const models::InputRules rules = models::input_rules(model);
    mask = models::padding_mask(rules, tokens, mask);
    hide_padding(mask, columns, room);
    if (cache_) cache_->clear();
    return compute(tokens, models::counted_positions(rules, mask, static_cast<int64_t>(columns)));
  }

  // `mask`: rows of `columns`. What is still to come, up to `room`, is no padding.
  void hide_padding(const Ids& mask, size_t columns, size_t room) {
    Ids longer;
    for (size_t row = 0; row < texts_.size(); ++row) {
      const auto begin = mask.begin() + static_cast<std::ptrdiff_t>(row * columns);
      const auto end = begin + static_cast<std::ptrdiff_t>(columns);
      pads_[row] = static_cast<size_t>(std::count(begin, end, 0));
      longer.insert(longer.end(), begin, end);
      longer.resize((row + 1) * room, 1);
    }
    key_bias_ = {};
    if (std::find(mask.begin(), mask.end(), 0) == mask.end()) return;
    key_bias_ = models::make_key_bias(session_.model().config(), session_.backend(),
                                      accumulation_dtype(session_.compute_dtype()), longer, rows());
  }

  // The cache holds everything but the last column.
  std::vector<double> feed_last() {
    Ids tokens, positions;
    for (size_t row = 0; row < texts_.size(); ++row) {
      tokens.push_back(texts_[row].back());
      positions.push_back(
          static_cast<int32_t>(session_.model().config().position_offset + cache_->length()) -
          static_cast<int32_t>(pads_[row]));
    }
    return compute(tokens, positions);
  }

  std::vector<double> compute(const Ids& tokens, const Ids& positions) {
    const Shape shape = {rows(), static_cast<int64_t>(tokens.size()) / rows()};
    const Tensor at = Tensor::from_host(session_.backend(), shape, positions);
    return session_.next_token_logits(Tensor::from_host(session_.backend(), shape, tokens),
                                      {.key_bias = key_bias_.defined() ? &key_bias_ : nullptr,
                                       .positions = &at,
                                       .cache = cache_ ? &*cache_ : nullptr});
  }

  Session& session_;
  std::vector<Ids> texts_;
  std::vector<size_t> pads_;  // columns of each row that are padding, since feed_all
  Tensor key_bias_;           // (rows, heads or 1, room); undefined: no padding
  std::optional<KvCache> cache_;
};

// The tokens that all ranks chose, in order of rows; `rows` of them. Collective.
Ids tokens_of_all_ranks(comm::Communicator& world, const Ids& own, size_t rows) {
  Ids all;
  for (const Ids& part : comm::exchange_lists(world, own)) {
    all.insert(all.end(), part.begin(), part.end());
  }
  all.resize(rows);  // in a run without bytes every rank says what this one says (meta_transport.h)
  return all;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// All texts, of which this rank computes its own.
class BatchGeneration {
 public:
  BatchGeneration(Session& session, const GenerationOptions& options,
                  const std::vector<Ids>& prompts, uint64_t first_sample)
      : options_(options),
        first_sample_(first_sample),
        own_(deal_rows(static_cast<int64_t>(prompts.size()), session.world().rank(),
                       session.world().size())),
        table_(static_cast<size_t>(session.model().config().vocabulary)),
        named_(options.vocabulary > 0 ? std::min<int64_t>(options.vocabulary, table()) : table()),
        padding_(models::input_rules(session.model().config()).padding),
        decoder_(session, options.cache, own_texts(prompts)),
        growing_(prompts.size()),
        texts_(prompts.size()) {
    for (const int32_t id : options.stop) {
      if (id >= named_ && id < table()) unnamed_stops_.push_back(id);
    }
  }

  size_t growing() const { return growing_; }
  size_t cache_bytes() const { return decoder_.cache_bytes(); }
  std::vector<Generated> texts() { return std::move(texts_); }

  // The next token of each of this rank's rows; of a text that has ended, any.
  Ids choose() {
    const std::vector<double> logits = decoder_.next_logits();
    Ids chosen;
    for (size_t row = 0; row < static_cast<size_t>(own_.count); ++row) {
      const size_t prompt = static_cast<size_t>(own_.first) + row;
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row * table_);
      const models::SamplingPlace place = {first_sample_ + prompt, decoder_.text(row).size()};
      chosen.push_back(texts_[prompt].stopped ? 0 : choose_of(begin, place));
      decoder_.push(row, chosen.back());
    }
    if (own_.count == 0) decoder_.push(0, 0);
    return chosen;
  }

  // `tokens`: of all texts.
  void take(const Ids& tokens, const UseToken& use) {
    for (size_t prompt = 0; prompt < texts_.size(); ++prompt) {
      Generated& text = texts_[prompt];
      if (text.stopped) continue;
      const Ids& stop = options_.stop;
      text.stopped = std::find(stop.begin(), stop.end(), tokens[prompt]) != stop.end();
      if (text.stopped) {
        --growing_;
        continue;
      }
      text.ids.push_back(tokens[prompt]);
      if (use) use(prompt, tokens[prompt]);
    }
  }

 private:
  // A stop token may be drawn although the tokenizer has no name for it.
  int32_t choose_of(std::vector<double>::const_iterator logits,
                    const models::SamplingPlace& place) const {
    std::vector<double> candidates(logits, logits + named_);
    if (padding_ >= 0 && padding_ < named_) {
      candidates[static_cast<size_t>(padding_)] = std::numeric_limits<double>::lowest();
    }
    for (const int32_t id : unnamed_stops_) candidates.push_back(logits[id]);
    const int32_t chosen = models::choose_token(candidates, options_.sampling, place);
    return chosen < named_ ? chosen : unnamed_stops_[static_cast<size_t>(chosen - named_)];
  }
  std::vector<Ids> own_texts(const std::vector<Ids>& prompts) const {
    if (own_.count == 0) return {{0}};  // [Note: a rank without rows] in session.cpp
    const auto first = prompts.begin() + own_.first;
    return {first, first + own_.count};
  }
  int64_t table() const { return static_cast<int64_t>(table_); }
  const GenerationOptions& options_;
  uint64_t first_sample_;
  RowRange own_;
  size_t table_;     // logits of a row
  int64_t named_;    // ids below may be chosen
  int32_t padding_;  // never chosen; -1: none
  Ids unnamed_stops_;
  BatchDecoder decoder_;
  size_t growing_;  // texts that have not met a stop token
  std::vector<Generated> texts_;
};

}  // namespace

std::vector<Generated> generate_tokens(Session& session, const GenerationOptions& options,
                                       const std::vector<Ids>& prompts, const UseToken& use,
                                       uint64_t first_sample, GenerationStats* stats) {
  models::validate(options.sampling);
  for (const Ids& prompt : prompts) {
    FSDP_CHECK(!prompt.empty(), "[generate] prompt: expected at least one token");
  }
  BatchGeneration batch(session, options, prompts, first_sample);
  GenerationStats local;
  GenerationStats& measured = stats ? *stats : local;
  for (const Ids& prompt : prompts) measured.prompt_tokens += static_cast<int64_t>(prompt.size());
  for (int64_t i = 0; i < options.tokens && batch.growing() > 0; ++i) {
    const double start = seconds_now();
    const Ids tokens = tokens_of_all_ranks(session.world(), batch.choose(), prompts.size());
    (i == 0 ? measured.prompt_seconds : measured.new_token_seconds) += seconds_now() - start;
    if (i > 0) measured.new_tokens += static_cast<int64_t>(batch.growing());
    batch.take(tokens, use);
  }
  measured.cache_bytes = std::max(measured.cache_bytes, batch.cache_bytes());
  return batch.texts();
}

std::vector<Generated> generate_in_batches(
    Session& session, const GenerationOptions& options, const std::vector<Ids>& prompts,
    size_t batch, const UseToken& use,
    const std::function<void(size_t prompt, const Generated& text)>& done, GenerationStats* stats) {
  std::vector<Generated> all;
  for (size_t first = 0; first < prompts.size(); first += batch) {
    const auto begin = prompts.begin() + static_cast<std::ptrdiff_t>(first);
    const auto count = static_cast<std::ptrdiff_t>(std::min(batch, prompts.size() - first));
    const auto use_of_all = [&](size_t prompt, int32_t token) {
      if (use) use(first + prompt, token);
    };
    for (Generated& text :
         generate_tokens(session, options, {begin, begin + count}, use_of_all, first, stats)) {
      if (done) done(all.size(), text);
      all.push_back(std::move(text));
    }
  }
  return all;
}

}  // namespace fsdp::tools
