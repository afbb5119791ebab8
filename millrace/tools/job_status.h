// The jobs of `millrace launch` on this machine.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "millrace/base/tls_credentials.h"

namespace millrace {

// Prints the reports of all launchers, or only of the one with pid `job` if that is not 0. Returns the exit code: 1 if
// one did not answer.
int ShowJobs(int job, absl::Duration timeout, bool json);

// A client's credentials for the job of this user on this machine that has a task at `address`, from its launcher; null
// if there is no such job, or it has no certificates.
std::shared_ptr<const TlsCredentials> CredentialsOfJob(const std::string& address, absl::Duration timeout);

}  // namespace millrace
