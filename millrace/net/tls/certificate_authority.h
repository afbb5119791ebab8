// Makes the certificates of one job.
#pragma once

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "millrace/base/status.h"
#include "millrace/base/tls_credentials.h"
#include "millrace/net/tls/certificate_role.h"

namespace millrace::net {

// An authority with a new key, which exists in this process's memory only: when the object is gone, nobody can make
// further certificates. A certificate takes a fraction of a millisecond to make (elliptic curve P-256). Certificates
// are valid from 30 days ago, because clocks differ between machines, for ten years: the job ends before them.
// Thread-safe.
class CertificateAuthority {
 public:
  static StatusOr<std::unique_ptr<CertificateAuthority>> Make(const std::string& name);
  ~CertificateAuthority();

  // A new key and its certificate, for a peer at the given host names and numeric addresses; a client needs none.
  StatusOr<TlsCredentials> Issue(const std::string& name, absl::Span<const std::string> hosts,
                                 CertificateRole role) const;

 private:
  struct State;
  explicit CertificateAuthority(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace millrace::net
