// The grammar of chat templates: the part of jinja2's that templates of models use, with the levels
// of its parser. Contract: tools/data/chat/syntax.h.
#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <set>

#include "tools/data/chat/functions.h"
#include "tools/data/chat/syntax.h"

namespace fsdp::data::jinja {
namespace {

// A tag that stands within, or behind, another statement.
bool ends_block(std::string_view tag) {
  return tag == "else" || tag == "elif" || tag.starts_with("end");
}

using ExpressionKind = Expression::Kind;

// Signs of a higher level bind tighter. `not` stands before a comparison, and above all levels are
// values with their filters.
constexpr size_t kComparison = 2, kValue = 6;
struct Operator {
  size_t level;
  std::string_view sign;
  ExpressionKind kind;
  Expression::Binary apply = nullptr;  // null for kBinary: not known
  Expression::Sign compares = {};
};
bool is_less(const Value& a, const Value& b, Budget& w) { return less(a, b, w); }
bool is_greater(const Value& a, const Value& b, Budget& w) { return less(b, a, w, ">"); }
bool exceeds(const Value& a, const Value& b, Budget& w) { return less(b, a, w, "<="); }
bool falls_below(const Value& a, const Value& b, Budget& w) { return less(a, b, w, ">="); }
bool is_in(const Value& a, const Value& b, Budget& w) { return contains(b, a, w); }
constexpr Operator kOperators[] = {
    {0, "or", ExpressionKind::kOr},
    {1, "and", ExpressionKind::kAnd},
    {2, "==", ExpressionKind::kCompare, nullptr, {equal, false}},
    {2, "!=", ExpressionKind::kCompare, nullptr, {equal, true}},
    {2, "<", ExpressionKind::kCompare, nullptr, {is_less, false}},
    {2, ">", ExpressionKind::kCompare, nullptr, {is_greater, false}},
    {2, "<=", ExpressionKind::kCompare, nullptr, {exceeds, true}},
    {2, ">=", ExpressionKind::kCompare, nullptr, {falls_below, true}},
    {2, "in", ExpressionKind::kCompare, nullptr, {is_in, false}},
    {3, "+", ExpressionKind::kBinary, add},
    {3, "-", ExpressionKind::kBinary, subtract},
    {4, "~", ExpressionKind::kConcat},
    {5, "*", ExpressionKind::kBinary, multiply},
    {5, "%", ExpressionKind::kBinary, modulo},
    {5, "/", ExpressionKind::kBinary},
    {5, "//", ExpressionKind::kBinary},
    {5, "**", ExpressionKind::kBinary}};

class Parser {
 public:
  explicit Parser(Source source)
      : syntax_{std::move(source)}, next_token_(tokens_of(syntax_.source)) {}

  Syntax run() {
    ahead_ = next_token_();
    within(&syntax_.body, {}, [&] {
      advance();
      syntax_.body.statements = statements({});
    });
    for (const Scope& scope : scopes_) {
      for (const int name : scope.hidden) {
        const Scope* outer = scope.outer;
        while (outer && !outer->seen.contains(name)) outer = outer->outer;
        if (!outer && scope.of) scope.of->hidden.push_back(name);
      }
    }
    return std::move(syntax_);
  }

 private:
  using Kind = ExpressionKind;
  using Ends = std::initializer_list<std::string_view>;  // names of the tags that may end a block
  // The hidden names of a scope, as jinja2's compiler finds them (its idtracking).
  struct Scope {
    const Scope* outer;
    Scoped* of;
    std::set<int> seen = {}, hidden = {};
    int branches = 0;  // `if` around this place: what only it sets is not hidden
  };

  // ---- tokens ----------------------------------------------------------------------------------

