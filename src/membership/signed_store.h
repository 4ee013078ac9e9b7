// A store that others can write to, of which only values count that this job has signed (signed_value.h).
//
//   what the store has                            what the caller is told
//   a value that is signed                        the text, with the store's revision
//   one that is not signed, or was altered        that there is none (revision 0)
//   one with a lower number than was seen before  the same: somebody put an old value back
//   nothing                                       the same
//
// A value that does not count is replaced by whoever stores something where there is none. The first of each key and
// reason is named in the log.
//
// What this cannot tell: that a value was removed, and, for a process that has not seen a newer one, that a value was
// put back. Whoever can write to the store can do both.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "membership/signed_value.h"
#include "membership/store.h"

namespace pliant::membership {

/// Texts have at most Store::kLongestText - kSignatureSize bytes.
class SignedStore final : public Store {
 public:
  SignedStore(std::unique_ptr<Store> store, ValueSigner signer)
      : signer_(std::move(signer)), store_(std::move(store)) {}

  void read(const std::string& key, std::function<void(Result<Entry>)> done) override;
  /// Code::peer_lost also if others write values that do not count as fast as they are replaced.
  void replace(const std::string& key, std::uint64_t revision, std::string text,
               std::function<void(Result<Attempt>)> done) override;
  void remove_all(const std::string& prefix, std::function<void(Status)> done) override;

 private:
  enum class Flaw { unsigned_value, altered, old };
  struct Replacement {
    std::string key;
    std::uint64_t revision = 0;  // as the caller knows it
    std::string text;
    std::function<void(Result<Attempt>)> done;
    std::uint64_t number = 0;  // that was signed
    int attempts = 0;
  };
  void attempt(Replacement replacement, std::uint64_t revision);
  void answered(Replacement replacement, Result<Attempt> attempt);
  Entry judge(const std::string& key, const Entry& entry);
  void name(const std::string& key, Flaw flaw, const std::string& why);

  const ValueSigner signer_;
  std::map<std::string, std::uint64_t> newest_;   // the highest number seen under each key
  std::set<std::pair<std::string, Flaw>> named_;  // in the log
  std::unique_ptr<Store> store_;                  // last: its destructor calls nothing any more
};

/// open_store(), with values that only this job's processes can write. A store in a directory of this machine ("dir:")
/// stays as it is: whoever can write to the job's directory can also read the job's secret there.
Result<std::unique_ptr<Store>> open_signed_store(net::Loop& loop, const std::string& url, ValueSigner signer);

}  // namespace pliant::membership
