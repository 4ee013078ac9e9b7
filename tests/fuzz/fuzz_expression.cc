// A formula by anybody: it is refused in a few words that point into it, or has a value at any time; blanks and
// parentheses around it change nothing, and a utility of it is always a number.
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "base/result.h"
#include "fuzz/fuzz.h"
#include "scale/expression.h"
#include "scale/utility.h"

namespace pliant::fuzz {
namespace {

using scale::Expression;

std::optional<Expression> parse(const std::string& text) {
  try {
    return Expression::parse(text);
  } catch (const Failure& problem) {
    std::string message = problem.what();
    PLIANT_ASSERT(problem.code() == Code::invalid);
    PLIANT_ASSERT(message.starts_with("column ") && message.size() < 200);
    auto column = std::stoul(message.substr(std::strlen("column ")));
    PLIANT_ASSERT(column >= 1 && column <= text.size() + 1);
    for (char c : message) PLIANT_ASSERT(c >= ' ' && c <= '~');
    return std::nullopt;
  }
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

Bytes input_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (const auto* text : {"t", "-1.5e3", "100*exp(-t/600)", "100*(t<600)+20*(t<=3600)", "min(t;3)^-2 - --4",
                           "max(abs(t);floor(sqrt(t)))/log(pow(t;2))", "(t>1)!=(t>=2)", "((((t==1))))", "100*exp-t",
                           "2t", "0<t<9", "1e999"})
    all.push_back(input_of(text));
  return all;
}

void run(std::span<const std::uint8_t> input) {
  std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  auto formula = parse(text);
  auto spaced = parse("  " + text + " ");
  PLIANT_ASSERT(formula.has_value() == spaced.has_value());
  if (!formula) return;
  auto enclosed = parse("(" + text + ")");  // unless it is as deep as it may be
  auto utility = scale::Utility::formula(text);
  for (double t : {0.0, 1.0, 599.5, 1e300, -1.0, std::nan(""), static_cast<double>(INFINITY)}) {
    PLIANT_ASSERT(same(formula->at(t), spaced->at(t)));
    if (enclosed) PLIANT_ASSERT(same(formula->at(t), enclosed->at(t)));
    PLIANT_ASSERT(std::isfinite(utility.at(t)));
  }
}

}  // namespace pliant::fuzz