  void advance() {
    now_ = std::move(ahead_);
    ahead_ = now_.kind == Token::Kind::kEnd ? now_ : next_token_();
  }
  bool at(Token::Kind kind) const { return now_.kind == kind; }
  // A name or a symbol.
  bool at(std::string_view text) const {
    return (at(Token::Kind::kName) || at(Token::Kind::kSymbol)) && now_.text == text;
  }
  bool skip(std::string_view text) { return at(text) && (advance(), true); }
  void expect(std::string_view text) {
    if (!skip(text)) fail_expected(text);
  }
  std::string take_name(std::string_view what) {
    if (!at(Token::Kind::kName)) fail_expected(what);
    std::string name = std::move(now_.text);
    advance();
    return name;
  }
  [[noreturn]] void fail_at(Place place, std::string_view message) const {
    syntax_.source.fail_at(place, message);
  }
  [[noreturn]] void fail_here(std::string_view message) const { fail_at(now_.place, message); }
  [[noreturn]] void fail_expected(std::string_view what) const {
    const bool end = at(Token::Kind::kEnd);
    fail_here(
        fmt::format("expected {}, got {}", what, end ? "the end of the template" : now_.text));
  }

  Nested nest() {
    if (++depth_ > kNesting) fail_here(fmt::format("nested more than {} levels deep", kNesting));
    return {depth_};
  }

  // ---- names -----------------------------------------------------------------------------------

  int number_of(const std::string& name) {
    const auto [at, added] = syntax_.numbers.emplace(name, static_cast<int>(syntax_.names.size()));
    if (added) syntax_.names.push_back(name);
    return at->second;
  }
  int take_variable(std::string_view what) { return number_of(take_name(what)); }
  void note_set(int name) {
    const bool first = scope_->seen.insert(name).second;
    if (first && scope_->branches == 0) scope_->hidden.insert(name);
  }
  // Reads something in a scope of its own, in which `known` are variables.
  void within(Scoped* of, const std::vector<int>& known, const std::function<void()>& read) {
    Scope* const outer = scope_;
    scope_ = &scopes_.emplace_back(Scope{outer, of});
    scope_->seen.insert(known.begin(), known.end());
    read();
    scope_ = outer;
  }

  // ---- statements ------------------------------------------------------------------------------

  // Up to one of the end tags, whose name is then the current token; without any to the end.
  Statements statements(Ends ends) {
    const Nested nested = nest();
    const Place begin = now_.place;
    Statements out;
    for (; !at(Token::Kind::kEnd); advance()) {
      const Place place = now_.place;
      if (at(Token::Kind::kText)) {
        add(out, Statement::Kind::kText, place).text = std::move(now_.text);
        continue;
      }
      const bool block = at("{%");
      advance();
      if (block && std::any_of(ends.begin(), ends.end(), [&](auto end) { return at(end); }))
        return out;
      if (block) {
        statement(out, place);
      } else {
        const Expression* value = tuple(true);
        add(out, Statement::Kind::kPrint, place).value = value;
      }
      if (const auto end = block ? "%}" : "}}"; !at(end)) fail_expected(end);
    }
    if (ends.size() > 0)
      fail_at(begin, fmt::format("a block without its {{% {} %}}", *(ends.end() - 1)));
    return out;
  }

  // Its last token, the end of a tag, stays the current one.
  void statement(Statements& out, Place place) {
    const std::string tag = take_name("the name of a statement");
    if (tag == "if") return parse_if(out, place);
    if (tag == "for") return parse_for(out, place);
    if (tag == "set") return parse_set(out, place);
    if (tag == "macro") return parse_macro(out, place);
    if (tag == "filter") {
      Statement& made = add(out, Statement::Kind::kFilterBlock, place);
      made.value = filter(nullptr);
      while (skip("|")) made.value = filter(made.value);
      return scoped(made.body, "endfilter", loops_);
    }
    if (tag == "generation") {
      syntax_.has_generation = true;
      return scoped(add(out, Statement::Kind::kGeneration, place).body, "endgeneration", 0);
    }
    const bool jumps = tag == "break" || tag == "continue";
    if (!jumps || loops_ == 0) {
      const char* where = jumps ? " outside of a for" : ends_block(tag) ? " here" : "";
      fail_at(place, fmt::format("{{% {} %}}{} is not known", tag, where));
    }
    add(out, tag == "break" ? Statement::Kind::kBreak : Statement::Kind::kContinue, place);
  }

