// A template as text, as tokens and as a tree: from the lexer (lexer.cpp), the parser
// (parser.cpp), and what the evaluator walks (template.cpp).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/data/chat/value.h"

namespace fsdp::data::jinja {

// Where in the source something stands; Source turns it into line and column when it is needed.
using Place = uint32_t;

// The text of a template and its name in errors.
class Source {
 public:
  // Checks size and UTF-8. Line ends become "\n", and one at the very end is dropped.
  Source(std::string_view text, std::string name);

  const std::string& text() const { return text_; }
  // Throws Error: "NAME:LINE:COLUMN: MESSAGE"; columns count characters, from 1.
  [[noreturn]] void fail_at(Place place, std::string_view message) const;

 private:
  std::string text_, name_;
};

struct Token {
  enum class Kind : uint8_t { kText, kName, kString, kWhole, kFloat, kSymbol, kEnd };
  Kind kind = Kind::kEnd;
  Place place = 0;
  std::string text;  // of a string: what it means; the ends of tags are symbols
};
// Each call gives the next token, cut as jinja2 does with trim_blocks and lstrip_blocks on.
std::function<Token()> tokens_of(const Source& source);

// Statements or expressions around a place: `depth` counts while this lives.
struct Nested {
  int& depth;
  ~Nested() { --depth; }
};

struct Callable;  // functions.h

struct Expression {
  enum class Kind : uint8_t {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,       // operands: key, value, key, value, ...
    kAttribute,  // of operands[0]; `value` is its name
    kItem,       // operands[0][operands[1]]
    kSlice,      // of operands[0]; start, stop and step are null where not given
    kCall,       // of operands[0]; the others are arguments, as for the next
    kCallable,   // a filter or a test of operands[0], which is null in a filter block
    kNot,
    kNegative,
    kAnd,
    kOr,
    kBinary,
    kConcat,   // of all operands, as texts
    kCompare,  // operands[0] signs[0] operands[1] signs[1] ...
    kChoice,   // operands: value, condition, other value or null
  };
  using Binary = Value (*)(Value a, const Value& b, Budget& budget);
  struct Sign {
    bool (*holds)(const Value& a, const Value& b, Budget& budget);
    bool negated;
  };

  Kind kind = Kind::kConstant;
  Place place = 0;
  Value value = {};
  int name = -1;
  std::vector<const Expression*> operands = {};
  std::vector<std::pair<std::string, const Expression*>> named = {};  // arguments; "": **
  const Expression* spread = nullptr;                                 // arguments: *
  Binary binary = nullptr;
  std::vector<Sign> signs = {};
  const Callable* callable = nullptr;
};

struct Statement;
using Statements = std::vector<const Statement*>;

// Statements with variables of their own. `hidden`: names that the scope sets before it reads them.
// jinja2 takes them for its variables from the beginning: until they are set they are undefined,
// whatever the input has under the name.
struct Scoped {
  Statements statements;
  std::vector<int> hidden;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,
    kPrint,
    kIf,
    kFor,
    kSet,
    kSetAttribute,  // of names[0], which is a namespace
    kSetBlock,
    kMacro,
    kFilterBlock,
    kGeneration,
    kBreak,
    kContinue,
  };
  struct Branch {
    const Expression* condition;  // null: else
    Statements body;
  };

  Kind kind = Kind::kText;
  Place place = 0;
  Value text = {};                        // or the attribute's name
  const Expression* value = nullptr;      // printed, set, or iterated over; a block's filter
  const Expression* condition = nullptr;  // of a for
  bool uses_loop = false;                 // the body of a for names `loop`
  std::vector<int> names = {};            // set by it
  std::vector<Branch> branches = {};
  Scoped body = {};
  std::vector<int> parameters = {};  // of a macro; the last ones have the `defaults`
  std::vector<const Expression*> defaults = {};
};

struct Syntax {
  Source source;
  // Flat, so that a deep tree is destroyed without recursion.
  std::deque<Expression> expressions = {};
  std::deque<Statement> all_statements = {};
  Scoped body = {};
  std::vector<std::string> names = {};  // of variables, by number
  std::map<std::string, int, std::less<>> numbers = {};
  bool has_generation = false;
};

// Throws Error for what is no template, and for the part of jinja2 that is not known:
// "chat_template.jinja:12:7: {% call %} is not known".
Syntax parse(Source source);

}  // namespace fsdp::data::jinja
