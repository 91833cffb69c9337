// The options of what is trained, and on which data: model, lora, data.
// The words of the list: config_fields.h. What can be said of an option: option_field.h.
#include <algorithm>

#include "tools/config/config_fields.h"

namespace fsdp::config {
namespace {

constexpr const char* kWithSynthetic = "with data.format: synthetic";

std::string with_format(const DataSection& c) {
  return fmt::format("with data.format: {}", name_of(c.format));
}

// By the names alone: a folder may hold any files. What is in it, tools/train/train_data.cpp
// checks.
bool has_rows_by_name(const DataSection& c) {
  if (c.packing() != data::Pack::kStream) return true;  // lines
  const auto may = [&](const std::string& file) {
    const bool text = c.format == data::TextFormat::kText ||
                      (c.format == data::TextFormat::kAuto && file.ends_with(".txt"));
    return !text;
  };
  const std::vector<std::string> files = c.training_files();
  return files.empty() || std::any_of(files.begin(), files.end(), may) ||
         std::any_of(c.validation.begin(), c.validation.end(), may);
}

// Help that names values of guests. It lives as long as a literal.
struct GuestHelp {
  std::string tokens = guest_names<data::TokenFormat>(), labels = guest_names<GuestLabels>();
  std::string format;
  std::string row_template =
      "how a row's fields become a text: alpaca, alpaca_short, squad, " +
      guest_names<data::NamedTemplate>() +
      ", or a file with {names of fields}; empty: the format's, or data.field";
  std::string objective =
      "which tokens are trained; lm: all; sft: the answer and its end-of-text; mask_pad: all but "
      "the padding token; compat_all, " +
      labels + ": the labels of two published scripts";
  std::string pad_to =
      "longest: row of the batch; length: sequence_length; auto: longest, but length with "
      "compat_all and " +
      labels;
  std::string bad_rows =
      "a row that is malformed or has no text: end with an error, or skip the row and list it "
      "in skipped_rows.jsonl of the run directory; so is a sentence of " +
      tokens + " that is longer than sequence_length";
  std::string break_mode =
      "of format: " + tokens +
      ", where sequences end; none: at every sequence_length tokens; complete: at the end of the "
      "last sentence that fits; complete_doc: there and at an empty sentence; eos: at every "
      "sentence";

