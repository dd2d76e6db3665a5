// SPDX-License-Identifier: MIT
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>

#include "tests/unit/verbs/fixture.h"
#include "verbs/limits.h"

namespace airdma::verbs {
namespace {

using DeviceTest = VerbsTest;

TEST_F(DeviceTest, ListsTwoDevicesPerInterfaceAtStableAddresses) {
  int count = -1;
  ibv_device** first = *get_device_list(&count);
  ibv_device** second = *get_device_list(nullptr);
  ASSERT_GE(count, 2);
  std::set<int> indices;
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(first[i], second[i]);
    const bool iwarp = i % 2 == 1;
    EXPECT_EQ(first[i]->node_type, iwarp ? IBV_NODE_RNIC : IBV_NODE_CA);
    EXPECT_EQ(first[i]->transport_type, iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB);
    EXPECT_EQ(std::string(first[i]->name).find(iwarp ? "iwarp_" : "roce_"), 0u);
    EXPECT_STREQ(*get_device_name(first[i]), first[i]->name);
    EXPECT_NE(*get_device_guid(first[i]), 0u);
    EXPECT_GE(*get_device_index(first[i]), 1);
    indices.insert(*get_device_index(first[i]));
  }
  EXPECT_EQ(indices.size(), static_cast<std::size_t>(count));
  EXPECT_EQ(first[count], nullptr);
  EXPECT_EQ(count % 2, 0);
  EXPECT_EQ(std::string(first[count - 2]->name), "roce_lo");  // real ones come first
  EXPECT_EQ(std::string(first[count - 1]->name), "iwarp_lo");
  ibv_device* kept = first[0];
  free_device_list(first);
  free_device_list(second);
  EXPECT_TRUE(get_device_name(kept));
}

TEST_F(DeviceTest, ListsFirstWhatTheUserPrefers) {
  ::setenv("AIRDMA_CM", "iwarp", 1);
  int count = 0;
  ibv_device** list = *get_device_list(&count);
  ::unsetenv("AIRDMA_CM");
  ASSERT_GE(count, 2);
  EXPECT_EQ(list[0]->transport_type, IBV_TRANSPORT_IWARP);
  EXPECT_EQ(list[count - 1]->transport_type, IBV_TRANSPORT_IB);
  free_device_list(list);
}

TEST_F(DeviceTest, RefusesForeignDevices) {
  ibv_device foreign{};
  EXPECT_EQ(error_of(open_device(nullptr)), EINVAL);
  EXPECT_EQ(error_of(open_device(&foreign)), EINVAL);
  EXPECT_EQ(error_of(get_device_name(&foreign)), EINVAL);
  EXPECT_EQ(error_of(get_device_guid(nullptr)), EINVAL);
}

TEST_F(DeviceTest, QueryDevice) {
  ibv_device_attr attr{};
  ASSERT_EQ(error_of(query_device(context_, &attr)), 0);
  EXPECT_EQ(attr.node_guid, *get_device_guid(device_));
  EXPECT_EQ(attr.phys_port_cnt, 1);
  EXPECT_GT(attr.max_qp, 0);
  EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
  EXPECT_NE(attr.page_size_cap & 4096u, 0u);
  ibv_device_attr_ex ex;
  std::memset(static_cast<void*>(&ex), 0xff, sizeof ex);
  ASSERT_EQ(error_of(query_device_ex(context_, nullptr, &ex, sizeof ex)), 0);
  EXPECT_EQ(ex.orig_attr.max_qp, attr.max_qp);
  EXPECT_EQ(ex.comp_mask, 0u);
  EXPECT_EQ(ex.phys_port_cnt_ex, 1u);
  const ibv_query_device_ex_input unknown{.comp_mask = 1};
  EXPECT_EQ(error_of(query_device_ex(context_, &unknown, &ex, sizeof ex)), EINVAL);
}

TEST_F(DeviceTest, QueryPortWritesNoMoreThanTheCallersStruct) {
  ibv_port_attr attr;
  std::memset(&attr, 0xee, sizeof attr);
  constexpr std::size_t kOldBytes = offsetof(ibv_port_attr, port_cap_flags2);
  ASSERT_EQ(error_of(query_port(context_, 1, &attr, kOldBytes)), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(attr.active_mtu, IBV_MTU_4096);  // loopback has 64 KiB
  EXPECT_EQ(attr.max_msg_sz, 1u << 31);
  EXPECT_EQ(attr.port_cap_flags2, 0xeeee);
  ASSERT_EQ(error_of(query_port(context_, 1, &attr, sizeof attr)), 0);
  EXPECT_EQ(attr.port_cap_flags2, 0);
  EXPECT_EQ(error_of(query_port(context_, 0, &attr, sizeof attr)), EINVAL);
  EXPECT_EQ(error_of(query_port(context_, 2, &attr, sizeof attr)), EINVAL);
}

TEST_F(DeviceTest, GidsAreTheInterfacesAddresses) {
  ibv_gid_entry table[kGidTableLength];
  const auto used = query_gid_table(context_, table, kGidTableLength, 0, sizeof table[0]);
  ASSERT_TRUE(used);
  const std::uint8_t loopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  bool found = false;
  for (ssize_t i = 0; i < *used; ++i) {
    ibv_gid gid;
    ASSERT_EQ(error_of(query_gid(context_, 1, static_cast<int>(i), &gid)), 0);
    EXPECT_EQ(std::memcmp(gid.raw, table[i].gid.raw, 16), 0);
    found = found || std::memcmp(gid.raw, loopback, 16) == 0;
  }
  EXPECT_TRUE(found);
  ibv_gid_entry entry;
  const auto unused = static_cast<std::uint32_t>(*used);
  EXPECT_EQ(error_of(query_gid_ex(context_, 1, unused, &entry, 0, sizeof entry)), ENODATA);
  EXPECT_EQ(error_of(query_gid_ex(context_, 1, 0, &entry, 0, sizeof entry)), 0);
  EXPECT_EQ(error_of(query_gid_ex(context_, 1, kGidTableLength, &entry, 0, sizeof entry)), EINVAL);
  EXPECT_EQ(error_of(query_gid_table(context_, table, 0, 0, sizeof table[0])), EINVAL);
  ibv_gid gid;
  EXPECT_EQ(error_of(query_gid(context_, 1, -1, &gid)), EINVAL);
}

TEST_F(DeviceTest, PartitionKeys) {
  __be16 pkey = 0;
  ASSERT_EQ(error_of(query_pkey(context_, 1, 0, &pkey)), 0);
  EXPECT_EQ(*get_pkey_index(context_, 1, pkey), 0);
  EXPECT_EQ(error_of(query_pkey(context_, 1, 1, &pkey)), EINVAL);
  EXPECT_FALSE(get_pkey_index(context_, 1, htobe16(1)));
}

TEST_F(DeviceTest, ClosingWithLiveObjectsEndsThem) {
  ibv_comp_channel* channel = *create_comp_channel(context_);
  ibv_cq* cq = make_cq(4, channel);
  ibv_qp* qp = make_qp(cq);
  char buffer[64];
  ibv_mr* mr = *reg_mr(pd_, buffer, sizeof buffer, 0);
  ibv_context* context = std::exchange(context_, nullptr);
  EXPECT_EQ(error_of(close_device(context)), 0);
  EXPECT_EQ(error_of(close_device(context)), EINVAL);
  EXPECT_EQ(error_of(destroy_qp(qp)), EINVAL);
  EXPECT_EQ(error_of(destroy_cq(cq)), EINVAL);
  EXPECT_EQ(error_of(dereg_mr(mr)), EINVAL);
  EXPECT_EQ(error_of(dealloc_pd(pd_)), EINVAL);
  EXPECT_EQ(error_of(destroy_comp_channel(channel)), EINVAL);
  ibv_wc wc;
  EXPECT_LT(poll_cq(cq, 1, &wc), 0);
}

TEST_F(DeviceTest, AsyncDescriptorHonoursNonBlocking) {
  ASSERT_GE(context_->async_fd, 3);
  ASSERT_GE(context_->cmd_fd, 3);
  ASSERT_EQ(::fcntl(context_->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event;
  EXPECT_EQ(error_of(get_async_event(context_, &event)), EAGAIN);
}

}  // namespace
}  // namespace airdma::verbs
