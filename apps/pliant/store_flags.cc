#include "apps/pliant/store_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/system.h"
#include "membership/etcd_address.h"
#include "membership/store.h"

namespace pliant::cli {
namespace {

std::string absolute(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

void check_pairs(const StoreFlags& flags) {
  bool some = !flags.ca.empty() || !flags.cert.empty() || !flags.key.empty() || !flags.user.empty() ||
              !flags.password_file.empty();
  if (some && !flags.url.starts_with("etcds://"))
    throw Failure(
        Code::invalid,
        "--store-ca, --store-cert, --store-key, --store-user and --store-password-file need a store with TLS: "
        "--store etcds://HOST:2379");
  if (flags.cert.empty() != flags.key.empty())
    throw Failure(Code::invalid, "--store-cert and --store-key belong together: a certificate and its private key");
  if (flags.user.empty() != flags.password_file.empty())
    throw Failure(Code::invalid, "--store-user and --store-password-file belong together");
}

}  // namespace

void add_store_flags(CLI::App& run, StoreFlags& flags) {
  run.add_option("--store", flags.url,
                 "A store that decides where hosts cannot see each other, and which host has the coordinator: "
                 "etcd://10.0.0.1:2379, or etcds://etcd1.example.org:2379 with TLS")
      ->option_text("URL")
      ->envname("PLIANT_STORE")
      ->check(parses(membership::parse_etcd_address));
  run.add_option(
         "--store-ca", flags.ca,
         "Certificates that the store's servers are trusted by (default: those of the system). This file and the "
         "next ones must be on every host, under the same path")
      ->option_text("FILE")
      ->envname("PLIANT_STORE_CA");
  run.add_option("--store-cert", flags.cert, "The client's certificate that the store asks for")
      ->option_text("FILE")
      ->envname("PLIANT_STORE_CERT");
  run.add_option("--store-key", flags.key, "Its private key, which only you can read")
      ->option_text("FILE")
      ->envname("PLIANT_STORE_KEY");
  run.add_option("--store-user", flags.user, "The store's user that the job acts as")
      ->option_text("NAME")
      ->envname("PLIANT_STORE_USER");
  run.add_option("--store-password-file", flags.password_file, "That user's password, in a file that only you can read")
      ->option_text("FILE")
      ->envname("PLIANT_STORE_PASSWORD_FILE");
}

std::string store_address(const StoreFlags& flags) {
  check_pairs(flags);
  if (flags.url.empty()) return {};
  auto address = membership::parse_etcd_address(flags.url).or_throw();
  if (!flags.ca.empty()) address.ca = absolute(flags.ca);
  if (!flags.cert.empty()) address.cert = absolute(flags.cert);
  if (!flags.key.empty()) address.key = absolute(flags.key);
  if (!flags.user.empty()) address.user = flags.user;
  if (!flags.password_file.empty()) address.password_file = absolute(flags.password_file);
  return membership::etcd_url(address);
}

std::string store_of_its_own(const std::string& store) {
  if (store.empty()) return store;
  auto address = membership::parse_etcd_address(store).or_throw();
  address.prefix += fmt::format("{:016x}/", random_u64());
  return membership::etcd_url(address);
}

void try_store(const std::string& address) {
  if (address.empty()) return;
  net::Loop loop;
  auto store = membership::open_store(loop, address).or_throw();
  Status usable;
  store->read("any", [&](const Result<membership::Entry>& entry) {
    if (!entry.ok() && entry.error().code != Code::peer_lost)
      usable = Error{entry.error().code, "the store cannot be used: " + entry.error().message};
    loop.stop();
  });
  loop.run();
  usable.or_throw();
}

}  // namespace pliant::cli
