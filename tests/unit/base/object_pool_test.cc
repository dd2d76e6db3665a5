// SPDX-License-Identifier: MIT
#include "base/object_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <vector>

namespace airdma {
namespace {

struct Handle {
  int value = 0;
};

struct Object {
  explicit Object(int v, bool bad = false) : pub{v} {
    if (bad) throw std::runtime_error("constructor");
    ++alive;
  }
  ~Object() { --alive; }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  Handle* handle() { return &pub; }

  long before = 0;  // the handle is not at the object's start
  Handle pub;
  inline static int alive = 0;
};

TEST(ObjectPool, FindsLiveObjectsOnly) {
  ObjectPool<Object> pool;
  EXPECT_EQ(pool.find(static_cast<Handle*>(nullptr)), nullptr);
  Handle foreign;
  EXPECT_EQ(pool.find(&foreign), nullptr);
  Object* object = pool.create(7);
  EXPECT_EQ(pool.find(&object->pub), object);
  EXPECT_EQ(pool.find(&foreign), nullptr);
  Handle* handle = &object->pub;
  pool.destroy(object);
  EXPECT_EQ(pool.find(handle), nullptr);
  EXPECT_EQ(Object::alive, 0);
}

TEST(ObjectPool, RefusesAddressesInsideAnObject) {
  ObjectPool<Object> pool;
  Object* object = pool.create(7);
  const auto* bytes = reinterpret_cast<const std::byte*>(&object->pub);
  for (const int offset : {-8, -1, 1, 4, 8}) {
    EXPECT_EQ(pool.find(reinterpret_cast<const Handle*>(bytes + offset)), nullptr) << offset;
  }
  pool.destroy(object);
}

TEST(ObjectPool, FreedSlotsRestBeforeTheyAreUsedAgain) {
  ObjectPool<Object> pool;
  Object* first = pool.create(0);
  pool.destroy(first);
  for (int i = 0; i < 60; ++i) {
    Object* next = pool.create(i);
    EXPECT_NE(next, first) << i;
    pool.destroy(next);
  }
}

TEST(ObjectPool, ManyObjectsInManyChunks) {
  ObjectPool<Object> pool;
  std::vector<Object*> objects;
  for (int i = 0; i < 5000; ++i) objects.push_back(pool.create(i));
  EXPECT_EQ(std::set<Object*>(objects.begin(), objects.end()).size(), objects.size());
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(pool.find(&objects[static_cast<std::size_t>(i)]->pub)->pub.value, i);
  }
  int seen = 0;
  pool.for_each([&](Object&) { ++seen; });
  EXPECT_EQ(seen, 5000);
  for (Object* object : objects) pool.destroy(object);
  pool.for_each([&](Object&) { FAIL(); });
}

TEST(ObjectPool, ThrowingConstructorLeavesNothing) {
  ObjectPool<Object> pool;
  EXPECT_THROW(pool.create(1, true), std::runtime_error);
  pool.for_each([&](Object&) { FAIL(); });
  Object* object = pool.create(2);
  EXPECT_EQ(pool.find(&object->pub), object);
  pool.destroy(object);
}

}  // namespace
}  // namespace airdma
