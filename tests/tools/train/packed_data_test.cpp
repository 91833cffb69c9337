// data.pack: documents, with files: rows that share a sequence, every row once an epoch, a held-out
// share, sources, conversations, and rows that are too long.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/layer_values.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/launch.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

using Ids = std::vector<int32_t>;

// Rows "aaa...", each of another letter or number of letters.
struct PackedRows {
  test::TempFolder folder;
  config::TrainConfig config;

  PackedRows() {
    config.data.cache_dir = (folder / "cache").string();
    config.data.pack = data::Pack::kDocuments;
    config.data.sequence_length = 8;
    config.data.shuffle = false;
    config.train.batch = 2;
  }
  std::string write(const std::string& name, const std::vector<std::string>& texts) {
    std::string out;
    for (const std::string& text : texts) out += "{\"text\": \"" + text + "\"}\n";
    return folder.write(name, out).string();
  }
  std::string refusal() const {
    std::string out;
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      try {
        TrainData data(world, config);
        data.check_trained(world, {});
      } catch (const AgreedError& error) {
        if (world.rank() == 0) out = error.what();
      }
    });
    return out.starts_with("rank 0: ") ? out.substr(8) : out;
  }
  template <typename Use>
  void on(int ranks, const Use& use) const {
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      const TrainData data(world, config);
      use(data, world);
    });
  }
};

// The texts of a batch's rows, without end-of-text and padding, which are one token.
std::vector<std::string> texts_of(const LabelledRows& rows) {
  std::vector<std::string> out;
  for (size_t i = 0; i < rows.tokens.size(); ++i) {
    const bool begins = rows.first_key[i] == static_cast<int64_t>(i) % rows.length;
    if (begins) out.emplace_back();
    if (rows.tokens[i] < 256) out.back() += static_cast<char>(rows.tokens[i]);
  }
  std::erase(out, "");
  return out;
}

TEST_CASE_FIXTURE(PackedRows, "packed data: rows that share sequences, on any ranks") {
  config.data.train = {write("r.jsonl", {"abc", "d", "efghijkl", "mn", "o"})};
  std::multiset<std::string> seen;
  on(1, [&](const TrainData& data, comm::Communicator&) {
    CHECK(data.sequences() == 3);  // of 8, 4 + 3, and 2 + 2 tokens
    const LabelledRows first = data.labelled_rows(0);
    CHECK(first.first_key == Ids{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 7});
    CHECK(first.labels[8] == kIgnoreIndex);
    CHECK(first.labels[12] == kIgnoreIndex);
    CHECK(first.labels[15] == kIgnoreIndex);
    for (const int64_t step : {0, 1}) {
      for (const std::string& text : texts_of(data.labelled_rows(step))) seen.insert(text);
    }
    const std::vector<std::string> remarks = data.remarks();
    CHECK(remarks[0].ends_with(
        "r.jsonl; 5 rows in 3 sequences of 8 tokens, 79.2 % filled; 1 row cut, 1 token lost, the "
        "longest row has 9"));
    CHECK(remarks[1] ==
          "data.objective: lm; rows share sequences and do not see each other; the rest of a "
          "sequence is filled with token 256");
    CHECK(data.hashes().contains("token of padding"));
    CHECK(data.figures()[0].rows == 5);
    CHECK(data.figures()[0].longest == 9);
  });
  CHECK(seen == std::multiset<std::string>{"abc", "d", "efghijkl", "mn", "o"});
  config.data.pack_window = 1;
  on(1, [&](const TrainData& data, comm::Communicator&) { CHECK(data.sequences() == 5); });
  config.data.pack_window = 100'000;
  on(2, [&](const TrainData& data, comm::Communicator& world) {
    const std::vector<std::string> own = texts_of(data.labelled_rows(0));
    CHECK(own == (world.rank() == 0 ? std::vector<std::string>{"efghijkl"}
                                    : std::vector<std::string>{"abc", "mn"}));
    CHECK(data.training({}).get(0).global_label_tokens == 7 + 3 + 2);
  });
}

