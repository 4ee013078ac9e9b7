#include "session/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "session/checkpoint_files.h"
#include "session/checkpoint_record.h"

namespace pliant::session {
namespace {

namespace fs = std::filesystem;

std::string message_of(const Status& status) { return status ? "" : status.error().message; }

/// One line that names the file, never a crash.
void expect_refused(const std::string& folder, const std::string& file, const std::string& why) {
  auto read = read_checkpoint(folder);
  ASSERT_FALSE(read.ok()) << why;
  EXPECT_NE(read.error().message.find(folder + file), std::string::npos) << read.error().message;
  EXPECT_EQ(read.error().message.find('\n'), std::string::npos) << read.error().message;
}

TEST(Checkpoint, ComesBackAsItWas) {
  TempFolder dir;
  EveryType before(5), after(6);
  auto folder = write_checkpoint(dir.path() + "/a/b", position_at(1200), before.items()).or_throw();
  EXPECT_EQ(folder, dir.path() + "/a/b/step-000000001200");
  auto checkpoint = read_checkpoint(folder).or_throw();
  EXPECT_TRUE(same(checkpoint.position, position_at(1200)));
  EXPECT_EQ(checkpoint.folder, folder);
  EXPECT_EQ(checkpoint.tensors.size(), std::size_t{kDtypes});
  restore(checkpoint, after.items()).or_throw();
  EXPECT_TRUE(before == after);
}

TEST(Checkpoint, WorksWithoutLedgerAndWithoutState) {
  TempFolder dir;
  auto position = position_at(3);
  position.ledger.reset();
  auto read = read_checkpoint(write_checkpoint(dir.path(), position, {}).or_throw()).or_throw();
  EXPECT_TRUE(same(read.position, position));
  EXPECT_TRUE(read.tensors.empty());
  EXPECT_TRUE(restore(read, {}).ok());
}

TEST(Checkpoint, KeepsShapesThatFitTheCount) {
  TempFolder dir;
  std::vector<float> values(12, 1.5F);
  std::vector<StateItem> items(4, {"", Dtype::f32, values.data(), 12, Role::parameter, nullptr, {}});
  items[0].name = "matrix", items[0].shape = {3, 4};
  items[1].name = "wrong", items[1].shape = {3, 5};
  items[2].name = "scalar", items[2].count = 1, items[2].shape = {};
  items[3].name = "none", items[3].count = 0, items[3].data = nullptr;
  auto read = read_checkpoint(write_checkpoint(dir.path(), position_at(1), items).or_throw()).or_throw();
  using Shape = std::vector<std::uint64_t>;
  EXPECT_EQ(read.tensors.at("matrix").shape, (Shape{3, 4}));
  EXPECT_EQ(read.tensors.at("wrong").shape, Shape{12});
  EXPECT_EQ(read.tensors.at("scalar").shape, Shape{1});
  EXPECT_EQ(read.tensors.at("none").shape, Shape{0});
  EXPECT_TRUE(restore(read, items).ok());
}

TEST(Checkpoint, DataIsAlignedToItsType) {
  TempFolder dir;
  auto file = text_of_file(write_step(dir.path(), 1).or_throw() + "/state.safetensors");
  auto length = decode_length(file, file.size()).or_throw();
  EXPECT_EQ(length % 8, 0U);
  auto header = std::string_view(file).substr(kLengthBytes, length);
  for (const auto& place : decode_header(header, file.size() - kLengthBytes - length).or_throw())
    EXPECT_EQ(place.begin % size_of(place.dtype), 0U) << place.name;
}

TEST(Checkpoint, NamesThatTheFormatCannotHoldAreRefused) {
  TempFolder dir;
  std::uint8_t byte = 1;
  for (std::string name : {"__metadata__", "\xff\xfe", "twice"}) {
    StateItem item{name, Dtype::u8, &byte, 1, Role::parameter, nullptr, {}};
    auto written = write_checkpoint(dir.path(), position_at(1), {item, item});
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().code, Code::invalid);
  }
  EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(Restore, NamesTheFirstDifferenceAndCopiesNothing) {
  TempFolder dir;
  auto checkpoint = read_checkpoint(write_step(dir.path(), 5).or_throw()).or_throw();
  EveryType untouched(9);
  auto expect = [&](const std::vector<StateItem>& items, const std::string& what) {
    auto status = restore(checkpoint, items);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::mismatch);
    EXPECT_NE(message_of(status).find(checkpoint.folder + ": " + what), std::string::npos) << message_of(status);
  };
  EveryType other(9);
  auto items = other.items();
  items.back().count = 6;
  expect(items, "'i64' is i64[7], but i64[6] in this job");
  items = other.items();
  items.back().dtype = Dtype::f64;
  expect(items, "'i64' is i64[7], but f64[7] in this job");
  items = other.items();
  items.back().name = "more";
  expect(items, "no 'more', which this job has");
  items.pop_back();
  expect(items, "'i64' is none of this job's");
  EXPECT_TRUE(other == untouched);
}

TEST(Restore, ComparesShapesWhereBothAreKnown) {
  TempFolder dir;
  std::vector<float> values(12);
  StateItem item{"w", Dtype::f32, values.data(), 12, Role::parameter, nullptr, {3, 4}};
  auto checkpoint = read_checkpoint(write_checkpoint(dir.path(), position_at(1), {item}).or_throw()).or_throw();
  item.shape = {4, 3};
  EXPECT_NE(message_of(restore(checkpoint, {item})).find("'w' is f32[3, 4], but f32[4, 3] in this job"),
            std::string::npos);
  item.shape = {};
  EXPECT_TRUE(restore(checkpoint, {item}).ok());
}

TEST(Refusal, EveryTruncationOfEitherFile) {
  TempFolder dir;
  auto folder = write_step(dir.path(), 5, 2).or_throw();
  for (std::string file : {"/state.safetensors", "/checkpoint.json"}) {
    auto whole = text_of_file(folder + file);
    auto needed = whole.find_last_not_of('\n') + 1;  // the line's end may go
    for (auto size = file == "/checkpoint.json" ? needed : whole.size(); size-- > 0;) {
      fs::resize_file(folder + file, size);
      expect_refused(folder, file, "cut to " + std::to_string(size));
    }
    write_file(folder + file, whole + "x");
    expect_refused(folder, file, "longer");
    fs::remove(folder + file);
    expect_refused(folder, file, "missing");
    EXPECT_EQ(read_checkpoint(folder).error().code, Code::not_found);
    write_file(folder + file, whole);
    EXPECT_TRUE(is_as_written(read_checkpoint(folder).or_throw(), 2));
  }
}

TEST(Refusal, EveryFlippedBitOfEitherFile) {
  TempFolder dir;
  auto folder = write_step(dir.path(), 5, 2).or_throw();
  for (std::string file : {"/state.safetensors", "/checkpoint.json"}) {
    const auto whole = text_of_file(folder + file);
    int harmless = 0;
    for (std::size_t at = 0; at < whole.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        poke(folder + file, at, static_cast<char>(whole[at] ^ (1 << bit)));
        auto read = read_checkpoint(folder);
        if (!read) continue;
        ++harmless;
        EXPECT_EQ(file, "/checkpoint.json");
        EXPECT_TRUE(is_as_written(read.value(), 2)) << "byte " << at << " bit " << bit;
      }
      poke(folder + file, at, whole[at]);
    }
    EXPECT_LT(harmless, 40) << "only white space may change into other white space";
  }
}

