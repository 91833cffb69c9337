// Sequences of rows, of rows cut and joined as datasets' map() does, random ones, and parts.
// Requirements: S2.5, S3.15.
#include "tools/data/sequences.h"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using Ids = std::vector<int32_t>;

struct Rows {
  Ids tokens;
  std::vector<ExampleSpan> spans;
  void add(const Ids& ids, uint32_t kept = 0, uint32_t answer = 0) {
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    spans.push_back({tokens.size(), kept, answer});
  }
  TokenRows view() const { return {.tokens = tokens, .examples = spans}; }
};

LabelledRows one(const Sequences& sequences, int64_t index, int64_t length) {
  LabelledRows out;
  sequences.append(index, length, {}, out);
  return out;
}

// Whether labels count is decided without making them, where that is enough.
TEST_CASE("sequences of which nothing is trained") {
  for (const Objective objective : kObjectives) {
    Rows rows;
    rows.add({});
    rows.add({7});
    rows.add({7, 7}, 2, 2);
    rows.add({7, 0, 0}, 1, 1);
    rows.add({1, 2, 3, 4, 5, 6}, 6, 1);
    rows.add({1, 2, 3, 4, 5, 6}, 5, 4);
    rows.add({0, 0, 0, 0});
    rows.add({1, 2, 3, 4}, 3, 2);
    for (const PadSide side : {PadSide::kLeft, PadSide::kRight}) {
      for (const bool shifted : {true, false}) {
        CAPTURE(static_cast<int>(objective));
        const auto all = example_sequences(rows.view(), 3, {.objective = objective, .side = side});
        const auto half = part_of_sequences(all, 0, 4, std::nullopt);
        const InputRules rules{.shifted_labels = shifted};
        int64_t untrained = 0, of_half = 0;
        for (int64_t row = 0; row < all->count(); ++row) {
          const bool nothing = all->label_tokens(row, 3, rules) == 0;
          untrained += nothing;
          of_half += nothing && row < 4;
          CHECK(all->is_trained(row, 3, rules) == !nothing);
        }
        CHECK(count_untrained(*all, all->count(), 3, rules).count == untrained);
        CHECK(count_untrained(*half, 4, 3, rules).count == of_half);
      }
    }
  }
}

TEST_CASE("whether anything of several sets is trained is decided without reading them") {
  Rows rows;
  rows.add({1, 2, 3});
  rows.add({});
  int reads = 0;
  TokenRows view = rows.view();
  view.before_use = [&](size_t, size_t) { ++reads; };
  const auto one_set = example_sequences(view, 3, {.objective = Objective::kLm});
  const auto both = joined_sequences({one_set, one_set});
  CHECK(both->is_trained(2, 3, {}));
  CHECK(!both->is_trained(3, 3, {}));
  CHECK(reads == 0);
}

TEST_CASE("a row is a sequence; only padding that must be hidden has a mask") {
  Rows rows;
  rows.add({1, 2, 3, 4, 5}, 2, 1);
  rows.add({6});
  rows.add({});
  const auto right = example_sequences(rows.view(), 4, {.objective = Objective::kSft});
  CHECK(right->count() == 3);
  CHECK(right->tokens_of(0, 4) == 4);
  CHECK(right->tokens_of(1, 4) == 1);
  CHECK(one(*right, 0, 4).tokens == Ids{1, 2, 4, 5});
  CHECK(one(*right, 0, 4).labels == Ids{-100, -100, -100, 5});
  CHECK(one(*right, 1, 2).tokens == Ids{6, 0});
  CHECK(one(*right, 0, 4).mask.empty());
  CHECK(right->label_tokens(0, 4, {}) == 1);
  CHECK(right->label_tokens(2, 4, {}) == 0);
  CHECK(right->summary() == "3 rows, 1 of them cut to 4 tokens");
  const auto left = example_sequences(rows.view(), 4, {.side = PadSide::kLeft});
  CHECK(one(*left, 1, 3).mask == Ids{0, 0, 1});
  rows.add({1, 2, 3, 4, 5, 6}, 6, 5);
  CHECK(example_sequences(rows.view(), 4, {.objective = Objective::kSft})->summary() ==
        "4 rows, 2 of them cut to 4 tokens, 1 within the answer");
  rows.add({1, 2, 3, 4, 5, 6}, 5, 1);  // an end-of-prompt that is kept, and an answer of one token
  CHECK(example_sequences(rows.view(), 4, {.objective = Objective::kSft})->summary() ==
        "5 rows, 3 of them cut to 4 tokens, 2 within the answer, 1 before the answer: nothing of "
        "that row is trained");
  const auto pair = example_sequences(rows.view(), 4, {.objective = Objective::kApart});
  CHECK(pair->tokens_of(3, 4) == 1);  // the prompt
}

// Rows of conversations: of 4 tokens and two turns, of none, of 3 and three turns, of 6 and two.
struct ChatTokensOfRows {
  Rows rows;
  std::vector<RowTurn> turns;

