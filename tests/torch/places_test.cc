// Gradients that are born in registered memory, and the tensors that get there by accident.
#include "torch/places.h"

#include <gtest/gtest.h>
#include <pliant/torch.h>
#include <sys/mman.h>

#include <cstring>
#include <thread>

#include "net/shared_memory.h"

namespace pliant::adapter {
namespace {

constexpr std::int64_t kSide = 300;  // 360,000 bytes: not whole pages
constexpr std::size_t kBytes = kSide * kSide * sizeof(float);

class PlacesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    segment_ =
        net::create_segment("places-test", net::round_up(kBytes, net::kPage) * 2, net::Backing::reserved).or_throw();
    first_ = reinterpret_cast<float*>(segment_.memory.data());
  }
  std::size_t add(int which) {
    return places_->add(segment_.memory.data() + which * net::round_up(kBytes, net::kPage), kBytes);
  }
  torch::Tensor parameter_ = torch::ones({kSide, kSide}, torch::requires_grad());
  torch::Tensor input_ = torch::ones({2, kSide});
  /// The gradient of the matrix product is a matrix of its own: 2 everywhere.
  void backward(float scale = 1) { (torch::mm(input_, parameter_).sum() * scale).backward(); }

  net::OwnSegment segment_;
  float* first_ = nullptr;
  std::unique_ptr<Places> places_ = std::make_unique<Places>();
};

TEST_F(PlacesTest, AGradientIsBornInItsPlace) {
  auto place = add(0);
  for (int pass = 1; pass <= 3; ++pass) {
    parameter_.mutable_grad().reset();
    backward(static_cast<float>(pass));
    ASSERT_EQ(parameter_.grad().data_ptr(), places_->address(place));
    places_->confirm(place);
    EXPECT_EQ(first_[0], 2 * pass);
    EXPECT_EQ(first_[kSide * kSide - 1], 2 * pass);
  }
}

TEST_F(PlacesTest, OnlyBackwardAndOnlyTheThreadThatMadeThePlaceGetsIt) {
  auto place = add(0);
  EXPECT_NE(torch::empty({kSide, kSide}).data_ptr(), places_->address(place));
  std::thread([&] { backward(); }).join();
  EXPECT_NE(parameter_.grad().data_ptr(), places_->address(place));
}

TEST_F(PlacesTest, ATensorInTheWayKeepsItsAddressAndItsContent) {
  auto place = add(0);
  backward();
  auto stranger = parameter_.grad();
  parameter_.mutable_grad().reset();
  void* address = stranger.data_ptr();
  ASSERT_EQ(address, places_->address(place));
  auto* taken = places_->take(place);
  EXPECT_NE(taken, address);
  std::memset(taken, 0, kBytes);
  EXPECT_EQ(first_[0], 0);
  EXPECT_EQ(stranger.data_ptr(), address);
  EXPECT_EQ(stranger.sum().item<float>(), 2 * kSide * kSide);
  stranger.fill_(5);
  EXPECT_EQ(first_[0], 0);
  Places::give_back(taken);
  backward();
  EXPECT_EQ(parameter_.grad().data_ptr(), places_->address(place));
}

TEST_F(PlacesTest, APlaceThatIsInUseIsNotGivenAgain) {
  auto first = add(0), second = add(1);
  backward();
  auto held = parameter_.grad();
  parameter_.mutable_grad().reset();
  backward(3);
  EXPECT_EQ(held.data_ptr(), places_->address(first));
  EXPECT_EQ(parameter_.grad().data_ptr(), places_->address(second));
  EXPECT_EQ(held[0][0].item<float>(), 2);
}

TEST_F(PlacesTest, APlaceThatStrangersTakeAgainAndAgainIsWithdrawn) {
  auto place = add(0);
  int given = 0;
  for (int pass = 0; pass < 10; ++pass) {
    parameter_.mutable_grad().reset();
    backward();
    given += parameter_.grad().data_ptr() == places_->address(place) ? 1 : 0;
    Places::give_back(places_->take(place));
  }
  EXPECT_EQ(given, 3);
}

TEST_F(PlacesTest, ATensorOutlivesThePlacesAndTheirMemory) {
  add(0);
  backward();
  auto held = parameter_.grad();
  parameter_.mutable_grad().reset();
  places_.reset();
  segment_ = {};
  EXPECT_EQ(held.sum().item<float>(), 2 * kSide * kSide);
  backward();
  EXPECT_NE(parameter_.grad().data_ptr(), held.data_ptr());
}

}  // namespace
}  // namespace pliant::adapter
