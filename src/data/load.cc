// The public edge: results become exceptions.
#include <pliant/data.h>

#include "data/cifar.h"
#include "data/idx.h"

namespace pliant {

LabelledImages load_mnist(const std::string& folder, bool train) { return data::read_mnist(folder, train).or_throw(); }
LabelledImages load_cifar10(const std::string& folder, bool train) {
  return data::read_cifar10(folder, train).or_throw();
}

}  // namespace pliant
