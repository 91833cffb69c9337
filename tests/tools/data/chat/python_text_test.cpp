// Characters as Python's str has them: case that becomes several characters, blanks, repr, numbers.
#include "tools/data/chat/python_text.h"

#include <doctest/doctest.h>

namespace fsdp::data::jinja {
namespace {

std::string repr_of(auto value) {
  std::string out;
  append_repr(out, value);
  return out;
}

}  // namespace

TEST_CASE("python text: case") {
  CHECK(upper("é ß ﬀ ŉ ᾳ \u0390 և ǰ ÿ İ") == "É SS FF ʼN ΑΙ \u0399\u0308\u0301 ԵՒ J\u030c Ÿ İ");
  CHECK(lower("É ΑΣ İ") == "é ας i̇");
  CHECK(title("o'neil x-y ß ﬁx ᾳ ᾲ ŉa ǆ") == "O'Neil X-Y Ss Fix ᾼ Ὰͅ ʼNa ǅ");
  CHECK(title_words("o'neil x-y (é [z 1a") == "O'neil X-Y (É [Z 1a");
  CHECK(capitalize("ßA ΑΣ") == "Ssa ας");
  CHECK(capitalize("") == "");
}

TEST_CASE("python text: parts") {
  CHECK(strip("\u00a0\x1c a \u2028") == "a");
  CHECK(strip("éaé", Side::kLeft, "xé") == "aé");
  CHECK(strip("  ", Side::kRight).empty());
  CHECK(split(" a  b ", std::nullopt, -1) == std::vector<std::string_view>{"a", "b"});
  CHECK(split(" a  b ", std::nullopt, 1) == std::vector<std::string_view>{"a", "b "});
  CHECK(split("a,,b", ",", -1) == std::vector<std::string_view>{"a", "", "b"});
  CHECK(split_lines("a\r\nb\n\nc\u2028d\n") ==
        std::vector<std::string_view>{"a", "b", "", "c", "d"});
  CHECK(replace("abc", "", "-", -1, 100) == "-a-b-c-");
  CHECK(replace("aaa", "a", "bb", 2, 100) == "bbbba");
  CHECK(replace("aaaaaaaa", "a", "bb", -1, 4).size() < 16);

  CHECK(byte_of("é日a", 2) == 5);
}

TEST_CASE("python text: repr and HTML") {
  CHECK(repr_of(std::string_view("it's")) == "\"it's\"");
  CHECK(repr_of(std::string_view("'\"\\\n\x7f\u00ad\u2028é\U000e0001")) ==
        R"('\'"\\\n\x7f\xad\u2028é\U000e0001')");
  CHECK(repr_of(1.0) == "1.0");
  CHECK(repr_of(1e16) == "1e+16");
  CHECK(repr_of(1e15) == "1000000000000000.0");
  CHECK(repr_of(0.0001) == "0.0001");
  CHECK(repr_of(0.00001) == "1e-05");
  CHECK(repr_of(-0.0) == "-0.0");
  CHECK(repr_of(5e-324) == "5e-324");
  CHECK(escape_html("<a href=\"x\">&'") == "&lt;a href=&#34;x&#34;&gt;&amp;&#39;");
}

}  // namespace fsdp::data::jinja
