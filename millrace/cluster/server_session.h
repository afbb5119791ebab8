// A session at a server of this process: its master is called, nothing is sent.
#pragma once

#include <memory>

#include "millrace/cluster/local_servers.h"
#include "millrace/cluster/master.h"

namespace millrace {

// What sessions of this process find under the server's target. Sessions do not keep the master alive: once it is gone they say so.
LocalServer LocalServerOf(const std::shared_ptr<Master>& master);

}  // namespace millrace
