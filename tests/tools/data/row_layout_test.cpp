// Ids, mask and labels of rows against those that transformers, its collators and a published
// script make (tests/fixtures/objectives.json); the rules for rows that are too long.
// Requirements: S0.2, S1.3, S3.5.
#include "tools/data/row_layout.h"

#include <numeric>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/data/row_encoder.h"
#include "tools/data/text_source.h"

namespace fsdp::data {
namespace {

using Ids = std::vector<int32_t>;

std::vector<RowParts> documents(const std::string& json, TextFormat format) {
  const test::TempFolder folder;
  std::vector<RowParts> out;
  for_each_document(folder.write("a.json", json), {.format = format}, [&](const Document& d) {
    out.push_back({std::string(d.text), std::string(d.cue), std::string(d.answer)});
  });
  return out;
}

// One set of expected rows: a tokenizer, a side, a length.
struct Expected {
  explicit Expected(const Json& entry)
      : tokenizer(make_tokenizer(
            (test::fixture_path("tokenizers") / entry["tokenizer"].text()).string())),
        layout{.side = entry["side"].text() == "left" ? PadSide::kLeft : PadSide::kRight,
               .pad_token = entry["pad_token"]},
        length(entry["length"]) {}

  void check(Objective objective, const RowParts& parts, const Json& row) {
    check(objective, parts, row, row["labels"].get<Ids>());
  }
  void check(Objective objective, const RowParts& parts, const Json& row, const Ids& labels) {
    CAPTURE(name_of(objective));
    CAPTURE(length);
    const RowForm form = form_of(objective, Pack::kExamples);
    // Of these, supervised fine-tuning alone ends a row with end-of-text.
    const RowEncoder encoder(*tokenizer, form, form == RowForm::kAnswered);
    Ids ids;
    const ExampleSpan span = encoder.encode(
        {parts.text, parts.cue, parts.answer},
        [&](std::span<const int32_t> some) { ids.insert(ids.end(), some.begin(), some.end()); });
    REQUIRE(span.end == ids.size());
    layout.objective = objective;
    const Example example{ids, span.kept, span.answer};
    LabelledRows batch;
    append_row(example, length, layout, {}, batch);
    CHECK(batch.tokens == row["ids"].get<Ids>());
    std::string mask;
    for (const int32_t seen : batch.mask) mask += seen != 0 ? '1' : '0';
    CHECK(mask == row["mask"].text());
    CHECK(batch.labels == labels);
    CHECK(tokens_of(example, length, objective) ==
          std::accumulate(batch.mask.begin(), batch.mask.end(), int64_t{0}));
    int64_t counted = 0;
    for (size_t t = 1; t < batch.labels.size(); ++t) counted += batch.labels[t] != -100;
    CHECK(label_tokens_of(example, length, layout, {}) == counted);
    ++compared;
  }

