#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace sluice {
namespace {

TEST(BoundedQueue, RefusesWhenFullAndWhenClosed) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  EXPECT_EQ(queue.PopAll()->size(), 2u);
  queue.Close();
  EXPECT_FALSE(queue.TryPush(4));
  EXPECT_FALSE(queue.PopAll());
}

TEST(BoundedQueue, LosesNothingBetweenThreads) {
  BoundedQueue<int> queue(1'000'000);
  std::vector<std::jthread> producers;
  for (int p = 0; p < 4; ++p)
    producers.emplace_back([&queue] {
      for (int i = 0; i < 10'000; ++i)
        while (!queue.TryPush(1)) std::this_thread::yield();
    });
  size_t seen = 0;
  while (seen < 40'000) seen += queue.PopAll()->size();
  EXPECT_EQ(seen, 40'000u);
}

}  // namespace
}  // namespace sluice
