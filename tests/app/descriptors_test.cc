#include <gtest/gtest.h>

#include "app/host.h"

namespace sluice::app {
namespace {

TEST(Descriptors, ConnectionsLeaveSomeToTheSupervisor) {
  struct Case {
    uint64_t limit;
    int ceiling;
  };
  const Case cases[] = {{256, 192}, {1024, 896}, {20'000, 19'488}, {uint64_t{1} << 20, (1 << 20) - 512}};
  for (const Case& c : cases) {
    const auto room = RoomFor(c.limit);
    ASSERT_TRUE(room) << c.limit;
    EXPECT_EQ(room->limit, static_cast<int>(c.limit));
    EXPECT_EQ(room->ceiling, c.ceiling) << c.limit;
  }
  EXPECT_EQ(RoomFor(~uint64_t{0})->limit, 1 << 20) << "no limit at all";
}

TEST(Descriptors, TooFewAreRefusedAndTheNumberNeededIsNamed) {
  const auto room = RoomFor(255);
  ASSERT_FALSE(room);
  EXPECT_NE(room.error().message.find("at most 255"), std::string::npos) << room.error().message;
  EXPECT_NE(room.error().message.find("needs 256"), std::string::npos) << room.error().message;
}

}  // namespace
}  // namespace sluice::app
