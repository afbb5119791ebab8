#include "millrace/net/tls/certificate_authority.h"

#include <gtest/gtest.h>
#include <openssl/x509v3.h>

#include "millrace/net/tls/openssl_types.h"

namespace millrace::net {
namespace {

std::unique_ptr<CertificateAuthority> NewAuthority() { return CertificateAuthority::Make("a job").value(); }

bool Verifies(const std::string& certificate, const std::string& authority) {
  const CertificatePtr own = ParseCertificate(certificate);
  const CertificatePtr issuer = ParseCertificate(authority);
  return X509_verify(own.get(), X509_get0_pubkey(issuer.get())) == 1;
}

TEST(CertificateAuthority, SignsForTheHostsThatItIsGiven) {
  const auto authority = NewAuthority();
  const TlsCredentials task =
      authority->Issue("worker/0", {"node7", "10.0.0.7", "::1"}, CertificateRole::kTask).value();
  EXPECT_TRUE(Verifies(task.certificate, task.authority));
  const CertificatePtr certificate = ParseCertificate(task.certificate);
  EXPECT_EQ(X509_check_host(certificate.get(), "node7", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "10.0.0.7", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "::1", 0), 1);
  EXPECT_NE(X509_check_host(certificate.get(), "node8", 0, 0, nullptr), 1);
  EXPECT_NE(X509_check_ip_asc(certificate.get(), "10.0.0.8", 0), 1);
}

TEST(CertificateAuthority, IsUnlikeEveryOtherOfTheSameName) {
  const TlsCredentials one = NewAuthority()->Issue("worker/0", {"a"}, CertificateRole::kTask).value();
  const TlsCredentials other = NewAuthority()->Issue("worker/0", {"a"}, CertificateRole::kTask).value();
  EXPECT_FALSE(Verifies(one.certificate, other.authority));
  EXPECT_NE(one.key, other.key);
}

TEST(CertificateAuthority, ACertificateCannotSignFurtherOnes) {
  const TlsCredentials task = NewAuthority()->Issue("worker/0", {"a"}, CertificateRole::kTask).value();
  EXPECT_EQ(X509_check_ca(ParseCertificate(task.certificate).get()), 0);
  EXPECT_EQ(X509_check_ca(ParseCertificate(task.authority).get()), 1);
}

TEST(CertificateRole, AClientsCertificateIsNoTasks) {
  const auto authority = NewAuthority();
  const TlsCredentials task = authority->Issue("worker/0", {"a"}, CertificateRole::kTask).value();
  const TlsCredentials client = authority->Issue("client", {}, CertificateRole::kClient).value();
  EXPECT_EQ(RoleOf(task.certificate), CertificateRole::kTask);
  EXPECT_EQ(RoleOf(client.certificate), CertificateRole::kClient);
  EXPECT_EQ(RoleOf(task.authority), CertificateRole::kTask) << "without an extended key usage";
  EXPECT_EQ(RoleOf("no certificate"), CertificateRole::kClient);
  CertificateRoles roles;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(roles.Of(task.certificate), CertificateRole::kTask);
    EXPECT_EQ(roles.Of(client.certificate), CertificateRole::kClient);
  }
}

}  // namespace
}  // namespace millrace::net
