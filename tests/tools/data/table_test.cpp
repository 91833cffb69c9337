// Tables against RFC 4180, and against what pandas reads of them where it reads them rightly.
#include "tools/data/table.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using Rows = std::vector<std::string>;

// Each as "line:row"; checks that each record is found again where it begins.
Rows rows(std::string_view text, char separator = ',') {
  const Table table(text, separator, "file");
  Rows out;
  table.for_each_record([&](const RowSpan& record) {
    CHECK(table.record_at(text.substr(record.begin)) == record.text);
    out.push_back(
        fmt::format("{}:{}", record.line,
                    table.row_of(record.text, fmt::format("file:{}", record.line)).dump()));
  });
  return out;
}

std::string refusal(std::string_view text, char separator = ',') {
  return test::error_of([&] { rows(text, separator); });
}

TEST_CASE("cells in quotes: separators, line ends, doubled quotes") {
  CHECK(rows("text,n\n\"a \"\"b\"\", c\nd\",1\nplain,2\n") ==
        Rows{R"(2:{"text":"a \"b\", c\nd","n":"1"})", R"(4:{"text":"plain","n":"2"})"});
  CHECK(rows("text\n\"\"\n\"\"\"\"\n\"\"\"\"\"\"") ==
        Rows{R"(2:{"text":""})", R"(3:{"text":"\""})", R"(4:{"text":"\"\""})"});
  // A quote counts where a cell begins with it; blanks belong to a cell.
  CHECK(rows("text, n\na\"b\"c,  1 \n") == Rows{R"(2:{"text":"a\"b\"c"," n":"  1 "})"});
  CHECK(rows("\"te\"\"xt\",\"n\"\nab,\n,\n") ==
        Rows{R"(2:{"te\"xt":"ab","n":""})", R"(3:{"te\"xt":"","n":""})"});
}

TEST_CASE("every cell is a text, also one that looks like a number or a missing value") {
  CHECK(rows("text,n\n007,NA\nnull,1.50\n") ==
        Rows{R"(2:{"text":"007","n":"NA"})", R"(3:{"text":"null","n":"1.50"})"});
}

TEST_CASE("line ends and blank lines") {
  const Rows two{R"(2:{"t":"a","n":"1"})", R"(3:{"t":"b","n":"2"})"};
  for (const char* text : {"t,n\na,1\nb,2", "t,n\r\na,1\r\nb,2\r\n", "t,n\ra,1\rb,2\r"}) {
    CHECK(rows(text) == two);
  }
  CHECK(rows("\n \r\nt,n\n\n\"x\r\ny\",1\r\n \t\n\nb,2\n\n") ==
        Rows{R"(5:{"t":"x\r\ny","n":"1"})", R"(9:{"t":"b","n":"2"})"});
  CHECK(rows("").empty());
  CHECK(rows("\n\n").empty());
  CHECK(rows("t,n\n").empty());
  CHECK(rows("t,n").empty());
}

TEST_CASE("tabs separate cells, and a line of tabs is a record") {
  CHECK(rows("t\tn\na, b\t1\n\"q\tr\"\t2\n\t\n  \n", '\t') ==
        Rows{R"(2:{"t":"a, b","n":"1"})", R"(3:{"t":"q\tr","n":"2"})", R"(4:{"t":"","n":""})"});
}

TEST_CASE("columns without a name, and two of one name") {
  CHECK(rows(",text,text\n0,ab,cd\n") == Rows{R"(2:{"text":"ab"})"});
}

TEST_CASE("what is malformed") {
  CHECK(refusal("\nte\xffxt,n\na,1\n") == "file:2: invalid UTF-8 in the names of the columns");
  CHECK(refusal("t,n\na\n") ==
        "file:2: expected 2 cells as the header has, got 1 (a cell with a separator or a line end "
        "stands in quotes)");
  CHECK(test::contains(refusal("t\n\na,1\n"), "file:3: expected 1 cell as the header has, got 2"));
  CHECK(test::contains(refusal("t,n\n\"a\"b,1\n"),
                       "file:2: malformed table: text behind the closing quote of cell 1"));
  CHECK(test::contains(refusal("t\n\"a \\\"b\\\"\"\n"), "text behind the closing quote of cell 1"));
  CHECK(refusal("t,n\na,1\n\"b,2\n") == "file:3: malformed table: a cell in quotes does not end");
  CHECK(refusal("\"t,n\na,1\n") == "file:1: malformed table: a cell in quotes does not end");
}

}  // namespace
}  // namespace fsdp::data
