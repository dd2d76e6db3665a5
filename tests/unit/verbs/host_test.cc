// SPDX-License-Identifier: MIT
#include <errno.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "verbs/api.h"

namespace airdma::verbs {
namespace {

TEST(ReadSysfsFile, DropsTheNewlineAndEndsTheText) {
  char text[16] = "###############";
  const auto bytes = read_sysfs_file("/proc/sys/kernel", "ostype", text, sizeof(text));
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ(*bytes, 5);
  EXPECT_STREQ(text, "Linux");
}

TEST(ReadSysfsFile, FillsASmallBufferWithoutATerminator) {
  char text[4] = {'#', '#', '#', '#'};
  const auto bytes = read_sysfs_file("/proc/sys/kernel", "ostype", text, 3);
  ASSERT_TRUE(bytes.has_value());
  EXPECT_EQ(*bytes, 3);
  EXPECT_EQ(std::string(text, 4), "Lin#");
}

TEST(ReadSysfsFile, TellsWhyItFailed) {
  char text[4];
  EXPECT_EQ(read_sysfs_file("/proc", "none/such", text, 4).error().code, ENOENT);
  EXPECT_EQ(read_sysfs_file("/proc", "self", text, 4).error().code, EISDIR);
  EXPECT_EQ(read_sysfs_file(nullptr, "self", text, 4).error().code, EINVAL);
}

TEST(SysfsPath, IsTheEnvironmentsOrTheUsualOne) {
  unsetenv("SYSFS_PATH");
  EXPECT_STREQ(get_sysfs_path(), "/sys");
  setenv("SYSFS_PATH", "/elsewhere", 1);
  EXPECT_STREQ(get_sysfs_path(), "/elsewhere");
  unsetenv("SYSFS_PATH");
}

TEST(ContextSlots, AreFilledByWhoRegistered) {
  verbs_context context{};
  set_slot_filler(nullptr);
  fill_context_slots(context);
  EXPECT_EQ(context.sz, 0U);
  set_slot_filler([](verbs_context& slots) { slots.sz = 7; });
  fill_context_slots(context);
  EXPECT_EQ(context.sz, 7U);
  set_slot_filler(nullptr);
}

}  // namespace
}  // namespace airdma::verbs