  std::unique_ptr<Tokenizer> tokenizer;
  RowLayout layout;
  int64_t length;
  int compared = 0;
};

TEST_CASE("questions: the workshop's labels to the letter, and supervised fine-tuning") {
  const Json fixture = read_json_file(test::fixture_path("objectives.json"));
  const auto rows = documents(fixture["questions"].dump(), TextFormat::kSquad);
  REQUIRE(rows.size() == 3);
  int compared = 0;
  for (const Json& entry : fixture["squad"]) {
    Expected expected(entry);
    for (size_t i = 0; i < rows.size(); ++i) {
      expected.check(Objective::kApart, rows[i], entry["rows"][i]["kaust_compat"]);
      expected.check(Objective::kSft, rows[i], entry["rows"][i]["sft"]);
    }
    compared += expected.compared;
  }
  CHECK(compared == 2 * 2 * 3 * 2);  // sides, lengths, rows, objectives
}

TEST_CASE("instructions: whole texts, padding that is no label, that is one by its id, and sft") {
  const Json fixture = read_json_file(test::fixture_path("objectives.json"));
  const Json alpaca = read_json_file(test::fixture_path("alpaca.json"));
  const auto rows = documents(alpaca["rows"].dump(), TextFormat::kAlpaca);
  REQUIRE(rows.size() == 4);
  int compared = 0;
  for (const Json& entry : fixture["alpaca"]) {
    Expected expected(entry);
    for (size_t i = 0; i < rows.size(); ++i) {
      const Json& row = entry["rows"][i];
      expected.check(Objective::kLm, rows[i], row["lm"]);
      for (const Objective objective : {Objective::kMaskPad, Objective::kCompatAll}) {
        expected.check(objective, rows[i], row["lm"], row[name_of(objective)].get<Ids>());
      }
      expected.check(Objective::kSft, rows[i], row["sft"]);
    }
    compared += expected.compared;
  }
  CHECK(compared == (2 + 1) * 4 * 4);  // lengths of two tokenizers, rows, objectives
}

LabelledRows row_of(const Ids& ids, int64_t kept, int64_t answer, int64_t length,
                    const RowLayout& layout, const models::InputRules& rules = {}) {
  LabelledRows out;
  append_row({ids, kept, answer}, length, layout, rules, out);
  return out;
}

TEST_CASE("a row that is too long loses the end of its first part, then the end of the rest") {
  const Ids ids = {1, 2, 3, 4, 5, 6, 7, 8};  // 1-4, the cue 5, the answer 6-8
  const RowLayout sft{.objective = Objective::kSft, .pad_token = 9};
  CHECK(row_of(ids, 4, 3, 6, sft).tokens == Ids{1, 2, 5, 6, 7, 8});
  CHECK(row_of(ids, 4, 3, 6, sft).labels == Ids{-100, -100, -100, 6, 7, 8});
  CHECK(row_of(ids, 4, 3, 4, sft).tokens == Ids{5, 6, 7, 8});
  CHECK(row_of(ids, 4, 3, 3, sft).tokens == Ids{5, 6, 7});
  CHECK(row_of(ids, 4, 3, 3, sft).labels == Ids{-100, 6, 7});
  CHECK(row_of(ids, 8, 8, 3, sft).labels == Ids{1, 2, 3});  // an answer alone
  CHECK(row_of(ids, 0, 0, 3, {}).tokens == Ids{1, 2, 3});
  CHECK(row_of(ids, 1, 0, 3, {}).tokens == Ids{1, 2, 8});  // an end that the tokenizer puts
  CHECK(row_of({}, 0, 0, 2, {.pad_token = 9}).labels == Ids{-100, -100});
}

TEST_CASE("padding to the left: what stands behind it has no label, unless labels are a guide's") {
  const Ids ids = {5, 6, 7};
  RowLayout layout{.side = PadSide::kLeft, .pad_token = 9};
  CHECK(row_of(ids, 0, 0, 5, layout).tokens == Ids{9, 9, 5, 6, 7});
  CHECK(row_of(ids, 0, 0, 5, layout).mask == Ids{0, 0, 1, 1, 1});
  CHECK(row_of(ids, 0, 0, 5, layout).labels == Ids{-100, -100, -100, 6, 7});
  CHECK(row_of(ids, 0, 0, 3, layout).labels == ids);  // no padding
  CHECK(label_tokens_of({ids, 0, 0}, 5, layout, {}) == 2);
  CHECK(label_tokens_of({ids, 0, 0}, 3, layout, {}) == 2);
  const models::InputRules own = {.shifted_labels = false};  // each position predicts its token
  CHECK(row_of(ids, 0, 0, 5, layout, own).labels == Ids{-100, -100, 5, 6, 7});
  CHECK(label_tokens_of({ids, 0, 0}, 5, layout, own) == 3);
  layout = {.objective = Objective::kCompatAll, .side = PadSide::kLeft, .pad_token = 9};
  CHECK(row_of(ids, 0, 0, 5, layout).labels == Ids{9, 9, 5, 6, 7});
  CHECK(label_tokens_of({ids, 0, 0}, 5, layout, {}) == 4);
  layout.objective = Objective::kMaskPad;
  layout.pad_token = 6;
  CHECK(row_of(ids, 0, 0, 5, layout).labels == Ids{-100, -100, -100, -100, 7});
}

// A conversation of six turns. The last turn is switched off.
struct Talk {
  Ids ids = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  std::vector<RowTurn> turns = {turn(0, 0, 1, Role::kSystem),    turn(1, 1, 2, Role::kUser),
                                turn(2, 3, 2, Role::kAssistant), turn(3, 5, 1, Role::kUser),
                                turn(4, 6, 2, Role::kAssistant), turn(5, 8, 2, Role::kAssistant)};

