// The whole thread: `pliant run` with the examples on real data, twice, must give the same digest.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

namespace {

constexpr auto kData = "/usr/share/datasets/fashion-mnist";

struct Ran {
  int status;
  std::string output;
};

Ran run(const std::string& command) {
  auto* pipe = popen((command + " 2>&1").c_str(), "r");
  Ran ran{};
  std::array<char, 4096> buffer;
  while (auto size = fread(buffer.data(), 1, buffer.size(), pipe)) ran.output.append(buffer.data(), size);
  ran.status = pclose(pipe);
  return ran;
}

std::string digest_in(const std::string& output) {
  auto at = output.rfind("digest ");
  return at == std::string::npos ? "" : output.substr(at + 7, 16);
}

class Examples : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kData)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  }
};

TEST_F(Examples, TheSameSeedSizeAndTopologyGiveTheSameDigest) {
  std::string command = std::string(PLIANT_BINARY) + " run -n 2 -- " PLIANT_LOGISTIC " --epochs 1 --batch 500";
  auto first = run(command);
  ASSERT_EQ(first.status, 0) << first.output;
  ASSERT_EQ(digest_in(first.output).size(), 16U) << first.output;
  EXPECT_EQ(digest_in(first.output), digest_in(run(command).output));
  EXPECT_NE(
      digest_in(first.output),
      digest_in(
          run(std::string(PLIANT_BINARY) + " run --seed 7 -n 2 -- " PLIANT_LOGISTIC " --epochs 1 --batch 500").output));
}

TEST_F(Examples, LibTorchTrainingRepeatsToTheBit) {
  // Through BatchNorm and its averaged buffers, and with a short last batch.
  std::string command =
      std::string(PLIANT_BINARY) + " run -n 2 -- " PLIANT_EXAMPLE " --epochs 1 --batch 50 --limit 1030 --model resnet";
  auto first = run(command);
  ASSERT_EQ(first.status, 0) << first.output;
  ASSERT_EQ(digest_in(first.output).size(), 16U) << first.output;
  EXPECT_EQ(digest_in(first.output), digest_in(run(command).output));
}

TEST_F(Examples, AFullDevShmDoesNotMatter) {
  std::string full = "mount -t tmpfs -o size=4k tmpfs /dev/shm && head -c 4096 /dev/zero > /dev/shm/full";
  if (run("unshare -m sh -c '" + full + "'").status != 0) GTEST_SKIP() << "needs the right to mount";
  auto ran = run("unshare -m sh -c '" + full + " && exec " + PLIANT_BINARY + " run -n 2 -- " + PLIANT_EXAMPLE +
                 " --epochs 1 --limit 500'");
  EXPECT_EQ(ran.status, 0) << ran.output;
}

TEST_F(Examples, AMissingFolderIsOneClearLineAndAFailure) {
  auto ran = run(std::string(PLIANT_BINARY) + " run -n 2 -- " PLIANT_EXAMPLE " --data /nonexistent");
  EXPECT_NE(ran.status, 0);
  EXPECT_NE(ran.output.find("/nonexistent"), std::string::npos) << ran.output;
}

}  // namespace