// A batch is a function of its step, so a run that resumes in the middle of an epoch misses
// nothing.
TEST_CASE_FIXTURE(PackedRows, "packed data: every row once an epoch, on one, two and three ranks") {
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) {
    texts.push_back(std::string(static_cast<size_t>(i % 6), 'a') + static_cast<char>('0' + i));
  }
  config.data.train = {write("r.jsonl", texts)};
  config.data.shuffle = true;
  config.train.batch = 3;
  const std::multiset<std::string> all(texts.begin(), texts.end());
  std::map<int64_t, std::multiset<std::string>> of_steps;  // of one rank
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    std::map<int64_t, std::multiset<std::string>> seen;
    int64_t steps = 0;
    std::mutex mutex;
    on(ranks, [&](const TrainData& data, comm::Communicator&) {
      CHECK(data.sequences() % 3 != 0);  // the last batch of an epoch is short
      const int64_t of_epoch = data.steps_per_epoch();
      for (int64_t step = 2 * of_epoch - 1; step >= 0; --step) {
        const std::vector<std::string> own = texts_of(data.labelled_rows(step));
        const std::lock_guard lock(mutex);
        steps = of_epoch;
        seen[step].insert(own.begin(), own.end());
      }
    });
    for (const int64_t epoch : {0, 1}) {
      std::multiset<std::string> once;
      for (int64_t step = 0; step < steps; ++step) {
        once.insert(seen[epoch * steps + step].begin(), seen[epoch * steps + step].end());
      }
      CHECK(once == all);
    }
    CHECK(seen[0] != seen[steps]);
    if (ranks == 1) of_steps = seen;
    CHECK(seen == of_steps);
  }
}

TEST_CASE_FIXTURE(PackedRows, "packed data: a row that is too long") {
  config.data.train = {write("r.jsonl", {"abc", "defghijklm", "no"})};
  config.data.long_rows = data::LongRows::kFail;
  const std::string said =
      ": the row has 11 tokens, more than data.sequence_length: 8 (data.long_rows: fail)";
  CHECK(refusal() == config.data.train[0] + ":2" + said);
  config.data.subset.n = 3;
  CHECK(refusal() == config.data.train[0] + ":2" + said);
  config.data.subset = {};
  const std::string long_rows = config.data.train[0];
  config.data.train = {write("s.jsonl", {"a", "b", "abcdefg"})};
  CHECK(refusal() == "");  // of as many tokens as a sequence
  config.data.train.push_back(long_rows);
  CHECK(refusal() == long_rows + ":2" + said);
  config.data.train.pop_back();
  config.data.validation = {long_rows};
  CHECK(refusal() == long_rows + ":2" + said);
  config.data.validation.clear();
  config.data.train = {long_rows};
  config.data.long_rows = data::LongRows::kDrop;
  on(1, [&](const TrainData& data, comm::Communicator&) {
    CHECK(data.sequences() == 1);
    CHECK(texts_of(data.labelled_rows(0)) == std::vector<std::string>{"abc", "no"});
    CHECK(data.remarks()[0].ends_with("1 row left out, 11 tokens lost, the longest row has 11"));
  });
}

TEST_CASE_FIXTURE(PackedRows, "packed data: rows are held out before others share sequences") {
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) texts.push_back(std::to_string(i + 10));
  config.data.train = {write("r.jsonl", texts)};
  config.data.validation = {"10%"};
  config.data.sequence_length = 9;  // three rows
  on(1, [&](const TrainData& data, comm::Communicator&) {
    CHECK(data.sequences() == 12);
    CHECK(data.validation_sequences() == 2);
    CHECK(data.remarks()[1] ==
          "data.validation: 10%: 4 of 40 rows, in 2 sequences, which are not trained");
    std::multiset<std::string> trained;
    for (int64_t step = 0; step < 6; ++step) {
      for (const std::string& text : texts_of(data.labelled_rows(step))) trained.insert(text);
    }
    CHECK(trained.size() == 36);
    const Batch held = data.validation({}).get(0);
    CHECK(held.global_label_tokens == 4 * 2);
    std::string out;
    for (const int32_t id : held.tokens) out += id < 256 ? static_cast<char>(id) : ' ';
    for (const std::string& text : trained) CHECK_FALSE(test::contains(out, text));
  });
}

