// A formula of one number, as a user writes it: 100*exp(-t/600).
#pragma once

#include <string_view>
#include <variant>
#include <vector>

namespace pliant::scale {

class Expression {
 public:
  /// Numbers, t, parentheses; + - * / and ^, which binds from the right and before a minus; < <= > >= == !=, once,
  /// which give 1 or 0; abs exp floor log sqrt of one number, and max min pow of two, with ";" between them.
  /// Failure(Code::invalid) says in which column something else should be.
  static Expression parse(std::string_view text);

  /// As floating point has it: what makes no sense there is not a number.
  double at(double t) const;

 private:
  friend class ExpressionParser;
  struct Variable {};
  using One = double (*)(double);
  using Two = double (*)(double, double);
  using Operation = std::variant<double, Variable, One, Two>;
  std::vector<Operation> operations_;  // each takes its operands from a stack, and leaves its value there
};

}  // namespace pliant::scale