  Talk() { turns[5].flags = RowTurn::kOff | RowTurn::kNoEnd; }
  static RowTurn turn(uint32_t message, uint32_t first, uint32_t count, Role role) {
    return {.first = first,
            .count = count,
            .message = message,
            .role = static_cast<uint16_t>(role),
            .flags = 0};
  }
  Example example() const { return {.tokens = ids, .turns = turns}; }
  LabelledRows row(int64_t length, const RowLayout& layout,
                   const models::InputRules& rules = {}) const {
    LabelledRows out;
    append_row(example(), length, layout, rules, out);
    return out;
  }
  Ids labels(int64_t length, RowLayout layout, const models::InputRules& rules = {}) const {
    layout.objective = Objective::kSft;
    return row(length, layout, rules).labels;
  }
};

constexpr int32_t kNo = -100;

TEST_CASE_FIXTURE(Talk, "labels of turns: the assistant's, the last, the turns of a role") {
  CHECK(labels(10, {}) == Ids{kNo, kNo, kNo, 14, 15, kNo, 17, 18, kNo, kNo});
  CHECK(labels(10, {.train_on = TrainOn::kLast}) == Ids(10, kNo));  // the last one is off
  CHECK(labels(10, {.role = Role::kUser}) == Ids{kNo, 12, 13, kNo, kNo, 16, kNo, kNo, kNo, kNo});
  CHECK(labels(10, {.role = Role::kSystem}) ==
        Ids{11, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo});
  // To look at, also what no run trains, and not just the last.
  CHECK(labels(10, {.train_on = TrainOn::kLast, .role = Role::kAssistant}) ==
        Ids{kNo, kNo, kNo, 14, 15, kNo, 17, 18, 19, 20});
  CHECK(labels(10, {.role = Role::kTool}) == Ids(10, kNo));
  CHECK(row(10, {.objective = Objective::kLm}).labels ==
        Ids{11, 12, 13, 14, 15, 16, 17, 18, kNo, kNo});  // whatever a run trains
  turns[5].flags = RowTurn::kPrompt;
  CHECK(labels(10, {.train_on = TrainOn::kLast}) == Ids(10, kNo));  // the last one is off
  CHECK(row(10, {.objective = Objective::kLm}).labels == ids);
  turns[5].flags = RowTurn::kNoEnd | RowTurn::kLeftOut | RowTurn::kSpecial;  // which is trained
  CHECK(labels(10, {.train_on = TrainOn::kLast}) ==
        Ids{kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, 19, 20});
  CHECK(row(10, {.objective = Objective::kSft}).tokens == ids);
  turns[5].message = 4;  // which the template writes in two pieces
  CHECK(labels(10, {.train_on = TrainOn::kLast}) ==
        Ids{kNo, kNo, kNo, kNo, kNo, kNo, 17, 18, 19, 20});
}

TEST_CASE_FIXTURE(Talk, "labels of turns: a row that is cut within a turn, and padding") {
  const RowLayout sft{.objective = Objective::kSft, .pad_token = 9};
  CHECK(row(4, sft).tokens == Ids{11, 12, 13, 14});
  CHECK(row(4, sft).labels == Ids{kNo, kNo, kNo, 14});
  CHECK(row(3, sft).labels == Ids(3, kNo));
  // The last turn is the last of the row, also where it is cut away.
  CHECK(labels(6, {.train_on = TrainOn::kLast}) == Ids(6, kNo));
  turns.pop_back();
  CHECK(labels(7, {.train_on = TrainOn::kLast}) == Ids{kNo, kNo, kNo, kNo, kNo, kNo, 17});
  CHECK(labels(10, {.train_on = TrainOn::kLast}) ==
        Ids{kNo, kNo, kNo, kNo, kNo, kNo, 17, 18, kNo, kNo});
  turns = Talk().turns;
  CHECK(row(12, sft).tokens == Ids{11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 9, 9});
  CHECK(row(12, sft).labels == Ids{kNo, kNo, kNo, 14, 15, kNo, 17, 18, kNo, kNo, kNo, kNo});
  const RowLayout left{.side = PadSide::kLeft, .pad_token = 9};
  CHECK(row(12, left).mask == Ids{0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  CHECK(labels(12, left) == Ids{kNo, kNo, kNo, kNo, kNo, 14, 15, kNo, 17, 18, kNo, kNo});
  // A first token that has padding alone before it is not trained, unless it predicts itself.
  const RowLayout system{.side = PadSide::kLeft, .role = Role::kSystem};
  CHECK(labels(11, system) == Ids(11, kNo));
  CHECK(labels(10, system).front() == 11);
  CHECK(labels(11, system, {.shifted_labels = false})[1] == 11);
}

TEST_CASE_FIXTURE(Talk, "trained tokens of turns are counted without labels") {
  const auto trained = [&](int64_t length, RowLayout layout = {}) {
    layout.objective = Objective::kSft;
    return trained_tokens({.tokens = {}, .turns = turns}, length, layout);
  };
  const std::vector<int64_t> expected = {0, 0, 0, 0, 1, 2, 2, 3, 4, 4, 4, 4};
  for (size_t length = 0; length < expected.size(); ++length) {
    CHECK(trained(static_cast<int64_t>(length)) == expected[length]);
    const RowLayout sft{.objective = Objective::kSft};
    CHECK(label_tokens_of(example(), static_cast<int64_t>(length), sft,
                          {.shifted_labels = false}) == expected[length]);
  }
  CHECK(trained(10, {.train_on = TrainOn::kLast}) == 0);
  turns[5].flags = 0;
  CHECK(trained(10, {.train_on = TrainOn::kLast}) == 2);
  CHECK(trained(9, {.train_on = TrainOn::kLast}) == 1);
  turns[5].flags = RowTurn::kOff | RowTurn::kNoEnd;
  CHECK(trained(10, {.role = Role::kUser}) == 3);
  CHECK(trained(2, {.role = Role::kUser}) == 1);
  CHECK(label_tokens_of(example(), 10, {.objective = Objective::kSft, .role = Role::kSystem}, {}) ==
        0);  // nothing predicts the first token
  CHECK(trained_tokens({}, 10, {.objective = Objective::kSft}) == 0);
  const RowLayout all{.objective = Objective::kLm};  // but for turns that are off
  CHECK(trained_tokens({.tokens = {}, .turns = turns}, 10, all) == 8);
  CHECK(trained_tokens({.tokens = {}, .turns = turns}, 9, all) == 8);
  CHECK(trained_tokens({.tokens = {}, .turns = turns}, 4, all) == 4);
}

}  // namespace
}  // namespace fsdp::data
