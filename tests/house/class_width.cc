#include "house/class_width.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <regex>

namespace pliant::house {
namespace {

/// The text without comments, and with nothing between quotes.
std::string bare(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "//") {
      while (i < text.size() && text[i] != '\n') ++i;
      out += '\n';
    } else if (text.substr(i, 2) == "/*") {
      i = std::min(text.find("*/", i), text.size() - 1) + 1;
    } else if (text.substr(i, 2) == "R\"") {
      auto open = text.find('(', i);
      auto close = ")" + std::string(text.substr(i + 2, open - i - 2)) + "\"";
      i = text.find(close, open) + close.size() - 1;
      out += "\"\"";
    } else if (text[i] == '"' ||
               (text[i] == '\'' && (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1]))))) {
      auto quote = text[i];
      for (++i; i < text.size() && text[i] != quote; ++i)
        if (text[i] == '\\') ++i;
      out += quote;
      out += quote;
    } else if (text[i] == '#' && (out.empty() || out.back() == '\n')) {
      while (i < text.size() && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
      out += '\n';
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Without what is between angle brackets: there are no comparisons in declarations.
std::string without_templates(const std::string& text) {
  std::string out;
  int depth = 0;
  for (char c : text) {
    if (c == '<') ++depth;
    if (depth == 0) out += c;
    if (c == '>' && depth > 0) --depth;
  }
  return out;
}

/// How many data members a statement of a class's body declares. `text` has no bodies any more.
int members_in(std::string text) {
  static const std::regex kLabel(R"(^\s*(public|private|protected)\s*:)");
  static const std::regex kOther(
      R"(^\s*(using|friend|static|typedef|template|enum|class|struct|constexpr|explicit|virtual)\b)");
  static const std::regex kAlignas(R"(alignas\s*\([^)]*\)|\[\[[^\]]*\]\])");
  for (std::smatch match; std::regex_search(text, match, kLabel);) text = match.suffix();
  text = std::regex_replace(text, kAlignas, "");
  if (std::regex_search(text, kOther)) return 0;
  text = without_templates(text);
  if (text.find("operator") != std::string::npos) return 0;
  int names = 1;
  bool any = false, value = false;
  int depth = 0;
  for (char c : text) {
    if (c == '(' && !value) return 0;  // a function
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == '=') value = true;
    if (c == ',' && depth == 0) ++names, value = false;
    any = any || std::isalnum(static_cast<unsigned char>(c));
  }
  return any ? names : 0;
}

/// A class or struct whose body begins after `head`.
std::optional<std::string> class_named_in(const std::string& head) {
  static const std::regex kClass(
      R"((?:^|[\s;}>])(?:class|struct)\s+(?:alignas\s*\([^)]*\)\s*)?([\w:]+)?(?:\s+final)?\s*(?::[^;{}]*)?$)");
  if (std::regex_search(head, std::regex(R"(\benum\b)"))) return std::nullopt;
  std::smatch match;
  if (!std::regex_search(head, match, kClass)) return std::nullopt;
  return match[1].matched ? match[1].str() : "(unnamed)";
}

class Reader {
 public:
  explicit Reader(std::string text) : text_(std::move(text)) {}
  std::vector<ClassWidth> read() {
    scope(std::nullopt);
    return std::move(found_);
  }

 private:
  /// Reads up to the brace that ends a scope; returns the data members in it, if it is a class's.
  int scope(const std::optional<std::string>& name) {
    int members = 0;
    std::string statement;
    while (at_ < text_.size()) {
      char c = text_[at_++];
      if (c == '}') break;
      if (c == ';') {
        if (name) members += members_in(statement);
        statement.clear();
      } else if (c == '{') {
        auto inner = class_named_in(statement);
        int inside = scope(inner);
        if (inner && name) members += inside;
        // A namespace, a function or a class is over with its body; what has a value goes on.
        bool function = statement.find(')') != std::string::npos && !ends_with_name(statement);
        if (!name || function) statement.clear();
        if (inner) statement = "struct-like";
      } else {
        statement += c;
      }
    }
    if (name) found_.push_back({*name, members});
    return members;
  }

  /// "int x" before "{0}": a member with a value in braces.
  static bool ends_with_name(const std::string& statement) {
    auto plain = without_templates(std::regex_replace(statement, std::regex(R"(alignas\s*\([^)]*\))"), ""));
    return plain.find('(') == std::string::npos;
  }

  std::string text_;
  std::size_t at_ = 0;
  std::vector<ClassWidth> found_;
};

}  // namespace

std::vector<ClassWidth> class_widths(std::string_view text) { return Reader(bare(text)).read(); }

}  // namespace pliant::house
