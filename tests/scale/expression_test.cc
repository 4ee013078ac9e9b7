#include "scale/expression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/result.h"

namespace pliant::scale {
namespace {

double value(const std::string& text, double t = 0) { return Expression::parse(text).at(t); }

std::string problem_of(const std::string& text) {
  try {
    Expression::parse(text);
  } catch (const Failure& problem) {
    EXPECT_EQ(problem.code(), Code::invalid);
    return problem.what();
  }
  return "none";
}

TEST(Expression, IsWhatItSays) {
  EXPECT_DOUBLE_EQ(value("100*exp(-t/600)", 600), 100 * std::exp(-1));
  for (auto [t, expected] : {std::pair(0.0, 120.0), {600.0, 20.0}, {3599.0, 20.0}, {3600.0, 0.0}})
    EXPECT_DOUBLE_EQ(value("100*(t<600)+20*(t<3600)", t), expected) << t;
  EXPECT_DOUBLE_EQ(value(" 1e2 - .5 * t ", 20), 90);
}

TEST(Expression, BindsAsOnPaper) {
  EXPECT_DOUBLE_EQ(value("1+2*3"), 7);
  EXPECT_DOUBLE_EQ(value("(1+2)*3"), 9);
  EXPECT_DOUBLE_EQ(value("8-4-2"), 2);
  EXPECT_DOUBLE_EQ(value("8/4/2"), 1);
  EXPECT_DOUBLE_EQ(value("2^3^2"), 512);
  EXPECT_DOUBLE_EQ(value("-t^2", 3), -9);
  EXPECT_DOUBLE_EQ(value("2^-1"), 0.5);
  EXPECT_DOUBLE_EQ(value("2*-3--4"), -2);
  EXPECT_DOUBLE_EQ(value("1+1<3"), 1);
  EXPECT_DOUBLE_EQ(value("--t", 5), 5);
}

TEST(Expression, ComparesAndCalls) {
  for (auto [text, at_4, at_5, at_6] : {std::tuple("t<5", 1, 0, 0),
                                        {"t<=5", 1, 1, 0},
                                        {"t>5", 0, 0, 1},
                                        {"t>=5", 0, 1, 1},
                                        {"t==5", 0, 1, 0},
                                        {"t!=5", 1, 0, 1}}) {
    EXPECT_EQ(value(text, 4), at_4) << text;
    EXPECT_EQ(value(text, 5), at_5) << text;
    EXPECT_EQ(value(text, 6), at_6) << text;
  }
  EXPECT_DOUBLE_EQ(value("min(t;3)", 5), 3);
  EXPECT_DOUBLE_EQ(value("max(t;3)", 5), 5);
  EXPECT_DOUBLE_EQ(value("pow(t;2)", 5), 25);
  EXPECT_DOUBLE_EQ(value("floor(t/60)", 119), 1);
  EXPECT_DOUBLE_EQ(value("abs(-t)", 5), 5);
  EXPECT_DOUBLE_EQ(value("sqrt(t)", 9), 3);
  EXPECT_DOUBLE_EQ(value("log(exp(t))", 2), 2);
  EXPECT_DOUBLE_EQ(value("max(min(t;7);min(3;2))", 5), 5);
}

TEST(Expression, WhatIsWrongIsSaidWithItsPlace) {
  for (auto [text, what] : {
           std::pair("", "column 1: a number, t, a function or '(' is expected, not the end"),
           {"100*", "column 5: a number, t, a function or '(' is expected, not the end"},
           {"100**t", "column 5: a number, t, a function or '(' is expected, not '*'"},
           {"100*exp-t", "column 8: '(' is expected, not '-'"},
           {"(t+1", "column 5: ')' is expected, not the end"},
           {"t+1)", "column 4: an operator or the end is expected, not ')'"},
           {"2t", "column 2: an operator or the end is expected, not 't'"},
           {"3 + x", "column 5: t or one of abs exp floor log max min pow sqrt is expected, not 'x'"},
           {"expo(t)", "column 1: t or one of abs exp floor log max min pow sqrt is expected, not 'expo'"},
           {"min(t)", "column 6: ';' is expected, not ')'"},
           {"exp(t;2)", "column 6: ')' is expected, not ';'"},
           {"0<t<9", "column 4: only one comparison is expected, not '<'"},
           {"t=5", "column 2: an operator or the end is expected, not '='"},
           {"1e999", "column 1: a number between 1e-300 and 1e300 is expected, not '1'"},
           {"1+.", "column 3: a number is expected, not '.'"},
           {"t\n", "column 2: an operator or the end is expected, not byte 10"},
       })
    EXPECT_EQ(problem_of(text), what) << text;
}

TEST(Expression, NestsOnlySoDeep) {
  auto nested = [](int depth) { return std::string(depth, '(') + "t" + std::string(depth, ')'); };
  EXPECT_DOUBLE_EQ(value(nested(60), 3), 3);
  EXPECT_EQ(problem_of(nested(100'000)), "column 65: nesting of at most 64 is expected, not '('");
  EXPECT_NE(problem_of(std::string(100'000, '-') + "t"), "none");
  std::string powers = "t", sum = "t";
  for (int i = 0; i < 10'000; ++i) powers += "^t", sum += "+t";
  EXPECT_NE(problem_of(powers), "none");
  EXPECT_DOUBLE_EQ(value(sum, 1), 10'001);  // length is no depth
}

}  // namespace
}  // namespace pliant::scale
