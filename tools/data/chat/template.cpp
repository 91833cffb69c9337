// Walks a template's tree for one conversation and writes its text.
// Contract: tools/data/chat/template.h.
//
// [Note: marks] What a loop over messages writes is marked when the turn of the loop ends. Text
// that a block or a macro captures keeps its marks, also as a part of another text, until it is
// written.
#include "tools/data/chat/template.h"

#include <algorithm>

#include "tools/data/chat/functions.h"
#include "tools/data/chat/syntax.h"

namespace fsdp::data {
namespace jinja {
namespace {

class Evaluator {
 public:
  Evaluator(const Syntax& syntax, const RenderInput& input)
      : syntax_(syntax),
        work_{Budget(input.most_steps), input.clock},
        globals_(syntax.names.size()) {
    try {
      define_input(input);
    } catch (const Fault& fault) {
      syntax_.source.fail_at(0, fault.what());
    }
  }

  Rendering run() {  // once
    run(syntax_.body.statements);
    return finished();
  }

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue };
  struct Variable {
    int name;
    std::optional<Value> value;  // none: it only hides others of its name
  };
  // The variables of a loop's turn, a macro or a block; the template's own are globals_. The scope
  // is the current one while it lives.
  struct Scope {
    Scope(Evaluator& evaluator, Scope* around)
        : outer(around), now(evaluator.scope_), before(std::exchange(now, this)) {}
    Scope(const Scope&) = delete;
    ~Scope() { now = before; }

    Scope* outer;
    Scope*& now;
    Scope* before;
    std::vector<Variable> variables = {};
    int64_t message = -1;  // that a loop's turn is for
    int number = -1;       // a variable: the turn is for messages[number]
  };

  // ---- variables -------------------------------------------------------------------------------

  void define_input(const RenderInput& input) {
    const auto define = [&](std::string_view name, const auto& make) {
      const auto found = syntax_.numbers.find(name);
      if (found != syntax_.numbers.end()) global(found->second) = make();
    };
    for (const Callable& function : global_functions()) {
      define(function.name, [&] {
        return Value(std::make_shared<Function>(Function{std::string(function.name), &function}));
      });
    }
    for (const Json* object : {input.special_tokens, input.kwargs}) {
      if (!object) continue;
      for (const auto& [name, json] : object->items()) {
        define(name, [&, of = &json] { return from_json(*of); });
      }
    }
    const auto or_none = [](const Json* json) { return json ? from_json(*json) : Value(None()); };
    define("tools", [&] { return or_none(input.tools); });
    define("documents", [&] { return or_none(input.documents); });
    define("add_generation_prompt", [&] { return Value(input.add_generation_prompt); });
    define("messages", [&] {
      std::vector<Value> messages;
      for (const Json& message : input.messages) {
        messages.push_back(from_json(message));
        auto* dict = messages.back().object<Dict>();
        if (dict) dict->message = static_cast<int64_t>(messages.size()) - 1;
      }
      return make_sequence(std::move(messages));
    });
    for (const int name : syntax_.body.hidden) global(name).reset();
  }

  std::optional<Value>& global(int name) { return globals_[static_cast<size_t>(name)]; }

  static std::optional<Value>* find_in(Scope& scope, int name) {
    for (Variable& variable : scope.variables) {
      if (variable.name == name) return &variable.value;
    }
    return nullptr;
  }

  const Value* variable(int name) {  // null: undefined
    std::optional<Value>* found = nullptr;
    for (Scope* scope = scope_; scope && !found; scope = scope->outer) {
      found = find_in(*scope, name);
    }
    if (!found) found = &global(name);
    return *found ? &**found : nullptr;
  }

  void set(int name, Value value) {
    auto* const found = scope_ ? find_in(*scope_, name) : &global(name);
    if (found) return void(*found = std::move(value));
    scope_->variables.push_back({name, std::move(value)});
  }

  // ---- statements ------------------------------------------------------------------------------