  ChatTokensOfRows() {
    add({1, 2, 3, 4}, {turn(0, 2, Role::kUser), turn(2, 2, Role::kAssistant)});
    add({}, {turn(0, 0, Role::kUser)});
    add({5, 6, 7}, {turn(0, 1, Role::kSystem), turn(1, 1, Role::kUser), turn(2, 1, Role::kTool)});
    add({1, 2, 3, 4, 5, 6}, {turn(0, 5, Role::kUser), turn(5, 1, Role::kAssistant)});
  }
  static RowTurn turn(uint32_t first, uint32_t count, Role role) {
    return {.first = first,
            .count = count,
            .message = 0,
            .role = static_cast<uint16_t>(role),
            .flags = 0};
  }
  void add(const Ids& ids, std::vector<RowTurn> of_row) {
    for (size_t i = 0; i < of_row.size(); ++i) of_row[i].message = static_cast<uint32_t>(i);
    rows.add(ids, 0, static_cast<uint32_t>(of_row.size()));
    turns.insert(turns.end(), of_row.begin(), of_row.end());
  }
  TokenRows view() const {
    TokenRows out = rows.view();
    out.set_turns(turns);
    return out;
  }
};

TEST_CASE_FIXTURE(ChatTokensOfRows, "the turns of each row") {
  const TokenRows view = this->view();
  CHECK(view.first_turns == std::vector<size_t>{0, 2, 3, 6});
  size_t first = 0;
  for (int64_t row = 0; row < 4; ++row) {
    const std::span<const RowTurn> of_row = view.turns_of_row(row);
    CHECK(of_row.data() == turns.data() + first);
    first += of_row.size();
    const Example example = view.example(row);
    CHECK(example.turns.data() == of_row.data());
    CHECK(example.turns.size() == of_row.size());
    CHECK(example.answer == 0);  // the number of turns is no number of tokens
  }
  CHECK(first == turns.size());
  CHECK(Ids(view.example(2).tokens.begin(), view.example(2).tokens.end()) == Ids{5, 6, 7});
  CHECK(rows.view().turns_of_row(0).empty());
  CHECK(rows.view().example(0).answer == 2);
}

TEST_CASE_FIXTURE(ChatTokensOfRows, "rows of conversations: labels, the first untrained one") {
  const TokenRows view = this->view();
  const auto sft = example_sequences(view, 5, {.objective = Objective::kSft});
  CHECK(one(*sft, 0, 5).tokens == Ids{1, 2, 3, 4, 0});
  CHECK(one(*sft, 0, 5).labels == Ids{-100, -100, 3, 4, -100});
  CHECK(one(*sft, 3, 6).labels == Ids{-100, -100, -100, -100, -100, 6});
  const Untrained cut = count_untrained(*sft, 4, 5, {});
  CHECK(cut.count == 3);
  CHECK(cut.first == 1);
  const Untrained whole = count_untrained(*sft, 4, 6, {});
  CHECK(whole.count == 2);
  CHECK(whole.first == 1);
  const Untrained none = count_untrained(*sft, 1, 5, {});
  CHECK(none.count == 0);
  CHECK(none.first == -1);
  const auto tools =
      example_sequences(view, 5, {.objective = Objective::kSft, .role = Role::kTool});
  CHECK(count_untrained(*tools, 4, 5, {}).first == 0);
  // By tokens that are trained and by labels: whatever the rules and the side of the padding are.
  for (const PadSide side : {PadSide::kLeft, PadSide::kRight}) {
    for (const bool shifted : {true, false}) {
      for (const std::optional<Role> role :
           {std::optional<Role>(), {Role::kSystem}, {Role::kUser}}) {
        const auto all =
            example_sequences(view, 5, {.objective = Objective::kSft, .side = side, .role = role});
        const InputRules rules{.shifted_labels = shifted};
        for (int64_t row = 0; row < 4; ++row) {
          CHECK(all->is_trained(row, 5, rules) == (all->label_tokens(row, 5, rules) > 0));
        }
      }
    }
  }
}

TEST_CASE_FIXTURE(ChatTokensOfRows, "whether a turn is trained is mostly decided without tokens") {
  int reads = 0;
  TokenRows view = this->view();
  view.before_use = [&](size_t, size_t) { ++reads; };
  const auto sft = example_sequences(view, 6, {.objective = Objective::kSft});
  CHECK(sft->is_trained(0, 6, {}));
  CHECK(sft->summary() == "4 rows, 0 of them cut to 6 tokens, 23.1 % of 13 tokens trained");
  CHECK(reads == 0);
  CHECK(sft->is_trained(3, 6, {}));  // one token, which may be the first
  CHECK(reads == 1);
}