  Statement& add(Statements& out, Statement::Kind kind, Place place) {
    out.push_back(&syntax_.all_statements.emplace_back(Statement{.kind = kind, .place = place}));
    return syntax_.all_statements.back();
  }

  // `loops`: from within how many loops its statements may jump.
  void scoped(Scoped& out, std::string_view end, int loops, const std::vector<int>& known = {}) {
    const int outer_loops = std::exchange(loops_, loops);
    within(&out, known, [&] {
      expect("%}");
      out.statements = statements({end});
    });
    loops_ = outer_loops;
    advance();
  }

  void parse_if(Statements& out, Place place) {
    Statement& made = add(out, Statement::Kind::kIf, place);
    const Expression* condition = tuple(false);
    ++scope_->branches;
    for (;;) {
      expect("%}");
      Statements body = condition ? statements({"elif", "else", "endif"}) : statements({"endif"});
      made.branches.push_back({condition, std::move(body)});
      if (skip("endif")) break;
      condition = take_name("else") == "elif" ? tuple(false) : nullptr;
    }
    --scope_->branches;
  }

  void parse_for(Statements& out, Place place) {
    Statement& made = add(out, Statement::Kind::kFor, place);
    do {
      if (made.names.size() == 2) fail_here("a for with more than two names is not known");
      made.names.push_back(take_variable("the name of a variable"));
    } while (skip(","));
    expect("in");
    made.value = tuple(false);
    std::vector<int> known = made.names;
    if (skip("if")) within(nullptr, known, [&] { made.condition = expression(); });
    if (at("recursive")) fail_here("recursive is not known");
    known.push_back(number_of("loop"));
    const bool outer_names_loop = std::exchange(names_loop_, false);
    scoped(made.body, "endfor", loops_ + 1, known);
    made.uses_loop = names_loop_;
    names_loop_ = names_loop_ || outer_names_loop;
  }

  void parse_set(Statements& out, Place place) {
    Statement& made = add(out, Statement::Kind::kSet, place);
    const int name = take_variable("the name of a variable");
    made.names = {name};
    if (at(",")) fail_here("set with several names is not known");
    if (at("|")) fail_here("a set block with a filter is not known");
    if (skip(".")) {
      made.kind = Statement::Kind::kSetAttribute;
      made.text = take_name("the name of an attribute");
      scope_->seen.insert(name);
      expect("=");
      made.value = tuple(true);
    } else if (skip("=")) {
      made.value = tuple(true);
      note_set(name);
    } else {
      made.kind = Statement::Kind::kSetBlock;
      note_set(name);
      scoped(made.body, "endset", loops_);
    }
  }

  void parse_macro(Statements& out, Place place) {
    if (scope_->outer) fail_at(place, "{% macro %} within another block than if is not known");
    Statement& made = add(out, Statement::Kind::kMacro, place);
    made.names = {take_variable("the name of a macro")};
    note_set(made.names[0]);
    within(nullptr, {}, [&] { parameters(made); });
    in_macro_ = true;
    scoped(made.body, "endmacro", 0, made.parameters);
    in_macro_ = false;
  }

