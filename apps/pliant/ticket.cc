#include "apps/pliant/ticket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <sstream>

#include "base/fd.h"
#include "net/tcp.h"

namespace pliant::cli {
namespace {

constexpr char kTitle[] = "pliant ticket";
constexpr std::size_t kLongest = 4096;

Result<std::string> read_some(int fd) {
  std::string text;
  std::array<char, 1024> part{};
  while (text.size() <= kLongest) {
    auto got = ::read(fd, part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("reading the ticket");
    if (got == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return Error{Code::invalid, "that is too long for a ticket"};
}

}  // namespace

std::string ticket_text(const Ticket& ticket) {
  return fmt::format("{}\njob {}\ncoordinator {}\nsecret {}\n", kTitle, ticket.job, ticket.endpoint,
                     ticket.secret.digits());
}

Result<Ticket> ticket_from(const std::string& text) {
  std::istringstream lines(text);
  std::string title;
  std::getline(lines, title);
  if (title != kTitle) return Error{Code::invalid, "that is no ticket of a job"};
  std::map<std::string, std::string> values;
  for (std::string name, value; lines >> name >> value;) values[name] = value;
  auto endpoint = net::parse_endpoint(values["coordinator"]);
  if (!endpoint.ok()) return Error{Code::invalid, "the ticket names no coordinator: " + endpoint.error().message};
  auto secret = net::Secret::from_digits(values["secret"]);
  if (!secret.ok()) return Error{Code::invalid, "the ticket has no secret: " + secret.error().message};
  if (values["job"].empty()) return Error{Code::invalid, "the ticket names no job"};
  return Ticket{values["job"], endpoint.value().text(), secret.value()};
}

Result<Ticket> read_ticket(const std::string& path) {
  Fd file;
  if (path != "-") {
    file = Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file) return errno_error(path);
    struct stat about {};
    if (fstat(file.get(), &about) != 0) return errno_error(path);
    if (!S_ISREG(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & (S_IRWXG | S_IRWXO)))
      return Error{Code::refused,
                   fmt::format("{} can be read by others, so it is no secret: chmod 600 {}", path, path)};
  }
  auto text = read_some(file ? file.get() : STDIN_FILENO);
  return text.ok() ? ticket_from(text.value()) : text.error();
}

std::string ticket_file(const std::string& dir) { return dir + "/ticket"; }

}  // namespace pliant::cli