TEST_CASE_FIXTURE(PackedRows,
                  "packed data: a sequence has rows of one source, and weights deal them") {
  config.data.sources = {{.path = {write("a.jsonl", {"a", "aa", "aaa", "aaaa"})}, .weight = 3},
                         {.path = {write("b.jsonl", {"b", "bb", "bbb"})}, .weight = 1}};
  on(1, [&](const TrainData& data, comm::Communicator&) {
    CHECK(data.sequences() == 4);
    for (int64_t step = 0; step < 2; ++step) {
      const LabelledRows rows = data.labelled_rows(step);
      for (int64_t row = 0; row < rows.rows(); ++row) {
        std::set<int32_t> letters(rows.tokens.begin() + row * 8, rows.tokens.begin() + row * 8 + 8);
        letters.erase(256);
        CHECK(letters.size() == 1);
      }
    }
  });
}

TEST_CASE_FIXTURE(PackedRows, "packed data: untrained rows are counted as rows") {
  config.data.train = {write("r.jsonl", {"", ""})};
  config.data.document_separator = false;
  CHECK(test::contains(refusal(), "2 rows in 0 sequences of 8 tokens"));
  config.data.train = {write("s.jsonl", {"a", "b", "c"})};
  CHECK(test::contains(refusal(), "of any of its 3 rows: they have fewer than two tokens"));
  const std::vector<std::string> most = {"", "", "", "", "abc", "", "", "", "", "", "", ""};
  const std::string said = "nothing is trained or predicted of 11 of 12 rows";
  const auto warning_of_validation = [&] {
    std::string out;
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      TrainData data(world, config);
      data.check_trained(world, {});
      for (const std::string& remark : data.remarks()) {
        if (test::contains(remark, "data.validation (")) out = remark;
      }
    });
    return out;
  };
  config.data.document_separator = true;
  config.data.train = {write("t.jsonl", {"abc"})};
  config.data.validation = {write("v.jsonl", most)};
  CHECK(test::contains(warning_of_validation(), said));
}

TEST_CASE_FIXTURE(PackedRows, "packed data: the error of a source without rows names its files") {
  config.data.train.clear();
  config.data.long_rows = data::LongRows::kDrop;
  config.data.validation = {"20%"};
  const std::vector<std::string> few(10, "abc"), many(10, "abcdefghijklmn");
  config.data.sources = {{.path = {write("few.jsonl", few)}},
                         {.path = {write("long.jsonl", many)}}};
  CHECK(test::contains(refusal(), "long.jsonl): 8 rows in 0 sequences of 8 tokens"));
}

TEST_CASE_FIXTURE(PackedRows, "packed data: what a model takes for padding is refused in a text") {
  const models::InputRules rules = {.padding = 'd'};
  const auto refused = [&](const std::string& what) {
    std::string out;
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      TrainData data(world, config);
      try {
        data.check_trained(world, rules);
      } catch (const AgreedError& error) {
        out = error.what();
      }
    });
    return test::contains(out,
                          "r.jsonl: the text has token 100, which this model takes for "
                          "padding; with " +
                              what + " expected none within a document");
  };
  config.data.train = {write("r.jsonl", {"abc", "cde"})};
  CHECK(refused("data.pack: documents"));
  config.data.pack = data::Pack::kStream;
  CHECK(!refused(""));
  config.data.document_attention = data::DocumentAttention::kOwn;
  CHECK(refused("data.document_attention: own"));
}

