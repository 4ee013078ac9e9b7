#include "scale/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "base/result.h"

namespace pliant::scale {
namespace {

constexpr int kDeepest = 64;  // operands within operands

using One = double (*)(double);
using Two = double (*)(double, double);

struct Function {
  std::string_view name;
  One one;
  Two two;  // one of them
};
constexpr Function kFunctions[] = {
    {"abs", [](double x) { return std::abs(x); }, nullptr},
    {"exp", [](double x) { return std::exp(x); }, nullptr},
    {"floor", [](double x) { return std::floor(x); }, nullptr},
    {"log", [](double x) { return std::log(x); }, nullptr},
    {"max", nullptr, [](double x, double y) { return std::max(x, y); }},
    {"min", nullptr, [](double x, double y) { return std::min(x, y); }},
    {"pow", nullptr, [](double x, double y) { return std::pow(x, y); }},
    {"sqrt", [](double x) { return std::sqrt(x); }, nullptr},
};

struct Operator {
  std::string_view sign;
  Two two;
};
constexpr Operator kComparisons[] = {
    // The longer ones first, because the shorter ones begin them.
    {"<=", [](double x, double y) { return x <= y ? 1.0 : 0.0; }},
    {">=", [](double x, double y) { return x >= y ? 1.0 : 0.0; }},
    {"==", [](double x, double y) { return x == y ? 1.0 : 0.0; }},
    {"!=", [](double x, double y) { return x != y ? 1.0 : 0.0; }},
    {"<", [](double x, double y) { return x < y ? 1.0 : 0.0; }},
    {">", [](double x, double y) { return x > y ? 1.0 : 0.0; }},
};
constexpr Operator kSums[] = {
    {"+", [](double x, double y) { return x + y; }},
    {"-", [](double x, double y) { return x - y; }},
};
constexpr Operator kProducts[] = {
    {"*", [](double x, double y) { return x * y; }},
    {"/", [](double x, double y) { return x / y; }},
};

bool is_digit(char c) { return '0' <= c && c <= '9'; }
bool is_letter(char c) { return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '_'; }

}  // namespace

/// One function for each way to bind, from the loosest on.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::string_view text) : text_(text) {}

  Expression parse() {
    comparison();
    next();
    if (at_ < text_.size()) refuse("an operator or the end");
    return std::move(made_);
  }

 private:
  void comparison() {
    sum();
    const auto* sign = take_any(kComparisons);
    if (!sign) return;
    sum();
    made_.operations_.emplace_back(sign->two);
    auto at = at_;
    if (!take_any(kComparisons)) return;
    at_ = at;
    refuse("only one comparison");
  }

  void sum() {
    product();
    while (const auto* sign = take_any(kSums)) {
      product();
      made_.operations_.emplace_back(sign->two);
    }
  }

  void product() {
    signed_power();
    while (const auto* sign = take_any(kProducts)) {
      signed_power();
      made_.operations_.emplace_back(sign->two);
    }
  }

  /// All that is nested comes by here.
  void signed_power() {
    if (++depth_ > kDeepest) refuse(fmt::format("nesting of at most {}", kDeepest));
    if (take("-")) {
      signed_power();
      made_.operations_.emplace_back(One([](double x) { return -x; }));
    } else {
      operand();
      if (take("^")) {
        signed_power();
        made_.operations_.emplace_back(Two([](double x, double y) { return std::pow(x, y); }));
      }
    }
    --depth_;
  }

  void operand() {
    auto c = next();
    if (is_digit(c) || c == '.') return number();
    if (is_letter(c)) return name();
    if (!take("(")) refuse("a number, t, a function or '('");
    comparison();
    require(")");
  }

  void number() {
    double value = 0;
    const auto* from = text_.data() + at_;
    auto [end, problem] = std::from_chars(from, text_.data() + text_.size(), value);
    if (problem != std::errc())
      refuse(problem == std::errc::result_out_of_range ? "a number between 1e-300 and 1e300" : "a number");
    made_.operations_.emplace_back(value);
    at_ += static_cast<std::size_t>(end - from);
  }

  void name() {
    auto begin = at_;
    auto end = begin;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    auto word = text_.substr(begin, end - begin);
    if (word == "t") {
      at_ = end;
      made_.operations_.emplace_back(Expression::Variable());
      return;
    }
    const auto* function = std::ranges::find(kFunctions, word, &Function::name);
    if (function == std::end(kFunctions)) refuse("t or one of abs exp floor log max min pow sqrt");
    at_ = end;
    require("(");
    comparison();
    if (function->two) {
      require(";");
      comparison();
    }
    require(")");
    function->two ? made_.operations_.emplace_back(function->two) : made_.operations_.emplace_back(function->one);
  }

  /// What follows blanks; nothing at the end.
  char next() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool take(std::string_view sign) {
    next();
    if (!text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }

  template <std::size_t n>
  const Operator* take_any(const Operator (&operators)[n]) {
    for (const auto& each : operators)
      if (take(each.sign)) return &each;
    return nullptr;
  }

  void require(std::string_view sign) {
    if (!take(sign)) refuse(fmt::format("'{}'", sign));
  }

  [[noreturn]] void refuse(const std::string& expected) {
    auto c = next();
    auto found = at_ == text_.size()  ? "the end"
                 : c < ' ' || c > '~' ? fmt::format("byte {}", static_cast<unsigned char>(c))
                                      : fmt::format("'{}'", text_.substr(at_, word_length()));
    throw Failure(Code::invalid, fmt::format("column {}: {} is expected, not {}", at_ + 1, expected, found));
  }

  /// A whole word, where one begins.
  std::size_t word_length() const {
    constexpr std::size_t kLongest = 16;
    std::size_t length = 0;
    while (length < kLongest && at_ + length < text_.size() && is_letter(text_[at_ + length])) ++length;
    return std::max<std::size_t>(length, 1);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  Expression made_;
};

Expression Expression::parse(std::string_view text) { return ExpressionParser(text).parse(); }

double Expression::at(double t) const {
  std::vector<double> stack;
  auto pop = [&] {
    auto value = stack.back();
    stack.pop_back();
    return value;
  };
  for (const auto& operation : operations_) {
    if (const auto* number = std::get_if<double>(&operation)) {
      stack.push_back(*number);
    } else if (const auto* one = std::get_if<One>(&operation)) {
      stack.push_back((*one)(pop()));
    } else if (const auto* two = std::get_if<Two>(&operation)) {
      auto right = pop();
      auto left = pop();
      stack.push_back((*two)(left, right));
    } else {
      stack.push_back(t);
    }
  }
  return stack.back();
}

}  // namespace pliant::scale