  Nested nest(Place place) {
    if (++depth_ > 10 * kNesting) syntax_.source.fail_at(place, "nested too deeply");
    return {depth_};
  }

  Flow run(const Statements& statements) {
    for (const Statement* statement : statements) {
      const Nested nested = nest(statement->place);
      try {
        work_.step();
        const Flow flow = run(*statement);
        if (flow != Flow::kOn) return flow;
      } catch (const Fault& fault) {
        syntax_.source.fail_at(statement->place, fault.what());
      }
    }
    return Flow::kOn;
  }

  Flow run(const Statement& statement) {
    using Kind = Statement::Kind;
    const Kind kind = statement.kind;
    if (kind == Kind::kBreak) return Flow::kBreak;
    if (kind == Kind::kContinue) return Flow::kContinue;
    if (kind == Kind::kFor) return run_for(statement);
    if (kind == Kind::kSetBlock || kind == Kind::kFilterBlock) return run_captured(statement);
    if (kind == Kind::kIf) {
      for (const auto& [condition, body] : statement.branches) {
        if (!condition || holds(*condition)) return run(body);
      }
    } else if (kind == Kind::kText) {
      append(*out_, statement.text);
    } else if (kind == Kind::kPrint) {
      append(*out_, evaluate(*statement.value));
    } else if (kind == Kind::kSet) {
      set(statement.names[0], evaluate(*statement.value));
    } else if (kind == Kind::kSetAttribute) {
      const Value* found = variable(statement.names[0]);
      const Value holder = found ? *found : Value();
      auto* names = holder.object<Namespace>();
      if (!names) fault("cannot assign attribute on non-namespace object");
      names->members[statement.text.bytes()] = evaluate(*statement.value);
    } else if (kind == Kind::kMacro) {
      const int name = statement.names[0];
      set(name, std::make_shared<Function>(Function{name_of(name), nullptr, &statement}));
    } else {  // a generation block
      const Scope scope(*this, scope_);
      const size_t begin = out_->bytes.size();
      run_scoped(statement.body);
      mark(begin, Mark::kGeneration);
    }
    return Flow::kOn;
  }

  // Runs statements in the current scope, which is theirs.
  Flow run_scoped(const Scoped& body) {
    for (const int name : body.hidden) scope_->variables.push_back({name, std::nullopt});
    return run(body.statements);
  }

  Flow run_for(const Statement& statement) {
    const Value over = evaluate(*statement.value);
    auto loop = std::make_shared<LoopState>();
    loop->depth = depth_around(over);
    // The condition sees the loop's variables and no other of the body.
    loop->pull = [this, &statement, outer = scope_, next = iterate(over)](Value& out) {
      while (next(out)) {
        work_.step();
        if (!statement.condition) return true;
        Scope scope(*this, outer);
        bind_names(statement, out, scope);
        if (holds(*statement.condition)) return true;
      }
      return false;
    };
    Flow flow = Flow::kOn;
    while (flow != Flow::kBreak && loop->advance()) flow = run_turn(statement, loop);
    loop->pull = nullptr;  // it would ask in a scope that is gone
    return Flow::kOn;
  }

  void bind_names(const Statement& statement, const Value& item, Scope& scope) {
    const auto& names = statement.names;
    if (names.size() == 1) return scope.variables.push_back({names[0], item});
    const std::vector<Value> parts = to_vector(item, work_);
    if (parts.size() != names.size()) {
      fault("expected {} values to unpack, got {}", names.size(), parts.size());
    }
    for (size_t i = 0; i < parts.size(); ++i) scope.variables.push_back({names[i], parts[i]});
  }

  Flow run_turn(const Statement& statement, const std::shared_ptr<LoopState>& loop) {
    Scope scope(*this, scope_);
    bind_names(statement, loop->current, scope);
    for (const Variable& variable : scope.variables) {
      const auto* dict = variable.value->object<Dict>();
      if (dict && dict->message >= 0) scope.message = dict->message;
    }
    if (loop->current.get<int64_t>()) scope.number = statement.names[0];
    if (statement.uses_loop) scope.variables.push_back({syntax_.numbers.at("loop"), Value(loop)});
    const size_t begin = out_->bytes.size();
    const Flow flow = run_scoped(statement.body);
    if (scope.message >= 0) mark(begin, scope.message);
    return flow;
  }

