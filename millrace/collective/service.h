// What a task serves so that its ranks can take part in collective operations.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/net/transport.h"

namespace millrace::collective {

class GroupCore;

// Passes the calls of other ranks to the groups of this task. A call for a group that does not exist gets NOT_FOUND;
// the caller tries again until its group's join_timeout has passed.
//
// Thread-safe. Must outlive its groups and its listener.
class CollectiveService final : public net::Service {
 public:
  const std::vector<std::string>& methods() const override;
  void OnCall(int method, std::shared_ptr<net::IncomingCall> call) override;

 private:
  friend class CollectiveGroup;
  Status Add(const std::string& key, std::shared_ptr<GroupCore> group);
  void Remove(const std::string& key);

  Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<GroupCore>> groups_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::collective