TEST(Refusal, SwappedHalvesOfTwoCheckpoints) {
  TempFolder dir;
  auto one = write_step(dir.path(), 1).or_throw(), two = write_step(dir.path(), 2).or_throw();
  fs::copy_file(one + "/state.safetensors", two + "/state.safetensors", fs::copy_options::overwrite_existing);
  expect_refused(two, "/state.safetensors", "another step's state");
}

TEST(Refusal, ThingsThatAreNoFiles) {
  TempFolder dir;
  auto folder = write_step(dir.path(), 1).or_throw();
  auto state = folder + "/state.safetensors";
  fs::rename(state, dir.path() + "/moved");
  fs::create_directory(state);
  expect_refused(folder, "/state.safetensors", "a folder");
  fs::remove(state);
  ASSERT_EQ(mkfifo(state.c_str(), 0600), 0);
  expect_refused(folder, "/state.safetensors", "a pipe that nobody writes");
  fs::remove(state);
  fs::create_symlink(dir.path() + "/moved", state);
  EXPECT_TRUE(is_as_written(read_checkpoint(folder).or_throw()));
}

TEST(Refusal, AFileOfHolesThatIsLargerThanMemory) {
  TempFolder dir;
  auto folder = write_step(dir.path(), 1).or_throw();
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 43;
  std::error_code problem;
  fs::resize_file(folder + "/state.safetensors", kHuge, problem);
  if (problem) GTEST_SKIP() << "this file system has no files of 8 TiB";
  write_file(folder + "/checkpoint.json", encode_record({position_at(1), {kHuge, 0}}));
  expect_refused(folder, "/state.safetensors", "8 TiB of nothing");
}

