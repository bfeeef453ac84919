#include "dns/frame.h"

#include <gtest/gtest.h>

namespace sluice::dns {
namespace {

using Octets = std::vector<uint8_t>;

TEST(FrameTest, MessagesComeOutWholeHoweverTheStreamIsCut) {
  const std::vector<Octets> messages = {{1, 2, 3}, {}, Octets(300, 7), Octets(65535, 9), {4}};
  Octets stream;
  for (const Octets& message : messages) {
    const Octets frame = Framed(message);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{1000}, stream.size()}) {
    FrameReader reader;
    std::vector<Octets> seen;
    for (size_t at = 0; at < stream.size(); at += piece) {
      reader.Feed(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
      while (auto message = reader.Next()) seen.push_back(std::move(*message));
    }
    EXPECT_EQ(seen, messages) << piece;
    EXPECT_EQ(reader.pending(), 0u);
  }
}

TEST(FrameTest, WhatIsNotYetWholeIsKept) {
  FrameReader reader;
  reader.Feed(Octets{0, 3, 1, 2});
  EXPECT_FALSE(reader.Next());
  EXPECT_EQ(reader.pending(), 4u);
  reader.Feed(Octets{3, 0});
  EXPECT_EQ(reader.Next(), (Octets{1, 2, 3}));
  EXPECT_FALSE(reader.Next());
  EXPECT_EQ(reader.pending(), 1u);
}

}  // namespace
}  // namespace sluice::dns
