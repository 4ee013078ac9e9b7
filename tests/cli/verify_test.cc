// `pliant verify`.
#include <filesystem>
#include <fstream>

#include "cli/harness.h"
#include "record/records.h"

namespace pliant::cli_test {
namespace {

using nlohmann::json;

class Verify : public CliTest {
 protected:
  /// 20 steps of 2 workers; `spoil` makes one of them deviate.
  std::string records(bool spoil = false) {
    record::FakeJob job(1, 100, 10, 2, 0);
    job.run_epochs(2);
    auto lines = job.records();
    if (spoil) lines[1][7].digest.after = 7;
    record::write_records(lines, path("records"));
    return path("records");
  }
};

TEST_F(Verify, GoodRecords) {
  auto seen = run({"verify", records()});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(seen.out, "OK: 20 steps, 2 epochs, 200 samples each used once, 2 workers, 1 view, 1 lineage, finished\n");
  EXPECT_EQ(seen.err, "");
  auto all = json::parse(run({"verify", "--json", path("records")}).out);
  EXPECT_EQ(all.at("ok"), true);
  EXPECT_EQ(all.at("samples"), 200);
  EXPECT_EQ(all.at("outcome"), "finished");
  EXPECT_EQ(all.at("faults"), json::array());
}

TEST_F(Verify, FaultsAreLinesAndStatus1) {
  auto seen = run({"verify", records(true)});
  EXPECT_EQ(seen.status, 1);
  EXPECT_EQ(lines_in(seen.out), 2u) << seen.out;
  EXPECT_TRUE(
      seen.out.starts_with("step 7: digest differs: worker 1 (worker-1.jsonl:8) has 0000000000000007, worker 0"))
      << seen.out;
  auto as_json = run({"verify", path("records"), "--json"});
  EXPECT_EQ(as_json.status, 1);
  EXPECT_EQ(json::parse(as_json.out).at("faults").size(), 1u);
}

TEST_F(Verify, RecordsWithoutAnEndAreStatus1UnlessThatIsExpected) {
  record::FakeJob job(1, 100, 10, 2, 0);
  job.run_epochs(2);
  record::write_records(job.records(), path("running"), {.end = std::nullopt});
  auto seen = run({"verify", path("running")});
  EXPECT_EQ(seen.status, 1);
  EXPECT_TRUE(seen.out.starts_with("the records end at step 19; the job did not say that it finished")) << seen.out;
  seen = run({"verify", path("running"), "--partial"});
  EXPECT_EQ(seen.status, 0);
  EXPECT_TRUE(seen.out.starts_with("note: the records end at step 19; ")) << seen.out;
  auto all = json::parse(run({"verify", path("running"), "--partial", "--json"}).out);
  EXPECT_EQ(all.at("outcome"), json(nullptr));
  EXPECT_EQ(all.at("notes").size(), 1u);
}

TEST_F(Verify, NothingToCheckIsStatus2) {
  std::filesystem::create_directory(path("empty"));
  for (const Words& words : {Words{"verify", path("missing")}, Words{"verify", path("empty")}, Words{"verify"},
                             Words{"verify", path("empty"), "--bogus"}}) {
    auto seen = run(words);
    EXPECT_EQ(seen.status, 2);
    EXPECT_EQ(seen.out, "");
    EXPECT_EQ(lines_in(seen.err), 1u) << seen.err;
    EXPECT_TRUE(seen.err.starts_with("pliant verify: ")) << seen.err;
  }
}

TEST_F(Verify, NamesCannotDisturbTheTerminal) {
  auto dir = records();
  std::ofstream(dir + "/\x1b[31m\xff.jsonl") << "x\n";
  auto seen = run({"verify", dir});
  EXPECT_EQ(seen.status, 1);
  EXPECT_EQ(seen.out.find('\x1b'), std::string::npos);
  EXPECT_EQ(json::parse(run({"verify", "--json", dir}).out).at("faults").size(), 1u);
}

TEST_F(Verify, HelpHasExamples) {
  auto seen = run({"verify", "--help"});
  EXPECT_EQ(seen.status, 0);
  EXPECT_NE(seen.out.find("Examples:"), std::string::npos);
}

}  // namespace
}  // namespace pliant::cli_test
