#include "millrace/net/tls/tls_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "millrace/base/fd.h"
#include "millrace/net/tls/certificate_authority.h"

namespace millrace::net {
namespace {

std::string Numbered(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 2654435761u >> 24);
  return text;
}

class TlsStreamTest : public ::testing::Test {
 protected:
  std::shared_ptr<const TlsContext> Context(const CertificateAuthority& authority, CertificateRole role) {
    return TlsContext::Make(authority.Issue("peer", {"localhost", "127.0.0.1"}, role).value()).value();
  }
  // Two ends of a connection with these certificates; the client expects `host`.
  void Connect(std::shared_ptr<const TlsContext> server, std::shared_ptr<const TlsContext> client,
               const std::string& host = "localhost") {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    server_fd_ = Fd(ends[0]);
    client_fd_ = Fd(ends[1]);
    server_ = TlsStream::Accept(*server, ends[0]).value();
    client_ = TlsStream::Connect(*client, ends[1], host).value();
  }
  // Lets both ends read in turns until one fails or something arrives at the client. Returns what the failed end says.
  std::string ShakeHands() {
    char byte = 'x';
    bool greeted = false;
    for (int i = 0; i < 100; ++i) {
      for (TlsStream* end : {client_.get(), server_.get()}) {
        char got;
        const iovec room = {&got, 1};
        const ssize_t size = end->Read(absl::MakeConstSpan(&room, 1));
        if (size == 1) return "";
        if (size == 0 || errno != EAGAIN) return end->error().empty() ? "closed" : end->error();
      }
      if (greeted) continue;
      const iovec one = {&byte, 1};
      greeted = server_->Write(absl::MakeConstSpan(&one, 1)) == 1;
    }
    return "nothing arrived";
  }
  // Sends the pieces from one end while the other reads.
  std::string Transfer(TlsStream* from, TlsStream* to, const std::vector<std::string>& pieces, size_t room_size) {
    size_t size = 0;
    for (const std::string& piece : pieces) size += piece.size();
    std::string got;
    std::thread reader([&] {
      std::string room(room_size, '\0');
      while (got.size() < size) {
        const iovec parts[] = {{room.data(), room.size() / 2}, {room.data() + room.size() / 2, room.size() / 2}};
        const ssize_t count = to->Read(parts);
        if (count > 0) got.append(room.data(), static_cast<size_t>(count));
        if (count == 0 || (count < 0 && errno != EAGAIN)) return;
      }
    });
    size_t sent = 0;
    while (sent < size) {
      std::vector<iovec> rest;
      size_t skip = sent;
      for (const std::string& piece : pieces) {
        const size_t skipped = std::min(skip, piece.size());
        skip -= skipped;
        if (skipped < piece.size()) rest.push_back({const_cast<char*>(piece.data()) + skipped, piece.size() - skipped});
      }
      const ssize_t count = from->Write(rest);
      if (count < 0 && errno != EAGAIN) break;
      if (count > 0) sent += static_cast<size_t>(count);
    }
    reader.join();
    return got;
  }

