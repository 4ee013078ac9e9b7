// Help, versions, wrong flags, and what reaches the workers.
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cli/harness.h"

namespace pliant::cli_test {
namespace {

class Flags : public CliTest {
 protected:
  void expect_one_line(const Words& words, int status, const std::string& part) {
    auto seen = run(words);
    EXPECT_EQ(seen.status, status) << seen.err;
    EXPECT_EQ(lines_in(seen.err), 1u) << seen.err;
    EXPECT_EQ(seen.out, "");
    EXPECT_NE(seen.err.find(part), std::string::npos) << seen.err;
  }
};

TEST_F(Flags, VersionIsPrinted) {
  auto seen = run({"--version"});
  EXPECT_EQ(seen.status, 0);
  EXPECT_EQ(seen.out.substr(0, 7), "pliant ");
  EXPECT_EQ(lines_in(seen.out), 1u);
}

TEST_F(Flags, HelpHasExamplesEverywhere) {
  for (const Words& words : {Words{"--help"}, Words{"run", "--help"}, Words{"ps", "--help"}, Words{"status", "--help"},
                             Words{"stop", "-h"}, Words{"resize", "--help"}, Words{"doctor", "--help"}}) {
    auto seen = run(words);
    EXPECT_EQ(seen.status, 0);
    EXPECT_NE(seen.out.find("Examples:"), std::string::npos) << words[0];
    EXPECT_EQ(seen.err, "");
  }
}

TEST_F(Flags, HelpNamesTheEnvironmentTwins) {
  auto help = run({"run", "--help"}).out;
  for (const char* twin : {"WORKERS", "NAME", "OUTPUT", "OUTPUT_DIR", "THREADS", "SEED", "STATUS", "GRACE", "ENV",
                           "MIN", "MAX", "MAX_RESTARTS"})
    EXPECT_NE(help.find(fmt::format("$PLIANT_{}", twin)), std::string::npos) << twin;
}

TEST_F(Flags, NoCommandShowsHelp) {
  auto seen = run({});
  EXPECT_EQ(seen.status, 2);
  EXPECT_NE(seen.err.find("Usage: pliant"), std::string::npos);
}

TEST_F(Flags, UnknownThingsAreOneLine) {
  expect_one_line({"run", "--bogus", "true"}, 2, "unknown argument --bogus");
  expect_one_line({"run", "-n", "2", "-q", "true"}, 2, "unknown argument -q");
  expect_one_line({"ps", "--bogus"}, 2, "unknown argument --bogus");
  expect_one_line({"status", "a", "b"}, 2, "unknown argument b");
  expect_one_line({"flub"}, 2, "unknown command flub");
  expect_one_line({"--bogus"}, 2, "unknown argument --bogus");
}

TEST_F(Flags, WrongValuesAreOneLine) {
  for (const char* count : {"0", "-1", "513", "two", "2.5", ""})
    expect_one_line({"run", "-n", count, "true"}, 2, "--workers");
  expect_one_line({"run", "-n"}, 2, "--workers");
  expect_one_line({"run", "--output", "loud", "true"}, 2, "--output");
  expect_one_line({"run", "--status", "loud", "true"}, 2, "--status");
  expect_one_line({"run", "--grace", "-1", "true"}, 2, "--grace");
  expect_one_line({"run", "--threads", "0", "true"}, 2, "--threads");
  expect_one_line({"run", "--seed", "x", "true"}, 2, "--seed");
  expect_one_line({"run", "-x", "novalue", "true"}, 2, "--env");
  expect_one_line({"run", "--name", "../up", "true"}, 2, "--name");
  expect_one_line({"run", "--name", "", "true"}, 2, "--name");
  expect_one_line({"run", "--min", "0", "true"}, 2, "--min");
  expect_one_line({"run", "--max", "513", "true"}, 2, "--max");
  expect_one_line({"run", "--max-restarts", "-1", "true"}, 2, "--max-restarts");
  expect_one_line({"run", "-n", "2", "--min", "3", "true"}, 2, "--min 3 is more than --workers 2");
  expect_one_line({"run", "-n", "4", "--max", "3", "true"}, 2, "--max 3 is less than --workers 4");
  expect_one_line({"run", "--attach", "x", "true"}, 2, "has its program already");
  expect_one_line({"resize", "x"}, 2, "N");
  expect_one_line({"resize", "x", "-1"}, 2, "N");
  EXPECT_TRUE(nothing_left());
}

TEST_F(Flags, AFlagIsNoValueOfTheOneBefore) {
  expect_one_line({"run", "--attach", "--name", "night"}, 2, "--attach needs a value: 'pliant run --attach JOB'");
  expect_one_line({"run", "--record", "--name", "x", "true"}, 2, "--record needs a value: 'pliant run --record DIR'");
  expect_one_line({"run", "-n", "--name", "x", "true"}, 2, "-n needs a value: 'pliant run -n N'");
  expect_one_line({"run", "--name", "--", "true"}, 2, "--name needs a value");
  expect_one_line({"chaos", "night", "--json", "--events", "3"}, 2, "--json needs a value: 'pliant chaos --json FILE'");
  expect_one_line({"bench", "allreduce", "--ranks", "--load", "3"}, 2, "pliant bench allreduce: --ranks needs a value");
  expect_one_line({"run", "--output=--name", "true"}, 2, "--output: '--name' is none of");
  EXPECT_EQ(run({"run", "-n", "1", "--name", "x", "echo", "--attach", "--name"}).out, "[0] --attach --name\n");
  EXPECT_TRUE(nothing_left());
}

TEST_F(Flags, AJobsNameStandsAlone) {
  for (const char* command : {"status", "stop", "resize", "chaos"})
    for (const char* flag : {"--name", "--job", "--name=night"})
      expect_one_line({command, flag, "night"}, 2, fmt::format("a job's name stands alone: 'pliant {} JOB'", command));
}

TEST_F(Flags, ProgramsThatCannotRun) {
  std::ofstream(path("plain")) << "data";
  std::ofstream(path("script")) << "#!/no/such/interpreter\n";
  chmod(path("script").c_str(), 0755);
  expect_one_line({"run"}, 2, "which program?");
  expect_one_line({"run", "-n", "2", "--"}, 2, "which program?");
  expect_one_line({"run", "no-such-program"}, 127, "no-such-program");
  expect_one_line({"run", "/no/such/program"}, 127, "/no/such/program");
  expect_one_line({"run", path("plain")}, 126, "Permission denied");
  expect_one_line({"run", "/tmp"}, 126, "directory");
  expect_one_line({"run", path("script")}, 127, "script");
  EXPECT_TRUE(nothing_left());
}

TEST_F(Flags, TheProgramsOwnArgumentsAreLeftAlone) {
  auto seen = run({"run", "-np", "1", "--output", "raw", "/bin/sh", "-c", "printf '<%s>' \"$@\"", "sh", "-np", "3",
                   "--", "--output", "[a,b]", "", "++", "%%", "ps", "--help"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(seen.out, "<-np><3><--><--output><[a,b]><><++><%%><ps><--help>");
  seen = run({"run", "-n1", "--output=raw", "--", "echo", "-n", "x"});
  EXPECT_EQ(seen.out, "x");
}

TEST_F(Flags, AScriptWithoutFirstLineIsRunByTheShell) {
  std::ofstream(path("script")) << "echo from a script\n";
  chmod(path("script").c_str(), 0755);
  EXPECT_EQ(run({"run", "-n", "1", "--output", "raw", path("script")}).out, "from a script\n");
}

TEST_F(Flags, WorkersFindTheirEnvironment) {
  auto seen = run({"run", "-n", "2", "--name", "envy", "--seed", "7", "--threads", "3", "-x", "A=1,2", "--env", "B=x=y",
                   "--output", "prefix", "/bin/sh", "-c",
                   "echo $PLIANT_JOB $PLIANT_WORKER/$PLIANT_WORKERS $PLIANT_SEED $PLIANT_THREADS $OMP_NUM_THREADS "
                   "$OPENBLAS_NUM_THREADS $MKL_NUM_THREADS $A $B; test -S \"$PLIANT_COORDINATOR\" && echo socket"},
                  {"MKL_NUM_THREADS=9"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  for (const char* line : {"[0] envy 0/2 7 3 3 3 9 1,2 x=y\n", "[1] envy 1/2 7 3 3 3 9 1,2 x=y\n", "[1] socket\n"})
    EXPECT_NE(seen.out.find(line), std::string::npos) << line << seen.out;
}

TEST_F(Flags, EnvironmentTwinsStandInForFlags) {
  auto seen = run({"run", "/bin/sh", "-c", "echo $PLIANT_WORKERS $PLIANT_SEED $A $B"},
                  {"PLIANT_WORKERS=3", "PLIANT_SEED=11", "PLIANT_OUTPUT=rank0", "PLIANT_ENV=A=a;B=b"});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(seen.out, "3 11 a b\n");
  seen = run({"run", "-n", "1", "--output", "raw", "/bin/sh", "-c", "echo $PLIANT_WORKERS"}, {"PLIANT_WORKERS=3"});
  EXPECT_EQ(seen.out, "1\n");
}

TEST_F(Flags, WorkersGetACleanStart) {
  auto of = [&](const Words& program) {
    Words words = {"run", "-n", "2", "--output", "rank0"};
    words.insert(words.end(), program.begin(), program.end());
    return run(words).out;
  };
  EXPECT_EQ(of({"ls", "/proc/self/fd"}), "0\n1\n2\n3\n") << "3 is the listing itself";
  EXPECT_EQ(of({"readlink", "/proc/self/fd/0"}), "/dev/null\n");
  EXPECT_EQ(of({"grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"}),
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
  auto numbers = of({"cut", "-d", " ", "-f", "1,5", "/proc/self/stat"});  // its pid and its group
  auto gap = numbers.find(' ');
  EXPECT_EQ(numbers.substr(0, gap), numbers.substr(gap + 1, gap)) << numbers;
}

TEST_F(Flags, ALongBaseDirectoryUsesAnAbstractSocket) {
  auto deep = base() + "/" + std::string(120, 'd');
  auto seen =
      run({"run", "-n", "1", "--output", "raw", "/bin/sh", "-c", "echo $PLIANT_COORDINATOR"}, {"PLIANT_DIR=" + deep});
  EXPECT_EQ(seen.status, 0) << seen.err;
  EXPECT_EQ(seen.out.substr(0, 8), "@pliant/");
  std::error_code ignored;
  std::filesystem::remove_all(deep, ignored);
}

TEST_F(Flags, DoctorLooksAtEverything) {
  auto seen = run({"doctor"});
  for (const char* name :
       {"version", "compiler", "libtorch", "cores", "memory", "memfd", "pidfd", "futex_waitv", "open files"})
    EXPECT_NE(seen.out.find(name), std::string::npos) << name;
  auto findings = nlohmann::json::parse(run({"doctor", "--json"}).out);
  bool problem = false;
  for (const auto& finding : findings) problem = problem || finding.at("level") == "problem";
  EXPECT_EQ(seen.status, problem ? 1 : 0);
}

TEST_F(Flags, DoctorNamesAProblem) {
  std::ofstream(path("file")) << "";
  auto seen = run({"doctor"}, {"PLIANT_DIR=" + path("file")});
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.out.find("problem  job directory"), std::string::npos) << seen.out;
}

}  // namespace
}  // namespace pliant::cli_test
