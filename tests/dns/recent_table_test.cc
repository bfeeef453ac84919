#include "dns/recent_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>
#include <string>
#include <string_view>

namespace sluice::dns {
namespace {

using Table = RecentTable<std::string, int>;

// All keys fall on a few places, so that each search meets others.
struct Crowded {
  size_t operator()(int key) const { return static_cast<size_t>(key % 3); }
};

// What the table is to be: a list, the one used last in front.
template <class Key>
struct Plain {
  std::list<std::pair<Key, int>> entries;
  auto Find(const Key& key) { return std::ranges::find(entries, key, &std::pair<Key, int>::first); }
};

template <class Key, class Hash, class Make>
void AgreesWithAList(size_t capacity, Make make) {
  RecentTable<Key, int, Hash> table(capacity);
  Plain<Key> plain;
  std::mt19937 random(7);
  for (int step = 0; step < 20000; ++step) {
    const Key key = make(static_cast<int>(random() % 90));
    const auto expected = plain.Find(key);
    const auto found = table.Find(key);
    ASSERT_EQ(found.has_value(), expected != plain.entries.end()) << step;
    switch (random() % 4) {
      case 0:
        if (!found) break;
        ASSERT_EQ(table.value(*found), expected->second) << step;
        table.Erase(*found);
        plain.entries.erase(expected);
        break;
      case 1:
        if (!found) break;
        table.Use(*found);
        plain.entries.splice(plain.entries.begin(), plain.entries, expected);
        break;
      default:
        if (found) break;
        table.value(table.Take(key)) = step;
        if (plain.entries.size() == capacity) plain.entries.pop_back();
        plain.entries.emplace_front(key, step);
    }
    ASSERT_EQ(table.size(), plain.entries.size()) << step;
    auto at = table.newest();
    for (const auto& [name, value] : plain.entries) {
      ASSERT_TRUE(at) << step;
      ASSERT_EQ(table.key(*at), name) << step;
      ASSERT_EQ(table.value(*at), value) << step;
      at = table.older(*at);
    }
    ASSERT_FALSE(at) << step;
  }
}

TEST(RecentTableTest, ItIsAListOfTheMostRecent) {
  const auto text = [](int i) { return "k" + std::to_string(i); };
  for (const size_t capacity : {1u, 8u, 37u, 200u}) AgreesWithAList<std::string, KeyedHasher>(capacity, text);
}

TEST(RecentTableTest, KeysOfOneHashAreToldApart) {
  const auto number = [](int i) { return i; };
  for (const size_t capacity : {1u, 8u, 37u, 200u}) AgreesWithAList<int, Crowded>(capacity, number);
}

TEST(RecentTableTest, AViewFindsWhatTextWasPut) {
  Table table(4);
  table.value(table.Take(std::string_view("a name that is longer than fits in place"))) = 1;
  EXPECT_TRUE(table.Find(std::string("a name that is longer than fits in place")));
  EXPECT_FALSE(table.Find(std::string_view("a name")));
}

TEST(RecentTableTest, TheValueOfTheOneThatWentIsThereToBeUsedAgain) {
  RecentTable<int, std::string, std::hash<int>> table(1);
  table.value(table.Take(1)) = "kept";
  EXPECT_EQ(table.value(table.Take(2)), "kept");
  table.Erase(*table.Find(2));
  EXPECT_EQ(table.value(table.Take(3)), "") << "what was erased is nobody's";
}

}  // namespace
}  // namespace sluice::dns