  // Runs statements in the current scope, which write a text of their own.
  Flow capture(const Scoped& body, Value& out) {
    auto text = std::make_shared<Text>();
    Text* const outer = std::exchange(out_, text.get());
    const Flow flow = run_scoped(body);
    out_ = outer;
    out = std::move(text);
    return flow;
  }

  Flow run_captured(const Statement& statement) {
    Value text;
    {
      const Scope scope(*this, scope_);
      const Flow flow = capture(statement.body, text);
      if (flow != Flow::kOn) return flow;
    }
    if (statement.kind == Statement::Kind::kSetBlock) {
      set(statement.names[0], std::move(text));
    } else {
      const Value filtered = filter_block(*statement.value, text);
      if (!filtered.text()) fault("a filter block made a {}, not a str", type_name(filtered));
      append(*out_, filtered);
    }
    return Flow::kOn;
  }

  // ---- output ----------------------------------------------------------------------------------

  void append(Text& out, const Value& value) {  // as text
    const size_t before = out.bytes.size();
    if (value.text()) {
      append_text(out, *value.text());
    } else {
      append_str(out.bytes, value, work_);
    }
    work_.work_on(out.bytes.size() - before);
  }

  void mark(size_t begin, int64_t message) {
    const size_t end = out_->bytes.size();
    if (begin < end) out_->marks.push_back({begin, end, message});
  }

  Rendering finished() {
    Rendering out;
    std::map<size_t, int64_t> owners = {{0, -1}};  // of the bytes up to the next entry
    // An inner mark comes before the marks around it, and counts.
    for (auto mark = root_.marks.rbegin(); mark != root_.marks.rend(); ++mark) {
      if (mark->message == Mark::kGeneration) continue;
      const int64_t behind = std::prev(owners.upper_bound(mark->end))->second;
      owners.erase(owners.lower_bound(mark->begin), owners.upper_bound(mark->end));
      owners[mark->begin] = mark->message;
      owners[mark->end] = behind;
    }
    std::vector<Written>& all = out.written;
    for (auto at = owners.begin(), next = std::next(at); next != owners.end(); at = next++) {
      const auto message = static_cast<size_t>(at->second);
      const bool goes_on =
          !all.empty() && all.back() == Written{message, {all.back().bytes.begin, at->first}};
      if (goes_on) {
        all.back().bytes.end = next->first;
      } else if (at->second >= 0) {
        all.push_back({message, {at->first, next->first}});
      }
    }
    for (const auto& [begin, end, message] : root_.marks) {
      if (message == Mark::kGeneration) out.generation.push_back({begin, end});
    }
    std::ranges::sort(out.generation, {}, &ByteSpan::begin);
    out.text = std::move(root_.bytes);
    return out;
  }

  // ---- expressions -----------------------------------------------------------------------------

  bool holds(const Expression& expression) { return truth(evaluate(expression)); }

  Value evaluate(const Expression& expression) {
    const Nested nested = nest(expression.place);
    try {
      work_.work_on(0);
      if (expression.kind == Expression::Kind::kConstant) return expression.value;
      const bool name = expression.kind == Expression::Kind::kName;
      const Value* found = name ? variable(expression.name) : nullptr;
      return found ? *found : compute(expression);
    } catch (const Fault& fault) {
      syntax_.source.fail_at(expression.place, fault.what());
    }
  }

