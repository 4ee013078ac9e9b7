#include "apps/pliant/ticket.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <sstream>

#include "apps/pliant/job_dir.h"
#include "net/tcp.h"

namespace pliant::cli {
namespace {

constexpr char kTitle[] = "pliant ticket";
constexpr std::size_t kLongest = 4096;

Result<std::string> read_stdin() {
  std::string text;
  std::array<char, 1024> part{};
  while (text.size() <= kLongest) {
    auto got = ::read(STDIN_FILENO, part.data(), part.size());
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
                     ticket.secret.text());
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
  auto secret = net::Secret::from_text(values["secret"]);
  if (!secret.ok()) return Error{Code::invalid, "the ticket has no secret: " + secret.error().message};
  if (values["job"].empty()) return Error{Code::invalid, "the ticket names no job"};
  return Ticket{values["job"], endpoint.value().text(), secret.value()};
}

Result<Ticket> read_ticket(const std::string& path) {
  auto text = path == "-" ? read_stdin() : net::read_private(path, kLongest);
  return text.ok() ? ticket_from(text.value()) : text.error();
}

std::string ticket_file(const std::string& dir) { return dir + "/ticket"; }

Status write_ticket(const std::string& dir, const Ticket& ticket) {
  return write_atomically(ticket_file(dir), ticket_text(ticket));
}

}  // namespace pliant::cli