TEST_CASE_FIXTURE(PackedRows, "packed data: the answers of rows, the turns of conversations") {
  config.data.objective = data::Objective::kSft;
  config.data.row_template = folder.write("own.template", "{q}{>answer}{a}").string();
  config.data.train = {
      folder.write("r.jsonl", "{\"q\": \"1\", \"a\": \"2\"}\n{\"q\": \"3\", \"a\": \"45\"}\n")
          .string()};
  on(1, [&](const TrainData& data, comm::Communicator&) {
    const LabelledRows row = data.labelled_rows(0);
    CHECK(row.tokens == Ids{'3', '4', '5', 256, '1', '2', 256, 256});
    CHECK(row.labels == Ids{-100, '4', '5', 256, -100, '2', 256, -100});
    CHECK(row.first_key == Ids{0, 0, 0, 0, 4, 4, 4, 7});
  });
  config.data = {};
  config.data.cache_dir = (folder / "cache").string();
  config.data.pack = data::Pack::kDocuments;
  config.data.format = data::TextFormat::kMessages;
  config.data.chat.chat_template = folder
                                       .write("own.jinja",
                                              "{% for m in messages %}{{ m.role[0] }}{{ m.content "
                                              "}}{% endfor %}")
                                       .string();
  config.data.sequence_length = 10;
  const std::string row =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", "
      "\"content\": \"c\"}]}\n";
  config.data.train = {folder.write("c.jsonl", row + row).string()};
  on(1, [&](const TrainData& data, comm::Communicator&) {
    const LabelledRows rows = data.labelled_rows(0);
    CHECK(rows.tokens == Ids{'u', 'b', 'a', 'c', 'u', 'b', 'a', 'c', 256, 256});
    CHECK(rows.first_key == Ids{0, 0, 0, 0, 4, 4, 4, 4, 8, 8});
    CHECK(rows.labels[0] == kIgnoreIndex);
    CHECK(rows.labels[3] == 'c');
    CHECK(rows.labels[7] == 'c');
    CHECK(data.remarks()[1].starts_with("data.train_on: assistant; rows share sequences"));
  });
}

TEST_CASE_FIXTURE(PackedRows, "stream: documents that do not see each other, on any ranks") {
  config.data.train = {write("r.jsonl", {"abcdefghi", "jkl", "m"})};  // 16 tokens
  config.data.pack = data::Pack::kStream;
  config.data.document_attention = data::DocumentAttention::kOwn;
  const auto check = [](const LabelledRows& rows, int64_t row, const Ids& first_key) {
    const auto begin = rows.first_key.begin() + row * 8;
    CHECK(Ids(begin, begin + 8) == first_key);
    for (int64_t i = 0; i < 8; ++i) {
      const auto at = static_cast<size_t>(row * 8 + i);
      CHECK(rows.labels[at] ==
            (first_key[static_cast<size_t>(i)] == i ? kIgnoreIndex : rows.tokens[at]));
    }
  };
  const Ids first(8, 0), second = {0, 0, 2, 2, 2, 2, 6, 6};  // "i" and its end begin again
  on(1, [&](const TrainData& data, comm::Communicator&) {
    check(data.labelled_rows(0), 0, first);
    check(data.labelled_rows(0), 1, second);
    CHECK(data.training({}).get(0).global_label_tokens == 7 + 5);
    CHECK(data.pairs_in_sequence() == (36 + 3 + 10 + 3) / 2.0);  // of 8; of 2, 4 and 2 tokens
  });
  on(2, [&](const TrainData& data, comm::Communicator& world) {
    check(data.labelled_rows(0), 0, world.rank() == 0 ? first : second);
    CHECK(data.training({}).get(0).global_label_tokens == 7 + 5);
  });
}

TEST_CASE_FIXTURE(PackedRows, "stream: one note says how many documents see each other") {
  config.data.train = {write("r.jsonl", {"abc", "def", "ghi", "jkl"})};  // 16 tokens
  config.data.pack = data::Pack::kStream;
  const auto notes = [&] {
    std::vector<std::string> out;
    on(1, [&](const TrainData& data, comm::Communicator&) { out = data.remarks(); });
    std::erase_if(out, [](const std::string& remark) { return !remark.starts_with("note: "); });
    return out;
  };
  CHECK(notes() ==
        std::vector<std::string>{
            "note: " + config.data.train[0] +
            ": data.pack: stream: a sequence has 1.5 borders of documents on average, "
            "and its documents see each other; with data.document_attention: own, or with "
            "data.pack: documents, they do not"});
  config.data.document_attention = data::DocumentAttention::kOwn;
  CHECK(notes() == std::vector<std::string>{
                       "note: " + config.data.train[0] +
                       ": data.pack: stream: a sequence has 1.5 borders of documents on average, "
                       "and its documents do not see each other"});
  config.data.train = {folder.write("one.txt", "One document of a few words.").string()};
  CHECK(notes() == std::vector<std::string>{"note: " + config.data.train[0] +
                                            ": data.document_attention: own changes nothing: the "
                                            "text is one document"});
  config.data.document_attention = data::DocumentAttention::kAll;
  CHECK(notes().empty());
}

}  // namespace
}  // namespace fsdp::tools
