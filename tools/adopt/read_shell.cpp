// Contract: tools/adopt/read_shell.h.
#include "tools/adopt/read_shell.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace fsdp::adopt {
namespace {

bool is_name(const std::string& text) {
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

// One pass over the text: words, with variables put in as they are known, and the ends of commands.
class ShellReader {
 public:
  ShellReader(const std::string& text, const std::string& source) : text_(text), source_(source) {}

  ShellScript read() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\' && next() == '\n') {
        ++line_, at_ += 2;
      } else if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\r') {
        ++at_;
      } else if (c == '&' && next() == '>') {
        ++at_;  // of a redirection
      } else if (c == '<' || c == '>') {
        skip_redirection();
      } else if (c == '\n' || c == ';' || c == '&' || c == '|') {
        end_command();
        line_ += c == '\n' ? 1 : 0;
        ++at_;
        if (c == '\n') skip_here_documents();
      } else {
        read_word();
      }
    }
    end_command();
    return std::move(script_);
  }

 private:
  char next() const { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }
  bool ends_word(char c) const {
    return std::string_view(" \t\r\n;&|<>").find(c) != std::string_view::npos;
  }

  void read_word() {
    if (words_.empty()) first_line_ = line_;
    const std::string word = next_word();
    const bool descriptor = at_ < text_.size() && (text_[at_] == '>' || text_[at_] == '<') &&
                            word.find_first_not_of("0123456789") == std::string::npos;
    if (!descriptor) words_.push_back(word);  // the 2 of 2>log is no word
  }

  // At < or >, to behind the file: ">log", ">> log", ">&1", "<<END".
  void skip_redirection() {
    if (next() == '(') {  // <(command) is a word
      if (words_.empty()) first_line_ = line_;
      words_.push_back(variable());
      ++at_;
      return;
    }
    const bool here_document = text_[at_] == '<' && next() == '<' && text_[at_ + 2] != '<';
    at_ = std::min(text_.find_first_not_of("<>&|", at_), text_.size());
    const bool tabs = here_document && at_ < text_.size() && text_[at_] == '-';
    if (tabs) ++at_;
    at_ = std::min(text_.find_first_not_of(" \t", at_), text_.size());
    const std::string word = next_word();
    if (here_document) here_documents_.push_back({word, tabs});
  }

  // At the beginning of a line.
  void skip_here_documents() {
    for (const auto& [end, tabs] : here_documents_) {
      for (bool found = false; !found && at_ < text_.size(); ++line_) {
        const size_t newline = std::min(text_.find('\n', at_), text_.size());
        std::string line = text_.substr(at_, newline - at_);
        if (tabs) line.erase(0, line.find_first_not_of('\t'));
        found = line == end;
        at_ = std::min(newline + 1, text_.size());
      }
    }
    here_documents_.clear();
  }

  std::string next_word() {
    std::string word;
    char quote = '\0';
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (!quote && ends_word(c)) break;
      if (c == '\n') ++line_;
      if (c == quote) {
        quote = '\0';
      } else if (!quote && (c == '"' || c == '\'')) {
        quote = c;
      } else if (c == '\\' && quote != '\'' && at_ + 1 < text_.size()) {
        ++at_;
        if (text_[at_] == '\n')
          ++line_;
        else
          word += text_[at_];
      } else if (c == '$' && quote != '\'') {
        word += variable();
      } else if (c == '`' && quote != '\'') {
        word += as_written(text_.find('`', at_ + 1));
      } else {
        word += c;
      }
    }
    return word;
  }

  // At a '$', or at the '<' of <(...); at_ ends on its last character.
  std::string variable() {
    if (next() == '(') {
      int depth = 0;
      for (size_t end = at_ + 1; end < text_.size(); ++end) {
        depth += text_[end] == '(' ? 1 : text_[end] == ')' ? -1 : 0;
        if (depth == 0) return as_written(end);
      }
      return as_written(text_.size() - 1);
    }
    if (next() == '{') {
      const size_t end = std::min(text_.find('}', at_), text_.size() - 1);
      const std::string inside = text_.substr(at_ + 2, end - at_ - 2);
      const size_t otherwise = inside.find(":-");
      const std::string name = inside.substr(0, otherwise);
      if (const auto known = values_.find(name); known != values_.end())
        return at_ = end, known->second;
      if (otherwise == std::string::npos) return as_written(end);
      return at_ = end, inside.substr(otherwise + 2);
    }
    size_t end = at_ + 1;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_'))
      ++end;
    const std::string name = text_.substr(at_ + 1, end - at_ - 1);
    if (const auto known = values_.find(name); known != values_.end())
      return at_ = end - 1, known->second;
    const bool special = name.empty() && end < text_.size() &&
                         std::string_view("@*#?$!-").find(text_[end]) != std::string_view::npos;
    return as_written(special ? end : end - 1);
  }

  // The text up to and with `end`, where at_ goes.
  std::string as_written(size_t end) {
    end = std::min(end, text_.size() - 1);
    const std::string out = text_.substr(at_, end - at_ + 1);
    line_ += static_cast<int>(std::count(out.begin(), out.end(), '\n'));
    at_ = end;
    return out;
  }

  // Whether the word stands in front of assignments alone, as export does.
  static bool declares(const std::string& word) {
    constexpr std::array kWords = {"export", "declare", "readonly", "typeset", "local"};
    return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
  }

  // The first word behind "then", "do" and the like, which begin a command.
  size_t first_word() const {
    constexpr std::array kWords = {"then", "do", "else", "if", "elif", "while", "until", "{", "!"};
    size_t first = 0;
    while (first < words_.size() &&
           std::find(kWords.begin(), kWords.end(), words_[first]) != kWords.end()) {
      ++first;
    }
    return first;
  }

  void end_command() {
    std::vector<Given> set;
    size_t first = first_word();
    const std::string place = fmt::format("{}:{}", source_, first_line_);
    const bool exported = first < words_.size() && declares(words_[first]);
    if (exported) ++first;
    for (; first < words_.size(); ++first) {
      const size_t equals = words_[first].find('=');
      const std::string name = words_[first].substr(0, equals);
      if (equals == std::string::npos || !is_name(name)) {
        if (exported) continue;  // export NAME, declare -x
        break;
      }
      set.push_back({.key = name,
                     .name = name,
                     .values = {words_[first].substr(equals + 1)},
                     .place = place});
    }
    if (first < words_.size()) {
      add_command({.variables = set,
                   .words = {words_.begin() + static_cast<std::ptrdiff_t>(first), words_.end()},
                   .place = place});
    } else {
      for (const Given& each : set) set_variable(each);
    }
    words_.clear();
  }

  void set_variable(const Given& given) {
    if (is_open(given.values[0]))
      values_.erase(given.name);
    else
      values_[given.name] = given.values[0];
    script_.variables.push_back(given);
  }

  void add_command(const ShellCommand& command) {
    // What these set is not known.
    if (command.words[0] == "for" || command.words[0] == "read" || command.words[0] == "unset") {
      for (const std::string& word : command.words) values_.erase(word);
    }
    script_.commands.push_back(command);
  }

  const std::string& text_;
  const std::string& source_;
  size_t at_ = 0;
  int line_ = 1, first_line_ = 1;
  std::vector<std::string> words_;                            // of the command that is being read
  std::vector<std::pair<std::string, bool>> here_documents_;  // their ends; whether tabs go
  std::map<std::string, std::string> values_;                 // of variables that are known
  ShellScript script_;
};

}  // namespace