  void parameters(Statement& macro) {
    expect("(");
    while (!at(")")) {
      macro.parameters.push_back(take_variable("the name of a parameter"));
      if (skip("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail_here("a parameter without a default behind one with a default");
      }
      if (!skip(",")) break;
    }
    expect(")");
  }

  // ---- operators -------------------------------------------------------------------------------

  Expression* make(Kind kind, Place place, std::vector<const Expression*> operands = {}) {
    return &syntax_.expressions.emplace_back(
        Expression{.kind = kind, .place = place, .operands = std::move(operands)});
  }

  // One expression, or several with commas between them. Without `with_choice` an `if` behind the
  // expression is not its own.
  const Expression* tuple(bool with_choice) {
    const Place place = now_.place;
    std::vector<const Expression*> items;
    bool comma = false;
    do {
      if (comma && (at(")") || at("%}") || at("}}"))) break;
      items.push_back(with_choice ? expression() : binary(0));
    } while (skip(",") && (comma = true));
    return comma ? make(Kind::kTuple, place, std::move(items)) : items[0];
  }

  const Expression* expression() {
    const Nested nested = nest();
    const Expression* value = binary(0);
    for (Place place = now_.place; skip("if"); place = now_.place) {
      const Expression* condition = binary(0);
      const Expression* other = skip("else") ? expression() : nullptr;
      value = make(Kind::kChoice, place, {value, condition, other});
    }
    return value;
  }

  const Expression* binary(size_t level) {
    const Place begin = now_.place;
    if (level == kValue) return filters(unary());
    if (level == kComparison && skip("not")) {
      const Nested nested = nest();
      return make(Kind::kNot, begin, {binary(level)});
    }
    const auto is_here = [&](const Operator& each) { return each.level == level && at(each.sign); };
    const Expression* left = binary(level + 1);
    Expression* chain = nullptr;  // the comparison or concatenation that continues
    for (;;) {
      const Place place = now_.place;
      const bool absent = level == kComparison && at("not") && ahead_.text == "in" &&
                          ahead_.kind == Token::Kind::kName;
      if (absent) advance();
      const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators), is_here);
      if (found == std::end(kOperators)) return left;
      const auto& [own_level, sign, kind, apply, compares] = *found;
      if (kind == Kind::kBinary && !apply) fail_here(fmt::format("{} is not known", sign));
      advance();
      const Expression* right = binary(level + 1);
      if (chain) {
        chain->operands.push_back(right);
      } else {
        left = chain = make(kind, kind == Kind::kConcat ? begin : place, {left, right});
      }
      if (kind == Kind::kCompare) {
        chain->signs.push_back({compares.holds, absent || compares.negated});
      } else if (kind != Kind::kConcat) {
        std::exchange(chain, nullptr)->binary = apply;
      }
    }
  }

  const Expression* unary() {
    const Place place = now_.place;
    if (at("+")) fail_here("+ before a value is not known");
    if (!skip("-")) return postfix(primary());
    const Nested nested = nest();
    return postfix(make(Kind::kNegative, place, {unary()}));
  }

  // ---- values ----------------------------------------------------------------------------------

  const Expression* primary() {
    const Place place = now_.place;
    if (at(Token::Kind::kName)) return name();
    if (skip("[")) return items(Kind::kList, "]");
    if (skip("{")) return items(Kind::kDict, "}");
    if (!skip("(")) return constant();
    const Expression* inner = at(")") ? make(Kind::kTuple, place) : tuple(true);
    expect(")");
    return inner;
  }

  const Expression* constant() {
    Expression* out = make(Kind::kConstant, now_.place);
    const std::string text = now_.text;
    int64_t number = 0;
    if (at(Token::Kind::kString)) {
      std::string all = text;
      for (; ahead_.kind == Token::Kind::kString; advance()) all += ahead_.text;
      out->value = std::move(all);
    } else if (at(Token::Kind::kWhole)) {
      const auto error = std::from_chars(text.data(), text.data() + text.size(), number).ec;
      if (error != std::errc()) fail_here(fmt::format("the number {} has more than 64 bits", text));
      out->value = number;
    } else if (at(Token::Kind::kFloat)) {
      out->value = std::strtod(text.c_str(), nullptr);
    } else {
      fail_expected("an expression");
    }
    advance();
    return out;
  }

  const Expression* name() {
    Expression* out = make(Kind::kConstant, now_.place);
    if (in_macro_ && (at("varargs") || at("kwargs") || at("caller"))) {
      fail_here(fmt::format("{} in a macro is not known", now_.text));
    }
    const std::string name = take_name("a name");
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      out->value = name[0] == 't' || name[0] == 'T';
    } else if (name == "none" || name == "None") {
      out->value = None();
    } else {
      out->kind = Kind::kName;
      out->name = number_of(name);
      scope_->seen.insert(out->name);
      names_loop_ = names_loop_ || name == "loop";
    }
    return out;
  }