  Value compute(const Expression& expression) {
    using Kind = Expression::Kind;
    const Kind kind = expression.kind;
    if (kind == Kind::kName) return undefined(name_of(expression.name));
    if (kind == Kind::kItem) return item_of(expression);
    if (kind == Kind::kCall) return call(expression);
    if (kind == Kind::kCompare) return compare(expression);
    if (kind == Kind::kSlice) return slice_of(expression);
    if (kind == Kind::kList || kind == Kind::kTuple || kind == Kind::kDict)
      return items_of(expression);
    const auto& operands = expression.operands;
    if (kind == Kind::kConcat) {
      auto out = std::make_shared<Text>();
      for (const Expression* operand : operands) append(*out, evaluate(*operand));
      return out;
    }
    if (kind == Kind::kChoice) {
      if (holds(*operands[1])) return evaluate(*operands[0]);
      return operands[2] ? evaluate(*operands[2]) : Value();
    }
    if (kind == Kind::kAnd || kind == Kind::kOr) {
      Value first = evaluate(*operands[0]);
      const bool decides = truth(first) == (kind == Kind::kOr);
      return decides ? first : evaluate(*operands[1]);
    }
    if (kind == Kind::kBinary) {
      Value first = evaluate(*operands[0]);
      return expression.binary(std::move(first), evaluate(*operands[1]), work_);
    }
    const Value operand = evaluate(*operands[0]);
    if (kind == Kind::kAttribute) return attribute(operand, expression.value.bytes());
    if (kind == Kind::kCallable) return called(expression, operand);
    return kind == Kind::kNot ? Value(!truth(operand)) : negative(operand);
  }

  const std::string& name_of(int name) { return syntax_.names[static_cast<size_t>(name)]; }

  static Value undefined(const std::string& name) {
    for (const char* const unknown : {"dict", "lipsum", "cycler", "joiner", "self"}) {
      if (name == unknown) fault("{} is not known", name);  // jinja2 has it
    }
    return Undefined{nullptr, &name};
  }

  Value item_of(const Expression& expression) {
    const Expression& key = *expression.operands[1];
    const Value of = evaluate(*expression.operands[0]);
    const Value at = evaluate(key);
    const bool named = key.kind == Expression::Kind::kConstant && at.text();
    Value out = item(of, at, named ? &key.value.bytes() : nullptr, work_);
    if (key.kind == Expression::Kind::kName) note_number(key.name, out);
    return out;
  }

  // messages[number] of a loop over numbers says whose turn of the loop this is.
  void note_number(int name, const Value& found) {
    const auto* dict = found.object<Dict>();
    if (!dict || dict->message < 0) return;
    Scope* scope = scope_;
    while (scope && scope->number != name) scope = scope->outer;
    if (scope && scope->message < 0) scope->message = dict->message;
  }

  Value items_of(const Expression& expression) {
    std::vector<Value> items;
    for (const Expression* operand : expression.operands) items.push_back(evaluate(*operand));
    if (expression.kind == Expression::Kind::kList) return make_sequence(std::move(items));
    if (expression.kind == Expression::Kind::kTuple) {
      return make_sequence(std::move(items), Sequence::Kind::kTuple);
    }
    Dict dict;
    for (size_t i = 0; i < items.size(); i += 2) {
      const Value* old = dict.find(items[i], work_);
      if (!old) dict.members.emplace_back(items[i], items[i + 1]);
      if (old) *const_cast<Value*>(old) = items[i + 1];  // the last one counts
    }
    return make_dict(std::move(dict.members));
  }

  Value slice_of(const Expression& expression) {
    std::array<Value, 3> parts = {None(), None(), None()};
    const Value of = evaluate(*expression.operands[0]);
    for (size_t i = 0; i < parts.size(); ++i) {
      const Expression* part = expression.operands[i + 1];
      if (part) parts[i] = evaluate(*part);
    }
    return slice(of, parts, work_);
  }

  bool compare(const Expression& expression) {
    Value left = evaluate(*expression.operands[0]);
    for (size_t i = 0; i < expression.signs.size(); ++i) {
      Value right = evaluate(*expression.operands[i + 1]);
      const auto [holds, negated] = expression.signs[i];
      if (holds(left, right, work_) == negated) return false;
      left = std::move(right);
    }
    return true;
  }

