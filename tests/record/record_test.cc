// The recorder and its lines.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <sstream>

#include "record/line.h"
#include "record/recorder.h"
#include "record/records.h"

namespace pliant::record {
namespace {

std::string read_all(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

StepRecord example() {
  StepRecord record;
  record.t = 1700000000.123456;
  record.step = 7;
  record.view = 3;
  record.view_hash = 0x0123456789abcdef;
  record.worker = 2;
  record.rank = 1;
  record.size = 4;
  record.dataset = 60000;
  record.samples = {{0, {{0, 64}}}, {2, {{64, 100}, {200, 228}}}, {5, {}}};
  record.global_batch = 256;
  record.lr = 0.1;
  record.loss = std::nan("");
  record.digest.after = 0xfedc;
  record.stall_ms = 1.5;
  record.lease = {2, 0x77, {0, 2, 5}};
  record.took = {{64, 100}, {200, 228}};
  record.digest.before = 0xbef0;
  record.ledger.before = 0x1ed6e2;
  record.ledger.after = 0x1ed6e3;
  record.samples[0].by = 2;
  return record;
}
constexpr char kExample[] =
    R"({"kind":"step","version":2,"t":1700000000.123456,"step":7,"view":3,"view_hash":"0123456789abcdef","worker":2,"rank":1,)"
    R"("size":4,"epoch":0,"dataset":60000,"samples":[{"worker":0,"epoch":0,"ranges":[[0,64]],"by":2},)"
    R"({"worker":2,"epoch":0,"ranges":[[64,100],[200,228]]},{"worker":5,"epoch":0,"ranges":[]}],"global_batch":256,)"
    R"("lr":0.1,"loss":null,"digest":"000000000000fedc","stall_ms":1.5,"lease_view":2,)"
    R"("lease_view_hash":"0000000000000077","lease_workers":[0,2,5],"took":[[64,100],[200,228]],)"
    R"("digest_before":"000000000000bef0","ledger_before":"00000000001ed6e2","ledger_after":"00000000001ed6e3",)"
    R"("lineage":0})"
    "\n";

std::string line_of(const Line& record) {
  std::string line;
  append_line(record, line);
  return line;
}
std::string without_newline(std::string line) {
  line.pop_back();
  return line;
}
/// The example with one text replaced by another.
std::string spoilt(const std::string& from, const std::string& to) {
  std::string line = without_newline(kExample);
  auto at = line.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return line.replace(at, from.size(), to);
}

TEST(Record, IsTheLineThatTheHeaderPromises) { EXPECT_EQ(line_of(example()), kExample); }

TEST(Record, ComesBackFromItsLine) {
  auto line = decode_line(without_newline(kExample)).or_throw();
  const auto& record = std::get<StepRecord>(line);
  EXPECT_FALSE(record.other_epoch);
  EXPECT_EQ(line_of(record), kExample);
  EXPECT_TRUE(std::isnan(record.loss));
  auto extreme = example();
  extreme.worker = ~std::uint64_t{0};
  extreme.step = kLargestNumber;
  extreme.lr = 1e-300;
  extreme.loss = -1e300;
  extreme.digest.after = ~std::uint64_t{0};
  extreme.by = 7;
  extreme.delivered = extreme.begins_loop = true;
  EXPECT_EQ(line_of(decode_line(without_newline(line_of(extreme))).or_throw()), line_of(extreme));
}

TEST(Record, WhatIsNotANumberIsNull) {
  auto record = example();
  record.t = record.lr = record.loss = record.stall_ms = std::numeric_limits<double>::infinity();
  auto line = std::get<StepRecord>(decode_line(without_newline(line_of(record))).or_throw());
  EXPECT_EQ(line.t, 0);
  EXPECT_TRUE(std::isnan(line.lr) && std::isnan(line.loss) && std::isnan(line.stall_ms));
}

TEST(Record, FieldsThatNobodyKnowsArePassedOver) {
  auto line =
      spoilt("\"lineage\":0", R"("lineage":0,"new":{"step":[{"x":1},null,true,-1.5e3,"y"]},"ranges":{},"z":false)");
  EXPECT_TRUE(decode_line(line).ok());
  EXPECT_TRUE(decode_line(spoilt("\"ranges\":[]", R"("ranges":[],"step":[[[]]],"note":"x")")).ok());
}

TEST(Record, BeginsAndEndsComeBackToo) {
  for (const char* text :
       {R"({"kind":"begin","version":2,"t":1.500000,"worker":3,"lineage":1,"steps":20,"text":"a \"b\""})",
        R"({"kind":"end","version":2,"t":1.500000,"worker":3,"lineage":0,"steps":75,"outcome":"stopped"})",
        R"({"kind":"event","t":1.500000,"event":"ended","worker":3,"text":"by signal 9"})"})
    EXPECT_EQ(line_of(decode_line(text).or_throw()), std::string(text) + "\n");
}

TEST(Record, LinesOfVersion1AreReadAsWhatTheyAre) {
  constexpr char kOld[] =
      R"({"kind":"step","t":1700000000.123456,"step":7,"view":3,"view_hash":"0123456789abcdef","worker":2,"rank":1,)"
      R"("size":4,"epoch":0,"dataset":60000,"samples":[{"worker":0,"epoch":0,"ranges":[[0,64]]}],"global_batch":256,)"
      R"("lr":0.1,"loss":null,"digest":"000000000000fedc","stall_ms":1.5,"lineage":0})"
      "\n";
  auto line = decode_line(without_newline(kOld)).or_throw();
  EXPECT_EQ(std::get<StepRecord>(line).version, 1);
  EXPECT_EQ(line_of(line), kOld);
}

TEST(Record, AnotherEpochIsNoticed) {
  auto line = decode_line(spoilt(R"("worker":5,"epoch":0)", R"("worker":5,"epoch":4)")).or_throw();
  EXPECT_EQ(std::get<StepRecord>(line).other_epoch, 4U);
}

TEST(Record, StrangersLinesAreRefusedWithAReason) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "not JSON"},
      {"hello", "not JSON"},
      {"{\"kind\":\"st", "not JSON"},
      {"7", "not a record"},
      {"null", "not a record"},
      {"true", "not a record"},
      {"\"step\"", "not a record"},
      {"[]", "not a record"},
      {"{}", "not a record"},
      {R"({"kind":"other"})", "not a record"},
      {R"({"kind":"event"})", "'event' is missing"},
      {R"({"kind":"step"})", "is missing"},
      {R"({"kind":"end","version":2,"t":1,"worker":1,"lineage":0,"steps":7})", "'outcome' is missing"},
      {R"({"kind":"end","version":2,"t":1,"worker":1,"lineage":0,"steps":7,"outcome":"done"})", "'outcome' is not"},
      {R"({"kind":"begin","version":2,"t":1,"worker":1,"steps":7,"text":""})", "'lineage' is missing"},
      {spoilt("\"version\":2", "\"version\":3"), "of version 3: this pliant reads records of version 1 to 2"},
      {spoilt("\"version\":2", "\"version\":0"), "of version 0"},
      {spoilt("\"took\":[[64,100],[200,228]],", ""), "'took' is missing"},
      {spoilt("\"took\":[[64,100]", "\"took\":[[164,100]"), "'took' is not"},
      {spoilt("\"took\":[[64,100]", "\"took\":[7,[64,100]"), "'took' is not"},
      {spoilt("[0,2,5]", "[0,-2,5]"), "'lease_workers' is not"},
      {spoilt("[0,2,5]", "[0,[2],5]"), "'lease_workers' is not"},
      {spoilt("\"by\":2", "\"by\":null"), "'by' is not"},
      {spoilt("bef0", "BEF0"), "'digest_before' is not"},
      {R"({"kind":7})", "'kind' is not"},
      {spoilt("\"step\":7", "\"step\":-7"), "'step' is not"},
      {spoilt("\"step\":7", "\"step\":7.0"), "'step' is not"},
      {spoilt("\"step\":7", "\"step\":\"7\""), "'step' is not"},
      {spoilt("\"step\":7", "\"step\":null"), "'step' is not"},
      {spoilt("\"step\":7", "\"step\":{}"), "'step' is not"},
      {spoilt("\"step\":7", "\"step\":7,\"step\":8"), "'step' is there twice"},
      {spoilt("\"step\":7", "\"step\":9007199254740993"), "'step' is absurd"},
      {spoilt("\"step\":7", "\"step\":99999999999999999999999"), "'step' is not"},
      {spoilt("\"step\":7", "\"step\":1e999"), "not JSON"},
      {spoilt("\"step\":7,", ""), "'step' is missing"},
      {spoilt("\"size\":4", "\"size\":4294967296"), "'size' is absurd"},
      {spoilt("\"rank\":1", "\"rank\":-1"), "'rank' is not"},
      {spoilt("\"t\":1700000000.123456", "\"t\":null"), "'t' is not"},
      {spoilt("\"0123456789abcdef\"", "\"123\""), "'view_hash' is not"},
      {spoilt("\"0123456789abcdef\"", "81985529216486895"), "'view_hash' is not"},
      {spoilt("fedc", "FEDC"), "'digest' is not"},
      {spoilt("\"ranges\":[[0,64]]", "\"ranges\":[[64,0]]"), "'ranges' is not"},
      {spoilt("\"ranges\":[[0,64]]", "\"ranges\":[[0]]"), "'ranges' is not"},
      {spoilt("\"ranges\":[[0,64]]", "\"ranges\":[[0,1,2]]"), "'ranges' is not"},
      {spoilt("\"ranges\":[[0,64]]", "\"ranges\":[[0,-1]]"), "'ranges' is not"},
      {spoilt("\"ranges\":[[0,64]]", "\"ranges\":[0,64]"), "'ranges' is not"},
      {spoilt("\"ranges\":[[0,64]]", "\"ranges\":[[[0,64]]]"), "'ranges' is not"},
      {spoilt("\"worker\":0,\"epoch\":0,", "\"worker\":0,"), "'samples' lacks"},
      {spoilt("{\"worker\":5,\"epoch\":0,\"ranges\":[]}", "5"), "'samples' is not"},
      {spoilt("{\"worker\":5,\"epoch\":0,\"ranges\":[]}", "[]"), "'samples' is not"},
      {without_newline(kExample) + "x", "not JSON"},
      {without_newline(kExample) + without_newline(kExample), "not JSON"},
      {std::string("\0\xff\xfe{", 4), "not JSON"},
      {std::string(kLongestLine, '['), "not a record"},
      {std::string(kLongestLine + 1, ' '), "too long"},
  };
  for (const auto& [text, reason] : cases) {
    auto line = decode_line(text);
    ASSERT_FALSE(line.ok()) << text.substr(0, 400);
    EXPECT_EQ(line.error().code, Code::protocol);
    EXPECT_NE(line.error().message.find(reason), std::string::npos) << line.error().message << "\n"
                                                                    << text.substr(0, 400);
  }
}

