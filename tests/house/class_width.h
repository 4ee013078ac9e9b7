// How many data members the classes of a source have, by a reading of its text that is good enough for this house's
// style: one declaration per statement, no macros that declare.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pliant::house {

struct ClassWidth {
  std::string name;
  int members = 0;  ///< its own, and those of the classes that are defined inside of it
};

/// Of all classes and structs that are defined in the text, in order of their ends.
std::vector<ClassWidth> class_widths(std::string_view text);

}  // namespace pliant::house