  // A list or a dict, whose first bracket is passed.
  const Expression* items(Kind kind, std::string_view close) {
    Expression* out = make(kind, now_.place);
    while (!at(close)) {
      out->operands.push_back(expression());
      if (kind == Kind::kDict) {
        expect(":");
        out->operands.push_back(expression());
      }
      if (!skip(",")) break;
    }
    expect(close);
    return out;
  }

  // ---- what follows a value --------------------------------------------------------------------

  const Expression* postfix(const Expression* of) {
    for (Place place = now_.place;; place = now_.place) {
      if (skip(".")) {
        Expression* out = make(Kind::kAttribute, place, {of});
        out->value = take_name("the name of an attribute");
        if (out->value.bytes()[0] == '_')
          fail_at(place, "an attribute that begins with _ is not known");
        of = out;
      } else if (skip("[")) {
        of = subscript(of);
      } else if (at("(")) {
        of = called(make(Kind::kCall, place, {of}));
      } else {
        return of;
      }
    }
  }

  const Expression* subscript(const Expression* of) {
    const Place place = now_.place;
    const auto part = [&] { return at(":") || at("]") ? nullptr : expression(); };
    Expression* out = make(Kind::kItem, place, {of, part()});
    if (skip(":")) {
      out->kind = Kind::kSlice;
      out->operands.push_back(part());
      out->operands.push_back(skip(":") ? part() : nullptr);
    } else if (!out->operands[1]) {
      fail_expected("an expression");
    }
    expect("]");
    return out;
  }

  // `of` with the arguments that follow.
  const Expression* called(Expression* out) {
    expect("(");
    while (!at(")")) {
      const bool named =
          at(Token::Kind::kName) && ahead_.kind == Token::Kind::kSymbol && ahead_.text == "=";
      if (skip("**")) {
        out->named.emplace_back("", expression());
      } else if (named) {
        std::string name = take_name("a name");
        advance();
        out->named.emplace_back(std::move(name), expression());
      } else if (!out->named.empty() || out->spread) {
        fail_here("an argument without a name behind others");
      } else if (skip("*")) {
        out->spread = expression();
      } else {
        out->operands.push_back(expression());
      }
      if (!skip(",")) break;
    }
    expect(")");
    return out;
  }

  const Expression* filters(const Expression* of) {
    for (;;) {
      if (skip("|")) {
        of = filter(of);
      } else if (skip("is")) {
        of = test(of);
      } else if (at("(")) {
        of = called(make(Kind::kCall, now_.place, {of}));
      } else {
        return of;
      }
    }
  }

  Expression* named(const char* kind, const Callable* (*find)(std::string_view),
                    const Expression* of) {
    Expression* out = make(Kind::kCallable, now_.place, {of});
    const std::string name = take_name(fmt::format("the name of a {}", kind));
    out->callable = find(name);
    if (!out->callable) fail_at(out->place, fmt::format("the {} {} is not known", kind, name));
    return out;
  }

  const Expression* filter(const Expression* of) {  // null in a filter block
    Expression* out = named("filter", find_filter, of);
    return at("(") ? called(out) : out;
  }

  const Expression* test(const Expression* of) {
    const bool negated = skip("not");
    Expression* out = named("test", find_test, of);
    const bool goes_on = at("else") || at("or") || at("and") || at("is");
    const bool value =
        at("[") || at("{") || (now_.kind >= Token::Kind::kName && now_.kind <= Token::Kind::kFloat);
    if (at("(")) {
      called(out);
    } else if (value && !goes_on) {
      out->operands.push_back(postfix(primary()));
    }
    if (at("is")) fail_here("a test of a test is not known");
    return negated ? make(Kind::kNot, out->place, {out}) : out;
  }

  Syntax syntax_;
  std::function<Token()> next_token_;
  Token now_, ahead_;
  std::deque<Scope> scopes_;  // all of the template
  Scope* scope_ = nullptr;
  int depth_ = 0;
  int loops_ = 0;  // around this place, within its macro or generation block
  bool in_macro_ = false;
  bool names_loop_ = false;  // since the body of the innermost for began
};

}  // namespace

Syntax parse(Source source) { return Parser(std::move(source)).run(); }

}  // namespace fsdp::data::jinja
