#include "wire/messages.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pliant::wire {
namespace {

std::vector<Message> one_of_each() {
  ViewNotice view{3, 4, 42, 2, {{0, 100, "@a"}, {7, 200, "@b"}}, {7}, 1, 60};
  return {Join{"job", 1, 123, "@address", 2, "0.1", "8 items", view, 9},
          view,
          Refusal{"no"},
          Progress{10, 7, 4, 1, 3, 100, 6400, 1234.5, 0.25, "accuracy 0.9"},
          PeerHello{"job", 7},
          RegionNotice{0x1234, "gradients", 4096, 4096, 2},
          Bye{2, 10, 4},
          Ready{"8 items"},
          Plan{5, 0x1234, view},
          Adopted{view, 10},
          Over{},
          Resize{4, 1},
          Answer{1, "done"},
          AgentHello{"job", "b", 2, "spot"},
          Charter{"{}"},
          Stop{"b", 1},
          Pulse{},
          Start{3},
          Started{3, 4711},
          Ended{3, 0, "killed by signal 9", 1, 2, 5},
          JobState{view, 4, 1, {{"", 1, 2, 0}, {"spot", 0, 1, 1}}},
          Claim{6, 1},
          Promise{6, view, 5, view, 1},
          Decline{7, view},
          Propose{6, view},
          Stored{6, 0x1234},
          InForce{6, view},
          Entered{0x1234, view},
          Shares{"8 items"},
          Parted{3, 1},
          Dead{3, 4},
          Replace{3},
          LoopEnded{1, 10},
          Unreached{3}};
}

TEST(Messages, ComeBackFromTheirBytes) {
  auto all = one_of_each();
  ASSERT_EQ(all.size(), std::variant_size_v<Message>);
  for (const auto& message : all) {
    auto back = decode(encode(message)).or_throw();
    EXPECT_EQ(back.index(), message.index());
    EXPECT_EQ(encode(back), encode(message));
  }
  auto view = std::get<ViewNotice>(decode(encode(all[1])).or_throw());
  EXPECT_EQ(view.members.at(1), (Member{7, 200, "@b"}));
}

TEST(Messages, EveryTruncationAndAnythingBehindIsRefused) {
  for (const auto& message : one_of_each()) {
    auto bytes = encode(message);
    for (std::size_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(decode({bytes.data(), size}).ok()) << message.index() << " cut to " << size;
    bytes.push_back(0);
    EXPECT_FALSE(decode(bytes).ok());
  }
}

TEST(Messages, StrangersAndOtherVersionsAreTold) {
  auto bytes = encode(Bye{});
  bytes[4] = 99;
  EXPECT_NE(decode(bytes).error().message.find("version 99"), std::string::npos);
  bytes[0] = 'X';
  EXPECT_EQ(decode(bytes).error().message, "not a Pliant message");
  bytes = encode(Bye{});
  bytes[6] = 200;
  EXPECT_FALSE(decode(bytes).ok());
  EXPECT_FALSE(decode(std::vector<std::uint8_t>(kMaxPacket + 1)).ok());
}

TEST(Messages, CountsThatLieAllocateNothing) {
  constexpr std::size_t kCount = sizeof(std::uint32_t);
  constexpr std::size_t kBehind = sizeof(ViewNotice::restarts) + sizeof(ViewNotice::resume_step);
  for (std::size_t behind : {kBehind, kBehind + kCount}) {  // of newcomers, of members
    auto bytes = encode(ViewNotice{1, 1, 1, 1, {}});
    for (std::size_t i = bytes.size() - behind - kCount; i < bytes.size() - behind; ++i) bytes[i] = 0xff;
    EXPECT_FALSE(decode(bytes).ok());
  }
}

TEST(Messages, LongestNamesOfTheMostMembersFit) {
  ViewNotice view{1, 1, 1, 1, {}};
  for (std::uint64_t id = 0; id < kMaxMembers; ++id)
    view.members.push_back({id, 1 << 22, "@" + std::string(kMaxAddress - 1, 'a'), std::string(kMaxHost, 'h'),
                            std::string(kMaxEndpoint, 'e')});
  for (std::uint64_t id = 1; id < kMaxMembers; ++id) view.newcomers.push_back(id);
  auto promise = std::get<Promise>(decode(encode(Promise{1, view, 2, view})).or_throw());
  EXPECT_EQ(promise.view.members, view.members);
  EXPECT_EQ(promise.stored.members, view.members);
  EXPECT_EQ(promise.stored.newcomers, view.newcomers);
  auto name = std::string(kMaxName, 'n');
  Join join{name,
            1,
            1,
            std::string(kMaxAddress, 'a'),
            0,
            name,
            name,
            view,
            1,
            std::string(kMaxHost, 'h'),
            std::string(kMaxEndpoint, 'e')};
  EXPECT_EQ(std::get<Join>(decode(encode(join)).or_throw()).view.members, view.members);
}

TEST(Messages, AViewOfTheLargestSizeFits) {
  ViewNotice view{1, 1, 1, 1, {}};
  for (std::uint64_t id = 0; id < kMaxMembers; ++id) view.members.push_back({id, 1 << 22, "@pliant/0123456789abcdef"});
  EXPECT_EQ(std::get<ViewNotice>(decode(encode(view)).or_throw()).members.size(), kMaxMembers);
}

}  // namespace
}  // namespace pliant::wire
