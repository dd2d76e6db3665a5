// SPDX-License-Identifier: MIT
#include "io/local_socket.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

namespace airdma::io {
namespace {

std::string own_name(const char* what) {
  return std::string("airdma-test/") + what + "/" + std::to_string(::getpid());
}

Status send(LocalConnection& connection, std::string text) {
  iovec piece{text.data(), text.size()};
  return connection.send({&piece, 1});
}

std::string receive(LocalConnection& connection) {
  std::vector<std::byte> memory(LocalConnection::kMaxBytes);
  const auto got = connection.receive(memory);
  return got ? std::string(reinterpret_cast<const char*>(memory.data()), *got)
             : "errno " + std::to_string(got.error().code);
}

TEST(LocalSocket, CarriesWholeMessages) {
  auto listener = LocalListener::open(own_name("whole")).value();
  EXPECT_EQ(LocalListener::open(own_name("whole")).error().code, EADDRINUSE);
  auto out = LocalConnection::connect(own_name("whole")).value();
  // Nobody need be awake at the other end.
  ASSERT_TRUE(send(out, "one"));
  ASSERT_TRUE(send(out, std::string(LocalConnection::kMaxBytes, 'x')));
  auto in = listener.accept().value();
  EXPECT_EQ(listener.accept().error().code, EAGAIN);
  EXPECT_EQ(receive(in), "one");
  EXPECT_EQ(receive(in), std::string(LocalConnection::kMaxBytes, 'x'));
  EXPECT_EQ(receive(in), "errno " + std::to_string(EAGAIN));
  ASSERT_TRUE(send(out, "too long"));
  std::vector<std::byte> small(3);
  EXPECT_EQ(in.receive(small).error().code, EMSGSIZE);
  EXPECT_FALSE(in.ended());
  out.close();
  EXPECT_TRUE(in.ended());
  EXPECT_EQ(receive(in), "errno " + std::to_string(ENODATA));
}

TEST(LocalSocket, TellsThatNobodyIsThere) {
  EXPECT_EQ(LocalConnection::connect(own_name("nobody")).error().code, ECONNREFUSED);
  auto listener = LocalListener::open(own_name("gone")).value();
  auto out = LocalConnection::connect(own_name("gone")).value();
  auto in = listener.accept().value();
  in.close();
  EXPECT_TRUE(out.ended());
  const auto status = send(out, "lost");
  ASSERT_FALSE(status);
  EXPECT_TRUE(status.error().code == EPIPE || status.error().code == ECONNRESET);
}

TEST(LocalSocket, IsFullWhenNobodyReads) {
  auto listener = LocalListener::open(own_name("full")).value();
  auto out = LocalConnection::connect(own_name("full")).value();
  auto other = LocalConnection::connect(own_name("full")).value();
  const std::string message(LocalConnection::kMaxBytes, 'x');
  int sent = 0;
  while (send(out, message)) ++sent;
  EXPECT_EQ(send(out, message).error().code, EAGAIN);
  EXPECT_GE(sent, 1);
  EXPECT_TRUE(send(other, message)) << "each connection has room of its own";
}

TEST(LocalSocket, ListsNames) {
  auto listener = LocalListener::open(own_name("listed")).value();
  auto out = LocalConnection::connect(own_name("listed")).value();
  auto in = listener.accept().value();
  const auto names = local_names("airdma-test/listed/");
  EXPECT_EQ(std::ranges::count(names, own_name("listed")), 1);
  listener.close();  // the connection stays, and has the name
  const auto later = local_names("airdma-test/listed/");
  EXPECT_EQ(std::ranges::find(later, own_name("listed")), later.end());
}

// A child of another user id in the same network namespace; needs root.
int as_another_user(const std::string& name) {
  if (::setresuid(65432, 65432, 65432) != 0) return 2;
  return LocalConnection::connect(name).error().code == EACCES ? 0 : 1;
}

TEST(LocalSocket, RefusesOtherUsers) {
  const std::string name = own_name("user");
  auto listener = LocalListener::open(name).value();
  const pid_t child = ::fork();
  if (child == 0) ::_exit(as_another_user(name));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "not root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(listener.accept().error().code, EAGAIN) << "its connection is not taken in";
}

TEST(LocalSocket, StaysInItsNetworkNamespace) {
  auto listener = LocalListener::open(own_name("space")).value();
  const std::string name = own_name("space");
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(2);
    const bool apart =
        LocalConnection::connect(name).error().code == ECONNREFUSED && local_names(name).empty();
    ::_exit(apart ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no network namespace to be had";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace airdma::io