TEST(Refusal, RecordsOfAStranger) {
  TempFolder dir;
  auto folder = write_step(dir.path(), 1).or_throw();
  const auto whole = text_of_file(folder + "/checkpoint.json");
  auto replaced = [&](const std::string& from, const std::string& to) {
    auto at = whole.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return std::string(whole).replace(at, from.size(), to);
  };
  for (const auto& text :
       {replaced("\"step\": 1", "\"step\": -1"), replaced("\"step\": 1", "\"step\": 1.0"),
        replaced("\"step\": 1", "\"step\": \"1\""), replaced("\"step\": 1", "\"step\": 1e999"),
        replaced("\"workers\": 3", "\"workers\": 3000000000"), replaced("\"version\": 3", "\"version\": 4"),
        replaced("\"fresh\": 600", "\"fresh\": 6000"), replaced("\"seed\"", "\"sead\""), std::string("[]"),
        std::string("null"), std::string("7"), std::string(), std::string(100000, '['),
        "{\"ledger\": {\"returned\":" + std::string(100000, '[') + std::string(100000, ']') + "}}"}) {
    write_file(folder + "/checkpoint.json", text);
    expect_refused(folder, "/checkpoint.json", text.substr(0, 400));
  }
}

TEST(Record, OfOlderVersionsIsReadWithoutItsDigestOfTheState) {
  auto then = position_at(1);
  then.digest = 42;
  EXPECT_EQ(decode_record(encode_record({then, {100, 7}})).or_throw().position.digest, 42U);
  EXPECT_EQ(decode_record(encode_record({then, {100, 7}, 1})).or_throw().position.digest, 0U);
  then.adaptation = "what policies know";
  auto with_policies = decode_record(encode_record({then, {100, 7}, 2})).or_throw();
  EXPECT_EQ(with_policies.position.digest, 0U);
  EXPECT_EQ(with_policies.position.adaptation, then.adaptation);
  EXPECT_EQ(decode_record(encode_record({then, {100, 7}})).or_throw().position.adaptation, then.adaptation);
  EXPECT_FALSE(decode_record(encode_record({then, {100, 7}, 0})).ok());
}

TEST(Record, SaysInWhichLoopTheJobWas) {
  auto then = position_at(1);
  EXPECT_EQ(decode_record(encode_record({then, {100, 7}})).or_throw().position.loop, 0U);
  then.loop = 2;
  EXPECT_EQ(decode_record(encode_record({then, {100, 7}})).or_throw().position.loop, 2U);
  EXPECT_FALSE(decode_record(encode_record({then, {100, 7}})).or_throw().position.begins_loop);
  then.begins_loop = true;
  EXPECT_TRUE(decode_record(encode_record({then, {100, 7}})).or_throw().position.begins_loop);
  EXPECT_EQ(decode_record(encode_record({then, {100, 7}, 1})).or_throw().position.loop, 0U);
  EXPECT_FALSE(decode_record(encode_record({then, {100, 7}, 1})).or_throw().position.begins_loop);
}

