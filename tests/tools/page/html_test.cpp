// Pieces of HTML: what a text cannot do to the page, numbers with all their digits.
#include "tools/page/html.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("html: a text is a text everywhere") {
  const std::string bad = "</script><b title='x' \"y\">&";
  HtmlTable table({"", bad});
  table.row(bad, {{.text = bad, .tip = bad, .beside = bad}}, true);
  const std::string html = table.html() + paragraph(bad) + note(bad) + preformatted(bad) +
                           details(bad, "", true) + section("id", bad, "");
  CAPTURE(html);
  CHECK(!test::contains(html, "<b"));
  CHECK(!test::contains(html, "</script>"));
  CHECK(!test::contains(html, "\"y\""));
  CHECK(test::contains(html, "&lt;/script&gt;&lt;b title='x' &quot;y&quot;&gt;&amp;"));
}

TEST_CASE("html: numbers are short, and their tips have every digit") {
  CHECK(number_cell(2.0 / 3, 4).text == "0.6667");
  CHECK(number_cell(2.0 / 3, 4).tip == "0.6666666666666666");
  CHECK(number_cell(1234567, 0).text == "1,234,567");
  CHECK(number_cell({}, 4).text == "-");
  CHECK(mib_cell(3 << 19).text == "1.50");
  CHECK(mib_cell(3 << 19).tip == "1572864 bytes");
  CHECK(mib_cell({}).text == "-");
}

TEST_CASE("html: a long text ends between two characters, and says how long it is") {
  const Cell cell = text_cell("aaa\u00e4\u00e4", 4);
  CHECK(cell.text == "aaa...");
  CHECK(cell.beside == "7 bytes");
  CHECK(text_cell("aaaa", 4).text == "aaaa");
}

TEST_CASE("html: lines stay lines, rows are marked") {
  CHECK(preformatted("a\n\n  b\n") == "<pre>a\n\n  b\n</pre>\n");
  CHECK(note("a\n b\x1b") == "<p class=\"note\">a\n b?</p>\n");
  HtmlTable table({"", "a", "b"});
  CHECK(table.empty());
  table.row("r", {{.text = "1", .is_number = true}}, true);
  table.row("s", {{}, {.text = "t"}});  // no number is no text
  CHECK(test::contains(table.html(), "<th></th><th class=\"number\">a</th><th>b</th>"));
  CHECK(test::contains(table.html(),
                       "<tr class=\"differs\"><th>r</th><td class=\"number\">1</td></tr>"));
}

}  // namespace
}  // namespace fsdp::tools