TEST(Record, DeepNestingCostsNothing) {
  auto deep = spoilt("\"lineage\":0", "\"lineage\":0,\"x\":" + std::string(400000, '[') + std::string(400000, ']'));
  EXPECT_TRUE(decode_line(deep).ok());
}

TEST(Record, EveryTruncationIsRefused) {
  auto whole = without_newline(kExample);
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(decode_line(whole.substr(0, size)).ok()) << size;
}

TEST(Recorder, AppendsLines) {
  Folder folder;
  auto dir = folder.file("deep/er");
  Recorder::open(dir, "worker-2").or_throw()->write(example());
  auto again = Recorder::open(dir, "worker-2").or_throw();
  again->write(example());
  again->write(EventRecord{1.5, "killed", 2, "by \"us\"\n\xff"});
  again->write(EventRecord{2.5, "begun", {}, ""});
  EXPECT_EQ(read_all(dir + "/worker-2.jsonl"),
            std::string(kExample) + kExample +
                "{\"kind\":\"event\",\"t\":1.500000,\"event\":\"killed\",\"worker\":2,"
                "\"text\":\"by \\\"us\\\"\\n\xef\xbf\xbd\"}\n"
                "{\"kind\":\"event\",\"t\":2.500000,\"event\":\"begun\",\"text\":\"\"}\n");
}

