#include "apps/pliant/own_record.h"

#include <algorithm>

#include "net/tcp.h"

namespace pliant::cli {

void OwnRecord::write() {
  stale_ = false;
  if (auto written = dir_.write(record_); !written.ok()) on_trouble_(written.error());
}

void OwnRecord::add_worker(WorkerRecord worker, net::Loop& loop) {
  record_.workers.push_back(std::move(worker));
  write_soon(loop);
}

void OwnRecord::note_told(std::uint64_t worker, net::Loop& loop) {
  for (auto& known : record_.workers) known.told = known.told || known.id == worker;
  write_soon(loop);
}

/// One stays: a record without workers is that of a job that has not begun here.
void OwnRecord::forget_worker(std::uint64_t worker, net::Loop& loop) {
  if (record_.workers.size() < 2) return;
  std::erase_if(record_.workers, [&](const WorkerRecord& known) { return known.id == worker; });
  write_soon(loop);
}

void OwnRecord::write_soon(net::Loop& loop) {
  if (!std::exchange(stale_, true)) loop.post([this] { write(); });
}

void OwnRecord::set_host(HostRecord host) {
  std::erase_if(record_.hosts, [&](const HostRecord& each) { return each.name == host.name; });
  record_.hosts.push_back(std::move(host));
  write();
}

Result<std::string> OwnRecord::offer_place() {
  if (own_place_.empty()) {
    auto there = net::parse_endpoint(record_.plan.endpoint);
    if (!there.ok()) return there.error();
    const auto& chosen = record_.plan.interface_name;
    auto address = chosen.empty() ? net::address_towards(there.value().address) : net::address_of_interface(chosen);
    if (!address.ok()) return address.error();
    auto ports = net::parse_ports(record_.plan.ports.empty() ? "0" : record_.plan.ports);
    auto listener = net::tcp_listen(address.value(), ports.value());
    if (!listener.ok()) return listener.error();
    own_place_ = listener.value().endpoint.text();
  }
  record_.plan.endpoint = own_place_;
  PLIANT_TRY(dir_.write(record_));
  return "tcp:" + own_place_;
}

void OwnRecord::note_place(const std::string& address) {
  if (auto written = write_place(dir_.path(), address); !written.ok()) on_trouble_(written.error());
}

}  // namespace pliant::cli