ShellScript parse_shell(const std::string& text, const std::string& source) {
  return ShellReader(text, source).read();
}

bool is_open(const std::string& word) {
  return word.find('$') != std::string::npos || word.find('`') != std::string::npos;
}

std::vector<ReadVariable> read_variables(const std::string& python, const std::string& source) {
  std::vector<ReadVariable> variables;
  for (const std::string call : {"getenv(", "environ.get(", "environ["}) {
    for (size_t at = python.find(call); at != std::string::npos; at = python.find(call, at + 1)) {
      const size_t open = at + call.size();
      const char quote = open < python.size() ? python[open] : '\0';
      const size_t close = python.find(quote, open + 1);
      if ((quote != '"' && quote != '\'') || close == std::string::npos) continue;
      std::string otherwise;
      const size_t comma = python.find_first_not_of(' ', close + 1);
      if (comma != std::string::npos && python[comma] == ',') {
        otherwise = python.substr(comma + 1, python.find(')', comma) - comma - 1);
        std::erase_if(otherwise, [](char c) { return c == ' ' || c == '"' || c == '\''; });
      }
      const auto line =
          std::count(python.begin(), python.begin() + static_cast<std::ptrdiff_t>(at), '\n');
      variables.push_back({.name = python.substr(open + 1, close - open - 1),
                           .otherwise = otherwise,
                           .place = fmt::format("{}:{}", source, line + 1)});
    }
  }
  return variables;
}

}  // namespace fsdp::adopt
