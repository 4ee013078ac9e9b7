// What lets an agent on another host into a job: where its coordinator is, and its secret. A small text, for a file
// that nobody else can read or for a pipe; never an argument.
#pragma once

#include <string>

#include "base/result.h"
#include "net/trust.h"

namespace pliant::cli {

struct Ticket {
  std::string job;
  std::string endpoint;  ///< of the coordinator
  net::Secret secret;
};

/// "pliant ticket", then lines of a name and a value.
std::string ticket_text(const Ticket& ticket);
Result<Ticket> ticket_from(const std::string& text);
/// From a file, which must be this user's alone; "-" is stdin, to its end.
Result<Ticket> read_ticket(const std::string& path);
/// Where it lies in a job's directory.
std::string ticket_file(const std::string& dir);
Status write_ticket(const std::string& dir, const Ticket& ticket);

}  // namespace pliant::cli
