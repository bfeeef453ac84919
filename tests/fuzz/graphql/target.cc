// GraphQL: the first byte chooses the form. A document reads alike alone, in JSON and in a query string; bounds hold.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "proxy/body/graphql.h"
#include "tests/fuzz/shape.h"

using namespace sluice::proxy;

namespace {

void Bounded(const GraphqlReading& reading) {
  if (reading.items.size() > kMaxGraphqlItems || (!reading.readable() && !reading.items.empty())) std::abort();
  for (const auto& item : reading.items)
    if (item.field.empty()) std::abort();
}

void Document(std::string_view in) {
  const GraphqlReading alone = ReadGraphqlDocument(in, {});
  Bounded(alone);
  if (!alone.readable()) return;
  if (alone.items.empty()) std::abort();
  const GraphqlReading json = ReadGraphqlJson(nlohmann::json{{"query", std::string(in)}}.dump());
  if (json.items != alone.items) std::abort();
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string query = "query=";
  for (const char c : in) {
    const auto byte = static_cast<unsigned char>(c);
    query += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  if (ReadGraphqlQuery(query).items != alone.items) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(data), size);
  if (in.empty()) return 0;
  const std::string_view rest = in.substr(1);
  if (in[0] == 'J') {
    Bounded(ReadGraphqlJson(rest));
  } else if (in[0] == 'Q') {
    const GraphqlReading get = ReadGraphqlQuery(rest);
    Bounded(get);
    if (get.readable() && !QueryHoldsGraphql(rest)) std::abort();
  } else {
    Document(rest);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  return sluice::fuzz::Mutate(sluice::fuzz::kGraphql, data, size, most, seed);
}