TEST(Recorder, WhatAKillToreIsCutOffBeforeMoreIsAppended) {
  for (std::size_t torn : {std::size_t{1}, std::size_t{100}, std::size_t{5000}, std::size_t{100000}}) {
    Folder folder;
    auto path = folder.file("worker-2.jsonl");
    std::ofstream(path) << kExample << std::string(torn, 'x');
    Recorder::open(folder.path(), "worker-2").or_throw()->write(example());
    EXPECT_EQ(read_all(path), std::string(kExample) + kExample) << torn;
    std::ofstream(path) << std::string(torn, 'x');
    Recorder::open(folder.path(), "worker-2").or_throw()->write(example());
    EXPECT_EQ(read_all(path), kExample) << torn;
  }
}

TEST(Recorder, AFullDiskIsReportedOnce) {
  Folder folder;
  if (mknod(folder.file("worker-2.jsonl").c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0)  // as /dev/full
    GTEST_SKIP() << "no device can be made here";
  auto recorder = Recorder::open(folder.path(), "worker-2").or_throw();
  testing::internal::CaptureStderr();
  for (int step = 0; step < 3; ++step) recorder->write(example());
  auto said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_NE(said.find("worker-2.jsonl: No space left on device"), std::string::npos) << said;
}

TEST(Recorder, ALineThatFitsOnlyInPartIsTakenBack) {
  Folder folder;
  auto recorder = Recorder::open(folder.path(), "worker-2").or_throw();
  std::string line = kExample;
  recorder->write(example());
  auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit tight{line.size() * 3 / 2, old.rlim_max};
  testing::internal::CaptureStderr();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  recorder->write(example());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  testing::internal::GetCapturedStderr();
  signal(SIGXFSZ, before);
  EXPECT_EQ(read_all(folder.file("worker-2.jsonl")), line);
  recorder->write(example());
  EXPECT_EQ(read_all(folder.file("worker-2.jsonl")), line + line);
}

TEST(Recorder, APipeWithoutReaderDoesNotBlock) {
  Folder folder;
  ASSERT_EQ(mkfifo(folder.file("worker-2.jsonl").c_str(), 0600), 0);
  auto recorder = Recorder::open(folder.path(), "worker-2");
  testing::internal::CaptureStderr();
  if (recorder)
    for (int step = 0; step < 2000; ++step) recorder.value()->write(example());
  testing::internal::GetCapturedStderr();
}

TEST(Recorder, FoldersAndNamesThatCannotBe) {
  Folder folder;
  std::ofstream(folder.file("file")) << "";
  EXPECT_FALSE(Recorder::open(folder.file("file"), "worker-2").ok());
  EXPECT_FALSE(Recorder::open(folder.file("file/below"), "worker-2").ok());
  EXPECT_FALSE(Recorder::open(folder.path(), "../worker-2").ok());
  EXPECT_FALSE(Recorder::open(folder.path(), "").ok());
  std::filesystem::create_directory(folder.file("worker-2.jsonl"));
  EXPECT_FALSE(Recorder::open(folder.path(), "worker-2").ok());
}

TEST(Recorder, WhatOthersPreparedIsRefusedAndNotFollowed) {
  Folder folder;
  std::ofstream(folder.file("victim")) << "mine\n";
  std::filesystem::create_directory(folder.file("records"));
  std::filesystem::create_symlink(folder.file("victim"), folder.file("records/worker-2.jsonl"));
  auto opened = Recorder::open(folder.file("records"), "worker-2");
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Code::refused) << opened.error().message;
  EXPECT_EQ(std::filesystem::file_size(folder.file("victim")), 5U);
  std::filesystem::permissions(folder.file("records"), std::filesystem::perms::all);
  opened = Recorder::open(folder.file("records"), "worker-3");
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.error().message.find("other users can write to"), std::string::npos) << opened.error().message;
}

TEST(Recorder, OthersReadOnlyWhatTheyAreMeantTo) {
  Folder folder;
  auto mode = [&](const std::string& name) {
    return static_cast<unsigned>(std::filesystem::status(folder.file(name)).permissions());
  };
  Recorder::open(folder.file("new"), "worker-2").or_throw();
  Recorder::open(folder.file("shared"), "worker-2", 0644).or_throw();
  EXPECT_EQ(mode("new"), 0700U);
  EXPECT_EQ(mode("new/worker-2.jsonl"), 0600U);
  EXPECT_EQ(mode("shared"), 0755U);
  EXPECT_EQ(mode("shared/worker-2.jsonl"), 0644U);
}

}  // namespace
}  // namespace pliant::record
