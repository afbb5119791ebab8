#include "millrace/launch/meeting/meeting_guard.h"

#include <utility>

#include "millrace/net/tls/sealed_records.h"

namespace millrace::launch {
namespace {

constexpr size_t kShortestSecret = 16;

class SecretGuard : public MeetingGuard {
 public:
  explicit SecretGuard(std::string key) : key_(std::move(key)) {}
  std::string name() const override { return absl::StrCat("the job secret (", kJobSecretVariable, ")"); }
  StatusOr<std::string> Seal(absl::string_view message) override { return net::SealMessage(key_, message); }
  StatusOr<std::string> Open(absl::string_view sealed) override { return net::OpenMessage(key_, sealed); }

 private:
  const std::string key_;
};

class SameUserGuard : public MeetingGuard {
 public:
  std::string name() const override { return "the user of the socket"; }
  StatusOr<std::string> Seal(absl::string_view message) override { return std::string(message); }
  StatusOr<std::string> Open(absl::string_view sealed) override { return std::string(sealed); }
};

}  // namespace

StatusOr<std::unique_ptr<MeetingGuard>> MakeSecretGuard(absl::string_view secret, absl::string_view label) {
  if (secret.size() < kShortestSecret) {
    return InvalidArgument(kJobSecretVariable, " has ", secret.size(), " characters; a secret has at least ",
                           kShortestSecret, ", as from `openssl rand -hex 16`");
  }
  MR_ASSIGN_OR_RETURN(std::string key, net::DeriveSealKey(secret, absl::StrCat("millrace meeting: ", label)));
  return std::make_unique<SecretGuard>(std::move(key));
}

std::unique_ptr<MeetingGuard> MakeSameUserGuard() { return std::make_unique<SameUserGuard>(); }

}  // namespace millrace::launch
