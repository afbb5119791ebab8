#include "millrace/cluster/server_access.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/cluster_transport.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/tls/certificate_authority.h"
#include "millrace/net/transport_testing.h"
#include "millrace/proto/master.pb.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kRegisterGraph[] = "/tensorflow.WorkerService/RegisterGraph";
constexpr char kCreateSession[] = "/tensorflow.MasterService/CreateSession";

// Sets a variable for the duration of a test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~ScopedVariable() { unsetenv(name_); }

 private:
  const char* const name_;
};

const net::HostPort kLoopback = {"localhost", 2222}, kOpen = {"10.0.0.7", 2222};

TEST(ServerAccess, BeyondLoopbackThereIsNoServerWithoutTlsUnlessItIsAskedFor) {
  EXPECT_TRUE(FindServerAccess(kLoopback, {}).ok());
  const Status refused = FindServerAccess(kOpen, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* words : {"10.0.0.7:2222", "--insecure", "MILLRACE_INSECURE=1", "millrace launch", "--tls_cert"})
    EXPECT_THAT(std::string(refused.message()), HasSubstr(words));
  EXPECT_TRUE(FindServerAccess(kOpen, {.insecure = true}).ok());
  EXPECT_TRUE(FindServerAccess(kOpen, {.tls = std::make_shared<TlsCredentials>()}).ok());
  EXPECT_FALSE(FindServerAccess(kOpen, {.tls = std::make_shared<TlsCredentials>(), .insecure = true}).ok());
  const ScopedVariable insecure(kInsecureVariable, "1");
  EXPECT_TRUE(FindServerAccess(kOpen, {}).ok());
}

TEST(ServerAccess, BeyondLoopbackThereAreNoFilesUnlessAFolderIsNamed) {
  EXPECT_FALSE(FindServerAccess(kLoopback, {})->no_files);
  EXPECT_TRUE(FindServerAccess(kOpen, {.insecure = true})->no_files);
  EXPECT_THAT(FindServerAccess(kOpen, {.file_roots = {"/a"}, .insecure = true})->file_roots, ElementsAre("/a"));
  {
    const ScopedVariable roots(kFileRootVariable, "/a:/b");
    EXPECT_THAT(FindServerAccess(kLoopback, {})->file_roots, ElementsAre("/a", "/b"));
    EXPECT_THAT(FindServerAccess(kLoopback, {.file_roots = {"/c"}})->file_roots, ElementsAre("/c"));
  }
  const ScopedVariable all(kFileRootVariable, "/");
  const ServerAccess access = FindServerAccess(kOpen, {.insecure = true}).value();
  EXPECT_FALSE(access.no_files);
  EXPECT_THAT(access.file_roots, IsEmpty());
}

TEST(ServerAccess, ClientsBringClustersOfTheirOwnOnlyOnLoopbackWithoutTls) {
  const auto tls = std::make_shared<TlsCredentials>();
  EXPECT_TRUE(FindServerAccess(kLoopback, {})->client_clusters);
  EXPECT_FALSE(FindServerAccess(kLoopback, {.tls = tls})->client_clusters);
  EXPECT_FALSE(FindServerAccess(kOpen, {.insecure = true})->client_clusters);
  EXPECT_TRUE(FindServerAccess(kOpen, {.tls = tls, .client_clusters = true})->client_clusters);
}

class RolesTest : public ::testing::Test {
 protected:
  std::shared_ptr<const TlsCredentials> Issue(net::CertificateRole role) {
    return std::make_shared<const TlsCredentials>(authority_->Issue("peer", {"localhost"}, role).value());
  }
  std::unique_ptr<Server> StartServer(ServerOptions options = {}) {
    options.tls = Issue(net::CertificateRole::kTask);
    return Server::CreateLocalServer(options).value();
  }
  Status Call(net::Transport& transport, const Server& server, const char* method, net::Bytes request = {},
              bool every_step = false) {
    const auto channel = transport.Connect(absl::StrCat("localhost:", server.port()));
    if (every_step) {
      Notification prepared;
      channel->Prepare([&] { prepared.Notify(); });
      prepared.Wait();
      EXPECT_NE(channel->streaming(), nullptr) << "there is no lane";
    }
    net::Answer answer;
    channel->Call(method, std::move(request), {.every_step = every_step}, answer.Done());
    answer.notification().Wait();
    return answer.result().status();
  }
  net::Bytes SessionWithCluster(const std::string& address) {
    pb::CreateSessionRequest request;
    *request.mutable_config()->mutable_cluster_def() = ClusterSpec::Of({{"localhost", {address}}}).value().ToDef();
    return net::Serialize(request);
  }

  const std::unique_ptr<net::CertificateAuthority> authority_ = net::CertificateAuthority::Make("a test").value();
};

TEST_F(RolesTest, AClientMayUseTheMasterAndNotTheWorker) {
  const auto server = StartServer();
  const auto client = net::NewGrpcTransport({.tls = Issue(net::CertificateRole::kClient)});
  EXPECT_TRUE(Call(*client, *server, kCreateSession).ok());
  EXPECT_TRUE(Call(*client, *server, "/millrace.StatusService/GetStatus").ok());
  const Status denied = Call(*client, *server, kRegisterGraph);
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied) << denied;
  EXPECT_THAT(std::string(denied.message()), HasSubstr("RegisterGraph is for the tasks of the cluster"));
  const auto task = net::NewGrpcTransport({.tls = Issue(net::CertificateRole::kTask)});
  EXPECT_NE(Call(*task, *server, kRegisterGraph).code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(RolesTest, ALaneCarriesTheRoleOfWhoAskedForIt) {
  const auto server = StartServer();
  for (const auto& [role, kind] :
       {std::pair(net::CertificateRole::kClient, "shm"), std::pair(net::CertificateRole::kClient, "tcp"),
        std::pair(net::CertificateRole::kTask, "shm"), std::pair(net::CertificateRole::kTask, "tcp")}) {
    const auto transport = NewClusterTransport(kind, {.tls = Issue(role)}).value();
    const Status status = Call(*transport, *server, "/tensorflow.WorkerService/RunGraph", {}, /*every_step=*/true);
    EXPECT_EQ(absl::IsPermissionDenied(status), role == net::CertificateRole::kClient) << kind << ": " << status;
  }
}

TEST_F(RolesTest, AClustersAddressesAreNotChosenByClients) {
  const auto client = net::NewGrpcTransport({.tls = Issue(net::CertificateRole::kClient)});
  const auto server = StartServer();
  const Status denied = Call(*client, *server, kCreateSession, SessionWithCluster("localhost:1"));
  EXPECT_EQ(denied.code(), absl::StatusCode::kPermissionDenied) << denied;
  EXPECT_THAT(std::string(denied.message()), HasSubstr("--client_clusters"));
  const auto generous = StartServer({.client_clusters = true});
  const std::string own = absl::StrCat("localhost:", generous->port());
  EXPECT_TRUE(Call(*client, *generous, kCreateSession, SessionWithCluster(own)).ok());
}

}  // namespace
}  // namespace millrace