  // ---- calls -----------------------------------------------------------------------------------

  Arguments arguments_of(const Expression& expression) {
    Arguments out;
    for (size_t i = 1; i < expression.operands.size(); ++i) {
      out.values.push_back(evaluate(*expression.operands[i]));
    }
    if (expression.spread) {
      const std::vector<Value> more = to_vector(evaluate(*expression.spread), work_);
      out.values.insert(out.values.end(), more.begin(), more.end());
    }
    for (const auto& [name, argument] : expression.named) {
      Value value = evaluate(*argument);
      const auto* dict = value.object<Dict>();
      if (!name.empty()) {
        out.named.emplace_back(name, std::move(value));
        continue;
      }
      if (!dict) fault("argument after ** must be a mapping, not {}", type_name(value));
      for (const auto& [key, member] : dict->members) {
        if (!key.text()) fault("keywords must be strings");
        out.named.emplace_back(key.bytes(), member);
      }
    }
    return out;
  }

  Value called(const Expression& expression, const Value& input) {
    work_.step();
    const Callable& callable = *expression.callable;
    return callable.run({callable.name, input, arguments_of(expression), work_});
  }

  // Filters of a filter block; the first lies innermost and has no input.
  Value filter_block(const Expression& expression, const Value& text) {
    const Expression* inner = expression.operands[0];
    return called(expression, inner ? filter_block(*inner, text) : text);
  }

  Value call(const Expression& expression) {
    work_.step();
    const Value callee = evaluate(*expression.operands[0]);
    check_defined(callee);
    const auto* function = callee.object<Function>();
    if (!function) fault("'{}' object is not callable", type_name(callee));
    const Arguments arguments = arguments_of(expression);
    const auto& [name, callable, macro, self, depth] = *function;
    if (macro) return call_macro(*macro, name, arguments);
    if (!callable) fault("the method {} of a {} is not known", name, type_name(self));
    if (self.text()) work_.work_on(self.bytes().size());
    return callable->run({callable->name, self, arguments, work_});
  }

  Value call_macro(const Statement& macro, const std::string& called, const Arguments& arguments) {
    const auto& [values, named] = arguments;
    const auto& [parameters, defaults] = std::tie(macro.parameters, macro.defaults);
    const size_t count = parameters.size();
    if (values.size() > count) {
      fault("macro '{}' takes not more than {} argument(s)", called, count);
    }
    Scope scope(*this, nullptr);
    for (size_t i = 0; i < count; ++i) {
      scope.variables.push_back({parameters[i], std::nullopt});
      if (i < values.size()) scope.variables[i].value = values[i];
    }
    for (const auto& [name, value] : named) {
      const auto number = syntax_.numbers.find(name);
      auto* const at = number == syntax_.numbers.end() ? nullptr : find_in(scope, number->second);
      if (!at || *at) fault("macro '{}' takes no keyword argument '{}'", called, name);
      *at = value;
    }
    const size_t without = count - defaults.size();
    for (size_t i = without; i < count; ++i) {
      auto& value = scope.variables[i].value;
      if (!value) value = evaluate(*defaults[i - without]);
    }
    Value out;
    capture(macro.body, out);
    return out;
  }

  const Syntax& syntax_;
  Workspace work_;
  std::vector<std::optional<Value>> globals_;  // by name
  Scope* scope_ = nullptr;
  Text root_;
  Text* out_ = &root_;
  int depth_ = 0;
};

}  // namespace
}  // namespace jinja

ChatTemplate::ChatTemplate(std::string_view source, std::string name)
    : syntax_(std::make_shared<const jinja::Syntax>(
          jinja::parse(jinja::Source(source, std::move(name))))) {}

bool ChatTemplate::has_generation_blocks() const { return syntax_->has_generation; }

Rendering ChatTemplate::render(const RenderInput& input) const {
  return jinja::Evaluator(*syntax_, input).run();
}

}  // namespace fsdp::data
