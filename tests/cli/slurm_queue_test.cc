#include "apps/pliant/slurm_queue.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(SlurmWords, OptionsAreReadAndRefused) {
  auto all = parse_slurm("partition=spot,slots=2,account=a,qos=q,time=1:00:00,cores=3,constraint=c,extra=--mem=1G");
  ASSERT_TRUE(all.ok()) << all.error().message;
  EXPECT_EQ(all.value().partition, "spot");
  EXPECT_EQ(all.value().slots, 2U);
  EXPECT_EQ(all.value().cores, 3U);
  EXPECT_EQ(all.value().time_limit, "1:00:00");
  EXPECT_EQ(all.value().extra, Words{"--mem=1G"});
  EXPECT_EQ(parse_slurm("").value().slots, 1U);
  for (const char* wrong : {"slots=0", "slots=x", "slots=", "partition", "partition=a b", "nodes=2", "slots=2x"})
    EXPECT_EQ(parse_slurm(wrong).error().code, Code::invalid) << wrong;
  EXPECT_SAYS(parse_slurm("nodes=2").error().message, "'nodes'");
  EXPECT_SAYS(parse_slurm("nodes=2").error().message, "partition, slots");
}

TEST(SlurmWords, TheTicketIsNeitherInTheScriptNorAmongTheArguments) {
  auto options = parse_slurm("partition=spot,slots=2,cores=3,extra=--mem=1G").value();
  SlurmPlace place{"/my dir", "j", "/it's/pliant", 7s};
  auto script = slurm_script(options, place);
  EXPECT_SAYS(script, "ticket='/my dir/ticket'\n");
  EXPECT_SAYS(script, "'/it'\\''s/pliant' run --join=-");
  EXPECT_SAYS(script, "--slots=2 --class='spot' <\"$ticket\"\n");
  EXPECT_EQ(script.find("secret"), std::string::npos) << script;
  auto words = sbatch_words(options, place, "j-1");
  for (const char* word : {"--partition=spot", "--job-name=j-1", "--cpus-per-task=6", "--signal=TERM@7", "--mem=1G"})
    EXPECT_NE(std::ranges::find(words, word), words.end()) << word;
}

TEST(SlurmWords, TheQueueIsReadOrIsNonsense) {
  auto entries = parse_queue(
      "12  PENDING    0 N/A NONE 0 \n"
      "13  RUNNING    1 1794789043 1794789035 0  n4\n"
      "14  COMPLETING 0 1794789060 N/A 15 n1\n"
      "15  FAILED     0 1794789060 N/A 768 n2\n\n");
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  const auto& all = entries.value();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].state, SlurmState::waiting);
  EXPECT_FALSE(all[0].taken());
  EXPECT_EQ(all[1].state, SlurmState::running);
  EXPECT_TRUE(all[1].taken());
  EXPECT_EQ(all[1].grace(), 8);
  EXPECT_EQ(slurm_host(all[1].node, all[1].id), "n4.13");
  EXPECT_EQ(all[2].state, SlurmState::leaving);
  EXPECT_TRUE(all[2].taken());  // by a signal
  EXPECT_FALSE(all[3].taken());
  EXPECT_EQ(all[3].words(), "FAILED, exit code 3");
  EXPECT_TRUE(parse_queue("").value().empty());
  for (const char* wrong :
       {"hello", "12", "x RUNNING 0 NONE N/A 0 n1", "12 DANCING 0 NONE N/A 0 n1", "0 RUNNING 0 a b 0"})
    EXPECT_EQ(parse_queue(wrong).error().code, Code::protocol) << wrong;
}

TEST(SlurmWords, OtherAnswers) {
  EXPECT_EQ(parse_submitted("12\n").value(), 12U);
  EXPECT_EQ(parse_submitted("12;east\n").value(), 12U);
  EXPECT_FALSE(parse_submitted("Submitted batch job 12\n").ok());
  EXPECT_FALSE(parse_submitted("").ok());
  EXPECT_EQ(parse_idle("spot 3\n", false).value(), 3U);
  EXPECT_EQ(parse_idle("spot 3\nall* 2\n", true).value(), 2U);
  EXPECT_EQ(parse_idle("", false).value(), 0U);
  EXPECT_FALSE(parse_idle("spot many\n", false).ok());
  Words kept = {"SLURM_CONF=/x", "PATH=/bin"},
        all = {"SLURM_CONF=/x", "SLURM_JOB_ID=3", "SQUEUE_FORMAT=x", "PATH=/bin"};
  EXPECT_EQ(slurm_environment(all), kept);
}

}  // namespace
}  // namespace pliant::cli