  std::unique_ptr<CertificateAuthority> authority_ = CertificateAuthority::Make("a job").value();
  Fd server_fd_, client_fd_;
  std::unique_ptr<TlsStream> server_, client_;
};

TEST_F(TlsStreamTest, CarriesPiecesOfAllSizesInOrder) {
  Connect(Context(*authority_, CertificateRole::kTask), Context(*authority_, CertificateRole::kTask));
  ASSERT_EQ(ShakeHands(), "");
  const std::vector<std::string> pieces = {Numbered(3),     Numbered(5'000'001), "",          Numbered(70),
                                           Numbered(16384), Numbered(16383),     Numbered(1), Numbered(40'000)};
  std::string whole;
  for (const std::string& piece : pieces) whole += piece;
  EXPECT_TRUE(Transfer(client_.get(), server_.get(), pieces, 100'000) == whole);
  EXPECT_TRUE(Transfer(server_.get(), client_.get(), pieces, 2) == whole);
}

TEST_F(TlsStreamTest, BothDirectionsAtOnce) {
  Connect(Context(*authority_, CertificateRole::kTask), Context(*authority_, CertificateRole::kTask));
  ASSERT_EQ(ShakeHands(), "");
  const std::string text = Numbered(3'000'000);
  std::string there;
  std::thread other([&] { there = Transfer(client_.get(), server_.get(), {text}, 65536); });
  EXPECT_TRUE(Transfer(server_.get(), client_.get(), {text}, 65536) == text);
  other.join();
  EXPECT_TRUE(there == text);
}

TEST_F(TlsStreamTest, NothingOfItIsReadableOnTheWire) {
  Connect(Context(*authority_, CertificateRole::kTask), Context(*authority_, CertificateRole::kTask));
  ASSERT_EQ(ShakeHands(), "");
  const std::string secret(1000, 's');
  const iovec piece = {const_cast<char*>(secret.data()), secret.size()};
  ASSERT_EQ(client_->Write(absl::MakeConstSpan(&piece, 1)), 1000);
  std::string wire(4096, '\0');
  const ssize_t size = recv(server_fd_.get(), wire.data(), wire.size(), 0);
  ASSERT_GT(size, 1000);
  EXPECT_FALSE(absl::StrContains(wire, "ssss"));
}

TEST_F(TlsStreamTest, WhoHasNoCertificateOfTheAuthorityIsRefused) {
  const auto stranger = CertificateAuthority::Make("a job").value();
  Connect(Context(*authority_, CertificateRole::kTask), Context(*stranger, CertificateRole::kTask));
  EXPECT_NE(ShakeHands(), "");
  Connect(Context(*stranger, CertificateRole::kTask), Context(*authority_, CertificateRole::kTask));
  EXPECT_TRUE(absl::StrContains(ShakeHands(), "certificate verify failed"));
}

TEST_F(TlsStreamTest, AClientsCertificateDoesNotServe) {
  Connect(Context(*authority_, CertificateRole::kTask), Context(*authority_, CertificateRole::kClient));
  EXPECT_EQ(ShakeHands(), "");
  Connect(Context(*authority_, CertificateRole::kClient), Context(*authority_, CertificateRole::kTask));
  EXPECT_TRUE(absl::StrContains(ShakeHands(), "certificate verify failed"));
}

TEST_F(TlsStreamTest, TheServersNameMustBeTheOneThatWasDialled) {
  const auto task = Context(*authority_, CertificateRole::kTask);
  Connect(task, task, "127.0.0.1");
  EXPECT_EQ(ShakeHands(), "");
  for (const char* host : {"node7", "127.0.0.2"}) {
    Connect(task, task, host);
    EXPECT_TRUE(absl::StrContains(ShakeHands(), "certificate verify failed")) << host;
  }
}

TEST_F(TlsStreamTest, BytesThatAreNoTlsEndIt) {
  Connect(Context(*authority_, CertificateRole::kTask), Context(*authority_, CertificateRole::kTask));
  ASSERT_GT(send(client_fd_.get(), "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24, 0), 0);
  char got;
  const iovec room = {&got, 1};
  EXPECT_EQ(server_->Read(absl::MakeConstSpan(&room, 1)), -1);
  EXPECT_EQ(errno, EPROTO);
  EXPECT_NE(server_->error(), "");
}

TEST_F(TlsStreamTest, AnEndThatIsGoneIsAnErrorAndNoSignal) {
  Connect(Context(*authority_, CertificateRole::kTask), Context(*authority_, CertificateRole::kTask));
  ASSERT_EQ(ShakeHands(), "");
  server_ = nullptr;
  server_fd_.Reset();
  const iovec piece = {const_cast<char*>("x"), 1};
  EXPECT_EQ(client_->Write(absl::MakeConstSpan(&piece, 1)), -1);
  EXPECT_NE(errno, EAGAIN);
}

TEST(TlsContext, SaysWhichPartIsNotUsable) {
  const auto authority = CertificateAuthority::Make("a job").value();
  const TlsCredentials good = authority->Issue("peer", {"a"}, CertificateRole::kTask).value();
  const TlsCredentials other = authority->Issue("peer", {"a"}, CertificateRole::kTask).value();
  const auto text = [](TlsCredentials bad) { return std::string(TlsContext::Make(bad).status().message()); };
  EXPECT_TRUE(absl::StrContains(text({good.certificate, good.key, "x"}), "authority"));
  EXPECT_TRUE(absl::StrContains(text({"x", good.key, good.authority}), "certificate"));
  EXPECT_TRUE(absl::StrContains(text({good.certificate, "x", good.authority}), "key"));
  EXPECT_TRUE(absl::StrContains(text({good.certificate, other.key, good.authority}), "key"));
}

}  // namespace
}  // namespace millrace::net
