// Fuzz target: files of rows: JSON in lines, arrays and one object behind another, tables, SQuAD. A
// row that was found must be found again by its place, and spans lie in order within the text.
#include "tests/fuzz/fuzz_target.h"
#include "tools/data/json_row.h"
#include "tools/data/row_hints.h"
#include "tools/data/row_spans.h"
#include "tools/data/squad.h"
#include "tools/data/table.h"

namespace fsdp::fuzz {

std::vector<std::string> seeds() {
  return {"{\"text\": \"a\"}\n\n{\"text\": \"b\", \"n\": NaN}\r\n",
          "[{\"text\": \"[1, \\\"\"},\n {\"text\": \"b\", \"n\": [1, {}]}]\n",
          "[\"a\", \"b\"]",
          "{\n  \"text\": \"a\",\n  \"n\": -Infinity\n}\n{\n  \"text\": \"b\"\n}\n",
          "text,n\n\"a \"\"b\"\"\n,\",1\r\nc,2\r\r\n",
          "text\tn\na\t1\n\t\n",
          "{\"data\": [{\"title\": \"t\", \"paragraphs\": [{\"context\": \"c\", \"qas\": [{\"id\": "
          "\"1\", "
          "\"question\": \"q\", \"answers\": [{\"text\": \"a\", \"answer_start\": 0}]}]}]}]}",
          "{\"id\": \"1\", \"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": "
          "[\"a\"], \"answer_start\": [0]}}\n{\"question\": 1.50}\n",
          "{\"data\": [{\"context\": \"c\", \"question\": \"q\", \"answers\": []}]}",
          "[\"a\", 4]\n[[1e5], true]\n",
          "[[\"a\", null], [\"b\", 123456789012345678901]]",
          "{\"q\": [\"a\", \"b\"], \"r\": [\"c\", \"d\"]}"};
}

namespace {

using data::RowSpan;

// Each span lies behind the one before it, and `again` finds it where it begins.
class Checked {
 public:
  explicit Checked(std::string_view text) : text_(text) {}
  template <typename Again>
  void use(const RowSpan& row, const Again& again) {
    require(row.begin >= end_ && row.begin + row.text.size() <= text_.size() && row.line >= 1);
    require(text_.substr(row.begin, row.text.size()) == row.text);
    // A line may have blanks behind the row.
    const std::string_view found = again(text_.substr(row.begin));
    require(row.text.starts_with(found));
    require(row.text.find_first_not_of(" \t\r\n", found.size()) == row.text.npos);
    end_ = row.begin + row.text.size();
  }

 private:
  std::string_view text_;
  size_t end_ = 0;
};

void read_json(std::string_view text, data::Spans spans) {
  Checked checked(text);
  data::for_each_span(text, spans, "file", [&](const RowSpan& row) {
    checked.use(row, [&](std::string_view rest) { return data::span_at(rest, spans); });
    accepts([&] { data::parse_json_row(row.text, "file"); });
  });
}

void read_table(std::string_view text, char separator) {
  Checked checked(text);
  const data::Table table(text, separator, "file");
  table.for_each_record([&](const RowSpan& row) {
    checked.use(row, [&](std::string_view rest) { return table.record_at(rest); });
    accepts([&] {
      const auto cells = table.row_of(row.text, "file");
      for (const auto& cell : cells.items()) {
        require(!cell.name.empty() && cell.value.is_string());
      }
    });
  });
}

void read_squad(std::string_view text) {
  data::for_each_question(text, "file", [&](const data::QuestionSpan& question) {
    require(data::question_at(text, question.place, "file").question == question.question);
    accepts([&] { data::row_of(question, "file"); });
  });
}

}  // namespace
}  // namespace fsdp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fsdp::fuzz;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  accepts([&] { read_json(text, fsdp::data::spans_of(text)); });
  accepts([&] { read_json(text, fsdp::data::Spans::kValues); });
  accepts([&] { read_table(text, ','); });
  accepts([&] { read_table(text, '\t'); });
  accepts([&] { read_squad(text); });
  fsdp::data::hint_of_rows(text, "file.json", fsdp::data::TextFormat::kJsonl, size % 2 == 0);
  return 0;
}
