#include <pliant/pliant.h>

#include <cstdio>

int main() {
  auto session = pliant::Session::join();
  std::printf("rank %d of %d\n", static_cast<int>(session.rank()), static_cast<int>(session.size()));
}