  void add(std::string_view name, std::string_view about) {
    const bool first = format.empty() || format.ends_with(", ");
    format += fmt::format("{}{}{}{}", first ? "" : "; ", name, about.empty() ? ", " : ": ", about);
  }
  GuestHelp() {
    for (const data::FormatTraits& own : data::kTextFormats) {
      if (own.name.empty()) {
        for (const auto* guest : guests_of<data::TokenFormat>()) add(guest->name, guest->help);
      } else {
        add(own.name, own.help);
      }
    }
  }
};
const GuestHelp& help() {
  static const GuestHelp all;
  return all;
}

// Text, or tokens whose sequences are of any length.
Need rows_needed(const DataSection& c) {
  std::string with = with_format(c);
  if (!c.synthetic()) {
    with += fmt::format(" and data.sample_break_mode: {}", name_of(c.sample_break_mode));
  }
  return {!c.is_tokens() || c.has_blocks_of_sentences(), with};
}

}  // namespace

Need text_needed(const DataSection& c) { return {!c.is_tokens(), with_format(c)}; }

void visit(Visitor& v, ModelSection& c, const TrainConfig&) {
  v.field("path", c.path, "Hugging Face folder to start from; empty: from scratch",
          {.on_resume = OnResume::kFree});
  v.field("preset", c.preset, "sizes by name, such as gpt2-124m; empty: the sizes below");
  v.field("model_type", c.model_type, "family, such as gpt2 or llama; empty: from path or preset");
  v.field("vocab_size", c.vocab_size, "0: from path, preset or the data's tokenizer",
          {.range = size_from(0)});
  v.field("hidden_size", c.hidden_size, "0: from path or preset; so are the next ones",
          {.range = size_from(0)});
  v.field("layers", c.layers, "transformer blocks", {.range = size_from(0)});
  v.field("heads", c.heads, "query heads", {.range = size_from(0)});
  v.field("kv_heads", c.kv_heads, "key-value heads; 0: as many as heads", {.range = size_from(0)});
  v.field("head_dim", c.head_dim, "0: hidden_size / heads", {.range = size_from(0)});
  v.field("ffn", c.ffn, "inner width of the MLP; 0: the family's rule", {.range = size_from(0)});
  v.field("max_positions", c.max_positions, "0: data.sequence_length", {.range = size_from(0)});
  v.field("activation", c.activation, "Hugging Face's name, such as gelu_new; empty: the family's");
  v.field("tie_embeddings", c.tie_embeddings, "head = embedding; auto: the family's");
  v.field("shift_labels", c.shift_labels,
          "position t predicts token t + 1; false: token t, as workshop_gpt's single-GPU script; "
          "auto: the family's");
  v.field("rope_theta", c.rope_theta, "auto: the family's", {.range = kPositive});
  v.field("norm_epsilon", c.norm_epsilon, "auto: the family's", {.range = kPositive});
  v.field("init_deviation", c.init_deviation, "of the initial weights; auto: the family's",
          {.range = from_to(0, 1)});
  v.field("dropout", c.dropout,
          "probability, on attention weights and (not llama) embeddings and residuals; auto: the "
          "folder's, 0 from scratch",
          {.range = kShare});
}

void visit(Visitor& v, LoraSection& c, const TrainConfig&) {
  const bool loaded = !c.path.empty();
  const char* const without = loaded ? "beside lora.path, which says it" : "without lora.r";
  const Need own_terms = {c.r > 0 && !loaded, without};
  v.field("r", c.r, "rank of the terms; 0: no LoRA, or that of path",
          {.range = size_from(0), .needs = {{!loaded, without}}});
  v.field("alpha", c.alpha, "a term counts alpha / r",
          {.aliases = {"lora_alpha"}, .range = kPositive, .needs = {own_terms}});
  v.field("dropout", c.dropout,
          "dropout on the input of the low-rank terms; auto: 0, or the value in lora.path",
          {.aliases = {"lora_dropout"}, .range = kShare, .needs = {{c.r > 0 || loaded, without}}});
  v.field(
      "targets", c.targets,
      "linear layers: Hugging Face names or how they end, such as q_proj, or all-linear; empty: "
      "attention's query and value, as PEFT",
      {.aliases = {"target_modules"}, .needs = {own_terms}});
  v.field("rslora", c.rslora, "a term counts alpha / sqrt(r)",
          {.aliases = {"use_rslora"}, .needs = {own_terms}});
  v.field("path", c.path,
          "folder of a PEFT adapter to start from; its model is model.path, if that is given");
}

void visit(Visitor& v, SubsetSection& c, const TrainConfig& all) {
  v.field("n", c.n, "rows of data.train; auto: all, in the order of the files",
          {.range = from(1),
           .needs = {{all.data.sources.empty(), "with data.sources"}, text_needed(all.data)},
           .on_resume = OnResume::kFree});
  v.field("seed", c.seed, "of the choice and the order of these rows",
          {.range = kSeed,
           .needs = {{c.n.has_value(), "without data.subset.n"}},
           .on_resume = OnResume::kFree});
}

void visit(Visitor& v, ValidationSubset& c, const TrainConfig& all) {
  const std::vector<Need> needs = {{!all.data.validation.empty(), "without data.validation"},
                                   {!all.data.held_out(), "with a share in data.validation"},
                                   text_needed(all.data)};
  v.field("n", c.n, "rows of data.validation; auto: all, in the order of the files",
          {.range = from(1), .needs = needs, .on_resume = OnResume::kFree});
  v.field("seed", c.seed, "of the choice and the order of these rows",
          {.range = kSeed,
           .needs = {{c.n.has_value(), "without data.validation_subset.n"}},
           .on_resume = OnResume::kFree});
}

void visit(Visitor& v, SourceSection& c) {
  v.field("path", c.path, "file, folder, pattern, or list of these, as train");
  v.field("weight", c.weight, "its share of the sequences, beside the weights of the others");
}

// How texts become the sequences of steps.
void visit_sequences(Visitor& v, DataSection& c) {
  const std::string with_pack = fmt::format("with data.pack: {}", name_of(c.packing()));
  const Need random = {!c.synthetic(), kWithSynthetic};
  const Need documents = {c.packs_documents(), with_pack};
  // Where format is auto, pack may become examples.
  const bool may_pad = c.pads() || c.is_tokens() || (c.may_be_chat() && !c.packs_documents());
  v.field("tokenizer", c.tokenizer,
          "bytes, or a tokenizer.json or a folder with one; empty: that of model.path, or bytes",
          {.needs = {text_needed(c)}, .on_resume = OnResume::kFree});
  v.field("objective", c.objective, help().objective.c_str());
  v.field("pack", c.pack,
          "stream: texts follow one another; examples: a row is a sequence, cut or padded; "
          "wikitext_rows: rows cut, then joined 1,000 at a time; documents: several rows in a "
          "sequence, "
          "which do not see each other; auto: stream for lm, else examples",
          {.needs = {text_needed(c)}});
  v.field("pack_window", c.pack_window,
          "with pack: documents, the rows of a sequence are chosen among so many neighbours",
          {.range = {.least = 1, .largest = UINT32_MAX}, .needs = {text_needed(c), documents}});
  v.field(
      "long_rows", c.long_rows,
      "with pack: documents, a row that is longer than sequence_length: cut it, drop it, or end "
      "with an error that names it",
      {.needs = {text_needed(c), documents}});
  v.field("document_attention", c.document_attention,
          "with pack: stream, what a token sees: all earlier tokens of its sequence, or the tokens "
          "of its own document, which end-of-text ends",
          {.needs = {text_needed(c), {c.packing() == data::Pack::kStream, with_pack}}});
  v.field("document_separator", c.document_separator,
          "end-of-text after every row or file; auto: true, but not with wikitext_rows",
          {.needs = {text_needed(c)}, .on_resume = OnResume::kFree});
  v.field("pad", c.pad,
          "the side of a short row that is filled up with pack: examples; auto: padding_side of "
          "the tokenizer's folder, else right",
          {.needs = {{may_pad, with_pack}, text_needed(c)}});
  v.field("pad_to", c.pad_to, help().pad_to.c_str(),
          {.needs = {{c.has_rows_of_any_length() || may_pad, with_pack}, rows_needed(c)}});
  v.field("sequence_length", c.sequence_length,
          "tokens; with pack: examples a longer row is cut to it",
          {.aliases = {"max_seq_length", "max_length", "MAX_LENGTH"}, .range = size_from(2)});
  v.field("cache_dir", c.cache_dir, "of token files; empty: .cache/tokens",
          {.of_rank = true, .needs = {text_needed(c)}, .on_resume = OnResume::kFree});
  v.field("shuffle", c.shuffle, "in every epoch another order, by train.seed", {.needs = {random}});
  v.field("shuffle_rule", c.shuffle_rule,
          "torch: the order of torch.randperm, and ranks filled up as by its DistributedSampler");
  v.field("set_epoch", c.set_epoch,
          "false: every epoch in the order of the first, as scripts that never call set_epoch",
          {.needs = {{c.shuffle, "with data.shuffle: false"}, random}});
  v.field("last_batch", c.last_batch,
          "an incomplete last batch of an epoch: train it short, pad or drop it");
  v.field("prefetch", c.prefetch,
          "batches that a thread makes ahead of the steps; 0: each when its step begins",
          {.range = from_to(0, 1024), .on_resume = OnResume::kFree});
}

// Keys of conversations have an effect where rows are, or may be, some.
void visit_chat(Visitor& v, DataSection& c) {
  ChatKeys& chat = c.chat;
  const Need needed = {c.may_be_chat(), with_format(c)};
  v.field("train_on", chat.train_on,
          "trained tokens of a conversation; assistant: its turns and their ends; last: its last "
          "turn; all: "
          "every token",
          {.needs = {needed}});
  v.field("messages_field", chat.messages_field,
          "field of a row with the list of messages; empty: messages, conversations, or prompt and "
          "completion",
          {.needs = {needed}, .on_resume = OnResume::kFree});
  v.field("roles", chat.roles, "the data's words for roles: {bot: assistant}", {.needs = {needed}});
  v.field(
      "chat_template", chat.chat_template,
      "chatml, llama3, zephyr, vicuna, or a file; empty: the template in the tokenizer's folder",
      {.needs = {needed}, .on_resume = OnResume::kFree});
  v.field("chat_template_kwargs", chat.template_kwargs,
          "variables of the template: {enable_thinking: false}", {.needs = {needed}});
  v.field("chat_date", chat.date, "the date that a template may write, such as 2026-01-31",
          {.needs = {needed}});
  v.field("special_in_content", chat.special_in_content,
          "where a message has the text of a special token; as_special: it becomes the token; "
          "as_text: it does not",
          {.needs = {needed}});
  v.field("max_untrained_rows", chat.max_untrained_rows,
          "so many conversations may have no trained token; more are an error",
          {.needs = {needed}, .on_resume = OnResume::kFree});
}

std::vector<std::string> keys_of_chats(const TrainConfig& config) {
  const DataSection& c = config.data;
  const auto keys = [&](const auto&... members) {
    return std::vector<std::string>{key_of(config, members)...};
  };
  return keys(c.chat.train_on, c.chat.messages_field, c.chat.roles, c.chat.chat_template,
              c.chat.template_kwargs, c.chat.date, c.chat.special_in_content,
              c.chat.max_untrained_rows, c.pad, c.pad_to);
}

void visit(Visitor& v, DataSection& c, const TrainConfig& all) {
  const Need may_have_rows = {has_rows_by_name(c), "on files of text"};
  const bool of_format = !data::traits_of(c.format).row_template.empty();
  v.field(
      "train", c.train,
      "file, folder, pattern like texts/*.jsonl, or list of these; looked for here, then beside "
      "this file",
      {.needs = {{!c.synthetic(), kWithSynthetic}}, .on_resume = OnResume::kFree});
  v.list("sources",
         "instead of train, several with weights: [{path: a.jsonl, weight: 2}, {path: b.txt}]; an "
         "epoch has as many sequences as all of them together, dealt by weight; a source begins "
         "again, in another order, where it is used up",
         c.sources, {.needs = {{!c.synthetic(), kWithSynthetic}}, .on_resume = OnResume::kFree});
  v.field("validation", c.validation,
          "as train, or a share of the training data, such as 5%, which is not trained; empty: no "
          "evaluation",
          {.on_resume = OnResume::kFree});
  v.field("format", c.format, help().format.c_str(), {.on_resume = OnResume::kFree});
  v.field("field", c.field, "of a row, or column of a table: holds the text",
          {.needs = {may_have_rows,
                     {!of_format && !c.is_chat(), with_format(c)},
                     {c.row_template.empty(), "with data.template"},
                     text_needed(c)},
           .on_resume = OnResume::kFree});
  v.field("template", c.row_template, help().row_template.c_str(),
          {.needs = {may_have_rows,
                     {c.format != data::TextFormat::kText, "on files of text"},
                     {!c.is_chat(), with_format(c)},
                     text_needed(c)},
           .on_resume = OnResume::kFree});
  v.field("bad_rows", c.bad_rows, help().bad_rows.c_str(),
          {.needs = {may_have_rows, rows_needed(c)}, .on_resume = OnResume::kFree});
  v.field("synthetic_rows", c.synthetic_rows,
          "of format: synthetic, sequences; auto: as many as train.steps takes",
          {.range = from(1),
           .needs = {{c.synthetic(), "without data.format: synthetic"}},
           .on_resume = OnResume::kFree});
  const std::string without = "without data.format: " + help().tokens;
  v.field("sample_break_mode", c.sample_break_mode, help().break_mode.c_str(),
          {.aliases = {"break_mode"}, .needs = {{c.format.guest != nullptr, without}}});
  v.section("subset", "some rows of data.train, those of datasets' shuffle(seed).select(range(n))",
            c.subset, all);
  v.section("validation_subset", "the same of data.validation", c.validation_subset, all);
  visit_chat(v, c);
  visit_sequences(v, c);
}

}  // namespace fsdp::config
