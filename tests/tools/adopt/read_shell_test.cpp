// Shell scripts as far as they can be known without running them.
#include "tools/adopt/read_shell.h"

#include <doctest/doctest.h>

namespace fsdp::adopt {
namespace {

std::string value(const std::string& script) {
  const ShellScript read = parse_shell(script, "x.sh");
  REQUIRE_FALSE(read.variables.empty());
  return read.variables.back().values.at(0);
}

TEST_CASE("shell: values, quotes, variables") {
  CHECK(value("A=1") == "1");
  CHECK(value("export A=1 # one") == "1");
  CHECK(value("A='a b' ") == "a b");
  CHECK(value("A=\"a \\\"b\\\"\"") == "a \"b\"");
  CHECK(value("A=x\nB=${A}/y\n") == "x/y");
  CHECK(value("A=x; B=\"$A-$A\"") == "x-x");
  CHECK(value("A=x\nB='$A'") == "$A");
  CHECK(value("B=${A:-7}") == "7");
  CHECK(value("A=3\nB=${A:-7}") == "3");
  CHECK(value("B=a\\\nb") == "ab");
  CHECK(value("B=#no") == "#no");
  for (const char* word : {"declare -x", "readonly", "typeset -x", "export"}) {
    CHECK(value(word + std::string(" A=1")) == "1");
  }
  CHECK(value("if [ -e x ]; then export A=1; fi") == "1");
  CHECK(value("for i in 1; do A=1; done") == "1");
  CHECK(value("if a; then b; else A=1; fi") == "1");
}

TEST_CASE("shell: what is not known stays as it is written") {
  for (const char* open : {"$HOME", "${HOME}", "$(date)", "`date`", "$((1 + (2)))", "$@"}) {
    CAPTURE(open);
    CHECK(value("A=" + std::string(open)) == open);
    CHECK(is_open(value("A=" + std::string(open))));
    CHECK(value("A=" + std::string(open) + "\nB=$A") == "$A");
  }
  // Nor is it the value of before.
  CHECK(value("A=8; A=$(nproc)\nB=$A") == "$A");
  CHECK(value("A=8; read A\nB=$A") == "$A");
  CHECK(value("A=8; for A in 1 2; do B=$A; done") == "$A");
  CHECK_FALSE(is_open("plain"));
}

TEST_CASE("shell: commands, their variables and places") {
  const ShellScript script = parse_shell(
      "#!/bin/bash\n"
      "# a comment; with a semicolon\n"
      "lr=0.1\n"
      "X=1 Y=2 \\\n"
      "  train --lr $lr \\\n"
      "  --name \"a b\" && echo done\n"
      "export Z\n",
      "x.sh");
  REQUIRE(script.commands.size() == 2);
  const ShellCommand& train = script.commands[0];
  CHECK(train.words == std::vector<std::string>{"train", "--lr", "0.1", "--name", "a b"});
  CHECK(train.place == "x.sh:4");
  REQUIRE(train.variables.size() == 2);
  CHECK(train.variables[1].key == "Y");
  CHECK(script.commands[1].words == std::vector<std::string>{"echo", "done"});
  CHECK(script.commands[1].place == "x.sh:6");
  REQUIRE(script.variables.size() == 1);  // those of a command are its own
  CHECK(script.variables[0].place == "x.sh:3");
}

TEST_CASE("shell: texts that end in the middle") {
  for (const char* text : {"A=\"a", "A=$(b", "A=${b", "A=`b", "A=\\", "A=$", "A='", "A=$(b\n(\n"}) {
    CAPTURE(text);
    CHECK(parse_shell(text, "x.sh").variables.size() == 1);
  }
}

TEST_CASE("python: the variables that a program reads") {
  const auto reads = read_variables(
      "import os\n"
      "A = int(os.getenv(\"A\", 4))\n"
      "B = os.environ.get('B', \"two\") == \"True\"\n"
      "C = os.environ[\"C\"]\n"
      "D = os.getenv(name)\n",
      "p.py");
  REQUIRE(reads.size() == 3);
  CHECK(reads[0].name == "A");
  CHECK(reads[0].otherwise == "4");
  CHECK(reads[0].place == "p.py:2");
  CHECK(reads[1].name == "B");
  CHECK(reads[1].otherwise == "two");
  CHECK(reads[2].name == "C");
  CHECK(reads[2].otherwise == "");
}

TEST_CASE("shell: redirections are no words") {
  const std::vector<std::string> words = {"train", "--lr", "1"};
  for (const char* text :
       {"train --lr 1 > log", "train --lr 1 >log 2>&1", "train --lr 1 2>>log", "train --lr 1 &>log",
        "train >log --lr 1", "train --lr 1 < in", "train --lr 1 >& log", "2>&1 train --lr 1",
        "train --lr 1 <<< \"a b\"", "train --lr 1 &>> \"a log\" | tee x", "train --lr 1 >|log"}) {
    CAPTURE(text);
    const ShellScript script = parse_shell(text, "x.sh");
    REQUIRE_FALSE(script.commands.empty());
    CHECK(script.commands[0].words == words);
  }
  CHECK(parse_shell("echo \"a > b\" 2", "x.sh").commands[0].words ==
        std::vector<std::string>{"echo", "a > b", "2"});
  CHECK(parse_shell("diff <(a b) x", "x.sh").commands[0].words ==
        std::vector<std::string>{"diff", "<(a b)", "x"});
  // A document in the script is no command.
  const ShellScript script =
      parse_shell("cat <<'END' >f\nA=1\ntrain\nEND\ncat <<-E\n\tB=2\n\tE\nlast\n", "x.sh");
  CHECK(script.variables.empty());
  REQUIRE(script.commands.size() == 3);
  CHECK(script.commands[2].words == std::vector<std::string>{"last"});
  CHECK(script.commands[2].place == "x.sh:8");
  for (const char* text : {"a <", "a <<", "a >", "a <(", "a <<E", "a 2>", "a <<E\nb"}) {
    CAPTURE(text);
    CHECK(parse_shell(text, "x.sh").commands.size() == 1);
  }
}

}  // namespace
}  // namespace fsdp::adopt