TEST(Newest, PassesOverBrokenOnes) {
  TempFolder dir;
  EXPECT_EQ(newest_checkpoint(dir.path() + "/none").error().code, Code::not_found);
  EXPECT_EQ(newest_checkpoint(dir.path()).error().code, Code::not_found);
  for (auto step : {1, 2, 10}) write_step(dir.path(), step).or_throw();
  fs::create_directory(dir.path() + "/step-99");
  write_file(dir.path() + "/step-000000000077", "a file");
  EXPECT_EQ(newest_checkpoint(dir.path()).or_throw().position.step, 10U);
  fs::resize_file(dir.path() + "/step-000000000010/state.safetensors", 100);
  EXPECT_TRUE(is_as_written(newest_checkpoint(dir.path()).or_throw()));
  EXPECT_EQ(newest_checkpoint(dir.path()).or_throw().position.step, 2U);
  fs::remove(dir.path() + "/step-000000000002/checkpoint.json");
  fs::remove(dir.path() + "/step-000000000001/checkpoint.json");
  auto none = newest_checkpoint(dir.path());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().message, dir.path() + ": no good checkpoint (4 broken)");
}

using Names = std::vector<std::string>;

TEST(Prune, KeepsTheNewestCompleteOnes) {
  TempFolder dir;
  for (auto step : {1, 2, 3, 4, 5}) write_step(dir.path(), step).or_throw();
  write_file(dir.path() + "/notes.txt", "mine");
  fs::create_directory(dir.path() + "/.tmp-mine");
  fs::create_directory(dir.path() + "/.tmp-0123456789abcdef");
  write_file(dir.path() + "/.tmp-0123456789abcdef/state.safetensors", "half");
  fs::remove(dir.path() + "/step-000000000004/checkpoint.json");
  prune_checkpoints(dir.path(), 2);
  EXPECT_EQ(names_in(dir.path()),
            (Names{".tmp-mine", "notes.txt", "step-000000000003", "step-000000000004", "step-000000000005"}))
      << "a broken one does not count, and one's own things stay";
  prune_checkpoints(dir.path(), 1);
  EXPECT_EQ(names_in(dir.path()), (Names{".tmp-mine", "notes.txt", "step-000000000005"}));
  prune_checkpoints(dir.path() + "/none", 1);
}

TEST(Write, ReplacesTheSameStep) {
  TempFolder dir;
  EveryType old(1);
  write_checkpoint(dir.path(), position_at(7), old.items()).or_throw();
  write_step(dir.path(), 7).or_throw();
  EXPECT_EQ(names_in(dir.path()), Names{"step-000000000007"});
  EXPECT_TRUE(is_as_written(newest_checkpoint(dir.path()).or_throw()));
}

TEST(Write, SaysWhatIsInTheWay) {
  TempFolder dir;
  write_file(dir.path() + "/file", "");
  auto written = write_step(dir.path() + "/file/x", 1);
  ASSERT_FALSE(written.ok());
  EXPECT_NE(written.error().message.find(dir.path() + "/file/x: "), std::string::npos) << written.error().message;
}

constexpr char kReader[] = R"(
import json, struct, sys
with open(sys.argv[1] + "/state.safetensors", "rb") as file: data = file.read()
length, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + length])
assert header.pop("__metadata__") == {"format": "pt", "step": "5"}
codes = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I8": "b", "U8": "B", "BF16": "H"}
end = 0
for name, tensor in sorted(header.items(), key=lambda pair: pair[1]["data_offsets"]):
    begin, here = tensor["data_offsets"][0], end
    assert begin == here, name
    end = tensor["data_offsets"][1]
    code = codes[tensor["dtype"]]
    assert tensor["shape"] == [7] and end - begin == 7 * struct.calcsize(code)
    struct.unpack("<7" + code, data[8 + length + begin:8 + length + end])
assert 8 + length + end == len(data) and len(header) == 8
with open(sys.argv[1] + "/checkpoint.json") as file: record = json.load(file)
assert record["step"] == 5 and record["ledger"]["returned"] == [[10, 20], [100, 101], [500, 600]]
assert record["seed"] == 0xfedcba9876543210 and record["state"]["bytes"] == len(data)
)";

TEST(Checkpoint, NeedsNoPliantToBeRead) {
  if (!fs::exists("/usr/bin/python3")) GTEST_SKIP() << "no /usr/bin/python3";
  TempFolder dir;
  auto folder = write_step(dir.path(), 5).or_throw();
  write_file(dir.path() + "/reader.py", kReader);
  auto command = "/usr/bin/python3 -I " + dir.path() + "/reader.py " + folder;
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace pliant::session