TEST_CASE_FIXTURE(ChatTokensOfRows, "the summary of conversations has the share that is trained") {
  const auto share = [&](int64_t length, const RowLayout& layout) {
    const std::string out = example_sequences(view(), length, layout)->summary();
    return out.substr(out.rfind(", ") + 2);
  };
  CHECK(share(3, {.objective = Objective::kSft}) == "11.1 % of 9 tokens trained");
  CHECK(share(6, {.objective = Objective::kLm}) == "100.0 % of 13 tokens trained");
  CHECK(share(6, {.objective = Objective::kSft, .role = Role::kUser}) ==
        "61.5 % of 13 tokens trained");
  turns[7].flags = RowTurn::kOff;
  CHECK(share(6, {.objective = Objective::kSft}) == "15.4 % of 13 tokens trained");
  CHECK(share(6, {.objective = Objective::kLm}) == "92.3 % of 13 tokens trained");
  CHECK(test::contains(example_sequences(view(), 5, {.objective = Objective::kSft})->summary(),
                       "cut to 5 tokens (the first is row 4), "));
  rows = {};
  turns.clear();
  add({}, {turn(0, 0, Role::kAssistant)});
  CHECK(share(6, {.objective = Objective::kSft}) == "0.0 % of 0 tokens trained");
}

TEST_CASE("tokens of a row are announced before they are read") {
  Rows rows;
  rows.add({1, 2});
  rows.add({});
  rows.add({3, 4, 5});
  TokenRows view = rows.view();
  std::vector<std::pair<size_t, size_t>> announced;
  view.before_use = [&](size_t first, size_t count) { announced.emplace_back(first, count); };
  const auto sequences = example_sequences(view, 4, {});
  one(*sequences, 2, 4);
  one(*sequences, 1, 4);
  CHECK(announced == std::vector<std::pair<size_t, size_t>>{{2, 3}});
}

// tests/differential/objectives.py: run_clm's group_texts on rows that are cut first.
TEST_CASE("rows of wikitext: cut, joined a thousand at a time, the rest of each dropped") {
  const Json expected = read_json_file(test::fixture_path("objectives.json"))["wikitext_rows"];
  Rows rows;
  for (int i = 0; i < expected["rows"].get<int>(); ++i) {
    Ids row(i == 17 ? 700 : static_cast<size_t>((7 * i * i + 3 * i) % 23));
    for (size_t j = 0; j < row.size(); ++j) {
      row[j] = static_cast<int32_t>((31 * static_cast<size_t>(i) + j) % 1009);
    }
    rows.add(row);
  }
  const int64_t length = expected["length"];
  const auto sequences = wikitext_sequences(rows.view(), length);
  int64_t count = 0;
  for (const Json& of_group : expected["blocks_per_group"]) count += of_group.get<int64_t>();
  CHECK(sequences->count() == count);
  for (const auto& [index, block] : expected["blocks"].items()) {
    CAPTURE(index);
    CHECK(one(*sequences, std::stoll(index), length).tokens == block.get<Ids>());
    CHECK(one(*sequences, std::stoll(index), length).labels == block.get<Ids>());
  }
  CHECK(sequences->summary() ==
        fmt::format("2,345 rows, {} of them cut to 16 tokens; 1,338 sequences (572, 570, 196 of "
                    "up to 1,000 rows each), {} tokens dropped",
                    expected["cut"].get<int>(), expected["dropped"].get<int>()));
  CHECK(sequences->label_tokens(3, length, {}) == 15);
  CHECK(sequences->label_tokens(3, length, {.shifted_labels = false}) == 16);
}

TEST_CASE("random tokens: by seed, all of the vocabulary, the same each time") {
  const auto sequences = synthetic_sequences(50, 7, 3);
  std::set<int32_t> seen;
  for (int64_t i = 0; i < 50; ++i) {
    const Ids tokens = one(*sequences, i, 11).tokens;
    CHECK(tokens == one(*sequences, i, 11).tokens);
    CHECK(tokens != one(*synthetic_sequences(50, 7, 4), i, 11).tokens);
    if (i > 0) CHECK(tokens != one(*sequences, i - 1, 11).tokens);
    seen.insert(tokens.begin(), tokens.end());
  }
  CHECK(seen == std::set<int32_t>{0, 1, 2, 3, 4, 5, 6});
  CHECK(sequences->count() == 50);
}

TEST_CASE("parts of sequences share none and leave out none") {
  const auto all = synthetic_sequences(10, 1000, 1);
  for (const std::optional<uint64_t> seed : {std::optional<uint64_t>{}, {5}}) {
    const auto first = part_of_sequences(all, 0, 7, seed),
               rest = part_of_sequences(all, 7, 3, seed);
    std::set<Ids> seen;
    for (int64_t i = 0; i < 7; ++i) seen.insert(one(*first, i, 6).tokens);
    for (int64_t i = 0; i < 3; ++i) seen.insert(one(*rest, i, 6).tokens);
    CHECK(seen.size() == 10);
    if (!seed) CHECK(one(*rest, 2, 6).tokens == one(*all, 9, 6).tokens);
    CHECK(rest->tokens_of(0, 6) == 6);
    CHECK(rest->label_tokens(0, 6, {}) == 5);
  }
}

}  // namespace
}  // namespace fsdp::data
